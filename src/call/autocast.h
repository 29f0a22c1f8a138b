// SPDX-License-Identifier: Apache-2.0
// Mixed precision (autocast): per-thread state read by the driver at each call.
#pragma once
#include "call/op_impl.h"
#include "phlox/autocast.h"

typedef struct px__casts px__casts;
typedef struct px__autocast {
  bool on;      // a device type is enabled, and no op with suspended autocast is running
  bool passed;  // the next call was already checked: its policy does not apply
  px_autocast set;
  int nesting;
  px__casts *casts;  // NULL until one is cached
} px__autocast;
extern _Thread_local PX__HIDDEN_THREAD px__autocast px__autocast_here;

// The arguments of a call to an op with a policy: `given` is `args` after casting, or the caller's
// own if no argument is cast.
enum { PX__CASTS = PX__MAX_PARAMS };
typedef struct px__casting {
  const px_value *given;
  px_device_type type;
  px_dtype dtype;
  bool was_on;
  px_value args[PX__MAX_PARAMS];
  px_tensor *small[PX__CASTS], **made;  // owned: one for each tensor argument
  int64_t count;
} px__casting;
// True if a call to an op with a policy needs px__autocast_begin. The thread's autocast is on.
bool px__autocast_due(void);
// Casts the arguments. The caller then calls the op with `given` on the same thread, and
// px__autocast_end also after a failure. Autocast is off in between if the policy applies: nested
// calls compute in the dtypes of their arguments.
px_status px__autocast_begin(px__casting *c, const px_op *op, px_call_mode mode,
                             const px_value *args) __attribute__((warn_unused_result));
void px__autocast_end(px__casting *c);
