// SPDX-License-Identifier: Apache-2.0
// Waits for the work that prevents the reuse of freed memory. No lock is held.
#include "device/cache/cache.h"

// Finds the first unfinished use of a pending free. Skips captured work, which never finishes. Lock
// held.
static bool next_pending(px__device *d, px__use *out) {
  px__pool_sweep(d);
  for (px__block *block = d->cache.pending; block; block = block->queue)
    for (int i = 0; i < block->allocation.use_count; i++) {
      *out = block->allocation.uses[i];
      if (px__done(out->stream) < out->seq && !px__capture_of(out->stream)) return true;
    }
  return false;
}

// True if unfinished work of the stream may use free blocks. Lock held.
static bool guards_free_blocks(const px__device *d, const px_stream *s) {
  const px__free_lists *lists = &s->free_lists;
  bool has = lists->free[0] || lists->free[1] || lists->unsorted[0] || lists->unsorted[1];
  bool idle = px__capture_of(s) || px__done(s) >= s->issued;
  return !idle && (has || d->cache.private_pools);  // these hold blocks freed by all streams
}

px_status px__cache_wait(px__device *d) {
  px__use use;
  for (;;) {
    px__device_lock(d);
    bool busy = next_pending(d, &use);
    px__device_unlock(d);
    if (!busy) break;
    PX_TRY(px__stream_wait_seq(use.stream, use.seq));
  }
  for (int i = 0; i < __atomic_load_n(&d->stream_count, __ATOMIC_ACQUIRE); i++) {
    px_stream *s = d->streams[i];
    px__device_lock(d);
    px__pool_flush(d);
    uint64_t last = guards_free_blocks(d, s) ? s->issued : 0;
    px__device_unlock(d);
    if (last) PX_TRY(px__stream_wait_seq(s, last));
  }
  return PX_OK;
}
