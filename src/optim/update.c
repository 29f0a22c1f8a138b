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

// *place, unless NULL, becomes where the number lies, if it can be written there.
static px_status read_scalar(double *out, float **place, const px_tensor *t) {
  px_scalar value;
  if (is_plain_float(t)) {
    float *at = px_tensor_data(t);
    if (place) *place = at;
    return *out = *at, PX_OK;
  }
  if (place) *place = NULL;
  PX_TRY(px_tensor_item(&value, t));
  *out = px_scalar_float(value);
  return PX_OK;
}

// ---- a step

// What a step by the host's numbers works on. `args` are those of the op, of which only the values
// change from one parameter to the next.
enum { STATES_AT = 2, MOST_ARGS = STATES_AT + PX_OPTIMIZER_STATES + PX__NUMBER_LIMIT };
typedef struct step {
  const px_optimizer_kind *kind;
  const px_op *op;
  double options[PX__OPTION_LIMIT];
  px__stepping one;
  double scalars[PX_OPTIMIZER_STATES];
  float *places[PX_OPTIMIZER_STATES];  // where scalars lie; NULL: in a tensor of another kind
  // What the numbers that stand in the args were made of, and what the scalars became.
  double of_scalars[PX_OPTIMIZER_STATES], of_first, to_scalars[PX_OPTIMIZER_STATES];
  bool has_numbers;
  px_value args[MOST_ARGS];
  int tensors;  // how many of the args are tensors; numbers follow
  bool counts;  // on the host, with scalars
  bool ready;   // what lies on a device has been read: the rate, and whether to leave the step out
  bool left_out;
} step;

static void start(step *s, const px_optimizer_kind *kind, const double *options) {
  s->kind = kind, s->op = px_op_find(kind->op);
  memcpy(s->options, options, (size_t)kind->option_count * sizeof *options);
  s->tensors = STATES_AT, s->has_numbers = s->counts = s->ready = s->left_out = false;
  for (int k = 0; k < kind->state_count; k++) {
    s->scalars[k] = 0;
    s->tensors += !kind->states[k].scalar;
    s->counts |= kind->states[k].scalar;
  }
  for (int k = 0; k < kind->number_count; k++) s->args[s->tensors + k] = PX_F(0);
}

static px_status begin_state(step *s, int k, double value) {
  if (!s->kind->states[k].scalar) return px__stepping_begin(&s->one, k, value);
  float number = (float)value;
  return px_tensor_from_data(&s->one.begun[k], &number, 0, NULL, PX_FLOAT32, px_cpu());
}

// The states that are kept, as the op's arguments or as scalars.
static px_status take_states(step *s) {
  px_value *arg = &s->args[STATES_AT];
  px__stepping *one = &s->one;
  for (int k = 0; k < s->kind->state_count; k++) {
    double value = 0;
    one->kept[k] = s->kind->begin(s->options, k, &value);
    if (one->kept[k] && !one->state[k]) PX_TRY(begin_state(s, k, value));
    px_tensor *t = px__stepping_state(one, k);
    if (!s->kind->states[k].scalar)
      *arg++ = one->kept[k] ? PX_T(t) : PX_NONE();
    else if (one->kept[k])
      PX_TRY(read_scalar(&s->scalars[k], &s->places[k], t));
  }
  return PX_OK;
}

// The op's numbers. Mostly a parameter has made as many steps as the one before, and they stand in
// the args already.
static px_status take_numbers(step *s) {
  double numbers[PX__NUMBER_LIMIT], first = s->one.first;
  size_t bytes = (size_t)s->kind->state_count * sizeof *s->scalars;
  if (s->has_numbers && first == s->of_first && !memcmp(s->scalars, s->of_scalars, bytes)) {
    memcpy(s->scalars, s->to_scalars, bytes);
    return PX_OK;
  }
  memcpy(s->of_scalars, s->scalars, bytes);
  s->has_numbers = false, s->of_first = first;
  PX_TRY(s->kind->numbers(s->options, s->scalars, first, numbers));
  memcpy(s->to_scalars, s->scalars, bytes);
  for (int k = 0; k < s->kind->number_count; k++) s->args[s->tensors + k].v.f = numbers[k];
  s->has_numbers = true;
  return PX_OK;
}

