// SPDX-License-Identifier: Apache-2.0
// The allocator's statistics, with PyTorch's names and meanings. The pool reports what happens to
// blocks and segments, and only this file knows what is counted for it. Guarded by the device's
// lock.
#pragma once
#include "device/device_impl.h"

typedef struct px__block px__block;
typedef struct px__segment px__segment;

// `allocated` is the sum of all increases of `current`. Decreases are not counted, since they
// follow: allocated - current + base.
typedef struct px__stat {
  int64_t current, peak, allocated, base;
} px__stat;
// By name, as PyTorch lists them. POOLED: counted for each pool and all of them; SINGLE: for all of
// them; NUMBER: a plain number.
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

// ---- reports
// `block` was allocated; `remainder`, if not NULL, was split off it and is free. `was_part`: its
// segment was split already.
void px__statistics_allocate(px__statistics *statistics, const px__block *block,
                             const px__block *remainder, bool was_part);
// The program freed the block; other streams may still use it.
void px__statistics_free(px__statistics *statistics, const px__block *block);
// The last use of the freed block is done or ordered.
void px__statistics_free_completed(px__statistics *statistics, const px__block *block);
// idle: the block enters the free list. unidle: it leaves that to be coalesced, or with its
// segment.
void px__statistics_add_inactive(px__statistics *statistics, const px__block *block);
void px__statistics_remove_inactive(px__statistics *statistics, const px__block *block);
// The segment was allocated from the device (1), or released (-1).
void px__statistics_segment(px__statistics *statistics, const px__segment *segment,
                            size_t max_split, int sign);
// Bytes of the segment went back; two: from between its blocks, so that it is two now.
void px__statistics_unmap(px__statistics *statistics, const px__segment *segment, size_t bytes,
                          bool two);
// The segment became part of the one below it.
void px__statistics_merge(px__statistics *statistics, const px__segment *segment);

// What a fast bin served since its counts were last posted. Counted without the device's lock.
typedef struct px__bin_counts {
  int64_t count, bytes;     // requests, and the sizes of their blocks
  int64_t requested;        // bytes that were asked for
  int64_t change, highest;  // of the requested bytes in use, and the peak of the change
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
