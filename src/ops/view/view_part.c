// SPDX-License-Identifier: Apache-2.0
// Run functions of views of parts of a tensor: select, slices, diagonals and windows, and lists of
// parts.
#include "ops/core/run.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/view.h"
#include "run_functions/view.h"

// The offset of a view that starts `steps` elements along dim. Empty tensors may have arbitrary
// strides; if the offset would overflow or be out of range, it stays the offset of self.
static int64_t view_offset(const px_tensor *self, int dim, int64_t steps) {
  const int64_t limit = (int64_t)1 << 56;
  int64_t at;
  bool invalid = px__mul_size(steps, self->strides[dim], &at) ||
                 px__add_size(self->offset, at, &at) || at > limit || at < 0;
  return invalid ? self->offset : at;
}

// ---- single parts

static px_status dim_of_nonscalar(int *dim, const px_tensor *self, int64_t given, const char *op) {
  PX_CHECK(self->ndim > 0, PX_INDEX, "%s() cannot be applied to a 0-dim tensor.", op);
  return px__wrap_dim(dim, given, self->ndim);
}

px_status px__part_select(px_tensor **out, const px_tensor *self, int dim, int64_t index) {
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS], n = self->sizes[dim];
  PX_CHECK(index >= -n && index < n, PX_INDEX,
           "index %lld is out of bounds for dimension %d with size %lld", (long long)index, dim,
           (long long)n);
  if (index < 0) index += n;
  for (int d = 0, to = 0; d < self->ndim; d++) {
    if (d == dim) continue;
    sizes[to] = self->sizes[d], strides[to++] = self->strides[d];
  }
  return px__tensor_view(out, self, self->ndim - 1, sizes, strides, view_offset(self, dim, index));
}

PX_RUN(select) {
  const px_tensor *self = args->self;
  int dim;
  PX_TRY(dim_of_nonscalar(&dim, self, args->dim, "select"));
  int64_t size = self->sizes[dim];
  char text[256];
  PX_CHECK(args->index >= -size && args->index < size, PX_INDEX,
           "select(): index %lld out of range for tensor of size %s at dimension %lld",
           (long long)args->index, px__size_text(text, sizeof text, self), (long long)args->dim);
  return px__part_select(&call->results[0], self, dim, args->index);
}

static int64_t clamp_index(int64_t index, int64_t n) {
  if (index < 0) index += n;
  return index < 0 ? 0 : index > n ? n : index;
}

static px_status slice_range(const px_tensor *self, px_value start, px_value end, int64_t step,
                             int dim, int64_t *first, int64_t *count) {
  PX_CHECK(self->ndim > 0, PX_INDEX, "slice() cannot be applied to a 0-dim tensor.");
  int64_t n = self->sizes[dim];
  PX_CHECK(step > 0, PX_VALUE, "step must be greater than zero");
  int64_t from = start.kind == PX_ARG_NONE ? 0 : clamp_index(start.v.i, n);
  int64_t to = end.kind == PX_ARG_NONE ? n : clamp_index(end.v.i, n);
  *first = from;
  *count = to > from ? (to - from - 1) / step + 1 : 0;
  return PX_OK;
}

px_status px__part_slice(px_tensor **out, const px_tensor *self, int dim, int64_t first,
                         int64_t count, int64_t step) {
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
  px__sizes_copy(sizes, self->sizes, self->ndim);
  px__sizes_copy(strides, self->strides, self->ndim);
  sizes[dim] = count;
  // The stride of a dimension of size 0 or 1 is unused, and its product with step might overflow.
  strides[dim] = count > 1 ? px__steps(step, strides[dim]) : strides[dim];
  return px__tensor_view(out, self, self->ndim, sizes, strides, view_offset(self, dim, first));
}

PX_RUN(slice) {
  const px_tensor *self = args->self;
  int dim;
  int64_t first = 0, count = 0, step = args->step;
  PX_TRY(dim_of_nonscalar(&dim, self, args->dim, "slice"));
  PX_TRY(slice_range(self, args->start, args->end, step, dim, &first, &count));
  return px__part_slice(&call->results[0], self, dim, first, count, step);
}

PX_RUN(narrow_from) {
  px_scalar start;
  PX_TRY(px_tensor_item(&start, args->start));
  return px_narrow(&call->results[0], args->self, args->dim, px_scalar_int(start), args->length);
}
PX_RUN(narrow) {
  px_tensor *self = args->self;
  int dim;
  int64_t start = args->start, length = args->length;
  PX_TRY(px__wrap_dim(&dim, args->dim, self->ndim));
  int64_t n = self->sizes[dim];
  PX_CHECK(start >= -n && start <= n, PX_INDEX,
           "start out of range (expected to be in range of [%lld, %lld], but got %lld)",
           (long long)-n, (long long)n, (long long)start);
  if (start < 0) start += n;
  PX_CHECK(start <= n - length, PX_RUNTIME,
           "start (%lld) + length (%lld) exceeds dimension size (%lld).", (long long)start,
           (long long)length, (long long)n);
  int64_t end = start + length;
  if (!px__needs_grad(self)) return px__part_slice(&call->results[0], self, dim, start, length, 1);
  return px_slice(&call->results[0], self, dim, &start, &end, 1);
}

