// SPDX-License-Identifier: Apache-2.0
// Entries of a backward call and callbacks at its end. A node caches the number of the last task
// that reached it and its entry index. This hint saves most lookups. If another task has
// overwritten it, the hash table has the entry.
#include "autograd/engine/engine.h"

static uint32_t last_number;  // atomic

static _Thread_local px__task *current;  // task of the node running on this thread
px__task *px__task_enter(px__task *task) {
  px__task *before = current;
  current = task;
  return before;
}
uint64_t px_backward_number(void) { return current ? (uint64_t)current->number + 1 : 0; }
bool px_backward_will_run(const px_node *node) {
  return current && node && px__task_runs(current, node);
}

px_status px__task_init(px__task *task) {
  memset(task, 0, sizeof *task);
  pthread_mutex_init(&task->lock, NULL);
  task->device = -1;
  task->outer = current;
  task->modes = px_modes_get();
  task->number = __atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED);
  return PX_OK;
}

// ---- callbacks at the end

static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;  // guards all lists of callbacks

px_status px_backward_at_end(px_status (*fn)(void *context), void *context,
                             void (*release)(void *context)) {
  px__task *task = current;
  px__last_call *call = NULL;
  while (task && task->outer) task = task->outer;
  px_status status = task ? px_alloc((void **)&call, sizeof *call)
                          : px_error_set(PX_RUNTIME, 0, __FILE__, __LINE__, __func__,
                                         "Final callbacks can only be installed during backward "
                                         "pass.");
  if (status != PX_OK) {
    if (release) release(context);
    return status;
  }
  *call = (px__last_call){NULL, fn, context, release};
  pthread_mutex_lock(&last_lock);
  px__last_call **link = &task->last_calls;
  while (*link) link = &(*link)->next;
  *link = call;
  pthread_mutex_unlock(&last_lock);
  return PX_OK;
}

static px__last_call *take_last_call(px__task *task) {
  pthread_mutex_lock(&last_lock);
  px__last_call *call = task->last_calls;
  if (call) task->last_calls = call->next;
  pthread_mutex_unlock(&last_lock);
  return call;
}

static void last_call_end(px__last_call *call) {
  if (call->release) call->release(call->context);
  px_free(call);
}

px_status px__task_run_last_calls(px__task *task) {
  px_status status = PX_OK;
  for (px__last_call *call; status == PX_OK && (call = take_last_call(task));) {
    status = call->fn(call->context);
    last_call_end(call);
  }
  return status;
}

static void drop_last_calls(px__task *task) {
  for (px__last_call *call; (call = take_last_call(task));) last_call_end(call);
}

// ---- destruction

static void entry_end(px__task_entry *entry) {
  px_release(entry->one);
  for (int i = 0; entry->many && i < entry->node->result_count; i++) px_release(entry->many[i]);
  px_free(entry->many);
}

void px__task_end(px__task *task) {
  drop_last_calls(task);
  for (uint32_t i = 0; i < task->count; i++) entry_end(&task->entries[i]);
  for (int i = 0; i < task->capture_count; i++) {
    px_release(task->captures[i].grad);
    px_release(task->captures[i].stream);
  }
  for (int i = 0; i < task->end_count; i++) px_release(task->ends[i]);
  for (int i = 0; i < task->peer_count; i++) px_release(task->peers[i]);
  px_free(task->peers);
  px_free(task->captures);
  px_free(task->ends);
  px_free(task->entries);
  px_free(task->table);
  px_free(task->error);
  pthread_mutex_destroy(&task->lock);
}

static uint32_t hash_of(const px_node *node) {
  uint64_t bits = (uint64_t)(uintptr_t)node >> 6;
  return (uint32_t)((bits * 0x9E3779B97F4A7C15u) >> 32);
}

static uint32_t *slot_of(const px__task *task, const px_node *node) {
  uint32_t mask = task->table_capacity - 1;
  for (uint32_t at = hash_of(node) & mask;; at = (at + 1) & mask) {
    uint32_t index = task->table[at];
    if (index == 0 || task->entries[index - 1].node == node) return &task->table[at];
  }
}

