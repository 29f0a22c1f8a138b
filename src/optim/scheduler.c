// SPDX-License-Identifier: Apache-2.0
// Learning rate schedules: construction and steps. The kinds' formulas are in
// optim/schedules.optim.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/optim_impl.h"
#include "phlox/base.h"

static void scheduler_destroy(void *object) {
  px_scheduler *self = object;
  px_release(self->optimizer);
  px_free(self->milestones);
  px_free(self->base);
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
  px_name_miss(px__scheduler_kinds, name);
  return NULL;
}

static const char *kind_name_at(const void *names, int i) {
  return i < px__scheduler_kind_count ? px__scheduler_kinds[i].name : NULL;
}

const char *px_scheduler_kind_name(const px_scheduler_kind *kind) { return kind->name; }

const px_option *px_scheduler_kind_options(const px_scheduler_kind *kind, int *count) {
  *count = kind->option_count;
  return kind->options;
}

px_status px_scheduler_kind_check(const px_scheduler_kind *kind, double *options) {
  PX_GIVEN(kind);
  PX_GIVEN(options);
  return kind->check(options);
}

static bool uses_metric(const px_scheduler_kind *kind) { return !kind->next && !kind->at; }

px_status px_scheduler_kind_rate(double *lr, double *momentum, const px_scheduler_kind *kind,
                                 const px_schedule_point *at, bool closed) {
  PX_GIVEN(lr);
  PX_GIVEN(momentum);
  PX_GIVEN(kind);
  PX_GIVEN(at);
  PX_GIVEN(at->options);
  PX_GIVEN_N(at->milestones, at->milestone_count);
  PX_CHECK(!uses_metric(kind), PX_TYPE,
           "%s.step() missing 1 required positional argument: 'metrics'", kind->name);
  *momentum = NAN;
  if (kind->momentum) PX_TRY(kind->momentum(momentum, at));
  *lr = kind->at && (closed || !kind->next) ? kind->at(at) : kind->next(at);
  return PX_OK;
}

double px_scheduler_kind_first(const px_scheduler_kind *kind, const double *options) {
  return kind->first ? kind->first(options) : NAN;
}

// ---- construction

// Sets the base rates: the current rates, unless an earlier schedule has recorded initial rates.
static px_status record_base_rates(px_scheduler *self, bool resumes) {
  for (int g = 0; g < self->groups; g++) {
    double rate = px_optimizer_initial_lr(self->optimizer, g);
    PX_CHECK(!resumes || !isnan(rate), PX_KEY,
             "param 'initial_lr' is not specified in param_groups[%d] when resuming scheduler with "
             "last_epoch >= 0.\nThis typically happens when:\n1. You're trying to resume training "
             "from a checkpoint but haven't properly loaded the optimizer state\n2. You're using "
             "last_epoch >= 0 for a fresh training run (not recommended)",
             g);
    if (isnan(rate)) PX_TRY(px_optimizer_get(&rate, self->optimizer, g, "lr"));
    PX_TRY(px_optimizer_set_initial_lr(self->optimizer, g, rate));
    self->base[g] = rate;
  }
  return PX_OK;
}

static px_status scheduler_make(px_scheduler **out, px_optimizer *optimizer, int64_t last_epoch) {
  px_scheduler *made;
  *out = NULL;
  PX_CHECK(last_epoch >= -1, PX_VALUE, "expected last_epoch >= -1, got %lld",
           (long long)last_epoch);
  PX_TRY(px_alloc((void **)&made, sizeof *made));
  px_object_init(made, &scheduler_class);
  PX_SCOPED(px_scheduler) self = made;
  self->optimizer = px_retain(optimizer);
  self->epoch = last_epoch;
  self->first = last_epoch + 1;
  self->groups = px_optimizer_groups(optimizer);
  PX_TRY(px_alloc((void **)&self->base, (size_t)self->groups * sizeof *self->base));
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
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): the kind's options are all given, or none
    self->options[k] = options && !isnan(options[k]) ? options[k] : kind->options[k].fallback;
  self->milestone_count = count;
  PX_TRY(px_alloc((void **)&self->milestones, (size_t)(count + 1) * sizeof *milestones));
  if (count) memcpy(self->milestones, milestones, (size_t)count * sizeof *milestones);
  qsort(self->milestones, (size_t)count, sizeof *milestones, by_size);
  return kind->check(self->options);
}

// Name of the optimizer's momentum option, or NULL.
static const char *momentum_of(const px_scheduler *self) {
  static const char *const names[] = {"beta1", "momentum"};
  int count;
  const px_option *options =
      px_optimizer_kind_options(px_optimizer_kind_of(self->optimizer), &count);
  for (int i = 0; i < count; i++)
    for (int k = 0; k < 2; k++)
      if (!strcmp(options[i].name, names[k])) return names[k];
  return NULL;
}

