// SPDX-License-Identifier: Apache-2.0
// Freeing: to a fast bin, to the free lists, or, with uses of other streams not done, to the
// pending frees. Only the fast bins are used without the device's lock.
#include "device/cache/fast_bin.h"

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

void px__bin_flush(px_stream *stream, bool small) {
  px__device *d = stream->owner;
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
  px__block_free(d, block, block->stack);
}

void px__pool_flush(px__device *d) {
  for (int i = 0; i < d->stream_count; i++)
    for (int small = 0; small < 2; small++) px__bin_flush(d->streams[i], small);
}

// ---- pending frees
// Frees a block, its uses published. Lock held.
static void free_locked(px__device *d, px__block *block, const px_traceback *stack) {
  px__bin_flush(block->stream, block->small);
  if (px__bin_put(block)) return;
  px__statistics_free(&d->cache.statistics, block);
  px__history_block(d, PX_MEMORY_FREE_REQUESTED, block, stack);
  block->ready = block->stream->issued;
  if (px__allocation_is_reusable(&block->allocation, block->stream))
    return px__block_free(d, block, stack);
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
    px__block_free(d, block, block->stack);
  }
}

// ---- freeing
// True if a launch batch may use the allocation.
static inline bool may_be_batched(const px__allocation *allocation) {
  return __atomic_load_n(&allocation->written_by, __ATOMIC_RELAXED) ||
         __atomic_load_n(&allocation->read_by, __ATOMIC_RELAXED);
}

__attribute__((noinline)) static void free_published(px__device *d, px__block *block) {
  px__allocation_publish_uses(d, &block->allocation);
  if (px__bin_put(block)) return;
  const px_traceback *stack = px__history_wants(PX_HISTORY_ALL) ? px__stack_here() : NULL;
  px__device_lock(d);
  free_locked(d, block, stack);
  px__device_unlock(d);
}

void px__cache_free(px_allocation *allocation) {
  px__block *block = (px__block *)allocation;
  px__device *d = px__device_found(allocation->device.index);
  if (PX_UNLIKELY(!d)) return;  // in a forked child the memory belongs to the parent
  bool published = allocation->foreign || may_be_batched(&block->allocation);
  if (PX_UNLIKELY(published) || !px__bin_put(block)) free_published(d, block);
}
