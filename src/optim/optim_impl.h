// SPDX-License-Identifier: Apache-2.0
// The inside of an optimiser, for the files of this folder.
#pragma once
#include "phlox/optim.h"

enum { PX__OPTION_LIMIT = 14, PX__NUMBER_LIMIT = 16 };

typedef struct px__group {
  px_tensor **parameters, **states;  // states[i * PX_OPTIMIZER_STATES + k]: the kind's k-th
  int64_t count;
  double options[PX__OPTION_LIMIT];  // in the order of the kind's table
  double initial_lr;                 // NAN: no schedule has been made
  px_tensor *rate;                   // in the place of option lr; NULL: none
} px__group;

// What is remembered of a parameter: a tensor like it, or a number, which is a 0-dim float32 tensor
// on the CPU.
typedef struct px__state_row {
  const char *name;
  bool scalar;
} px__state_row;

// Where the arguments begin of the ops that make a step, and of the one that makes its numbers: so
// the generator writes their schemas, for all optimisers.
enum { PX__PARAMETER, PX__GRADIENT, PX__STATES };
enum { PX__RATE, PX__FOUND_INF, PX__SCALARS, PX__EACH, PX__OPTIONS };

// A row of the table that the generator writes from optim/*.optim.
struct px_optimizer_kind {
  // The ops make the step of a parameter in one kernel, by numbers that the host has, or by a line
  // of those that the third op has made on the device.
  const char *name, *op, *op_by, *numbers_op;
  const px_option *options;
  int option_count, rate, capturable;  // the places of these options; -1: there is none
  const px__state_row *states;
  int state_count, number_count;
  // Whether option k may have its value; -1: whether all may, and go together.
  px_status (*check)(const double *options, int k);
  // Whether state k is kept with these options; *value, which is 0, becomes what it begins with.
  bool (*begin)(const double *options, int k, double *value);
  // The numbers that the op takes; moves the scalars on. `first` 1: a state begins with this step.
  px_status (*numbers)(const double *options, double *scalars, double first, double *numbers);
};
extern const px_optimizer_kind px__optimizer_kinds[];
extern const int px__optimizer_kind_count;

// ---- steps

// stepping.c. A parameter that makes a step. The states that it begins are the step's until it is
// done.
typedef struct px__stepping {
  px_tensor *parameter, **state, *begun[PX_OPTIMIZER_STATES];
  bool kept[PX_OPTIMIZER_STATES];
  double first;  // 1: a tensor state begins
} px__stepping;
// Its k-th state, old or begun.
static inline px_tensor *px__stepping_state(const px__stepping *s, int k) {
  return s->state[k] ? s->state[k] : s->begun[k];
}
// Begins a state that is a tensor like the parameter.
px_status px__stepping_begin(px__stepping *s, int k, double value)
    __attribute__((warn_unused_result));
// What was begun becomes the state's, or goes.
void px__stepping_end(px__stepping *s, bool done);

// on_device.c. Parameters of one device, whose numbers are made there together: of as many as one
// launch takes. Each is added; the rest takes its step at the end.
enum { PX__LOT = 9 };
typedef struct px__lot {
  const px_optimizer_kind *kind;
  const px_step_options *manner;
  double options[PX__OPTION_LIMIT];  // lr is NAN where a tensor has it
  px__stepping members[PX__LOT];
  int count, scalars;
  bool takes;   // the parameters that are on a device; the others step by the host's numbers
  bool strict;  // all that counts has to be on a device already: the option "capturable"
} px__lot;
void px__lot_begin(px__lot *lot, const px_optimizer_kind *kind, const double *options,
                   const px_step_options *manner);
px_status px__lot_add(px__lot *lot, px_tensor *parameter, px_tensor **state)
    __attribute__((warn_unused_result));
px_status px__lot_end(px__lot *lot) __attribute__((warn_unused_result));
void px__lot_drop(px__lot *lot);  // in the place of the end, where something has failed
// Of a strict lot: fails where a parameter of the device, or what counts its steps, is elsewhere.
px_status px__lot_check(const px__lot *lot, px_device device, px_tensor **state)
    __attribute__((warn_unused_result));

// Fails where one of them is NULL.
static inline __attribute__((warn_unused_result)) px_status px__parameters_given(
    px_tensor *const *parameters, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    PX_CHECK(parameters[i], PX_TYPE, "parameter %lld is missing", (long long)i);
  return PX_OK;
}

// A number as Python prints it, in room for it: "-1.0".
char *px__number_text(double value, char *room, size_t bytes);
#define PX__NUMBER_TEXT(value) px__number_text((value), (char[40]){0}, 40)

#define PX__WHOLE_TEXT(value) px__whole_text((value), (char[40]){0}, 40)
char *px__whole_text(double value, char *room, size_t bytes);  // "-1"

// ---- schedules

enum { PX__SCHEDULE_LIMIT = 14 };

struct px_scheduler {
  px_object head;
  const px_scheduler_kind *kind;  // NULL: custom
  px_optimizer *optimizer;
  int64_t epoch;
  double options[PX__SCHEDULE_LIMIT];  // in the order of the kind's table
  int64_t *milestones;                 // in order
  int milestone_count;
  double *base;  // one for each group that was there at the start
  double *room;  // likewise
  int groups;
  px_rates rates;
  void *context;
  px_plateau plateau;  // of ReduceLROnPlateau
};

// A row of the table that the generator writes from optim/*.optim. Without `next` and `at` it goes
// by a metric.
struct px_scheduler_kind {
  const char *name;
  const px_option *options;
  int option_count;
  // Whether the options make a schedule; fills in those that follow from others.
  px_status (*check)(double *options);
  // The rate after at->lr, and the rate at any epoch; NULL: there is only the other form.
  double (*next)(const px_schedule_point *at);
  double (*at)(const px_schedule_point *at);
  // The momentum that goes along with the rate; NULL: none does.
  px_status (*momentum)(double *out, const px_schedule_point *at);
  double (*first)(const double *options);  // the rate that it begins with; NULL: the group's
};
extern const px_scheduler_kind px__scheduler_kinds[];
extern const int px__scheduler_kind_count;

// What formulas call: how often the epoch is a milestone, how many are behind; the angle of a
// cosine that starts again after `period` epochs, then after `times` as many.
double px__hits(const px_schedule_point *at);
double px__passed(const px_schedule_point *at);
double px__restarts(const px_schedule_point *at, double period, double times);
px_status px__one_cycle_prepare(double *options);
double px__one_cycle_rate(const px_schedule_point *at);
px_status px__one_cycle_momentum(double *out, const px_schedule_point *at);
double px__one_cycle_first(const double *options);  // the rate that it begins with
double px__cyclic_rate(const px_schedule_point *at);
px_status px__cyclic_momentum(double *out, const px_schedule_point *at);
double px__swa_rate(const px_schedule_point *at);
void px__plateau_begin(px_plateau *self, const double *options);
