// SPDX-License-Identifier: Apache-2.0
// Maxima over windows given by index tables, with their indices. Dimensions are reduced from the
// last to the first. Ties thereby resolve to the first element in row-major order.
#include "ops/conv/conv_impl.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"

// The maxima after reducing some dimensions, and the flat index of each in the input volume.
typedef struct maxima {
  px_tensor *values, *indices;
} maxima;
static void maxima_drop(maxima *t) { px_release(t->values), px_release(t->indices); }

// Gathers the elements of the windows along dim: [.., outputs, window size, ..].
static px_status windows_of(px_tensor **out, const px_tensor *x, int dim, px_tensor *table) {
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) gathered = NULL;
  PX_TRY(px_flatten(&flat, table, 0, 1));
  PX_TRY(px_index_select(&gathered, x, dim, flat));
  return px_unflatten(out, gathered, dim, table->sizes, 2);
}
static px_status reduce_dim(maxima *t, int dim, px_tensor *table) {
  PX_SCOPED(px_tensor) windows = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  PX_SCOPED(px_tensor) maximum = NULL;
  PX_SCOPED(px_tensor) index = NULL;
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) gathered = NULL;
  PX_TRY(windows_of(&windows, t->values, dim, table));
  PX_TRY(windows_of(&indices, t->indices, dim, table));
  PX_TRY(px_max_dim(&maximum, &index, windows, dim + 1, false));
  PX_TRY(px_unsqueeze(&one, index, dim + 1));
  PX_TRY(px_gather(&gathered, indices, dim + 1, one, false));
  maxima next = {.values = PX_MOVE(maximum)};
  px_status status = px_squeeze_dim(&next.indices, gathered, (int64_t[]){dim + 1}, 1);
  maxima_drop(t);
  *t = next;
  return status;
}
// The flat index of each element in its volume: 0, 1, ..., expanded to the sizes of x.
static px_status flat_indices(px_tensor **out, const px_tensor *x, int dims) {
  PX_SCOPED(px_tensor) range = NULL;
  PX_SCOPED(px_tensor) shaped = NULL;
  int64_t count = px__sizes_product(x->sizes + x->ndim - dims, dims);
  PX_TRY(px_arange(&range, px_int(count), px_no_scalar(), px_int(1), PX_INT64, px__tensor_device(x),
                   false, false));
  PX_TRY(px_view(&shaped, range, x->sizes + x->ndim - dims, dims));
  return px_expand(out, shaped, x->sizes, x->ndim);
}
px_status px__max_over_windows(px_tensor **out, px_tensor **indices, px_tensor *x, int dims,
                               px__window_table *table, const void *context) {
  maxima t = {.values = px_retain(x)};
  px_status status = flat_indices(&t.indices, x, dims);
  for (int k = dims - 1; status == PX_OK && k >= 0; k--) {
    PX_SCOPED(px_tensor) elements = NULL;
    status = table(&elements, context, k, x);
    if (status == PX_OK) status = reduce_dim(&t, x->ndim - dims + k, elements);
  }
  if (status == PX_OK) status = px_contiguous(out, t.values);
  if (status == PX_OK) status = px_contiguous(indices, t.indices);
  maxima_drop(&t);
  return status;
}
