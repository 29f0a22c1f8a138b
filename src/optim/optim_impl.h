// SPDX-License-Identifier: Apache-2.0
// Internal header of optimizers and schedules.
#pragma once
#include <pthread.h>

#include "phlox/optim.h"
#include "phlox/readers.h"

enum { PX__OPTION_LIMIT = 14, PX__NUMBER_LIMIT = 16 };

// Numbers read by some threads while one sets them.
static inline double px__number(const double *from) {
  double value;
  __atomic_load(from, &value, __ATOMIC_RELAXED);
  return value;
}
static inline void px__number_set(double *to, double value) {
  __atomic_store(to, &value, __ATOMIC_RELAXED);
}

// A state of each parameter: a tensor like the parameter, or a number stored as a 0-dim float32
// tensor on the CPU.
typedef struct px__state_row {
  const char *name;
  bool scalar;
} px__state_row;

// Indices of the first arguments of the step ops, and of the op computing a step's numbers. The
// generator writes the schemas in this layout for all optimizers.
enum { PX__PARAMETER, PX__GRADIENT, PX__STATES };
enum { PX__RATE, PX__FOUND_INF, PX__SCALARS, PX__EACH, PX__OPTIONS };

// A row of the generated table (optim/*.optim).
struct px_optimizer_kind {
  // One kernel makes the step of a parameter. `op` takes the step's numbers from the host. `op_by`
  // takes a row of a device tensor computed by `numbers_op`.
  const char *name, *op, *op_by, *numbers_op;
  const px_option *options;
  int option_count, rate, capturable;  // rate, capturable: indices of these options, or -1
  const px__state_row *states;
  int state_count, number_count;
  // Validates option k; -1: all options, and their combination.
  px_status (*check)(const double *options, int k);
  // True if state k exists with these options. *value, initially 0, receives its initial value.
  bool (*begin)(const double *options, int k, double *value);
  // Computes the numbers of a step and updates the scalars. `first` is 1 if a state begins.
  px_status (*numbers)(const double *options, double *scalars, double first, double *numbers);
};
extern const px_optimizer_kind px__optimizer_kinds[];
extern const int px__optimizer_kind_count;

// ---- steps

// stepping.c. A parameter during a step. States created by the step belong to it until it succeeds.
// A complex parameter, its gradient and its states are replaced by views of their parts.
typedef struct px__parts px__parts;
typedef struct px__stepping {
  px_tensor *parameter, *grad;            // grad: owned
  px_tensor **state;                      // the owner's slots; atomic
  px_tensor *found[PX_OPTIMIZER_STATES];  // existing states, and views of created complex ones
  px_tensor *begun[PX_OPTIMIZER_STATES];  // created states; owned
  px__parts *parts;                       // NULL for a real parameter
  bool kept[PX_OPTIMIZER_STATES];
  double first;  // 1: a tensor state is created
} px__stepping;
// Returns t, or a copy if t is a conjugate or negative view.
px_status px__resolved(px_tensor **out, const px_tensor *t) __attribute__((warn_unused_result));
// Requires px__stepping_end, also after a failure.
px_status px__stepping_of(px__stepping *out, const px_optimizer_kind *kind, px_tensor *parameter,
                          px_tensor *grad_take, px_tensor **state)
    __attribute__((warn_unused_result));
// The k-th state, existing or created.
static inline px_tensor *px__stepping_state(const px__stepping *s, int k) {
  return s->found[k] ? s->found[k] : s->begun[k];
}
// Creates a state as a tensor like the parameter.
px_status px__stepping_begin(px__stepping *s, int k, double value)
    __attribute__((warn_unused_result));
// Writes the changed copies of conjugate and negative views back, after the step.
px_status px__stepping_write(const px__stepping *s) __attribute__((warn_unused_result));
// Commits the created states, or releases them. Releases the gradient.
void px__stepping_end(px__stepping *s, bool done);

// on_device.c. A batch of parameters on one device. One launch computes the numbers of all of them.
// px__step_batch_end makes the remaining steps.
enum { PX__STEP_BATCH = 9 };  // maximum number of parameters, or scalars, per batch
typedef struct px__step_batch {
  const px_optimizer_kind *kind;
  const px_step_options *manner;
  double options[PX__OPTION_LIMIT];  // lr is NAN if it is a tensor
  px__stepping members[PX__STEP_BATCH];
  int count, scalars;
  bool on_device;  // handles parameters on devices; others use numbers of the host
  bool strict;     // option "capturable": parameters and step counters must be on a device
} px__step_batch;
void px__step_batch_begin(px__step_batch *batch, const px_optimizer_kind *kind,
                          const double *options, const px_step_options *manner);
px_status px__step_batch_add(px__step_batch *batch, px_tensor *parameter, px_tensor *grad_take,
                             px_tensor **state) __attribute__((warn_unused_result));
px_status px__step_batch_end(px__step_batch *batch) __attribute__((warn_unused_result));
void px__step_batch_drop(px__step_batch *batch);  // instead of px__step_batch_end, after a failure
// Strict batch: fails if a parameter or its step counter is not on a device.
px_status px__step_batch_check(const px__step_batch *batch, px_device device, px_tensor **state)
    __attribute__((warn_unused_result));

// Fails if a parameter is NULL.
static inline __attribute__((warn_unused_result)) px_status px__parameters_given(
    px_tensor *const *parameters, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    PX_CHECK(parameters[i], PX_TYPE, "parameter %lld is missing", (long long)i);
  return PX_OK;
}

// Formats a number as Python prints it, as "-1.0".
char *px__number_text(double value, char *text, size_t bytes);
#define PX__NUMBER_TEXT(value) px__number_text((value), (char[40]){0}, 40)

#define PX__WHOLE_TEXT(value) px__whole_text((value), (char[40]){0}, 40)
char *px__whole_text(double value, char *text, size_t bytes);  // "-1"

// ---- schedules

enum { PX__SCHEDULE_LIMIT = 14 };

// A row of the generated table (optim/*.optim). Without `next` and `at` the schedule depends on a
// metric.
struct px_scheduler_kind {
  const char *name;
  const px_option *options;
  int option_count;
  // Validates the options and fills in derived ones.
  px_status (*check)(double *options);
  // The rate after at->lr, and the rate at any epoch (closed form). Either may be NULL.
  double (*next)(const px_schedule_point *at);
  double (*at)(const px_schedule_point *at);
  // The momentum at a point, or NULL.
  px_status (*momentum)(double *out, const px_schedule_point *at);
  double (*first)(const double *options);  // initial rate; NULL: the group's
};
extern const px_scheduler_kind px__scheduler_kinds[];
extern const int px__scheduler_kind_count;

// Functions of formulas: how often the epoch is a milestone; the number of milestones reached; the
// angle of a cosine restarted after `period` epochs, with the period multiplied by `times` each
// time.
double px__milestones_hit(const px_schedule_point *at);
double px__milestones_passed(const px_schedule_point *at);
double px__restarts(const px_schedule_point *at, double period, double times);
px_status px__one_cycle_prepare(double *options);
double px__one_cycle_rate(const px_schedule_point *at);
px_status px__one_cycle_momentum(double *out, const px_schedule_point *at);
double px__one_cycle_first(const double *options);  // initial rate
double px__cyclic_rate(const px_schedule_point *at);
px_status px__cyclic_momentum(double *out, const px_schedule_point *at);
double px__swa_rate(const px_schedule_point *at);
