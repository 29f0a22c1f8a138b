// SPDX-License-Identifier: Apache-2.0
// torch.gradient by finite differences, based on slopes between neighbours. Inner points combine
// two slopes. Edges use one slope, or a quadratic extrapolation (edge_order=2).
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/index.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/reduce.h"

// Slopes along a dimension, and the widths of their intervals; NULL if uniform.
typedef struct line {
  int dim;
  const px_tensor *slopes, *widths;
} line;

// Average of two slopes, each weighted by the width of the other interval.
static px_status weighted_mean(px_tensor **out, const px_tensor *before, const px_tensor *after,
                               const px_tensor *width_before, const px_tensor *width_after) {
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) width = NULL;
  PX_TRY(px_mul(&one, before, width_after));
  PX_TRY(px_mul(&other, after, width_before));
  PX_TRY(px_add(&sum, one, other, px_int(1)));
  PX_TRY(px_add(&width, width_before, width_after, px_int(1)));
  return px_div(out, sum, width);
}
static px_status inner_slopes(px_tensor **out, const line *l) {
  int64_t n = l->slopes->sizes[l->dim] - 1;
  PX_SCOPED(px_tensor) before = NULL;
  PX_SCOPED(px_tensor) after = NULL;
  PX_SCOPED(px_tensor) width_before = NULL;
  PX_SCOPED(px_tensor) width_after = NULL;
  PX_TRY(px_narrow(&before, l->slopes, l->dim, 0, n));
  PX_TRY(px_narrow(&after, l->slopes, l->dim, 1, n));
  PX_TRY(px_narrow(&width_before, l->widths, l->dim, 0, n));
  PX_TRY(px_narrow(&width_after, l->widths, l->dim, 1, n));
  return weighted_mean(out, before, after, width_before, width_after);
}
// Central difference with uniform spacing.
static px_status inner_uniform(px_tensor **out, const px_tensor *self, int dim, px_scalar step) {
  int64_t n = self->sizes[dim] - 2;
  PX_SCOPED(px_tensor) before = NULL;
  PX_SCOPED(px_tensor) after = NULL;
  PX_SCOPED(px_tensor) distances = NULL;
  PX_TRY(px_narrow(&before, self, dim, 0, n));
  PX_TRY(px_narrow(&after, self, dim, 2, n));
  PX_TRY(px_sub(&distances, after, before, px_int(1)));
  return px_div_scalar(out, distances, px_float(2 * px_scalar_float(step)));
}
// Width of the first of two intervals divided by their sum.
static px_status width_share(px_tensor **out, const line *l, int64_t first, int64_t second) {
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  if (!l->widths) return px_tensor_from_scalar(out, px_float(0.5));
  PX_TRY(px_narrow(&one, l->widths, l->dim, first, 1));
  PX_TRY(px_narrow(&other, l->widths, l->dim, second, 1));
  PX_TRY(px_add(&both, one, other, px_int(1)));
  return px_div(out, one, both);
}
// Edge value: the slope at the edge, extrapolated by the change to the `next` slope if `bent`.
static px_status edge_slope(px_tensor **out, const line *l, int64_t at, int64_t next,
                            bool quadratic) {
  PX_SCOPED(px_tensor) slope = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) change = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) correction = NULL;
  if (!quadratic) return px_narrow(out, l->slopes, l->dim, at, 1);
  PX_TRY(px_narrow(&slope, l->slopes, l->dim, at, 1));
  PX_TRY(px_narrow(&other, l->slopes, l->dim, next, 1));
  PX_TRY(px_sub(&change, slope, other, px_int(1)));
  PX_TRY(width_share(&part, l, at, next));
  PX_TRY(px_mul(&correction, change, part));
  return px_add(out, slope, correction, px_int(1));
}
static px_status with_edges(px_tensor **out, const line *l, px_tensor *middle, bool quadratic) {
  int64_t last = l->slopes->sizes[l->dim] - 1;
  PX_SCOPED(px_tensor) first = NULL;
  PX_SCOPED(px_tensor) end = NULL;
  PX_TRY(edge_slope(&first, l, 0, 1, quadratic));
  PX_TRY(edge_slope(&end, l, last, last - 1, quadratic));
  return px_cat(out, (px_tensor *[]){first, middle, end}, 3, l->dim);
}
static px_status uniform_gradient(px_tensor **out, const px_tensor *self, int dim, px_scalar step,
                                  bool quadratic) {
  PX_SCOPED(px_tensor) rises = NULL;
  PX_SCOPED(px_tensor) slopes = NULL;
  PX_SCOPED(px_tensor) middle = NULL;
  PX_TRY(px_diff(&rises, self, 1, dim, NULL, NULL));
  PX_TRY(px_div_scalar(&slopes, rises, px_float(px_scalar_float(step))));
  PX_TRY(inner_uniform(&middle, self, dim, step));
  return with_edges(out, &(line){dim, slopes, NULL}, middle, quadratic);
}
static px_status spaced_gradient(px_tensor **out, const px_tensor *self, int dim,
                                 const px_tensor *coordinates, bool quadratic) {
  int64_t sizes[PX_MAX_DIMS];
  PX_SCOPED(px_tensor) rises = NULL;
  PX_SCOPED(px_tensor) distances = NULL;
  PX_SCOPED(px_tensor) widths = NULL;
  PX_SCOPED(px_tensor) slopes = NULL;
  PX_SCOPED(px_tensor) middle = NULL;
  PX_CHECK(coordinates->numel == self->sizes[dim], PX_RUNTIME,
           "torch.gradient expected %lld coordinates for dimension %d, but got %lld",
           (long long)self->sizes[dim], dim, (long long)coordinates->numel);
  for (int d = 0; d < self->ndim; d++) sizes[d] = d == dim ? coordinates->numel - 1 : 1;
  PX_TRY(px_diff(&rises, self, 1, dim, NULL, NULL));
  PX_TRY(px_diff(&distances, coordinates, 1, 0, NULL, NULL));
  PX_TRY(px_reshape(&widths, distances, sizes, self->ndim));
  PX_TRY(px_div(&slopes, rises, widths));
  line l = {dim, slopes, widths};
  PX_TRY(inner_slopes(&middle, &l));
  return with_edges(out, &l, middle, quadratic);
}

