// SPDX-License-Identifier: Apache-2.0
// Run functions of differences and integrals along a dimension, of hashes, of norms of complex
// numbers, and of the derivatives
// of logcumsumexp. Differences and integrals combine two views of neighbours: all elements but the
// last and all but the first.
#include "hidden/reduce.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/index.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/reduce.h"

static px_status neighbours(px_tensor **left, px_tensor **right, const px_tensor *t, int64_t dim) {
  int at;
  PX_TRY(px__wrap_dim(&at, dim, t->ndim));
  int64_t size = t->ndim ? t->sizes[at] : 1, pairs = size > 0 ? size - 1 : 0;
  PX_SCOPED(px_tensor) first = NULL;
  PX_TRY(px_narrow(&first, t, at, 0, pairs));
  PX_TRY(px_narrow(right, t, at, size - pairs, pairs));
  *left = PX_MOVE(first);
  return PX_OK;
}
static px_status differences(px_tensor **out, const px_tensor *t, int64_t dim) {
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) right = NULL;
  PX_TRY(neighbours(&left, &right, t, dim));
  if (t->dtype == PX_BOOL) return px_logical_xor(out, right, left);
  return px_sub(out, right, left, px_int(1));
}
PX_RUN(diff) {
  px_tensor *parts[3], *self = args->self;
  int n = 0, dim;
  PX_TRY(px__wrap_dim(&dim, args->dim, self->ndim));
  if (!args->n) return px_clone(&call->results[0], self, NULL);
  if (args->prepend) parts[n++] = args->prepend;
  parts[n++] = self;
  if (args->append) parts[n++] = args->append;
  PX_SCOPED(px_tensor) current = NULL;
  if (n > 1)
    PX_TRY(px_cat(&current, parts, n, dim));
  else
    current = px_retain(self);
  for (int64_t i = 0; i < args->n && current->sizes[dim]; i++) {
    px_tensor *next = NULL;
    PX_TRY(differences(&next, current, dim));
    px_release(current);
    current = next;
  }
  call->results[0] = PX_MOVE(current);
  return PX_OK;
}

// ---- integrals

// The intervals between the points x: a 1-D tensor along dim, or a tensor like y.
static px_status widths(px_tensor **out, const px_tensor *y, const px_tensor *x, int64_t dim) {
  int at;
  PX_TRY(px__wrap_dim(&at, dim, y->ndim));
  if (x->ndim != 1) return differences(out, x, x->ndim < y->ndim ? dim : at);
  PX_CHECK(x->sizes[0] == y->sizes[at], PX_RUNTIME,
           "trapezoid: There must be one `x` value for each sample point");
  PX_SCOPED(px_tensor) line = NULL;
  PX_TRY(differences(&line, x, 0));
  int64_t sizes[PX_MAX_DIMS];
  for (int d = 0; d < y->ndim; d++) sizes[d] = d == at ? line->numel : 1;
  return px_reshape(out, line, sizes, y->ndim);
}
// Twice the areas of the trapezoids between neighbours. Without x the spacing is 1.
static px_status areas(px_tensor **out, const px_tensor *y, const px_tensor *x, int64_t dim) {
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) right = NULL;
  PX_SCOPED(px_tensor) sums = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(neighbours(&left, &right, y, dim));
  PX_TRY(px_add(&sums, left, right, px_int(1)));
  if (!x) return *out = PX_MOVE(sums), PX_OK;
  PX_TRY(widths(&wide, y, x, dim));
  return px_mul(out, sums, wide);
}
static px_status integrate(px_tensor **out, const px_tensor *y, const px_tensor *x, double dx,
                           int64_t dim, bool cumulative) {
  PX_SCOPED(px_tensor) parts = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  PX_TRY(areas(&parts, y, x, dim));
  if (cumulative)
    PX_TRY(px_cumsum(&total, parts, dim, PX_DTYPE_NONE));
  else
    PX_TRY(px_sum(&total, parts, &dim, 1, false, PX_DTYPE_NONE));
  return px_mul_scalar(out, total, px_float(dx / 2));
}
// The sum of all elements minus half of both ends. Sums of integers are int64, and the ends are
// added in the dtype of y, as in PyTorch.
PX_RUN(trapezoid) {
  const px_tensor *y = args->y;
  PX_SCOPED(px_tensor) first = NULL;
  PX_SCOPED(px_tensor) last = NULL;
  PX_SCOPED(px_tensor) ends = NULL;
  PX_SCOPED(px_tensor) half = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  PX_SCOPED(px_tensor) inside = NULL;
  int at;
  PX_TRY(px__wrap_dim(&at, args->dim, y->ndim));
  if (y->sizes[at] == 0)
    return integrate(&call->results[0], y, NULL, px_scalar_float(args->dx), at, false);
  PX_TRY(px_select(&first, y, at, 0));
  PX_TRY(px_select(&last, y, at, -1));
  PX_TRY(px_add(&ends, first, last, px_int(1)));
  PX_TRY(px_mul_scalar(&half, ends, px_float(0.5)));
  PX_TRY(px_sum(&total, y, &args->dim, 1, false, PX_DTYPE_NONE));
  PX_TRY(px_sub(&inside, total, half, px_int(1)));
  return px_mul_scalar(&call->results[0], inside, args->dx);
}
PX_RUN(trapezoid_x) { return integrate(&call->results[0], args->y, args->x, 1, args->dim, false); }
PX_RUN(cumulative_trapezoid) {
  return integrate(&call->results[0], args->y, NULL, px_scalar_float(args->dx), args->dim, true);
}
PX_RUN(cumulative_trapezoid_x) {
  return integrate(&call->results[0], args->y, args->x, 1, args->dim, true);
}

