// SPDX-License-Identifier: Apache-2.0
// Run functions of statistics, as composites. Indices are computed from a detached tensor, and the
// values are then gathered from the original one to record the gradient.
#include <math.h>
#include <string.h>

#include "hidden/statistics.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/sort.h"
#include "phlox/ops/statistics.h"
#include "phlox/ops/view.h"
#include "run_functions/statistics.h"

static px_status clamp_min(px_tensor **out, const px_tensor *t, int64_t min) {
  PX_SCOPED(px_tensor) bound = NULL;
  PX_TRY(px_tensor_from_scalar(&bound, px_int(min)));
  return px_clamp_min(out, t, bound);
}
static px_status clamp_max(px_tensor **out, const px_tensor *t, int64_t max) {
  PX_SCOPED(px_tensor) bound = NULL;
  PX_TRY(px_tensor_from_scalar(&bound, px_int(max)));
  return px_clamp_max(out, t, bound);
}

// ---- pairs of statistics

PX_RUN(aminmax) {
  int64_t dim = px__given(args->dim) ? args->dim.v.i : 0, n = px__given(args->dim);
  px_tensor *min = call->given[0], *max = call->given[1];
  PX_CHECK(!min || !max || (min != max && !px__overlap(min, max)), PX_VALUE,
           "aminmax(): the `min` and `max` out= tensors must not overlap.");
  PX_TRY(px_amin(&call->results[0], args->self, &dim, n, args->keepdim));
  return px_amax(&call->results[1], args->self, &dim, n, args->keepdim);
}

static px_status pair(px_list **out, const px_tensor *spread, const px_tensor *mean) {
  px_tensor *items[2] = {(px_tensor *)spread, (px_tensor *)mean};
  return px_list_new(out, items, 2);
}
static const int64_t *dims_of(px_value dim) { return px__given(dim) ? dim.v.ints : NULL; }
typedef px_status spread_fn(px_tensor **out, const px_tensor *self, const int64_t *dim,
                            int64_t dim_n, px_scalar correction, bool keepdim);
static px_status with_mean(px_call *call, const px_tensor *self, px_value dim, px_scalar correction,
                           bool keepdim, spread_fn *measure) {
  PX_SCOPED(px_tensor) spread = NULL;
  PX_SCOPED(px_tensor) mean = NULL;
  PX_TRY(measure(&spread, self, dims_of(dim), dim.n, correction, keepdim));
  PX_TRY(px_mean(&mean, self, dims_of(dim), dim.n, keepdim, PX_DTYPE_NONE));
  return pair(&call->list, spread, mean);
}
#define WITH_MEAN(name, measure) \
  PX_RUN(name##_mean) { \
    px_value given = args->correction; \
    px_scalar correction = px__given(given) ? px_value_scalar(given) : px_int(1); \
    return with_mean(call, args->self, args->dim, correction, args->keepdim, measure); \
  } \
  PX_RUN(name##_mean_unbiased) { \
    return with_mean(call, args->self, args->dim, px_int(args->unbiased), args->keepdim, measure); \
  } \
  PX_RUN(name##_mean_all) { \
    return with_mean(call, args->self, PX_NONE(), px_int(args->unbiased), false, measure); \
  }
WITH_MEAN(var, px_var)
WITH_MEAN(std, px_std)

// ---- statistics without NaN

static px_status not_nan(px_tensor **out, const px_tensor *t) {
  PX_SCOPED(px_tensor) nans = NULL;
  PX_TRY(px_isnan(&nans, t));
  return px_logical_not(out, nans);
}
PX_RUN(nanmean) {
  PX_SCOPED(px_tensor) valid = NULL;
  PX_SCOPED(px_tensor) count = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  const int64_t *dims = dims_of(args->dim);
  PX_TRY(not_nan(&valid, args->self));
  PX_TRY(px_sum(&count, valid, dims, args->dim.n, args->keepdim, PX_DTYPE_NONE));
  PX_TRY(px_nansum(&total, args->self, dims, args->dim.n, args->keepdim, args->dtype));
  return px_div(&call->results[0], total, count);
}

