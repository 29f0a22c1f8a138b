// SPDX-License-Identifier: Apache-2.0
// Schedules of learning rates: making them, and their steps. The kinds' formulas are in
// schedules.c.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/optim_impl.h"

static void scheduler_destroy(void *object) {
  px_scheduler *self = object;
  px_release(self->optimizer);
  px_free(self->milestones);
  px_free(self->base);
  px_free(self->room);
  px_object_end(self);
  px_free(self);
}

static const px_class scheduler_class = {"scheduler", scheduler_destroy};

const px_scheduler_kind *px_scheduler_kind_at(int i) {
  return i >= 0 && i < px__scheduler_kind_count ? &px__scheduler_kinds[i] : NULL;
}

const px_scheduler_kind *px_scheduler_kind_find(const char *name) {
  for (int i = 0; i < px__scheduler_kind_count; i++)
    if (!strcmp(px__scheduler_kinds[i].name, name)) return &px__scheduler_kinds[i];
  return NULL;
}

const char *px_scheduler_kind_name(const px_scheduler_kind *kind) { return kind->name; }

const px_option *px_scheduler_kind_options(const px_scheduler_kind *kind, int *count) {
  *count = kind->option_count;
  return kind->options;
}

// ---- making

// The groups' first rates: those of now, unless an earlier schedule has kept others.
static px_status keep_base(px_scheduler *self, bool resumes) {
  for (int g = 0; g < self->groups; g++) {
    double kept = px_optimizer_initial_lr(self->optimizer, g);
    PX_CHECK(!resumes || !isnan(kept), PX_KEY,
             "param 'initial_lr' is not specified in param_groups[%d] when resuming an optimizer",
             g);
    if (isnan(kept)) PX_TRY(px_optimizer_get(&kept, self->optimizer, g, "lr"));
    PX_TRY(px_optimizer_set_initial_lr(self->optimizer, g, kept));
    self->base[g] = kept;
  }
  return PX_OK;
}

static px_status scheduler_make(px_scheduler **out, px_optimizer *optimizer, int64_t last_epoch) {
  px_scheduler *made;
  *out = NULL;
  PX_CHECK(last_epoch >= -1, PX_VALUE, "last_epoch is not less than -1, but got %lld",
           (long long)last_epoch);
  PX_TRY(px_alloc((void **)&made, sizeof *made));
  px_object_init(made, &scheduler_class);
  PX_SCOPED(px_scheduler) self = made;
  self->optimizer = px_retain(optimizer);
  self->epoch = last_epoch;
  self->groups = px_optimizer_groups(optimizer);
  PX_TRY(px_alloc((void **)&self->base, (size_t)self->groups * sizeof *self->base));
  PX_TRY(px_alloc((void **)&self->room, (size_t)self->groups * sizeof *self->room));
  *out = PX_MOVE(self);
  return PX_OK;
}

