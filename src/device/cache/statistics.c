// SPDX-License-Identifier: Apache-2.0
// Updates of the statistics.
#include "device/core/state.h"

static inline void move_pooled(px__stat stat[3], bool small, int64_t by) {
  px__stat_move(&stat[0], by);
  px__stat_move(&stat[1 + small], by);
}

// Also counts the bytes for the segment's private pool.
static void move_reserved(px__statistics *s, const px__segment *segment, int64_t by) {
  move_pooled(s->reserved_bytes, segment->small, by);
  if (segment->private_pool) move_pooled(segment->private_pool->reserved, segment->small, by);
}

static void move_split(px__statistics *s, bool small, int64_t blocks, int64_t bytes) {
  if (blocks) move_pooled(s->inactive_split, small, blocks);
  if (bytes) move_pooled(s->inactive_split_bytes, small, bytes);
}

static void move_allocated(px__statistics *s, const px__block *block, int sign) {
  bool small = block->small;
  if (block->node.size >= block->stream->owner->cache.settings.max_split)
    px__stat_move(s->oversize_allocations, sign);
  move_pooled(s->allocation, small, sign);
  move_pooled(s->allocated_bytes, small, (int64_t)block->node.size * sign);
  move_pooled(s->requested_bytes, small, (int64_t)block->allocation.pub.bytes * sign);
}

static void move_active(px__statistics *s, const px__block *block, int sign) {
  move_pooled(s->active, block->small, sign);
  move_pooled(s->active_bytes, block->small, (int64_t)block->node.size * sign);
}

void px__statistics_allocate(px__statistics *s, const px__block *block, const px__block *remainder,
                             bool was_part) {
  bool small = block->small;
  int64_t size = (int64_t)block->node.size;
  if (remainder && was_part)
    move_split(s, small, 0, -size);
  else if (remainder)
    move_split(s, small, 1, (int64_t)remainder->node.size);
  else if (was_part)
    move_split(s, small, -1, -size);
  move_allocated(s, block, 1);
  move_active(s, block, 1);
}

void px__statistics_free(px__statistics *s, const px__block *block) {
  move_allocated(s, block, -1);
}
void px__statistics_free_completed(px__statistics *s, const px__block *block) {
  move_active(s, block, -1);
}

void px__statistics_inactive(px__statistics *s, const px__block *block, int sign) {
  if (block && block->state == PX__FREE && px__block_is_split(block))
    move_split(s, block->small, sign, (int64_t)block->node.size * sign);
}

void px__statistics_segment(px__statistics *s, const px__segment *segment, size_t max_split,
                            int sign) {
  move_pooled(s->segment, segment->small, sign);
  move_reserved(s, segment, (int64_t)segment->size * sign);
  if (sign > 0)
    s->num_device_alloc++;
  else
    s->num_device_free++;
  if (segment->size >= max_split) px__stat_move(s->oversize_segments, sign);
}

void px__statistics_unmap(px__statistics *s, const px__segment *segment, size_t bytes,
                          bool splits) {
  if (splits) move_pooled(s->segment, segment->small, 1);
  move_reserved(s, segment, -(int64_t)bytes);
  s->num_device_free++;
}

void px__statistics_merge(px__statistics *s, const px__segment *segment) {
  move_pooled(s->segment, segment->small, -1);
}

// Each of these requests followed a free of the same block. Only the requested bytes can thus have
// reached a new peak.
void px__statistics_add_bin(px__statistics *s, const px__bin_counts *u, bool small) {
  px__stat *const once[] = {s->allocation, s->active};
  px__stat *const sized[] = {s->allocated_bytes, s->active_bytes};
  for (int pool = 0; pool <= 1 + small; pool += 1 + small) {
    px__stat *requested = &s->requested_bytes[pool];
    for (int i = 0; i < 2; i++) {
      once[i][pool].allocated += u->count;
      sized[i][pool].allocated += u->bytes;
    }
    requested->allocated += u->requested;
    int64_t highest = requested->current + u->highest;
    if (highest > requested->peak) requested->peak = highest;
    requested->current += u->change;
  }
}
