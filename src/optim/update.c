// SPDX-License-Identifier: Apache-2.0
// Optimizer kinds and steps. One kernel updates a parameter with its states. Launches of several
// parameters are batched. Each parameter's step is all or nothing.
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

char *px__number_text(double value, char *text, size_t bytes) {
  bool integer = value == floor(value) && fabs(value) < 1e15;
  snprintf(text, bytes, integer ? "%.1f" : "%.15g", value);
  for (int digits = 16; !integer && isfinite(value) && strtod(text, NULL) != value; digits++)
    snprintf(text, bytes, "%.*g", digits, value);
  return text;
}

char *px__whole_text(double value, char *text, size_t bytes) {
  snprintf(text, bytes, "%g", value);
  return text;
}

px_status px_optimizer_kind_check(const px_optimizer_kind *kind, const double *options) {
  PX_GIVEN(kind);
  PX_GIVEN(options);
  return kind->check(options, -1);
}

// ---- scalars: numbers exposed as tensors, which the user may modify

static bool is_plain_float(const px_tensor *t) {
  return px_tensor_dtype(t) == PX_FLOAT32 && px_tensor_numel(t) == 1 &&
         px_tensor_device(t).type == PX_CPU;
}

// *slot, unless NULL, receives the address of the number if it is directly writable, else NULL.
static px_status read_scalar(double *out, float **slot, const px_tensor *t) {
  px_scalar value;
  if (is_plain_float(t)) {
    float *at = px_tensor_data(t), number;
    __atomic_load(at, &number, __ATOMIC_RELAXED);  // another thread may step
    if (slot) *slot = at;
    return *out = number, PX_OK;
  }
  if (slot) *slot = NULL;
  PX_TRY(px_tensor_item(&value, t));
  *out = px_scalar_float(value);
  return PX_OK;
}

// ---- a step

// A parameter stepped with the host's numbers.
typedef struct member {
  px__stepping stepping;
  double scalars[PX_OPTIMIZER_STATES];  // their new values
  float *slots[PX_OPTIMIZER_STATES];    // their addresses; NULL: in a tensor of another kind
} member;

// A batch of steps: one op call per parameter, launched together. `args` has one row per call.
enum { MAX_ARGS = PX__STATES + PX_OPTIMIZER_STATES + PX__NUMBER_LIMIT, MAX_BATCH = 32 };
typedef struct step {
  const px_optimizer_kind *kind;
  const px_op *op;
  double options[PX__OPTION_LIMIT];
  int count, tensors;  // number of members; tensor arguments per row, followed by numbers
  member members[MAX_BATCH];
  px_value args[MAX_BATCH * MAX_ARGS];
  // Cache of the last numbers, with the inputs they were computed from and the resulting scalars.
  px_value numbers[PX__NUMBER_LIMIT];
  double cached_first;
  double cached_scalars[PX_OPTIMIZER_STATES], updated_scalars[PX_OPTIMIZER_STATES];
  bool has_numbers;
  bool counts;   // has scalars, updated on the host
  bool ready;    // rate and found_inf have been read from the device
  bool skipped;  // found_inf is set: skip the step
} step;

static void start(step *s, const px_optimizer_kind *kind, const double *options) {
  s->kind = kind, s->op = px_op_find(kind->op);
  memcpy(s->options, options, (size_t)kind->option_count * sizeof *options);
  s->tensors = PX__STATES, s->count = 0;
  s->has_numbers = s->counts = s->ready = s->skipped = false;
  for (int k = 0; k < kind->state_count; k++) {
    s->tensors += !kind->states[k].scalar;
    s->counts |= kind->states[k].scalar;
  }
}

static px_status begin_state(step *s, px__stepping *one, int k, double value) {
  if (!s->kind->states[k].scalar) return px__stepping_begin(one, k, value);
  float number = (float)value;
  return px_tensor_from_data(&one->begun[k], &number, 0, NULL, PX_FLOAT32, px_cpu());
}

// Collects the existing states, as op arguments or as scalars.
static px_status take_states(step *s, member *m, px_value *arg) {
  px__stepping *one = &m->stepping;
  for (int k = 0; k < s->kind->state_count; k++) {
    double value = 0;
    m->scalars[k] = 0;
    one->kept[k] = s->kind->begin(s->options, k, &value);
    if (one->kept[k] && !one->found[k]) PX_TRY(begin_state(s, one, k, value));
    px_tensor *t = px__stepping_state(one, k);
    if (!s->kind->states[k].scalar)
      *arg++ = one->kept[k] ? PX_T(t) : PX_NONE();
    else if (one->kept[k])
      PX_TRY(read_scalar(&m->scalars[k], &m->slots[k], t));
  }
  return PX_OK;
}

// Computes the numbers of a step and updates the scalars. Usually a parameter has made as many
// steps as the previous one, and the cached numbers apply.
static px_status make_numbers(step *s, double first, double *scalars) {
  size_t bytes = (size_t)s->kind->state_count * sizeof *scalars;
  if (!s->has_numbers || first != s->cached_first ||
      memcmp(scalars, s->cached_scalars, bytes) != 0) {
    memcpy(s->cached_scalars, scalars, bytes);
    memcpy(s->updated_scalars, scalars, bytes);
    double numbers[PX__NUMBER_LIMIT];
    s->has_numbers = false, s->cached_first = first;
    PX_TRY(s->kind->numbers(s->options, s->updated_scalars, first, numbers));
    for (int k = 0; k < s->kind->number_count; k++) s->numbers[k] = PX_F(numbers[k]);
    s->has_numbers = true;
  }
  memcpy(scalars, s->updated_scalars, bytes);
  return PX_OK;
}

