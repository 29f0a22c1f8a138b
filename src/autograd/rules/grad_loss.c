// SPDX-License-Identifier: Apache-2.0
// Helpers of the formulas of losses and pooling.
#include "autograd/rules/backward.h"

#include <string.h>

px_status px__grad_per_element(px_tensor **out, const px_value *args, int count);
px_status px__grad_bend(px_tensor **out, const px_value *args, int count);
px_status px__grad_bce_target(px_tensor **out, const px_value *args, int count);
px_status px__grad_adaptive(px_tensor **out, const px_value *args, int count);

// (grad, grad_output, reduction): their product, divided by the elements where they are averaged.
px_status px__grad_per_element(px_tensor **out, const px_value *args, int count) {
  const px_tensor *grad = args[0].v.tensor;
  bool mean = !strcmp(args[2].v.text, "mean");
  PX_SCOPED(px_tensor) product = NULL;
  if (!mean) return px_mul(out, grad, args[1].v.tensor);
  PX_TRY(px_mul(&product, grad, args[1].v.tensor));
  return px_div_scalar(out, product, px_int(px_tensor_numel(grad)));
}
static double number_of(px_value value) {
  bool whole = value.kind == PX_ARG_INT || (value.kind == PX_ARG_SCALAR && value.category != 'f');
  return whole ? (double)value.v.i : value.v.f;
}
// (grad, grad_output, self, target, reduction, width, divisor): of a loss that is a parabola where
// self and target differ by less than width, and straight elsewhere.
px_status px__grad_bend(px_tensor **out, const px_value *args, int count) {
  double width = number_of(args[5]), divisor = number_of(args[6]);
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) apart = NULL;
  PX_SCOPED(px_tensor) distance = NULL;
  PX_SCOPED(px_tensor) straight = NULL;
  PX_SCOPED(px_tensor) bent = NULL;
  PX_TRY(px__grad_per_element(&product, (px_value[]){args[0], args[1], args[4]}, 3));
  PX_TRY(px_sub(&apart, args[2].v.tensor, args[3].v.tensor, px_int(1)));
  PX_TRY(px_abs(&distance, apart));
  PX_TRY(px_ge_scalar(&straight, distance, px_float(width)));
  PX_TRY(px_masked_fill(&bent, product, straight, px_int(0)));
  return px_div_scalar(out, bent, px_float(width > 0 ? divisor : 1));
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
