// SPDX-License-Identifier: Apache-2.0
// Optimizers: groups of parameters with options, and the step of all groups.
#include <math.h>
#include <string.h>

#include "optim/optim_impl.h"

// A group lives as long as its optimizer. Threads that use rates and states are readers.
typedef struct group {
  struct group *next;                // atomic
  double options[PX__OPTION_LIMIT];  // in the order of the kind's table; atomic
  double initial_lr;                 // NAN without a schedule; atomic
  px_tensor *rate;                   // replaces option lr, or NULL; owned, atomic
  int64_t count;
  px_tensor **states;       // states[i * PX_OPTIMIZER_STATES + k]: state k of parameter i; atomic
  px_tensor *parameters[];  // followed by the states
} group;

struct px_optimizer {
  px_object head;
  const px_optimizer_kind *kind;
  px_readers readers;
  pthread_mutex_t lock;  // excludes additions of groups
  group *groups;         // the first of a list; atomic
};

static void group_end(group *self) {
  int64_t tensors = self->count * (1 + PX_OPTIMIZER_STATES);
  for (int64_t i = 0; i < tensors; i++) px_release(self->parameters[i]);
  px_release(self->rate);
  px_free(self);
}

static void optimizer_destroy(void *object) {
  px_optimizer *self = object;
  for (group *g = self->groups, *next; g; g = next) {
    next = g->next;
    group_end(g);
  }
  pthread_mutex_destroy(&self->lock);
  px_object_end(self);
  px_free(self);
}

static const px_class optimizer_class = {"optimizer", optimizer_destroy};

static const char *kind_name_at(const void *names, int i) {
  const px_optimizer_kind *kind = px_optimizer_kind_at(i);
  return kind ? px_optimizer_kind_name(kind) : NULL;
}

px_status px_optimizer_new(px_optimizer **out, const char *name) {
  PX_GIVEN(out);
  PX_GIVEN(name);
  *out = NULL;
  const px_optimizer_kind *kind = px_optimizer_kind_find(name);
  PX_CHECK(kind, PX_UNIMPLEMENTED, "there is no optimizer '%.64s': the nearest name is %s", name,
           px_name_suggest(name, kind_name_at, NULL));
  PX_TRY(px_alloc((void **)out, sizeof **out));
  px_object_init(*out, &optimizer_class);
  (*out)->kind = kind;
  pthread_mutex_init(&(*out)->lock, NULL);
  return PX_OK;
}

px_status px_optimizer_make(px_optimizer **out, const char *name, const double *options,
                            px_tensor *const *parameters, int64_t count) {
  PX_GIVEN(out);
  PX_GIVEN(options);
  PX_GIVEN_N(parameters, count);
  PX_SCOPED(px_optimizer) made = NULL;
  *out = NULL;
  PX_TRY(px_optimizer_new(&made, name));
  PX_TRY(made->kind->check(options, -1));
  PX_TRY(px_optimizer_add(made, parameters, count));
  memcpy(made->groups->options, options, (size_t)made->kind->option_count * sizeof *options);
  *out = PX_MOVE(made);
  return PX_OK;
}

static bool holds(const group *self, const px_tensor *parameter) {
  for (int64_t i = 0; i < self->count; i++)
    if (self->parameters[i] == parameter) return true;
  return false;
}

static px_status parameters_check(px_tensor *const *parameters, int64_t count) {
  PX_CHECK(count > 0, PX_VALUE, "optimizer got an empty parameter list");
  for (int64_t i = 0; i < count; i++) {
    PX_CHECK(parameters[i], PX_TYPE,
             "optimizer can only optimize Tensors, but one of the params is NoneType");
    PX_CHECK(px_tensor_is_leaf(parameters[i]) || px_tensor_retains_grad(parameters[i]), PX_VALUE,
             "can't optimize a non-leaf Tensor");
  }
  return PX_OK;
}

static px_status group_new(group **out, const px_optimizer_kind *kind, px_tensor *const *parameters,
                           int64_t count) {
  size_t tensors = (size_t)count * (1 + PX_OPTIMIZER_STATES);
  PX_TRY(px_alloc((void **)out, sizeof **out + tensors * sizeof *parameters));
  group *made = *out;
  made->count = count, made->initial_lr = NAN;
  made->states = made->parameters + count;
  for (int64_t i = 0; i < count; i++) made->parameters[i] = px_retain(parameters[i]);
  for (int k = 0; k < kind->option_count; k++) made->options[k] = kind->options[k].fallback;
  return PX_OK;
}

