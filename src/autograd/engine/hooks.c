// SPDX-License-Identifier: Apache-2.0
// Hooks on gradients of tensors, and retain_grad.
//
// A hook is an object shared by the tensor's gradient state and the node that made the tensor: the
// node runs it, the tensor can remove it. So hooks outlive the tensor, as the graph does. If the
// tensor is changed in place, its hooks stay with the old node; only retain_grad moves to the new
// one.
#include "graph.h"
#include "phlox/ops/pointwise.h"

static int64_t last_id;  // atomic

static void hook_destroy(void *self) {
  px__gradient_hook *hook = self;
  if (hook->release && !hook->removed) hook->release(hook->context);
  px_release(hook->box);
  px_object_end(hook);
  px_free(hook);
}
static void box_destroy(void *self) {
  px__box *box = self;
  px_release(box->grad);
  px_object_end(box);
  px_free(box);
}
static const px_class hook_class = {"hook", hook_destroy};
static const px_class box_class = {"retained gradient", box_destroy};

void px__hooks_clear(px__gradient_hooks *hooks) {
  int count = hooks->count;
  hooks->count = 0;
  for (int i = 0; i < count; i++) px_release(hooks->items[i]);
  px_free(hooks->items);
  *hooks = (px__gradient_hooks){0};
}

static px_status append(px__gradient_hooks *hooks, px__gradient_hook *hook) {
  if (hooks->count == hooks->room) {
    int room = hooks->room ? hooks->room * 2 : 4;
    PX_TRY(px_realloc((void **)&hooks->items, (size_t)room * sizeof *hooks->items));
    hooks->room = room;
  }
  hooks->items[hooks->count++] = px_retain(hook);
  return PX_OK;
}

static void take_out(px__gradient_hooks *hooks, const px__gradient_hook *hook) {
  if (!hooks) return;
  for (int i = 0; i < hooks->count; i++) {
    if (hooks->items[i] != hook) continue;
    px__gradient_hook *found = hooks->items[i];
    memmove(hooks->items + i, hooks->items + i + 1,
            (size_t)(--hooks->count - i) * sizeof *hooks->items);
    px_release(found);
    return;
  }
}

static px_status append_to_node(px_node *node, px__gradient_hook *hook) {
  if (!node->hooks) PX_TRY(px_alloc((void **)&node->hooks, sizeof *node->hooks));
  return append(node->hooks, hook);
}

static px_status hook_new(px__gradient_hook **out) {
  PX_TRY(px_alloc((void **)out, sizeof **out));
  px_object_init(*out, &hook_class);
  (*out)->id = __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED);
  return PX_OK;
}

px_status px_tensor_add_hook(int64_t *id, px_tensor *self, px_grad_hook on_grad, void *context,
                             void (*release)(void *context)) {
  PX_GIVEN(id);
  PX_GIVEN(self);
  PX_CHECK(on_grad, PX_TYPE, "a hook needs a function");
  PX_CHECK(px_tensor_requires_grad(self), PX_RUNTIME,
           "cannot register a hook on a tensor that doesn't require gradient");
  px_node *fn;
  PX_TRY(px_tensor_grad_fn(&fn, self));
  px__grad_state *state;
  PX_TRY(px__grad_state_make(&state, self));
  PX_SCOPED(px__gradient_hook) hook = NULL;
  PX_TRY(hook_new(&hook));
  hook->on_grad = on_grad;
  hook->nr = state->nr;
  if (fn) PX_TRY(append_to_node(fn, hook));
  px_status status = append(&state->hooks, hook);
  if (status != PX_OK) {
    take_out(fn ? fn->hooks : NULL, hook);
    return status;
  }
  hook->context = context;
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
  PX_CHECK(on_accumulated, PX_TYPE, "a hook needs a function");
  PX_CHECK(px_tensor_requires_grad(self), PX_RUNTIME,
           "cannot register a hook on a tensor that doesn't require gradient");
  PX_CHECK(px_tensor_is_leaf(self), PX_RUNTIME,
           "post accumulate grad hooks cannot be registered on non-leaf tensors");
  px__grad_state *state;
  PX_TRY(px__grad_state_make(&state, self));
  PX_SCOPED(px__gradient_hook) hook = NULL;
  PX_TRY(hook_new(&hook));
  hook->on_accumulated = on_accumulated;
  PX_TRY(append(&state->accumulated, hook));
  hook->context = context;
  hook->release = release;
  *id = hook->id;
  return PX_OK;
}

static bool remove_from(px__gradient_hooks *hooks, int64_t id) {
  for (int i = 0; i < hooks->count; i++) {
    px__gradient_hook *hook = hooks->items[i];
    if (hook->id != id) continue;
    px_retain(hook);
    take_out(hooks, hook);
    // The node may still hold it: it does nothing from now on.
    if (!hook->removed && hook->release) hook->release(hook->context);
    hook->removed = true;
    px_release(hook);
    return true;
  }
  return false;
}

void px_tensor_remove_hook(px_tensor *self, int64_t id) {
  px__grad_state *state = px__grad_state_of(self);
  if (state && !remove_from(&state->hooks, id)) remove_from(&state->accumulated, id);
}

// ---- retain_grad