static px_status grow(px__task *task) {
  uint32_t capacity = task->capacity ? task->capacity * 2 : 64;
  PX_CHECK(capacity < UINT32_MAX / 4, PX_RUNTIME, "the graph has too many nodes");
  uint32_t *table = NULL;
  PX_TRY(px_realloc((void **)&task->entries, (size_t)capacity * sizeof *task->entries));
  PX_TRY(px_alloc((void **)&table, (size_t)capacity * 2 * sizeof *table));
  px_free(task->table);
  task->table = table;
  task->capacity = capacity;
  task->table_capacity = capacity * 2;
  for (uint32_t i = 0; i < task->count; i++) *slot_of(task, task->entries[i].node) = i + 1;
  return PX_OK;
}

int64_t px__task_find(const px__task *task, const px_node *node) {
  uint64_t hint = __atomic_load_n(&node->claim, __ATOMIC_RELAXED);
  uint32_t index = (uint32_t)hint;
  if (hint >> 32 == task->number && index < task->count && task->entries[index].node == node)
    return index;
  return task->count ? (int64_t)*slot_of(task, node) - 1 : -1;
}

bool px__task_runs(const px__task *task, const px_node *node) {
  int64_t entry = px__task_find(task, node);
  return entry >= 0 && (!task->limited || task->entries[entry].needed);
}

px_status px__task_add(px__task *task, px_node *node, uint32_t *entry) {
  int64_t found = px__task_find(task, node);
  if (found >= 0) {
    *entry = (uint32_t)found;
    return PX_OK;
  }
  if (task->count == task->capacity) PX_TRY(grow(task));
  *entry = task->count++;
  task->entries[*entry] = (px__task_entry){.node = node, .capture = -1};
  *slot_of(task, node) = *entry + 1;
  __atomic_store_n(&node->claim, (uint64_t)task->number << 32 | *entry, __ATOMIC_RELAXED);
  if (node->device.type == PX_CUDA) task->devices |= UINT64_C(1) << node->device.index;
  if (node->device.type == PX_CUDA && task->device < 0) task->device = node->device.index;
  if (node->device.type == PX_CUDA && node->device.index != task->device) task->shared = true;
  if (node->result_count == 1) return PX_OK;
  return px_alloc((void **)&task->entries[*entry].many,
                  (size_t)node->result_count * sizeof(px_tensor *));
}

// ---- traversal: depth first, with an explicit stack

typedef struct px__trail {
  uint32_t *at;
  size_t count, capacity;
} px__trail;

static px_status push_entry(px__trail *trail, uint32_t entry) {
  if (trail->count == trail->capacity) {
    size_t capacity = trail->capacity ? trail->capacity * 2 : 64;
    PX_TRY(px_realloc((void **)&trail->at, capacity * sizeof *trail->at));
    trail->capacity = capacity;
  }
  trail->at[trail->count++] = entry;
  return PX_OK;
}

// Follows the next edge of the top entry, or pops it.
static px_status step(px__task *task, px__trail *trail) {
  uint32_t top = trail->at[trail->count - 1];
  px_node *node = task->entries[top].node;
  int32_t i = task->entries[top].next_edge++;
  if (i >= node->edge_count) {
    trail->count--;
    if (trail->count && task->entries[top].needed)
      task->entries[trail->at[trail->count - 1]].needed = true;
    return PX_OK;
  }
  px_node *next = node->edges[i].node;
  if (!px__sees(node, i, task->forward)) return PX_OK;
  uint32_t before = task->count, entry;
  PX_TRY(px__task_add(task, next, &entry));
  task->entries[entry].dependencies++;
  bool fresh = entry >= before || task->entries[entry].next_edge == 0;
  if (fresh) return push_entry(trail, entry);
  if (task->entries[entry].needed) task->entries[top].needed = true;
  return PX_OK;
}

px_status px__task_reach(px__task *task, px_node *root) {
  uint32_t entry;
  PX_TRY(px__task_add(task, root, &entry));
  if (task->entries[entry].next_edge) return PX_OK;
  px__trail trail = {0};
  px_status status = push_entry(&trail, entry);
  while (status == PX_OK && trail.count) status = step(task, &trail);
  px_free(trail.at);
  return status;
}
