// SPDX-License-Identifier: Apache-2.0
// The caching allocator: requests, blocks, segments and their pages, the release of memory, and the
// history. The strategies for a request are in device/strategy.
#pragma once
#include "device/order/order.h"

// ---- the caching allocator
// For use on all streams. In a capture, from memory never reused by the captured work.
px_status px__cache_new_lasting(px_allocation **out, size_t bytes, px__device *d)
    __attribute__((warn_unused_result));
// With the lock held: does not wait, calls no reclaim functions.
px_status px__cache_new_locked(px_allocation **out, size_t bytes, px__device *d)
    __attribute__((warn_unused_result));
void px__cache_free(px_allocation *allocation);
// Waits for issued work with uses of free memory or of pending frees. No lock held.
px_status px__cache_wait(px__device *d) __attribute__((warn_unused_result));

// ---- requests; lock of the device held
typedef struct px__request {
  px__device *device;
  px_stream *stream;
  size_t bytes, size;         // as requested, and rounded
  px__private_pool *pool;     // serves the request; NULL: the memory of the streams
  bool small;                 // from the small pool
  bool may_wait;              // a strategy may release the lock to wait, or to call other layers
  const px_traceback *stack;  // of the caller, if history is recorded
  px_status status;           // of the current strategy
} px__request;
size_t px__pool_round(const px__device *d, size_t bytes);

// ---- blocks; lock of the device held
// Bytes: sizes of blocks are multiples of GRAIN, segments of PAGE. SMALL_MAX is the largest request
// of the small pool.
enum { PX__GRAIN = 512, PX__SMALL_MAX = 1 << 20, PX__PAGE = 2 << 20 };
static inline uintptr_t px__block_end(const px__block *block) {
  return block->node.address + block->node.size;
}
// Records of blocks.
px_status px__block_new(px__block **out, px__device *d) __attribute__((warn_unused_result));
void px__block_drop(px__device *d, px__block *block);
// Inserts a block into its free list, or removes it.
void px__block_insert_free(px__block *block);
void px__block_remove_free(px__block *block);
// Moves the block freed last into the tree.
void px__free_lists_sort(px__free_lists *free_lists, bool small);
// Splits a block, free or on no free list, at `size`. The upper part is put on the free list and
// returned; NULL without memory for its record.
px__block *px__block_split(px__device *d, px__block *block, size_t size);
// Splits a block to the request's size and allocates it: a free block, or one on no free list.
px_allocation *px__block_take(const px__request *r, px__block *block);
// Frees a block whose uses are ordered before work `ready` of its stream.
void px__block_free(px__device *d, px__block *block, const px_traceback *stack);
// True if the block is free and its uses are done. NULL is not idle.
bool px__block_is_idle(const px__block *block);
// True if the block is free, and its uses are done or ordered before the stream's next work.
static inline bool px__block_is_usable(const px__block *block, const px_stream *stream) {
  return block->state == PX__FREE && px__ordered(block->stream, block->ready, stream);
}
// Merges a free block with its usable neighbours.
void px__block_coalesce(px__device *d, px__block *block);
// Merges idle neighbours, also of different streams.
void px__blocks_merge(px__device *d);
// Returns the live allocation at an address, or NULL.
px__allocation *px__pool_allocation_at(const px__device *d, const void *data);

// ---- bins and pending frees; lock of the device held
// Frees the block in a fast bin, or in all, and adds the counts to the statistics.
void px__bin_flush(px_stream *stream, bool small);
void px__pool_flush(px__device *d);
// Moves pending frees without unfinished uses to the free lists.
void px__pool_sweep(px__device *d);

// ---- segments; lock held
// Bytes of a new segment for a request of `size` bytes.
size_t px__segment_size(const px__device *d, size_t size);
// Creates a segment of one block, on no free list, at an address or (NULL) anywhere.
px_status px__segment_new(px__segment **out, const px__request *request, void *at, size_t bytes)
    __attribute__((warn_unused_result));
