// SPDX-License-Identifier: Apache-2.0
// The run function of all updates of optimisers (optim/*.optim): the results are the parameter and
// its states, which the kernel changes in place.
#include "ops/run.h"
#include "run_functions/optimizers.h"

// A number may stand for a tensor without dimensions: it lies on the host.
static px_status same(const px_tensor *t, const px_tensor *param, const char *name) {
  bool equal =
      t->ndim == param->ndim && !memcmp(t->sizes, param->sizes, (size_t)t->ndim * sizeof *t->sizes);
  PX_CHECK(equal, PX_RUNTIME, "an optimizer's %s must have the parameter's size", name);
  PX_CHECK(px__device_reaches(px__tensor_device(param), px__tensor_device(t)), PX_RUNTIME,
           "an optimizer's %s must be on the parameter's device", name);
  return PX_OK;
}

// Behind the parameter and its gradient come the states, one for each result after the first.
PX_RUN(optimizer_step) {
  enum { STATES = 2 };
  const px_op *op = call->op;
  PX_TRY(px__call_same_device(call));
  PX_CHECK(call->mode == PX_CALL_NEW, PX_RUNTIME, "%s has no out=", op->name);
  PX_TRY(same(args->grad, args->param, "gradient"));
  for (int k = 0; k < op->result_count - 1; k++) {
    px_tensor *state = call->args[STATES + k].v.tensor;
    if (call->args[STATES + k].kind != PX_ARG_TENSOR) continue;
    PX_TRY(same(state, args->param, op->params[STATES + k].name));
    call->results[1 + k] = px_retain(state);
  }
  call->results[0] = px_retain(args->param);
  for (int i = 0; i < op->result_count; i++)
    if (call->results[i]) px_tensor_bump_version(call->results[i]);
  return PX_OK;
}
