// SPDX-License-Identifier: Apache-2.0
// Steps with numbers computed on the device. One launch computes a row of numbers for each of
// several parameters. The update of a parameter reads its row and advances its scalars. The host
// needs neither the step count nor the learning rate, so graph replays make successive steps.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optim/optim_impl.h"
#include "phlox/op.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"

// ---- device checks

// "mus, etas, and state_steps": plural names of the scalars, last one first.
static const char *plurals(char *text, size_t bytes, const px_optimizer_kind *kind, int count) {
  size_t used = 0;
  *text = 0;
  for (int k = count - 1; k >= 0 && used < bytes; k--) {
    const char *before = k ? ", " : count > 2 ? ", and state_" : " and state_";
    used += (size_t)snprintf(text + used, bytes - used, "%s%ss", before, kind->states[k].name);
  }
  return text;
}

px_status px__step_batch_check(const px__step_batch *batch, px_device device, px_tensor **state) {
  bool supported = device.type == PX_CUDA;
  char names[128];
  for (int k = 0; k < batch->scalars; k++) {
    const px_tensor *scalar = PX_READ(state[k]);
    supported &= !scalar || px_tensor_device(scalar).type == device.type;
  }
  PX_CHECK(supported, PX_ASSERTION,
           "If capturable=True, params%s must be on supported devices: ['cuda', 'xpu', 'hpu', "
           "'privateuseone', 'xla'].",
           plurals(names, sizeof names, batch->kind, batch->scalars));
  return PX_OK;
}

void px__step_batch_begin(px__step_batch *batch, const px_optimizer_kind *kind,
                          const double *options, const px_step_options *manner) {
  batch->kind = kind, batch->manner = manner, batch->count = batch->scalars = 0;
  memcpy(batch->options, options, (size_t)kind->option_count * sizeof *options);
  if (manner->rate) batch->options[kind->rate] = NAN;
  while (batch->scalars < kind->state_count && kind->states[batch->scalars].scalar)
    batch->scalars++;
  batch->strict = kind->capturable >= 0 && options[kind->capturable] != 0;
  batch->on_device =
      batch->scalars ? batch->strict || manner->on_device : manner->rate || manner->found_inf;
}

void px__step_batch_drop(px__step_batch *batch) {
  for (int i = 0; i < batch->count; i++) px__stepping_end(&batch->members[i], false);
  batch->count = 0;
}

// ---- states

// A state with the rate as its initial value reads it from the tensor.
static px_status begin_value(double *value, px__step_batch *batch, int k) {
  double options[PX__OPTION_LIMIT];
  px_scalar rate;
  if (!isnan(*value) || !batch->manner->rate) return PX_OK;
  memcpy(options, batch->options, sizeof options);
  PX_TRY(px_tensor_item(&rate, batch->manner->rate));
  options[batch->kind->rate] = px_scalar_float(rate);
  (void)batch->kind->begin(options, k, value);
  return PX_OK;
}

static px_status take_state(px__step_batch *batch, px__stepping *one, int k) {
  double value = 0;
  one->kept[k] = batch->kind->begin(batch->options, k, &value);
  if (!one->kept[k] || one->found[k]) return PX_OK;
  PX_TRY(begin_value(&value, batch, k));
  if (!batch->kind->states[k].scalar) return px__stepping_begin(one, k, value);
  return px_full(&one->begun[k], NULL, 0, px_float(value), PX_FLOAT32,
                 px_tensor_device(one->parameter), false, false);
}

// ---- the step of a batch

// True if a parameter can join the batch.
static bool fits(const px__step_batch *batch, const px__stepping *one) {
  const px__stepping *other = &batch->members[0];
  int max = batch->scalars ? PX__STEP_BATCH / batch->scalars : PX__STEP_BATCH;
  return batch->count < max && other->first == one->first &&
         px_device_equal(px_tensor_device(other->parameter), px_tensor_device(one->parameter));
}