// Appends a group. The caller holds the lock.
static px_status append(px_optimizer *self, group *fresh) {
  group **end = &self->groups;
  for (; *end; end = &(*end)->next)
    for (int64_t i = 0; i < fresh->count; i++)
      PX_CHECK(!holds(*end, fresh->parameters[i]), PX_VALUE,
               "some parameters appear in more than one parameter group");
  PX_PUBLISH(*end, fresh);
  return PX_OK;
}

px_status px_optimizer_add(px_optimizer *self, px_tensor *const *parameters, int64_t count) {
  PX_GIVEN(self);
  PX_GIVEN_N(parameters, count);
  PX_TRY(parameters_check(parameters, count));
  group *fresh;
  PX_TRY(group_new(&fresh, self->kind, parameters, count));
  pthread_mutex_lock(&self->lock);
  px_status status = append(self, fresh);
  pthread_mutex_unlock(&self->lock);
  if (status != PX_OK) group_end(fresh);
  return status;
}

const px_optimizer_kind *px_optimizer_kind_of(const px_optimizer *self) { return self->kind; }
int px_optimizer_read_begin(px_optimizer *self) { return px_read_begin(&self->readers); }
void px_optimizer_read_end(px_optimizer *self, int reader) { px_read_end(&self->readers, reader); }

int px_optimizer_groups(const px_optimizer *self) {
  int count = 0;
  for (const group *g = PX_READ(self->groups); g; g = PX_READ(g->next)) count++;
  return count;
}

static group *group_at(const px_optimizer *self, int i) {
  group *g = i < 0 ? NULL : PX_READ(self->groups);
  for (; g && i > 0; i--) g = PX_READ(g->next);
  return g;
}

// Returns the group of a parameter, or NULL if there is no such group or parameter.
static group *group_with(const px_optimizer *self, int g, int64_t i) {
  group *at = group_at(self, g);
  return at && i >= 0 && i < at->count ? at : NULL;
}

int64_t px_optimizer_group_size(const px_optimizer *self, int g) {
  const group *at = group_at(self, g);
  return at ? at->count : 0;
}
px_tensor *px_optimizer_parameter(const px_optimizer *self, int g, int64_t i) {
  const group *at = group_with(self, g, i);
  return at ? at->parameters[i] : NULL;
}

// Tensors replaced in groups.
typedef struct replaced {
  px_retired head;
  int count;
  px_tensor *tensors[];
} replaced;

static void replaced_end(px_retired *self) {
  replaced *old = (replaced *)self;
  for (int i = 0; i < old->count; i++) px_release(old->tensors[i]);
  px_free(old);
}

static px_status replaced_new(replaced **out, int capacity) {
  PX_TRY(px_alloc((void **)out, sizeof **out + (size_t)capacity * sizeof *(*out)->tensors));
  (*out)->head.end = replaced_end;
  return PX_OK;
}

// Replaces a tensor of a group. `old` receives the previous one.
static void replace(px_tensor **slot, px_tensor *value, replaced *old) {
  old->tensors[old->count++] = __atomic_exchange_n(slot, px_retain(value), __ATOMIC_SEQ_CST);
}

// ---- options

static const char *option_at(const void *kind, int k) {
  const px_optimizer_kind *known = kind;
  return k < known->option_count ? known->options[k].name : NULL;
}

static px_status option_find(int *out, const px_optimizer *self, const char *option) {
  for (*out = 0; *out < self->kind->option_count; ++*out)
    if (!strcmp(self->kind->options[*out].name, option)) return PX_OK;
  PX_FAIL(PX_KEY, "%s has no option '%.64s': the nearest name is %s", self->kind->name, option,
          px_name_suggest(option, option_at, self->kind));
}

px_status px_optimizer_set(px_optimizer *self, int i, const char *option, double value) {
  PX_GIVEN(self);
  PX_GIVEN(option);
  int k;
  PX_TRY(option_find(&k, self, option));
  double alone[PX__OPTION_LIMIT] = {0};
  alone[k] = value;
  PX_TRY(self->kind->check(alone, k));
  PX_CHECK(i == -1 || group_at(self, i), PX_INDEX, "there is no parameter group %d", i);
  group *g = i == -1 ? PX_READ(self->groups) : group_at(self, i);
  for (; g; g = i == -1 ? PX_READ(g->next) : NULL) px__number_set(&g->options[k], value);
  return PX_OK;
}

px_status px_optimizer_get(double *out, const px_optimizer *self, int i, const char *option) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_GIVEN(option);
  int k;
  PX_TRY(option_find(&k, self, option));
  const group *g = group_at(self, i);
  PX_CHECK(g, PX_INDEX, "there is no parameter group %d", i);
  *out = px__number(&g->options[k]);
  return PX_OK;
}

