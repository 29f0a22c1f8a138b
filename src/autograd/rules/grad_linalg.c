// SPDX-License-Identifier: Apache-2.0
// Helpers of the formulas of sorting.
#include "autograd/rules/backward.h"

px_status px__grad_kthvalue(px_tensor **out, const px_value *args, int count);

// (grad, indices, sizes of the input, dim, keepdim): the gradient of the chosen elements, at their
// places.
px_status px__grad_kthvalue(px_tensor **out, const px_value *args, int count) {
  const px_tensor *grad = args[0].v.tensor, *indices = args[1].v.tensor;
  int64_t ndim = args[2].n, dim = px_value_int(args[3]);
  if (px_value_int(args[4]) || ndim == 0)
    return px_place_along(out, grad, indices, dim, args[2].v.ints, ndim);
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  PX_TRY(px_unsqueeze(&wide, grad, dim));
  PX_TRY(px_unsqueeze(&where, indices, dim));
  return px_place_along(out, wide, where, dim, args[2].v.ints, ndim);
}
