// SPDX-License-Identifier: Apache-2.0
// What a backward function of an op works on. The functions themselves are generated from the
// formulas in ops/*.op (build/gen/backward.c), or written by hand in this folder and named there.
#pragma once
#include "phlox/op.h"
#include "phlox/ops.h"
#include "phlox/register.h"

// Tensors of `args` that were not saved are outlines.
typedef px_op_gradient px__backward;
typedef px_status (*px__backward_fn)(px__backward *b);

// Generated: one row an op, by op id; NULL where the op has no formula.
extern const px__backward_fn px__backward_table[];

// A helper named in a formula as @px__grad_x(a, b): gets the values in order, gives a new
// reference.
typedef px_status (*px__formula_fn)(px_tensor **out, const px_value *args, int count);
