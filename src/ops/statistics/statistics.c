// SPDX-License-Identifier: Apache-2.0
// Run functions of statistics that check results before the computation. The others are formulas of
// ops/statistics.op.
#include "formulas.h"
#include "ops/core/run.h"
#include "run_functions/sort.h"
#include "run_functions/statistics.h"

// Rejects results that overlap.
PX_RUN(aminmax) {
  px_tensor *min = call->given[0], *max = call->given[1];
  PX_CHECK(!min || !max || (min != max && !px__overlap(min, max)), PX_VALUE,
           "aminmax(): the `min` and `max` out= tensors must not overlap.");
  return PX_OK;
}

// ---- order

// Rejects results of another dtype before the computation.
PX_RUN(median_outs) {
  return px__call_check_outs(call, (px_dtype[]){(px_dtype)args->self->dtype, PX_INT64});
}
PX_RUN(mode) {
  px_tensor *self = args->self;
  const px_value of[] = {PX_T(self), PX_I(args->dim), PX_B(args->keepdim)};
  if (self->ndim) PX_TRY(px__call_check_outs(call, (px_dtype[]){(px_dtype)self->dtype, PX_INT64}));
  PX_TRY(px__formula_modes(call->results, of));
  return px__resize_reduced(call, self, args->dim, args->keepdim);  // out= may alias self
}
PX_RUN(sorted_along) { return px__sorted_values(&call->results[0], args->self, args->dim); }
