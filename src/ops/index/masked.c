// SPDX-License-Identifier: Apache-2.0
// torch.masked: fills masked-out elements with the identity of the op, then calls the op of the
// same name.
#include <math.h>

#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/norm.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/special.h"
#include "phlox/ops/statistics.h"
#include "phlox/ops/view.h"
#include "run_functions/masked.h"

static px_status keep(px_tensor **out, const px_tensor *self) {
  *out = px_retain(self);
  return PX_OK;
}

// ---- fills

// Expands the mask to the sizes of a tensor.
static px_status mask_of(px_tensor **out, const px_tensor *mask, const px_tensor *self) {
  PX_CHECK(mask->ndim <= self->ndim, PX_INDEX,
           "_input_mask expected broadcastable mask (got mask dimensionality higher than of the "
           "input)");
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(px_expand(&wide, mask, self->sizes, self->ndim));
  return px__tensor_to(out, wide, PX_BOOL, PX_DEVICE_NONE);
}

static px_status fill(px_tensor **out, const px_tensor *self, const px_tensor *mask,
                      px_scalar number) {
  if (!mask) return keep(out, self);
  PX_SCOPED(px_tensor) kept = NULL;
  PX_SCOPED(px_tensor) masked_out = NULL;
  PX_TRY(mask_of(&kept, mask, self));
  PX_TRY(px_logical_not(&masked_out, kept));
  return px_masked_fill(out, self, masked_out, number);
}

// Minimum or maximum of a dtype, infinite if it has infinities. 0 for complex dtypes, which the
// called op refuses.
static px_scalar limit(px_dtype dtype, bool minimum) {
  int bits = (int)px_dtype_size(dtype) * 8;
  if (px_dtype_is_float(dtype)) return px_float(minimum ? -INFINITY : INFINITY);
  if (px_dtype_is_complex(dtype)) return px_int(0);
  if (dtype == PX_BOOL) return px_bool(!minimum);
  if (px_dtype_is_signed(dtype))
    return px_int(minimum ? INT64_MIN >> (64 - bits) : INT64_MAX >> (64 - bits));
  return px_int(minimum ? 0 : INT64_MAX >> (bits < 64 ? 63 - bits : 0));
}

// The requested dtype, or the tensor's own.
static px_dtype result_dtype(const px_tensor *self, px_dtype asked) {
  return asked == PX_DTYPE_NONE ? self->dtype : asked;
}

// Converts to the requested dtype.
static px_status in_dtype(px_tensor **out, const px_tensor *self, px_dtype dtype) {
  if (dtype == PX_DTYPE_NONE || dtype == self->dtype) return keep(out, self);
  return px_to(out, self, dtype, PX_DEVICE_NONE, false, false);
}
static px_status set_result(px_call *call, const px_tensor *made, px_dtype dtype) {
  return in_dtype(&call->results[0], made, dtype);
}

// ---- dimensions

// Given dimensions; all if none are given. A 0-dim tensor has none.
static px_status dims_of(px__dims *d, px_value given, const px_tensor *self) {
  if (given.kind == PX_ARG_INTS && given.n)
    return px__wrap_dim_list(d, given.v.ints, given.n, self->ndim);
  d->n = self->ndim;
  for (int i = 0; i < self->ndim; i++) d->at[i] = i;
  return PX_OK;
}

// ---- reductions

PX_RUN(masked_sum) {
  px__dims d;
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(dims_of(&d, args->dim, args->self));
  PX_TRY(fill(&x, args->self, args->mask, px_int(0)));
  return px_sum(&call->results[0], x, d.at, d.n, args->keepdim, args->dtype);
}

PX_RUN(masked_prod) {
  px__dims d;
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(dims_of(&d, args->dim, args->self));
  PX_TRY(fill(&x, args->self, args->mask, px_int(1)));
  if (!d.n) return px_prod_all(&call->results[0], x, args->dtype);
  for (int i = 0; i < d.n; i++) {
    px_tensor *divisor = NULL;
    PX_TRY(px_prod(&divisor, x, d.at[i], true, args->dtype));
    px_release(x);
    x = divisor;
  }
  if (args->keepdim) return keep(&call->results[0], x);
  return px_squeeze_dim(&call->results[0], x, d.at, d.n);
}

static px_status min_or_max(px_call *call, const px_tensor *self, px_value dim, bool keepdim,
                            px_dtype dtype, const px_tensor *mask, bool maximum) {
  px__dims d;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(dims_of(&d, dim, self));
  PX_TRY(fill(&x, self, mask, limit(self->dtype, maximum)));
  PX_TRY((maximum ? px_amax : px_amin)(&made, x, d.at, d.n, keepdim));
  return set_result(call, made, dtype);
}
PX_RUN(masked_amax) {
  return min_or_max(call, args->self, args->dim, args->keepdim, args->dtype, args->mask, true);
}
PX_RUN(masked_amin) {
  return min_or_max(call, args->self, args->dim, args->keepdim, args->dtype, args->mask, false);
}

