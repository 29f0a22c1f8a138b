// SPDX-License-Identifier: Apache-2.0
// Learning rate schedules: their kinds, and the rates of an optimizer at an epoch. The kinds'
// formulas are in optim/schedules.optim.
#include <math.h>
#include <string.h>

#include "optim/optim_impl.h"

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

px_status px_scheduler_kind_rate(double *lr, double *momentum, const px_scheduler_kind *kind,
                                 const px_schedule_point *at, bool closed) {
  PX_GIVEN(lr);
  PX_GIVEN(momentum);
  PX_GIVEN(kind);
  PX_GIVEN(at);
  PX_GIVEN(at->options);
  PX_GIVEN_N(at->milestones, at->milestone_count);
  PX_CHECK(kind->next || kind->at, PX_TYPE,
           "%s.step() missing 1 required positional argument: 'metrics'", kind->name);
  *momentum = NAN;
  if (kind->momentum) PX_TRY(kind->momentum(momentum, at));
  *lr = kind->at && (closed || !kind->next) ? kind->at(at) : kind->next(at);
  return PX_OK;
}

double px_scheduler_kind_first(const px_scheduler_kind *kind, const double *options) {
  return kind->first ? kind->first(options) : NAN;
}

// ---- rates of an optimizer

// Name of the optimizer's momentum option, or NULL.
static const char *momentum_of(const px_optimizer *self) {
  static const char *const names[] = {"beta1", "momentum"};
  int count;
  const px_option *options = px_optimizer_kind_options(px_optimizer_kind_of(self), &count);
  for (int i = 0; i < count; i++)
    for (int k = 0; k < 2; k++)
      if (!strcmp(options[i].name, names[k])) return names[k];
  return NULL;
}

static px_status set_group(px_optimizer *self, int group, const px_scheduler_kind *kind,
                           px_schedule_point *at) {
  double lr, momentum, first = px_scheduler_kind_first(kind, at->options);
  PX_TRY(px_optimizer_get(&at->lr, self, group, "lr"));
  at->base = isnan(first) ? px_optimizer_initial_lr(self, group) : first;
  if (isnan(at->base)) at->base = at->lr;
  PX_TRY(px_scheduler_kind_rate(&lr, &momentum, kind, at, true));
  PX_CHECK(isnan(momentum) || momentum_of(self), PX_VALUE,
           "optimizer must support momentum or beta1 with `cycle_momentum` option enabled");
  if (!isnan(momentum)) PX_TRY(px_optimizer_set(self, group, momentum_of(self), momentum));
  PX_TRY(px_optimizer_set_initial_lr(self, group, at->base));
  return px_optimizer_set(self, group, "lr", lr);
}

static px_status check_kind(const px_schedule *schedule) {
  const char *missed = schedule->kind ? NULL : px_name_missed(px__scheduler_kinds);
  PX_CHECK(!missed, PX_ATTRIBUTE, "there is no schedule '%s': the nearest name is %s", missed,
           px_name_suggest(missed, kind_name_at, NULL));
  PX_GIVEN(schedule->kind);
  return PX_OK;
}

px_status px_optimizer_schedule(px_optimizer *self, const px_schedule *schedule, int64_t epoch) {
  PX_GIVEN(self);
  PX_GIVEN(schedule);
  PX_TRY(check_kind(schedule));
  double options[PX__SCHEDULE_LIMIT];
  for (int k = 0; k < schedule->kind->option_count; k++) {
    bool given = schedule->options && !isnan(schedule->options[k]);
    options[k] = given ? schedule->options[k] : schedule->kind->options[k].fallback;
  }
  PX_TRY(schedule->kind->check(options));
  px_schedule_point at = {.options = options,
                          .milestones = schedule->milestones,
                          .milestone_count = schedule->milestone_count,
                          .epoch = (double)epoch,
                          .step = (double)epoch,
                          .initial = epoch == 0};
  for (int g = 0; g < px_optimizer_groups(self); g++)
    PX_TRY(set_group(self, g, schedule->kind, &at));
  return PX_OK;
}