// Every replay of a step counted on the host would repeat the same step.
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

static px_status fill_in(step *s, member *m, px_value *args, px_device device) {
  if (s->counts && device.type == PX_CUDA) PX_TRY(check_capture(s, device));
  PX_TRY(take_states(s, m, args + PX__STATES));
  PX_TRY(make_numbers(s, m->stepping.first, m->scalars));
  args[PX__PARAMETER] = PX_T(m->stepping.parameter);
  args[PX__GRADIENT] = PX_T(m->stepping.grad);
  memcpy(args + s->tensors, s->numbers, (size_t)s->kind->number_count * sizeof *args);
  return PX_OK;
}

// Fails only for a scalar that the user has replaced by a tensor of another kind.
static px_status write_scalars(const step *s, const member *m) {
  for (int k = 0; s->counts && k < s->kind->state_count; k++) {
    if (!m->stepping.kept[k] || !s->kind->states[k].scalar) continue;
    float number = (float)m->scalars[k];
    if (m->slots[k])
      __atomic_store(m->slots[k], &number, __ATOMIC_RELAXED);
    else
      PX_TRY(px_init_constant(px__stepping_state(&m->stepping, k), m->scalars[k]));
  }
  return PX_OK;
}

// Commits the first `done` members, independent of failures of others. Discards the rest.
static px_status finish(step *s, int done) {
  px_status status = PX_OK;
  for (int i = 0; i < s->count; i++) {
    member *m = &s->members[i];
    if (i < done && status == PX_OK) status = write_scalars(s, m);
    if (i < done && status == PX_OK) status = px__stepping_write(&m->stepping);
    px__stepping_end(&m->stepping, i < done);
  }
  s->count = 0;
  return status;
}

static px_status take_steps(step *s) {
  void *results[MAX_BATCH * (1 + PX_OPTIMIZER_STATES)];
  int done = 0;
  if (!s->count) return PX_OK;
  px_status status = px_op_call_batch(s->op, PX_CALL_NEW, s->count, s->args, results, &done);
  for (int i = 0; i < done * s->op->result_count; i++) px_release(results[i]);
  px_status written = finish(s, done);
  return status != PX_OK ? status : written;
}

// Reads rate and found_inf from the device, blocking, for steps with the host's numbers.
static px_status read_manner(step *s, const px_step_options *manner) {
  if (s->ready) return PX_OK;
  double found = 0;
  if (manner->rate) {
    PX_TRY(read_scalar(&s->options[s->kind->rate], NULL, manner->rate));
    PX_TRY(s->kind->check(s->options, -1));
  }
  if (manner->found_inf) PX_TRY(read_scalar(&found, NULL, manner->found_inf));
  s->skipped = found != 0, s->ready = true;
  return PX_OK;
}

static px_status step_by_host(step *s, const px_step_options *manner, px_tensor *parameter,
                              px_tensor *grad_take, px_tensor **state) {
  PX_SCOPED(px_tensor) grad = grad_take;
  PX_TRY(read_manner(s, manner));
  if (s->skipped) return PX_OK;
  member *m = &s->members[s->count];
  px_value *args = s->args + s->count * s->op->param_count;
  px_status status = px__stepping_of(&m->stepping, s->kind, parameter, PX_MOVE(grad), state);
  if (status == PX_OK) status = fill_in(s, m, args, px_tensor_device(parameter));
  if (status != PX_OK) return px__stepping_end(&m->stepping, false), status;
  return ++s->count < MAX_BATCH ? PX_OK : take_steps(s);
}

static px_status step_each(step *s, px__step_batch *batch, px_tensor *const *parameters,
                           px_tensor **states, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    px_tensor **state = states + i * PX_OPTIMIZER_STATES;
    PX_SCOPED(px_tensor) grad = NULL;
    PX_TRY(px_tensor_get_grad(&grad, parameters[i]));
    if (!grad) continue;
    px_device device = px_tensor_device(parameters[i]);
    if (batch->strict) PX_TRY(px__step_batch_check(batch, device, state));
    PX_TRY(batch->on_device && device.type == PX_CUDA
               ? px__step_batch_add(batch, parameters[i], PX_MOVE(grad), state)
               : step_by_host(s, batch->manner, parameters[i], PX_MOVE(grad), state));
  }
  return PX_OK;
}

static px_status step_parameters(const px_optimizer_kind *kind, const double *options,
                                 const px_step_options *manner, px_tensor *const *parameters,
                                 px_tensor **states, int64_t count) {
  struct {
    step s;
    px__step_batch batch;
  } *work = NULL;
  PX_TRY(kind->check(options, -1));
  PX_TRY(px_realloc((void **)&work, sizeof *work));
  start(&work->s, kind, options);
  px__step_batch_begin(&work->batch, kind, options, manner);
  px_status status = step_each(&work->s, &work->batch, parameters, states, count);
  if (status == PX_OK) status = take_steps(&work->s);
  if (status == PX_OK) {
    status = px__step_batch_end(&work->batch);
  } else {
    (void)finish(&work->s, 0);
    px__step_batch_drop(&work->batch);
  }
  px_free(work);
  return status;
}

px_status px_optimizer_kind_step(const px_optimizer_kind *kind, const double *options,
                                 const px_step_options *manner, px_tensor *const *parameters,
                                 px_tensor **states, int64_t count) {
  PX_GIVEN(kind);
  PX_GIVEN(options);
  PX_GIVEN_N(parameters, count);
  PX_GIVEN_N(states, count);
  PX_TRY(px__parameters_given(parameters, count));
  const px_step_options plain = {0};
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status =
      step_parameters(kind, options, manner ? manner : &plain, parameters, states, count);
  px_grad_set_enabled(was);
  return status;
}
