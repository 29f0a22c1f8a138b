// SPDX-License-Identifier: Apache-2.0
// Growing and shrinking expandable segments. The device's lock is held throughout.
//
// A live allocation cannot move, nor the pages it touches. All other pages may be remapped anywhere
// once no work uses them. A request without a fit gets the gap of the address range with the fewest
// new pages, together with free blocks on both sides. Adjacent segments are merged.
#include "device/cache/cache.h"

// ---- unmapping
static void count_inactive(px__device *d, px__block *block, bool add) {
  if (!block || block->state != PX__FREE) return;
  if (add)
    px__statistics_add_inactive(&d->cache.statistics, block);
  else
    px__statistics_remove_inactive(&d->cache.statistics, block);
}

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

// Splits [low, high) off a free block, as a block on no free list. The records exist.
static px__block *carve(px__device *d, px__block *block, uintptr_t low, uintptr_t high) {
  px__block *carved = block;
  px__block_remove_free(block);
  if (low > block->node.address) {
    carved = px__block_split(d, block, low - block->node.address);
    px__block_remove_free(carved);
    px__block_insert_free(block);
  }
  if (carved->node.size > high - low) px__block_split(d, carved, high - low);
  return carved;
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
                          .next = s->next};
    for (px__block *block = right; block; block = block->next) block->segment = rest;
    rest->prev = s;
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

static void record_unmap(px__device *d, const px__block *removed) {
  if (px__history_on())
    px__history_note(d, &(px_memory_event){.action = PX_MEMORY_SEGMENT_UNMAP,
                                           .address = (int64_t)removed->node.address,
                                           .size = (int64_t)removed->node.size,
                                           .stream = removed->stream->id,
                                           .stack = removed->segment->stack});
}

// Unmaps the pages [low, high) of a free block, not all of its segment.
static bool unmap_part(px__device *d, px__block *block, uintptr_t low, uintptr_t high) {
  px__segment *rest = NULL;
  px__block *below = block->prev, *above = block->next;
  if (reserve_records(d, &rest) != PX_OK) return px_error_clear(), false;
  count_inactive(d, below, false), count_inactive(d, block, false), count_inactive(d, above, false);
  px__block *removed = carve(d, block, low, high);
  px__block *left = removed->prev, *right = removed->next;
  record_unmap(d, removed);
  remove_block(d, removed, rest);
  px__block_drop(d, removed);
  count_inactive(d, left, true), count_inactive(d, right, true);
  if (below != left) count_inactive(d, below, true);
  if (above != right) count_inactive(d, above, true);
  return true;
}

// Returns the bytes of the whole pages of an idle block, and their start.
static size_t pages_of(const px__block *block, uintptr_t *low) {
  *low = px__whole_pages(block->node.address);
  uintptr_t high = (block->node.address + block->node.size) & ~(uintptr_t)(PX__PAGE - 1);
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

size_t px__runs_unmap(px__device *d, size_t wanted, px__block *const excluded_blocks[2]) {
  size_t unmapped = 0;
  if (px__device_captures(d)) return 0;
  for (int i = 0; i < d->stream_count; i++) px__stream_query(d->streams[i]);
  for (px__segment *segment = px__segment_oldest(d), *previous; segment && unmapped < wanted;
       segment = previous) {
    previous = segment->prev;
    if (!segment->paged || segment->private_pool) continue;
    bool excluded =
        excluded_blocks && ((excluded_blocks[0] && excluded_blocks[0]->segment == segment) ||
                            (excluded_blocks[1] && excluded_blocks[1]->segment == segment));
    if (!excluded && segment->size <= wanted - unmapped && px__segment_can_go(segment)) {
      unmapped += segment->size;
      px__segment_release(d, segment);
      continue;
    }
    for (px__block *block = segment->first, *next; block && unmapped < wanted; block = next) {
      next = block->next;
      if (!excluded_blocks || (block != excluded_blocks[0] && block != excluded_blocks[1]))
        unmapped += unmap_of(d, block, wanted - unmapped);
    }
  }
  return unmapped;
}

// ---- mapping
typedef struct fit {
  uintptr_t at;        // address of the new pages
  size_t bytes;        // their size
  px__block *side[2];  // free blocks below and above, part of the fit; or NULL
} fit;

static bool is_same_kind(const px__segment *s, bool small) {
  return s && s->paged && !s->private_pool && s->small == small;
}

// Returns the block next to a gap if it may serve the request.
static px__block *usable_neighbour(const px__segment *s, const px__request *r, bool above) {
  if (!is_same_kind(s, r->size <= PX__SMALL_MAX)) return NULL;
  px__block *block = above ? s->first : s->last;
  bool may = block->state == PX__FREE && px__ordered(block->stream, block->ready, r->stream);
  return may ? block : NULL;
}

// Computes the new pages of the request in the gap [low, high). False if it does not fit.
static bool try_gap(fit *out, const px__request *r, uintptr_t low, uintptr_t high,
                    px__segment *below, px__segment *above) {
  px__block *a = usable_neighbour(below, r, false), *b = usable_neighbour(above, r, true);
  size_t under = a ? a->node.size : 0, over = b ? b->node.size : 0, gap = high - low;
  size_t bytes = r->size > under ? px__whole_pages(r->size - under) : 0;
  if (bytes <= gap) {
    *out = (fit){.at = low, .bytes = bytes, .side = {a, NULL}};
    return gap > 0 && bytes > 0;
  }
  *out = (fit){.at = low, .bytes = gap, .side = {a, b}};
  return gap && r->size - under - gap <= over;
}

// Finds the gap with the fewest new pages; of equal ones the lowest.
static bool find_fit(fit *out, const px__request *r) {
  const px__cache *c = &r->device->cache;
  uintptr_t low = c->range;
  fit found;
  *out = (fit){0};
  for (px__segment *s = c->lowest, *below = NULL;; below = s, s = s->above) {
    if (try_gap(&found, r, low, s ? (uintptr_t)s->data : c->range_end, below, s) &&
        (!out->bytes || found.bytes < out->bytes))
      *out = found;
    if (!s) return out->bytes > 0;
    low = (uintptr_t)s->data + s->size;
  }
}

// Merges the segment above into `s`, if both are of one kind and adjacent.
static void merge_above(px__device *d, px__segment *s) {
  px__segment *above = s ? s->above : NULL;
  if (!above || !is_same_kind(s, s->small) || !is_same_kind(above, s->small) ||
      (char *)s->data + s->size != above->data)
    return;
  px__block *last = s->last, *first = above->first;
  count_inactive(d, last, false), count_inactive(d, first, false);
  last->next = first, first->prev = last, s->last = above->last;
  for (px__block *block = first; block; block = block->next) block->segment = s;
  count_inactive(d, last, true), count_inactive(d, first, true);
  px__pages_merge(d, s);
  d->cache.pages_moved = true;
  px__statistics_merge(&d->cache.statistics, above);
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

px_status px__runs_grow(px_allocation **out, const px__request *r, size_t more) {
  fit where;
  *out = NULL;
  if (px__request_pool(r) || !px__pages_wanted(r->device)) return PX_OK;
  px__pool_flush(r->device);
  if (!find_fit(&where, r)) return PX_OK;
  if (where.bytes > more) px__runs_unmap(r->device, where.bytes, where.side);
  px__block *block;
  PX_TRY(px__runs_map(&block, r, where.at, where.bytes));
  *out = px__pool_allocate(r);
  return PX_OK;
}
