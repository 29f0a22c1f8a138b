// SPDX-License-Identifier: Apache-2.0
// The kinds of schedule: one row each. `next` follows PyTorch's chained form, step by step, so that
// the numbers are the same to the last digit; `at` is the closed form of scheduler.step(epoch).
#include <math.h>
#include <string.h>

#include "optim/optim_impl.h"

static px_status positive(double value, const char *name) {
  PX_CHECK(value > 0 && value == floor(value), PX_VALUE,
           "the period %s of a schedule is a positive whole number, but got %g", name, value);
  return PX_OK;
}

// ---- steps

enum { STEP_SIZE, STEP_GAMMA };
static const px_option step_options[] = {{"step_size", NAN, 'i'}, {"gamma", 0.1, 'f'}};
static px_status step_check(px_scheduler *self) {
  return positive(self->options[STEP_SIZE], "step_size");
}
static double step_next(const px_scheduler *self, int group, double lr) {
  bool stays = self->epoch == 0 || self->epoch % (int64_t)self->options[STEP_SIZE] != 0;
  return stays ? lr : lr * self->options[STEP_GAMMA];
}
static double step_at(const px_scheduler *self, int group, double epoch) {
  return self->base[group] *
         pow(self->options[STEP_GAMMA], floor(epoch / self->options[STEP_SIZE]));
}

enum { MULTI_MILESTONES, MULTI_GAMMA };
static const px_option multi_options[] = {{"milestones", NAN, 'm'}, {"gamma", 0.1, 'f'}};
static double multi_next(const px_scheduler *self, int group, double lr) {
  int hits = 0;
  for (int i = 0; i < self->milestone_count; i++) hits += self->milestones[i] == self->epoch;
  return hits ? lr * pow(self->options[MULTI_GAMMA], hits) : lr;
}
static double multi_at(const px_scheduler *self, int group, double epoch) {
  int passed = 0;
  for (int i = 0; i < self->milestone_count; i++) passed += (double)self->milestones[i] <= epoch;
  return self->base[group] * pow(self->options[MULTI_GAMMA], passed);
}

static const px_option exponential_options[] = {{"gamma", NAN, 'f'}};
static double exponential_next(const px_scheduler *self, int group, double lr) {
  return self->epoch == 0 ? lr : lr * self->options[0];
}
static double exponential_at(const px_scheduler *self, int group, double epoch) {
  return self->base[group] * pow(self->options[0], epoch);
}

// ---- towards the full rate

enum { CONSTANT_FACTOR, CONSTANT_TOTAL };
static const px_option constant_options[] = {{"factor", 1.0 / 3, 'f'}, {"total_iters", 5, 'i'}};
static px_status constant_check(px_scheduler *self) {
  PX_CHECK(self->options[CONSTANT_FACTOR] >= 0 && self->options[CONSTANT_FACTOR] <= 1, PX_VALUE,
           "Constant multiplicative factor expected to be between 0 and 1.");
  return PX_OK;
}
static double constant_next(const px_scheduler *self, int group, double lr) {
  if (self->epoch == 0) return lr * self->options[CONSTANT_FACTOR];
  bool ends = (double)self->epoch == self->options[CONSTANT_TOTAL];
  return ends ? lr * (1 / self->options[CONSTANT_FACTOR]) : lr;
}
static double constant_at(const px_scheduler *self, int group, double epoch) {
  double factor = self->options[CONSTANT_FACTOR];
  return self->base[group] * (epoch >= self->options[CONSTANT_TOTAL] ? 1 : factor);
}

enum { LINEAR_START, LINEAR_END, LINEAR_TOTAL };
static const px_option linear_options[] = {
    {"start_factor", 1.0 / 3, 'f'}, {"end_factor", 1, 'f'}, {"total_iters", 5, 'i'}};
