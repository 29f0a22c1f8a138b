// SPDX-License-Identifier: Apache-2.0
// Run functions of scatter reductions, index_reduce, sparse softmax and segment_reduce.
#include <math.h>
#include <string.h>

#include "ops/index/index_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/norm.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/sort.h"
#include "phlox/ops/view.h"
#include "run_functions/index.h"

// ---- the reductions

// Identity of a reduction; for min and max a limit of the dtype.
typedef enum identity { ZERO, ONE, LOWEST, HIGHEST } identity;
typedef struct reduction {
  const char *name;
  px_put_mode how;
  identity identity;
} reduction;
static const reduction reductions[] = {
    {"sum", PX_PUT_ADD, ZERO},          {"mean", PX_PUT_ADD, ZERO},
    {"add", PX_PUT_ADD, ZERO},          {"prod", PX_PUT_MULTIPLY, ONE},
    {"multiply", PX_PUT_MULTIPLY, ONE}, {"amax", PX_PUT_MAX, LOWEST},
    {"amin", PX_PUT_MIN, HIGHEST}};
static const reduction *reduction_named(const char *name) {
  const reduction *w = reductions;
  while (strcmp(w->name, name) != 0) w++;
  return w;
}
static px_scalar identity_of(identity u, px_dtype dtype) {
  if (u == ZERO || u == ONE) return px_int(u);
  if (px_dtype_is_float(dtype)) return px_float(u == LOWEST ? -INFINITY : INFINITY);
  if (dtype == PX_BOOL) return px_int(u == HIGHEST);
  bool has_sign = px_dtype_is_signed(dtype);
  int bits = 8 * (int)px_dtype_size(dtype) - has_sign;
  int64_t highest = (int64_t)(UINT64_MAX >> (64 - bits));
  return px_int(u == HIGHEST ? highest : has_sign ? -highest - 1 : 0);
}

// ---- scatter

PX_RUN(scatter_add_or_multiply) {
  px_put_mode how = reduction_named(args->reduce)->how;
  return px__scatter(call,
                     &(px__scatter_call){args->self, args->index, args->src, args->dim, how, NULL});
}
PX_RUN(scatter_value_add_or_multiply) {
  PX_SCOPED(px_tensor) value = NULL;
  PX_TRY(px__value_like(&value, args->self, args->value));
  px_put_mode how = reduction_named(args->reduce)->how;
  return px__scatter(call,
                     &(px__scatter_call){args->self, args->index, value, args->dim, how, NULL});
}

// Number of elements scattered to each element of self, at least 1.
static px_status counts(px_tensor **out, const px_tensor *self, int64_t dim, const px_tensor *index,
                        bool include_self) {
  px_device device = px__tensor_device(self);
  PX_SCOPED(px_tensor) count = NULL;
  PX_SCOPED(px_tensor) one = NULL;
  PX_TRY(px_full(&count, self->sizes, self->ndim, px_int(include_self), PX_INT64, device, false,
                 false));
  PX_TRY(px_full(&one, NULL, 0, px_int(1), PX_INT64, device, false, false));
  PX_TRY(px_scatter_add_(count, dim, index, one));
  return px_clamp_min(out, count, one);
}
PX_RUN(scatter_reduce) {
  px_tensor *self = args->self;
  px_dtype dtype = (px_dtype)self->dtype;
  const reduction *w = reduction_named(args->reduce);
  bool mean = !strcmp(args->reduce, "mean");
  bool divides = dtype != PX_BOOL && !px__is_unsigned(dtype);
  PX_CHECK(!mean || divides, PX_UNIMPLEMENTED,
           "\"scatter_gather_tensor_cpu_reduce_mean\" not implemented for '%s'",
           px_dtype_class(dtype));
  PX_SCOPED(px_tensor) first = NULL;
  PX_SCOPED(px_tensor) count = NULL;
  if (!args->include_self) PX_TRY(px__value_like(&first, self, identity_of(w->identity, dtype)));
  PX_TRY(px__scatter(call,
                     &(px__scatter_call){self, args->index, args->src, args->dim, w->how, first}));
  if (!mean) return PX_OK;
  PX_TRY(counts(&count, self, args->dim, args->index, args->include_self));
  px_tensor *result = call->results[0];
  bool exact = px_dtype_is_float(dtype) || px_dtype_is_complex(dtype);
  return exact ? px_div_(result, count) : px_floor_divide_(result, count);
}

// ---- index_reduce