// Gathers self at indices along dim (size 1 there), and returns the values and the indices.
static px_status select_at(px_call *call, const px_tensor *self, const px_tensor *indices,
                           int64_t dim, bool keepdim) {
  PX_SCOPED(px_tensor) values = NULL;
  PX_TRY(px_gather(&values, self, dim, indices, false));
  if (keepdim || self->ndim == 0) {
    call->results[0] = PX_MOVE(values), call->results[1] = px_retain((px_tensor *)indices);
    return PX_OK;
  }
  PX_TRY(px_squeeze_dim(&call->results[0], values, &dim, 1));
  return px_squeeze_dim(&call->results[1], indices, &dim, 1);
}
PX_RUN(nanmedian_dim) {
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) sorted = NULL;
  PX_SCOPED(px_tensor) order = NULL;
  PX_SCOPED(px_tensor) valid = NULL;
  PX_SCOPED(px_tensor) count = NULL;
  PX_SCOPED(px_tensor) last = NULL;
  PX_SCOPED(px_tensor) clamped = NULL;
  PX_SCOPED(px_tensor) middle = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  PX_TRY(px__call_check_outs(call, (px_dtype[]){(px_dtype)args->self->dtype, PX_INT64}));
  PX_TRY(px_tensor_detach(&plain, args->self));
  PX_TRY(px_sort(&sorted, &order, plain, args->dim, false, true));
  PX_TRY(not_nan(&valid, plain));
  PX_TRY(px_sum(&count, valid, &args->dim, 1, true, PX_DTYPE_NONE));
  PX_TRY(px_add_scalar(&last, count, px_int(-1), px_int(1)));
  PX_TRY(clamp_min(&clamped, last, 0));
  PX_TRY(px_floor_divide_scalar(&middle, clamped, px_int(2)));
  PX_TRY(px_gather(&indices, order, args->dim, middle, false));
  return select_at(call, args->self, indices, args->dim, args->keepdim);
}
PX_RUN(nanmedian) {
  const px_tensor *self = args->self;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  if (self->numel == 0) return px__nan_scalar(&call->results[0], self);
  PX_TRY(px_reshape(&flat, self, &self->numel, 1));
  return px_nanmedian_dim(&call->results[0], &indices, flat, 0, false);
}

// ---- order

// For each element of a sorted dimension, the index of the start of its run of equal elements.
static px_status run_starts(px_tensor **out, const px_tensor *sorted, const px_tensor *line,
                            int64_t dim) {
  PX_SCOPED(px_tensor) shifted = NULL;
  PX_SCOPED(px_tensor) differs = NULL;
  PX_SCOPED(px_tensor) starts = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  PX_TRY(px_roll(&shifted, sorted, (const int64_t[]){1}, 1, &dim, 1));
  PX_TRY(px_ne(&differs, sorted, shifted));
  PX_TRY(px_mul(&starts, differs, line));
  return px_cummax(out, &where, starts, dim);
}
// The index of the last element of the first longest run of a sorted dimension.
static px_status longest_run(px_tensor **out, const px_tensor *sorted, int64_t dim) {
  PX_SCOPED(px_tensor) line = NULL;
  PX_SCOPED(px_tensor) along = NULL;
  PX_SCOPED(px_tensor) starts = NULL;
  PX_SCOPED(px_tensor) lengths = NULL;
  int at;
  int64_t sizes[PX_MAX_DIMS];
  PX_TRY(px__wrap_dim(&at, dim, sorted->ndim));
  for (int d = 0; d < sorted->ndim; d++) sizes[d] = d == at ? sorted->sizes[d] : 1;
  PX_TRY(px_arange(&line, px_int(0), px_int(sorted->sizes[at]), px_int(1), PX_INT64,
                   px__tensor_device(sorted), false, false));
  PX_TRY(px_reshape(&along, line, sizes, sorted->ndim));
  PX_TRY(run_starts(&starts, sorted, along, at));
  PX_TRY(px_sub(&lengths, along, starts, px_int(1)));
  return px_argmax(out, lengths, &dim, true);
}
PX_RUN(mode) {
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) sorted = NULL;
  PX_SCOPED(px_tensor) order = NULL;
  PX_SCOPED(px_tensor) run_end = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  PX_TRY(px_tensor_detach(&plain, args->self));
  PX_TRY(px_sort(&sorted, &order, plain, args->dim, false, true));
  if (plain->ndim == 0) return select_at(call, args->self, order, args->dim, true);
  PX_TRY(px__call_check_outs(call, (px_dtype[]){(px_dtype)plain->dtype, PX_INT64}));
  PX_TRY(longest_run(&run_end, sorted, args->dim));
  PX_TRY(px_gather(&indices, order, args->dim, run_end, false));
  PX_TRY(select_at(call, args->self, indices, args->dim, args->keepdim));
  return px__resize_reduced(call, plain, args->dim, args->keepdim);  // out= may alias self
}
PX_RUN(msort) { return px__sorted_values(&call->results[0], args->self, 0); }

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
// The divisor of the products: the sum of the weights minus the correction, at least 0.
static px_status degrees(px_tensor **out, const px_tensor *total, const px_tensor *joint,
                         const px_tensor *weights, int64_t correction) {
  PX_SCOPED(px_tensor) squares = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) lost = NULL;
  PX_SCOPED(px_tensor) remaining = NULL;
  if (!weights || !correction) {
    PX_TRY(px_add_scalar(&remaining, total, px_int(px__difference(0, correction)), px_int(1)));
  } else {
    PX_TRY(px_mul(&squares, joint, weights));
    PX_TRY(px_sum(&sum, squares, NULL, 0, false, PX_DTYPE_NONE));
    PX_TRY(px_div(&lost, sum, total));
    PX_TRY(px_sub(&remaining, total, lost, px_int(correction)));
  }
  PX_TRY(warn_of_degrees(remaining));
  return clamp_min(out, remaining, 0);
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
static px_status weighed(px_tensor **out, const px_tensor *rows, const px_tensor *joint) {
  if (joint) return px_mul(out, rows, joint);
  *out = px_retain((px_tensor *)rows);
  return PX_OK;
}
// The rows minus their means.
static px_status centred(px_tensor **out, const px_tensor *rows, const px_tensor *joint,
                         const px_tensor *total) {
  PX_SCOPED(px_tensor) parts = NULL;
  PX_SCOPED(px_tensor) sums = NULL;
  PX_SCOPED(px_tensor) means = NULL;
  PX_TRY(weighed(&parts, rows, joint));
  PX_TRY(px_sum(&sums, parts, (const int64_t[]){1}, 1, true, PX_DTYPE_NONE));
  PX_TRY(px_div(&means, sums, total));
  return px_sub(out, rows, means, px_int(1));
}
static px_status products(px_tensor **out, const px_tensor *rows, const px_tensor *joint,
                          const px_tensor *divisor) {
  PX_SCOPED(px_tensor) parts = NULL;
  PX_SCOPED(px_tensor) adjoint = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_TRY(weighed(&parts, rows, joint));
  PX_TRY(px_adjoint(&adjoint, parts));
  PX_TRY(px_mm(&product, rows, adjoint));
  PX_TRY(px_div(&scaled, product, divisor));
  return px_squeeze(out, scaled);
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
  PX_SCOPED(px_tensor) deviations = NULL;
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
  PX_TRY(centred(&deviations, rows, cast, total));
  return products(&call->results[0], deviations, cast, divisor);
}
// Clamps the real and imaginary parts to [-1, 1].
static px_status within_ones(px_tensor **out, const px_tensor *t) {
  PX_SCOPED(px_tensor) pairs = NULL;
  PX_SCOPED(px_tensor) clamped = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  PX_TRY(px_view_as_real(&pairs, t));
  PX_TRY(clamp_min(&clamped, pairs, -1));
  PX_TRY(clamp_max(&result, clamped, 1));
  return px_view_as_complex(out, result);
}
PX_RUN(corrcoef) {
  PX_SCOPED(px_tensor) c = NULL;
  PX_SCOPED(px_tensor) variances = NULL;
  PX_SCOPED(px_tensor) spread = NULL;
  PX_SCOPED(px_tensor) column = NULL;
  PX_SCOPED(px_tensor) by_rows = NULL;
  PX_SCOPED(px_tensor) correlation = NULL;
  PX_SCOPED(px_tensor) clamped = NULL;
  PX_TRY(px_cov(&c, args->self, 1, NULL, NULL));
  if (c->ndim == 0) return px_div(&call->results[0], c, c);
  PX_TRY(px_diagonal(&variances, c, 0, 0, 1));
  PX_TRY(px_sqrt(&spread, variances));
  PX_TRY(px_unsqueeze(&column, spread, 1));
  PX_TRY(px_div(&by_rows, c, column));
  PX_TRY(px_div(&correlation, by_rows, spread));
  if (px_dtype_is_complex((px_dtype)correlation->dtype))
    return within_ones(&call->results[0], correlation);
  PX_TRY(clamp_min(&clamped, correlation, -1));
  return clamp_max(&call->results[0], clamped, 1);
}

