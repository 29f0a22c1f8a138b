// SPDX-License-Identifier: Apache-2.0
// Segments of device memory: taken from the device and released to it. The device's lock is held
// throughout.
//
// A segment is expandable, a run of mapped pages, if the backend can map pages. Else it is an
// allocation of the backend.
#include "device/cache/cache.h"

enum {
  SMALL_SEGMENT = 2 << 20,
  OWN_SEGMENT = 10 << 20  // bytes; requests from here on get their own segment
};

size_t px__segment_size(const px__device *d, size_t size) {
  if (size <= PX__SMALL_MAX) return SMALL_SEGMENT;
  return size < OWN_SEGMENT ? d->cache.settings.large_segment : px__whole_pages(size);
}

// ---- allocation
static px_status take_memory(const px__request *r, px__segment *segment) {
  px__device *d = r->device;
  size_t size = segment->size, limit = d->cache.limit;
  bool refused = px__fault(PX__FAULT_DEVICE_ALLOC) || (limit && d->cache.reserved + size > limit);
  PX_CHECK(!refused, PX_OUT_OF_MEMORY, "the device has no %zu bytes left", size);
  if (segment->paged) return px__pages_map(d, segment);
  if (segment->plugged.alloc) return px__plugged_alloc(&segment->data, &segment->plugged, r, size);
  return px__rt.backend->alloc(d->physical, size, &segment->data);
}

static void insert(px__device *d, px__segment *segment) {
  px__cache *cache = &d->cache;
  segment->next = cache->segments;
  if (segment->next) segment->next->prev = segment;
  cache->segments = segment;
  cache->reserved += segment->size;
  if (segment->private_pool) segment->private_pool->segments++;
  px__statistics_segment(&cache->statistics, segment, cache->settings.max_split, 1);
}

px_status px__segment_new(px__segment **out, const px__request *r, void *at, size_t bytes) {
  px__segment *s;
  px__block *block = NULL;
  px__device *d = r->device;
  PX_TRY(PX_NEW(&s));
  *s = (px__segment){.data = at,
                     .size = bytes,
                     .private_pool = r->pool,
                     .stack = r->stack,
                     .plugged = r->pool ? r->pool->plugged : (px_memory_allocator){0},
                     .small = r->small};
  s->paged = !s->plugged.alloc && px__pages_wanted(d);
  px_status status = px__block_new(&block, d);
  if (status == PX_OK) status = take_memory(r, s);
  if (status != PX_OK) {
    if (block) px__block_drop(d, block);
    return px__free(s), status;
  }
  s->first = s->last = block;
  block->segment = s, block->stream = r->stream;
  block->small = s->small, block->in_private_pool = s->private_pool != NULL;
  block->node.address = (uintptr_t)s->data, block->node.size = bytes;
  insert(d, s);
  px__history_segment(d, s->paged ? PX_MEMORY_SEGMENT_MAP : PX_MEMORY_SEGMENT_ALLOC, s,
                      block->node.address, bytes, r->stream);
  *out = s;
  return PX_OK;
}

// ---- release
void px__segment_forget(px__device *d, px__segment *segment) {
  *(segment->prev ? &segment->prev->next : &d->cache.segments) = segment->next;
  if (segment->next) segment->next->prev = segment->prev;
  px__free(segment);
}

void px__segment_release(px__device *d, px__segment *segment) {
  px__cache *cache = &d->cache;
  px_stream *stream = segment->first->stream;
  px__history_segment(d, segment->paged ? PX_MEMORY_SEGMENT_UNMAP : PX_MEMORY_SEGMENT_FREE, segment,
                      (uintptr_t)segment->data, segment->size, stream);
  for (px__block *block = segment->first, *next; block; block = next) {
    next = block->next;
    px__statistics_inactive(&cache->statistics, block, -1);
    px__block_remove_free(block);
    px__block_drop(d, block);
  }
  if (segment->paged)
    px__pages_unmap(d, segment);
  else if (segment->plugged.alloc)
    segment->plugged.free(segment->data, (int64_t)segment->size, d->index, stream->native);
  else
    px__rt.backend->release(d->physical, segment->data);
  cache->reserved -= segment->size;
  px__statistics_segment(&cache->statistics, segment, cache->settings.max_split, -1);
  if (segment->private_pool) px__private_pool_segment_gone(d, segment->private_pool);
  px__segment_forget(d, segment);
}

bool px__segment_is_free(const px__segment *segment) {
  for (px__block *block = segment->first; block; block = block->next)
    if (block->state != PX__FREE) return false;
  return true;
}
// The backend's release waits for all uses of its memory, so the blocks' streams do not matter.
// Pages must be out of use before they are unmapped.
bool px__segment_can_go(const px__segment *segment) {
  if (!segment->paged && !segment->plugged.alloc) return px__segment_is_free(segment);
  for (px__block *block = segment->first; block; block = block->next)
    if (!px__block_is_idle(block)) return false;
  return true;
}
// A device waits for all its streams before it releases memory. A capture forbids that.
bool px__device_captures(const px__device *d) {
  for (int i = 0; i < d->stream_count; i++)
    if (px__capture_of(d->streams[i])) return true;
  return false;
}

px__segment *px__segment_oldest(const px__device *d) {
  px__segment *segment = d->cache.segments;
  while (segment && segment->next) segment = segment->next;
  return segment;
}
