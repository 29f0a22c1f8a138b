// SPDX-License-Identifier: Apache-2.0
// Random slopes of rrelu, whose bounds are rounded.

#include "ops/core/run.h"
#include "formulas.h"
#include "phlox/ops/pointwise.h"
#include "run_functions/layer.h"

// The bounds are rounded to the dtype of the slopes.
PX_RUN(rrelu) {
  const px_tensor *x = args->input;
  double lower = args->lower, upper = args->upper;
  if (!args->training) return px_leaky_relu(&call->results[0], x, px_float((lower + upper) / 2));
  if (x->dtype != PX_FLOAT64) lower = (float)lower, upper = (float)upper;
  return px__formula_rrelu_of(call->results, (px_value[]){PX_T(x), PX_F(lower), PX_F(upper)});
}
