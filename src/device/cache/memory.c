// SPDX-License-Identifier: Apache-2.0
// Public functions of the allocator: emptying the cache, limits, uncached memory, snapshots and the
// history.
#include "device/cache/cache.h"

// Free pages of segments in use stay mapped, as PyTorch's segments do, below the slack limit. Lock
// held.
static void empty(px__device *d) {
  bool pages = d->cache.over_slack || d->cache.settings.expandable == PX__EXPANDABLE_TRUE;
  px__release_idle(d);
  if (pages) px__runs_unmap(d, SIZE_MAX, NULL);
  if (!px__device_captures(d)) d->cache.compact = false;
}

px_status px_memory_empty_cache(void) {
  if (!px__device_alive()) return PX_OK;
  px__wrapped_sweep();
  for (int i = 0; i < px__rt.count; i++) {
    px__device *d = px__device_found(i);
    if (!d) continue;
    px_status status = px__cache_wait(d);
    if (status == PX_ACCELERATOR)
      px_error_clear();  // the device is broken, reported by its next call: nothing is released
    else
      PX_TRY(status);
    px__device_lock(d);
    empty(d);
    px__device_unlock(d);
  }
  return PX_OK;
}

void px_memory_set_caching(bool on) {
  px__bins_disable(PX__UNCACHED, !on);
  for (int i = 0; px__device_alive() && i < px__rt.count; i++) {
    px__device_lock(px__rt.devices[i]);
    px__pool_flush(px__rt.devices[i]);
    px__device_unlock(px__rt.devices[i]);
  }
}

px_status px_memory_set_fraction(double fraction, int device) {
  PX_CHECK(fraction >= 0 && fraction <= 1, PX_VALUE,
           "Invalid fraction value: %g. Allowed range: 0~1", fraction);
  px__device *d;
  PX_TRY(px__device_resolve(&d, device));
  px__device_lock(d);
  px__settings_limit(d, fraction);
  px__device_unlock(d);
  return PX_OK;
}

px_status px_memory_fraction(double *out, int device) {
  PX_GIVEN(out);
  px__device *d;
  *out = 0;
  PX_TRY(px__device_resolve(&d, device));
  px__device_lock(d);
  *out = d->cache.limit ? d->cache.fraction : 1;
  px__device_unlock(d);
  return PX_OK;
}

// ---- device memory without the cache, for pluggable allocators
px_status px_memory_device_alloc(void **out, size_t bytes, int device) {
  PX_GIVEN(out);
  px__device *d;
  *out = NULL;
  PX_TRY(px__device_resolve(&d, device));
  PX_CHECK(bytes, PX_VALUE, "px_memory_device_alloc() expects at least 1 byte, got 0");
  PX_CHECK(!px__fault(PX__FAULT_DEVICE_ALLOC), PX_OUT_OF_MEMORY, "no device memory (injected)");
  return px__rt.backend->alloc(d->physical, bytes, out);
}

px_status px_memory_device_free(void *at, int device) {
  px__device *d;
  PX_TRY(px__device_resolve(&d, device));
  if (at) px__rt.backend->release(d->physical, at);
  return PX_OK;
}

// ---- snapshot
static const char *const states[] = {[PX__ALLOCATED] = "active_allocated",
                                     [PX__PENDING] = "active_pending_free",
                                     [PX__FREE] = "inactive"};

// Once pages have moved, an expandable segment may hold blocks of several streams, and belongs to
// none. Viewers replay the events back from a snapshot and merge by stream. Blocks and events of
// such segments must therefore report the same stream.
static bool is_shared(const px__device *d, bool paged, px_graph_pool pool) {
  return paged && d->cache.pages_moved && !pool.own && !pool.shared;
}

