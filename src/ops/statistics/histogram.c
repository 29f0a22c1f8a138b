// SPDX-License-Identifier: Apache-2.0
// Histograms of elements and of points; points have a bin in each dimension. Bins include their
// lower edge, the last one both. Values outside of all bins and NaN are not counted. Ranges are
// read on the host.
#include <math.h>

#include "formulas.h"
#include "ops/core/run.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/statistics.h"
#include "phlox/ops/view.h"
#include "run_functions/statistics.h"

typedef struct range {
  double low, high;
} range;

// Range of the elements; (0, 1) if there are none, or on meta.
static px_status range_of(range *r, const px_tensor *t) {
  PX_SCOPED(px_tensor) min_tensor = NULL;
  PX_SCOPED(px_tensor) max_tensor = NULL;
  px_scalar low, high;
  *r = (range){0, 1};
  if (!t->numel || px__is_meta(t)) return PX_OK;
  PX_TRY(px_aminmax(&min_tensor, &max_tensor, t, NULL, false));
  PX_TRY(px_tensor_item(&low, min_tensor));
  PX_TRY(px_tensor_item(&high, max_tensor));
  *r = (range){px_scalar_float(low), px_scalar_float(high)};
  return PX_OK;
}
static px_status edges_between(px_tensor **out, range r, int64_t bins, const px_tensor *like) {
  return px_linspace(out, px_float(r.low), px_float(r.high), bins + 1, (px_dtype)like->dtype,
                     px__tensor_device(like), false, false);
}

// ---- histc

enum { MAX_KERNEL_BINS = 65536 };  // bins; float32 represents their indices exactly
static px__named_kernel binned_kernel = {.name = "binned"};
static bool has_kernel(const px_tensor *t, int64_t bins) {
  bool real = t->dtype == PX_FLOAT32 || t->dtype == PX_FLOAT64;
  return real && t->numel && bins <= MAX_KERNEL_BINS &&
         px__named_kernel_on(&binned_kernel, (px_device_type)px__tensor_device(t).type);
}
PX_RUN(histc) {
  const px_tensor *self = args->self;
  range r = {px_scalar_float(args->min), px_scalar_float(args->max)};
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) edges = NULL;
  PX_CHECK(args->bins < INT64_MAX, PX_RUNTIME, "torch.histc: too many bins");
  PX_TRY(px_reshape(&flat, self, &self->numel, 1));
  if (r.low == r.high && self->numel && !px__is_meta(self)) PX_TRY(range_of(&r, flat));
  if (r.low == r.high) --r.low, ++r.high;
  PX_CHECK(isfinite(r.low) && isfinite(r.high), PX_RUNTIME,
           "torch.histc: range of [%g, %g] is not finite", r.low, r.high);
  PX_TRY(edges_between(&edges, r, args->bins, self));
  if (has_kernel(flat, args->bins)) {
    px_tensor *inputs[] = {flat, edges};
    px_device device = px__tensor_device(self);
    PX_TRY(px_tensor_empty(&call->results[0], 1, &args->bins, (px_dtype)self->dtype, device));
    return px__run_kernel(&binned_kernel, device, 1, call->results, 2, inputs, NULL, 0);
  }
  return px__formula_counts_between(
      call->results, (px_value[]){PX_T(flat), PX_T(edges), PX_F(r.low), PX_F(r.high)});
}

// ---- edges

