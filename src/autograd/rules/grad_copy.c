// SPDX-License-Identifier: Apache-2.0
// Gradients of copies: they travel back to where the source was.
#include "autograd/rules/backward.h"

#include "grad_functions.h"

static px_status like(px_tensor **out, px_tensor *grad, const px_tensor *source) {
  return px_to(out, grad, px_tensor_dtype(source), px_tensor_device(source), false, false);
}

px_status px__grad_copy(px__backward *b) {
  // What self held is gone: its gradient is zero, which is what no result means.
  if (!(b->needs & 2) || !b->grads[0]) return PX_OK;
  return like(&b->out[1], b->grads[0], b->args[1].v.tensor);
}

px_status px__grad_to_copy(px__backward *b) {
  if (!b->grads[0]) return PX_OK;
  return like(&b->out[0], b->grads[0], b->args[0].v.tensor);
}
