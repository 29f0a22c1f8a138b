// SPDX-License-Identifier: Apache-2.0
// Optimizers: groups of parameters with options, and the step of all groups.
#include <math.h>
#include <string.h>

#include "optim/optim_impl.h"

struct px_optimizer {
  px_object head;
  const px_optimizer_kind *kind;
  px__group *groups;
  int count;
};

static void group_clear(px__group *group) {
  for (int64_t i = 0; i < group->count; i++) px_release(group->parameters[i]);
  for (int64_t k = 0; k < group->count * PX_OPTIMIZER_STATES; k++) px_release(group->states[k]);
  px_free(group->parameters);  // and the states, in the same allocation
  px_release(group->rate);
}

static void optimizer_destroy(void *object) {
  px_optimizer *self = object;
  for (int i = 0; i < self->count; i++) group_clear(&self->groups[i]);
  px_free(self->groups);
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
  memcpy(made->groups[0].options, options, (size_t)made->kind->option_count * sizeof *options);
  *out = PX_MOVE(made);
  return PX_OK;
}

static bool holds(const px__group *group, const px_tensor *parameter) {
  for (int64_t i = 0; i < group->count; i++)
    if (group->parameters[i] == parameter) return true;
  return false;
}

static px_status parameters_check(const px_optimizer *self, px_tensor *const *parameters,
                                  int64_t count) {
  PX_CHECK(count > 0, PX_VALUE, "optimizer got an empty parameter list");
  for (int64_t i = 0; i < count; i++) {
    PX_CHECK(parameters[i], PX_TYPE,
             "optimizer can only optimize Tensors, but one of the params is NoneType");
    PX_CHECK(px_tensor_is_leaf(parameters[i]) || px_tensor_retains_grad(parameters[i]), PX_VALUE,
             "can't optimize a non-leaf Tensor");
    for (int g = 0; g < self->count; g++)
      PX_CHECK(!holds(&self->groups[g], parameters[i]), PX_VALUE,
               "some parameters appear in more than one parameter group");
  }
  return PX_OK;
}

px_status px_optimizer_add(px_optimizer *self, px_tensor *const *parameters, int64_t count) {
  PX_GIVEN(self);
  PX_GIVEN_N(parameters, count);
  PX_TRY(parameters_check(self, parameters, count));
  px__group fresh = {.count = count, .initial_lr = NAN};
  PX_TRY(px_realloc((void **)&self->groups, (size_t)(self->count + 1) * sizeof fresh));
  PX_TRY(px_alloc((void **)&fresh.parameters,
                  (size_t)count * (1 + PX_OPTIMIZER_STATES) * sizeof *fresh.parameters));
  fresh.states = fresh.parameters + count;
  for (int64_t i = 0; i < count; i++) fresh.parameters[i] = px_retain(parameters[i]);
  for (int k = 0; k < self->kind->option_count; k++)
    fresh.options[k] = self->kind->options[k].fallback;
  self->groups[self->count++] = fresh;
  return PX_OK;
}

const px_optimizer_kind *px_optimizer_kind_of(const px_optimizer *self) { return self->kind; }
int px_optimizer_groups(const px_optimizer *self) { return self->count; }

static bool is_group(const px_optimizer *self, int group) {
  return group >= 0 && group < self->count;
}

static bool is_parameter(const px_optimizer *self, int group, int64_t i) {
  return is_group(self, group) && i >= 0 && i < self->groups[group].count;
}