static px_status linear_check(px_scheduler *self) {
  const double *o = self->options;
  PX_CHECK(o[LINEAR_START] > 0 && o[LINEAR_START] <= 1, PX_VALUE,
           "Starting multiplicative factor expected to be greater than 0 and less or equal to 1.");
  PX_CHECK(o[LINEAR_END] >= 0 && o[LINEAR_END] <= 1, PX_VALUE,
           "Ending multiplicative factor expected to be between 0 and 1.");
  return PX_OK;
}
static double linear_next(const px_scheduler *self, int group, double lr) {
  double start = self->options[LINEAR_START], way = self->options[LINEAR_END] - start;
  double total = self->options[LINEAR_TOTAL], epoch = (double)self->epoch;
  if (self->epoch == 0) return lr * start;
  return epoch > total ? lr : lr * (1.0 + way / (total * start + (epoch - 1) * way));
}
static double linear_at(const px_scheduler *self, int group, double epoch) {
  double start = self->options[LINEAR_START], total = self->options[LINEAR_TOTAL];
  double way = self->options[LINEAR_END] - start;
  return self->base[group] * (start + way * fmin(total, epoch) / total);
}

enum { POLYNOMIAL_TOTAL, POLYNOMIAL_POWER };
static const px_option polynomial_options[] = {{"total_iters", 5, 'i'}, {"power", 1, 'f'}};
static double polynomial_next(const px_scheduler *self, int group, double lr) {
  double total = self->options[POLYNOMIAL_TOTAL], epoch = (double)self->epoch;
  if (self->epoch == 0 || epoch > total) return lr;
  return lr *
         pow((1.0 - epoch / total) / (1.0 - (epoch - 1) / total), self->options[POLYNOMIAL_POWER]);
}
static double polynomial_at(const px_scheduler *self, int group, double epoch) {
  double total = self->options[POLYNOMIAL_TOTAL];
  return self->base[group] * pow(1.0 - fmin(total, epoch) / total, self->options[POLYNOMIAL_POWER]);
}

// ---- cosines (Loshchilov and Hutter 2017, "SGDR")

enum { COSINE_PERIOD, COSINE_LEAST };
static const px_option cosine_options[] = {{"T_max", NAN, 'i'}, {"eta_min", 0, 'f'}};
static px_status cosine_check(px_scheduler *self) {
  return positive(self->options[COSINE_PERIOD], "T_max");
}
// Without restarts, as a recurrence on the rate.
static double cosine_next(const px_scheduler *self, int group, double lr) {
  if (group >= self->groups || self->epoch == 0) return lr;
  double t = (double)self->epoch, least = self->options[COSINE_LEAST];
  double period = self->options[COSINE_PERIOD];
  if ((self->epoch - 1 - (int64_t)period) % (2 * (int64_t)period) == 0)
    return lr + (self->base[group] - least) * (1 - cos(M_PI / period)) / 2;
  return (1 + cos(M_PI * t / period)) / (1 + cos(M_PI * (t - 1) / period)) * (lr - least) + least;
}
static double cosine_at(const px_scheduler *self, int group, double epoch) {
  double least = self->options[COSINE_LEAST], period = self->options[COSINE_PERIOD];
  return least + (self->base[group] - least) * (1 + cos(M_PI * epoch / period)) / 2;
}

enum { RESTART_FIRST, RESTART_TIMES, RESTART_LEAST };
static const px_option restart_options[] = {
    {"T_0", NAN, 'i'}, {"T_mult", 1, 'i'}, {"eta_min", 0, 'f'}};
static px_status restart_check(px_scheduler *self) {
  double first = self->options[RESTART_FIRST], times = self->options[RESTART_TIMES];
  PX_CHECK(first > 0 && first == floor(first), PX_VALUE,
           "Expected positive integer T_0, but got %g", first);
  PX_CHECK(times >= 1 && times == floor(times), PX_VALUE,
           "Expected integer T_mult >= 1, but got %g", times);
  return PX_OK;
}
static double restart_at(const px_scheduler *self, int group, double epoch) {
  double period = self->options[RESTART_FIRST], times = self->options[RESTART_TIMES];
  double least = self->options[RESTART_LEAST];
  if (times == 1) epoch = fmod(epoch, period);
  for (; epoch >= period; period *= times) epoch -= period;
  return least + (self->base[group] - least) * (1 + cos(M_PI * epoch / period)) / 2;
}

