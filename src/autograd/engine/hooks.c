// SPDX-License-Identifier: Apache-2.0
// Hooks on gradients of tensors, and retain_grad.
//
// A hook is shared by the tensor's gradient state and the node that produced the tensor. The node
// runs it, so hooks outlive the tensor, as the graph does. If the tensor is changed in place, its
// hooks remain at the old node. Only retain_grad moves to the new node.
#include "autograd/engine/graph.h"
#include "phlox/ops/arithmetic.h"

static int64_t last_id;  // atomic

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;  // guards lists and px_hook.lists
static void lock(void) { pthread_mutex_lock(&guard); }
static void unlock(void) { pthread_mutex_unlock(&guard); }

static void hook_destroy(void *self) {
  px_hook *hook = self;
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

// Removes a user and its reference. The last user releases the context.
static void leave(px_hook *hook) {
  lock();
  bool last = --hook->users == 0;
  unlock();
  if (last && hook->release) hook->release(hook->context);
  px_release(hook);
}
static void leave_slot(px_hook **slot) {
  if (*slot) leave(*slot);
}
#define USED __attribute__((cleanup(leave_slot))) px_hook

// Returns the hook's slot for a list; NULL finds a free slot. Caller holds the lock.
static px__gradient_hooks **list_slot(px_hook *hook, const px__gradient_hooks *list) {
  return hook->lists[0] == list ? &hook->lists[0] : &hook->lists[1];
}

void px__hooks_clear(px__gradient_hooks *hooks) {
  lock();
  px__gradient_hooks all = *hooks;
  *hooks = (px__gradient_hooks){0};
  for (int i = 0; i < all.count; i++) *list_slot(all.items[i], hooks) = NULL;
  unlock();
  for (int i = 0; i < all.count; i++) leave(all.items[i]);
  px_free(all.items);
}

static px_status grow(px__gradient_hooks *hooks) {
  if (hooks->count < hooks->capacity) return PX_OK;
  int capacity = hooks->capacity ? hooks->capacity * 2 : 4;
  PX_TRY(px_realloc((void **)&hooks->items, (size_t)capacity * sizeof(px_hook *)));
  hooks->capacity = capacity;
  return PX_OK;
}

static px_status append(px__gradient_hooks *hooks, px_hook *hook) {
  lock();
  px_status status = grow(hooks);
  if (status == PX_OK) {
    hooks->items[hooks->count++] = px_retain(hook);
    *list_slot(hook, NULL) = hooks;
    hook->users++;
  }
  unlock();
  return status;
}

// Removes the hook from a list. True if it was there; the caller gets the list's reference. Caller
// holds the lock.
static bool remove_from(px__gradient_hooks *hooks, px_hook *hook) {
  for (int i = 0; hooks && i < hooks->count; i++) {
    if (hooks->items[i] != hook) continue;
    memmove(hooks->items + i, hooks->items + i + 1,
            (size_t)(--hooks->count - i) * sizeof(px_hook *));
    *list_slot(hook, hooks) = NULL;
    return true;
  }
  return false;
}

static px_status append_to_node(px_node *node, px_hook *hook) {
  if (!node->hooks) PX_TRY(px_alloc((void **)&node->hooks, sizeof *node->hooks));
  return append(node->hooks, hook);
}

// Creates a hook with the caller as its first user.
static px_status hook_new(px_hook **out) {
  PX_TRY(px_alloc((void **)out, sizeof **out));
  px_object_init(*out, &hook_class);
  (*out)->id = __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED);
  (*out)->users = 1;
  return PX_OK;
}

void px_hook_remove(px_hook *hook) {
  if (!hook) return;
  lock();
  hook->removed = true;  // a call already holding it does nothing
  int count = remove_from(hook->lists[0], hook);
  count += remove_from(hook->lists[1], hook);
  unlock();
  while (count-- > 0) leave(hook);
}

