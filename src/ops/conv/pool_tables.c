// SPDX-License-Identifier: Apache-2.0
// Maxima over windows given by index tables, with their indices. Dimensions are reduced from the
// last to the first. Ties thereby resolve to the first element in row-major order.
#include "formulas.h"
#include "ops/conv/conv_impl.h"
#include "phlox/ops/copy.h"

px_status px__max_over_windows(px_tensor **out, px_tensor **indices, px_tensor *x, int dims,
                               px__window_table *table, const void *context) {
  px_tensor *maxima[2] = {px_retain(x), NULL};  // so far, and their flat indices
  px_status status = px__formula_flat_positions(&maxima[1], (px_value[]){PX_T(x), PX_I(dims)});
  for (int k = dims - 1; status == PX_OK && k >= 0; k--) {
    PX_SCOPED(px_tensor) elements = NULL;
    PX_SCOPED(px_tensor) values = PX_MOVE(maxima[0]);
    PX_SCOPED(px_tensor) at = PX_MOVE(maxima[1]);
    status = table(&elements, context, k, x);
    if (status == PX_OK)
      status = px__formula_window_maxima(
          maxima, (px_value[]){PX_T(values), PX_T(at), PX_I(x->ndim - dims + k), PX_T(elements)});
  }
  if (status == PX_OK) status = px_contiguous(out, maxima[0]);
  if (status == PX_OK) status = px_contiguous(indices, maxima[1]);
  px_release(maxima[0]), px_release(maxima[1]);
  return status;
}