// ---- one cycle (Smith and Topin 2018)

enum {
  CYCLE_MOST,
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
static const px_option cycle_options[] = {
    {"max_lr", NAN, 'f'},          {"total_steps", NAN, 'o'},      {"epochs", NAN, 'o'},
    {"steps_per_epoch", NAN, 'o'}, {"pct_start", 0.3, 'f'},        {"anneal_strategy", 0, 'c'},
    {"cycle_momentum", 1, 'b'},    {"base_momentum", 0.85, 'f'},   {"max_momentum", 0.95, 'f'},
    {"div_factor", 25, 'f'},       {"final_div_factor", 1e4, 'f'}, {"three_phase", 0, 'b'}};

// The optimiser's option that turns against the rate; NULL: it has none.
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
static px_status cycle_check(px_scheduler *self) {
  double *o = self->options, up = o[CYCLE_UP];
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
  PX_CHECK(!isnan(o[CYCLE_MOST]), PX_VALUE, "OneCycleLR needs max_lr");
  PX_CHECK(o[CYCLE_MOMENTUM] == 0 || momentum_of(self), PX_VALUE,
           "optimizer must support momentum or beta1 with `cycle_momentum` option enabled");
  for (int g = 0; g < self->groups && self->epoch < 0; g++)
    PX_TRY(px_optimizer_set_initial_lr(self->optimizer, g, o[CYCLE_MOST] / o[CYCLE_DIV]));
  return PX_OK;
}
static double anneal(const px_scheduler *self, double from, double to, double part) {
  if (self->options[CYCLE_LINEAR] != 0) return (to - from) * part + from;
  return to + (from - to) / 2.0 * (1 + cos(M_PI * part));
}
// Where in the cycle an epoch is: values at the ends of the phases, in order.
static double along(const px_scheduler *self, double epoch, const double *corners) {
  const double *o = self->options;
  double turn = o[CYCLE_UP] * o[CYCLE_TOTAL] - 1, last = o[CYCLE_TOTAL] - 1, start = 0;
  bool three = o[CYCLE_THREE] != 0;
  double ends[] = {turn, three ? 2 * o[CYCLE_UP] * o[CYCLE_TOTAL] - 2 : last, last};
  int phase = 0, final = three ? 2 : 1;
  for (; phase < final && epoch > ends[phase]; phase++) start = ends[phase];
  double part = (epoch - start) / (ends[phase] - start);
  return anneal(self, corners[phase], corners[phase + 1], fmin(part, 1));  // it may end one late
}
static double cycle_at(const px_scheduler *self, int group, double epoch) {
  const double *o = self->options;
  double first = self->base[group], most = first * o[CYCLE_DIV], least = first / o[CYCLE_FINAL_DIV];
  bool three = o[CYCLE_THREE] != 0;
  return along(self, epoch, (double[]){first, most, three ? first : least, least});
}
static px_status cycle_beside(px_scheduler *self, double epoch) {
  const double *o = self->options;
  double low = o[CYCLE_LOW], high = o[CYCLE_HIGH];
  PX_CHECK(epoch <= o[CYCLE_TOTAL], PX_VALUE,
           "Tried to step %.0f times. The specified number of total steps is %.0f", epoch,
           o[CYCLE_TOTAL]);
  if (o[CYCLE_MOMENTUM] == 0) return PX_OK;
  double momentum = along(self, epoch, (double[]){high, low, high, high});
  for (int g = 0; g < self->groups; g++)
    PX_TRY(px_optimizer_set(self->optimizer, g, momentum_of(self), momentum));
  return PX_OK;
}

// ---- by a metric

enum {
  PLATEAU_MODE,
  PLATEAU_FACTOR,
  PLATEAU_PATIENCE,
  PLATEAU_THRESHOLD,
  PLATEAU_ABSOLUTE,
  PLATEAU_COOLDOWN,
  PLATEAU_LEAST,
  PLATEAU_EPS
};
static const px_option plateau_options[] = {{"mode", 0, 'c'},           {"factor", 0.1, 'f'},
                                            {"patience", 10, 'i'},      {"threshold", 1e-4, 'f'},
                                            {"threshold_mode", 0, 'c'}, {"cooldown", 0, 'i'},
                                            {"min_lr", 0, 'f'},         {"eps", 1e-8, 'f'}};
static px_status plateau_check(px_scheduler *self) {
  PX_CHECK(self->options[PLATEAU_FACTOR] < 1, PX_VALUE, "Factor should be < 1.0.");
  self->best = self->options[PLATEAU_MODE] != 0 ? -INFINITY : INFINITY;
  self->epoch = 0;
  return PX_OK;
}
static bool is_better(const px_scheduler *self, double metric) {
  const double *o = self->options;
  bool most = o[PLATEAU_MODE] != 0, absolute = o[PLATEAU_ABSOLUTE] != 0;
  double by = most ? o[PLATEAU_THRESHOLD] : -o[PLATEAU_THRESHOLD];
  double bound = absolute ? self->best + by : self->best * (1 + by);
  return most ? metric > bound : metric < bound;
}
px_status px_scheduler_step_metric(px_scheduler *self, double metric) {
  PX_GIVEN(self);
  const double *o = self->options;
  PX_CHECK(self->kind && self->kind->check == plateau_check, PX_TYPE,
           "this schedule does not go by a metric");
  self->epoch++;
  if (is_better(self, metric))
    self->best = metric, self->bad_epochs = 0;
  else
    self->bad_epochs++;
  if (self->cooling > 0) self->cooling--, self->bad_epochs = 0;
  if (self->bad_epochs <= o[PLATEAU_PATIENCE]) return PX_OK;
  self->cooling = o[PLATEAU_COOLDOWN], self->bad_epochs = 0;
  for (int g = 0; g < px_optimizer_groups(self->optimizer); g++) {
    double lr;
    PX_TRY(px_optimizer_get(&lr, self->optimizer, g, "lr"));
    double next = fmax(lr * o[PLATEAU_FACTOR], o[PLATEAU_LEAST]);
    if (lr - next > o[PLATEAU_EPS]) PX_TRY(px_optimizer_set(self->optimizer, g, "lr", next));
  }
  return PX_OK;
}

#define OPTIONS(array) (array), (int)(sizeof(array) / sizeof *(array))
const px_scheduler_kind px__scheduler_kinds[] = {
    {"StepLR", OPTIONS(step_options), step_check, step_next, step_at, NULL},
    {"MultiStepLR", OPTIONS(multi_options), NULL, multi_next, multi_at, NULL},
    {"ConstantLR", OPTIONS(constant_options), constant_check, constant_next, constant_at, NULL},
    {"LinearLR", OPTIONS(linear_options), linear_check, linear_next, linear_at, NULL},
    {"ExponentialLR", OPTIONS(exponential_options), NULL, exponential_next, exponential_at, NULL},
    {"PolynomialLR", OPTIONS(polynomial_options), NULL, polynomial_next, polynomial_at, NULL},
    {"CosineAnnealingLR", OPTIONS(cosine_options), cosine_check, cosine_next, cosine_at, NULL},
    {"CosineAnnealingWarmRestarts", OPTIONS(restart_options), restart_check, NULL, restart_at,
     NULL},
    {"OneCycleLR", OPTIONS(cycle_options), cycle_check, NULL, cycle_at, cycle_beside},
    {"ReduceLROnPlateau", OPTIONS(plateau_options), plateau_check, NULL, NULL, NULL},
};
const int px__scheduler_kind_count = sizeof px__scheduler_kinds / sizeof *px__scheduler_kinds;
