// SPDX-License-Identifier: Apache-2.0
// Run functions of differences and integrals along a dimension, and of hashes. Differences and
// integrals combine two views of neighbours: all elements but the last and all but the first.
#include "hidden/reduce.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/index.h"
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
