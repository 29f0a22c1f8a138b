// SPDX-License-Identifier: Apache-2.0
// Functions of the schedule formulas (optim/schedules.optim): milestones, warm restarts, one cycle,
// cyclic rates, SWA; and the metric of ReduceLROnPlateau.
#include <math.h>

#include "optim/optim_impl.h"

double px__milestones_hit(const px_schedule_point *at) {
  int hits = 0;
  for (int i = 0; i < at->milestone_count; i++) hits += (double)at->milestones[i] == at->epoch;
  return hits;
}

double px__milestones_passed(const px_schedule_point *at) {
  int passed = 0;
  for (int i = 0; i < at->milestone_count; i++) passed += (double)at->milestones[i] <= at->epoch;
  return passed;
}

double px__restarts(const px_schedule_point *at, double period, double times) {
  double epoch = times == 1 ? fmod(at->epoch, period) : at->epoch;
  while (epoch >= period) {
    epoch -= period;
    period *= times;
  }
  return M_PI * epoch / period;
}

// ---- one cycle (Smith and Topin 2018)

enum {
  CYCLE_MAX,
  CYCLE_TOTAL,
  CYCLE_EPOCHS,
  CYCLE_PER_EPOCH,
  CYCLE_UP,
  CYCLE_LINEAR,
  CYCLE_MOMENTUM,
  CYCLE_LOW,
  CYCLE_HIGH,
  CYCLE_DIV,
  CYCLE_FINAL_DIV,
  CYCLE_THREE
};

px_status px__one_cycle_prepare(double *o) {
  double up = o[CYCLE_UP];
  if (isnan(o[CYCLE_TOTAL])) {
    PX_CHECK(!isnan(o[CYCLE_EPOCHS]) && !isnan(o[CYCLE_PER_EPOCH]), PX_VALUE,
             "You must define either total_steps OR (epochs AND steps_per_epoch)");
    PX_CHECK(o[CYCLE_EPOCHS] > 0, PX_VALUE, "Expected positive integer epochs, but got %g",
             o[CYCLE_EPOCHS]);
    PX_CHECK(o[CYCLE_PER_EPOCH] > 0, PX_VALUE,
             "Expected positive integer steps_per_epoch, but got %g", o[CYCLE_PER_EPOCH]);
    o[CYCLE_TOTAL] = o[CYCLE_EPOCHS] * o[CYCLE_PER_EPOCH];
  }
  PX_CHECK(o[CYCLE_TOTAL] > 0, PX_VALUE, "Expected positive integer total_steps, but got %g",
           o[CYCLE_TOTAL]);
  PX_CHECK(up >= 0 && up <= 1, PX_VALUE, "Expected float between 0 and 1 pct_start, but got %g",
           up);
  PX_CHECK(!isnan(o[CYCLE_MAX]), PX_VALUE, "OneCycleLR requires max_lr");
  return PX_OK;
}

static double anneal(const double *o, double from, double to, double part) {
  if (o[CYCLE_LINEAR] != 0) return (to - from) * part + from;
  return to + (from - to) / 2.0 * (1 + cos(M_PI * part));
}

// Interpolates at an epoch between the values at the ends of the phases.
static double along(const px_schedule_point *at, const double *corners) {
  const double *o = at->options;
  double peak = o[CYCLE_UP] * o[CYCLE_TOTAL] - 1, last = o[CYCLE_TOTAL] - 1, start = 0;
  bool three = o[CYCLE_THREE] != 0;
  double ends[] = {peak, three ? 2 * o[CYCLE_UP] * o[CYCLE_TOTAL] - 2 : last, last};
  int phase = 0, final = three ? 2 : 1;
  for (; phase < final && at->epoch > ends[phase]; phase++) start = ends[phase];
  double part = (at->epoch - start) / (ends[phase] - start);
  return anneal(o, corners[phase], corners[phase + 1],
                fmin(part, 1));  // the last step may overshoot
}

double px__one_cycle_rate(const px_schedule_point *at) {
  const double *o = at->options;
  if (isnan(at->base)) return at->lr;
  double first = at->base, max = first * o[CYCLE_DIV], min = first / o[CYCLE_FINAL_DIV];
  bool three = o[CYCLE_THREE] != 0;
  return along(at, (double[]){first, max, three ? first : min, min});
}

px_status px__one_cycle_momentum(double *out, const px_schedule_point *at) {
  const double *o = at->options;
  double low = o[CYCLE_LOW], high = o[CYCLE_HIGH];
  PX_CHECK(at->epoch <= o[CYCLE_TOTAL], PX_VALUE,
           "Tried to step %.0f times. The specified number of total steps is %.0f", at->epoch,
           o[CYCLE_TOTAL]);
  if (o[CYCLE_MOMENTUM] != 0) *out = along(at, (double[]){high, low, high, high});
  return PX_OK;
}

