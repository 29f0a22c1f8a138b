// SPDX-License-Identifier: Apache-2.0
// Run functions of view ops on shapes and orders of dimensions. Parts and lists of parts are in
// view_part.c, gradients in view_backward.c.
#include "hidden/view.h"
#include "ops/core/run.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/view.h"
#include "run_functions/view.h"

#include <stdio.h>

// ---- sizes

static px_status copy_sizes(px_value size, int64_t *sizes) {
  PX_TRY(px__check_ndim(size.n));
  for (int i = 0; i < size.n; i++) sizes[i] = size.v.ints[i];
  return PX_OK;
}

PX_RUN(view) {
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
  bool possible;
  const px_tensor *self = args->self;
  PX_TRY(copy_sizes(args->size, sizes));
  PX_TRY(px__view_strides(&possible, self, args->size.n, sizes, strides));
  PX_CHECK(
      possible, PX_RUNTIME,
      "view size is not compatible with input tensor's size and stride (at least one dimension "
      "spans across two contiguous subspaces). Use .reshape(...) instead.");
  return px__tensor_view(&call->results[0], self, args->size.n, sizes, strides, self->offset);
}

PX_RUN(_unsafe_view) {
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
  bool possible;
  const px_tensor *self = args->self;
  PX_TRY(copy_sizes(args->size, sizes));
  PX_TRY(px__view_strides(&possible, self, args->size.n, sizes, strides));
  PX_CHECK(possible, PX_RUNTIME,
           "_unsafe_view: size is not compatible with the strides of the tensor");
  if (px__is_batched(self))
    return px__tensor_view(&call->results[0], self, args->size.n, sizes, strides, self->offset);
  return px__tensor_new(&call->results[0], self->storage, (px_dtype)self->dtype, args->size.n,
                        sizes, strides, self->offset);
}

static px_status reshape_to(px_tensor **out, px_tensor *self, const int64_t *shape, int64_t n) {
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
  bool possible;
  PX_TRY(copy_sizes(PX_IS(shape, n), sizes));
  PX_TRY(px__view_strides(&possible, self, (int)n, sizes, strides));
  if (possible) return px_view(out, self, sizes, n);
  PX_SCOPED(px_tensor) packed = NULL;
  PX_TRY(px_clone(&packed, self, "contiguous_format"));
  return px__unsafe_view(out, packed, sizes, n);
}

PX_RUN(reshape) {
  return reshape_to(&call->results[0], args->self, args->shape.v.ints, args->shape.n);
}

PX_RUN(reshape_as) {
  const px_tensor *other = args->other;
  return reshape_to(&call->results[0], args->self, other->sizes, other->ndim);
}

PX_RUN(view_as) {
  const px_tensor *other = args->other;
  return px_view(&call->results[0], args->self, other->sizes, other->ndim);
}

PX_RUN(flatten) {
  px_tensor *self = args->self;
  int first, last, n = 0;
  int64_t sizes[PX_MAX_DIMS], one = 1;
  PX_TRY(px__wrap_dim(&first, args->start_dim, self->ndim));
  PX_TRY(px__wrap_dim(&last, args->end_dim, self->ndim));
  PX_CHECK(first <= last, PX_RUNTIME,
           "flatten() has invalid args: start_dim cannot come after end_dim");
  if (self->ndim == 0) return reshape_to(&call->results[0], self, &one, 1);
  if (first == last) {
    call->results[0] = px_retain(self);
    return PX_OK;
  }
  for (int d = 0; d < first; d++) sizes[n++] = self->sizes[d];
  sizes[n++] = px__sizes_product(self->sizes + first, last - first + 1);
  for (int d = last + 1; d < self->ndim; d++) sizes[n++] = self->sizes[d];
  return reshape_to(&call->results[0], self, sizes, n);
}

PX_RUN(unflatten) {
  px_tensor *self = args->self;
  int dim, n = 0;
  int64_t sizes[PX_MAX_DIMS];
  px_value parts = args->sizes;
  PX_TRY(px__wrap_size_dim(&dim, args->dim, self->ndim));
  PX_TRY(px__check_ndim(self->ndim - 1 + parts.n));
  int64_t known = 1, inferred = -1;
  bool overflow = false;
  for (int i = 0; i < parts.n; i++) {
    if (parts.v.ints[i] == -1)
      inferred = i;
    else
      overflow |= __builtin_mul_overflow(known, parts.v.ints[i], &known);
  }
  char text[256];
  bool fits = overflow        ? false
              : inferred >= 0 ? known > 0 && self->sizes[dim] % known == 0
                              : known == self->sizes[dim];
  PX_CHECK(fits, PX_RUNTIME,
           "unflatten: Provided sizes %s don't multiply up to the size of dim %d (%lld) in the "
           "input tensor",
           px__sizes_text(text, sizeof text, parts.n, parts.v.ints), dim,
           (long long)self->sizes[dim]);
  for (int d = 0; d < dim; d++) sizes[n++] = self->sizes[d];
  for (int i = 0; i < parts.n; i++)
    sizes[n++] = i == inferred ? self->sizes[dim] / known : parts.v.ints[i];
  for (int d = dim + 1; d < self->ndim; d++) sizes[n++] = self->sizes[d];
  return px_view(&call->results[0], self, sizes, n);
}

