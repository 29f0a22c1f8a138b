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

// Pools the gradient to the last two of `sizes`.
px_status px__grad_adaptive(px_tensor **out, px_tensor *grad, px_value sizes) {
  return px_adaptive_avg_pool2d(out, grad, sizes.v.ints + sizes.n - 2, 2);
}
