// SPDX-License-Identifier: Apache-2.0
// Fast bins: the block freed last, one per pool of each stream.
//
// A request of its size takes the block without the device's lock. A loop of small ops then neither
// splits nor coalesces, and reuses the allocation's header; only fields that may differ are
// written. Any other request to the pool flushes the bin first. Until then the block counts as
// allocated. In a header, since every tensor on a device is allocated and freed through these
// functions.
#pragma once
#include "device/cache/cache.h"

static inline px__fast_bin *px__bin_of(px_stream *stream, bool small) {
  return &stream->fast[small];
}

// False if each allocation must be seen: by history, the race checker, a capture or a route.
static inline bool px__bin_enabled(px_stream *stream) {
  return !px__races() && !px__bins_disabled_for(~0) && !PX_UNLIKELY(px__capture_of(stream) != 0) &&
         !PX_UNLIKELY(__atomic_load_n(&stream->owner->cache.routes, __ATOMIC_RELAXED) != NULL);
}

// Returns the allocation of a block taken from a bin. It has no uses.
static inline px_allocation *px__bin_begin(px__block *block, size_t bytes) {
  px__allocation *allocation = &block->allocation;
  allocation->pub.bytes = bytes;
  allocation->pub.foreign = allocation->pub.irregular = allocation->pub.pending = false;
  allocation->written_by = allocation->read_by = 0;
  block->stack = NULL;
  return &allocation->pub;
}

// Takes the block of a bin, or returns NULL if it does not fit. Bin's lock held.
static inline px__block *px__bin_pop(px__fast_bin *bin, size_t bytes) {
  px__block *block = bin->block;
  if (PX_UNLIKELY(!block || bytes > block->node.size || block->node.size - bytes >= PX__GRAIN))
    return NULL;
  __atomic_store_n(&bin->block, NULL, __ATOMIC_RELAXED);
  px__bin_counts_add(&bin->counts, block->node.size, bytes, block->allocation.pub.bytes);
  return block;
}

// Puts a block in the bin; false if that is full. Bin's lock held.
static inline bool px__bin_push(px__fast_bin *bin, px__block *block) {
  if (PX_UNLIKELY(bin->block != NULL)) return false;
  block->ready = px__issued(block->stream);
  __atomic_store_n(&bin->block, block, __ATOMIC_RELAXED);
  return true;
}

// The same for threads that do not own the bin's lock.
px__block *px__bin_pop_shared(px__fast_bin *bin, size_t bytes);
bool px__bin_push_shared(px__fast_bin *bin, px__block *block);

// Allocates `bytes` from the bin; NULL if it has no fit. me: px__biased_lock_here.
__attribute__((always_inline)) static inline px_allocation *px__bin_take(
    px_stream *stream, size_t bytes, px__biased_lock_thread *me) {
  px__fast_bin *bin = px__bin_of(stream, bytes <= PX__SMALL_MAX);
  px__block *block;
  if (!__atomic_load_n(&bin->block, __ATOMIC_RELAXED) || !px__bin_enabled(stream)) return NULL;
  if (PX_LIKELY(px__biased_lock_try(&bin->lock, me))) {
    block = px__bin_pop(bin, bytes);
    px__biased_lock_leave(&bin->lock, me);
  } else {
    block = px__bin_pop_shared(bin, bytes);
  }
  return PX_LIKELY(block != NULL) ? px__bin_begin(block, bytes) : NULL;
}

// Frees a block to its bin; false if the bin does not accept it.
static inline bool px__bin_put(px__block *block) {
  px__fast_bin *bin = px__bin_of(block->stream, block->small);
  if (block->allocation.use_count || PX_UNLIKELY(block->in_private_pool) ||
      px__bins_disabled_for(~0))
    return false;
  if (PX_UNLIKELY(block->allocation.uses != NULL)) px__allocation_drop_uses(&block->allocation);
  px__biased_lock_thread *me = px__biased_lock_here;
  if (PX_UNLIKELY(!px__biased_lock_try(&bin->lock, me))) return px__bin_push_shared(bin, block);
  bool taken = px__bin_push(bin, block);
  px__biased_lock_leave(&bin->lock, me);
  return taken;
}
