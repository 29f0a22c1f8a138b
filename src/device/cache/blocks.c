// SPDX-License-Identifier: Apache-2.0
// Blocks, the pieces of segments of device memory, with PyTorch's sizes and rules. The device's
// lock is held throughout.
//
// A block belongs to a stream, which may reuse it at once. A free block is in its stream's free
// lists and records work of that stream, `ready`, ordered after all its uses. Another stream may
// take it once that work is done or ordered before its own.
#include "device/cache/cache.h"

enum {
  GRAIN = PX__GRAIN,
  STEPS_FROM = 20,          // log2 of the first size in settings.divisions
  MIN_REMAINDER = 1 << 20,  // bytes; a large block is split only for a larger remainder
};

// Rounds up to a multiple of a power of two divided by `parts` (roundup_power2_divisions).
static size_t round_parts(size_t bytes, size_t parts) {
  int power = 63 - __builtin_clzll(bytes);
  size_t part = ((size_t)1 << power) / parts;
  return (bytes + part - 1) / part * part;
}

size_t px__pool_round(const px__device *d, size_t bytes) {
  if (bytes < GRAIN) return GRAIN;
  int step = 63 - __builtin_clzll(bytes) - STEPS_FROM;
  step = step < 0 ? 0 : step < PX__ROUND_STEPS ? step : PX__ROUND_STEPS - 1;
  size_t parts = d->cache.settings.divisions[step];
  if (PX_UNLIKELY(parts > 1 && bytes > GRAIN * parts)) return round_parts(bytes, parts);
  return (bytes + GRAIN - 1) & ~(size_t)(GRAIN - 1);
}

// ---- free lists: the block freed last enters the tree with the next free
// A private pool has one set of lists for all streams.
static px__free_lists *free_lists_of(const px__block *block) {
  px__private_pool *pool = block->segment->private_pool;
  return PX_UNLIKELY(pool != NULL) ? &pool->free_lists : &block->stream->free_lists;
}

void px__free_lists_sort(px__free_lists *free_lists, bool small) {
  px__block *block = free_lists->unsorted[small];
  free_lists->unsorted[small] = NULL;
  if (block) px__tree_insert(&free_lists->free[small], &block->node);
}

void px__block_insert_free(px__block *block) {
  bool small = block->small;
  px__free_lists *free_lists = free_lists_of(block);
  px__free_lists_sort(free_lists, small);
  free_lists->unsorted[small] = block;
  block->state = PX__FREE;
}

void px__block_remove_free(px__block *block) {
  bool small = block->small;
  px__free_lists *free_lists = free_lists_of(block);
  if (free_lists->unsorted[small] == block)
    free_lists->unsorted[small] = NULL;
  else
    px__tree_remove(&free_lists->free[small], &block->node);
  block->state = PX__ALLOCATED;
}

px_status px__block_new(px__block **out, px__device *d) {
  px__block *block = d->cache.spare_blocks;
  if (block) {
    d->cache.spare_blocks = block->queue;
    memset(&block->allocation, 0, sizeof block->allocation);
    block->prev = block->next = NULL;
    block->ready = 0;
    block->state = PX__ALLOCATED;
    return *out = block, PX_OK;
  }
  return PX_NEW(out);
}

void px__block_drop(px__device *d, px__block *block) {
  block->queue = d->cache.spare_blocks;
  d->cache.spare_blocks = block;
}

// ---- coalescing
// Merges the free neighbour into the block. The neighbour's uses are ordered before the stream's
// next work, but maybe not before work `ready` of the block, since that may have been in the fast
// bin. So `ready` advances.
static void coalesce(px__device *d, px__block *block, px__block *neighbour) {
  px__statistics_inactive(&d->cache.statistics, neighbour, -1);
  px__block_remove_free(neighbour);
  if (neighbour == block->prev) {
    block->node.address = neighbour->node.address;
    block->prev = neighbour->prev;
    *(block->prev ? &block->prev->next : &block->segment->first) = block;
  } else {
    block->next = neighbour->next;
    *(block->next ? &block->next->prev : &block->segment->last) = block;
  }
  block->node.size += neighbour->node.size;
  block->ready = block->stream->issued;
  px__block_drop(d, neighbour);
}

// Merges the usable neighbours into a block on no free list, and inserts it.
static void insert_coalesced(px__device *d, px__block *block) {
  px__block *prev = block->prev, *next = block->next;
  if (prev && px__block_is_usable(prev, block->stream)) coalesce(d, block, prev);
  if (next && px__block_is_usable(next, block->stream)) coalesce(d, block, next);
  px__block_insert_free(block);
  px__statistics_inactive(&d->cache.statistics, block, 1);
}

