// SPDX-License-Identifier: Apache-2.0
// History of device memory: events of blocks and segments, as in PyTorch's snapshots. While nothing
// is recorded, the cost is one load of px__bins_disabled. While recording, the fast bins are off,
// since they would hide allocations.
#include "device/cache/cache.h"

#include <time.h>

const char *px_memory_action_name(px_memory_action action) {
  static const char *const names[] = {
#define XX(name, text) #text,
      PX_MEMORY_ACTION_MAP(XX)
#undef XX
  };
  return (unsigned)action < PX_MEMORY_ACTIONS ? names[action] : "";
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
  if (!px__history_on() || px__history_skips(event->action)) return;
  px_memory_event *slot = next_slot(&d->cache.events);
  if (!slot) return;
  *slot = *event;
  slot->time = microseconds();
  if (!keeps_stack(event->action)) slot->stack = NULL;
}

void px__history_block(px__device *d, px_memory_action action, const px__block *block,
                       const px_traceback *stack) {
  if (!px__history_on()) return;
  px__history_note(d,
                   &(px_memory_event){.action = action,
                                      .address = (int64_t)block->node.address,
                                      .size = (int64_t)block->allocation.pub.bytes,
                                      .stream = block->stream->id,
                                      .pool = px__private_pool_name(block->segment->private_pool),
                                      .stack = stack});
}

void px__history_segment(px__device *d, px_memory_action action, const px__segment *segment,
                         uintptr_t at, size_t bytes, const px_stream *stream) {
  px__history_note(d, &(px_memory_event){.action = action,
                                         .address = (int64_t)at,
                                         .size = (int64_t)bytes,
                                         .stream = stream->id,
                                         .pool = px__private_pool_name(segment->private_pool),
                                         .stack = segment->stack});
}