static px_memory_block describe(const px__device *d, const px__segment *segment,
                                const px__block *block) {
  bool shared = is_shared(d, segment->paged, px__private_pool_name(segment->private_pool));
  return (px_memory_block){
      .segment_address = (int64_t)(uintptr_t)segment->data,
      .segment_size = (int64_t)segment->size,
      .address = (int64_t)block->node.address,
      .size = (int64_t)block->node.size,
      .requested = block->state == PX__FREE ? 0 : (int64_t)block->allocation.pub.bytes,
      .stream = block->stream->id,
      .pool = px__private_pool_name(segment->private_pool),
      .small_pool = segment->small,
      .expandable = segment->paged,
      .stack = block->state == PX__FREE ? NULL : block->stack,
      .segment_stack = segment->stack,
      .segment_stream = shared ? 0 : segment->first->stream->id,
      .state = states[block->state]};
}

// Lists the blocks, oldest segment first. Lock held.
static px_status list_blocks(px_memory_block **out, int64_t *count, px__device *d) {
  px__segment *oldest = px__segment_oldest(d);
  int64_t blocks = 0;
  for (px__segment *s = oldest; s; s = s->prev)
    for (px__block *block = s->first; block; block = block->next) blocks++;
  PX_TRY(px__alloc((void **)out, (size_t)(blocks + 1) * sizeof **out));
  for (px__segment *s = oldest; s; s = s->prev)
    for (px__block *block = s->first; block; block = block->next)
      (*out)[(*count)++] = describe(d, s, block);
  return PX_OK;
}

px_status px__memory_blocks(px_memory_block **out, int64_t *count, int device) {
  *out = NULL, *count = 0;
  if (!px__device_alive() || device < 0 || device >= px__rt.count) return PX_OK;
  px__device *d = px__rt.devices[device];
  px__device_lock(d);
  px__pool_flush(d);
  px_status status = list_blocks(out, count, d);
  px__history_note(d, &(px_memory_event){.action = PX_MEMORY_SNAPSHOT,
                                         .size = d->cache.statistics.active_bytes[0].current});
  px__device_unlock(d);
  return status;
}

px_status px_memory_snapshot(int device, void (*each)(const px_memory_block *block, void *context),
                             void *context) {
  px_memory_block *blocks;
  int64_t count;
  PX_GIVEN(each);
  PX_TRY(px__memory_blocks(&blocks, &count, device));
  for (int64_t i = 0; i < count; i++) each(&blocks[i], context);
  px__free(blocks);
  return PX_OK;
}

// ---- history
px_status px_memory_record(const px_memory_history *history) {
  PX_CHECK(!history || history->max_entries >= 0, PX_VALUE,
           "max_entries must not be negative, but it is %lld", (long long)history->max_entries);
  PX_TRY(px_device_init());
  px__history_choose(NULL);
  for (int i = 0; i < px__rt.count; i++) {
    px__device *d = px__rt.devices[i];
    px__device_lock(d);
    px__pool_flush(d);
    px__history_begin(d, history);
    px__device_unlock(d);
  }
  px__history_choose(history);
  return PX_OK;
}

static px_memory_event read_event(const px__device *d, int64_t index) {
  const px__events *events = &d->cache.events;
  px_memory_event event = events->at[(events->oldest + index) % events->count];
  bool paged = event.action == PX_MEMORY_SEGMENT_MAP || event.action == PX_MEMORY_SEGMENT_UNMAP;
  if (is_shared(d, paged, event.pool)) event.stream = 0;
  return event;
}

bool px_memory_recording(void) { return px__history_on(); }

px_status px__memory_events(px_memory_event **out, int64_t *count, int device) {
  *out = NULL, *count = 0;
  if (!px__device_alive() || device < 0 || device >= px__rt.count) return PX_OK;
  px__device *d = px__rt.devices[device];
  px__device_lock(d);
  size_t events = (size_t)d->cache.events.count;
  px_status status = px__alloc((void **)out, (events + 1) * sizeof **out);
  if (status == PX_OK) *count = (int64_t)events;
  for (int64_t i = 0; i < *count; i++) (*out)[i] = read_event(d, i);
  px__device_unlock(d);
  return status;
}

px_status px_memory_events(int device, void (*each)(const px_memory_event *event, void *context),
                           void *context) {
  px_memory_event *events;
  int64_t count;
  PX_GIVEN(each);
  PX_TRY(px__memory_events(&events, &count, device));
  for (int64_t i = 0; i < count; i++) each(&events[i], context);
  px__free(events);
  return PX_OK;
}
