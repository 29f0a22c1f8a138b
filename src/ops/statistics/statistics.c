// SPDX-License-Identifier: Apache-2.0
// Run functions of statistics that check results before the computation, or read values: weights
// and degrees of freedom of cov. The others are formulas of ops/statistics.op.
#include "formulas.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/statistics.h"
#include "phlox/ops/view.h"
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
PX_RUN(nanmedian) {
  const px_tensor *self = args->self;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  if (self->numel == 0) return px__nan_scalar(&call->results[0], self);
  PX_TRY(px_reshape(&flat, self, &self->numel, 1));
  return px_nanmedian_dim(&call->results[0], &indices, flat, 0, false);
}
PX_RUN(mode) {
  px_tensor *self = args->self;
  const px_value of[] = {PX_T(self), PX_I(args->dim), PX_B(args->keepdim)};
  if (self->ndim) PX_TRY(px__call_check_outs(call, (px_dtype[]){(px_dtype)self->dtype, PX_INT64}));
  PX_TRY(px__formula_modes(call->results, of));
  return px__resize_reduced(call, self, args->dim, args->keepdim);  // out= may alias self
}
PX_RUN(sorted_along) { return px__sorted_values(&call->results[0], args->self, args->dim); }

// ---- covariance

static px_status check_weights(const px_tensor *weights, const char *name, int64_t observations) {
  PX_SCOPED(px_tensor) clamped = NULL;
  px_scalar value;
  if (!weights) return PX_OK;
  PX_CHECK(weights->numel == observations, PX_RUNTIME,
           "cov(): expected %s to have the same numel as there are observations in the input but "
           "got %lld != %lld",
           name, (long long)weights->numel, (long long)observations);
  if (!observations || px__is_meta(weights)) return PX_OK;
  PX_TRY(px_amin(&clamped, weights, NULL, 0, false));
  PX_TRY(px_tensor_item(&value, clamped));
  PX_CHECK(px_scalar_float(value) >= 0, PX_RUNTIME, "cov(): %s cannot be negative", name);
  return PX_OK;
}
// The product of the given weights; NULL if there are none.
static px_status joint_weights(px_tensor **out, px_tensor *times, px_tensor *weights) {
  if (times && weights) return px_mul(out, times, weights);
  *out = times || weights ? px_retain(times ? times : weights) : NULL;
  return PX_OK;
}
static px_status warn_of_degrees(const px_tensor *remaining) {
  px_scalar value;
  if (px__is_meta(remaining)) return PX_OK;
  PX_TRY(px_tensor_item(&value, remaining));
  if (px_scalar_float(value) > 0) return PX_OK;
  return px_warn(PX_WARN_USER,
                 "cov(): degrees of freedom is <= 0. Correction should be strictly less than "
                 "the number of observations.");
}
// The divisor of the products, at least 0.
static px_status degrees(px_tensor **out, const px_tensor *total, const px_tensor *joint,
                         const px_tensor *weights, int64_t correction) {
  PX_SCOPED(px_tensor) remaining = NULL;
  PX_SCOPED(px_tensor) none = NULL;
  PX_TRY(px__formula_degrees_of_freedom(
      &remaining, (px_value[]){PX_T(total), PX_T(joint), PX_T(weights), PX_I(correction)}));
  PX_TRY(warn_of_degrees(remaining));
  PX_TRY(px_tensor_from_scalar(&none, px_int(0)));
  return px_clamp_min(out, remaining, none);
}
static px_status total_of(px_tensor **out, const px_tensor *joint, const px_tensor *like,
                          int64_t observations) {
  px_scalar value;
  if (!joint)
    return px_full(out, NULL, 0, px_int(observations), px_dtype_to_real((px_dtype)like->dtype),
                   px__tensor_device(like), false, false);
  PX_TRY(px_sum(out, joint, NULL, 0, false, PX_DTYPE_NONE));
  if (px__is_meta(joint)) return PX_OK;
  PX_TRY(px_tensor_item(&value, *out));
  PX_CHECK(px_scalar_float(value) != 0, PX_RUNTIME,
           "cov(): weights sum to zero, can't be normalized");
  return PX_OK;
}
// A 1-D or 2-D tensor as rows of floating-point observations.
static px_status rows_of(px_tensor **out, const px_tensor *t) {
  PX_SCOPED(px_tensor) rows = NULL;
  px_dtype dtype = (px_dtype)t->dtype;
  PX_TRY(px_atleast_2d(&rows, t));
  return px_to(out, rows, px_dtype_is_differentiable(dtype) ? dtype : px_dtype_default(),
               PX_DEVICE_NONE, false, false);
}
PX_RUN(cov) {
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) joint = NULL;
  PX_SCOPED(px_tensor) cast = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  PX_SCOPED(px_tensor) divisor = NULL;
  PX_TRY(rows_of(&rows, args->self));
  PX_TRY(check_weights(args->fweights, "fweights", rows->sizes[1]));
  PX_TRY(check_weights(args->aweights, "aweights", rows->sizes[1]));
  PX_TRY(joint_weights(&joint, args->fweights, args->aweights));
  px_dtype real = px_dtype_to_real((px_dtype)rows->dtype);
  if (args->aweights && !px_dtype_is_complex((px_dtype)rows->dtype)) {
    PX_SCOPED(px_tensor) narrow = PX_MOVE(rows);
    PX_TRY(px_dtype_promote_or_fail(&real, real, (px_dtype)args->aweights->dtype));
    PX_TRY(px_to(&rows, narrow, real, PX_DEVICE_NONE, false, false));
  }
  if (joint) PX_TRY(px_to(&cast, joint, real, PX_DEVICE_NONE, false, false));
  PX_TRY(total_of(&total, cast, rows, rows->sizes[1]));
  PX_TRY(degrees(&divisor, total, cast, args->aweights, args->correction));
  const px_value of[] = {PX_T(rows), PX_T(cast), PX_T(total), PX_T(divisor)};
  return px__formula_covariance(call->results, of);
}
