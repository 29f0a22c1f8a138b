// SPDX-License-Identifier: Apache-2.0
// Growing and shrinking expandable segments. The device's lock is held throughout.
//
// A live allocation cannot move, nor the pages it touches. All other pages may be remapped anywhere
// once no work uses them. Adjacent segments of one kind are merged.
#include "device/cache/cache.h"

// ---- unmapping
// Makes sure of the records for a block's three parts and for a second segment.
static px_status reserve_records(px__device *d, px__segment **rest) {
  px__block *spare[2] = {NULL, NULL};
  px_status status = PX_NEW(rest);
  for (int i = 0; i < 2 && status == PX_OK; i++) status = px__block_new(&spare[i], d);
  for (int i = 0; i < 2; i++)
    if (spare[i]) px__block_drop(d, spare[i]);
  if (status != PX_OK && *rest) px__free(*rest);
  return status;
}

// Splits [low, high) off a free block and removes it from the free list. The records exist.
static px__block *carve(px__device *d, px__block *block, uintptr_t low, uintptr_t high) {
  uintptr_t at = block->node.address;
  if (low > at) block = px__block_split(d, block, low - at);
  if (px__block_end(block) > high) px__block_split(d, block, high - low);
  px__block_remove_free(block);
  return block;
}

// Removes a block from its segment: its start, its end, or the middle, leaving two segments.
static void remove_block(px__device *d, px__block *removed, px__segment *rest) {
  px__segment *s = removed->segment;
  px__block *left = removed->prev, *right = removed->next;
  bool splits = left && right;
  if (left) left->next = NULL;
  if (right) right->prev = NULL;
  if (!left) s->first = right;
  if (splits) {
    *rest = (px__segment){.first = right,
                          .last = s->last,
                          .stack = s->stack,
                          .small = s->small,
                          .paged = true,
                          .prev = s,
                          .next = s->next};
    for (px__block *block = right; block; block = block->next) block->segment = rest;
    if (rest->next) rest->next->prev = rest;
    s->next = rest;
  }
  if (left) s->last = left;
  px__pages_unmap_part(d, s, removed->node.address, removed->node.size, splits ? rest : NULL);
  if (!splits) px__free(rest);
  d->cache.reserved -= removed->node.size;
  d->cache.pages_moved = true;
  px__statistics_unmap(&d->cache.statistics, s, removed->node.size, splits);
}

// Unmaps the pages [low, high) of a free block, not all of its segment.
static bool unmap_part(px__device *d, px__block *block, uintptr_t low, uintptr_t high) {
  px__statistics *statistics = &d->cache.statistics;
  px__segment *rest = NULL;
  px__block *below = block->prev, *above = block->next;
  if (reserve_records(d, &rest) != PX_OK) return px_error_clear(), false;
  px__statistics_inactive(statistics, below, -1);
  px__statistics_inactive(statistics, block, -1);
  px__statistics_inactive(statistics, above, -1);
  px__block *removed = carve(d, block, low, high);
  px__block *left = removed->prev, *right = removed->next;
  px__history_segment(d, PX_MEMORY_SEGMENT_UNMAP, removed->segment, low, high - low,
                      removed->stream);
  remove_block(d, removed, rest);
  px__block_drop(d, removed);
  px__statistics_inactive(statistics, left, 1);
  px__statistics_inactive(statistics, right, 1);
  if (below != left) px__statistics_inactive(statistics, below, 1);
  if (above != right) px__statistics_inactive(statistics, above, 1);
  return true;
}

// Returns the bytes of the whole pages of an idle block, and their start.
static size_t pages_of(const px__block *block, uintptr_t *low) {
  *low = px__whole_pages(block->node.address);
  uintptr_t high = px__block_end(block) & ~(uintptr_t)(PX__PAGE - 1);
  return px__block_is_idle(block) && high > *low ? high - *low : 0;
}

