// SPDX-License-Identifier: Apache-2.0
// Address range and pages of expandable segments. The device's lock is held throughout.
//
// The range is reserved once, several times as long as the device's memory. A new segment gets the
// first gap large enough, so addresses depend only on the order of requests.
#include "device/cache/cache.h"

enum { RANGE_FACTOR = 4 };  // addresses reserved, in multiples of the device's memory

static bool is_allowed(const px__settings *s) {
  const px_backend *b = px__rt.backend;
  if (!PX__BACKEND_HAS(b, pages_map) || s->max_split != SIZE_MAX ||
      s->expandable == PX__EXPANDABLE_FALSE)
    return false;
  return s->expandable == PX__EXPANDABLE_TRUE || (PX__BACKEND_HAS(b, shares_pages));
}

// Without a range, segments are allocations of the backend.
static void reserve_range(px__device *d) {
  d->cache.range_tried = true;
  size_t page = px__rt.backend->page_size(d->physical);
  if (!page || PX__PAGE % page) return;
  size_t bytes = (RANGE_FACTOR * d->properties.total_memory) & ~(size_t)(PX__PAGE - 1);
  void *at = NULL;
  if (!bytes) return;
  if (px__rt.backend->range_new(d->physical, bytes, &at) != PX_OK) return px_error_clear();
  d->cache.range = (uintptr_t)at;
  d->cache.range_end = d->cache.range + bytes;
}

bool px__pages_wanted(px__device *d) {
  if (!is_allowed(&d->cache.settings)) return false;
  if (PX_UNLIKELY(!d->cache.range_tried)) reserve_range(d);
  return d->cache.range != 0;
}

// ---- segments by address
static uintptr_t start_of(const px__segment *s) { return (uintptr_t)s->data; }
static uintptr_t end_of(const px__segment *s) { return (uintptr_t)s->data + s->size; }

static void insert_above(px__cache *cache, px__segment *below, px__segment *segment) {
  px__segment *above = below ? below->above : cache->lowest;
  segment->below = below, segment->above = above;
  *(below ? &below->above : &cache->lowest) = segment;
  if (above) above->below = segment;
}

// Finds the segment below an address; for address 0, the first gap of `bytes` and its address.
static bool find_gap(const px__cache *cache, size_t bytes, uintptr_t *at, px__segment **below) {
  uintptr_t low = cache->range, wanted = *at;
  px__segment *s = cache->lowest;
  for (; s && (wanted ? start_of(s) < wanted : start_of(s) - low < bytes); s = s->above)
    low = end_of(s), *below = s;
  if (!wanted) *at = low;
  return wanted || s || cache->range_end - low >= bytes;
}

// ---- pages
px_status px__pages_map(px__device *d, px__segment *segment) {
  uintptr_t at = (uintptr_t)segment->data;
  px__segment *below = NULL;
  bool found = !px__fault(PX__FAULT_MAP) && find_gap(&d->cache, segment->size, &at, &below);
  PX_CHECK(found, PX_OUT_OF_MEMORY, "no range of addresses is free for %zu bytes of pages",
           segment->size);
  PX_TRY(px__rt.backend->pages_map(d->physical, (void *)at, segment->size));
  segment->data = (void *)at;
  insert_above(&d->cache, below, segment);
  return PX_OK;
}

static void remove_segment(px__cache *cache, px__segment *segment) {
  *(segment->below ? &segment->below->above : &cache->lowest) = segment->above;
  if (segment->above) segment->above->below = segment->below;
}

void px__pages_unmap(px__device *d, px__segment *segment) {
  px__rt.backend->pages_unmap(d->physical, segment->data, segment->size);
  remove_segment(&d->cache, segment);
}

void px__pages_merge(px__device *d, px__segment *segment) {
  segment->size += segment->above->size;
  remove_segment(&d->cache, segment->above);
}

void px__pages_unmap_part(px__device *d, px__segment *segment, uintptr_t at, size_t bytes,
                          px__segment *rest) {
  px__rt.backend->pages_unmap(d->physical, (void *)at, bytes);
  uintptr_t end = end_of(segment);
  if (rest) {
    rest->data = (void *)(at + bytes), rest->size = end - at - bytes;
    insert_above(&d->cache, segment, rest);
  }
  if (at == start_of(segment)) segment->data = (void *)(at + bytes);
  segment->size = rest ? at - start_of(segment) : segment->size - bytes;
}