// Every replay of a step that counts on the host would be the same step again.
static px_status check_capture(const step *s, px_device device) {
  px_stream *stream;
  PX_TRY(px_stream_current(&stream, device));
  if (!px_stream_capturing(stream)) return PX_OK;
  PX_CHECK(s->kind->capturable < 0, PX_RUNTIME,
           "Attempting CUDA graph capture of step() for an instance of %s but param_groups' "
           "capturable is False.",
           s->kind->name);
  PX_FAIL(PX_UNIMPLEMENTED,
          "%s.step() cannot be captured in a graph, because it counts its steps on the host: with "
          "fused=True it counts them on the device",
          s->kind->name);
}

static px_status take_step(step *s, px_device device) {
  void *results[1 + PX_OPTIMIZER_STATES];
  if (s->counts && device.type == PX_CUDA) PX_TRY(check_capture(s, device));
  PX_TRY(take_states(s));
  PX_TRY(take_numbers(s));
  s->args[0] = PX_T(s->one.parameter), s->args[1] = PX_T(px_tensor_grad(s->one.parameter));
  PX_TRY(px_op_call(s->op, PX_CALL_NEW, s->args, results));
  for (int i = 0; i < s->tensors - 1; i++) px_release(results[i]);
  return PX_OK;
}

// Nothing fails from here on but the write of a scalar that a program has replaced by a tensor of
// another kind.
static px_status write_scalars(step *s) {
  for (int k = 0; s->counts && k < s->kind->state_count; k++) {
    if (!s->one.kept[k] || !s->kind->states[k].scalar) continue;
    if (s->places[k])
      *s->places[k] = (float)s->scalars[k];
    else
      PX_TRY(px_init_constant(px__stepping_state(&s->one, k), s->scalars[k]));
  }
  return PX_OK;
}

// Waits for what the manner has on a device, for parameters that step by the host's numbers.
static px_status read_manner(step *s, const px_step_manner *manner) {
  if (s->ready) return PX_OK;
  double found = 0;
  if (manner->rate) {
    PX_TRY(read_scalar(&s->options[s->kind->rate], NULL, manner->rate));
    PX_TRY(s->kind->check(s->options, -1));
  }
  if (manner->found_inf) PX_TRY(read_scalar(&found, NULL, manner->found_inf));
  s->left_out = found != 0, s->ready = true;
  return PX_OK;
}

static px_status step_by_host(step *s, const px_step_manner *manner, px_tensor *parameter,
                              px_tensor **state, px_device device) {
  PX_TRY(read_manner(s, manner));
  if (s->left_out) return PX_OK;
  s->one = (px__stepping){.parameter = parameter, .state = state};
  px_status status = take_step(s, device);
  bool done = status == PX_OK;
  if (done) status = write_scalars(s);
  px__stepping_end(&s->one, done);
  return status;
}

static px_status step_each(step *s, px__lot *lot, px_tensor *const *parameters, px_tensor **states,
                           int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    px_tensor **state = states + i * PX_OPTIMIZER_STATES;
    if (!px_tensor_grad(parameters[i])) continue;
    px_device device = px_tensor_device(parameters[i]);
    if (lot->strict) PX_TRY(px__lot_check(lot, device, state));
    PX_TRY(lot->takes && device.type == PX_CUDA
               ? px__lot_add(lot, parameters[i], state)
               : step_by_host(s, lot->manner, parameters[i], state, device));
  }
  return PX_OK;
}

static px_status step_parameters(const px_optimizer_kind *kind, const double *options,
                                 const px_step_manner *manner, px_tensor *const *parameters,
                                 px_tensor **states, int64_t count) {
  step s;
  px__lot lot;
  PX_TRY(kind->check(options, -1));
  start(&s, kind, options);
  px__lot_begin(&lot, kind, options, manner);
  px_status status = step_each(&s, &lot, parameters, states, count);
  if (status == PX_OK) return px__lot_end(&lot);
  px__lot_drop(&lot);
  return status;
}

px_status px_optimizer_kind_step(const px_optimizer_kind *kind, const double *options,
                                 const px_step_manner *manner, px_tensor *const *parameters,
                                 px_tensor **states, int64_t count) {
  PX_GIVEN(kind);
  PX_GIVEN(options);
  PX_GIVEN_N(parameters, count);
  PX_GIVEN_N(states, count);
  PX_TRY(px__parameters_given(parameters, count));
  const px_step_manner plain = {0};
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status =
      step_parameters(kind, options, manner ? manner : &plain, parameters, states, count);
  px_grad_set_enabled(was);
  return status;
}