px_status px_optimizer_set_rate(px_optimizer *self, int i, px_tensor *rate) {
  PX_GIVEN(self);
  PX_CHECK(!rate || px_tensor_numel(rate) == 1, PX_VALUE, "Tensor lr must be 1-element");
  PX_CHECK(i == -1 || group_at(self, i), PX_INDEX, "there is no parameter group %d", i);
  replaced *old;
  int count = i == -1 ? px_optimizer_groups(self) : 1;
  PX_TRY(replaced_new(&old, count));
  group *g = group_at(self, i == -1 ? 0 : i);
  for (; g && old->count < count; g = PX_READ(g->next)) replace(&g->rate, rate, old);
  px_readers_retire(&self->readers, &old->head);
  return PX_OK;
}

double px_optimizer_initial_lr(const px_optimizer *self, int i) {
  const group *g = group_at(self, i);
  return g ? px__number(&g->initial_lr) : NAN;
}

px_status px_optimizer_set_initial_lr(px_optimizer *self, int i, double lr) {
  PX_GIVEN(self);
  group *g = group_at(self, i);
  PX_CHECK(g, PX_INDEX, "there is no parameter group %d", i);
  px__number_set(&g->initial_lr, lr);
  return PX_OK;
}

// ---- steps

static void options_of(double out[PX__OPTION_LIMIT], const group *g) {
  for (int k = 0; k < PX__OPTION_LIMIT; k++) out[k] = px__number(&g->options[k]);
}

px_status px_optimizer_step(px_optimizer *self) {
  PX_GIVEN(self);
  PX_READS(&self->readers);
  double options[PX__OPTION_LIMIT];
  group *g, *first = PX_READ(self->groups);
  for (g = first; g; g = PX_READ(g->next)) {
    options_of(options, g);
    PX_TRY(self->kind->check(options, -1));
  }
  for (g = first; g; g = PX_READ(g->next)) {
    options_of(options, g);
    const px_step_options manner = {.rate = PX_READ(g->rate)};
    PX_TRY(
        px_optimizer_kind_step(self->kind, options, &manner, g->parameters, g->states, g->count));
  }
  return PX_OK;
}

static px_status clear_grad(px_tensor *parameter, bool set_to_none) {
  PX_SCOPED(px_tensor) grad = NULL;
  PX_TRY(px_tensor_get_grad(&grad, parameter));
  if (!grad) return PX_OK;
  if (set_to_none) return px_tensor_set_grad(parameter, NULL);
  PX_SCOPED(px_tensor) plain = NULL;
  PX_TRY(px_tensor_detach(&plain, grad));
  return px_init_constant(plain, 0);
}

px_status px_clear_grads(px_tensor *const *parameters, int64_t count, bool set_to_none) {
  PX_GIVEN_N(parameters, count);
  PX_TRY(px__parameters_given(parameters, count));
  for (int64_t i = 0; i < count; i++) PX_TRY(clear_grad(parameters[i], set_to_none));
  return PX_OK;
}

px_status px_optimizer_zero_grad(px_optimizer *self, bool set_to_none) {
  PX_GIVEN(self);
  for (const group *g = PX_READ(self->groups); g; g = PX_READ(g->next))
    PX_TRY(px_clear_grads(g->parameters, g->count, set_to_none));
  return PX_OK;
}

// ---- state

static int state_find(const px_optimizer *self, const char *name) {
  for (int k = 0; k < self->kind->state_count; k++)
    if (!strcmp(self->kind->states[k].name, name)) return k;
  return -1;
}

px_tensor *px_optimizer_state(const px_optimizer *self, int g, int64_t i, const char *name) {
  int k = state_find(self, name);
  const group *at = k < 0 ? NULL : group_with(self, g, i);
  return at ? PX_READ(at->states[i * PX_OPTIMIZER_STATES + k]) : NULL;
}

px_status px_optimizer_set_state(px_optimizer *self, int g, int64_t i, const char *name,
                                 px_tensor *value) {
  PX_GIVEN(self);
  PX_GIVEN(name);
  int k = state_find(self, name);
  group *at = group_with(self, g, i);
  replaced *old;
  PX_CHECK(k >= 0, PX_KEY, "%s has no state '%s'", self->kind->name, name);
  PX_CHECK(at, PX_INDEX, "there is no parameter %lld in group %d", (long long)i, g);
  PX_TRY(replaced_new(&old, 1));
  replace(&at->states[i * PX_OPTIMIZER_STATES + k], value, old);
  px_readers_retire(&self->readers, &old->head);
  return PX_OK;
}
