// SPDX-License-Identifier: Apache-2.0
// Run functions of the optimizer steps: the results are the tensors given, which the kernel
// changes.
#include "ops/run.h"

static px_status same(const px_tensor *t, const px_tensor *param, const char *name) {
  bool equal =
      t->ndim == param->ndim && !memcmp(t->sizes, param->sizes, (size_t)t->ndim * sizeof *t->sizes);
  PX_CHECK(equal, PX_RUNTIME, "an optimizer's %s must have the parameter's size", name);
  return PX_OK;
}
// Result i is t, changed in place.
static px_status change(px_call *call, int i, px_tensor *t, const px_tensor *param,
                        const char *name) {
  if (!t) return PX_OK;
  PX_TRY(same(t, param, name));
  PX_CHECK(call->mode == PX_CALL_NEW, PX_RUNTIME, "%s has no out=", call->op->name);
  call->results[i] = px_retain(t);
  px_tensor_bump_version(t);
  return PX_OK;
}
PX_RUN(sgd_step) {
  PX_TRY(px__call_same_device(call));
  PX_TRY(same(args->grad, args->param, "gradient"));
  PX_TRY(change(call, 1, args->momentum_buffer, args->param, "momentum buffer"));
  return change(call, 0, args->param, args->param, "parameter");
}
PX_RUN(adam_step) {
  PX_TRY(px__call_same_device(call));
  PX_TRY(same(args->grad, args->param, "gradient"));
  PX_TRY(change(call, 1, args->exp_avg, args->param, "average"));
  PX_TRY(change(call, 2, args->exp_avg_sq, args->param, "average of squares"));
  PX_TRY(change(call, 3, args->max_exp_avg_sq, args->param, "greatest average of squares"));
  return change(call, 0, args->param, args->param, "parameter");
}
PX_RUN(adadelta_step) {
  PX_TRY(px__call_same_device(call));
  PX_TRY(same(args->grad, args->param, "gradient"));
  PX_TRY(change(call, 1, args->square_avg, args->param, "average of squares"));
  PX_TRY(change(call, 2, args->acc_delta, args->param, "average of steps"));
  return change(call, 0, args->param, args->param, "parameter");
}
