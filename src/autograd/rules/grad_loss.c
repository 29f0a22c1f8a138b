// SPDX-License-Identifier: Apache-2.0
// Helpers of the gradient formulas of losses and pooling.
#include <string.h>

#include "autograd/rules/backward.h"
#include "grad_functions.h"
#include "hidden/loss.h"
#include "phlox/autograd.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/conv.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/index.h"
#include "phlox/ops/norm.h"
#include "phlox/ops/view.h"

// grad * grad_output, divided by the number of elements for "mean".
px_status px__grad_per_element(px_tensor **out, px_tensor *grad, px_tensor *grad_output,
                               const char *reduction) {
  PX_SCOPED(px_tensor) product = NULL;
  if (strcmp(reduction, "mean")) return px_mul(out, grad, grad_output);
  PX_TRY(px_mul(&product, grad, grad_output));
  return px_div_scalar(out, product, px_int(px_tensor_numel(grad)));
}
// Second gradient of a loss quadratic for |self - target| < width and linear elsewhere.
px_status px__grad_bend(px_tensor **out, px_tensor *grad, px_tensor *grad_output, px_tensor *self,
                        px_tensor *target, const char *reduction, double width, double divisor) {
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) apart = NULL;
  PX_SCOPED(px_tensor) distance = NULL;
  PX_SCOPED(px_tensor) curved = NULL;
  PX_SCOPED(px_tensor) bent = NULL;
  PX_TRY(px__grad_per_element(&product, grad, grad_output, reduction));
  PX_TRY(px_sub(&apart, self, target, px_int(1)));
  PX_TRY(px_abs(&distance, apart));
  PX_TRY(px_lt_scalar(&curved, distance, px_float(width)));  // nowhere at NaN
  PX_TRY(px_mul(&bent, product, curved));
  return px_div_scalar(out, bent, px_float(width > 0 ? divisor : 1));
}
// The loss is linear in the target, with slope -input.
px_status px__grad_bce_target(px_tensor **out, px_tensor *grad, px_tensor *input,
                              const char *reduction) {
  PX_SCOPED(px_tensor) product = NULL;
  PX_TRY(px_mul(&product, input, grad));
  double n = strcmp(reduction, "mean") ? 1 : (double)px_tensor_numel(input);
  return px_mul_scalar(out, product, px_float(-1 / n));
}
// Pools the gradient to the last two of `sizes`.
px_status px__grad_adaptive(px_tensor **out, px_tensor *grad, px_value sizes) {
  return px_adaptive_avg_pool2d(out, grad, sizes.v.ints + sizes.n - 2, 2);
}

// ---- class_losses

// Gradient as recorded ops: each row's weight times its softmax, minus the weight at the target.
static px_status classes_recomputed(px_tensor **out, const px__class_losses_grad *args) {
  PX_SCOPED(px_tensor) ignored = NULL;
  PX_SCOPED(px_tensor) counts = NULL;
  PX_SCOPED(px_tensor) class = NULL;
  PX_SCOPED(px_tensor) column = NULL;
  PX_SCOPED(px_tensor) classes = NULL;
  PX_SCOPED(px_tensor) shares = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) less = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_eq_scalar(&ignored, args->target, px_int(args->ignore_index)));
  PX_TRY(px_masked_fill(&counts, args->grad_losses, ignored, px_float(0)));
  PX_TRY(px_masked_fill(&class, args->target, ignored, px_int(0)));
  PX_TRY(px_unsqueeze(&column, counts, 1));
  PX_TRY(px_unsqueeze(&classes, class, 1));
  PX_TRY(px_softmax(&shares, args->input, 1, px_tensor_dtype(counts)));
  PX_TRY(px_mul(&product, shares, column));
  PX_TRY(px_neg(&less, column));
  PX_TRY(px_scatter_add(&sum, product, 1, classes, less));
  return px_to(out, sum, px_tensor_dtype(args->input), PX_DEVICE_NONE, false, false);
}
PX_GRAD(class_losses) {
  PX_CHECK(args->grad_losses && !args->grad_logsumexp, PX_UNIMPLEMENTED,
           "the gradient of class_losses with respect to its logsumexp is not implemented");
  if (!args->d_input) return PX_OK;
  if (px_grad_enabled()) return classes_recomputed(args->d_input, args);
  return px_class_losses_backward(args->d_input, args->grad_losses, args->input, args->target,
                                  args->logsumexp, args->ignore_index);
}