// Sets the initial rates of kinds that define them. Fails if a kind schedules momentum and the
// optimizer has none.
static px_status begin_kind(px_scheduler *self, int64_t last_epoch) {
  double first = px_scheduler_kind_first(self->kind, self->options), momentum;
  px_schedule_point start = {.options = self->options, .base = 1};
  for (int g = 0; g < self->groups && !isnan(first) && last_epoch < 0; g++)
    PX_TRY(px_optimizer_set_initial_lr(self->optimizer, g, first));
  if (!self->kind->momentum) return PX_OK;
  PX_TRY(self->kind->momentum(&momentum, &start));
  PX_CHECK(isnan(momentum) || momentum_of(self), PX_VALUE,
           "optimizer must support momentum or beta1 with `cycle_momentum` option enabled");
  return PX_OK;
}

px_status px_scheduler_new(px_scheduler **out, const px_scheduler_kind *kind,
                           px_optimizer *optimizer, const double *options,
                           const int64_t *milestones, int count, int64_t last_epoch) {
  PX_GIVEN(out);
  const char *missed = kind ? NULL : px_name_missed(px__scheduler_kinds);
  PX_CHECK(!missed, PX_ATTRIBUTE, "there is no schedule '%s': the nearest name is %s", missed,
           px_name_suggest(missed, kind_name_at, NULL));
  PX_GIVEN(kind);
  PX_GIVEN(optimizer);
  PX_GIVEN_N(milestones, count);
  PX_SCOPED(px_scheduler) self = NULL;
  *out = NULL;
  PX_TRY(scheduler_make(&self, optimizer, last_epoch));
  self->kind = kind;
  PX_TRY(take_options(self, options, milestones, count));
  if (uses_metric(kind)) {
    self->epoch = 0;
    px__plateau_begin(&self->plateau, self->options);
    return *out = PX_MOVE(self), PX_OK;
  }
  PX_TRY(begin_kind(self, last_epoch));
  PX_TRY(record_base_rates(self, last_epoch >= 0));
  PX_TRY(px_scheduler_step(self));
  *out = PX_MOVE(self);
  return PX_OK;
}

px_status px_scheduler_custom(px_scheduler **out, px_optimizer *optimizer, px_rates rates,
                              void *context, int64_t last_epoch) {
  PX_GIVEN(out);
  PX_GIVEN(optimizer);
  PX_SCOPED(px_scheduler) self = NULL;
  *out = NULL;
  PX_CHECK(rates, PX_TYPE, "expected a schedule function, got NULL");
  PX_TRY(scheduler_make(&self, optimizer, last_epoch));
  self->rates = rates;
  self->context = context;
  PX_TRY(record_base_rates(self, last_epoch >= 0));
  *out = PX_MOVE(self);
  return PX_OK;
}

px_status px_scheduler_step_lr(px_scheduler **out, px_optimizer *optimizer, int64_t step_size,
                               double gamma) {
  PX_GIVEN(out);
  PX_GIVEN(optimizer);
  double options[] = {(double)step_size, gamma};
  return px_scheduler_new(out, px_scheduler_kind_find("StepLR"), optimizer, options, NULL, 0, -1);
}

