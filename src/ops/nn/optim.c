// SPDX-License-Identifier: Apache-2.0
// Run functions of optimizer updates (optim/*.optim). The results are the parameter and its states,
// updated in place by the kernel. Also the update's scalars, computed on the device.
#include "ops/core/run.h"
#include "run_functions/optimizers.h"

// Checks a state's size and device.
static px_status check_same(const px_tensor *t, const px_tensor *param, const char *name) {
  PX_CHECK(px__has_sizes(t, param->ndim, param->sizes), PX_RUNTIME,
           "an optimizer's %s must have the parameter's size", name);
  PX_CHECK(px__device_reaches(px__tensor_device(param), px__tensor_device(t)), PX_RUNTIME,
           "an optimizer's %s must be on the parameter's device", name);
  return PX_OK;
}

static bool is_scalar(const px_op *op, int k) { return !strncmp(op->params[k].name, "scalar_", 7); }
static px_status check_one(const px_tensor *t, const char *name) {
  PX_CHECK(t->numel == 1, PX_RUNTIME, "an optimizer's %s must have one element", name);
  return PX_OK;
}

// The arguments after parameter and gradient are states, one for each result after the first.
// Scalar states are tensors only if the update's numbers are on the device too.
static px_status update(px_call *call, px_tensor *self, const px_tensor *grad, bool scalars) {
  enum { STATES = 2 };
  const px_op *op = call->op;
  PX_TRY(px__call_same_device(call));
  PX_CHECK(call->mode == PX_CALL_NEW, PX_RUNTIME, "%s does not support out=", op->name);
  PX_TRY(check_same(grad, self, "gradient"));
  for (int k = 0; k < op->result_count - 1; k++) {
    px_tensor *state = call->args[STATES + k].v.tensor;
    const char *name = op->params[STATES + k].name;
    if (call->args[STATES + k].kind != PX_ARG_TENSOR) continue;
    PX_TRY(scalars && is_scalar(op, STATES + k) ? check_one(state, name)
                                                : check_same(state, self, name));
    call->results[1 + k] = px_retain(state);
  }
  call->results[0] = px_retain(self);
  for (int i = 0; i < op->result_count; i++) PX_TRY(px_op_before_write(call->results[i]));
  for (int i = 0; i < op->result_count; i++)
    if (call->results[i]) px_tensor_bump_version(call->results[i]);
  return PX_OK;
}
PX_RUN(optimizer_step) { return update(call, args->param, args->grad, false); }

// The last two arguments are the numbers and the index of a row.
PX_RUN(optimizer_step_by) {
  const px_value *last = &call->args[call->op->param_count - 2];
  const px_tensor *numbers = last->v.tensor;
  int64_t row = px_value_int(last[1]);
  PX_CHECK(numbers->ndim == 2 && numbers->sizes[1] == PX_NUMBERS_ROW, PX_RUNTIME,
           "expected the numbers of a step in rows of %d", PX_NUMBERS_ROW);
  PX_CHECK(row >= 0 && row < numbers->sizes[0], PX_INDEX, "row %lld of the numbers is out of range",
           (long long)row);
  return update(call, args->param, args->grad, true);
}

PX_RUN(optimizer_numbers) {
  int64_t count = args->scalars.n, each = args->each;
  PX_CHECK(each ? count % each == 0 : !count, PX_RUNTIME,
           "expected a multiple of the number of scalars per parameter, got %lld",
           (long long)count);
  PX_TRY(px__call_same_device(call));
  for (int64_t i = 0; i < count; i++) PX_TRY(check_one(args->scalars.v.tensors[i], "scalar"));
  if (args->rate) PX_TRY(check_one(args->rate, "rate"));
  if (args->found_inf) PX_TRY(check_one(args->found_inf, "found_inf"));
  int64_t sizes[] = {each ? count / each : 1, PX_NUMBERS_ROW};
  return px__call_result(call, 0, 2, sizes, PX_FLOAT64);
}
