// SPDX-License-Identifier: Apache-2.0
// What a backward function of an op works on. The functions themselves are generated from the
// formulas in ops/*.op (build/gen/backward.c), or written by hand in this folder and named there.
#pragma once
#include "phlox/op.h"
#include "phlox/ops.h"

typedef struct px__backward {
  const px_op *op;
  const px_value *args;  // of the forward call, in schema order; tensors that were not saved are
                         // outlines (no memory)
  px_tensor *const *results;  // saved results, NULL where not saved
  px_tensor *const
      *grads;  // one per result, NULL where no gradient arrived (never NULL if there is one result)
  int grad_count;
  uint32_t needs;          // bit i: the gradient of parameter i is wanted
  px_tensor **out;         // one per parameter: new references, NULL means zero
  px_tensor ***out_lists;  // for a Tensor[] parameter i: out_lists[i][k], args[i].n of them
} px__backward;
typedef px_status (*px__backward_fn)(px__backward *b);

// Generated: one row an op, by op id; NULL where the op has no formula.
extern const px__backward_fn px__backward_table[];

// A helper named in a formula as @px__grad_x(a, b): gets the values in order, gives a new
// reference.
typedef px_status (*px__formula_fn)(px_tensor **out, const px_value *args, int count);
