// SPDX-License-Identifier: Apache-2.0
// The kinds of optimiser, and the step of one parameter: one kernel, which changes the parameter
// and its states together. A step that fails has changed nothing.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optim/optim_impl.h"
#include "phlox/graph.h"
#include "phlox/op.h"
#include "phlox/ops/factory.h"

const px_optimizer_kind *px_optimizer_kind_at(int i) {
  return i >= 0 && i < px__optimizer_kind_count ? &px__optimizer_kinds[i] : NULL;
}

const px_optimizer_kind *px_optimizer_kind_find(const char *name) {
  for (int i = 0; i < px__optimizer_kind_count; i++)
    if (!strcmp(px__optimizer_kinds[i].name, name)) return &px__optimizer_kinds[i];
  return NULL;
}

const char *px_optimizer_kind_name(const px_optimizer_kind *kind) { return kind->name; }

const px_option *px_optimizer_kind_options(const px_optimizer_kind *kind, int *count) {
  *count = kind->option_count;
  return kind->options;
}

const char *px_optimizer_kind_state(const px_optimizer_kind *kind, int i) {
  return i >= 0 && i < kind->state_count ? kind->states[i].name : NULL;
}

bool px_optimizer_kind_scalar(const px_optimizer_kind *kind, int i) {
  return i >= 0 && i < kind->state_count && kind->states[i].scalar;
}

char *px__number_text(double value, char *room, size_t bytes) {
  bool whole = value == floor(value) && fabs(value) < 1e15;
  snprintf(room, bytes, whole ? "%.1f" : "%.15g", value);
  for (int digits = 16; !whole && isfinite(value) && strtod(room, NULL) != value; digits++)
    snprintf(room, bytes, "%.*g", digits, value);
  return room;
}

char *px__whole_text(double value, char *room, size_t bytes) {
  snprintf(room, bytes, "%g", value);
  return room;
}

px_status px_optimizer_kind_check(const px_optimizer_kind *kind, const double *options) {
  PX_GIVEN(kind);
  PX_GIVEN(options);
  return kind->check(options, -1);
}

// ---- scalars: numbers that a program sees, and may change, as tensors

static bool is_plain_float(const px_tensor *t) {
  return px_tensor_dtype(t) == PX_FLOAT32 && px_tensor_numel(t) == 1 &&
         px_tensor_device(t).type == PX_CPU;
}

static px_status read_scalar(double *out, const px_tensor *t) {
  px_scalar value;
  if (is_plain_float(t)) return *out = *(const float *)px_tensor_data(t), PX_OK;
  PX_TRY(px_tensor_item(&value, t));
  *out = px_scalar_float(value);
  return PX_OK;
}

static px_status write_scalar(px_tensor *t, double value) {
  if (is_plain_float(t)) return *(float *)px_tensor_data(t) = (float)value, PX_OK;
  return px_init_constant(t, value);
}

// ---- a step

// What the step of one parameter works on; the states that it begins are its own until it is done.
// `args` are those of the op, of which only the values change from one parameter to the next.
enum { STATES_AT = 2, MOST_ARGS = STATES_AT + PX_OPTIMIZER_STATES + PX__NUMBER_LIMIT };
typedef struct step {
  const px_optimizer_kind *kind;
  const px_op *op;
  const double *options;
  px_tensor *parameter;
  px_tensor **state;
  px_tensor *begun[PX_OPTIMIZER_STATES];
  bool kept[PX_OPTIMIZER_STATES];
  double scalars[PX_OPTIMIZER_STATES], first;
  // What the numbers that stand in the args were made of, and what the scalars became.
  double of_scalars[PX_OPTIMIZER_STATES], of_first, to_scalars[PX_OPTIMIZER_STATES];
  bool has_numbers;
  px_value args[MOST_ARGS];
  int tensors;  // how many of the args are tensors; numbers follow
  bool counts;  // on the host, with scalars
} step;

static void start(step *s, const px_optimizer_kind *kind, const double *options) {
  s->kind = kind, s->options = options, s->op = px_op_find(kind->op);
  s->tensors = STATES_AT, s->has_numbers = s->counts = false;
  for (int k = 0; k < kind->state_count; k++) {
    s->begun[k] = NULL, s->scalars[k] = 0;
    s->tensors += !kind->states[k].scalar;
    s->counts |= kind->states[k].scalar;
  }
  for (int k = 0; k < kind->number_count; k++) s->args[s->tensors + k] = PX_F(0);
}

static px_status begin_state(step *s, int k, double value) {
  if (s->kind->states[k].scalar) {
    float number = (float)value;
    return px_tensor_from_data(&s->begun[k], &number, 0, NULL, PX_FLOAT32, px_cpu());
  }
  s->first = 1;
  return px_full_like(&s->begun[k], s->parameter, px_float(value), PX_DTYPE_NONE, PX_DEVICE_NONE,
                      false, false, NULL);
}

