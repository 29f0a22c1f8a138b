// SPDX-License-Identifier: Apache-2.0
// Public functions on the history of a tensor.
#include <stdio.h>

#include "autograd/engine/graph.h"
#include "phlox/vmap.h"

// Makes a dual tensor a reverse-mode variable, too. It has a node, so its gradient is retained.
static px_status require_reverse(px_tensor *self, bool requires_grad) {
  if (!requires_grad) return PX_OK;
  PX_SCOPED(px_node) node = NULL;
  PX_TRY(px_tensor_get_grad_fn(&node, self));
  if (node) node->forward_only = false;
  return px_tensor_retain_grad(self);
}

px_status px_tensor_set_requires_grad(px_tensor *self, bool requires_grad) {
  PX_GIVEN(self);
  PX_CHECK(!requires_grad || px_dtype_is_differentiable(px_tensor_dtype(self)), PX_RUNTIME,
           "only Tensors of floating point dtype can require gradients");
  bool leaf = px_tensor_is_leaf(self);
  PX_CHECK(leaf || requires_grad, PX_RUNTIME,
           "you can only change requires_grad flags of leaf variables. If you want to use a "
           "computed variable in a subgraph that doesn't require differentiation use var_no_grad = "
           "var.detach().");
  PX_CHECK(!requires_grad || !px_tensor_is_inference(self) || px_inference_enabled(), PX_RUNTIME,
           "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.");
  if (!leaf) return PX_OK;
  if (px__is_forward_only(self)) return require_reverse(self, requires_grad);
  if (px_vmap_depth()) {
    px__grad_state *state;
    PX_TRY(px__grad_state_make(&state, self));
    px_spin_lock(&state->lock);
    state->level = (uint8_t)px_vmap_depth();
    px_spin_unlock(&state->lock);
  }
  px_tensor_mark(self, PX_MARK_NEEDS_GRAD, requires_grad);
  return PX_OK;
}

px_status px_tensor_detach_inplace(px_tensor *self) {
  PX_GIVEN(self);
  PX_CHECK(
      !(px_tensor_marks(self) & PX_MARK_VIEW), PX_RUNTIME,
      "Can't detach views in-place. Use detach() instead. If you are using "
      "DistributedDataParallel (DDP) for training, and gradient_as_bucket_view is set as "
      "True, gradients are views of DDP buckets, and hence detach_() cannot be called on these "
      "gradients. To fix this error, please refer to the Optimizer.zero_grad() function in "
      "torch/optim/optimizer.py as the solution.");
  px__grad_state *state = px__grad_state_of(self);
  px_tensor_mark(self, PX_MARK_NEEDS_GRAD, false);
  if (state) px_release(px__node_replace(state, NULL, 0));
  return px_tensor_detach_physical(self);
}

px_status px_tensor_get_grad_fn(px_node **out, px_tensor *self) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  int32_t nr;
  *out = NULL;
  if (px__view_stale(self)) PX_TRY(px__view_refresh(self));
  *out = px__node_of(px__grad_state_of(self), &nr);
  return PX_OK;
}

px_status px_tensor_grad_fn(px_node **out, px_tensor *self) {
  PX_SCOPED(px_node) node = NULL;
  PX_GIVEN(out);
  PX_TRY(px_tensor_get_grad_fn(&node, self));
  *out = node;
  return PX_OK;
}

bool px_tensor_is_sole(const px_tensor *self, int32_t owners) {
  int32_t nr;
  PX_SCOPED(px_node) node = px__node_of(px__grad_state_of(self), &nr);
  return px_refs(self) == owners && !(node && px_refs(node) > 2);
}

int px_tensor_output_nr(const px_tensor *self) {
  int32_t nr = 0;
  px_release(px__node_of(px__grad_state_of(self), &nr));
  return nr;
}

void px__print_history(const px_tensor *self, char *text, size_t size) {
  text[0] = 0;
  if (!px_tensor_requires_grad(self)) return;
  PX_SCOPED(px_node) fn = NULL;
  if (px_tensor_get_grad_fn(&fn, (px_tensor *)self) != PX_OK) {
    px_error_clear();
    snprintf(text, size, ", grad_fn=<Invalid>");
  } else if (fn) {
    snprintf(text, size, ", grad_fn=<%s>", px_node_name(fn));
  } else {
    snprintf(text, size, ", requires_grad=True");
  }
}