px_status px_tensor_add_hook(int64_t *id, px_tensor *self, px_grad_hook on_grad, void *context,
                             void (*release)(void *context)) {
  PX_GIVEN(id);
  PX_GIVEN(self);
  PX_CHECK(on_grad, PX_TYPE, "expected a hook function, got NULL");
  PX_CHECK(px_tensor_requires_grad(self), PX_RUNTIME,
           "cannot register a hook on a tensor that doesn't require gradient");
  px_node *fn;
  PX_TRY(px_tensor_grad_fn(&fn, self));
  px__grad_state *state;
  PX_TRY(px__grad_state_make(&state, self));
  USED *hook = NULL;
  PX_TRY(hook_new(&hook));
  hook->on_grad = on_grad;
  hook->nr = state->nr;
  hook->context = context;
  if (fn) PX_TRY(append_to_node(fn, hook));
  px_status status = append(&state->hooks, hook);
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
  USED *hook = NULL;
  PX_TRY(hook_new(&hook));
  hook->on_accumulated = on_accumulated;
  hook->context = context;
  PX_TRY(append(&state->accumulated, hook));
  hook->release = release;
  *id = hook->id;
  return PX_OK;
}

px_status px_node_add_hook(px_hook **out, px_node *self, bool after, px_node_hook on_node,
                           void *context, void (*release)(void *context)) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_CHECK(on_node, PX_TYPE, "expected a hook function, got NULL");
  USED *hook = NULL;
  PX_TRY(hook_new(&hook));
  hook->on_node = on_node;
  hook->after = after;
  hook->context = context;
  PX_TRY(append_to_node(self, hook));
  hook->release = release;
  *out = px_retain(hook);
  return PX_OK;
}

// A note is stored as a hook without callback.
void *px_node_user(const px_node *self) {
  void *note = NULL;
  lock();
  for (int i = 0; self->hooks && i < self->hooks->count && !note; i++) {
    const px_hook *hook = self->hooks->items[i];
    if (!hook->on_grad && !hook->on_node && !hook->box) note = hook->context;
  }
  unlock();
  return note;
}

px_status px_node_set_user(px_node *self, void *note, void (*release)(void *note)) {
  PX_GIVEN(self);
  PX_CHECK(!px_node_user(self), PX_VALUE, "%s already has a note", self->name);
  USED *hook = NULL;
  PX_TRY(hook_new(&hook));
  hook->context = note;
  PX_TRY(append_to_node(self, hook));
  hook->release = release;
  return PX_OK;
}

static px_hook *find(const px__gradient_hooks *hooks, int64_t id) {
  for (int i = 0; i < hooks->count; i++)
    if (hooks->items[i]->id == id) return hooks->items[i];
  return NULL;
}

px_hook *px_tensor_hook(const px_tensor *self, int64_t id) {
  px__grad_state *state = px__grad_state_of(self);
  if (!state) return NULL;
  lock();
  px_hook *hook = find(&state->hooks, id);
  if (!hook) hook = find(&state->accumulated, id);
  unlock();
  return hook;
}

void px_tensor_remove_hook(px_tensor *self, int64_t id) {
  px_hook_remove(px_tensor_hook(self, id));
}

// ---- hooks owned by a tensor alone

static bool is_own(const px_hook *hook, const px__grad_state *state) {
  for (int i = 0; i < 2; i++) {
    const px__gradient_hooks *list = hook->lists[i];
    bool own = list == &state->hooks || list == &state->accumulated;
    if (list && !own && !(state->fn && list == state->fn->hooks)) return false;
  }
  return true;
}

bool px__hooks_at(const px__grad_state *state, int i, px_context *out) {
  const px__gradient_hooks *lists[] = {&state->hooks, &state->accumulated};
  bool found = false;
  lock();
  for (int k = 0; k < 2 && !found; k++) {
    for (int at = 0; at < lists[k]->count && !found; at++) {
      const px_hook *hook = lists[k]->items[at];
      if (!hook->context || !is_own(hook, state) || i-- > 0) continue;
      *out = (px_context){hook->context, hook->release, hook->id};
      found = true;
    }
  }
  unlock();
  return found;
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
  USED *hook = NULL;
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
  USED *hook = NULL;
  lock();
  for (int i = 0; i < from->hooks->count && !hook; i++)
    if (from->hooks->items[i]->box == state->box) hook = from->hooks->items[i];
  if (hook) remove_from(from->hooks, hook);
  unlock();
  if (!hook) return PX_OK;
  hook->nr = state->nr;
  return append_to_node(state->fn, hook);
}