// The states that are kept, as the op's arguments or as scalars.
static px_status take_states(step *s) {
  px_value *arg = &s->args[STATES_AT];
  for (int k = 0; k < s->kind->state_count; k++) {
    double value = 0;
    s->kept[k] = s->kind->begin(s->options, k, &value);
    if (s->kept[k] && !s->state[k]) PX_TRY(begin_state(s, k, value));
    px_tensor *t = s->state[k] ? s->state[k] : s->begun[k];
    if (!s->kind->states[k].scalar)
      *arg++ = s->kept[k] ? PX_T(t) : PX_NONE();
    else if (s->kept[k])
      PX_TRY(read_scalar(&s->scalars[k], t));
  }
  return PX_OK;
}

// The op's numbers. Mostly a parameter has made as many steps as the one before, and they stand in
// the args already.
static px_status take_numbers(step *s) {
  double numbers[PX__NUMBER_LIMIT];
  size_t bytes = (size_t)s->kind->state_count * sizeof *s->scalars;
  if (s->has_numbers && s->first == s->of_first && !memcmp(s->scalars, s->of_scalars, bytes)) {
    memcpy(s->scalars, s->to_scalars, bytes);
    return PX_OK;
  }
  memcpy(s->of_scalars, s->scalars, bytes);
  s->has_numbers = false, s->of_first = s->first;
  PX_TRY(s->kind->numbers(s->options, s->scalars, s->first, numbers));
  memcpy(s->to_scalars, s->scalars, bytes);
  for (int k = 0; k < s->kind->number_count; k++) s->args[s->tensors + k].v.f = numbers[k];
  s->has_numbers = true;
  return PX_OK;
}

// Every replay of a step that counts on the host would be the same step again.
static px_status check_capture(const step *s) {
  px_stream *stream;
  px_device device = px_tensor_device(s->parameter);
  if (!s->counts || device.type != PX_CUDA) return PX_OK;
  PX_TRY(px_stream_current(&stream, device));
  PX_CHECK(!px_stream_capturing(stream), PX_UNIMPLEMENTED,
           "%s.step() cannot be captured in a graph, because it counts its steps on the host "
           "(capturable=True is not implemented)",
           s->kind->name);
  return PX_OK;
}

static px_status take_step(step *s) {
  void *results[1 + PX_OPTIMIZER_STATES];
  s->first = 0;
  PX_TRY(check_capture(s));
  PX_TRY(take_states(s));
  PX_TRY(take_numbers(s));
  s->args[0] = PX_T(s->parameter), s->args[1] = PX_T(px_tensor_grad(s->parameter));
  PX_TRY(px_op_call(s->op, PX_CALL_NEW, s->args, results));
  for (int i = 0; i < s->tensors - 1; i++) px_release(results[i]);
  return PX_OK;
}

// Nothing fails from here on but the write of a scalar that a program has replaced by a tensor of
// another kind.
static px_status finish(step *s) {
  for (int k = 0; k < s->kind->state_count; k++) {
    if (s->begun[k]) s->state[k] = s->begun[k], s->begun[k] = NULL;
    if (s->kept[k] && s->kind->states[k].scalar) PX_TRY(write_scalar(s->state[k], s->scalars[k]));
  }
  return PX_OK;
}

static void drop_begun(step *s) {
  for (int k = 0; k < s->kind->state_count; k++) {
    px_release(s->begun[k]);
    s->begun[k] = NULL;
  }
}

static px_status step_parameters(const px_optimizer_kind *kind, const double *options,
                                 px_tensor *const *parameters, px_tensor **states, int64_t count) {
  step s;
  PX_TRY(kind->check(options, -1));
  start(&s, kind, options);
  for (int64_t i = 0; i < count; i++) {
    if (!px_tensor_grad(parameters[i])) continue;
    s.parameter = parameters[i], s.state = states + i * PX_OPTIMIZER_STATES;
    px_status status = take_step(&s);
    if (status == PX_OK) status = finish(&s);
    if (status != PX_OK) drop_begun(&s);
    PX_TRY(status);
  }
  return PX_OK;
}

px_status px_optimizer_kind_step(const px_optimizer_kind *kind, const double *options,
                                 px_tensor *const *parameters, px_tensor **states, int64_t count) {
  PX_GIVEN(kind);
  PX_GIVEN(options);
  PX_GIVEN_N(parameters, count);
  PX_GIVEN_N(states, count);
  PX_TRY(px__parameters_given(parameters, count));
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = step_parameters(kind, options, parameters, states, count);
  px_grad_set_enabled(was);
  return status;
}