// Releases a free segment to the device.
void px__segment_release(px__device *d, px__segment *segment);
// Removes the segment from the list and frees its record.
void px__segment_forget(px__device *d, px__segment *segment);
bool px__segment_is_free(const px__segment *segment);
// True if the segment is free and can be released now.
bool px__segment_can_go(const px__segment *segment);
px__segment *px__segment_oldest(const px__device *d);
// True if a stream of the device is captured: nothing can be released then.
bool px__device_captures(const px__device *d);
static inline size_t px__whole_pages(size_t bytes) {
  return (bytes + PX__PAGE - 1) & ~(size_t)(PX__PAGE - 1);
}

// ---- expandable segments; lock held
// A gap of the address range, maybe empty, and the free blocks beside it that may serve a request
// together with new pages there.
typedef struct px__page_gap {
  uintptr_t low, high;
  px__segment *below, *above;  // NULL at the ends of the range
  px__block *side[2];          // the last block below and the first above, or NULL
} px__page_gap;
// Advances to the next gap; from zeros to the lowest. False after the last.
bool px__page_gap_next(px__page_gap *gap, const px__request *request);
// Unmaps up to `wanted` bytes of idle pages, oldest segments first, except in the blocks `excluded`
// (may be NULL). Returns the bytes.
size_t px__runs_unmap(px__device *d, size_t wanted, px__block *const excluded[2]);
// Maps pages at an unmapped address, as a free block of the request's stream, coalesced with its
// neighbours.
px_status px__runs_map(px__block **out, const px__request *request, uintptr_t at, size_t bytes)
    __attribute__((warn_unused_result));

// ---- pages of expandable segments; lock held
// True if new segments shall be expandable.
bool px__pages_wanted(px__device *d);
// Maps the segment's pages, at its address or at the first sufficient gap.
px_status px__pages_map(px__device *d, px__segment *segment) __attribute__((warn_unused_result));
void px__pages_unmap(px__device *d, px__segment *segment);
// Merges the adjacent segment above into `segment`.
void px__pages_merge(px__device *d, px__segment *segment);
// Unmaps [at, at + bytes) at the segment's start, its end, or between. In the last case `rest`
// becomes the segment above the hole.
void px__pages_unmap_part(px__device *d, px__segment *segment, uintptr_t at, size_t bytes,
                          px__segment *rest);

// ---- releasing reserved memory; lock held
// Releases idle segments, oldest first, until at most `allowed` bytes are reserved.
void px__release_down_to(px__device *d, size_t allowed);
// Waits for uses of free pages and releases all idle segments.
void px__release_idle(px__device *d);
// Ends a use of a private pool. The last one also releases its idle segments.
void px__release_pool(px__device *d, px__private_pool *pool);

// ---- memory without the cache, of the backend or of a pluggable allocator
px_status px__raw_new(px_allocation **out, const px__request *request)
    __attribute__((warn_unused_result));
void px__raw_free(px_allocation *allocation);  // waits for its uses
px_status px__plugged_alloc(void **out, const px_memory_allocator *allocator,
                            const px__request *request, size_t bytes)
    __attribute__((warn_unused_result));

// ---- memory history
// Stacks are collected without a lock; events are added under the device's lock.
void px__history_begin(px__device *d, const px_memory_history *history);
void px__history_note(px__device *d, const px_memory_event *event);
void px__history_block(px__device *d, px_memory_action action, const px__block *block,
                       const px_traceback *stack);
// Adds an event of `bytes` at an address of a segment.
void px__history_segment(px__device *d, px_memory_action action, const px__segment *segment,
                         uintptr_t at, size_t bytes, const px_stream *stream);

// ---- snapshots
// Copies of px_memory_snapshot's and px_memory_events' rows. Free with px__free; NULL if empty.
px_status px__memory_blocks(px_memory_block **out, int64_t *count, int device)
    __attribute__((warn_unused_result));
px_status px__memory_events(px_memory_event **out, int64_t *count, int device)
    __attribute__((warn_unused_result));