static px_status check_sizes(const px_tensor *self, int dim, const px_tensor *index,
                             const px_tensor *source) {
  char a[256], b[256];
  bool fits = self->ndim == source->ndim;
  for (int d = 0; fits && d < self->ndim; d++)
    fits = d == dim || self->sizes[d] == source->sizes[d];
  PX_CHECK(fits, PX_RUNTIME,
           "source tensor shape must match self tensor shape, excluding the specified dimension. "
           "Got self.shape = %s source.shape = %s",
           px__sizes_text(a, sizeof a, self->ndim, self->sizes),
           px__sizes_text(b, sizeof b, source->ndim, source->sizes));
  bool is_integer = index->dtype == PX_INT64 || index->dtype == PX_INT32;
  PX_CHECK(is_integer, PX_RUNTIME,
           "index_reduce_(): Expected dtype int32/int64 for index but got: %s",
           px_dtype_class((px_dtype)index->dtype));
  int64_t n = source->ndim ? source->sizes[dim] : 1;
  PX_CHECK(index->numel == n || source->ndim, PX_INDEX,
           "Dimension specified as %d but tensor has no dimensions", dim);
  PX_CHECK(index->numel == n, PX_RUNTIME,
           "index_reduce_(): Number of indices (%lld) should be equal to source.size(dim): (%lld), "
           "for dim: %d",
           (long long)index->numel, (long long)n, dim);
  return PX_OK;
}
PX_RUN(index_reduce) {
  int dim;
  int64_t sizes[PX_MAX_DIMS];
  const px_tensor *self = args->self, *source = args->source;
  PX_SCOPED(px_tensor) line = NULL;
  PX_SCOPED(px_tensor) index = NULL;
  PX_TRY(px__wrap_dim(&dim, args->dim, self->ndim));
  PX_TRY(check_sizes(self, dim, args->index, source));
  for (int d = 0; d < source->ndim; d++) sizes[d] = d == dim ? source->sizes[d] : 1;
  PX_TRY(px_reshape(&line, args->index, sizes, source->ndim));
  PX_TRY(px_expand(&index, line, source->sizes, source->ndim));
  return px_scatter_reduce(&call->results[0], self, dim, index, source, args->reduce,
                           args->include_self);
}

// ---- softmax of sparse tensors

// Groups columns of indices that differ only in `dim`. Returns the group of each column.
static px_status groups_of(px_tensor **groups, int64_t *count, const px_tensor *indices,
                           const int64_t *size, int dim) {
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) lines = NULL;
  PX_SCOPED(px_tensor) group_counts = NULL;
  PX_TRY(
      px_zeros(&flat, &indices->sizes[1], 1, PX_INT64, px__tensor_device(indices), false, false));
  for (int d = 0; d < (int)indices->sizes[0]; d++) {
    PX_SCOPED(px_tensor) row = NULL;
    if (d == dim) continue;
    PX_TRY(px_select(&row, indices, 0, d));
    PX_TRY(px_mul_scalar_(flat, px_int(size[d])));
    PX_TRY(px_add_(flat, row, px_int(1)));
  }
  PX_TRY(px_unique(&lines, groups, &group_counts, flat, true, true, false));
  *count = lines->sizes[0];
  return PX_OK;
}
// Subtracts the maximum of each group, without gradient.
static px_status subtract_max(px_tensor **out, const px_tensor *values, const px_tensor *groups,
                              const int64_t *sizes) {
  px_dtype dtype = (px_dtype)values->dtype;
  PX_SCOPED(px_tensor) detached = NULL;
  PX_SCOPED(px_tensor) lowest_values = NULL;
  PX_SCOPED(px_tensor) maxima = NULL;
  PX_SCOPED(px_tensor) each = NULL;
  PX_TRY(px_detach(&detached, values));
  PX_TRY(px_full(&lowest_values, sizes, values->ndim, px_float(-INFINITY), dtype,
                 px__tensor_device(values), false, false));
  PX_TRY(px_index_reduce(&maxima, lowest_values, 0, groups, detached, "amax", true));
  PX_TRY(px_index_select(&each, maxima, 0, groups));
  return px_sub(out, values, each, px_int(1));
}
static px_status sparse_softmax(px_call *call, const px_tensor *indices, const px_tensor *values,
                                px_value size, int64_t dim_arg, bool log) {
  int dim, sparse = (int)indices->sizes[0];
  int64_t sizes[PX_MAX_DIMS];
  px_tensor **out = &call->results[0];
  PX_CHECK(size.n == sparse + values->ndim - 1, PX_RUNTIME, "%s(): expected %d sizes, but got %d",
           call->op->name, sparse + values->ndim - 1, (int)size.n);
  PX_TRY(px__wrap_dim(&dim, dim_arg, (int)size.n));
  if (dim >= sparse)
    return log ? px_log_softmax(out, values, dim - sparse + 1, PX_DTYPE_NONE)
               : px_softmax(out, values, dim - sparse + 1, PX_DTYPE_NONE);
  if (!values->numel) return px_clone(out, values, NULL);
  PX_SCOPED(px_tensor) groups = NULL;
  PX_SCOPED(px_tensor) low = NULL;
  PX_SCOPED(px_tensor) shares = NULL;
  PX_SCOPED(px_tensor) none = NULL;
  PX_SCOPED(px_tensor) totals = NULL;
  PX_SCOPED(px_tensor) logs = NULL;
  PX_SCOPED(px_tensor) each = NULL;
  px__sizes_copy(sizes, values->sizes, values->ndim);
  PX_TRY(groups_of(&groups, &sizes[0], indices, size.v.ints, dim));
  PX_TRY(subtract_max(&low, values, groups, sizes));
  PX_TRY(px_exp(&shares, low));
  PX_TRY(px_zeros(&none, sizes, values->ndim, (px_dtype)values->dtype, px__tensor_device(values),
                  false, false));
  PX_TRY(px_index_add(&totals, none, 0, groups, shares, px_int(1)));
  if (log) PX_TRY(px_log(&logs, totals));
  PX_TRY(px_index_select(&each, log ? logs : totals, 0, groups));
  return log ? px_sub(out, low, each, px_int(1)) : px_div(out, shares, each);
}
PX_RUN(sparse_softmax) {
  return sparse_softmax(call, args->indices, args->values, args->size, args->dim, false);
}
PX_RUN(sparse_log_softmax) {
  return sparse_softmax(call, args->indices, args->values, args->size, args->dim, true);
}

