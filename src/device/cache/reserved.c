// SPDX-License-Identifier: Apache-2.0
// Limits the reserved memory of a device: the last steps before a request takes memory, and the
// release of idle memory. The device's lock is held throughout.
//
// At first segments have PyTorch's sizes, and their number grows as PyTorch's does, as long as
// memory reserved beyond the peak in use stays within a slack limit. Over that limit, a request
// without a fit gets as few new pages as possible, and as many idle pages are unmapped elsewhere.
// Reserved memory then exceeds the peak in use by the slack and the free parts of pages.
//
// A repeated step of a program may miss at the same request each time: pages taken from some blocks
// are taken back later. Mapping pages is slower than most work on them. A repeated miss therefore
// gets new pages, up to a limit, until the step fits.
//
// If the host runs ahead of its device, free blocks still have unfinished uses and keep their
// pages. A request about to take more then waits for that work now and then, if only one stream has
// any.
#include "device/cache/cache.h"

#define MIB ((size_t)1 << 20)
enum {
  SLACK = 256,              // MiB of slack over the peak in use, before pages move
  SLACK_EXPANDABLE = 32,    // ... with expandable_segments:True
  SLACK_SHARE = 16,         // ... at most the device's memory divided by this
  REPEATED = 32,            // MiB of new pages for repeated misses,
  REPEATED_SHARE = 20,      // ... or the peak in use divided by this, if larger
  WORK_BETWEEN_WAITS = 128  // work items between two waits, to make the wait's cost negligible
};

// Free memory of a graph's pool may be in use by replays: it is never idle.
static bool may_be_replayed(const px__segment *segment) {
  return segment->private_pool && segment->private_pool->users;
}

// Releases idle segments, oldest first, until at most `allowed` bytes are reserved.
static void release_down_to(px__device *d, size_t allowed) {
  if (px__device_captures(d)) return;
  px__pool_flush(d);
  for (px__segment *segment = px__segment_oldest(d), *before; segment; segment = before) {
    before = segment->prev;
    if (d->cache.reserved <= allowed) return;
    if (!may_be_replayed(segment) && px__segment_can_go(segment)) px__segment_release(d, segment);
  }
}
static void collect_garbage(px__device *d) {
  size_t limit = d->cache.limit ? d->cache.limit : d->properties.total_memory;
  release_down_to(d, (size_t)(d->cache.settings.gc_threshold * (double)limit));
}

static bool is_over_slack(px__device *d, const px__request *r) {
  px__cache *c = &d->cache;
  size_t live = (size_t)c->statistics.allocated_bytes[0].current + r->size;
  size_t share = (c->limit ? c->limit : d->properties.total_memory) / SLACK_SHARE;
  size_t slack = (c->settings.expandable == PX__EXPANDABLE_TRUE ? SLACK_EXPANDABLE : SLACK) * MIB;
  if (live > c->peak_in_use) c->peak_in_use = live;
  if (slack > share) slack = share;
  return c->reserved + px__segment_size(d, r->size) > c->peak_in_use + slack;
}

// True if a request of this size has missed before with as much memory in use.
static bool is_repeated_miss(px__cache *c, const px__request *r) {
  px__misses *m = &c->misses;
  px__miss now = {.size = r->size, .live = (size_t)c->statistics.allocated_bytes[0].current};
  unsigned known = m->count < PX__MISSES ? m->count : PX__MISSES;
  for (unsigned i = 0; i < known; i++)
    if (m->seen[i].size == now.size && m->seen[i].live == now.live) return true;
  m->seen[m->count++ % PX__MISSES] = now;
  return false;
}

// Serves a request over the slack limit with pages from elsewhere, or with new ones.
static void grow(px_allocation **out, const px__request *r) {
  px__cache *c = &r->device->cache;
  size_t limit = c->peak_in_use / REPEATED_SHARE > REPEATED * MIB ? c->peak_in_use / REPEATED_SHARE
                                                                  : REPEATED * MIB;
  size_t more = is_repeated_miss(c, r) && limit > c->misses.mapped ? limit - c->misses.mapped : 0;
  size_t before = c->reserved;
  if (px__runs_grow(out, r, more) != PX_OK) px_error_clear();
  if (more && c->reserved > before) c->misses.mapped += c->reserved - before;
}

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