// ---- hashes

PX_RUN(hash_tensor) {
  px_value dim = args->dim;
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) bits = NULL;
  PX_SCOPED(px_tensor) hash = NULL;
  bool real = px_dtype_is_float((px_dtype)args->self->dtype);
  PX_TRY(px_tensor_detach(&plain, args->self));
  PX_TRY(px_to(&wide, plain, real ? PX_FLOAT64 : PX_INT64, PX_DEVICE_NONE, false, false));
  PX_TRY(px_view_dtype(&bits, wide, PX_INT64));
  PX_TRY(px_xor_of(&hash, bits, dim.v.ints, dim.n, args->keepdim));
  return px_view_dtype(&call->results[0], hash, PX_UINT64);
}

// ---- norms and deviations of complex numbers

PX_RUN(complex_norm2) {
  PX_SCOPED(px_tensor) sizes = NULL;
  PX_TRY(px_abs(&sizes, args->self));
  return px_norm(&call->results[0], sizes, px_int(2), args->dim.v.ints, args->dim.n, args->keepdim,
                 PX_DTYPE_NONE);
}
PX_RUN(complex_norm) {
  PX_SCOPED(px_tensor) self = NULL;
  PX_SCOPED(px_tensor) sizes = NULL;
  px_scalar two = px_int(2), p = px__given(args->p) ? px_value_scalar(args->p) : two;
  px_dtype dtype = args->dtype == PX_DTYPE_NONE ? (px_dtype)args->self->dtype : args->dtype;
  PX_CHECK(px_dtype_is_complex(dtype), PX_RUNTIME,
           "linalg.vector_norm: dtype should be complex for complex inputs, but got %s",
           px_dtype_class(dtype));
  PX_TRY(px_to(&self, args->self, dtype, PX_DEVICE_NONE, false, false));
  if (px_scalar_float(p) == 2)
    return px_complex_norm2(&call->results[0], self, args->dim.v.ints, args->dim.n, args->keepdim);
  PX_TRY(px_abs(&sizes, self));
  return px_norm(&call->results[0], sizes, p, args->dim.v.ints, args->dim.n, args->keepdim,
                 PX_DTYPE_NONE);
}

PX_RUN(complex_std) {
  px_value dim = args->dim;
  PX_SCOPED(px_tensor) real = NULL;
  PX_SCOPED(px_tensor) imag = NULL;
  PX_SCOPED(px_tensor) of_real = NULL;
  PX_SCOPED(px_tensor) of_imag = NULL;
  px_scalar less = px__given(args->correction) ? px_value_scalar(args->correction) : px_int(1);
  PX_TRY(px_real(&real, args->self));
  PX_TRY(px_imag(&imag, args->self));
  PX_TRY(px_std(&of_real, real, dim.v.ints, dim.n, less, args->keepdim));
  PX_TRY(px_std(&of_imag, imag, dim.v.ints, dim.n, less, args->keepdim));
  return px_hypot(&call->results[0], of_real, of_imag);
}

