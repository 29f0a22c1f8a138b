// SPDX-License-Identifier: Apache-2.0
// Gradient of a copy: converted back to the dtype and device of the source.
#include "autograd/rules/backward.h"

#include "grad_functions.h"
#include "phlox/ops/copy.h"

PX_GRAD(copy) {
  // The old value of self has a zero gradient, represented by no result, which formulas
  // do not have.
  if (!args->d_src || !args->grad) return PX_OK;
  return px_to(args->d_src, args->grad, px_tensor_dtype(args->src), px_tensor_device(args->src),
               false, false);
}
