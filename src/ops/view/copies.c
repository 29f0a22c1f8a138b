// SPDX-License-Identifier: Apache-2.0
// Copying variants of list-returning views, sum_to_size and nonzero_static.
#include "ops/core/run.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/index.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/copies.h"

// Returns a list of copies instead of views.
static px_status copy_parts(px_call *call, const px_list *views) {
  int64_t count = px_list_size(views), made = 0;
  px_tensor **items = NULL;
  px_status status = PX_OK;
  PX_TRY(px__alloc((void **)&items, (size_t)(count + 1) * sizeof *items));
  while (made < count && status == PX_OK) {
    status = px_clone(&items[made], px_list_get(views, made), "contiguous_format");
    if (status == PX_OK) made++;
  }
  if (status == PX_OK) status = px_list_new(&call->list, items, count);
  for (int64_t i = 0; i < made; i++) px_release(items[i]);
  px__free(items);
  return status;
}

PX_RUN(unbind_copy) {
  PX_SCOPED(px_list) views = NULL;
  PX_TRY(px_unbind(&views, args->self, args->dim));
  return copy_parts(call, views);
}
PX_RUN(split_copy) {
  PX_SCOPED(px_list) views = NULL;
  PX_TRY(px_split(&views, args->self, args->split_size, args->dim));
  return copy_parts(call, views);
}
PX_RUN(split_with_sizes_copy) {
  PX_SCOPED(px_list) views = NULL;
  PX_TRY(px_split_with_sizes(&views, args->self, args->split_sizes.v.ints, args->split_sizes.n,
                             args->dim));
  return copy_parts(call, views);
}

// ---- _chunk_cat

// Checks the tensors and wraps the dimension, which all of them have.
static px_status check_chunks(int *dim, const px_value list, int64_t given) {
  PX_CHECK(list.n > 0, PX_RUNTIME, "_chunk_cat expects a non-empty input tensor list");
  const px_tensor *first = list.v.tensors[0];
  bool same_ndim = true, fits = true;
  for (int i = 0; i < list.n; i++) {
    const px_tensor *t = list.v.tensors[i];
    PX_CHECK(t->numel > 0, PX_RUNTIME, "_chunk_cat expects non-empty tensor");
    PX_CHECK(t->dtype == first->dtype, PX_RUNTIME,
             "_chunk_cat expects all input tensors with the same dtype");
    same_ndim &= t->ndim == first->ndim, fits &= given < t->ndim;
  }
  PX_CHECK(same_ndim || given >= 0, PX_RUNTIME,
           "_chunk_cat expects non-negative dim when input tensors have different ndims");
  if (same_ndim) PX_TRY(px__wrap_dim(dim, given, first->ndim));
  PX_CHECK(same_ndim ? first->ndim > 0 : fits, PX_RUNTIME,
           "_chunk_cat expects dim < ndim for all input tensors");
  return same_ndim ? PX_OK : px__wrap_dim(dim, given, first->ndim);
}
// Reshapes to [sizes before dim, chunks, rest]. The last chunk is padded with zeros.
static px_status chunked(px_tensor **out, const px_tensor *t, int dim, int64_t chunks) {
  int64_t pad[2 * PX_MAX_DIMS] = {0}, sizes[PX_MAX_DIMS + 2], have = t->sizes[dim];
  int64_t each = have / chunks + (have % chunks != 0);
  PX_SCOPED(px_tensor) padded = NULL;
  pad[2 * (t->ndim - 1 - dim) + 1] = px__difference(px__product(each, chunks), have);
  PX_TRY(px_constant_pad_nd(&padded, t, pad, 2 * (t->ndim - dim), px_int(0)));
  px__sizes_copy(sizes, t->sizes, dim);
  sizes[dim] = chunks, sizes[dim + 1] = -1;
  return px_reshape(out, padded, sizes, dim + 2);
}
PX_RUN(_chunk_cat) {
  const px_value list = args->tensors;
  px_tensor **items = NULL;
  int dim, made = 0;
  PX_TRY(check_chunks(&dim, list, args->dim));
  const px_tensor *first = list.v.tensors[0];
  for (int i = 1; i < list.n; i++)
    for (int d = 0; d < dim; d++)
      PX_CHECK(list.v.tensors[i]->sizes[d] == first->sizes[d], PX_RUNTIME,
               "_chunk_cat expects same sizes of 0,...,dim-1 dimensions for all tensors");
  PX_TRY(px__alloc((void **)&items, (size_t)list.n * sizeof *items));
  px_status status = PX_OK;
  while (made < list.n && status == PX_OK) {
    status = chunked(&items[made], list.v.tensors[made], dim, args->num_chunks);
    if (status == PX_OK) made++;
  }
  if (status == PX_OK) status = px_cat(&call->results[0], items, list.n, dim + 1);
  for (int i = 0; i < made; i++) px_release(items[i]);
  px__free(items);
  return status;
}

// Sums over the leading dimensions and those of target size 1. A sum over all dimensions, to a
// 0-dim tensor, is int64 for integers.
PX_RUN(sum_to_size) {
  const px_tensor *self = args->self;
  int lead = self->ndim - args->size.n, count = 0;
  int64_t dims[PX_MAX_DIMS];
  bool fits = lead >= 0;
  for (int d = 0; d < self->ndim && fits; d++) {
    int64_t size = d < lead ? 1 : args->size.v.ints[d - lead];
    fits = size == self->sizes[d] || size == 1;
    if (d < lead || size != self->sizes[d]) dims[count++] = d;
  }
  char want[128], have[128];
  PX_CHECK(fits, PX_RUNTIME, "size {%s} is not expandable to size {%s}.",
           px__sizes_text(want, sizeof want, args->size.n, args->size.v.ints),
           px__size_text(have, sizeof have, self));
  if (!args->size.n) return px_sum_all(&call->results[0], self, PX_DTYPE_NONE);
  if (!count) return px_view(&call->results[0], self, self->sizes, self->ndim);
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_sum(&sum, self, dims, count, true, PX_DTYPE_NONE));
  return px_view(&call->results[0], sum, args->size.v.ints, args->size.n);
}