PX_RUN(diagonal) {
  const px_tensor *self = args->self;
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS], shift = args->offset;
  int a, b, n = 0;
  PX_TRY(px__wrap_dim(&a, args->dim1, self->ndim));
  PX_TRY(px__wrap_dim(&b, args->dim2, self->ndim));
  PX_CHECK(a != b && self->ndim >= 2, PX_RUNTIME,
           "diagonal dimensions cannot be identical %lld, %lld", (long long)args->dim1,
           (long long)args->dim2);
  if (shift < -INT64_MAX) shift = -INT64_MAX;  // -shift must not overflow
  int64_t rows = self->sizes[a] - (shift < 0 ? -shift : 0);
  int64_t columns = self->sizes[b] - (shift > 0 ? shift : 0);
  int64_t length = rows < columns ? rows : columns, offset = self->offset;
  if (length < 0) length = 0;
  if (length > 0) offset = shift > 0 ? view_offset(self, b, shift) : view_offset(self, a, -shift);
  for (int d = 0; d < self->ndim; d++) {
    if (d == a || d == b) continue;
    sizes[n] = self->sizes[d], strides[n++] = self->strides[d];
  }
  sizes[n] = length;
  strides[n++] = (int64_t)((uint64_t)self->strides[a] + (uint64_t)self->strides[b]);
  return px__tensor_view(&call->results[0], self, n, sizes, strides, offset);
}

PX_RUN(unfold) {
  const px_tensor *self = args->self;
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
  int64_t size = args->size, step = args->step;
  int dim, n = self->ndim;
  PX_TRY(px__wrap_dim(&dim, args->dimension, n));
  int64_t length = n ? self->sizes[dim] : 1;
  PX_TRY(px__check_ndim(n + 1));
  PX_CHECK(size <= length, PX_RUNTIME,
           "maximum size for tensor at dimension %d is %lld but size is %lld", dim,
           (long long)length, (long long)size);
  px__sizes_copy(sizes, self->sizes, self->ndim);
  px__sizes_copy(strides, self->strides, self->ndim);
  sizes[n] = size;
  strides[n] = n ? self->strides[dim] : 1;
  if (n) {
    sizes[dim] = (length - size) / step + 1;
    strides[dim] = sizes[dim] > 1 ? px__steps(step, strides[dim]) : strides[dim];
  }
  return px__tensor_view(&call->results[0], self, n + 1, sizes, strides, self->offset);
}

// ---- lists of parts

typedef struct parts {
  px_tensor **items;
  int64_t count, capacity;
} parts;

static void parts_drop(parts *p) {
  for (int64_t i = 0; i < p->count; i++) px_release(p->items[i]);
  px__free(p->items);
}

static px_status parts_alloc(parts *p, int64_t capacity) {
  p->count = 0, p->capacity = capacity, p->items = NULL;
  PX_CHECK(capacity < INT64_MAX / (int64_t)sizeof *p->items, PX_NOMEM, "too many parts");
  return capacity ? px__alloc((void **)&p->items, (size_t)capacity * sizeof *p->items) : PX_OK;
}

static px_status parts_finish(px_call *call, parts *p, px_status status) {
  if (status == PX_OK) status = px_list_new(&call->list, p->items, p->count);
  parts_drop(p);
  return status;
}

static px_status unbind_into(parts *p, const px_tensor *self, int dim) {
  for (; p->count < p->capacity; p->count++)
    PX_TRY(px__part_select(&p->items[p->count], self, dim, p->count));
  return PX_OK;
}

PX_RUN(unbind) {
  const px_tensor *self = args->self;
  int dim;
  parts p;
  PX_TRY(px__wrap_dim(&dim, args->dim, self->ndim));
  PX_TRY(parts_alloc(&p, self->sizes[dim]));
  return parts_finish(call, &p, unbind_into(&p, self, dim));
}

// Pieces of `each` elements, or of the given sizes.
static px_status split_into(parts *p, const px_tensor *self, int dim, int64_t piece,
                            const int64_t *sizes) {
  int64_t at = 0, n = self->sizes[dim];
  for (; p->count < p->capacity; p->count++) {
    int64_t size = sizes ? sizes[p->count] : n - at < piece ? n - at : piece;
    PX_TRY(px__part_slice(&p->items[p->count], self, dim, at, size, 1));
    at += size;
  }
  return PX_OK;
}