// ---- norms of slices

PX_RUN(renorm) {
  const px_tensor *self = args->self;
  PX_SCOPED(px_tensor) norms = NULL;
  PX_SCOPED(px_tensor) safe = NULL;
  PX_SCOPED(px_tensor) inverse = NULL;
  PX_SCOPED(px_tensor) factors = NULL;
  PX_SCOPED(px_tensor) large = NULL;
  PX_SCOPED(px_tensor) kept = NULL;
  PX_SCOPED(px_tensor) scale = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  int at, n = 0;
  int64_t dims[PX_MAX_DIMS];
  PX_TRY(px__wrap_dim(&at, args->dim, self->ndim));
  for (int d = 0; d < self->ndim; d++)
    if (d != at) dims[n++] = d;
  PX_TRY(px_norm(&norms, self, args->p, dims, n, true, PX_DTYPE_NONE));
  PX_TRY(px_add_scalar(&safe, norms, px_float(1e-7), px_int(1)));
  PX_TRY(px_reciprocal(&inverse, safe));
  PX_TRY(px_mul_scalar(&factors, inverse, args->maxnorm));
  PX_TRY(px_gt_scalar(&large, norms, args->maxnorm));  // not NaN
  PX_TRY(px_logical_not(&kept, large));
  PX_TRY(px_masked_fill(&scale, factors, kept, px_int(1)));
  PX_TRY(px_mul(&scaled, self, scale));
  return px_contiguous(&call->results[0], scaled);
}
