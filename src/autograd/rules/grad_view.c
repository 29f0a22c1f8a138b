// SPDX-License-Identifier: Apache-2.0
// Gradients of view ops that are no formula: lists of parts, and orders of dimensions.
#include "autograd/rules/backward.h"

#include "grad_functions.h"

px_status px__grad_permute(px_tensor **out, const px_value *args, int count) {
  int64_t inverse[PX_MAX_DIMS];
  int n = args[1].n;
  for (int d = 0; d < n; d++) {
    int64_t from = args[1].v.ints[d];
    inverse[from < 0 ? from + n : from] = d;
  }
  return px_permute(out, args[0].v.tensor, inverse, n);
}

static int wrapped(int64_t dim, const px_tensor *t) {
  return (int)(dim < 0 ? dim + px_tensor_ndim(t) : dim);
}

// Fills in zeros, of the sizes given, where no gradient arrived.
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

static px_status stack_pieces(px__backward *b, pieces *p, int dim) {
  const px_tensor *self = b->args[0].v.tensor;
  int64_t sizes[PX_MAX_DIMS];
  int n = 0;
  for (int d = 0; d < px_tensor_ndim(self); d++)
    if (d != dim) sizes[n++] = px_tensor_sizes(self)[d];
  for (int i = 0; i < p->count; i++) PX_TRY(complete(&p->items[i], b->grads[i], self, n, sizes));
  return px_stack(&b->out[0], p->items, p->count, dim);
}

px_status px__grad_unbind(px__backward *b) {
  const px_tensor *self = b->args[0].v.tensor;
  pieces p;
  if (b->grad_count == 0)
    return complete(&b->out[0], NULL, self, px_tensor_ndim(self), px_tensor_sizes(self));
  PX_TRY(make_pieces(&p, b->grad_count));
  px_status status = stack_pieces(b, &p, wrapped(b->args[1].v.i, self));
  drop(&p);
  return status;
}

// The size of piece i of a dimension: a number for all, or a list.
static int64_t piece_size(px_value sizes, int64_t n, int i) {
  if (sizes.kind == PX_ARG_INTS) return sizes.v.ints[i];
  int64_t left = n - i * sizes.v.i;
  return left < sizes.v.i ? left : sizes.v.i;
}

static px_status join_pieces(px__backward *b, pieces *p, int dim) {
  const px_tensor *self = b->args[0].v.tensor;
  int ndim = px_tensor_ndim(self);
  int64_t sizes[PX_MAX_DIMS];
  for (int d = 0; d < ndim; d++) sizes[d] = px_tensor_sizes(self)[d];
  for (int i = 0; i < p->count; i++) {
    sizes[dim] = piece_size(b->args[1], px_tensor_sizes(self)[dim], i);
    PX_TRY(complete(&p->items[i], b->grads[i], self, ndim, sizes));
  }
  return px_cat(&b->out[0], p->items, p->count, dim);
}

px_status px__grad_split(px__backward *b) {
  pieces p;
  PX_TRY(make_pieces(&p, b->grad_count));
  px_status status = join_pieces(b, &p, wrapped(b->args[2].v.i, b->args[0].v.tensor));
  drop(&p);
  return status;
}

px_status px__grad_split_with_sizes(px__backward *b) { return px__grad_split(b); }
