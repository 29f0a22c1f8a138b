// SPDX-License-Identifier: Apache-2.0
// Steps whose numbers are made on the device: one launch makes those of several parameters, a line
// of a tensor for each, and then each has its update, which reads its line and moves its scalars
// on. So the host knows neither the step's number nor the rate, and a replay makes the next step.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optim/optim_impl.h"
#include "phlox/op.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"

// ---- where they are to be

// "mus, etas, and state_steps": the scalars' names in the plural, the last one first.
static const char *plurals(char *room, size_t bytes, const px_optimizer_kind *kind, int count) {
  size_t used = 0;
  *room = 0;
  for (int k = count - 1; k >= 0 && used < bytes; k--) {
    const char *before = k ? ", " : count > 2 ? ", and state_" : " and state_";
    used += (size_t)snprintf(room + used, bytes - used, "%s%ss", before, kind->states[k].name);
  }
  return room;
}

px_status px__lot_check(const px__lot *lot, px_device device, px_tensor **state) {
  bool there = device.type == PX_CUDA;
  char names[128];
  for (int k = 0; k < lot->scalars; k++)
    there &= !state[k] || px_tensor_device(state[k]).type == device.type;
  PX_CHECK(there, PX_ASSERTION,
           "If capturable=True, params%s must be on supported devices: ['cuda', 'xpu', 'hpu', "
           "'privateuseone', 'xla'].",
           plurals(names, sizeof names, lot->kind, lot->scalars));
  return PX_OK;
}

void px__lot_begin(px__lot *lot, const px_optimizer_kind *kind, const double *options,
                   const px_step_options *manner) {
  lot->kind = kind, lot->manner = manner, lot->count = lot->scalars = 0;
  memcpy(lot->options, options, (size_t)kind->option_count * sizeof *options);
  if (manner->rate) lot->options[kind->rate] = NAN;
  while (lot->scalars < kind->state_count && kind->states[lot->scalars].scalar) lot->scalars++;
  lot->strict = kind->capturable >= 0 && options[kind->capturable] != 0;
  lot->takes = lot->scalars ? lot->strict || manner->on_device : manner->rate || manner->found_inf;
}

void px__lot_drop(px__lot *lot) {
  for (int i = 0; i < lot->count; i++) px__stepping_end(&lot->members[i], false);
  lot->count = 0;
}

// ---- states

// A state that begins with the rate begins with what the tensor holds.
static px_status begin_value(double *value, px__lot *lot, int k) {
  double options[PX__OPTION_LIMIT];
  px_scalar rate;
  if (!isnan(*value) || !lot->manner->rate) return PX_OK;
  memcpy(options, lot->options, sizeof options);
  PX_TRY(px_tensor_item(&rate, lot->manner->rate));
  options[lot->kind->rate] = px_scalar_float(rate);
  (void)lot->kind->begin(options, k, value);
  return PX_OK;
}

static px_status take_state(px__lot *lot, px__stepping *one, int k) {
  double value = 0;
  one->kept[k] = lot->kind->begin(lot->options, k, &value);
  if (!one->kept[k] || one->state[k]) return PX_OK;
  PX_TRY(begin_value(&value, lot, k));
  if (!lot->kind->states[k].scalar) return px__stepping_begin(one, k, value);
  return px_full(&one->begun[k], NULL, 0, px_float(value), PX_FLOAT32,
                 px_tensor_device(one->parameter), false, false);
}

// ---- the step of a lot

// Whether a parameter's numbers are made with those that the lot has.
static bool fits(const px__lot *lot, const px__stepping *one) {
  const px__stepping *other = &lot->members[0];
  int most = lot->scalars ? PX__LOT / lot->scalars : PX__LOT;
  return lot->count < most && other->first == one->first &&
         px_device_equal(px_tensor_device(other->parameter), px_tensor_device(one->parameter));
}

px_status px__lot_add(px__lot *lot, px_tensor *parameter, px_tensor **state) {
  px__stepping one = {.parameter = parameter, .state = state};
  px_status status = PX_OK;
  for (int k = 0; k < lot->kind->state_count && status == PX_OK; k++)
    status = take_state(lot, &one, k);
  if (status == PX_OK && lot->count && !fits(lot, &one)) status = px__lot_end(lot);
  if (status != PX_OK) return px__stepping_end(&one, false), status;
  lot->members[lot->count++] = one;
  return PX_OK;
}

static px_status make_numbers(px_tensor **out, px__lot *lot, px_tensor *rate) {
  const px_optimizer_kind *kind = lot->kind;
  px_tensor *scalars[PX__LOT];
  px_value args[PX__OPTIONS + PX__OPTION_LIMIT + 1];
  int count = 0;
  for (int i = 0; i < lot->count; i++)
    for (int k = 0; k < lot->scalars; k++)
      scalars[count++] = px__stepping_state(&lot->members[i], k);
  args[PX__RATE] = PX_T(rate), args[PX__FOUND_INF] = PX_T(lot->manner->found_inf);
  args[PX__SCALARS] = PX_TS(scalars, count), args[PX__EACH] = PX_I(lot->scalars);
  for (int k = 0; k < kind->option_count; k++) args[PX__OPTIONS + k] = PX_F(lot->options[k]);
  args[PX__OPTIONS + kind->option_count] = PX_F(lot->members[0].first);
  return px_op_call(px_op_find(kind->numbers_op), PX_CALL_NEW, args, (void **)out);
}

enum { MOST_ARGS = PX__STATES + PX_OPTIMIZER_STATES + 2 };
static void fill_in(px_value *args, const px__lot *lot, int i, px_tensor *numbers) {
  const px__stepping *one = &lot->members[i];
  px_value *behind = args + PX__STATES + lot->kind->state_count;
  args[PX__PARAMETER] = PX_T(one->parameter);
  args[PX__GRADIENT] = PX_T(px_tensor_grad(one->parameter));
  for (int k = 0; k < lot->kind->state_count; k++)
    args[PX__STATES + k] = one->kept[k] ? PX_T(px__stepping_state(one, k)) : PX_NONE();
  *behind++ = PX_T(numbers);
  *behind = PX_I(lot->scalars ? i : 0);
}

static px_status update(px__lot *lot, px_tensor *numbers) {
  void *results[PX__LOT * (1 + PX_OPTIMIZER_STATES)];
  px_value args[PX__LOT * MOST_ARGS];
  const px_op *op = px_op_find(lot->kind->op_by);
  int done = 0;
  for (int i = 0; i < lot->count; i++) fill_in(args + i * op->param_count, lot, i, numbers);
  px_status status = px_op_call_batch(op, PX_CALL_NEW, lot->count, args, results, &done);
  for (int i = 0; i < done * op->result_count; i++) px_release(results[i]);
  for (int i = 0; i < done; i++) px__stepping_end(&lot->members[i], true);
  return status;
}

static px_status step_lot(px__lot *lot) {
  PX_SCOPED(px_tensor) numbers = NULL;
  PX_SCOPED(px_tensor) rate = NULL;
  px_device device = px_tensor_device(lot->members[0].parameter);
  if (lot->manner->rate) PX_TRY(px_to(&rate, lot->manner->rate, PX_FLOAT64, device, true, false));
  PX_TRY(make_numbers(&numbers, lot, rate));
  return update(lot, numbers);
}

px_status px__lot_end(px__lot *lot) {
  px_status status = lot->count ? step_lot(lot) : PX_OK;
  px__lot_drop(lot);
  return status;
}
