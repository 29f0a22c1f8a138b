// SPDX-License-Identifier: Apache-2.0
// Release of reserved memory that is idle. The device's lock is held throughout.
#include "device/cache/cache.h"

// Releases the idle segments of a private pool, or (NULL) of all that no graph replays, oldest
// first, until at most `allowed` bytes are reserved. Free memory of a graph's pool may be in use by
// replays.
static void release_segments(px__device *d, const px__private_pool *pool, size_t allowed) {
  for (px__segment *segment = px__segment_oldest(d), *before; segment; segment = before) {
    before = segment->prev;
    if (d->cache.reserved <= allowed) return;
    const px__private_pool *owner = segment->private_pool;
    bool chosen = pool ? owner == pool : !owner || !owner->users;
    if (chosen && px__segment_can_go(segment)) px__segment_release(d, segment);
  }
}

void px__release_down_to(px__device *d, size_t allowed) {
  if (px__device_captures(d)) return;
  px__pool_flush(d);
  release_segments(d, NULL, allowed);
}

// Waits until free pages are out of use. Callers able to wait without the lock have done so. The
// wait is not interruptible, and work still running on the device must not need the lock.
static void wait_for_idle_pages(px__device *d) {
  px__error_guard guard;
  for (int i = 0; i < d->stream_count; i++) px__stream_query(d->streams[i]);
  const px__segment *segment = d->cache.segments;
  while (segment && (px__segment_can_go(segment) || !px__segment_is_free(segment)))
    segment = segment->next;
  if (!segment) return;
  px__error_save(&guard);
  px_interrupt_hold(true);
  bool done = px__rt.backend->synchronize(d->physical) == PX_OK;
  px_interrupt_hold(false);
  px__error_restore(&guard);
  for (int i = 0; i < d->stream_count && done; i++)
    px__stream_set_completed(d->streams[i], d->streams[i]->issued);
}

void px__release_idle(px__device *d) {
  if (px__device_captures(d)) return;
  px__pool_flush(d);
  d->cache.statistics.num_sync_all_streams++;
  wait_for_idle_pages(d);
  release_segments(d, NULL, 0);
  d->cache.peak_in_use = (size_t)d->cache.statistics.allocated_bytes[0].current;
  d->cache.misses = (px__misses){0};
  d->cache.over_slack = false;
}

void px__release_pool(px__device *d, px__private_pool *pool) {
  if (pool->users == 1 && !px__device_captures(d)) {
    wait_for_idle_pages(d);
    release_segments(d, pool, 0);
  }
  px__private_pool_close(d, pool);
}
