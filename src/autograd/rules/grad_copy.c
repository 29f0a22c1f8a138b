// SPDX-License-Identifier: Apache-2.0
// Gradients of copies: they travel back to where the source was.
#include "autograd/rules/backward.h"

#include "grad_functions.h"
#include "phlox/ops/copy.h"

static px_status like(px_tensor **out, px_tensor *grad, const px_tensor *source) {
  return px_to(out, grad, px_tensor_dtype(source), px_tensor_device(source), false, false);
}

PX_GRAD(copy) {
  // What self held is gone: its gradient is zero, which is what no result means.
  if (!args->d_src || !args->grad) return PX_OK;
  return like(args->d_src, args->grad, args->src);
}

PX_GRAD(to_copy) {
  if (!args->grad) return PX_OK;
  return like(args->d_self, args->grad, args->self);
}
