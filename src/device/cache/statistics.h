// SPDX-License-Identifier: Apache-2.0
// The allocator's statistics, with PyTorch's names and meanings. The pool reports changes of blocks
// and segments; only this file defines their effect on each counter. Guarded by the device's lock.
#pragma once
#include "device/core/device_impl.h"

typedef struct px__block px__block;
typedef struct px__segment px__segment;

// `allocated` is the sum of all increases of `current`. Decreases follow: allocated - current +
// base.
typedef struct px__stat {
  int64_t current, peak, allocated, base;
} px__stat;
// In the order of PyTorch's keys. POOLED: per pool and in total. SINGLE: in total. NUMBER: a plain
// number.
#define PX__STAT_MAP(POOLED, SINGLE, NUMBER) \
  POOLED(active) \
  POOLED(active_bytes) \
  POOLED(allocated_bytes) \
  POOLED(allocation) \
  POOLED(inactive_split) \
  POOLED(inactive_split_bytes) \
  NUMBER(max_split_size) \
  NUMBER(num_alloc_retries) \
  NUMBER(num_device_alloc) \
  NUMBER(num_device_free) \
  NUMBER(num_oom_rejections) \
  NUMBER(num_ooms) \
  NUMBER(num_sync_all_streams) \
  SINGLE(oversize_allocations) \
  SINGLE(oversize_segments) POOLED(requested_bytes) POOLED(reserved_bytes) POOLED(segment)
typedef struct px__statistics {
#define POOLED(name) px__stat name[3];  // all, large_pool, small_pool
#define SINGLE(name) px__stat name[1];
#define NUMBER(name) int64_t name;
  PX__STAT_MAP(POOLED, SINGLE, NUMBER)
#undef POOLED
#undef SINGLE
#undef NUMBER
} px__statistics;

static inline void px__stat_move(px__stat *stat, int64_t by) {
  stat->current += by;
  if (by <= 0) return;
  stat->allocated += by;
  if (stat->current > stat->peak) stat->peak = stat->current;
}
static inline int64_t px__stat_freed(const px__stat *stat) {
  return stat->allocated - stat->current + stat->base;
}
static inline void px__stat_reset_peak(px__stat *stat) { stat->peak = stat->current; }
static inline void px__stat_reset_accumulated(px__stat *stat) {
  stat->allocated = 0, stat->base = stat->current;
}

// ---- changes
// `block` was allocated. `remainder`, if not NULL, was split off it and is free. `was_part`: the
// block was part of a split segment before.
void px__statistics_allocate(px__statistics *statistics, const px__block *block,
                             const px__block *remainder, bool was_part);
// The program freed the block; other streams may still use it.
void px__statistics_free(px__statistics *statistics, const px__block *block);
// The last use of the freed block is done, or ordered before its stream's next work.
void px__statistics_free_completed(px__statistics *statistics, const px__block *block);
// A free block enters the count of inactive splits (sign 1), or leaves it (-1) to be merged, split
// or released. No effect on NULL, on other blocks, and on whole segments.
void px__statistics_inactive(px__statistics *statistics, const px__block *block, int sign);
// The segment was allocated from the device (sign 1) or released (-1).
void px__statistics_segment(px__statistics *statistics, const px__segment *segment,
                            size_t max_split, int sign);
// Bytes of the segment were unmapped. `splits`: from its middle, leaving two segments.
void px__statistics_unmap(px__statistics *statistics, const px__segment *segment, size_t bytes,
                          bool splits);
// The segment was merged into the one below it.
void px__statistics_merge(px__statistics *statistics, const px__segment *segment);

// Requests served by a fast bin, not yet added to the statistics. Counted without the device's
// lock.
typedef struct px__bin_counts {
  int64_t count, bytes;     // requests, and bytes of their blocks
  int64_t requested;        // bytes requested
  int64_t change, highest;  // of the requested bytes in use, and the peak of that change
} px__bin_counts;
static inline void px__bin_counts_add(px__bin_counts *u, size_t size, size_t bytes, size_t before) {
  u->count++;
  u->bytes += (int64_t)size;
  u->requested += (int64_t)bytes;
  if (bytes == before) return;
  u->change += (int64_t)bytes - (int64_t)before;
  if (u->change > u->highest) u->highest = u->change;
}
void px__statistics_add_bin(px__statistics *statistics, const px__bin_counts *counts, bool small);
