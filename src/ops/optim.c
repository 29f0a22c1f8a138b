// SPDX-License-Identifier: Apache-2.0
// The run functions of all updates of optimisers (optim/*.optim): the results are the parameter and
// its states, which the kernel changes in place. And that of their numbers, made on the device.
#include "ops/run.h"
#include "run_functions/optimizers.h"

// A number may stand for a tensor without dimensions: it lies on the host.
static px_status same(const px_tensor *t, const px_tensor *param, const char *name) {
  PX_CHECK(px__has_sizes(t, param->ndim, param->sizes), PX_RUNTIME,
           "an optimizer's %s must have the parameter's size", name);
  PX_CHECK(px__device_reaches(px__tensor_device(param), px__tensor_device(t)), PX_RUNTIME,
           "an optimizer's %s must be on the parameter's device", name);
  return PX_OK;
}

static bool is_scalar(const px_op *op, int k) { return !strncmp(op->params[k].name, "scalar_", 7); }
static px_status one(const px_tensor *t, const char *name) {
  PX_CHECK(t->numel == 1, PX_RUNTIME, "an optimizer's %s must have one element", name);
  return PX_OK;
}

// Behind the parameter and its gradient come the states, one for each result after the first;
// scalars among them only where the numbers lie on the device, too.
static px_status change(px_call *call, px_tensor *self, const px_tensor *grad, bool scalars) {
  enum { STATES = 2 };
  const px_op *op = call->op;
  PX_TRY(px__call_same_device(call));
  PX_CHECK(call->mode == PX_CALL_NEW, PX_RUNTIME, "%s has no out=", op->name);
  PX_TRY(same(grad, self, "gradient"));
  for (int k = 0; k < op->result_count - 1; k++) {
    px_tensor *state = call->args[STATES + k].v.tensor;
    const char *name = op->params[STATES + k].name;
    if (call->args[STATES + k].kind != PX_ARG_TENSOR) continue;
    PX_TRY(scalars && is_scalar(op, STATES + k) ? one(state, name) : same(state, self, name));
    call->results[1 + k] = px_retain(state);
  }
  call->results[0] = px_retain(self);
  for (int i = 0; i < op->result_count; i++) PX_TRY(px_op_before_write(call->results[i]));
  for (int i = 0; i < op->result_count; i++)
    if (call->results[i]) px_tensor_bump_version(call->results[i]);
  return PX_OK;
}
PX_RUN(optimizer_step) { return change(call, args->param, args->grad, false); }

// The last arguments are the numbers, and which of their lines is meant.
PX_RUN(optimizer_step_by) {
  const px_value *last = &call->args[call->op->param_count - 2];
  const px_tensor *numbers = last->v.tensor;
  int64_t line = px_value_int(last[1]);
  PX_CHECK(numbers->ndim == 2 && numbers->sizes[1] == PX_NUMBERS_ROW, PX_RUNTIME,
           "the numbers of a step are lines of %d", PX_NUMBERS_ROW);
  PX_CHECK(line >= 0 && line < numbers->sizes[0], PX_INDEX, "there is no line %lld of numbers",
           (long long)line);
  return change(call, args->param, args->grad, true);
}

PX_RUN(optimizer_numbers) {
  int64_t count = args->scalars.n, each = args->each;
  PX_CHECK(each ? count % each == 0 : !count, PX_RUNTIME,
           "%lld numbers are not the scalars of whole parameters", (long long)count);
  PX_TRY(px__call_same_device(call));
  for (int64_t i = 0; i < count; i++) PX_TRY(one(args->scalars.v.tensors[i], "scalar"));
  if (args->rate) PX_TRY(one(args->rate, "rate"));
  if (args->found_inf) PX_TRY(one(args->found_inf, "found_inf"));
  int64_t sizes[] = {each ? count / each : 1, PX_NUMBERS_ROW};
  return px__call_result(call, 0, 2, sizes, PX_FLOAT64);
}