void px__block_free(px__device *d, px__block *block, const px_traceback *stack) {
  px__statistics_free_completed(&d->cache.statistics, block);
  px__history_block(d, PX_MEMORY_FREE_COMPLETED, block, stack);
  px__allocation_drop_uses(&block->allocation);
  insert_coalesced(d, block);
}

void px__block_coalesce(px__device *d, px__block *block) {
  px__statistics_inactive(&d->cache.statistics, block, -1);
  px__block_remove_free(block);
  insert_coalesced(d, block);
}

// ---- merging neighbours of different streams, free at different times
bool px__block_is_idle(const px__block *block) {
  return block && block->state == PX__FREE && px__done(block->stream) >= block->ready;
}
static void merge_from(px__device *d, px__block *block) {
  if (!px__block_is_idle(block) || !px__block_is_idle(block->next)) return;
  px__statistics_inactive(&d->cache.statistics, block, -1);
  px__block_remove_free(block);
  while (px__block_is_idle(block->next)) coalesce(d, block, block->next);
  block->ready = 0;
  px__block_insert_free(block);
  px__statistics_inactive(&d->cache.statistics, block, 1);
}
void px__blocks_merge(px__device *d) {
  for (px__segment *segment = d->cache.segments; segment; segment = segment->next)
    for (px__block *block = segment->first; block; block = block->next) merge_from(d, block);
}

// ---- allocating
static bool should_split(const px__block *block, size_t size) {
  size_t left = block->node.size - size;
  const px__private_pool *pool = block->segment->private_pool;
  if (PX_UNLIKELY(pool != NULL) && pool->no_split) return false;
  const px__cache *c = &block->stream->owner->cache;
  bool exact = block->segment->paged && (c->over_slack || c->compact);
  if (block->small || size <= PX__SMALL_MAX || exact) return left >= GRAIN;
  return left > MIN_REMAINDER && size < c->settings.max_split;
}

px__block *px__block_split(px__device *d, px__block *block, size_t size) {
  px__block *remainder;
  bool is_free = block->state == PX__FREE;
  if (px__block_new(&remainder, d) != PX_OK) return px_error_clear(), NULL;
  if (is_free) px__block_remove_free(block);
  remainder->segment = block->segment;
  remainder->small = block->small, remainder->in_private_pool = block->in_private_pool;
  remainder->stream = block->stream, remainder->ready = block->ready;
  remainder->node.address = block->node.address + size;
  remainder->node.size = block->node.size - size, block->node.size = size;
  remainder->prev = block, remainder->next = block->next, block->next = remainder;
  *(remainder->next ? &remainder->next->prev : &block->segment->last) = remainder;
  if (is_free) px__block_insert_free(block);
  px__block_insert_free(remainder);
  return remainder;
}

static void begin_allocation(px__block *block, const px__request *r) {
  block->allocation = (px__allocation){.pub = {.data = (void *)block->node.address,
                                               .bytes = r->bytes,
                                               .device = block->stream->device},
                                       .kind = PX__CACHED};
  block->stack = r->stack;
  if (px__races() && block->ready)
    px__race_inherit(&block->allocation, block->stream, block->ready);
}

px_allocation *px__block_take(const px__request *r, px__block *block) {
  px__device *d = r->device;
  if (block->state == PX__FREE) px__block_remove_free(block);
  if (block->stream != r->stream) block->stream = r->stream, block->ready = r->stream->issued;
  bool was_part = px__block_is_split(block);
  px__block *remainder = should_split(block, r->size) ? px__block_split(d, block, r->size) : NULL;
  begin_allocation(block, r);
  px__statistics_allocate(&d->cache.statistics, block, remainder, was_part);
  px__history_block(d, PX_MEMORY_ALLOC, block, r->stack);
  return &block->allocation.pub;
}

px__allocation *px__pool_allocation_at(const px__device *d, const void *data) {
  uintptr_t at = (uintptr_t)data;
  for (const px__segment *s = d->cache.segments; s; s = s->next) {
    if (at - (uintptr_t)s->data >= s->size) continue;
    for (px__block *block = s->first; block; block = block->next)
      if (block->node.address == at && block->state == PX__ALLOCATED) return &block->allocation;
  }
  return NULL;
}