// Indices are returned in the dtype of the elements.
static px_status arg_min_or_max(px_call *call, const px_tensor *self, px_value dim, bool keepdim,
                                px_dtype dtype, const px_tensor *mask, bool maximum) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  const int64_t *at = px__given(dim) ? &dim.v.i : NULL;
  PX_TRY(fill(&x, self, mask, limit(self->dtype, maximum)));
  PX_TRY((maximum ? px_argmax : px_argmin)(&made, x, at, keepdim));
  return set_result(call, made, result_dtype(self, dtype));
}
PX_RUN(masked_argmax) {
  return arg_min_or_max(call, args->self, args->dim, args->keepdim, args->dtype, args->mask, true);
}
PX_RUN(masked_argmin) {
  return arg_min_or_max(call, args->self, args->dim, args->keepdim, args->dtype, args->mask, false);
}

PX_RUN(masked_logsumexp) {
  px__dims d;
  const px_tensor *self = args->self;
  px_dtype dtype = result_dtype(self, args->dtype);
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(dims_of(&d, args->dim, self));
  PX_TRY(fill(&x, self, args->mask, limit(self->dtype, true)));
  PX_TRY(in_dtype(&wide, x, px_dtype_is_differentiable(dtype) ? dtype : PX_DTYPE_NONE));
  PX_TRY(px_logsumexp(&made, wide, d.at, d.n, args->keepdim));
  return set_result(call, made, dtype);
}

PX_RUN(masked_median) {
  bool is_integer = !px_dtype_is_float(args->self->dtype);
  PX_SCOPED(px_tensor) real = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  PX_TRY(in_dtype(&real, args->self, is_integer ? PX_FLOAT64 : PX_DTYPE_NONE));
  PX_TRY(fill(&x, real, args->mask, px_float(NAN)));
  PX_TRY(px_nanmedian_dim(&values, &indices, x, args->dim, args->keepdim));
  return set_result(call, values, result_dtype(args->self, args->dtype));
}

// max(self, number).
static px_status max_with(px_tensor **out, const px_tensor *self, px_scalar number) {
  PX_SCOPED(px_tensor) minimum = NULL;
  PX_TRY(px_full(&minimum, NULL, 0, number, self->dtype, px_tensor_device(self), false, false));
  return px_maximum(out, self, minimum);
}

static px_status norm_of(px_tensor **out, const px_tensor *self, px_scalar ord, const px__dims *d,
                         bool keepdim, px_dtype dtype, const px_tensor *mask) {
  PX_SCOPED(px_tensor) x = NULL;
  bool minimum = px_scalar_float(ord) < 0;
  PX_TRY(fill(&x, self, mask, minimum ? limit(self->dtype, false) : px_int(0)));
  return px_linalg_vector_norm(out, x, ord, d->at, d->n, keepdim, dtype);
}
PX_RUN(masked_norm) {
  px__dims d;
  PX_TRY(dims_of(&d, args->dim, args->self));
  return norm_of(&call->results[0], args->self, args->ord, &d, args->keepdim, args->dtype,
                 args->mask);
}

PX_RUN(masked_normalize) {
  px__dims d = {{args->dim}, 1};
  PX_SCOPED(px_tensor) self = NULL;
  PX_SCOPED(px_tensor) norm = NULL;
  PX_SCOPED(px_tensor) minimum = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(in_dtype(&self, args->self, args->dtype));
  PX_TRY(norm_of(&norm, self, args->ord, &d, true, PX_DTYPE_NONE, args->mask));
  PX_TRY(max_with(&minimum, norm, px_float(args->eps)));
  PX_TRY(fill(&x, self, args->mask, px_int(0)));
  return px_div(&call->results[0], x, minimum);
}

// ---- means and variances

// Number of elements kept by the mask, as int64.
static px_status count_of(px_tensor **out, const px_tensor *self, const px__dims *d, bool keepdim,
                          const px_tensor *mask) {
  PX_SCOPED(px_tensor) kept = NULL;
  if (mask)
    PX_TRY(mask_of(&kept, mask, self));
  else
    PX_TRY(px_ones_like(&kept, self, PX_BOOL, PX_DEVICE_NONE, false, false, NULL));
  return px_sum(out, kept, d->at, d->n, keepdim, PX_DTYPE_NONE);
}
static px_status mean_of(px_tensor **out, const px_tensor *self, const px__dims *d, bool keepdim,
                         px_dtype dtype, const px_tensor *mask) {
  PX_SCOPED(px_tensor) count = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(count_of(&count, self, d, keepdim, mask));
  PX_TRY(fill(&x, self, mask, px_int(0)));
  PX_TRY(px_sum(&sum, x, d->at, d->n, keepdim, dtype));
  return px_div(out, sum, count);
}