int64_t px_optimizer_group_size(const px_optimizer *self, int group) {
  return is_group(self, group) ? self->groups[group].count : 0;
}
px_tensor *px_optimizer_parameter(const px_optimizer *self, int group, int64_t i) {
  return is_parameter(self, group, i) ? self->groups[group].parameters[i] : NULL;
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

px_status px_optimizer_set(px_optimizer *self, int group, const char *option, double value) {
  PX_GIVEN(self);
  PX_GIVEN(option);
  int k;
  PX_TRY(option_find(&k, self, option));
  double alone[PX__OPTION_LIMIT] = {0};
  alone[k] = value;
  PX_TRY(self->kind->check(alone, k));
  PX_CHECK(group == -1 || is_group(self, group), PX_INDEX, "there is no parameter group %d", group);
  for (int g = 0; g < self->count; g++)
    if (group == -1 || group == g) self->groups[g].options[k] = value;
  return PX_OK;
}

px_status px_optimizer_get(double *out, const px_optimizer *self, int group, const char *option) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_GIVEN(option);
  int k;
  PX_TRY(option_find(&k, self, option));
  PX_CHECK(is_group(self, group), PX_INDEX, "there is no parameter group %d", group);
  *out = self->groups[group].options[k];
  return PX_OK;
}

px_status px_optimizer_set_rate(px_optimizer *self, int group, px_tensor *rate) {
  PX_GIVEN(self);
  PX_CHECK(!rate || px_tensor_numel(rate) == 1, PX_VALUE, "Tensor lr must be 1-element");
  PX_CHECK(group == -1 || is_group(self, group), PX_INDEX, "there is no parameter group %d", group);
  for (int g = 0; g < self->count; g++) {
    if (group != -1 && group != g) continue;
    px_tensor *old = self->groups[g].rate;
    self->groups[g].rate = px_retain(rate);
    px_release(old);
  }
  return PX_OK;
}

double px_optimizer_initial_lr(const px_optimizer *self, int group) {
  return is_group(self, group) ? self->groups[group].initial_lr : NAN;
}

px_status px_optimizer_set_initial_lr(px_optimizer *self, int group, double lr) {
  PX_GIVEN(self);
  PX_CHECK(is_group(self, group), PX_INDEX, "there is no parameter group %d", group);
  self->groups[group].initial_lr = lr;
  return PX_OK;
}

// ---- steps

px_status px_optimizer_step(px_optimizer *self) {
  PX_GIVEN(self);
  for (int g = 0; g < self->count; g++) PX_TRY(self->kind->check(self->groups[g].options, -1));
  for (int g = 0; g < self->count; g++) {
    px__group *group = &self->groups[g];
    const px_step_options manner = {.rate = group->rate};
    PX_TRY(px_optimizer_kind_step(self->kind, group->options, &manner, group->parameters,
                                  group->states, group->count));
  }
  return PX_OK;
}

static px_status clear_grad(px_tensor *parameter, bool set_to_none) {
  px_tensor *grad = px_tensor_grad(parameter);
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
  for (int g = 0; g < self->count; g++)
    PX_TRY(px_clear_grads(self->groups[g].parameters, self->groups[g].count, set_to_none));
  return PX_OK;
}

// ---- state

static int state_find(const px_optimizer *self, const char *name) {
  for (int k = 0; k < self->kind->state_count; k++)
    if (!strcmp(self->kind->states[k].name, name)) return k;
  return -1;
}

px_tensor *px_optimizer_state(const px_optimizer *self, int group, int64_t i, const char *name) {
  int k = state_find(self, name);
  bool there = k >= 0 && is_parameter(self, group, i);
  return there ? self->groups[group].states[i * PX_OPTIMIZER_STATES + k] : NULL;
}

px_status px_optimizer_set_state(px_optimizer *self, int group, int64_t i, const char *name,
                                 px_tensor *value) {
  PX_GIVEN(self);
  PX_GIVEN(name);
  int k = state_find(self, name);
  PX_CHECK(k >= 0, PX_KEY, "%s has no state '%s'", self->kind->name, name);
  PX_CHECK(is_parameter(self, group, i), PX_INDEX, "there is no parameter %lld in group %d",
           (long long)i, group);
  px_tensor **slot = &self->groups[group].states[i * PX_OPTIMIZER_STATES + k], *old = *slot;
  *slot = px_retain(value);
  px_release(old);
  return PX_OK;
}
