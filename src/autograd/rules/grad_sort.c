// SPDX-License-Identifier: Apache-2.0
// Helpers of the gradient formulas of sorting.
#include "autograd/rules/backward.h"
#include "grad_functions.h"
#include "hidden/sort.h"
#include "phlox/ops/view.h"

// Scatters the gradient to the selected elements. `sizes` are those of the input.
px_status px__grad_kthvalue(px_tensor **out, px_tensor *grad, px_tensor *indices, px_value sizes,
                            int64_t dim, bool keepdim) {
  if (keepdim || sizes.n == 0)
    return px_place_along(out, grad, indices, dim, sizes.v.ints, sizes.n);
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  PX_TRY(px_unsqueeze(&wide, grad, dim));
  PX_TRY(px_unsqueeze(&where, indices, dim));
  return px_place_along(out, wide, where, dim, sizes.v.ints, sizes.n);
}
