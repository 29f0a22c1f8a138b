// SPDX-License-Identifier: Apache-2.0
// Run functions of views with another dtype: reinterpreted bits, and complex numbers as pairs of
// real numbers. If the element size differs, the last dimension changes its size.
#include "vmap_rules/view.h"
#include "call/vmap.h"
#include "ops/core/run.h"
#include "phlox/ops/view.h"
#include "run_functions/view.h"

#include <stdio.h>

typedef struct geometry {
  int ndim;
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS], offset;
} geometry;

static geometry geometry_of(const px_tensor *t) {
  geometry g = {.ndim = t->ndim, .offset = t->offset};
  px__sizes_copy(g.sizes, t->sizes, t->ndim);
  px__sizes_copy(g.strides, t->strides, t->ndim);
  return g;
}

static px_status view_as(px_tensor **out, const px_tensor *self, const geometry *g,
                         px_dtype dtype) {
  PX_TRY(px__tensor_view(out, self, g->ndim, g->sizes, g->strides, g->offset));
  (*out)->dtype = (uint8_t)dtype;
  return PX_OK;
}

// Splits each element into `by` elements.
static void divide_elements(geometry *g, int64_t by) {
  for (int d = 0; d < g->ndim - 1; d++) g->strides[d] = px__product(g->strides[d], by);
  g->offset *= by;
  g->sizes[g->ndim - 1] *= by;
}

// Joins `by` neighbours to one element. `operation` describes the operation in PyTorch's errors.
static px_status join_elements(geometry *g, int64_t by, const char *operation) {
  int last = g->ndim - 1;
  PX_CHECK(g->sizes[last] % by == 0, PX_RUNTIME,
           "self.size(-1) must be divisible by %lld to %s, but got %lld", (long long)by, operation,
           (long long)g->sizes[last]);
  PX_CHECK(g->offset % by == 0, PX_RUNTIME,
           "self.storage_offset() must be divisible by %lld to %s, but got %lld", (long long)by,
           operation, (long long)g->offset);
  for (int d = 0; d < last; d++) {
    PX_CHECK(g->strides[d] % by == 0, PX_RUNTIME,
             "self.stride(%d) must be divisible by %lld to %s, but got %lld", d, (long long)by,
             operation, (long long)g->strides[d]);
    g->strides[d] /= by;
  }
  g->sizes[last] /= by, g->offset /= by;
  return PX_OK;
}

PX_RUN(view_dtype) {
  const px_tensor *self = args->self;
  px_dtype from = (px_dtype)self->dtype, to = args->dtype;
  PX_CHECK(to != PX_DTYPE_NONE, PX_TYPE, "view(): argument 'dtype' must be torch.dtype");
  PX_CHECK(!(px__flags(self) & PX_TENSOR_CONJ), PX_RUNTIME,
           "torch.Tensor.view is not supported for conjugate view tensors when converting to a "
           "different dtype.");
  PX_CHECK(!(px__flags(self) & PX_TENSOR_NEG), PX_RUNTIME,
           "torch.Tensor.view is not supported for tensors with negative bit set when converting "
           "to a different dtype.");
  geometry g = geometry_of(self);
  int64_t a = (int64_t)px_dtype_size(from), b = (int64_t)px_dtype_size(to);
  char operation[128];
  snprintf(operation, sizeof operation, "view %s as %s (different element sizes)",
           px_dtype_class(from), px_dtype_class(to));
  if (a != b) {
    PX_CHECK(g.ndim > 0, PX_RUNTIME, "self.dim() cannot be 0 to %s", operation);
    PX_CHECK(g.strides[g.ndim - 1] == 1, PX_RUNTIME,
             "self.stride(-1) must be 1 to %s, but got %lld", operation,
             (long long)g.strides[g.ndim - 1]);
    if (a > b)
      divide_elements(&g, a / b);
    else
      PX_TRY(join_elements(&g, b / a, operation));
  }
  return view_as(&call->results[0], self, &g, to);
}

// ---- real and imaginary parts