// Reads the ranges of all dimensions, (low, high) each.
static px_status read_ranges(double *ends, const px_tensor *given, int dims) {
  PX_CHECK(given->numel == 2 * (int64_t)dims, PX_RUNTIME,
           "torch.histogramdd: for a %d-dimensional histogram range should have %d elements, but "
           "got %lld",
           dims, 2 * dims, (long long)given->numel);
  for (int i = 0; i < 2 * dims; i++) {
    PX_SCOPED(px_tensor) one = NULL;
    px_scalar value;
    PX_TRY(px_select(&one, given, 0, i));
    PX_TRY(px_tensor_item(&value, one));
    ends[i] = px_scalar_float(value);
  }
  return PX_OK;
}
static px_status edges_along(px_tensor **out, const px_tensor *points, int dim, int64_t bins,
                             const double *ends) {
  PX_SCOPED(px_tensor) line = NULL;
  range r;
  PX_CHECK(bins > 0, PX_RUNTIME,
           "torch.histogram(): bins must be > 0, but got %lld for dimension %d", (long long)bins,
           dim);
  PX_CHECK(bins < INT64_MAX, PX_RUNTIME, "torch.histogram(): too many bins");
  PX_TRY(px_select(&line, points, 1, dim));
  if (ends)
    r = (range){ends[2 * dim], ends[2 * dim + 1]};
  else
    PX_TRY(range_of(&r, line));
  PX_CHECK(isfinite(r.low) && isfinite(r.high), PX_RUNTIME,
           "torch.histogramdd: dimension %d's range [%g, %g] is not finite", dim, r.low, r.high);
  PX_CHECK(r.low <= r.high, PX_RUNTIME,
           "torch.histogramdd: min should not exceed max, but got min %g max %g for dimension %d",
           r.low, r.high, dim);
  if (r.low == r.high) r.low -= 0.5, r.high += 0.5;
  return edges_between(out, r, bins, points);
}
static px_status check_kind(const px_tensor *t) {
  PX_CHECK(t->dtype == PX_FLOAT32 || t->dtype == PX_FLOAT64, PX_UNIMPLEMENTED,
           "\"histogramdd\" not implemented for '%s'", px_dtype_class((px_dtype)t->dtype));
  return PX_OK;
}
// Flattens t to points; coordinates are in the last dimension.
static px_status points_of(px_tensor **out, const px_tensor *t) {
  int64_t dims = t->sizes[t->ndim - 1], count = 1;
  PX_TRY(check_kind(t));
  for (int d = 0; d < t->ndim - 1; d++) count *= t->sizes[d];
  return px__formula_points_of(out, (px_value[]){PX_T(t), PX_I(count), PX_I(dims)});
}
static px_status single(px_tensor **out, const px_tensor *self) {
  PX_TRY(check_kind(self));
  return px__formula_points_of(out, (px_value[]){PX_T(self), PX_I(self->numel), PX_I(1)});
}
PX_RUN(_histogramdd_bin_edges) {
  const px_tensor *self = args->self;
  px_tensor *items[PX_MAX_DIMS] = {0};
  double ends[2 * PX_MAX_DIMS];
  int dims = args->bins.n, made = 0;
  PX_SCOPED(px_tensor) points = NULL;
  PX_CHECK(dims == self->sizes[self->ndim - 1], PX_RUNTIME,
           "histogramdd: The size of bins must be equal to the innermost dimension of the input.");
  PX_TRY(px__check_ndim(dims));
  PX_TRY(points_of(&points, self));
  if (args->range) PX_TRY(read_ranges(ends, args->range, dims));
  px_status status = PX_OK;
  for (; made < dims && status == PX_OK; made += status == PX_OK)
    status =
        edges_along(&items[made], points, made, args->bins.v.ints[made], args->range ? ends : NULL);
  if (status == PX_OK) status = px_list_new(&call->list, items, dims);
  for (int i = 0; i < made; i++) px_release(items[i]);
  return status;
}

// ---- counts

