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
} px__slot;

typedef struct px__group {
  px__slot *slots;
  int64_t count;
  double options[PX__OPTION_LIMIT];  // in the order of the kind's table
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

extern const px_optimizer_kind px__optimizer_kinds[];
extern const int px__optimizer_kind_count;
