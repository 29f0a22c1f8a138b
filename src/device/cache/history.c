// SPDX-License-Identifier: Apache-2.0
// History of device memory: events of blocks and segments, as in PyTorch's snapshots. While nothing
// is recorded, the cost is one load of px__bins_disabled. While recording, the fast bins are off,
// since they would hide allocations.
#include "device/core/state.h"

#include <time.h>

int px__bins_disabled;
static int wanted;        // px_history_stacks; atomic
static unsigned skipped;  // atomic
static bool lines_only;   // atomic

const char *px_memory_action_name(px_memory_action action) {
  static const char *const names[] = {
#define XX(name, text) #text,
      PX_MEMORY_ACTION_MAP(XX)
#undef XX
  };
  return (unsigned)action < PX_MEMORY_ACTIONS ? names[action] : "";
}

bool px__history_wants(px_history_stacks stacks) {
  return px__history_on() && __atomic_load_n(&wanted, __ATOMIC_RELAXED) >= (int)stacks;
}

bool px__history_names_ops(void) { return !__atomic_load_n(&lines_only, __ATOMIC_RELAXED); }

void px__history_choose(const px_memory_history *history) {
  static const px_memory_history none;
  const px_memory_history *h = history ? history : &none;
  __atomic_store_n(&wanted, (int)h->stacks, __ATOMIC_RELAXED);
  __atomic_store_n(&skipped, h->skipped, __ATOMIC_RELAXED);
  __atomic_store_n(&lines_only, h->lines_only, __ATOMIC_RELAXED);
  px__bins_disable(PX__RECORDED, history != NULL);
  px__watch(PX__WATCH_CALLERS, h->stacks != PX_HISTORY_NO_STACKS && !h->lines_only);
}

// ---- events; lock held
void px__history_begin(px__device *d, const px_memory_history *history) {
  px__events *events = &d->cache.events;
  int64_t limit = history ? history->max_entries : 0;
  if (history && !history->clear && limit == events->limit) return;
  px__free(events->at);
  *events = (px__events){.limit = limit};
}

static int64_t microseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void grow(px__events *events) {
  px__error_guard guard;
  int64_t capacity = 2 * events->capacity + 256;
  if (capacity > events->limit) capacity = events->limit;
  if (capacity <= events->capacity) return;
  px__error_save(&guard);
  if (px__realloc((void **)&events->at, (size_t)capacity * sizeof *events->at) == PX_OK)
    events->capacity = capacity;
  px__error_restore(&guard);
}

// Returns the slot of a new event. Overwrites the oldest one at the limit or without memory. NULL
// if there is none.
static px_memory_event *next_slot(px__events *events) {
  if (events->count == events->capacity && !events->oldest) grow(events);
  if (events->count < events->capacity) return &events->at[events->count++];
  if (!events->count) return NULL;
  px_memory_event *slot = &events->at[events->oldest];
  events->oldest = (events->oldest + 1) % events->count;
  return slot;
}

static bool keeps_stack(px_memory_action action) {
  bool frees = action == PX_MEMORY_FREE_REQUESTED || action == PX_MEMORY_FREE_COMPLETED;
  return px__history_wants(frees ? PX_HISTORY_ALL : PX_HISTORY_ALLOCATIONS);
}

void px__history_note(px__device *d, const px_memory_event *event) {
  if (__atomic_load_n(&skipped, __ATOMIC_RELAXED) >> event->action & 1) return;
  px_memory_event *slot = next_slot(&d->cache.events);
  if (!slot) return;
  *slot = *event;
  slot->time = microseconds();
  if (!keeps_stack(event->action)) slot->stack = NULL;
}
