// SPDX-License-Identifier: Apache-2.0
// Optimisers: groups of parameters with options, and the step that updates them all.
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optim/optim_impl.h"

struct px_optimizer {
  px_object head;
  const px_optimizer_kind *kind;
  px__group *groups;
  int count;
};

static void group_clear(px__group *group) {
  for (int64_t i = 0; i < group->count; i++) {
    px_release(group->slots[i].parameter);
    for (int k = 0; k < PX__STATE_LIMIT; k++) px_release(group->slots[i].state[k]);
    px_release(group->slots[i].count);
  }
  px_free(group->slots);
}

static void optimizer_destroy(void *object) {
  px_optimizer *self = object;
  for (int i = 0; i < self->count; i++) group_clear(&self->groups[i]);
  px_free(self->groups);
  px_object_end(self);
  px_free(self);
}

static const px_class optimizer_class = {"optimizer", optimizer_destroy};

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
  return i >= 0 && i < PX__STATE_LIMIT ? kind->state[i] : NULL;
}

px_status px_optimizer_new(px_optimizer **out, const char *name) {
  PX_GIVEN(name);
  *out = NULL;
  const px_optimizer_kind *kind = px_optimizer_kind_find(name);
  PX_CHECK(kind, PX_UNIMPLEMENTED, "there is no optimizer '%s'", name);
  PX_TRY(px_alloc((void **)out, sizeof **out));
  px_object_init(*out, &optimizer_class);
  (*out)->kind = kind;
  return PX_OK;
}

static bool holds(const px__group *group, const px_tensor *parameter) {
  for (int64_t i = 0; i < group->count; i++)
    if (group->slots[i].parameter == parameter) return true;
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
  PX_TRY(px_alloc((void **)&fresh.slots, (size_t)count * sizeof *fresh.slots));
  for (int64_t i = 0; i < count; i++) fresh.slots[i].parameter = px_retain(parameters[i]);
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

// The i-th parameter of a group with its state; NULL if there is none.
static px__slot *slot_find(const px_optimizer *self, int group, int64_t i) {
  bool there = is_group(self, group) && i >= 0 && i < self->groups[group].count;
  return there ? &self->groups[group].slots[i] : NULL;
}

int64_t px_optimizer_group_size(const px_optimizer *self, int group) {
  return is_group(self, group) ? self->groups[group].count : 0;
}
px_tensor *px_optimizer_parameter(const px_optimizer *self, int group, int64_t i) {
  px__slot *slot = slot_find(self, group, i);
  return slot ? slot->parameter : NULL;
}

// ---- options

// The range of an option and the text for a number outside it; the rest may be anything.
static const struct {
  const char *name;
  double least, below;  // least <= value < below
  const char *text;
} ranges[] = {
    {"lr", 0, INFINITY, "Invalid learning rate: %s"},
    {"momentum", 0, INFINITY, "Invalid momentum value: %s"},
    {"weight_decay", 0, INFINITY, "Invalid weight_decay value: %s"},
    {"beta1", 0, 1, "Invalid beta parameter at index 0: %s"},
    {"beta2", 0, 1, "Invalid beta parameter at index 1: %s"},
    {"alpha", 0, INFINITY, "Invalid alpha value: %s"},
    {"lr_decay", 0, INFINITY, "Invalid lr_decay value: %s"},
    {"initial_accumulator_value", 0, INFINITY, "Invalid initial_accumulator_value value: %s"},
    {"rho", 0, 1 + DBL_EPSILON, "Invalid rho value: %s"},
    {"eps", 0, INFINITY, "Invalid epsilon value: %s"}};

static px_status range_check(const char *option, double value) {
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    if (strcmp(ranges[i].name, option) || (value >= ranges[i].least && value < ranges[i].below))
      continue;
    char number[40];
    snprintf(number, sizeof number, value == floor(value) && fabs(value) < 1e15 ? "%.1f" : "%.17g",
             value);
    char text[128];
    snprintf(text, sizeof text, ranges[i].text, number);
    PX_FAIL(PX_VALUE, "%s", text);
  }
  return PX_OK;
}

static int option_find(const px_optimizer *self, const char *option) {
  for (int k = 0; k < self->kind->option_count; k++)
    if (!strcmp(self->kind->options[k].name, option)) return k;
  return -1;
}

px_status px_optimizer_set(px_optimizer *self, int group, const char *option, double value) {
  PX_GIVEN(self);
  PX_GIVEN(option);
  int k = option_find(self, option);
  PX_CHECK(k >= 0, PX_KEY, "%s has no option '%s'", self->kind->name, option);
  PX_TRY(range_check(option, value));
  PX_CHECK(group == -1 || is_group(self, group), PX_INDEX, "there is no parameter group %d", group);
  for (int g = 0; g < self->count; g++)
    if (group == -1 || group == g) self->groups[g].options[k] = value;
  return PX_OK;
}

