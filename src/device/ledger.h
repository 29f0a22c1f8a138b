// SPDX-License-Identifier: Apache-2.0
// The allocator's statistics, PyTorch's. The pool reports what happens to chunks and segments; what
// is counted for it stands here alone. A device's lock guards its ledger.
#pragma once
#include "device/device_impl.h"

typedef struct px__chunk px__chunk;
typedef struct px__segment px__segment;

// `current` went up by `allocated` in all. What was freed is not counted but follows: allocated -
// current + base.
typedef struct px__stat {
  int64_t current, peak, allocated, base;
} px__stat;
// In the order in which PyTorch lists them: by name. Counted for each pool, for all of them
// together, or a plain number.
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
  NUMBER(num_ooms) \
  NUMBER(num_sync_all_streams) \
  SINGLE(oversize_allocations) \
  SINGLE(oversize_segments) POOLED(requested_bytes) POOLED(reserved_bytes) POOLED(segment)
typedef struct px__ledger {
#define POOLED(name) px__stat name[3];  // all, large_pool, small_pool
#define SINGLE(name) px__stat name[1];
#define NUMBER(name) int64_t name;
  PX__STAT_MAP(POOLED, SINGLE, NUMBER)
#undef POOLED
#undef SINGLE
#undef NUMBER
} px__ledger;

static inline void px__stat_move(px__stat *stat, int64_t by) {
  stat->current += by;
  if (by <= 0) return;
  stat->allocated += by;
  if (stat->current > stat->peak) stat->peak = stat->current;
}
static inline int64_t px__stat_freed(const px__stat *stat) {
  return stat->allocated - stat->current + stat->base;
}

// ---- reports
// `chunk` was allocated; `remainder` (may be NULL) was cut off it and is free. `was_part`: it was
// one of several in its segment before.
void px__ledger_allocate(px__ledger *ledger, const px__chunk *chunk, const px__chunk *remainder,
                         bool was_part);
// The program freed the chunk, which other streams may still use.
void px__ledger_free(px__ledger *ledger, const px__chunk *chunk);
// No work uses the chunk any more.
void px__ledger_retire(px__ledger *ledger, const px__chunk *chunk);
// The chunk, coalesced with its neighbours, became a free one, or is no longer one by itself: it
// was coalesced, or its segment goes.
void px__ledger_idle(px__ledger *ledger, const px__chunk *chunk);
void px__ledger_unidle(px__ledger *ledger, const px__chunk *chunk);
// The device gave the segment (1), or has it back (-1).
void px__ledger_segment(px__ledger *ledger, const px__segment *segment, size_t max_split, int sign);

// What a fast bin served since its requests were last entered: that goes without the device's lock.
typedef struct px__unposted {
  int64_t count, bytes;     // requests, and the sum of their chunks' sizes
  int64_t requested;        // ... and of what was asked for
  int64_t change, highest;  // of the requested bytes in use
} px__unposted;
static inline void px__unposted_add(px__unposted *u, size_t size, size_t bytes, size_t before) {
  u->count++;
  u->bytes += (int64_t)size;
  u->requested += (int64_t)bytes;
  u->change += (int64_t)bytes - (int64_t)before;
  if (u->change > u->highest) u->highest = u->change;
}
void px__ledger_post(px__ledger *ledger, const px__unposted *unposted, bool small);
