// SPDX-License-Identifier: Apache-2.0
// Blocks, the pieces of segments of device memory, with PyTorch's sizes and rules.
//
// A block belongs to a stream, which may reuse it at once. A free block is in its stream's free
// lists and records work of that stream, `ready`, ordered after all its uses. Another stream may
// take it once that work is done or ordered before its own. Requests get the best fit. Everything
// is under the device's lock, except the fast bins.
#include "device/cache/fast_bin.h"

enum {
  GRAIN = PX__GRAIN,
  SMALL = PX__SMALL_MAX,
  STEPS_FROM = 20,          // log2 of the first size in settings.divisions
  MIN_REMAINDER = 1 << 20,  // bytes; a large block is split only for a larger remainder
  MAX_TRIES = 16,           // blocks examined per other stream
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

static px__block *block_of(px__node *node) {
  return node ? (px__block *)((char *)node - offsetof(px__block, node)) : NULL;
}

// ---- free lists: the block freed last enters the tree with the next free
// A private pool has one set of lists for all streams.
static px__free_lists *free_lists_of(const px__block *block) {
  px__private_pool *pool = block->segment->private_pool;
  return PX_UNLIKELY(pool != NULL) ? &pool->free_lists : &block->stream->free_lists;
}

static void insert_unsorted(px__free_lists *free_lists, bool small) {
  px__block *block = free_lists->unsorted[small];
  free_lists->unsorted[small] = NULL;
  if (block) px__tree_insert(&free_lists->free[small], &block->node);
}

void px__block_insert_free(px__block *block) {
  bool small = block->small;
  px__free_lists *free_lists = free_lists_of(block);
  if (PX_UNLIKELY(free_lists->unsorted[small] != NULL)) insert_unsorted(free_lists, small);
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
static bool can_coalesce(const px__block *block, const px__block *neighbour) {
  return neighbour && neighbour->state == PX__FREE &&
         px__ordered(neighbour->stream, neighbour->ready, block->stream);
}

// Merges the free neighbour into the block. The neighbour's uses are ordered before the stream's
// next work, but maybe not before work `ready` of the block, since that may have been in the fast
// bin. So `ready` advances.
static void coalesce(px__device *d, px__block *block, px__block *neighbour) {
  px__block_remove_free(neighbour);
  px__statistics_remove_inactive(&d->cache.statistics, neighbour);
  if (neighbour == block->prev) {
    block->node.address = neighbour->node.address;
    block->prev = neighbour->prev;
    if (block->prev) block->prev->next = block;
  } else {
    block->next = neighbour->next;
    if (block->next) block->next->prev = block;
    if (block->segment->last == neighbour) block->segment->last = block;
  }
  block->node.size += neighbour->node.size;
  block->ready = block->stream->issued;
  if (block->segment->first == neighbour) block->segment->first = block;
  px__block_drop(d, neighbour);
}

// All uses of the block are ordered before work `ready` of its stream.
static void finish_free(px__device *d, px__block *block, const px_traceback *stack) {
  px__statistics_free_completed(&d->cache.statistics, block);
  px__history_block(d, PX_MEMORY_FREE_COMPLETED, block, stack);
  px__allocation_drop_uses(&block->allocation);
  if (can_coalesce(block, block->prev)) coalesce(d, block, block->prev);
  if (can_coalesce(block, block->next)) coalesce(d, block, block->next);
  px__statistics_add_inactive(&d->cache.statistics, block);
  px__block_insert_free(block);
}

void px__block_coalesce(px__device *d, px__block *block) {
  px__block_remove_free(block);
  px__statistics_remove_inactive(&d->cache.statistics, block);
  if (can_coalesce(block, block->prev)) coalesce(d, block, block->prev);
  if (can_coalesce(block, block->next)) coalesce(d, block, block->next);
  px__statistics_add_inactive(&d->cache.statistics, block);
  px__block_insert_free(block);
}

// ---- merging neighbours of different streams, free at different times
bool px__block_is_idle(const px__block *block) {
  return block && block->state == PX__FREE && px__done(block->stream) >= block->ready;
}
static void merge_from(px__device *d, px__block *block) {
  if (!px__block_is_idle(block) || !px__block_is_idle(block->next)) return;
  px__block_remove_free(block);
  px__statistics_remove_inactive(&d->cache.statistics, block);
  while (px__block_is_idle(block->next)) coalesce(d, block, block->next);
  block->ready = 0;
  px__statistics_add_inactive(&d->cache.statistics, block);
  px__block_insert_free(block);
}
void px__pool_merge(px__device *d) {
  for (px__segment *segment = d->cache.segments; segment; segment = segment->next)
    for (px__block *block = segment->first; block; block = block->next) merge_from(d, block);
}

// ---- fast bins
// For threads that do not own the bin's lock.
__attribute__((noinline)) px__block *px__bin_pop_shared(px__fast_bin *bin, size_t bytes) {
  px__biased_lock_thread *me = px__biased_lock_enter(&bin->lock);
  px__block *block = px__bin_pop(bin, bytes);
  px__biased_lock_leave(&bin->lock, me);
  return block;
}
__attribute__((noinline)) bool px__bin_push_shared(px__fast_bin *bin, px__block *block) {
  px__biased_lock_thread *me = px__biased_lock_enter(&bin->lock);
  bool taken = px__bin_push(bin, block);
  px__biased_lock_leave(&bin->lock, me);
  return taken;
}

static void flush(px__device *d, px_stream *stream, bool small) {
  px__fast_bin *bin = px__bin_of(stream, small);
  px__biased_lock_thread *me = px__biased_lock_enter(&bin->lock);
  px__block *block = bin->block;
  px__bin_counts counts = bin->counts;
  __atomic_store_n(&bin->block, NULL, __ATOMIC_RELAXED);
  bin->counts = (px__bin_counts){0};
  px__biased_lock_leave(&bin->lock, me);
  if (counts.count) px__statistics_add_bin(&d->cache.statistics, &counts, small);
  if (!block) return;
  px__statistics_free(&d->cache.statistics, block);
  px__history_block(d, PX_MEMORY_FREE_REQUESTED, block, block->stack);
  finish_free(d, block, block->stack);
}

void px__pool_flush(px__device *d) {
  for (int i = 0; i < d->stream_count; i++)
    for (int small = 0; small < 2; small++) flush(d, d->streams[i], small);
}

// ---- best fit
// Blocks of max_split and more are not split: they serve only requests of similar size.
static bool may_serve(const px__block *block, size_t size) {
  const px__settings *s = &block->stream->owner->cache.settings;
  if (size < s->max_split) return block->node.size < s->max_split;
  return block->node.size < size + s->non_split_rounding;
}

static px__block *best_fit(const px__free_lists *free_lists, bool small, size_t size) {
  px__block *best = block_of(px__tree_lower_bound(free_lists->free[small], size));
  px__block *last = free_lists->unsorted[small];
  bool fits = last && last->node.size >= size && may_serve(last, size);
  if (best && !may_serve(best, size)) best = NULL;  // then no larger one may serve either
  bool better =
      fits && (!best || last->node.size < best->node.size ||
               (last->node.size == best->node.size && last->node.address < best->node.address));
  return better ? last : best;
}

static px__block *best_fit_for(const px__free_lists *free_lists, px_stream *stream, bool small,
                               size_t size) {
  px__node *node = px__tree_lower_bound(free_lists->free[small], size);
  for (int i = 0; node && i < MAX_TRIES; i++) {
    px__block *block = block_of(node);
    if (!may_serve(block, size)) return NULL;
    if (px__ordered(block->stream, block->ready, stream)) return block;
    node = px__tree_next(free_lists->free[small], node);
  }
  return NULL;
}

// Best fit among the blocks of other streams that are usable by this one.
static px__block *best_fit_of_others(px__device *d, px_stream *stream, bool small, size_t size) {
  px__block *best = NULL;
  px__pool_flush(d);  // before the search, since it coalesces
  for (int i = 0; i < d->stream_count; i++) {
    px_stream *owner = d->streams[i];
    if (owner == stream) continue;
    insert_unsorted(&owner->free_lists, small);
    if (!owner->free_lists.free[small]) continue;
    px__stream_query(owner);
    px__block *block = best_fit_for(&owner->free_lists, stream, small, size);
    if (block && (!best || block->node.size < best->node.size)) best = block;
  }
  return best;
}

static void move_to_stream(px__block *block, px_stream *stream) {
  if (block->stream == stream) return;
  block->stream = stream;
  block->ready = stream->issued;
}

// ---- allocating
static bool should_split(const px__block *block, size_t size) {
  size_t left = block->node.size - size;
  const px__private_pool *pool = block->segment->private_pool;
  if (PX_UNLIKELY(pool != NULL) && pool->no_split) return false;
  const px__cache *c = &block->stream->owner->cache;
  bool exact = block->segment->paged && (c->over_slack || c->compact);
  if (block->small || size <= SMALL || exact) return left >= GRAIN;
  return left > MIN_REMAINDER && size < c->settings.max_split;
}

// The block stays whole without memory for the remainder's record.
px__block *px__block_split(px__device *d, px__block *block, size_t size) {
  px__block *remainder;
  if (px__block_new(&remainder, d) != PX_OK) return px_error_clear(), NULL;
  remainder->segment = block->segment;
  remainder->small = block->small, remainder->in_private_pool = block->in_private_pool;
  remainder->stream = block->stream;
  remainder->ready = block->ready;
  remainder->node.address = block->node.address + size;
  remainder->node.size = block->node.size - size;
  block->node.size = size;
  remainder->prev = block, remainder->next = block->next;
  if (block->next) block->next->prev = remainder;
  block->next = remainder;
  if (!remainder->next) block->segment->last = remainder;
  px__block_insert_free(remainder);
  return remainder;
}

static px_allocation *begin_allocation(px__block *block, size_t bytes) {
  block->allocation = (px__allocation){
      .pub = {.data = (void *)block->node.address, .bytes = bytes, .device = block->stream->device},
      .kind = PX__CACHED};
  block->stack = NULL;
  if (px__races() && block->ready)
    px__race_inherit(&block->allocation, block->stream, block->ready);
  return &block->allocation.pub;
}

// Splits a block, removed from the free lists, to size and allocates it.
px_allocation *px__pool_take(const px__request *r, px__block *block) {
  bool was_part = px__block_is_split(block);
  px__block *remainder =
      should_split(block, r->size) ? px__block_split(r->device, block, r->size) : NULL;
  px_allocation *allocation = begin_allocation(block, r->bytes);
  block->stack = r->stack;
  px__statistics_allocate(&r->device->cache.statistics, block, remainder, was_part);
  px__history_block(r->device, PX_MEMORY_ALLOC, block, r->stack);
  return allocation;
}

// The pool of the capture, or of the thread's route.
px__private_pool *px__request_pool(const px__request *r) {
  if (PX_UNLIKELY(r->stream->private_pool != NULL)) return r->stream->private_pool;
  const px__route *route = px__route_now(&r->device->cache);
  return PX_UNLIKELY(route != NULL) ? route->private_pool : NULL;
}

static px__block *find_in_private_pool(px__private_pool *pool, const px__request *r, bool small) {
  insert_unsorted(&pool->free_lists, small);
  return best_fit_for(&pool->free_lists, r->stream, small, r->size);
}

static px__block *find(const px__request *r, bool small) {
  px__private_pool *pool = px__request_pool(r);
  if (PX_UNLIKELY(pool != NULL)) return find_in_private_pool(pool, r, small);
  flush(r->device, r->stream, small);
  px__block *own = best_fit(&r->stream->free_lists, small, r->size);
  if (own && !(r->device->cache.over_slack && own->node.size > r->size)) return own;
  px__block *other = best_fit_of_others(r->device, r->stream, small, r->size);
  own = best_fit(&r->stream->free_lists, small, r->size);  // the search may have merged it
  return !own || (other && other->node.size < own->node.size) ? other : own;
}

px_allocation *px__pool_take_free(const px__request *r, px__block *block) {
  if (!block) return NULL;
  px__block_remove_free(block);
  move_to_stream(block, r->stream);
  return px__pool_take(r, block);
}
px_allocation *px__pool_allocate(const px__request *r) {
  return px__pool_take_free(r, find(r, r->size <= SMALL));
}
px_allocation *px__pool_allocate_other(const px__request *r) {
  return px__pool_take_free(r, find(r, r->size > SMALL));
}
px_allocation *px__pool_allocate_lent(const px__request *r) {
  px__block *block = NULL;
  px__private_pool *pool = px__request_pool(r) ? NULL : r->device->cache.private_pools;
  for (; pool && !block; pool = pool->next)
    if (pool->use_on_oom && !pool->captured)
      block = find_in_private_pool(pool, r, r->size <= SMALL);
  return px__pool_take_free(r, block);
}

// ---- freeing
void px__pool_free(px__device *d, px__block *block, const px_traceback *stack) {
  px_stream *stream = block->stream;
  flush(d, stream, block->small);
  if (px__bin_put(block)) return;
  px__statistics_free(&d->cache.statistics, block);
  px__history_block(d, PX_MEMORY_FREE_REQUESTED, block, stack);
  if (px__allocation_is_reusable(&block->allocation, stream)) {
    block->ready = stream->issued;
    finish_free(d, block, stack);
    return;
  }
  block->state = PX__PENDING;
  block->queue = d->cache.pending;
  d->cache.pending = block;
}

void px__pool_sweep(px__device *d) {
  for (int i = 0; i < d->stream_count; i++) px__stream_poll(d->streams[i]);
  for (px__block **link = &d->cache.pending; *link;) {
    px__block *block = *link;
    if (!px__allocation_is_reusable(&block->allocation, block->stream)) {
      link = &block->queue;
      continue;
    }
    *link = block->queue;
    block->ready = block->stream->issued;
    finish_free(d, block, block->stack);
  }
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
