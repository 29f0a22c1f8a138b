// SPDX-License-Identifier: Apache-2.0
// Helpers of the formulas of losses and pooling.
#include "autograd/backward.h"

#include <string.h>

px_status px__grad_mse_again(px_tensor **out, const px_value *args, int count);
px_status px__grad_bce_target(px_tensor **out, const px_value *args, int count);
px_status px__grad_adaptive(px_tensor **out, const px_value *args, int count);

// (grad, grad_output, reduction): the derivative of 2 * (self - target) * grad_output / n by self,
// times grad.
px_status px__grad_mse_again(px_tensor **out, const px_value *args, int count) {
  const px_tensor *grad = args[0].v.tensor;
  bool mean = !strcmp(args[2].v.text, "mean");
  PX_SCOPED(px_tensor) product = NULL;
  PX_TRY(px_mul(&product, grad, args[1].v.tensor));
  double n = mean ? (double)px_tensor_numel(grad) : 1;
  return px_mul_scalar(out, product, px_float(2 / n));
}
// (grad, input, reduction): the loss is linear in the target, with slope -input.
px_status px__grad_bce_target(px_tensor **out, const px_value *args, int count) {
  const px_tensor *input = args[1].v.tensor;
  bool mean = !strcmp(args[2].v.text, "mean");
  PX_SCOPED(px_tensor) product = NULL;
  PX_TRY(px_mul(&product, input, args[0].v.tensor));
  double n = mean ? (double)px_tensor_numel(input) : 1;
  return px_mul_scalar(out, product, px_float(-1 / n));
}
// (grad, sizes of the pooled tensor): pools again.
px_status px__grad_adaptive(px_tensor **out, const px_value *args, int count) {
  const int64_t *sizes = args[1].v.ints;
  return px_adaptive_avg_pool2d(out, args[0].v.tensor, sizes + args[1].n - 2, 2);
}
