// SPDX-License-Identifier: Apache-2.0
// Strategies of the caching allocator, each in a file of its own. request.c has their order.
//
// A strategy returns a block for the request, at least as large: a free one, or one on no free
// list. NULL means none. If it failed, it sets the request's `status`. Some only free memory for
// those after them. The device's lock is held; a strategy may release it for a time if the request
// may wait. The caller allocates from the block, counts it and adds it to the history.
#pragma once
#include "device/cache/cache.h"

// Returns the bytes that the allocator may reserve: the limit set by the program, else all memory.
static inline size_t px__memory_limit(const px__device *d) {
  return d->cache.limit ? d->cache.limit : d->properties.total_memory;
}

// ---- conditions
// True if the segment of a request would exceed the slack limit.
bool px__slack_exceeded(const px__request *request);

// ---- strategies
// The best fit, or the best position by compact placement if that is on.
px__block *px__try_free_block(px__request *request);
// The best fit in the small pool for a large request and the other way round.
px__block *px__try_other_kind(px__request *request);
// Frees segments beyond garbage_collection_threshold.
px__block *px__try_garbage(px__request *request);
// Turns compact placement on, if the device is small enough, and searches.
px__block *px__try_compact(px__request *request);
// Waits for work on free memory and searches again, once in a while.
px__block *px__try_after_work(px__request *request);
// Grows an expandable segment with as few new pages as possible, and unmaps as many elsewhere. The
// second keeps the others if the same request repeatedly finds no block.
px__block *px__try_page_run(px__request *request);
px__block *px__try_repeated_miss(px__request *request);
// A new segment, of the size from the settings or no larger than the request.
px__block *px__try_segment(px__request *request);
px__block *px__try_exact_segment(px__request *request);
// Calls the reclaim functions of upper layers and waits for work on free memory.
px__block *px__try_reclaim(px__request *request);
// Merges free neighbours of all streams and searches again.
px__block *px__try_merged(px__request *request);
// Frees idle segments and pages.
px__block *px__try_release(px__request *request);
// A block of a private pool with use_on_oom.
px__block *px__try_lent_pool(px__request *request);
// The last one: counts and records the failure, informs observers and writes the error.
px__block *px__try_report(px__request *request);

// ---- placement
// Returns the best fit for a request in the lists of its kind, or NULL.
px__block *px__best_fit(const px__request *request);
// True if the address range has few enough pages for compact placement.
bool px__compact_possible(px__device *d);
// Returns the cheapest free block of a request, or NULL; also if compact placement is off.
px__block *px__compact_place(const px__request *request);

// ---- out-of-memory errors; no lock held
// Informs the observers and fails with PyTorch's text for a request of `bytes`.
px_status px__out_of_memory(px__device *d, size_t bytes) __attribute__((warn_unused_result));
