// SPDX-License-Identifier: Apache-2.0
// What the driver reads of mixed precision at each call.
#pragma once
#include "call/op_impl.h"
#include "phlox/autocast.h"

typedef struct px__casts px__casts;
typedef struct px__autocast {
  bool on;  // some device type is enabled, and no op whose calls are left as they are is running
  bool passed;  // the call that comes was looked at, and its policy does not apply
  px_autocast set;
  int nesting;
  px__casts *casts;  // NULL until one is cached
} px__autocast;
extern _Thread_local PX__HIDDEN_THREAD px__autocast px__autocast_here;

// What a call of an op that has a policy is given in the place of its arguments: `given`, which are
// the caller's where nothing is cast.
enum { PX__CASTS = PX__MAX_PARAMS };
typedef struct px__casting {
  const px_value *given;
  px_device_type type;
  px_dtype dtype;
  bool was_on;
  px_value args[PX__MAX_PARAMS];
  px_tensor *small[PX__CASTS], **made;  // owned: one for each tensor among the arguments
  int64_t count;
} px__casting;
// Whether a call of an op that has a policy, on a thread where autocast is on, is to be looked at.
bool px__autocast_due(void);
// Looks at it: `given` is then called, on the same thread; px__autocast_end ends it, also on
// failure. In between autocast is off if the policy applies: what the op calls in turn computes in
// the dtypes that it is given.
px_status px__autocast_begin(px__casting *c, const px_op *op, px_call_mode mode,
                             const px_value *args) __attribute__((warn_unused_result));
void px__autocast_end(px__casting *c);