PX_RUN(view_as_real) {
  const px_tensor *self = args->self;
  geometry g = geometry_of(self);
  PX_CHECK(!(px__flags(self) & PX_TENSOR_CONJ), PX_RUNTIME,
           "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate "
           "tensor so you can view it as real, use self.resolve_conj(); however, be warned that "
           "the resulting tensor will NOT alias the original.");
  PX_TRY(px__check_ndim(g.ndim + 1));
  for (int d = 0; d < g.ndim; d++) g.strides[d] = px__product(g.strides[d], 2);
  g.sizes[g.ndim] = 2, g.strides[g.ndim] = 1, g.offset *= 2;
  g.ndim++;
  return view_as(&call->results[0], self, &g, px_dtype_to_real((px_dtype)self->dtype));
}

PX_RUN(view_as_complex) {
  const px_tensor *self = args->self;
  geometry g = geometry_of(self);
  px_dtype dtype = (px_dtype)self->dtype, pair = px_dtype_to_complex(dtype);
  int last = g.ndim - 1;
  PX_CHECK(pair != PX_DTYPE_NONE && pair != dtype, PX_UNIMPLEMENTED,
           "view_as_complex is only supported for half, float and double tensors, but got a tensor "
           "of scalar type: %s",
           px_dtype_class(dtype));
  PX_CHECK(g.ndim > 0, PX_RUNTIME, "Input tensor must have one or more dimensions");
  PX_CHECK(g.sizes[last] == 2, PX_RUNTIME, "Tensor must have a last dimension of size 2");
  PX_CHECK(g.strides[last] == 1, PX_RUNTIME, "Tensor must have a last dimension with stride 1");
  for (int d = 0; d < last; d++) {
    PX_CHECK(g.strides[d] % 2 == 0, PX_RUNTIME,
             "Tensor must have a stride divisible by 2 for all but last dimension");
    g.strides[d] /= 2;
  }
  PX_CHECK(g.offset % 2 == 0, PX_RUNTIME, "Tensor must have a storage_offset divisible by 2");
  g.offset /= 2, g.ndim--;
  return view_as(&call->results[0], self, &g, pair);
}

// The real or imaginary part. The imaginary part of a conjugated tensor is a negative view.
static px_status part(px_tensor **out, const px_tensor *self, int is_imag) {
  geometry g = geometry_of(self);
  unsigned flags = px__flags(self) & PX_TENSOR_NEG;
  for (int d = 0; d < g.ndim; d++) g.strides[d] = px__product(g.strides[d], 2);
  g.offset = 2 * g.offset + is_imag;
  PX_TRY(view_as(out, self, &g, px_dtype_to_real((px_dtype)self->dtype)));
  if (is_imag && (px__flags(self) & PX_TENSOR_CONJ)) flags ^= PX_TENSOR_NEG;
  (*out)->flags = (uint16_t)((px__flags(*out) & ~PX_TENSOR_CONJ_NEG) | flags);
  return PX_OK;
}
// The dimension of pairs belongs to each batch entry. Entries without dimensions fail, although the
// physical tensor has the batch dimension.
PX_VMAP_RULE(view_as_complex) { return args->self->ndim ? px__vmap_shift(b) : px__vmap_itself(b); }

PX_RUN(real) {
  if (px_dtype_is_complex((px_dtype)args->self->dtype))
    return part(&call->results[0], args->self, 0);
  call->results[0] = px_retain(args->self);
  return PX_OK;
}
PX_RUN(imag) { return part(&call->results[0], args->self, 1); }

// ---- conjugate and negative views, marked by flags

PX_RUN(conj) {
  px_tensor *self = args->self;
  if (px_dtype_is_complex((px_dtype)self->dtype))
    return px__tensor_conj_neg_view(&call->results[0], self,
                                    (px__flags(self) & PX_TENSOR_CONJ_NEG) ^ PX_TENSOR_CONJ);
  call->results[0] = px_retain(self);
  return PX_OK;
}

PX_RUN(_neg_view) {
  px_tensor *self = args->self;
  return px__tensor_conj_neg_view(&call->results[0], self,
                                  (px__flags(self) & PX_TENSOR_CONJ_NEG) ^ PX_TENSOR_NEG);
}

PX_RUN(_resolve) {
  const px_tensor *self = args->self;
  PX_TRY(px__empty_as(&call->results[0], self, (px_dtype)self->dtype, px__tensor_device(self)));
  return px__tensor_copy(call->results[0], self, false);
}

// The call path has resolved conj and neg before.
PX_RUN(resolve_conj) {
  call->results[0] = px_retain(args->self);
  return PX_OK;
}
