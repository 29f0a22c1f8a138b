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
// A forked child has no thread to unlock it.
static __attribute__((constructor)) void watch_forks(void) { pthread_atfork(lock, unlock, unlock); }

static void hook_destroy(void *self) {
  px_hook *hook = self;
  px_release(hook->box);
  px_object_end(hook);
  px_free(hook);
}
static void box_destroy(void *self) {
  px__grad_box *box = self;
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

// Returns the hook's index of a list; NULL finds a free one. Caller holds the lock.
static int list_index(const px_hook *hook, const px__gradient_hooks *list) {
  return hook->lists[0] == list ? 0 : 1;
}
static void place(px_hook *hook, px__gradient_hooks *list, int at) {
  int index = list_index(hook, NULL);
  hook->lists[index] = list;
  hook->at[index] = at;
}
static void displace(px_hook *hook, const px__gradient_hooks *list) {
  hook->lists[list_index(hook, list)] = NULL;
}

void px__hooks_clear(px__gradient_hooks *hooks) {
  lock();
  px__gradient_hooks all = *hooks;
  *hooks = (px__gradient_hooks){0};
  for (int i = 0; i < all.count; i++)
    if (all.items[i].hook) displace(all.items[i].hook, hooks);
  unlock();
  for (int i = 0; i < all.count; i++)
    if (all.items[i].hook) leave(all.items[i].hook);
  px_free(all.items);
}

// Caller holds the lock; may_have_hooks reads without it.
static void set_count(px__gradient_hooks *hooks, int count) {
  __atomic_store_n(&hooks->count, count, __ATOMIC_RELAXED);
}

static px_status grow(px__gradient_hooks *hooks) {
  if (hooks->count < hooks->capacity) return PX_OK;
  int capacity = hooks->capacity ? hooks->capacity * 2 : 4;
  PX_TRY(px_realloc((void **)&hooks->items, (size_t)capacity * sizeof *hooks->items));
  hooks->capacity = capacity;
  return PX_OK;
}

static px_status append(px__gradient_hooks *hooks, px_hook *hook) {
  lock();
  px_status status = grow(hooks);
  if (status == PX_OK) {
    place(hook, hooks, hooks->count);
    hooks->items[hooks->count] = (struct px__hook_item){px_retain(hook), hook->id};
    set_count(hooks, hooks->count + 1);
    hook->users++;
  }
  unlock();
  return status;
}

static void close_gaps(px__gradient_hooks *hooks) {
  int count = 0;
  for (int i = 0; i < hooks->count; i++) {
    px_hook *hook = hooks->items[i].hook;
    if (!hook) continue;
    hook->at[list_index(hook, hooks)] = count;
    hooks->items[count++] = hooks->items[i];
  }
  set_count(hooks, count);
  hooks->gaps = 0;
}

// Removes the hook from a list. True if it was there; the caller gets the list's reference. Caller
// holds the lock.
static bool remove_from(px__gradient_hooks *hooks, px_hook *hook) {
  if (!hooks) return false;
  hooks->items[hook->at[list_index(hook, hooks)]].hook = NULL;
  displace(hook, hooks);
  if (2 * ++hooks->gaps > hooks->count) close_gaps(hooks);
  return true;
}

static px__gradient_hooks *hooks_of(const px_node *node) {
  return __atomic_load_n(&node->hooks, __ATOMIC_ACQUIRE);
}

static px_status append_to_node(px_node *node, px_hook *hook) {
  px__gradient_hooks *made = NULL, *other = NULL;
  if (hooks_of(node)) return append(hooks_of(node), hook);
  PX_TRY(px_alloc((void **)&made, sizeof *made));
  bool first = __atomic_compare_exchange_n(&node->hooks, &other, made, false, __ATOMIC_ACQ_REL,
                                           __ATOMIC_ACQUIRE);
  if (!first) px_free(made);  // another thread added a list
  return append(hooks_of(node), hook);
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
  // A call already holding it does nothing.
  __atomic_store_n(&hook->removed, true, __ATOMIC_RELAXED);
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
  px__grad_state *state;
  if (px__view_stale(self)) PX_TRY(px__view_refresh(self));
  PX_TRY(px__grad_state_make(&state, self));
  USED *hook = NULL;
  PX_TRY(hook_new(&hook));
  PX_SCOPED(px_node) fn = px__node_of(state, &hook->nr);
  hook->on_grad = on_grad;
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
  const px__gradient_hooks *hooks = hooks_of(self);
  for (int i = 0; hooks && i < hooks->count && !note; i++) {
    const px_hook *hook = hooks->items[i].hook;
    if (hook && !hook->on_grad && !hook->on_node && !hook->box) note = hook->context;
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

// Hooks of a gradient state are sorted by id.
// Returns the position of the first hook with a larger id. Caller holds the lock.
static int first_after(const px__gradient_hooks *hooks, int64_t id) {
  int low = 0, high = hooks->count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (hooks->items[middle].id <= id)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static px_hook *find(const px__gradient_hooks *hooks, int64_t id) {
  int at = first_after(hooks, id) - 1;
  if (at >= 0 && hooks->items[at].id == id) return hooks->items[at].hook;
  // Threads adding hooks at the same time may have added them in another order than their ids.
  for (int i = 0; i < hooks->count; i++)
    if (hooks->items[i].id == id) return hooks->items[i].hook;
  return NULL;
}

// Returns a new reference, or NULL.
static px_hook *take_hook(const px_tensor *self, int64_t id) {
  px__grad_state *state = px__grad_state_of(self);
  if (!state) return NULL;
  lock();
  px_hook *hook = find(&state->hooks, id);
  if (!hook) hook = find(&state->accumulated, id);
  px_retain(hook);
  unlock();
  return hook;
}

px_hook *px_tensor_hook(const px_tensor *self, int64_t id) {
  PX_SCOPED(px_hook) hook = take_hook(self, id);
  return hook;
}

void px_tensor_remove_hook(px_tensor *self, int64_t id) {
  PX_SCOPED(px_hook) hook = take_hook(self, id);
  px_hook_remove(hook);
}

// ---- hooks owned by a tensor alone

static bool is_own(const px_hook *hook, const px__grad_state *state, const px_node *node) {
  for (int i = 0; i < 2; i++) {
    const px__gradient_hooks *list = hook->lists[i];
    bool own = list == &state->hooks || list == &state->accumulated;
    if (list && !own && !(node && list == hooks_of(node))) return false;
  }
  return true;
}

bool px__hooks_next(const px__grad_state *state, const px_node *node, int *position,
                    px_context *out) {
  const px__gradient_hooks *first = &state->hooks, *second = &state->accumulated;
  bool found = false;
  lock();
  for (; !found && *position < first->count + second->count; ++*position) {
    int at = *position < first->count ? *position : *position - first->count;
    const px_hook *hook = (*position < first->count ? first : second)->items[at].hook;
    if (!hook || !hook->context || !is_own(hook, state, node)) continue;
    *out = (px_context){hook->context, hook->release, hook->id};
    found = true;
  }
  unlock();
  return found;
}

// ---- retain_grad

// Adds a hook of a node that stores the gradient of its nr-th result.
static px_status append_box(px_node *node, px__grad_box *box, int nr) {
  USED *hook = NULL;
  PX_TRY(hook_new(&hook));
  hook->box = px_retain(box);
  hook->nr = nr;
  return append_to_node(node, hook);
}

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
  PX_TRY(px_alloc((void **)&box, sizeof *box));
  px_object_init(box, &box_class);
  px_status status = append_box(node, box, nr);
  bool set = status == PX_OK && __atomic_compare_exchange_n(&state->box, &other, box, false,
                                                            __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  if (!set) px__box_close(box), px_release(box);
  return status;
}

bool px_tensor_retains_grad(const px_tensor *self) {
  const px__grad_state *state = px__grad_state_of(self);
  return state && __atomic_load_n(&state->box, __ATOMIC_ACQUIRE);
}

px_status px__hooks_move_retained(px_tensor *t, px_node *from, px_node *to, int nr) {
  px__grad_box *box = px__grad_state_of(t)->box;
  px__gradient_hooks *hooks = from ? hooks_of(from) : NULL;
  if (!hooks || from == to) return PX_OK;
  USED *hook = NULL;
  lock();
  for (int i = 0; i < hooks->count && !hook; i++)
    if (hooks->items[i].hook && hooks->items[i].hook->box == box) hook = hooks->items[i].hook;
  if (hook) remove_from(hooks, hook);
  unlock();
  return hook ? append_box(to, box, nr) : PX_OK;
}

// ---- running

static px_status check_hooked(const px_tensor *before, const px_tensor *now) {
  char was[48], is[48];
  PX_CHECK(px_tensor_dtype(now) == px_tensor_dtype(before) &&
               px_device_equal(px_tensor_device(now), px_tensor_device(before)),
           PX_RUNTIME, "hook has changed the type of value (was %s got %s)",
           px_tensor_type_name(before, was), px_tensor_type_name(now, is));
  PX_CHECK(px_tensor_same_sizes(now, before), PX_RUNTIME, "hook has changed the size of value");
  return PX_OK;
}

static bool is_removed(const px_hook *hook) {
  return __atomic_load_n(&hook->removed, __ATOMIC_RELAXED);
}

static px_status run_one(px_hook *hook, px_tensor **grad) {
  if (is_removed(hook) || !hook->on_grad) return PX_OK;
  PX_SCOPED(px_tensor) other = NULL;
  PX_TRY(hook->on_grad(&other, *grad, hook->context));
  if (!other) return PX_OK;
  PX_CHECK(*grad, PX_RUNTIME, "can't replace a None gradient with a non-None value");
  PX_TRY(check_hooked(*grad, other));
  px_release(*grad);
  *grad = PX_MOVE(other);
  return PX_OK;
}

// Adds grad to the retained gradient, out of place. After the tensor's destruction nothing is
// stored: with create_graph the gradient's history would own the node that owns the box.
static px_status keep(px__grad_box *box, px_tensor *grad) {
  PX_SCOPED(px_tensor) before = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  px_spin_lock(&box->lock);
  bool closed = box->closed;
  before = px_retain(box->grad);
  px_spin_unlock(&box->lock);
  if (closed) return PX_OK;
  if (before)
    PX_TRY(px_add(&sum, before, grad, px_int(1)));
  else
    sum = px_retain(grad);
  px_release(PX_MOVE(before));
  px_spin_lock(&box->lock);
  if (!box->closed) before = box->grad, box->grad = PX_MOVE(sum);
  px_spin_unlock(&box->lock);
  return PX_OK;
}

void px__box_close(px__grad_box *box) {
  px_spin_lock(&box->lock);
  px_tensor *last = PX_MOVE(box->grad);
  box->closed = true;
  px_spin_unlock(&box->lock);
  px_release(last);
}

// A run of the hooks that a list holds at its begin, by their ids: hooks may be added and removed
// meanwhile, concurrently or by a hook.
typedef struct hook_run {
  int64_t id, last;  // of the current hook, and of the last one
} hook_run;

static hook_run run_begin(const px__gradient_hooks *hooks) {
  lock();
  hook_run run = {0, hooks->count ? hooks->items[hooks->count - 1].id : 0};
  unlock();
  return run;
}

// Returns the next hook with an added user, or NULL past the end.
static px_hook *use_next(px__gradient_hooks *hooks, hook_run *run) {
  px_hook *hook = NULL;
  lock();
  for (int i = first_after(hooks, run->id); i < hooks->count && !hook; i++) {
    if (hooks->items[i].id > run->last) break;
    run->id = hooks->items[i].id;
    hook = hooks->items[i].hook;
  }
  if (hook) px_retain(hook), hook->users++;
  unlock();
  return hook;
}

static px_status run_list(px__gradient_hooks *hooks, bool leaf, px_tensor **grads) {
  hook_run run = run_begin(hooks), retained = run;
  for (;;) {
    USED *hook = use_next(hooks, &run);
    if (!hook) break;
    px_tensor **grad = &grads[leaf ? 0 : hook->nr];
    if (!hook->box) PX_TRY(run_one(hook, grad));
  }
  for (;;) {  // retained gradients are stored after all other hooks ran
    USED *hook = use_next(hooks, &retained);
    if (!hook) return PX_OK;
    if (hook->box && grads[hook->nr]) PX_TRY(keep(hook->box, grads[hook->nr]));
  }
}

// Without the lock: a concurrent change counts as a later one.
static bool may_have_hooks(const px__gradient_hooks *hooks) {
  return __atomic_load_n(&hooks->count, __ATOMIC_RELAXED) != 0;
}

// A node without any gradient runs no hooks; otherwise those of a result without one get NULL.
px_status px__hooks_run(px_node *node, px_tensor **grads) {
  bool any = false;
  for (int i = 0; i < node->result_count; i++) any |= grads[i] != NULL;
  if (!any) return PX_OK;
  px_tensor *leaf = px_node_variable(node);
  px__grad_state *state = leaf ? px__grad_state_of(leaf) : NULL;
  if (state) return may_have_hooks(&state->hooks) ? run_list(&state->hooks, true, grads) : PX_OK;
  return hooks_of(node) ? run_list(hooks_of(node), false, grads) : PX_OK;
}

px_status px__hooks_run_node(px_node *node, bool after, const px__node_grads *grads) {
  px__gradient_hooks *hooks = hooks_of(node);
  hook_run run = hooks ? run_begin(hooks) : (hook_run){0};
  while (hooks) {
    USED *hook = use_next(hooks, &run);
    if (!hook) return PX_OK;
    if (is_removed(hook) || !hook->on_node || hook->after != after) continue;
    PX_TRY(hook->on_node(after ? grads->out : grads->in, after ? grads->out_count : grads->in_count,
                         after ? grads->in : NULL, after ? grads->in_count : 0, hook->context));
  }
  return PX_OK;
}

px_status px__hooks_run_accumulated(px_tensor *leaf) {
  px__grad_state *state = px__grad_state_of(leaf);
  if (!may_have_hooks(&state->accumulated)) return PX_OK;
  hook_run run = run_begin(&state->accumulated);
  for (;;) {
    USED *hook = use_next(&state->accumulated, &run);
    if (!hook) return PX_OK;
    if (!is_removed(hook)) PX_TRY(hook->on_accumulated(leaf, hook->context));
  }
}