// Unmaps at most `wanted` bytes of a block's pages: the last ones, unless it starts the segment.
static size_t unmap_of(px__device *d, px__block *block, size_t wanted) {
  uintptr_t low;
  size_t bytes = pages_of(block, &low);
  if (bytes > wanted) {
    if (block->prev) low += bytes - wanted;
    bytes = wanted;
  }
  if (bytes == block->segment->size) return px__segment_release(d, block->segment), bytes;
  return bytes && unmap_part(d, block, low, low + bytes) ? bytes : 0;
}

size_t px__runs_unmap(px__device *d, size_t wanted, px__block *const excluded[2]) {
  const px__block *a = excluded ? excluded[0] : NULL, *b = excluded ? excluded[1] : NULL;
  size_t unmapped = 0;
  if (px__device_captures(d)) return 0;
  for (int i = 0; i < d->stream_count; i++) px__stream_query(d->streams[i]);
  for (px__segment *segment = px__segment_oldest(d), *previous; segment && unmapped < wanted;
       segment = previous) {
    previous = segment->prev;
    if (!segment->paged || segment->private_pool) continue;
    bool keeps = (a && a->segment == segment) || (b && b->segment == segment);
    if (!keeps && segment->size <= wanted - unmapped && px__segment_can_go(segment)) {
      unmapped += segment->size;
      px__segment_release(d, segment);
      continue;
    }
    for (px__block *block = segment->first, *next; block && unmapped < wanted; block = next) {
      next = block->next;
      if (block != a && block != b) unmapped += unmap_of(d, block, wanted - unmapped);
    }
  }
  return unmapped;
}

// ---- mapping
static bool is_same_kind(const px__segment *s, bool small) {
  return s && s->paged && !s->private_pool && s->small == small;
}

static px__block *usable(px__block *block, const px__segment *s, const px__request *r) {
  return is_same_kind(s, r->small) && px__block_is_usable(block, r->stream) ? block : NULL;
}

bool px__page_gap_next(px__page_gap *gap, const px__request *r) {
  const px__cache *c = &r->device->cache;
  bool first = !gap->high;
  if (!first && !gap->above) return false;
  px__segment *below = gap->above, *above = first ? c->lowest : below->above;
  *gap = (px__page_gap){.low = below ? (uintptr_t)below->data + below->size : c->range,
                        .high = above ? (uintptr_t)above->data : c->range_end,
                        .below = below,
                        .above = above};
  if (below) gap->side[0] = usable(below->last, below, r);
  if (above) gap->side[1] = usable(above->first, above, r);
  return true;
}

// Merges the segment above into `s`, if both are of one kind and adjacent.
static void merge_above(px__device *d, px__segment *s) {
  px__segment *above = s ? s->above : NULL;
  if (!above || !is_same_kind(s, s->small) || !is_same_kind(above, s->small) ||
      (char *)s->data + s->size != above->data)
    return;
  px__statistics *statistics = &d->cache.statistics;
  px__block *last = s->last, *first = above->first;
  px__statistics_inactive(statistics, last, -1);
  px__statistics_inactive(statistics, first, -1);
  last->next = first, first->prev = last, s->last = above->last;
  for (px__block *block = first; block; block = block->next) block->segment = s;
  px__statistics_inactive(statistics, last, 1);
  px__statistics_inactive(statistics, first, 1);
  px__pages_merge(d, s);
  d->cache.pages_moved = true;
  px__statistics_merge(statistics, above);
  px__segment_forget(d, above);
}

px_status px__runs_map(px__block **out, const px__request *r, uintptr_t at, size_t bytes) {
  px__device *d = r->device;
  px__segment *segment;
  PX_TRY(px__segment_new(&segment, r, (void *)at, bytes));
  px__block *block = segment->first;
  px__segment *below = segment->below;
  px__block_insert_free(block);
  merge_above(d, segment);
  merge_above(d, below);
  px__block_coalesce(d, block);
  *out = block;
  return PX_OK;
}