static const char *type_name(const px_tensor *t) {
  return px_dtype_about((px_dtype)t->dtype)->type_name;
}
static px_status check_edges(const px_tensor *points, px_tensor *const *edges, int count) {
  for (int i = 0; i < count; i++) {
    PX_CHECK(edges[i]->dtype == points->dtype, PX_RUNTIME,
             "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got "
             "input with dtype %s and bins for dimension %d with dtype %s",
             type_name(points), i, type_name(edges[i]));
    PX_CHECK(edges[i]->ndim == 1, PX_RUNTIME,
             "torch.histogramdd: bins tensor should have one dimension, but got %d dimensions in "
             "the bins tensor for dimension %d",
             edges[i]->ndim, i);
    PX_CHECK(edges[i]->numel > 0, PX_RUNTIME,
             "torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in "
             "the bins tensor for dimension %d",
             i);
  }
  for (int i = 0; i < count; i++)
    PX_CHECK(edges[i]->numel > 1, PX_RUNTIME,
             "torch.histogram(): bins must be > 0, but got 0 for dimension %d", i);
  return PX_OK;
}
// Flattens the weights to one per point; NULL if there are none.
static px_status line_of(px_tensor **out, const px_tensor *weight, const px_tensor *points,
                         const px_tensor *self, int leading) {
  char sizes[128], others[128];
  if (!weight) return PX_OK;
  PX_CHECK(weight->dtype == points->dtype, PX_RUNTIME,
           "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should "
           "have the same dtype, but got input(%s), and weight(%s)",
           type_name(points), type_name(weight));
  bool fits = leading < 0 ? weight->numel == self->numel : weight->ndim == leading;
  for (int d = 0; d < leading && fits; d++) fits = weight->sizes[d] == self->sizes[d];
  const px_tensor *shown = leading < 0 ? points : self;
  PX_CHECK(fits, PX_RUNTIME,
           "torch.histogramdd: if weight tensor is provided it should have the same shape as the "
           "input tensor excluding its innermost dimension, but got input with shape %s and weight "
           "with shape %s",
           px__size_text(sizes, sizeof sizes, shown), px__size_text(others, sizeof others, weight));
  PX_SCOPED(px_tensor) plain = NULL;
  PX_TRY(px_tensor_detach(&plain, weight));
  return px_reshape(out, plain, &weight->numel, 1);
}
static px_status count(px_tensor **out, const px_tensor *points, px_tensor *const *edges,
                       px_tensor *weights, bool density) {
  int64_t sizes[PX_MAX_DIMS];
  int dims = (int)points->sizes[1];
  for (int d = 0; d < dims; d++) sizes[d] = edges[d]->numel - 1;
  return px__formula_counts_of_points(
      out, (px_value[]){PX_T(points), PX_TS(edges, dims), PX_IS(sizes, dims), PX_T(weights),
                        PX_B(density)});
}
PX_RUN(_histogramdd_from_bin_tensors) {
  const px_tensor *self = args->self;
  px_value bins = args->bins;
  PX_SCOPED(px_tensor) points = NULL;
  PX_SCOPED(px_tensor) weights = NULL;
  int64_t dims = self->sizes[self->ndim - 1];
  PX_CHECK(bins.n == dims, PX_RUNTIME,
           "torch.histogramdd: expected %lld sequences of bin edges for a %lld-dimensional "
           "histogram but got %d",
           (long long)dims, (long long)dims, bins.n);
  PX_TRY(px__check_ndim(dims));
  PX_TRY(points_of(&points, self));
  PX_TRY(check_edges(points, bins.v.tensors, bins.n));
  PX_TRY(line_of(&weights, args->weight, points, self, self->ndim - 1));
  return count(&call->results[0], points, bins.v.tensors, weights, args->density);
}

// ---- histograms of elements

static px_status histogram(px_call *call, const px_tensor *self, const px_tensor *points,
                           px_tensor *edges, const px_tensor *weight, bool density) {
  PX_SCOPED(px_tensor) weights = NULL;
  PX_TRY(check_edges(points, &edges, 1));
  PX_TRY(line_of(&weights, weight, points, self, -1));
  return count(&call->results[0], points, &edges, weights, density);
}
// Resizes the out= tensor of the edges before that of the counts, as PyTorch does.
static px_status resize_edges(px_call *call, const px_tensor *edges) {
  bool fits = call->mode == PX_CALL_OUT;
  for (int i = 0; i < 2; i++)
    fits = fits && call->given[i] && call->given[i]->dtype == edges->dtype;
  if (fits) PX_TRY(px__call_same_device(call));
  return fits ? px__resize_output(call->given[1], 1, edges->sizes) : PX_OK;
}
PX_RUN(histogram) {
  double ends[2];
  PX_SCOPED(px_tensor) points = NULL;
  PX_SCOPED(px_tensor) edges = NULL;
  PX_TRY(single(&points, args->self));
  if (args->range) PX_TRY(read_ranges(ends, args->range, 1));
  PX_TRY(edges_along(&edges, points, 0, args->bins, args->range ? ends : NULL));
  PX_TRY(resize_edges(call, edges));
  PX_TRY(histogram(call, args->self, points, edges, args->weight, args->density));
  call->results[1] = PX_MOVE(edges);
  return PX_OK;
}
PX_RUN(histogram_of_edges) {
  PX_SCOPED(px_tensor) points = NULL;
  PX_SCOPED(px_tensor) edges = NULL;
  PX_TRY(single(&points, args->self));
  PX_TRY(px_tensor_detach(&edges, args->bins));
  PX_TRY(histogram(call, args->self, points, edges, args->weight, args->density));
  return px_clone(&call->results[1], edges, NULL);
}
