// SPDX-License-Identifier: Apache-2.0
// Strategy: waits for work on free memory, now and then. If the host runs ahead of its device, free
// blocks have unfinished uses and keep their pages.
#include "device/strategy/strategy.h"

enum { WORK_BETWEEN_WAITS = 128 };  // work items between waits, to make their cost negligible

// True if `self` has unfinished work and no other stream of the process has. Work of others may
// wait for another rank, and that rank for work not yet issued by this thread.
static bool is_only_busy_stream(const px_stream *self) {
  for (int i = 0; i < px__rt.count; i++) {
    const px__device *d = px__device_found(i);
    int count = d ? __atomic_load_n(&d->stream_count, __ATOMIC_ACQUIRE) : 0;
    for (int k = 0; k < count; k++)
      if (d->streams[k] != self && px__done(d->streams[k]) < px__issued(d->streams[k]))
        return false;
  }
  return px__done(self) < px__issued(self);
}

static bool should_wait(const px__request *r) {
  px_stream *s = r->stream;
  if (!r->may_wait || r->pool || px__device_captures(r->device) || !is_only_busy_stream(s))
    return false;
  if (s->retry_waited && s->issued - s->retry_waited < WORK_BETWEEN_WAITS) return false;
  s->retry_waited = s->issued;
  return true;
}

px__block *px__try_after_work(px__request *r) {
  if (!should_wait(r)) return NULL;
  px__device_unlock(r->device);
  r->status = px__cache_wait(r->device);
  px__device_lock(r->device);
  r->pool = px__private_pool_of(r->stream);  // another thread may have begun a capture
  if (r->status != PX_OK) return NULL;
  px__block *block = px__try_free_block(r);
  return block ? block : px__try_other_kind(r);
}
