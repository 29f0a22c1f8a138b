// SPDX-License-Identifier: Apache-2.0
// Optimizer updates with generated loops: one pass over memory, shared by the threads.
#pragma once
#include "cpu/convert/dense.h"

enum { PX__UPDATE_TENSORS = 5, PX__NUMBERS_OPTIONS = 14 };
typedef struct px__update {
  // The gradient, then the tensors to update: parameter and states. NULL: absent.
  void *at[PX__UPDATE_TENSORS];
  double numbers[PX_NUMBERS];
  // Device-resident numbers: their line, and the scalars, which are advanced too. NULL: none.
  const double *line;
  float *scalars[PX_NUMBERS_SCALARS];
} px__update;
// Updates the elements from `begin` to `end`.
typedef void (*px__update_rows)(const px__update *u, int64_t begin, int64_t end);
// Opens the `count` tensors, updates all elements, in float by rows[0] or in double by rows[1], and
// closes the operands. fp16 and bf16 are converted to float and back, a block at a time.
px_status px__cpu_update(px__dense *d, px__update *u, const px__update_rows *rows,
                         const px_operand *const *tensors, int count);

// Inputs for the numbers of a step. `rate_at`: index of the option replaced by a tensor-valued
// learning rate. `each`: scalars per parameter.
typedef struct px__step_inputs {
  int each, rate_at;
  double first, options[PX__NUMBERS_OPTIONS];
} px__step_inputs;
typedef void (*px__numbers_of)(const double *options, double *scalars, double first,
                               double *numbers);
px_status px__cpu_numbers(const px_launch *l, px__step_inputs *p, px__numbers_of make,
                          const px_operand *out, const px_operand *rate, const px_operand *found,
                          const px_operand *scalars);