px_status px_tensor_retain_grad(px_tensor *self) {
  PX_GIVEN(self);
  PX_CHECK(px_tensor_requires_grad(self), PX_RUNTIME,
           "can't retain_grad on Tensor that has requires_grad=False");
  px_node *fn;
  PX_TRY(px_tensor_grad_fn(&fn, self));
  px__grad_state *state = px__grad_state_of(self);
  if (!fn || state->box) return PX_OK;
  PX_SCOPED(px__box) box = NULL;
  PX_TRY(px_alloc((void **)&box, sizeof *box));
  px_object_init(box, &box_class);
  PX_SCOPED(px__gradient_hook) hook = NULL;
  PX_TRY(hook_new(&hook));
  hook->box = px_retain(box);
  hook->nr = state->nr;
  PX_TRY(append_to_node(fn, hook));
  state->box = PX_MOVE(box);
  return PX_OK;
}

bool px_tensor_retains_grad(const px_tensor *self) {
  const px__grad_state *state = px__grad_state_of(self);
  return state && state->box;
}

px_status px__hooks_move_retained(px_tensor *t, px_node *from) {
  px__grad_state *state = px__grad_state_of(t);
  if (!from || !from->hooks || from == state->fn) return PX_OK;
  for (int i = 0; i < from->hooks->count; i++) {
    PX_SCOPED(px__gradient_hook) hook = px_retain(from->hooks->items[i]);
    if (hook->box != state->box) continue;
    take_out(from->hooks, hook);
    hook->nr = state->nr;
    return append_to_node(state->fn, hook);
  }
  return PX_OK;
}

// ---- running

static bool same_sizes(const px_tensor *a, const px_tensor *b) {
  size_t bytes = (size_t)px_tensor_ndim(a) * sizeof(int64_t);
  if (px_tensor_ndim(a) != px_tensor_ndim(b)) return false;
  return !bytes || !memcmp(px_tensor_sizes(a), px_tensor_sizes(b), bytes);
}

static px_status check_hooked(const px_tensor *before, const px_tensor *now) {
  char was[48], is[48];
  PX_CHECK(px_tensor_dtype(now) == px_tensor_dtype(before) &&
               px_device_equal(px_tensor_device(now), px_tensor_device(before)),
           PX_RUNTIME, "hook has changed the type of value (was %s got %s)",
           px_tensor_type_name(before, was), px_tensor_type_name(now, is));
  PX_CHECK(same_sizes(before, now), PX_RUNTIME, "hook has changed the size of value");
  return PX_OK;
}

static px_status run_one(px__gradient_hook *hook, px_tensor **grad) {
  if (hook->removed || !hook->on_grad) return PX_OK;
  PX_SCOPED(px_tensor) other = NULL;
  PX_TRY(hook->on_grad(&other, *grad, hook->context));
  if (!other) return PX_OK;
  PX_TRY(check_hooked(*grad, other));
  px_release(*grad);
  *grad = PX_MOVE(other);
  return PX_OK;
}

// Adds grad to what the box holds, out of place. Of a tensor that has ended nothing is kept: under
// create_graph its gradient's history would hold the node that holds the box.
static px_status keep(px__box *box, px_tensor *grad) {
  PX_SCOPED(px_tensor) before = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  px__spin_lock(&box->lock);
  bool closed = box->closed;
  before = px_retain(box->grad);
  px__spin_unlock(&box->lock);
  if (closed) return PX_OK;
  if (before)
    PX_TRY(px_add(&sum, before, grad, px_int(1)));
  else
    sum = px_retain(grad);
  px_release(PX_MOVE(before));
  px__spin_lock(&box->lock);
  if (!box->closed) before = box->grad, box->grad = PX_MOVE(sum);
  px__spin_unlock(&box->lock);
  return PX_OK;
}

void px__box_close(px__box *box) {
  px__spin_lock(&box->lock);
  px_tensor *last = PX_MOVE(box->grad);
  box->closed = true;
  px__spin_unlock(&box->lock);
  px_release(last);
}

// A hook may add or remove hooks: the index is checked against the count at each step.
static px_status run_list(px__gradient_hooks *hooks, bool leaf, px_tensor **grads) {
  for (int i = 0; i < hooks->count; i++) {
    PX_SCOPED(px__gradient_hook) hook = px_retain(hooks->items[i]);
    px_tensor **grad = &grads[leaf ? 0 : hook->nr];
    if (*grad && !hook->box) PX_TRY(run_one(hook, grad));
  }
  for (int i = 0; i < hooks->count; i++) {  // what is retained is what the hooks made of it
    PX_SCOPED(px__gradient_hook) hook = px_retain(hooks->items[i]);
    if (hook->box && grads[hook->nr]) PX_TRY(keep(hook->box, grads[hook->nr]));
  }
  return PX_OK;
}

px_status px__hooks_run(px_node *node, px_tensor **grads) {
  px_tensor *leaf = px_node_variable(node);
  px__grad_state *state = leaf ? px__grad_state_of(leaf) : NULL;
  if (state) return state->hooks.count ? run_list(&state->hooks, true, grads) : PX_OK;
  return node->hooks ? run_list(node->hooks, false, grads) : PX_OK;
}

px_status px__hooks_run_accumulated(px_tensor *leaf) {
  px__grad_state *state = px__grad_state_of(leaf);
  for (int i = 0; i < state->accumulated.count; i++) {
    PX_SCOPED(px__gradient_hook) hook = px_retain(state->accumulated.items[i]);
    if (!hook->removed) PX_TRY(hook->on_accumulated(leaf, hook->context));
  }
  return PX_OK;
}
