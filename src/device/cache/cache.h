// SPDX-License-Identifier: Apache-2.0
// The caching allocator: blocks, segments and their pages, limits, history, and errors.
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
void px__cache_free_raw(px_allocation *allocation);  // of kind PX__RAW
// Waits for issued work with uses of free memory or of pending frees. No lock held.
px_status px__cache_wait(px__device *d) __attribute__((warn_unused_result));

// ---- blocks; lock of the device held
typedef struct px__request {
  px__device *device;
  px_stream *stream;
  size_t bytes, size;         // as requested, and rounded
  bool exact;                 // a new segment gets no more bytes than this request
  bool mixed;                 // a new segment serves small and large requests
  bool may_wait;              // the caller can wait for work
  bool retry_after_wait;      // output: it should, and then retry
  const px_traceback *stack;  // of the caller, if history is recorded
} px__request;
// Allocates from free blocks; NULL if none fits.
px_allocation *px__pool_allocate(const px__request *request);
// The same from blocks of the other kind, small or large.
px_allocation *px__pool_allocate_other(const px__request *request);
// The same from private pools with use_on_oom, if the request is not for a private pool itself.
px_allocation *px__pool_allocate_lent(const px__request *request);
void px__pool_free(px__device *d, px__block *block, const px_traceback *stack);
// Frees the blocks in fast bins and adds their counts to the statistics.
void px__pool_flush(px__device *d);
// Moves pending frees without unfinished uses to the free lists.
void px__pool_sweep(px__device *d);
// Merges idle neighbours, also of different streams.
void px__pool_merge(px__device *d);
size_t px__pool_round(const px__device *d, size_t bytes);
// Records of blocks.
px_status px__block_new(px__block **out, px__device *d) __attribute__((warn_unused_result));
void px__block_drop(px__device *d, px__block *block);
// Inserts a block into its free list, or removes it.
void px__block_insert_free(px__block *block);
void px__block_remove_free(px__block *block);
// Splits a block at `size`. The upper part is put on the free list and returned; NULL without
// memory for its record.
px__block *px__block_split(px__device *d, px__block *block, size_t size);
// True if the block is free and its uses are done. NULL is not idle.
bool px__block_is_idle(const px__block *block);
// Allocates from a block: one on no free list, or a free one.
px_allocation *px__pool_take(const px__request *request, px__block *block);
px_allocation *px__pool_take_free(const px__request *request, px__block *block);
// The private pool of a request, or NULL.
px__private_pool *px__request_pool(const px__request *request);
// Bytes: sizes of blocks are multiples of GRAIN, segments of PAGE. SMALL_MAX is the largest request
// of the small pool.
enum { PX__GRAIN = 512, PX__SMALL_MAX = 1 << 20, PX__PAGE = 2 << 20 };

// Merges a free block with free neighbours, if their uses are ordered before its stream's next
// work.
void px__block_coalesce(px__device *d, px__block *block);
// Returns the live allocation at an address, or NULL.
px__allocation *px__pool_allocation_at(const px__device *d, const void *data);

// ---- segments; lock held
// Allocates from a new segment, of the size from the settings or (exact) no larger than needed.
px_status px__segment_extend(px_allocation **out, const px__request *request)
    __attribute__((warn_unused_result));
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
// True if a release requires all uses to be done; the backend waits for uses of other segments.
static inline bool px__segment_must_be_idle(const px__segment *segment) {
  return segment->paged || segment->plugged.alloc;
}
px__segment *px__segment_oldest(const px__device *d);
// True if a stream of the device is captured: nothing can be released then.
bool px__device_captures(const px__device *d);
static inline size_t px__whole_pages(size_t bytes) {
  return (bytes + PX__PAGE - 1) & ~(size_t)(PX__PAGE - 1);
}

// ---- expandable segments; lock held
// Serves a request by growing an expandable segment with as few new pages as possible. Above `more`
// bytes, unmaps as many pages elsewhere. *out is NULL if no gap fits.
px_status px__runs_grow(px_allocation **out, const px__request *request, size_t more)
    __attribute__((warn_unused_result));
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

