// SPDX-License-Identifier: Apache-2.0
// Hooks on gradients of tensors, and retain_grad.
//
// A hook is shared by the tensor's gradient state and the node that produced the tensor. The node
// runs it, so hooks outlive the tensor, as the graph does. If the tensor is changed in place, its
// hooks remain at the old node. Only retain_grad moves to the new node.
#include "autograd/engine/graph.h"

px_status px_tensor_add_hook(int64_t *id, px_tensor *self, px_grad_hook on_grad, void *context,
                             void (*release)(void *context)) {
  PX_GIVEN(id);
  PX_GIVEN(self);
  PX_CHECK(on_grad, PX_TYPE, "expected a hook function, got NULL");
  PX_CHECK(px_tensor_requires_grad(self), PX_RUNTIME,
           "cannot register a hook on a tensor that doesn't require gradient");
  px__grad_state *state;
  if (px__view_stale(self)) PX_TRY(px__view_refresh(self));
  PX_TRY(px__grad_state_make(&state, self));
  PX__USED_HOOK *hook = NULL;
  PX_TRY(px__hook_new(&hook));
  PX_SCOPED(px_node) fn = px__node_of(state, &hook->nr);
  hook->on_grad = on_grad;
  hook->context = context;
  if (fn) PX_TRY(px__hooks_append_to_node(fn, hook));
  px_status status = px__hooks_append(&state->hooks, hook);
  if (status != PX_OK) {
    px_hook_remove(hook);
    return status;
  }
  hook->release = release;
  *id = hook->id;
  return PX_OK;
}

px_status px_tensor_add_accumulated_hook(int64_t *id, px_tensor *self,
                                         px_status (*on_accumulated)(px_tensor *self,
                                                                     void *context),
                                         void *context, void (*release)(void *context)) {
  PX_GIVEN(id);
  PX_GIVEN(self);
  PX_CHECK(on_accumulated, PX_TYPE, "expected a hook function, got NULL");
  PX_CHECK(px_tensor_requires_grad(self), PX_RUNTIME,
           "cannot register a hook on a tensor that doesn't require gradient");
  PX_CHECK(px_tensor_is_leaf(self), PX_RUNTIME,
           "post accumulate grad hooks cannot be registered on non-leaf tensors");
  px__grad_state *state;
  PX_TRY(px__grad_state_make(&state, self));
  PX__USED_HOOK *hook = NULL;
  PX_TRY(px__hook_new(&hook));
  hook->on_accumulated = on_accumulated;
  hook->context = context;
  PX_TRY(px__hooks_append(&state->accumulated, hook));
  hook->release = release;
  *id = hook->id;
  return PX_OK;
}

// Returns a new reference, or NULL.
static px_hook *take_hook(const px_tensor *self, int64_t id) {
  px__grad_state *state = px__grad_state_of(self);
  if (!state) return NULL;
  px_hook *hook = px__hooks_find(&state->hooks, id);
  return hook ? hook : px__hooks_find(&state->accumulated, id);
}

px_hook *px_tensor_hook(const px_tensor *self, int64_t id) {
  PX_SCOPED(px_hook) hook = take_hook(self, id);
  return hook;
}

void px_tensor_remove_hook(px_tensor *self, int64_t id) {
  PX_SCOPED(px_hook) hook = take_hook(self, id);
  px_hook_remove(hook);
}

// ---- retain_grad

px_status px_tensor_retain_grad(px_tensor *self) {
  PX_GIVEN(self);
  PX_CHECK(px_tensor_requires_grad(self), PX_RUNTIME,
           "can't retain_grad on Tensor that has requires_grad=False");
  if (px__view_stale(self)) PX_TRY(px__view_refresh(self));
  px__grad_state *state = px__grad_state_of(self);
  int32_t nr = 0;
  PX_SCOPED(px_node) node = px__node_of(state, &nr);
  if (!node || px_tensor_retains_grad(self)) return PX_OK;
  px__grad_box *box = NULL, *other = NULL;
  PX_TRY(px__grad_box_new(&box));
  px_status status = px__grad_box_append(node, box, nr);
  bool set = status == PX_OK && __atomic_compare_exchange_n(&state->box, &other, box, false,
                                                            __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  if (!set) px__grad_box_close(box), px_release(box);
  return status;
}

bool px_tensor_retains_grad(const px_tensor *self) {
  const px__grad_state *state = px__grad_state_of(self);
  return state && __atomic_load_n(&state->box, __ATOMIC_ACQUIRE);
}
