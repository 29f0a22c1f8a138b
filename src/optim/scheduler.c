// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules. Each follows PyTorch's chained form, step by step, so that the numbers
// are the same to the last digit.
#include <math.h>

#include "phlox/optim.h"

typedef enum shape { STEP, COSINE } shape;

struct px_scheduler {
  px_object head;
  shape shape;
  px_optimizer *optimizer;
  int64_t period, epoch;
  double factor;  // gamma, or eta_min
  double *base;   // one for each group that was there at the start
  int groups;
};

static void scheduler_destroy(void *object) {
  px_scheduler *self = object;
  px_release(self->optimizer);
  px_free(self->base);
  px_object_end(self);
  px_free(self);
}

static const px_class scheduler_class = {"scheduler", scheduler_destroy};

static px_status scheduler_new(px_scheduler **out, shape kind, px_optimizer *optimizer,
                               int64_t period, double factor) {
  *out = NULL;
  PX_CHECK(period > 0, PX_VALUE, "the period of a schedule is positive, but got %lld",
           (long long)period);
  px_scheduler *made;
  PX_TRY(px_alloc((void **)&made, sizeof *made));
  px_object_init(made, &scheduler_class);
  PX_SCOPED(px_scheduler) self = made;
  self->shape = kind;
  self->optimizer = px_retain(optimizer);
  self->period = period;
  self->factor = factor;
  self->groups = px_optimizer_groups(optimizer);
  PX_TRY(px_alloc((void **)&self->base, (size_t)self->groups * sizeof *self->base));
  for (int g = 0; g < self->groups; g++)
    PX_TRY(px_optimizer_get(&self->base[g], optimizer, g, "lr"));
  *out = PX_MOVE(self);
  return PX_OK;
}

px_status px_scheduler_step_lr(px_scheduler **out, px_optimizer *optimizer, int64_t step_size,
                               double gamma) {
  PX_GIVEN(optimizer);
  return scheduler_new(out, STEP, optimizer, step_size, gamma);
}

px_status px_scheduler_cosine(px_scheduler **out, px_optimizer *optimizer, int64_t t_max,
                              double eta_min) {
  PX_GIVEN(optimizer);
  return scheduler_new(out, COSINE, optimizer, t_max, eta_min);
}

// Loshchilov and Hutter 2017, "SGDR", without restarts, as a recurrence on the rate.
static double cosine(const px_scheduler *self, double base, double lr) {
  double t = (double)self->epoch, period = (double)self->period, least = self->factor;
  if (self->epoch > 0 && (self->epoch - 1 - self->period) % (2 * self->period) == 0)
    return lr + (base - least) * (1 - cos(M_PI / period)) / 2;
  return (1 + cos(M_PI * t / period)) / (1 + cos(M_PI * (t - 1) / period)) * (lr - least) + least;
}

// A group that was added later has no base: as in PyTorch it steps along, and keeps off the cosine.
static double next_rate(const px_scheduler *self, int group, double lr) {
  if (self->shape == COSINE) return group < self->groups ? cosine(self, self->base[group], lr) : lr;
  return self->epoch % self->period == 0 ? lr * self->factor : lr;
}

px_status px_scheduler_step(px_scheduler *self) {
  PX_GIVEN(self);
  self->epoch++;
  for (int g = 0; g < px_optimizer_groups(self->optimizer); g++) {
    double lr;
    PX_TRY(px_optimizer_get(&lr, self->optimizer, g, "lr"));
    PX_TRY(px_optimizer_set(self->optimizer, g, "lr", next_rate(self, g, lr)));
  }
  return PX_OK;
}

double px_scheduler_last_lr(const px_scheduler *self, int group) {
  double lr = NAN;
  return px_optimizer_get(&lr, self->optimizer, group, "lr") == PX_OK ? lr : NAN;
}

int64_t px_scheduler_epoch(const px_scheduler *self) { return self->epoch; }
void px_scheduler_restore(px_scheduler *self, int64_t epoch) { self->epoch = epoch; }
double px_scheduler_base_lr(const px_scheduler *self, int group) {
  return group >= 0 && group < self->groups ? self->base[group] : NAN;
}