px_status px_scheduler_cosine(px_scheduler **out, px_optimizer *optimizer, int64_t t_max,
                              double eta_min) {
  PX_GIVEN(out);
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

static px_status compute_rates(px_scheduler *self, double *rates) {
  for (int g = 0; g < self->groups; g++)
    PX_TRY(px_optimizer_get(&rates[g], self->optimizer, g, "lr"));
  PX_TRY(self->rates(rates, self->groups, self, self->context));
  return set_rates(self, rates);
}

static px_status step_custom(px_scheduler *self) {
  double *rates;
  PX_TRY(px_alloc((void **)&rates, (size_t)self->groups * sizeof *rates));
  px_status status = compute_rates(self, rates);
  px_free(rates);
  return status;
}

static void options_of(double out[PX__SCHEDULE_LIMIT], const px_scheduler *self) {
  for (int k = 0; k < PX__SCHEDULE_LIMIT; k++) out[k] = px__number(&self->options[k]);
}

// A group added later has no base rate. PyTorch's rule: it is stepped if the next rate follows from
// the last one alone, otherwise skipped.
static px_status step_kind(px_scheduler *self, double epoch, bool closed) {
  double options[PX__SCHEDULE_LIMIT];
  options_of(options, self);
  for (int g = 0; g < px_optimizer_groups(self->optimizer); g++) {
    px_schedule_point at = {.options = options,
                            .milestones = self->milestones,
                            .milestone_count = self->milestone_count,
                            .epoch = epoch,
                            .base = px_scheduler_base_lr(self, g),
                            .step = epoch - (double)self->first,
                            .initial = epoch == (double)self->first};
    double lr, momentum;
    if (closed && isnan(at.base)) continue;
    PX_TRY(px_optimizer_get(&at.lr, self->optimizer, g, "lr"));
    PX_TRY(px_scheduler_kind_rate(&lr, &momentum, self->kind, &at, closed));
    if (!isnan(momentum) && g < self->groups)
      PX_TRY(px_optimizer_set(self->optimizer, g, momentum_of(self), momentum));
    PX_TRY(px_optimizer_set(self->optimizer, g, "lr", lr));
  }
  return PX_OK;
}

px_status px_scheduler_step(px_scheduler *self) {
  PX_GIVEN(self);
  PX_CHECK(self->rates || !uses_metric(self->kind), PX_TYPE,
           "%s.step() missing 1 required positional argument: 'metrics'", self->kind->name);
  int64_t epoch = __atomic_add_fetch(&self->epoch, 1, __ATOMIC_RELAXED);
  px_status status = self->rates ? step_custom(self) : step_kind(self, (double)epoch, false);
  if (status != PX_OK) __atomic_sub_fetch(&self->epoch, 1, __ATOMIC_RELAXED);
  return status;
}

px_status px_scheduler_step_to(px_scheduler *self, double epoch) {
  PX_GIVEN(self);
  PX_CHECK(isfinite(epoch) && fabs(epoch) < 0x1p53, PX_VALUE,
           "expected an epoch below 2**53 in magnitude, got %g", epoch);
  double whole = floor(epoch);
  int64_t before = __atomic_exchange_n(&self->epoch, (int64_t)whole, __ATOMIC_RELAXED);
  bool closed = !self->rates && self->kind->at;
  px_status status =
      self->rates ? step_custom(self) : step_kind(self, closed ? epoch : whole, closed);
  if (status != PX_OK) __atomic_store_n(&self->epoch, before, __ATOMIC_RELAXED);
  return status;
}

static bool step_plateau(px_scheduler *self, const double *options, double metric) {
  px_plateau *kept = &self->plateau;
  px_plateau now = {px__number(&kept->best), px__number(&kept->bad_epochs),
                    px__number(&kept->cooling)};
  bool reduces = px_plateau_step(&now, options, metric);
  px__number_set(&kept->best, now.best);
  px__number_set(&kept->bad_epochs, now.bad_epochs);
  px__number_set(&kept->cooling, now.cooling);
  return reduces;
}

px_status px_scheduler_step_metric(px_scheduler *self, double metric) {
  PX_GIVEN(self);
  PX_CHECK(self->kind && uses_metric(self->kind), PX_TYPE,
           "this schedule does not depend on a metric");
  double options[PX__SCHEDULE_LIMIT];
  options_of(options, self);
  __atomic_add_fetch(&self->epoch, 1, __ATOMIC_RELAXED);
  if (!step_plateau(self, options, metric)) return PX_OK;
  for (int g = 0; g < px_optimizer_groups(self->optimizer); g++) {
    double lr;
    PX_TRY(px_optimizer_get(&lr, self->optimizer, g, "lr"));
    PX_TRY(px_optimizer_set(self->optimizer, g, "lr", px_plateau_rate(options, lr)));
  }
  return PX_OK;
}

// ---- values

double px_scheduler_last_lr(const px_scheduler *self, int group) {
  double lr = NAN;
  return px_optimizer_get(&lr, self->optimizer, group, "lr") == PX_OK ? lr : NAN;
}

int64_t px_scheduler_epoch(const px_scheduler *self) {
  return __atomic_load_n(&self->epoch, __ATOMIC_RELAXED);
}
double px_scheduler_base_lr(const px_scheduler *self, int group) {
  return group >= 0 && group < self->groups ? px__number(&self->base[group]) : NAN;
}
px_status px_scheduler_set_base_lr(px_scheduler *self, int group, double lr) {
  PX_GIVEN(self);
  PX_CHECK(group >= 0 && group < self->groups, PX_INDEX, "there is no parameter group %d", group);
  px__number_set(&self->base[group], lr);
  return PX_OK;
}

static double *value_find(px_scheduler *self, const char *name) {
  static const char *const remembered[] = {"best", "num_bad_epochs", "cooldown_counter"};
  double *values[] = {&self->plateau.best, &self->plateau.bad_epochs, &self->plateau.cooling};
  for (int k = 0; self->kind && k < self->kind->option_count; k++)
    if (!strcmp(self->kind->options[k].name, name)) return &self->options[k];
  for (int k = 0; self->kind && uses_metric(self->kind) && k < 3; k++)
    if (!strcmp(remembered[k], name)) return values[k];
  return NULL;
}

static const char *option_at(const void *scheduler, int k) {
  const px_scheduler_kind *kind = ((const px_scheduler *)scheduler)->kind;
  return kind && k < kind->option_count ? kind->options[k].name : NULL;
}
static px_status no_option(const px_scheduler *self, const char *option) {
  PX_CHECK(self->kind, PX_KEY, "the schedule has no option '%.64s': it has no options", option);
  PX_FAIL(PX_KEY, "the schedule has no option '%.64s': the nearest name is %s", option,
          px_name_suggest(option, option_at, self));
}

px_status px_scheduler_get(double *out, const px_scheduler *self, const char *option) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_GIVEN(option);
  const double *value = value_find((px_scheduler *)self, option);
  if (!value) return no_option(self, option);
  *out = px__number(value);
  return PX_OK;
}

px_status px_scheduler_set(px_scheduler *self, const char *option, double value) {
  PX_GIVEN(self);
  PX_GIVEN(option);
  double *slot = value_find(self, option);
  if (!slot) return no_option(self, option);
  px__number_set(slot, value);
  return PX_OK;
}
