// SPDX-License-Identifier: Apache-2.0
// The updates of optimisers, whose loops the generator writes: one pass over memory, shared by the
// threads.
#pragma once
#include "cpu/dense.h"

enum { PX__UPDATE_TENSORS = 4, PX__UPDATE_NUMBERS = 16 };
typedef struct px__update {
  void *at[PX__UPDATE_TENSORS];  // what is changed: the parameter, then states; NULL: absent
  const void *grad;
  double numbers[PX__UPDATE_NUMBERS];
} px__update;
// Updates the elements from `begin` to `end`.
typedef void (*px__update_rows)(const px__update *u, int64_t begin, int64_t end);
// Updates all elements, in float by rows[0] or in double by rows[1], and closes the operands.
px_status px__cpu_update(px__dense *d, const px__update *u, const px__update_rows *rows,
                         const px_operand *param);
