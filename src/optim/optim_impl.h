// SPDX-License-Identifier: Apache-2.0
// The inside of an optimiser, for the files of this folder.
#pragma once
#include "phlox/optim.h"

enum { PX__OPTION_LIMIT = 12, PX__STATE_LIMIT = 3 };

// One parameter and what its optimiser remembers of it.
typedef struct px__slot {
  px_tensor *parameter;
  px_tensor *state[PX__STATE_LIMIT];
  int64_t steps;
  px_tensor *count;  // the steps as a program sees and may change them; NULL: nobody has asked
} px__slot;

typedef struct px__group {
  px__slot *slots;
  int64_t count;
  double options[PX__OPTION_LIMIT];  // in the order of the kind's table
  double initial_lr;                 // NAN: no schedule has been made
} px__group;

struct px_optimizer_kind {
  const char *name;
  const px_option *options;
  int option_count;
  const char *state[PX__STATE_LIMIT + 1];
  // Updates one parameter from its gradient, which it has; slot->steps counts this step already.
  px_status (*update)(px__slot *slot, const double *options);
  px_status (*check)(const double *options);  // whether they go together; NULL: always
};

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
  double best, bad_epochs, cooling;  // of ReduceLROnPlateau
};

struct px_scheduler_kind {
  const char *name;
  const px_option *options;
  int option_count;
  // Whether the options make a schedule; may fill in those that follow from others, and the base.
  px_status (*check)(px_scheduler *self);
  // The rate after `lr`, at self->epoch; NULL: there is only the other form.
  double (*next)(const px_scheduler *self, int group, double lr);
  // The rate at any epoch; NULL: there is none.
  double (*at)(const px_scheduler *self, int group, double epoch);
  // What goes along with the rate; NULL: nothing.
  px_status (*beside)(px_scheduler *self, double epoch);
};
extern const px_scheduler_kind px__scheduler_kinds[];
extern const int px__scheduler_kind_count;

extern const px_optimizer_kind px__optimizer_kinds[];
extern const int px__optimizer_kind_count;
