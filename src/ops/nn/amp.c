// SPDX-License-Identifier: Apache-2.0
// Run function of gradient scaling. The kernel updates its first two tensors in place. They are
// also the results.
#include "ops/core/run.h"
#include "run_functions/amp.h"

enum { CHANGED = 2 };

PX_RUN(amp) {
  PX_TRY(px__call_same_device(call));
  PX_CHECK(call->mode == PX_CALL_NEW, PX_RUNTIME, "%s does not support out=", call->op->name);
  for (int i = 0; i < CHANGED; i++) PX_TRY(px_op_before_write(call->args[i].v.tensor));
  for (int i = 0; i < CHANGED; i++) {
    call->results[i] = px_retain(call->args[i].v.tensor);
    px_tensor_bump_version(call->results[i]);
  }
  return PX_OK;
}
