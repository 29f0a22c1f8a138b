// SPDX-License-Identifier: Apache-2.0
// Gradients of view ops without formulas: lists of parts, and permutations.
#include "autograd/rules/backward.h"

#include "grad_functions.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"

px_status px__grad_permute(px_tensor **out, px_tensor *grad, px_value dims) {
  int64_t inverse[PX_MAX_DIMS];
  for (int d = 0; d < dims.n; d++) {
    int64_t from = dims.v.ints[d];
    inverse[from < 0 ? from + dims.n : from] = d;
  }
  return px_permute(out, grad, inverse, dims.n);
}

static int wrapped(int64_t dim, const px_tensor *t) {
  return (int)(dim < 0 ? dim + px_tensor_ndim(t) : dim);
}

// Returns the gradient, or zeros of the given sizes if none arrived.
static px_status complete(px_tensor **out, px_tensor *grad, const px_tensor *like, int ndim,
                          const int64_t *sizes) {
  if (grad) {
    *out = px_retain(grad);
    return PX_OK;
  }
  return px_zeros(out, sizes, ndim, px_tensor_dtype(like), px_tensor_device(like), false, false);
}

typedef struct pieces {
  px_tensor **items;
  int count;
} pieces;
static void drop(pieces *p) {
  for (int i = 0; i < p->count; i++) px_release(p->items[i]);
  px_free(p->items);
}
static px_status make_pieces(pieces *p, int count) {
  p->items = NULL, p->count = count;
  return px_alloc((void **)&p->items, (size_t)(count ? count : 1) * sizeof *p->items);
}

static px_status stack_pieces(px__backward *b, pieces *p, const px_tensor *self, int dim,
                              px_tensor **out) {
  int64_t sizes[PX_MAX_DIMS];
  int n = 0;
  for (int d = 0; d < px_tensor_ndim(self); d++)
    if (d != dim) sizes[n++] = px_tensor_sizes(self)[d];
  for (int i = 0; i < p->count; i++) PX_TRY(complete(&p->items[i], b->grads[i], self, n, sizes));
  return px_stack(out, p->items, p->count, dim);
}

PX_GRAD(unbind) {
  const px_tensor *self = args->self;
  pieces p;
  if (b->grad_count == 0)
    return complete(args->d_self, NULL, self, px_tensor_ndim(self), px_tensor_sizes(self));
  PX_TRY(make_pieces(&p, b->grad_count));
  px_status status = stack_pieces(b, &p, self, wrapped(args->dim, self), args->d_self);
  drop(&p);
  return status;
}

// Size of piece i along a dimension of size n. `sizes`: a common size, or a list.
static int64_t piece_size(px_value sizes, int64_t n, int i) {
  if (sizes.kind == PX_ARG_INTS) return sizes.v.ints[i];
  int64_t left = n - i * sizes.v.i;
  return left < sizes.v.i ? left : sizes.v.i;
}

static px_status join_pieces(px__backward *b, pieces *p, const px_tensor *self, px_value split,
                             int dim, px_tensor **out) {
  int ndim = px_tensor_ndim(self);
  int64_t sizes[PX_MAX_DIMS];
  for (int d = 0; d < ndim; d++) sizes[d] = px_tensor_sizes(self)[d];
  for (int i = 0; i < p->count; i++) {
    sizes[dim] = piece_size(split, px_tensor_sizes(self)[dim], i);
    PX_TRY(complete(&p->items[i], b->grads[i], self, ndim, sizes));
  }
  return px_cat(out, p->items, p->count, dim);
}

static px_status joined(px__backward *b, const px_tensor *self, px_value split, int64_t dim,
                        px_tensor **out) {
  pieces p;
  PX_TRY(make_pieces(&p, b->grad_count));
  px_status status = join_pieces(b, &p, self, split, wrapped(dim, self), out);
  drop(&p);
  return status;
}
PX_GRAD(split) { return joined(b, args->self, PX_I(args->split_size), args->dim, args->d_self); }
PX_GRAD(split_with_sizes) {
  return joined(b, args->self, args->split_sizes, args->dim, args->d_self);
}