// ---- running

static px_status check_hooked(const px_tensor *before, const px_tensor *now) {
  char was[48], is[48];
  PX_CHECK(px_tensor_dtype(now) == px_tensor_dtype(before) &&
               px_device_equal(px_tensor_device(now), px_tensor_device(before)),
           PX_RUNTIME, "hook has changed the type of value (was %s got %s)",
           px_tensor_type_name(before, was), px_tensor_type_name(now, is));
  PX_CHECK(px_tensor_has_sizes(now, px_tensor_ndim(before), px_tensor_sizes(before)), PX_RUNTIME,
           "hook has changed the size of value");
  return PX_OK;
}

static px_status run_one(px_hook *hook, px_tensor **grad) {
  if (hook->removed || !hook->on_grad) return PX_OK;
  PX_SCOPED(px_tensor) other = NULL;
  PX_TRY(hook->on_grad(&other, *grad, hook->context));
  if (!other) return PX_OK;
  PX_TRY(check_hooked(*grad, other));
  px_release(*grad);
  *grad = PX_MOVE(other);
  return PX_OK;
}

// Adds grad to the retained gradient, out of place. After the tensor's destruction nothing is
// stored: with create_graph the gradient's history would own the node that owns the box.
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

// Returns the i-th hook with an added user, or NULL past the end. Hooks may be added or removed
// concurrently, or by the hook itself.
static px_hook *use(px__gradient_hooks *hooks, int i) {
  lock();
  px_hook *hook = i < hooks->count ? px_retain(hooks->items[i]) : NULL;
  if (hook) hook->users++;
  unlock();
  return hook;
}

static px_status run_list(px__gradient_hooks *hooks, bool leaf, px_tensor **grads) {
  for (int i = 0;; i++) {
    USED *hook = use(hooks, i);
    if (!hook) break;
    px_tensor **grad = &grads[leaf ? 0 : hook->nr];
    if (*grad && !hook->box) PX_TRY(run_one(hook, grad));
  }
  for (int i = 0;; i++) {  // retained gradients are stored after all other hooks ran
    USED *hook = use(hooks, i);
    if (!hook) return PX_OK;
    if (hook->box && grads[hook->nr]) PX_TRY(keep(hook->box, grads[hook->nr]));
  }
}

px_status px__hooks_run(px_node *node, px_tensor **grads) {
  px_tensor *leaf = px_node_variable(node);
  px__grad_state *state = leaf ? px__grad_state_of(leaf) : NULL;
  if (state) return state->hooks.count ? run_list(&state->hooks, true, grads) : PX_OK;
  return node->hooks ? run_list(node->hooks, false, grads) : PX_OK;
}

px_status px__hooks_run_node(px_node *node, bool after, const px__node_grads *grads) {
  for (int i = 0; node->hooks; i++) {
    USED *hook = use(node->hooks, i);
    if (!hook) return PX_OK;
    if (hook->removed || !hook->on_node || hook->after != after) continue;
    PX_TRY(hook->on_node(after ? grads->out : grads->in, after ? grads->out_count : grads->in_count,
                         after ? grads->in : NULL, after ? grads->in_count : 0, hook->context));
  }
  return PX_OK;
}

px_status px__hooks_run_accumulated(px_tensor *leaf) {
  px__grad_state *state = px__grad_state_of(leaf);
  for (int i = 0;; i++) {
    USED *hook = use(&state->accumulated, i);
    if (!hook) return PX_OK;
    if (!hook->removed) PX_TRY(hook->on_accumulated(leaf, hook->context));
  }
}