PX_RUN(split) {
  const px_tensor *self = args->self;
  int64_t piece = args->split_size;
  int dim;
  parts p;
  PX_TRY(px__wrap_dim(&dim, args->dim, self->ndim));
  int64_t n = self->sizes[dim];
  PX_CHECK(piece > 0 || n == 0, PX_RUNTIME,
           "split_size can only be 0 if dimension size is 0, but got dimension size of %lld",
           (long long)n);
  PX_TRY(parts_alloc(&p, n == 0 ? 1 : (n - 1) / piece + 1));
  return parts_finish(call, &p, split_into(&p, self, dim, piece, NULL));
}

PX_RUN(split_with_sizes) {
  const px_tensor *self = args->self;
  px_value sizes = args->split_sizes;
  int dim;
  parts p;
  char text[256];
  PX_TRY(px__wrap_dim(&dim, args->dim, self->ndim));
  int64_t sum = 0;
  bool over = false;
  px__sizes_text(text, sizeof text, sizes.n, sizes.v.ints);
  for (int i = 0; i < sizes.n; i++) over |= px__add_size(sum, sizes.v.ints[i], &sum);
  PX_CHECK(!over && sum == self->sizes[dim], PX_RUNTIME,
           "split_with_sizes expects split_sizes to sum exactly to %lld (input tensor's size at "
           "dimension %d), but got split_sizes=%s",
           (long long)self->sizes[dim], dim, text);
  PX_TRY(parts_alloc(&p, sizes.n));
  return parts_finish(call, &p, split_into(&p, self, dim, 0, sizes.v.ints));
}

PX_RUN(chunk) {
  px_tensor *self = args->self;
  int64_t chunks = args->chunks;
  int dim;
  PX_TRY(px__wrap_dim(&dim, args->dim, self->ndim));
  int64_t n = self->sizes[dim], piece = n / chunks + (n % chunks != 0);
  if (piece > 0) return px_split(&call->list, self, piece, dim);
  // An empty dimension yields `chunks` empty pieces.
  int64_t *sizes = NULL;
  PX_CHECK(chunks < 1 << 20, PX_RUNTIME, "too many chunks");
  PX_TRY(px__alloc((void **)&sizes, (size_t)chunks * sizeof *sizes));
  px_status status = px_split_with_sizes(&call->list, self, sizes, chunks, dim);
  px__free(sizes);
  return status;
}

PX_RUN(tensor_split) {
  px_tensor *self = args->self;
  int64_t n, sections = args->sections, *sizes = NULL;
  int dim;
  PX_TRY(px__wrap_dim(&dim, args->dim, self->ndim));
  n = self->sizes[dim];
  PX_TRY(px__alloc((void **)&sizes, (size_t)sections * sizeof *sizes));
  for (int64_t i = 0; i < sections; i++) sizes[i] = n / sections + (i < n % sections);
  px_status status = px_split_with_sizes(&call->list, self, sizes, sections, dim);
  px__free(sizes);
  return status;
}

// Splits at the given indices. Indices are clamped like those of slices.
static px_status cut_into(parts *p, const px_tensor *self, int64_t dim, px_value indices) {
  int64_t n = self->sizes[dim], start = 0;
  for (; p->count < p->capacity; p->count++) {
    int64_t end = p->count < indices.n ? indices.v.ints[p->count] : n;
    PX_TRY(px_slice(&p->items[p->count], self, dim, &start, &end, 1));
    start = end;
  }
  return PX_OK;
}
PX_RUN(tensor_split_at) {
  int dim;
  parts p;
  PX_TRY(px__wrap_dim(&dim, args->dim, args->self->ndim));
  PX_TRY(parts_alloc(&p, (int64_t)args->indices.n + 1));
  return parts_finish(call, &p, cut_into(&p, args->self, dim, args->indices));
}
PX_RUN(tensor_split_tensor) {
  const px_tensor *splits = args->tensor_indices_or_sections;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_CHECK(px__tensor_device(splits).type == PX_CPU, PX_RUNTIME,
           "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on %s",
           px_device_type_name(px__tensor_device(splits).type));
  PX_TRY(px__check_not_batched(splits));
  PX_TRY(px_contiguous(&flat, splits));
  const int64_t *points;
  PX_TRY(px__tensor_read(&points, flat));
  if (!splits->ndim) return px_tensor_split(&call->list, args->self, points[0], args->dim);
  return px_tensor_split_at(&call->list, args->self, points, flat->numel, args->dim);
}