// Given dimensions, or all.
static px_status dims_of(int *dims, int *count, const px_tensor *self, px_value dim,
                         int64_t order) {
  uint64_t mask;
  bool given = px__given(dim);
  if (given) PX_TRY(px__wrap_dims(&mask, dim.v.ints, dim.n, self->ndim));
  *count = given ? dim.n : self->ndim;
  for (int i = 0; i < *count; i++) {
    dims[i] = i;
    if (given) PX_TRY(px__wrap_dim(&dims[i], dim.v.ints[i], self->ndim));
    PX_CHECK(self->ndim && self->sizes[dims[i]] > order, PX_RUNTIME,
             "torch.gradient expected each dimension size to be at least edge_order+1");
  }
  return PX_OK;
}
static px_status return_list(px_call *call, px_tensor **items, int count, px_status status) {
  if (status == PX_OK) status = px_list_new(&call->list, items, count);
  for (int i = 0; i < count; i++) px_release(items[i]);
  return status;
}
PX_RUN(gradient) {
  px_tensor *items[PX_MAX_DIMS] = {0};
  int dims[PX_MAX_DIMS], count;
  px_status status = PX_OK;
  PX_TRY(dims_of(dims, &count, args->self, args->dim, args->edge_order));
  for (int i = 0; i < count && status == PX_OK; i++)
    status = uniform_gradient(&items[i], args->self, dims[i], args->spacing, args->edge_order == 2);
  return return_list(call, items, count, status);
}

static px_status check_coordinates(const px_tensor *self, px_value spacing, px_value dim) {
  PX_CHECK(px__given(dim) || spacing.n == self->ndim, PX_RUNTIME,
           "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal "
           "to 'self.dim() = %d', since dim argument was not given, but got a list of length %d",
           self->ndim, spacing.n);
  PX_CHECK(!px__given(dim) || spacing.n == dim.n, PX_RUNTIME,
           "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim "
           "arguments to have the same length, but got a spacing argument of length %d and a dim "
           "argument of length %d.",
           spacing.n, dim.n);
  for (int i = 0; i < spacing.n; i++)
    PX_CHECK(spacing.v.tensors[i]->ndim == 1, PX_RUNTIME,
             "torch.gradient expected each element of spacing to have one dimension, but got an "
             "element with %d dimensions!",
             spacing.v.tensors[i]->ndim);
  return PX_OK;
}
PX_RUN(gradient_of_coordinates) {
  px_tensor *items[PX_MAX_DIMS] = {0};
  int dims[PX_MAX_DIMS], count;
  px_status status = PX_OK;
  px_value spacing = args->spacing;
  PX_TRY(check_coordinates(args->self, spacing, args->dim));
  PX_TRY(dims_of(dims, &count, args->self, args->dim, args->edge_order));
  for (int i = 0; i < count && status == PX_OK; i++)
    status = spaced_gradient(&items[i], args->self, dims[i], spacing.v.tensors[i],
                             args->edge_order == 2);
  return return_list(call, items, count, status);
}