// True if the request should wait for work on free memory, and the last wait is long enough ago.
static bool should_wait(const px__device *d, const px__request *r) {
  px_stream *s = r->stream;
  if (!r->may_wait || px__request_pool(r) || px__device_captures(d) || !is_only_busy_stream(s))
    return false;
  if (s->retry_waited && s->issued - s->retry_waited < WORK_BETWEEN_WAITS) return false;
  s->retry_waited = s->issued;
  return true;
}

void px__reserve_try(px_allocation **out, px__request *r) {
  px__device *d = r->device;
  size_t wanted = px__segment_size(d, r->size), reserved = d->cache.reserved;
  *out = NULL;
  if (d->cache.settings.gc_threshold > 0) collect_garbage(d);
  if (px__pages_wanted(d)) {
    d->cache.over_slack = is_over_slack(d, r);
    if (d->cache.over_slack && !d->cache.compact && px__compact_possible(d)) {
      d->cache.compact = true;
      if ((*out = px__compact_allocate(r))) return;
    }
    if (!d->cache.over_slack || (*out = px__pool_allocate_other(r))) return;
    if ((r->retry_after_wait = should_wait(d, r))) return;
    grow(out, r);
  } else if (d->cache.settings.expandable == PX__EXPANDABLE_TRUE && r->size > PX__SMALL_MAX) {
    release_down_to(d, reserved > wanted ? reserved - wanted : 0);
  }
}

// uses_done: no unfinished work uses free memory.
static bool may_release(const px__segment *segment, bool retry_waited) {
  return (retry_waited || !px__segment_must_be_idle(segment)) && px__segment_can_go(segment);
}

static bool is_busy(const px__segment *segment) {
  return px__segment_must_be_idle(segment) && px__segment_is_free(segment) &&
         !px__segment_can_go(segment);
}

// Waits until free pages are out of use. Callers able to wait without the lock have done so. The
// wait is not interruptible, and work still running on the device must not need the lock.
static bool wait_for_idle_pages(px__device *d) {
  px__error_guard guard;
  for (int i = 0; i < d->stream_count; i++) px__stream_query(d->streams[i]);
  const px__segment *segment = d->cache.segments;
  while (segment && !is_busy(segment)) segment = segment->next;
  if (!segment) return true;
  px__error_save(&guard);
  px_interrupt_hold(true);
  bool done = px__rt.backend->synchronize(d->physical) == PX_OK;
  px_interrupt_hold(false);
  px__error_restore(&guard);
  for (int i = 0; i < d->stream_count && done; i++)
    px__stream_set_completed(d->streams[i], d->streams[i]->issued);
  return done;
}

void px__reserve_release(px__device *d, bool pages) {
  if (px__device_captures(d)) return;
  px__pool_flush(d);
  d->cache.statistics.num_sync_all_streams++;
  bool done = wait_for_idle_pages(d);
  for (px__segment *segment = d->cache.segments, *next; segment; segment = next) {
    next = segment->next;
    if (!may_be_replayed(segment) && may_release(segment, done)) px__segment_release(d, segment);
  }
  if (pages || d->cache.over_slack || d->cache.settings.expandable == PX__EXPANDABLE_TRUE)
    px__runs_unmap(d, SIZE_MAX, NULL);
  d->cache.peak_in_use = (size_t)d->cache.statistics.allocated_bytes[0].current;
  d->cache.misses = (px__misses){0};
  d->cache.over_slack = false;
  if (!pages) d->cache.compact = false;
}

void px__reserve_end_pool(px__device *d, px__private_pool *pool) {
  bool last = pool->users == 1 && !px__device_captures(d), done = last && wait_for_idle_pages(d);
  for (px__segment *segment = last ? d->cache.segments : NULL, *next; segment; segment = next) {
    next = segment->next;
    if (segment->private_pool == pool && may_release(segment, done))
      px__segment_release(d, segment);
  }
  px__private_pool_close(d, pool);
}
