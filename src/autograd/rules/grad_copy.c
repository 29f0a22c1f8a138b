// SPDX-License-Identifier: Apache-2.0
// Gradients of copies: converted back to the dtype and device of the source.
#include "autograd/rules/backward.h"

#include "grad_functions.h"
#include "phlox/ops/copy.h"

static px_status like(px_tensor **out, px_tensor *grad, const px_tensor *source) {
  return px_to(out, grad, px_tensor_dtype(source), px_tensor_device(source), false, false);
}

PX_GRAD(copy) {
  // The old value of self has a zero gradient, represented by no result.
  if (!args->d_src || !args->grad) return PX_OK;
  return like(args->d_src, args->grad, args->src);
}

PX_GRAD(to_copy) {
  if (!args->grad) return PX_OK;
  return like(args->d_self, args->grad, args->self);
}