static px_status squeeze_dims(px_tensor **out, const px_tensor *self, uint64_t dims) {
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
  int n = 0;
  for (int d = 0; d < self->ndim; d++) {
    if ((dims >> d & 1) && self->sizes[d] == 1) continue;
    sizes[n] = self->sizes[d], strides[n++] = self->strides[d];
  }
  return px__tensor_view(out, self, n, sizes, strides, self->offset);
}

PX_RUN(squeeze) { return squeeze_dims(&call->results[0], args->self, UINT64_MAX); }

PX_RUN(squeeze_dim) {
  const px_tensor *self = args->self;
  uint64_t dims;
  PX_TRY(px__wrap_dims(&dims, args->dim.v.ints, args->dim.n, self->ndim));
  return squeeze_dims(&call->results[0], args->self, dims);
}

PX_RUN(unsqueeze) {
  const px_tensor *self = args->self;
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
  int dim;
  PX_TRY(px__check_ndim(self->ndim + 1));
  PX_TRY(px__wrap_dim(&dim, args->dim, self->ndim + 1));
  for (int d = 0, from = 0; d <= self->ndim; d++) {
    if (d == dim) continue;
    sizes[d] = self->sizes[from], strides[d] = self->strides[from++];
  }
  sizes[dim] = 1;
  strides[dim] = dim < self->ndim ? px__steps(self->sizes[dim], self->strides[dim]) : 1;
  return px__tensor_view(&call->results[0], self, self->ndim + 1, sizes, strides, self->offset);
}

static px_status expand_size(const px_tensor *self, px_value size, int d, int64_t *out,
                             int64_t *stride) {
  int from = d - (size.n - self->ndim);
  int64_t want = size.v.ints[d];
  char target[256], have[256];
  if (from < 0) {
    PX_CHECK(want >= 0, PX_RUNTIME,
             "The expanded size of the tensor (%lld) isn't allowed in a leading, non-existing "
             "dimension %d",
             (long long)want, d);
    *out = want, *stride = 0;
    return PX_OK;
  }
  int64_t has = self->sizes[from];
  if (want == -1) want = has;
  PX_CHECK(want == has || (has == 1 && want >= 0), PX_RUNTIME,
           "The expanded size of the tensor (%lld) must match the existing size (%lld) at "
           "non-singleton dimension %d.  Target sizes: %s.  Tensor sizes: %s",
           (long long)want, (long long)has, d,
           px__sizes_text(target, sizeof target, size.n, size.v.ints),
           px__sizes_text(have, sizeof have, self->ndim, self->sizes));
  *out = want, *stride = want == has ? self->strides[from] : 0;
  return PX_OK;
}

// PyTorch's type name of a tensor in errors of expand. Newer dtypes have another format.
static const char *type_name(const px_tensor *t, char text[48]) {
  const px_dtype dtype = (px_dtype)t->dtype;
  bool newer = dtype == PX_BOOL || dtype == PX_BFLOAT16 || px_dtype_is_complex(dtype) ||
               dtype >= PX_DTYPE_COMPUTED;
  if (!newer) return px_tensor_type_name(t, text);
  snprintf(text, 48, "%s%sType", px_tensor_is_cuda(t) ? "CUDA" : "CPU", px_dtype_class(dtype));
  return text;
}
PX_RUN(expand) {
  const px_tensor *self = args->self;
  px_value size = args->size;
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
  char text[256], target_text[256], type[48];
  PX_TRY(px__check_ndim(size.n));
  PX_CHECK(size.n >= self->ndim, PX_RUNTIME,
           "expand(%s{%s}, size=%s): the number of sizes provided (%d) must be greater or equal to "
           "the number of dimensions in the tensor (%d)",
           type_name(self, type), px__sizes_text(text, sizeof text, self->ndim, self->sizes),
           px__sizes_text(target_text, sizeof target_text, size.n, size.v.ints), size.n,
           self->ndim);
  int64_t numel = 1;
  bool over = false;
  for (int d = size.n - 1; d >= 0; d--) {
    PX_TRY(expand_size(self, size, d, &sizes[d], &strides[d]));
    over |= px__mul_size(numel, sizes[d], &numel);
  }
  PX_CHECK(!over, PX_RUNTIME, "numel: integer multiplication overflow");
  return px__tensor_view(&call->results[0], self, size.n, sizes, strides, self->offset);
}

PX_RUN(expand_as) {
  const px_tensor *other = args->other;
  return px_expand(&call->results[0], args->self, other->sizes, other->ndim);
}

// ---- the order of dimensions