px_status px__step_batch_add(px__step_batch *batch, px_tensor *parameter, px_tensor *grad_take,
                             px_tensor **state) {
  px__stepping one;
  px_status status = px__stepping_of(&one, batch->kind, parameter, grad_take, state);
  for (int k = 0; k < batch->kind->state_count && status == PX_OK; k++)
    status = take_state(batch, &one, k);
  if (status == PX_OK && batch->count && !fits(batch, &one)) status = px__step_batch_end(batch);
  if (status != PX_OK) return px__stepping_end(&one, false), status;
  batch->members[batch->count++] = one;
  return PX_OK;
}

static px_status make_numbers(px_tensor **out, px__step_batch *batch, px_tensor *rate) {
  const px_optimizer_kind *kind = batch->kind;
  px_tensor *scalars[PX__STEP_BATCH];
  px_value args[PX__OPTIONS + PX__OPTION_LIMIT + 1];
  int count = 0;
  for (int i = 0; i < batch->count; i++)
    for (int k = 0; k < batch->scalars; k++)
      scalars[count++] = px__stepping_state(&batch->members[i], k);
  args[PX__RATE] = PX_T(rate), args[PX__FOUND_INF] = PX_T(batch->manner->found_inf);
  args[PX__SCALARS] = PX_TS(scalars, count), args[PX__EACH] = PX_I(batch->scalars);
  for (int k = 0; k < kind->option_count; k++) args[PX__OPTIONS + k] = PX_F(batch->options[k]);
  args[PX__OPTIONS + kind->option_count] = PX_F(batch->members[0].first);
  return px_op_call(px_op_find(kind->numbers_op), PX_CALL_NEW, args, (void **)out);
}

enum { MAX_ARGS = PX__STATES + PX_OPTIMIZER_STATES + 2 };
static void fill_in(px_value *args, const px__step_batch *batch, int i, px_tensor *numbers) {
  const px__stepping *one = &batch->members[i];
  px_value *last_args = args + PX__STATES + batch->kind->state_count;
  args[PX__PARAMETER] = PX_T(one->parameter);
  args[PX__GRADIENT] = PX_T(one->grad);
  for (int k = 0; k < batch->kind->state_count; k++)
    args[PX__STATES + k] = one->kept[k] ? PX_T(px__stepping_state(one, k)) : PX_NONE();
  *last_args++ = PX_T(numbers);
  *last_args = PX_I(batch->scalars ? i : 0);
}

static px_status update(px__step_batch *batch, px_tensor *numbers) {
  void *results[PX__STEP_BATCH * (1 + PX_OPTIMIZER_STATES)];
  px_value args[PX__STEP_BATCH * MAX_ARGS];
  const px_op *op = px_op_find(batch->kind->op_by);
  int done = 0;
  for (int i = 0; i < batch->count; i++) fill_in(args + i * op->param_count, batch, i, numbers);
  px_status status = px_op_call_batch(op, PX_CALL_NEW, batch->count, args, results, &done);
  for (int i = 0; i < done * op->result_count; i++) px_release(results[i]);
  for (int i = 0; i < done; i++) {
    px_status written = px__stepping_write(&batch->members[i]);
    if (status == PX_OK) status = written;
    px__stepping_end(&batch->members[i], true);
  }
  return status;
}

static px_status step_batch(px__step_batch *batch) {
  PX_SCOPED(px_tensor) numbers = NULL;
  PX_SCOPED(px_tensor) rate = NULL;
  px_device device = px_tensor_device(batch->members[0].parameter);
  if (batch->manner->rate)
    PX_TRY(px_to(&rate, batch->manner->rate, PX_FLOAT64, device, true, false));
  PX_TRY(make_numbers(&numbers, batch, rate));
  return update(batch, numbers);
}

px_status px__step_batch_end(px__step_batch *batch) {
  px_status status = batch->count ? step_batch(batch) : PX_OK;
  px__step_batch_drop(batch);
  return status;
}