double px__one_cycle_first(const double *o) { return o[CYCLE_MAX] / o[CYCLE_DIV]; }

// ---- cyclic rates (Smith 2017)

enum {
  CYCLIC_MIN,
  CYCLIC_MAX,
  CYCLIC_UP,
  CYCLIC_DOWN,
  CYCLIC_MODE,
  CYCLIC_GAMMA,
  CYCLIC_SCALE,
  CYCLIC_BY_STEPS,
  CYCLIC_MOMENTUM,
  CYCLIC_LOW,
  CYCLIC_HIGH
};

// Position between the minimum and maximum rate, scaled. CYCLIC_SCALE is NAN, or the value of a
// user-defined function at this epoch.
static double cyclic_height(const px_schedule_point *at) {
  const double *o = at->options;
  double up = o[CYCLIC_UP], total = up + (isnan(o[CYCLIC_DOWN]) ? up : o[CYCLIC_DOWN]);
  double ratio = up / total, cycle = floor(1 + at->epoch / total);
  double x = 1 + at->epoch / total - cycle;
  double height = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
  if (!isnan(o[CYCLIC_SCALE])) return height * o[CYCLIC_SCALE];
  if (o[CYCLIC_MODE] == 0) return height;
  return height * (o[CYCLIC_MODE] == 1 ? pow(0.5, cycle - 1) : pow(o[CYCLIC_GAMMA], at->epoch));
}

double px__cyclic_rate(const px_schedule_point *at) {
  const double *o = at->options;
  if (isnan(at->base)) return at->lr;
  return o[CYCLIC_MIN] + (o[CYCLIC_MAX] - o[CYCLIC_MIN]) * cyclic_height(at);
}

px_status px__cyclic_momentum(double *out, const px_schedule_point *at) {
  const double *o = at->options;
  if (o[CYCLIC_MOMENTUM] != 0)
    *out = o[CYCLIC_HIGH] - (o[CYCLIC_HIGH] - o[CYCLIC_LOW]) * cyclic_height(at);
  return PX_OK;
}

// ---- annealing to the rate of weight averaging (SWA)

enum { SWA_RATE, SWA_EPOCHS, SWA_LINEAR };

// Completed fraction of the annealing after a number of steps, 0 to 1.
static double swa_part(const double *o, double step) {
  double t = fmax(0, fmin(1, step / fmax(1, o[SWA_EPOCHS])));
  return o[SWA_LINEAR] != 0 ? t : (1 - cos(M_PI * t)) / 2;
}

double px__swa_rate(const px_schedule_point *at) {
  const double *o = at->options;
  double last = o[SWA_RATE], step = o[SWA_EPOCHS] == 0 ? fmax(1, at->step) : at->step;
  double before = swa_part(o, step - 1), now = swa_part(o, step);
  double first = before == 1 ? last : (at->lr - before * last) / (1 - before);
  return last * now + first * (1 - now);
}

// ---- reduction on plateaus of a metric

enum {
  PLATEAU_MODE,
  PLATEAU_FACTOR,
  PLATEAU_PATIENCE,
  PLATEAU_THRESHOLD,
  PLATEAU_ABSOLUTE,
  PLATEAU_COOLDOWN,
  PLATEAU_MIN,
  PLATEAU_EPS
};

static bool is_better(const px_plateau *self, const double *o, double metric) {
  bool maximize = o[PLATEAU_MODE] != 0, absolute = o[PLATEAU_ABSOLUTE] != 0;
  double by = maximize ? o[PLATEAU_THRESHOLD] : -o[PLATEAU_THRESHOLD];
  double bound = absolute ? self->best + by : self->best * (1 + by);
  return maximize ? metric > bound : metric < bound;
}

bool px_plateau_step(px_plateau *self, const double *options, double metric) {
  if (is_better(self, options, metric))
    self->best = metric, self->bad_epochs = 0;
  else
    self->bad_epochs++;
  if (self->cooling > 0) self->cooling--, self->bad_epochs = 0;
  if (self->bad_epochs <= options[PLATEAU_PATIENCE]) return false;
  self->cooling = options[PLATEAU_COOLDOWN], self->bad_epochs = 0;
  return true;
}

double px_plateau_rate(const double *options, double lr) {
  double next = fmax(lr * options[PLATEAU_FACTOR], options[PLATEAU_MIN]);
  return lr - next > options[PLATEAU_EPS] ? next : lr;
}