// ---- segments of a dimension

static px_status check_lengths(const px_tensor *data, const px_tensor *lengths, int axis,
                               bool offsets) {
  bool matches = lengths->ndim == axis + 1;
  PX_CHECK(data->ndim >= lengths->ndim, PX_RUNTIME,
           "Expected data.dim() >= %s_value.dim() to be true, but got false.  (Could this error "
           "message be improved?  If so, please report an enhancement request to PyTorch.)",
           offsets ? "offsets" : "lengths");
  PX_CHECK(matches, PX_RUNTIME,
           "segment_reduce(): Expected axis to be the last dimension of %s but got %d.",
           offsets ? "offsets" : "lengths", axis);
  for (int d = 0; d < axis; d++) matches = matches && data->sizes[d] == lengths->sizes[d];
  PX_CHECK(matches, PX_RUNTIME,
           "segment_reduce(): Expected the sizes of %s before axis to match those of data",
           offsets ? "offsets" : "lengths");
  PX_CHECK(!px_dtype_is_float((px_dtype)lengths->dtype) && lengths->dtype != PX_BOOL,
           PX_UNIMPLEMENTED, "\"_segment_reduce_%s_cpu_kernel1\" not implemented for '%s'",
           offsets ? "offsets" : "lengths", px_dtype_class((px_dtype)lengths->dtype));
  return PX_OK;
}
static px_status check_values(const px_tensor *lengths, int64_t n) {
  PX_SCOPED(px_tensor) lowest_values = NULL;
  PX_SCOPED(px_tensor) sums = NULL;
  PX_SCOPED(px_tensor) wrong = NULL;
  px_scalar found;
  int64_t last = -1;
  if (px__is_meta(lengths)) return PX_OK;
  PX_TRY(px_min(&lowest_values, lengths));
  PX_TRY(px_tensor_item(&found, lowest_values));
  PX_CHECK(px_scalar_int(found) >= 0, PX_RUNTIME, "lengths contains negative value!");
  PX_TRY(px_sum(&sums, lengths, &last, 1, false, PX_DTYPE_NONE));
  PX_TRY(px_ne_scalar(&wrong, sums, px_int(n)));
  PX_SCOPED(px_tensor) any = NULL;
  PX_TRY(px_any(&any, wrong, NULL, 0, false));
  PX_TRY(px_tensor_item(&found, any));
  PX_CHECK(!px_scalar_int(found), PX_RUNTIME,
           "segment_reduce(): Expected all rows of lengths along axis to sum to "
           "data.size(lengths.dim()-1) when !unsafe.");
  return PX_OK;
}
// PyTorch's text for empty offsets: a result with -1 segments.
static px_status check_offsets(const px_tensor *offsets, const px_tensor *data, int axis) {
  int64_t sizes[PX_MAX_DIMS];
  char text[256];
  px__sizes_copy(sizes, data->sizes, data->ndim);
  sizes[axis] = offsets->sizes[axis] - 1;
  PX_CHECK(offsets->sizes[axis] > 0, PX_RUNTIME,
           "Trying to create tensor with negative dimension -1: %s",
           px__sizes_text(text, sizeof text, data->ndim, sizes));
  return PX_OK;
}
static px_status segment_ends(px_tensor **out, const px_tensor *lengths, const px_tensor *offsets,
                              const px_tensor *data, int axis) {
  if (lengths) return px_cumsum(out, lengths, axis, PX_INT64);
  PX_SCOPED(px_tensor) ends = NULL;
  int64_t n = offsets->sizes[axis];
  PX_TRY(check_offsets(offsets, data, axis));
  PX_TRY(px_narrow(&ends, offsets, axis, 1, n - 1));
  return px_contiguous(out, ends);
}
// Segment of each element of data; the number of segments if it is in none.
static px_status segments_of(px_tensor **out, const px_tensor *data, const px_tensor *ends,
                             int axis) {
  int64_t sizes[PX_MAX_DIMS], n = data->sizes[axis];
  PX_SCOPED(px_tensor) line = NULL;
  PX_SCOPED(px_tensor) lines = NULL;
  PX_SCOPED(px_tensor) dense = NULL;
  PX_SCOPED(px_tensor) segment = NULL;
  PX_SCOPED(px_tensor) tall = NULL;
  px_device device = px__tensor_device(data);
  PX_TRY(px_arange(&line, px_int(0), px_int(n), px_int(1), PX_INT64, device, false, false));
  PX_TRY(px_expand(&lines, line, data->sizes, axis + 1));
  PX_TRY(px_contiguous(&dense, lines));
  PX_TRY(px_searchsorted(&segment, ends, dense, false, true, NULL, NULL));
  for (int d = 0; d < data->ndim; d++) sizes[d] = d <= axis ? data->sizes[d] : 1;
  PX_TRY(px_reshape(&tall, segment, sizes, data->ndim));
  return px_expand(out, tall, data->sizes, data->ndim);
}
// Divides sums by the number of elements. Empty segments yield NaN, unless there is an initial
// value.
static px_status mean_of(px_tensor **out, const px_tensor *sums, int axis, const px_tensor *segment,
                         bool initial) {
  PX_SCOPED(px_tensor) count = NULL;
  PX_SCOPED(px_tensor) one = NULL;
  px_device device = px__tensor_device(sums);
  PX_TRY(px_zeros(&count, sums->sizes, sums->ndim, PX_INT64, device, false, false));
  PX_TRY(px_full(&one, NULL, 0, px_int(1), PX_INT64, device, false, false));
  PX_TRY(px_scatter_add_(count, axis, segment, one));
  if (initial) PX_TRY(px_clamp_min_(count, one));
  return px_div(out, sums, count);
}
PX_RUN(segment_reduce) {
  const px_tensor *data = args->data, *given = args->lengths ? args->lengths : args->offsets;
  bool mean = !strcmp(args->reduce, "mean"), initial = px__given(args->initial);
  const char *reduce = args->reduce;
  int axis;
  PX_TRY(px__wrap_dim(&axis, args->axis, data->ndim));
  PX_TRY(check_lengths(data, given, axis, !args->lengths));
  if (args->lengths && !args->unsafe) PX_TRY(check_values(given, data->sizes[axis]));
  if (mean) reduce = "sum";
  if (!strcmp(reduce, "max")) reduce = "amax";
  if (!strcmp(reduce, "min")) reduce = "amin";
  px_dtype dtype = (px_dtype)data->dtype;
  px_scalar start = initial ? px_value_scalar(args->initial)
                            : identity_of(reduction_named(reduce)->identity, dtype);
  PX_SCOPED(px_tensor) ends = NULL;
  PX_SCOPED(px_tensor) segment = NULL;
  PX_SCOPED(px_tensor) initial_values = NULL;
  PX_SCOPED(px_tensor) reduced = NULL;
  PX_SCOPED(px_tensor) divided = NULL;
  PX_SCOPED(px_tensor) known = NULL;
  int64_t sizes[PX_MAX_DIMS];
  PX_TRY(segment_ends(&ends, args->lengths, args->offsets, args->data, axis));
  PX_TRY(segments_of(&segment, data, ends, axis));
  memcpy(sizes, data->sizes, sizeof *sizes * (size_t)data->ndim);
  sizes[axis] = ends->sizes[axis] + 1;  // one more for elements outside of all segments
  PX_TRY(px_full(&initial_values, sizes, data->ndim, start, dtype, px__tensor_device(data), false,
                 false));
  PX_TRY(px_scatter_reduce(&reduced, initial_values, axis, segment, data, reduce, true));
  if (mean) PX_TRY(mean_of(&divided, reduced, axis, segment, initial));
  PX_TRY(px_narrow(&known, mean ? divided : reduced, axis, 0, ends->sizes[axis]));
  return px_contiguous(&call->results[0], known);
}