static px_status swap_dims(px_tensor **out, const px_tensor *self, int a, int b) {
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
  for (int d = 0; d < self->ndim; d++) {
    int from = d == a ? b : d == b ? a : d;
    sizes[d] = self->sizes[from], strides[d] = self->strides[from];
  }
  return px__tensor_view(out, self, self->ndim, sizes, strides, self->offset);
}

PX_RUN(transpose) {
  int a, b, ndim = args->self->ndim;
  PX_TRY(px__wrap_dim(&a, args->dim0, ndim));
  PX_TRY(px__wrap_dim(&b, args->dim1, ndim));
  return swap_dims(&call->results[0], args->self, a, b);
}

PX_RUN(t) {
  int ndim = args->self->ndim;
  PX_CHECK(ndim <= 2, PX_RUNTIME, "t() expects a tensor with <= 2 dimensions, but self is %dD",
           ndim);
  return swap_dims(&call->results[0], args->self, 0, ndim == 2);
}

PX_RUN(permute) {
  const px_tensor *self = args->self;
  px_value dims = args->dims;
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
  uint64_t seen = 0;
  PX_CHECK(
      dims.n == self->ndim, PX_RUNTIME,
      "permute(sparse_coo): number of dimensions in the tensor input does not match the length "
      "of the desired ordering of dimensions i.e. input.dim() = %d is not equal to len(dims) = "
      "%d",
      self->ndim, dims.n);
  for (int d = 0; d < dims.n; d++) {
    int from;
    PX_TRY(px__wrap_dim(&from, dims.v.ints[d], self->ndim));
    PX_CHECK(!(seen >> from & 1), PX_RUNTIME, "permute(): duplicate dims are not allowed.");
    seen |= UINT64_C(1) << from;
    sizes[d] = self->sizes[from], strides[d] = self->strides[from];
  }
  return px__tensor_view(&call->results[0], self, self->ndim, sizes, strides, self->offset);
}

PX_RUN(numpy_T) {
  px_tensor *self = args->self;
  int64_t dims[PX_MAX_DIMS];
  for (int d = 0; d < self->ndim; d++) dims[d] = self->ndim - 1 - d;
  return px_permute(&call->results[0], self, dims, self->ndim);
}

PX_RUN(matrix_T) {
  px_tensor *self = args->self;
  return px_transpose(&call->results[0], self, -2, -1);
}

// Adds the dimensions of a list to a bit mask. Fails on duplicates.
static px_status unique_dims(uint64_t *seen, px_value dims, int ndim, const char *name) {
  char text[256];
  for (int i = 0; i < dims.n; i++) {
    int d;
    PX_TRY(px__wrap_dim(&d, dims.v.ints[i], ndim));
    PX_CHECK(!(*seen >> d & 1), PX_RUNTIME, "movedim: repeated dim in `%s` (%s)", name,
             px__sizes_text(text, sizeof text, dims.n, dims.v.ints));
    *seen |= UINT64_C(1) << d;
  }
  return PX_OK;
}
PX_RUN(movedim) {
  px_tensor *self = args->self;
  px_value from = args->source, to = args->destination;
  int64_t dims[PX_MAX_DIMS];
  uint64_t taken = 0, placed = 0;
  PX_TRY(unique_dims(&taken, from, self->ndim, "source"));
  PX_TRY(unique_dims(&placed, to, self->ndim, "destination"));
  for (int i = 0; i < from.n; i++) {
    int a, b;
    PX_TRY(px__wrap_dim(&a, from.v.ints[i], self->ndim));
    PX_TRY(px__wrap_dim(&b, to.v.ints[i], self->ndim));
    dims[b] = a;
  }
  for (int d = 0, next = 0; d < self->ndim; d++) {
    if (placed >> d & 1) continue;
    while (taken >> next & 1) next++;
    dims[d] = next++;
  }
  return px_permute(&call->results[0], self, dims, self->ndim);
}

// ---- arbitrary strides

PX_RUN(as_strided) {
  px_tensor *self = args->self;
  int64_t offset = px__given(args->storage_offset) ? args->storage_offset.v.i : self->offset;
  return px__as_strided(&call->results[0], self, args->size.v.ints, args->size.n,
                        args->stride.v.ints, args->stride.n, offset, self->strides, self->ndim,
                        self->offset);
}

PX_RUN(as_strided_again) {
  bool given = px__given(args->storage_offset);
  return px_tensor_as_strided(&call->results[0], args->self, args->size.n, args->size.v.ints,
                              args->stride.v.ints,
                              given ? args->storage_offset.v.i : args->self->offset);
}

PX_RUN(_as_strided) {
  return px_tensor_as_strided(&call->results[0], args->self, args->size.n, args->size.v.ints,
                              args->stride.v.ints, args->storage_offset);
}

PX_RUN(detach) { return px_tensor_detach(&call->results[0], args->self); }

PX_RUN(alias) {
  const px_tensor *self = args->self;
  return px__tensor_view(&call->results[0], self, self->ndim, self->sizes, self->strides,
                         self->offset);
}
