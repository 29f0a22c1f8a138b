// SPDX-License-Identifier: Apache-2.0
// The gradient state of a tensor: its history and its gradient.
//
// A tensor without gradient state is a leaf without gradient. Leaves that require grad, and all
// tensors with history, have PX_MARK_NEEDS_GRAD.
#include <stdio.h>

#include "autograd/engine/graph.h"

static void state_destroy(void *self) {
  px__grad_state *state = self;
  px_release(state->fn);
  px_release(state->grad);
  if (state->box) px__grad_box_close(state->box);
  px_release(state->box);
  if (state->hooks.items) px__hooks_clear(&state->hooks);
  if (state->accumulated.items) px__hooks_clear(&state->accumulated);
  px__pool_put(state, sizeof *state);
}

static const px_class state_class = {"autograd state", state_destroy};

static px_status state_new(px__grad_state **out) {
  PX_TRY(px__pool_get((void **)out, sizeof **out));
  (*out)->head = (px_object){1, &state_class};  // not counted as a live object, unlike tensors
  return PX_OK;
}

px_status px__grad_state_make(px__grad_state **out, px_tensor *t) {
  *out = px__grad_state_of(t);
  if (*out) return PX_OK;
  px__grad_state *state;
  PX_TRY(state_new(&state));
  *out = px_tensor_set_slot_take(t, state);
  return PX_OK;
}

px_node *px__node_replace(px__grad_state *state, px_node *node_take, int nr) {
  px_spin_lock(&state->lock);
  px_node *before = state->fn;
  state->fn = node_take, state->nr = nr;
  px_spin_unlock(&state->lock);
  return before;
}

px_node *px__node_of(px__grad_state *state, int32_t *nr) {
  if (!state) return NULL;
  px_spin_lock(&state->lock);
  px_node *node = px_retain(state->fn);
  *nr = state->nr;
  px_spin_unlock(&state->lock);
  return node;
}

// A new state gets its node before other threads can see it, without the lock.
static px_status set_history(px_tensor *t, px_node *node, int nr) {
  px__grad_state *state = px__grad_state_of(t), *fresh = NULL;
  PX_SCOPED(px_node) before = NULL;
  if (!state) {
    PX_TRY(state_new(&fresh));
    fresh->fn = px_retain(node), fresh->nr = nr;
    state = px_tensor_set_slot_take(t, fresh);
  }
  if (state != fresh) before = px__node_replace(state, px_retain(node), nr);
  px_tensor_mark(t, PX_MARK_NEEDS_GRAD, true);
  const px__grad_box *box = __atomic_load_n(&state->box, __ATOMIC_ACQUIRE);
  return box ? px__hooks_move_retained(box, before, node, nr) : PX_OK;
}

px_status px__set_history(px_tensor *t, px_node *node, int nr) {
  if (px__forward()) px__dual_note(node);
  return set_history(t, node, nr);
}

px_status px__with_history(px_tensor **out, const px_tensor *t, px__edge edge) {
  PX_SCOPED(px_tensor) alias = NULL;
  PX_TRY(px_tensor_share(&alias, t));
  if (edge.node) PX_TRY(set_history(alias, edge.node, edge.nr));
  *out = PX_MOVE(alias);
  return PX_OK;
}

px_status px_node_result(px_tensor **out, px_node *node, int nr) {
  static const int64_t none[PX_MAX_DIMS];
  PX_GIVEN(out);
  PX_GIVEN(node);
  PX_CHECK(nr >= 0 && nr < node->result_count, PX_INDEX, "%s has no result %d", node->name, nr);
  const px__meta *form = &node->results[nr];
  PX_SCOPED(px_tensor) made = px_retain(px_node_variable(node));
  if (!made) {
    PX_TRY(px_tensor_empty_strided(&made, form->ndim, form->sizes, none, (px_dtype)form->dtype,
                                   form->device));
    PX_TRY(set_history(made, node, nr));
  }
  *out = PX_MOVE(made);
  return PX_OK;
}

// ---- the mode of a history

bool px__view_stale(const px_tensor *t) {
  // A view created while recording was off never has history.
  if ((px_tensor_marks(t) & (PX_MARK_VIEW | PX_MARK_UNRECORDED)) != PX_MARK_VIEW) return false;
  return px__base_records(t, px_tensor_base(t)) &&
         px_tensor_view_version(t) != px_tensor_version(t);
}

// Returns the tensor holding the current history: the base of a stale view, else t itself.
static const px_tensor *history_owner(const px_tensor *t) {
  return px__view_stale(t) ? px_tensor_base(t) : t;
}

bool px_tensor_requires_grad(const px_tensor *self) {
  const px_tensor *t = history_owner(self);
  return (px_tensor_marks(t) & PX_MARK_NEEDS_GRAD) && !px__is_forward_only(t);
}