// ---- compact placement; lock held
// True if the address range has few enough pages for compact placement.
bool px__compact_possible(px__device *d);
// Places a request by cost, if compact placement is on and the request is for no private pool. NULL
// if nothing fits.
px_allocation *px__compact_allocate(const px__request *request);

// ---- limits of reserved memory; lock held
// Tries the last steps before a request takes memory from the device. *out is NULL if none fits.
void px__reserve_try(px_allocation **out, px__request *request);
// Releases idle segments. `pages`, or if over the slack limit: also unmaps idle pages of others.
void px__reserve_release(px__device *d, bool pages);
// Ends a use of a private pool. The last one also releases its idle segments.
void px__reserve_end_pool(px__device *d, px__private_pool *pool);

// ---- pluggable allocators
px_status px__plugged_alloc(void **out, const px_memory_allocator *allocator,
                            const px__request *request, size_t bytes)
    __attribute__((warn_unused_result));
void px__plugged_release(const px_memory_allocator *allocator, px_stream *stream, void *at,
                         size_t bytes);
// Frees a raw allocation of the pluggable allocator. Waits for the stream; no lock held.
void px__plugged_free(px__block *block);

// ---- scratch memory
// Memory allocated by a backend while a launch is issued, under the device's lock.
typedef struct px__scratch {
  px__device *device;          // of the launch being issued by this thread, or NULL
  px_allocation *allocations;  // linked by `uses`, otherwise empty in scratch memory
} px__scratch;
extern _Thread_local PX__HIDDEN_THREAD px__scratch px__scratch_here;
void *px__scratch_take(const px_launch *launch, size_t bytes);
void px__scratch_drop(void);  // no lock held

// ---- memory history
// Stacks are collected without a lock; events are added under the device's lock.
void px__history_begin(px__device *d, const px_memory_history *history);
void px__history_note(px__device *d, const px_memory_event *event);
static inline void px__history_block(px__device *d, px_memory_action action, const px__block *block,
                                     const px_traceback *stack) {
  if (px__history_on())
    px__history_note(d,
                     &(px_memory_event){.action = action,
                                        .address = (int64_t)block->node.address,
                                        .size = (int64_t)block->allocation.pub.bytes,
                                        .stream = block->stream->id,
                                        .pool = px__private_pool_name(block->segment->private_pool),
                                        .stack = stack});
}
static inline void px__history_segment(px__device *d, px_memory_action action,
                                       const px__segment *segment, int64_t stream) {
  if (px__history_on())
    px__history_note(d, &(px_memory_event){.action = action,
                                           .address = (int64_t)(uintptr_t)segment->data,
                                           .size = (int64_t)segment->size,
                                           .stream = stream,
                                           .pool = px__private_pool_name(segment->private_pool),
                                           .stack = segment->stack});
}

// ---- snapshots
// Copies of px_memory_snapshot's and px_memory_events' rows. Free with px__free; NULL if empty.
px_status px__memory_blocks(px_memory_block **out, int64_t *count, int device)
    __attribute__((warn_unused_result));
px_status px__memory_events(px_memory_event **out, int64_t *count, int device)
    __attribute__((warn_unused_result));

// ---- text of out-of-memory errors
enum { PX__SIZE_TEXT = 32 };
const char *px__bytes_text(char text[PX__SIZE_TEXT], uint64_t bytes);  // "2.00 MiB"
typedef struct px__shortage {
  size_t wanted, unused, limit;  // unused: free memory of the device
} px__shortage;
// Writes the explanation appended to an out-of-memory error.
void px__shortage_text(char *text, size_t capacity, px__device *d, const px__shortage *shortage);

// ---- out-of-memory errors
// Fails with PyTorch's text for a request of `bytes`. No lock is needed.
px_status px__out_of_memory(px__device *d, size_t bytes) __attribute__((warn_unused_result));