px_status px_optimizer_get(double *out, const px_optimizer *self, int group, const char *option) {
  PX_GIVEN(self);
  PX_GIVEN(option);
  int k = option_find(self, option);
  PX_CHECK(k >= 0, PX_KEY, "%s has no option '%s'", self->kind->name, option);
  PX_CHECK(is_group(self, group), PX_INDEX, "there is no parameter group %d", group);
  *out = self->groups[group].options[k];
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

static px_status group_check(const px_optimizer_kind *kind, const double *options) {
  for (int k = 0; k < kind->option_count; k++)
    PX_CHECK(!isnan(options[k]), PX_VALUE,
             "parameter group didn't specify a value of required optimization parameter %s",
             kind->options[k].name);
  return kind->check ? kind->check(options) : PX_OK;
}

px_status px_optimizer_check(const px_optimizer *self) {
  PX_GIVEN(self);
  for (int g = 0; g < self->count; g++) PX_TRY(group_check(self->kind, self->groups[g].options));
  return PX_OK;
}

// What a program has written to the count of steps holds.
static px_status read_count(px__slot *slot) {
  if (!slot->count) return PX_OK;
  bool good = px_tensor_dtype(slot->count) == PX_FLOAT32 && px_tensor_numel(slot->count) == 1 &&
              px_tensor_device(slot->count).type == PX_CPU;
  PX_CHECK(good, PX_TYPE, "the count of steps is no float32 number on the CPU any more");
  float count = *(const float *)px_tensor_data(slot->count);
  PX_CHECK(count >= 0 && count < 0x1p53f, PX_VALUE, "a number of steps is not negative, but got %g",
           (double)count);
  slot->steps = (int64_t)count;
  return PX_OK;
}

static void write_count(const px__slot *slot) {
  if (slot->count) *(float *)px_tensor_data(slot->count) = (float)slot->steps;
}

static px_status step_group(const px_optimizer *self, px__group *group) {
  for (int64_t i = 0; i < group->count; i++) {
    px__slot *slot = &group->slots[i];
    if (!px_tensor_grad(slot->parameter)) continue;
    PX_TRY(read_count(slot));
    slot->steps++;
    px_status status = self->kind->update(slot, group->options);
    if (status != PX_OK) slot->steps--;
    PX_TRY(status);
    write_count(slot);
  }
  return PX_OK;
}

px_status px_optimizer_step(px_optimizer *self) {
  PX_GIVEN(self);
  PX_TRY(px_optimizer_check(self));
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = PX_OK;
  for (int g = 0; g < self->count && status == PX_OK; g++)
    status = step_group(self, &self->groups[g]);
  px_grad_set_enabled(was);
  return status;
}

static px_status clear_grad(px_tensor *parameter, bool set_to_none) {
  px_tensor *grad = px_tensor_grad(parameter);
  if (!grad) return PX_OK;
  if (set_to_none) return px_tensor_set_grad(parameter, NULL);
  PX_SCOPED(px_tensor) plain = NULL;
  PX_TRY(px_tensor_detach(&plain, grad));
  return px_init_constant(plain, 0);
}

px_status px_optimizer_zero_grad(px_optimizer *self, bool set_to_none) {
  PX_GIVEN(self);
  for (int g = 0; g < self->count; g++)
    for (int64_t i = 0; i < self->groups[g].count; i++)
      PX_TRY(clear_grad(self->groups[g].slots[i].parameter, set_to_none));
  return PX_OK;
}

// ---- state

static int state_find(const px_optimizer *self, const char *name) {
  for (int k = 0; k < PX__STATE_LIMIT && self->kind->state[k]; k++)
    if (!strcmp(self->kind->state[k], name)) return k;
  return -1;
}

px_tensor *px_optimizer_state(const px_optimizer *self, int group, int64_t i, const char *name) {
  int k = state_find(self, name);
  px__slot *slot = slot_find(self, group, i);
  return k < 0 || !slot ? NULL : slot->state[k];
}

px_status px_optimizer_set_state(px_optimizer *self, int group, int64_t i, const char *name,
                                 px_tensor *value) {
  PX_GIVEN(self);
  PX_GIVEN(name);
  int k = state_find(self, name);
  PX_CHECK(k >= 0, PX_KEY, "%s has no state '%s'", self->kind->name, name);
  px__slot *slot = slot_find(self, group, i);
  PX_CHECK(slot, PX_INDEX, "there is no parameter %lld in group %d", (long long)i, group);
  px_tensor *old = slot->state[k];
  slot->state[k] = px_retain(value);
  px_release(old);
  return PX_OK;
}

int64_t px_optimizer_steps(const px_optimizer *self, int group, int64_t i) {
  px__slot *slot = slot_find(self, group, i);
  if (slot && read_count(slot) != PX_OK) px_error_clear();  // the next step tells
  return slot ? slot->steps : 0;
}

px_status px_optimizer_count(px_tensor **out, px_optimizer *self, int group, int64_t i) {
  PX_GIVEN(self);
  *out = NULL;
  px__slot *slot = slot_find(self, group, i);
  PX_CHECK(slot, PX_INDEX, "there is no parameter %lld in group %d", (long long)i, group);
  float steps = (float)slot->steps;
  if (!slot->count && slot->steps)
    PX_TRY(px_tensor_from_data(&slot->count, &steps, 0, NULL, PX_FLOAT32, px_cpu()));
  *out = px_retain(slot->count);
  return PX_OK;
}

px_status px_optimizer_set_steps(px_optimizer *self, int group, int64_t i, int64_t steps) {
  PX_GIVEN(self);
  PX_CHECK(steps >= 0, PX_VALUE, "a number of steps is not negative, but got %lld",
           (long long)steps);
  px__slot *slot = slot_find(self, group, i);
  PX_CHECK(slot, PX_INDEX, "there is no parameter %lld in group %d", (long long)i, group);
  slot->steps = steps;
  px_release(slot->count);
  slot->count = NULL;
  return PX_OK;
}