static int by_size(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

static px_status take_options(px_scheduler *self, const double *options, const int64_t *milestones,
                              int count) {
  const px_scheduler_kind *kind = self->kind;
  for (int k = 0; k < kind->option_count; k++)
    self->options[k] = options && !isnan(options[k]) ? options[k] : kind->options[k].fallback;
  self->milestone_count = count;
  PX_TRY(px_alloc((void **)&self->milestones, (size_t)(count + 1) * sizeof *milestones));
  if (count) memcpy(self->milestones, milestones, (size_t)count * sizeof *milestones);
  qsort(self->milestones, (size_t)count, sizeof *milestones, by_size);
  return kind->check ? kind->check(self) : PX_OK;
}

px_status px_scheduler_new(px_scheduler **out, const px_scheduler_kind *kind,
                           px_optimizer *optimizer, const double *options,
                           const int64_t *milestones, int count, int64_t last_epoch) {
  PX_GIVEN(kind);
  PX_GIVEN(optimizer);
  PX_GIVEN_N(milestones, count);
  PX_SCOPED(px_scheduler) self = NULL;
  *out = NULL;
  PX_CHECK(count >= 0, PX_VALUE, "a number of milestones is not negative, but got %d", count);
  PX_TRY(scheduler_make(&self, optimizer, last_epoch));
  self->kind = kind;
  PX_TRY(take_options(self, options, milestones, count));
  if (!kind->next && !kind->at) return *out = PX_MOVE(self), PX_OK;  // it goes by a metric
  PX_TRY(keep_base(self, last_epoch >= 0));
  PX_TRY(px_scheduler_step(self));
  *out = PX_MOVE(self);
  return PX_OK;
}

px_status px_scheduler_custom(px_scheduler **out, px_optimizer *optimizer, px_rates rates,
                              void *context, int64_t last_epoch) {
  PX_GIVEN(optimizer);
  PX_SCOPED(px_scheduler) self = NULL;
  *out = NULL;
  PX_CHECK(rates, PX_TYPE, "a schedule needs a function");
  PX_TRY(scheduler_make(&self, optimizer, last_epoch));
  self->rates = rates;
  self->context = context;
  PX_TRY(keep_base(self, last_epoch >= 0));
  *out = PX_MOVE(self);
  return PX_OK;
}

px_status px_scheduler_step_lr(px_scheduler **out, px_optimizer *optimizer, int64_t step_size,
                               double gamma) {
  PX_GIVEN(optimizer);
  double options[] = {(double)step_size, gamma};
  return px_scheduler_new(out, px_scheduler_kind_find("StepLR"), optimizer, options, NULL, 0, -1);
}

px_status px_scheduler_cosine(px_scheduler **out, px_optimizer *optimizer, int64_t t_max,
                              double eta_min) {
  PX_GIVEN(optimizer);
  double options[] = {(double)t_max, eta_min};
  return px_scheduler_new(out, px_scheduler_kind_find("CosineAnnealingLR"), optimizer, options,
                          NULL, 0, -1);
}

// ---- steps

static px_status set_rates(px_scheduler *self, const double *rates) {
  for (int g = 0; g < self->groups; g++)
    PX_TRY(px_optimizer_set(self->optimizer, g, "lr", rates[g]));
  return PX_OK;
}

static px_status step_custom(px_scheduler *self) {
  for (int g = 0; g < self->groups; g++)
    PX_TRY(px_optimizer_get(&self->room[g], self->optimizer, g, "lr"));
  PX_TRY(self->rates(self->room, self->groups, self, self->context));
  return set_rates(self, self->room);
}

// A group that was added later has no base: as in PyTorch it steps along where the next rate
// follows from the last one alone, and is left alone otherwise.
static px_status step_kind(px_scheduler *self) {
  const px_scheduler_kind *kind = self->kind;
  if (kind->beside) PX_TRY(kind->beside(self, (double)self->epoch));
  for (int g = 0; g < px_optimizer_groups(self->optimizer); g++) {
    double lr;
    PX_TRY(px_optimizer_get(&lr, self->optimizer, g, "lr"));
    lr = kind->next         ? kind->next(self, g, lr)
         : g < self->groups ? kind->at(self, g, (double)self->epoch)
                            : lr;
    PX_TRY(px_optimizer_set(self->optimizer, g, "lr", lr));
  }
  return PX_OK;
}

px_status px_scheduler_step(px_scheduler *self) {
  PX_GIVEN(self);
  PX_CHECK(self->rates || self->kind->next || self->kind->at, PX_TYPE,
           "%s.step() missing 1 required positional argument: 'metrics'", self->kind->name);
  self->epoch++;
  px_status status = self->rates ? step_custom(self) : step_kind(self);
  if (status != PX_OK) self->epoch--;
  return status;
}

px_status px_scheduler_step_to(px_scheduler *self, double epoch) {
  PX_GIVEN(self);
  PX_CHECK(isfinite(epoch) && fabs(epoch) < 0x1p53, PX_VALUE, "there is no epoch %g", epoch);
  int64_t before = self->epoch;
  self->epoch = (int64_t)floor(epoch);
  px_status status = PX_OK;
  if (self->rates || !self->kind->at) {
    status = self->rates ? step_custom(self) : step_kind(self);
  } else {
    if (self->kind->beside) status = self->kind->beside(self, epoch);
    for (int g = 0; g < self->groups; g++) self->room[g] = self->kind->at(self, g, epoch);
    if (status == PX_OK) status = set_rates(self, self->room);
  }
  if (status != PX_OK) self->epoch = before;
  return status;
}

// ---- values

double px_scheduler_last_lr(const px_scheduler *self, int group) {
  double lr = NAN;
  return px_optimizer_get(&lr, self->optimizer, group, "lr") == PX_OK ? lr : NAN;
}

int64_t px_scheduler_epoch(const px_scheduler *self) { return self->epoch; }
void px_scheduler_restore(px_scheduler *self, int64_t epoch) { self->epoch = epoch; }
double px_scheduler_base_lr(const px_scheduler *self, int group) {
  return group >= 0 && group < self->groups ? self->base[group] : NAN;
}
px_status px_scheduler_set_base_lr(px_scheduler *self, int group, double lr) {
  PX_GIVEN(self);
  PX_CHECK(group >= 0 && group < self->groups, PX_INDEX, "there is no parameter group %d", group);
  self->base[group] = lr;
  return PX_OK;
}
const px_scheduler_kind *px_scheduler_kind_of(const px_scheduler *self) { return self->kind; }
const int64_t *px_scheduler_milestones(const px_scheduler *self, int *count) {
  *count = self->milestone_count;
  return self->milestones;
}

static double *value_find(px_scheduler *self, const char *name) {
  static const char *const remembered[] = {"best", "num_bad_epochs", "cooldown_counter"};
  double *values[] = {&self->best, &self->bad_epochs, &self->cooling};
  for (int k = 0; self->kind && k < self->kind->option_count; k++)
    if (!strcmp(self->kind->options[k].name, name)) return &self->options[k];
  bool by_metric = self->kind && !self->kind->next && !self->kind->at;
  for (int k = 0; by_metric && k < 3; k++)
    if (!strcmp(remembered[k], name)) return values[k];
  return NULL;
}

px_status px_scheduler_get(double *out, const px_scheduler *self, const char *option) {
  PX_GIVEN(self);
  PX_GIVEN(option);
  const double *value = value_find((px_scheduler *)self, option);
  PX_CHECK(value, PX_KEY, "the schedule has no option '%s'", option);
  *out = *value;
  return PX_OK;
}

px_status px_scheduler_set(px_scheduler *self, const char *option, double value) {
  PX_GIVEN(self);
  PX_GIVEN(option);
  double *place = value_find(self, option);
  PX_CHECK(place, PX_KEY, "the schedule has no option '%s'", option);
  *place = value;
  return PX_OK;
}
