// SPDX-License-Identifier: Apache-2.0
// Lists of hooks: adding, finding, removing and visiting.
//
// A hook is in at most two lists, of a gradient state and of a node. The lists of a gradient state
// are sorted by id.
#include "autograd/engine/graph.h"

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
static const px_class hook_class = {"hook", hook_destroy};

void px__hook_leave(px_hook *hook) {
  lock();
  bool last = --hook->users == 0;
  unlock();
  if (last && hook->release) hook->release(hook->context);
  px_release(hook);
}

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
    if (all.items[i].hook) px__hook_leave(all.items[i].hook);
  px_free(all.items);
}

// Caller holds the lock; readers of the count take none.
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

px_status px__hooks_append(px__gradient_hooks *hooks, px_hook *hook) {
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

px_status px__hooks_append_to_node(px_node *node, px_hook *hook) {
  px__gradient_hooks *made = NULL, *other = NULL;
  if (px__hooks_of(node)) return px__hooks_append(px__hooks_of(node), hook);
  PX_TRY(px_alloc((void **)&made, sizeof *made));
  bool first = __atomic_compare_exchange_n(&node->hooks, &other, made, false, __ATOMIC_ACQ_REL,
                                           __ATOMIC_ACQUIRE);
  if (!first) px_free(made);  // another thread added a list
  return px__hooks_append(px__hooks_of(node), hook);
}

px_status px__hook_new(px_hook **out) {
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
  while (count-- > 0) px__hook_leave(hook);
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

// Caller holds the lock.
static px_hook *find(const px__gradient_hooks *hooks, int64_t id) {
  int at = first_after(hooks, id) - 1;
  if (at >= 0 && hooks->items[at].id == id) return hooks->items[at].hook;
  // Threads adding hooks at the same time may have added them in another order than their ids.
  for (int i = 0; i < hooks->count; i++)
    if (hooks->items[i].id == id) return hooks->items[i].hook;
  return NULL;
}

px_hook *px__hooks_find(const px__gradient_hooks *hooks, int64_t id) {
  lock();
  px_hook *hook = px_retain(find(hooks, id));
  unlock();
  return hook;
}

px_hook *px__hooks_take_retained(px__gradient_hooks *hooks, const px__grad_box *box) {
  px_hook *hook = NULL;
  lock();
  for (int i = 0; i < hooks->count && !hook; i++)
    if (hooks->items[i].hook && hooks->items[i].hook->box == box) hook = hooks->items[i].hook;
  if (hook) remove_from(hooks, hook);
  unlock();
  return hook;
}

// ---- hooks of nodes

px_status px_node_add_hook(px_hook **out, px_node *self, bool after, px_node_hook on_node,
                           void *context, void (*release)(void *context)) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_CHECK(on_node, PX_TYPE, "expected a hook function, got NULL");
  PX__USED_HOOK *hook = NULL;
  PX_TRY(px__hook_new(&hook));
  hook->on_node = on_node;
  hook->after = after;
  hook->context = context;
  PX_TRY(px__hooks_append_to_node(self, hook));
  hook->release = release;
  *out = px_retain(hook);
  return PX_OK;
}

// A note is stored as a hook without callback.
void *px_node_user(const px_node *self) {
  void *note = NULL;
  lock();
  const px__gradient_hooks *hooks = px__hooks_of(self);
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
  PX__USED_HOOK *hook = NULL;
  PX_TRY(px__hook_new(&hook));
  hook->context = note;
  PX_TRY(px__hooks_append_to_node(self, hook));
  hook->release = release;
  return PX_OK;
}

// ---- hooks owned by a tensor alone

static bool is_own(const px_hook *hook, const px__grad_state *state, const px_node *node) {
  for (int i = 0; i < 2; i++) {
    const px__gradient_hooks *list = hook->lists[i];
    bool own = list == &state->hooks || list == &state->accumulated;
    if (list && !own && !(node && list == px__hooks_of(node))) return false;
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

// ---- running

px__hook_run px__hook_run_begin(const px__gradient_hooks *hooks) {
  lock();
  px__hook_run run = {0, hooks->count ? hooks->items[hooks->count - 1].id : 0};
  unlock();
  return run;
}

px_hook *px__hook_run_next(px__gradient_hooks *hooks, px__hook_run *run) {
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