// ---- derivatives of logcumsumexp

// exp(logs - sums) summed over the elements from j on, times exp(self): in logarithms.
static px_status gradient_of_logs(px_tensor **out, const px_tensor *logs, const px_tensor *self,
                                  const px_tensor *sums, int64_t dim) {
  PX_SCOPED(px_tensor) less = NULL;
  PX_SCOPED(px_tensor) reversed = NULL;
  PX_SCOPED(px_tensor) totals = NULL;
  PX_SCOPED(px_tensor) back = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  PX_TRY(px_sub(&less, logs, sums, px_int(1)));
  PX_TRY(px_flip(&reversed, less, &dim, 1));
  PX_TRY(px_logcumsumexp(&totals, reversed, dim));
  PX_TRY(px_flip(&back, totals, &dim, 1));
  PX_TRY(px_add(&both, back, self, px_int(1)));
  return px_exp(out, both);
}
// exp(logs + self) summed over the elements up to j, divided by exp(sums).
static px_status tangent_of_logs(px_tensor **out, const px_tensor *logs, const px_tensor *self,
                                 const px_tensor *sums, int64_t dim) {
  PX_SCOPED(px_tensor) more = NULL;
  PX_SCOPED(px_tensor) totals = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  PX_TRY(px_add(&more, logs, self, px_int(1)));
  PX_TRY(px_logcumsumexp(&totals, more, dim));
  PX_TRY(px_sub(&both, totals, sums, px_int(1)));
  return px_exp(out, both);
}
// Logarithm of the factors with the given sign. Elsewhere the lowest finite value, whose
// exponential is 0: infinities would cancel to NaN.
static px_status logs_where(px_tensor **out, const px_tensor *logs, const px_tensor *factors,
                            bool positive) {
  PX_SCOPED(px_tensor) other = NULL;
  PX_TRY(positive ? px_le_scalar(&other, factors, px_int(0))
                  : px_ge_scalar(&other, factors, px_int(0)));
  return px_masked_fill(out, logs, other, px_float(px_dtype_about((px_dtype)logs->dtype)->min));
}
// A sum with factors of both signs, from the logarithms of the factors.
typedef px_status (*of_logs)(px_tensor **out, const px_tensor *logs, const px_tensor *self,
                             const px_tensor *sums, int64_t dim);
static px_status signed_sum(px_tensor **out, of_logs sum, const px_tensor *factors,
                            const px_tensor *self, const px_tensor *sums, int64_t dim) {
  PX_SCOPED(px_tensor) size = NULL;
  PX_SCOPED(px_tensor) logs = NULL;
  PX_SCOPED(px_tensor) positive = NULL;
  PX_SCOPED(px_tensor) negative = NULL;
  PX_SCOPED(px_tensor) more = NULL;
  PX_SCOPED(px_tensor) less = NULL;
  if (!self->ndim) return px_clone(out, factors, NULL);
  if (px_dtype_is_complex((px_dtype)self->dtype)) {
    PX_TRY(px_log(&logs, factors));
    return sum(out, logs, self, sums, dim);
  }
  PX_TRY(px_abs(&size, factors));
  PX_TRY(px_log(&logs, size));
  PX_TRY(logs_where(&positive, logs, factors, true));
  PX_TRY(logs_where(&negative, logs, factors, false));
  PX_TRY(sum(&more, positive, self, sums, dim));
  PX_TRY(sum(&less, negative, self, sums, dim));
  return px_sub(out, more, less, px_int(1));
}
PX_RUN(logcumsumexp_backward) {
  return signed_sum(&call->results[0], gradient_of_logs, args->grad_output, args->self, args->sums,
                    args->dim);
}
PX_RUN(logcumsumexp_tangent) {
  return signed_sum(&call->results[0], tangent_of_logs, args->tangent, args->self, args->sums,
                    args->dim);
}