PX_RUN(masked_mean) {
  px__dims d;
  px_dtype dtype = result_dtype(args->self, args->dtype);
  PX_CHECK(px_dtype_is_differentiable(dtype), PX_VALUE,
           "mean(): Could not infer output dtype. Input dtype must be either a floating point or "
           "complex dtype. Got: torch.%s",
           px_dtype_name(dtype));
  PX_TRY(dims_of(&d, args->dim, args->self));
  return mean_of(&call->results[0], args->self, &d, args->keepdim, args->dtype, args->mask);
}

// Sum of squared deviations divided by (count - correction). Masked elements are replaced first:
// their gradients are 0, whatever their values.
static px_status variance(px_tensor **out, const px_tensor *given, const px__dims *d,
                          px_scalar correction, bool keepdim, px_dtype dtype,
                          const px_tensor *mask) {
  PX_SCOPED(px_tensor) cast = NULL;
  PX_SCOPED(px_tensor) self = NULL;
  PX_SCOPED(px_tensor) mean = NULL;
  PX_SCOPED(px_tensor) deviation = NULL;
  PX_SCOPED(px_tensor) conjugate = NULL;
  PX_SCOPED(px_tensor) kept = NULL;
  PX_SCOPED(px_tensor) squares = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) count = NULL;
  PX_SCOPED(px_tensor) divisor = NULL;
  PX_SCOPED(px_tensor) minimum = NULL;
  PX_TRY(in_dtype(&cast, given, dtype));
  PX_TRY(fill(&self, cast, mask, px_int(0)));
  PX_TRY(mean_of(&mean, self, d, true, PX_DTYPE_NONE, mask));
  PX_TRY(px_sub(&deviation, self, mean, px_int(1)));
  PX_TRY(px_conj(&conjugate, deviation));
  PX_TRY(px_mul(&squares, deviation, conjugate));
  PX_TRY(fill(&kept, squares, mask, px_int(0)));
  PX_TRY(px_sum(&sum, kept, d->at, d->n, keepdim, PX_DTYPE_NONE));
  PX_TRY(count_of(&count, self, d, keepdim, mask));
  PX_TRY(px_sub_scalar(&divisor, count, correction, px_int(1)));
  PX_TRY(max_with(&minimum, divisor, px_int(0)));
  return px_div(out, sum, minimum);
}
static px_dtype real_dtype(const px_tensor *self, px_dtype asked) {
  px_dtype dtype = result_dtype(self, asked);
  return px_dtype_is_differentiable(dtype) ? dtype : px_dtype_default();
}
static px_scalar correction_of(px_value unbiased, px_value correction) {
  if (px__given(correction)) return px_value_scalar(correction);
  return px_int(px__given(unbiased) ? unbiased.v.i != 0 : 1);
}
PX_RUN(masked_var) {
  px__dims d;
  PX_TRY(dims_of(&d, args->dim, args->self));
  return variance(&call->results[0], args->self, &d,
                  correction_of(args->unbiased, args->correction), args->keepdim,
                  real_dtype(args->self, args->dtype), args->mask);
}
PX_RUN(masked_std) {
  px__dims d;
  PX_SCOPED(px_tensor) var = NULL;
  PX_TRY(dims_of(&d, args->dim, args->self));
  PX_TRY(variance(&var, args->self, &d, correction_of(args->unbiased, args->correction),
                  args->keepdim, real_dtype(args->self, args->dtype), args->mask));
  return px_sqrt(&call->results[0], var);
}

// ---- along a dimension

PX_RUN(masked_cumsum) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(fill(&x, args->self, args->mask, px_int(0)));
  return px_cumsum(&call->results[0], x, args->dim, result_dtype(args->self, args->dtype));
}
PX_RUN(masked_cumprod) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(fill(&x, args->self, args->mask, px_int(1)));
  return px_cumprod(&call->results[0], x, args->dim, result_dtype(args->self, args->dtype));
}
PX_RUN(masked_softmax) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(fill(&x, args->self, args->mask, limit(args->self->dtype, true)));
  return px_softmax(&call->results[0], x, args->dim, args->dtype);
}
PX_RUN(masked_log_softmax) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(fill(&x, args->self, args->mask, limit(args->self->dtype, true)));
  return px_log_softmax(&call->results[0], x, args->dim, args->dtype);
}
PX_RUN(masked_softmin) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) negative = NULL;
  PX_TRY(fill(&x, args->self, args->mask, limit(args->self->dtype, false)));
  PX_TRY(px_neg(&negative, x));
  return px_softmax(&call->results[0], negative, args->dim, args->dtype);
}

PX_RUN(masked_logaddexp) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(fill(&a, args->self, args->input_mask, limit(args->self->dtype, true)));
  PX_TRY(fill(&b, args->other, args->other_mask, limit(args->other->dtype, true)));
  PX_TRY(px_logaddexp(&made, a, b));
  return set_result(call, made, args->dtype);
}