bool px_tensor_is_leaf(const px_tensor *self) {
  const px_tensor *t = history_owner(self);
  px__history history = px__history_of(t);
  return history.forward_only || (t == self && !history.recorded);
}

bool px_tensor_is_inference(const px_tensor *self) {
  return (px_tensor_marks(self) & PX_MARK_INFERENCE) != 0;
}

bool px__is_dual(const px_tensor *t) { return px__history_of(history_owner(t)).dual; }

// ---- grad

// Returns the place of the gradient and locks it.
static px_tensor **lock_grad(px__grad_state *state, uint8_t **lock) {
  px__grad_box *box = __atomic_load_n(&state->box, __ATOMIC_ACQUIRE);
  *lock = box ? &box->lock : &state->lock;
  px_spin_lock(*lock);
  return box ? &box->grad : &state->grad;
}

px_tensor *px_tensor_grad(const px_tensor *self) {
  px__grad_state *state = px__grad_state_of(self);
  if (!state) return NULL;
  uint8_t *lock;
  px_tensor *grad = *lock_grad(state, &lock);
  px_spin_unlock(lock);
  return grad;
}

px_tensor *px__grad_of(px__grad_state *state) {
  uint8_t *lock;
  px_tensor *grad = px_retain(*lock_grad(state, &lock));
  px_spin_unlock(lock);
  return grad;
}

void px__grad_replace(px__grad_state *state, px_tensor *grad_take) {
  uint8_t *lock;
  px_tensor **place = lock_grad(state, &lock), *before = *place;
  *place = grad_take;
  px_spin_unlock(lock);
  px_release(before);
}

px_status px_tensor_get_grad(px_tensor **out, const px_tensor *self) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  px__grad_state *state = px__grad_state_of(self);
  *out = state ? px__grad_of(state) : NULL;
  return PX_OK;
}

const char *px__size_text(const px_tensor *t, char text[PX__SIZE_TEXT]) {
  size_t size = PX__SIZE_TEXT;
  size_t used = (size_t)snprintf(text, size, "[");
  for (int d = 0; d < px_tensor_ndim(t) && used < size; d++)
    used += (size_t)snprintf(text + used, size - used, "%s%lld", d ? ", " : "",
                             (long long)px_tensor_sizes(t)[d]);
  if (used < size) snprintf(text + used, size - used, "]");
  return text;
}

static px_status check_grad_device(px_device actual, px_device expected) {
  PX_CHECK(actual.type == expected.type, PX_RUNTIME,
           "attempting to assign a gradient with device type '%s' to a tensor with device type "
           "'%s'. Please ensure that the gradient and the tensor are on the same device",
           px_device_type_name(actual.type), px_device_type_name(expected.type));
  PX_CHECK(px_device_equal(actual, expected), PX_RUNTIME,
           "attempting to assign a gradient located on device with index '%d' to a tensor located "
           "on device with index '%d'. Please ensure that the gradient and the tensor are on the "
           "same device",
           actual.index, expected.index);
  return PX_OK;
}

// E-GRAD-1.
static px_status check_grad(const px_tensor *self, const px_tensor *grad) {
  PX_CHECK(self != grad, PX_RUNTIME, "can't assign Variable as its own grad");
  px_dtype actual = px_tensor_dtype(grad), expected = px_tensor_dtype(self);
  PX_CHECK(actual == expected, PX_RUNTIME,
           "attempting to assign a gradient with dtype '%s' to a tensor with grad_dtype '%s'. The "
           "gradient must match the tensor's grad_dtype (defaults to the tensor's dtype). You can "
           "set the tensor's grad_dtype attribute with a specific dtype, or None to allow any "
           "dtype. Set grad_dtype with caution. Diverging the dtypes of a tensor and its gradient "
           "may break downstream systems that assume they match.",
           px_dtype_about(actual)->type_name, px_dtype_class(expected));
  PX_TRY(check_grad_device(px_tensor_device(grad), px_tensor_device(self)));
  char of_grad[PX__SIZE_TEXT], of_self[PX__SIZE_TEXT];
  if (px_tensor_same_sizes(grad, self)) return PX_OK;
  PX_FAIL(PX_RUNTIME,
          "attempting to assign a gradient of size '%s' to a tensor of size '%s'. Please ensure "
          "that the gradient and the tensor are the same size",
          px__size_text(grad, of_grad), px__size_text(self, of_self));
}

px_status px_tensor_set_grad(px_tensor *self, px_tensor *grad) {
  PX_GIVEN(self);
  px__grad_state *state = px__grad_state_of(self);
  if (!grad && !state) return PX_OK;
  if (grad) PX_TRY(check_grad(self, grad));
  PX_TRY(px__grad_state_make(&state, self));
  px__grad_replace(state, px_retain(grad));
  return PX_OK;
}
