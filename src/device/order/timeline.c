// SPDX-License-Identifier: Apache-2.0
// Timelines and vector clocks of streams. All work is issued here.
//
// Work of a stream is numbered from 1. `completed` is the last work known to be done on the device,
// by marks: backend events recorded if a later query is likely. `synced` is the last work
// that the host has waited for. Only `synced` orders host work, since `completed` depends on
// timing. `allocator_synced` also counts waits of the allocator. With deterministic addresses the
// allocator relies on it alone.
#include "device/work/work.h"

px_status px__clock_reserve(px__clock *clock, int count) {
  if (count <= clock->count) return PX_OK;
  int capacity = (count + 15) & ~15;
  PX_TRY(px__realloc((void **)&clock->at, (size_t)capacity * sizeof *clock->at));
  memset(clock->at + clock->count, 0, (size_t)(capacity - clock->count) * sizeof *clock->at);
  clock->count = capacity;
  return PX_OK;
}

void px__clock_join(px__clock *into, const px__clock *from) {
  for (int i = 0; i < from->count; i++)
    if (from->at[i] > into->at[i]) into->at[i] = from->at[i];
}

px_status px__clock_copy(px__clock *to, const px__clock *from) {
  PX_TRY(px__clock_reserve(to, from->count));
  if (to->count) memset(to->at, 0, (size_t)to->count * sizeof *to->at);
  px__clock_join(to, from);
  return PX_OK;
}

static void advance(uint64_t *value, uint64_t seq) {
  uint64_t seen = __atomic_load_n(value, __ATOMIC_RELAXED);
  while (seen < seq &&
         !__atomic_compare_exchange_n(value, &seen, seq, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    ;
}

void px__stream_set_completed(px_stream *s, uint64_t seq) {
  advance(&s->completed, seq);
  advance(&s->allocator_synced, seq);
}

void px__stream_synced(px_stream *s, uint64_t seq, const px__clock *clock) {
  px__stream_set_completed(s, seq);
  advance(&s->synced, seq);
  for (int i = 0; clock && i < clock->count; i++) {
    px_stream *other = clock->at[i] ? px__streams[i] : NULL;
    if (!other) continue;
    px__stream_set_completed(other, clock->at[i]);
    advance(&other->synced, clock->at[i]);
  }
}

// ---- marks
static void mark_recycle(px__device *d, px__mark *mark) {
  if (mark->users || !mark->detached) return;
  mark->next = d->spare_marks;
  d->spare_marks = mark;
}

static px_status mark_new(px__mark **out, px__device *d) {
  px__mark *mark = d->spare_marks;
  if (mark) {
    d->spare_marks = mark->next;
    return *out = mark, PX_OK;
  }
  PX_TRY(PX_NEW(&mark));
  px_status status = px__rt.backend->event_new(d->physical, 0, &mark->event);
  if (status != PX_OK) return px__free(mark), status;
  mark->detached = true;
  *out = mark;
  return PX_OK;
}

// Without waits, marks would pile up: px__stream_mark polls old ones first. Marks of captured work
// are never reached; a mark after the capture covers it.
enum { MANY_MARKS = 64 };
px_status px__stream_mark(px_stream *s) {
  if (px__capture_of(s)) return PX_OK;
  if (s->marks >= MANY_MARKS) px__stream_poll(s);
  if ((s->last && s->last->seq == s->issued) || px__completed(s) >= s->issued) return PX_OK;
  px__mark *mark = NULL;
  PX_TRY(mark_new(&mark, s->owner));
  px_status status = px__rt.backend->event_record(mark->event, s->native);
  if (status != PX_OK) return mark_recycle(s->owner, mark), status;
  mark->next = NULL, mark->seq = s->issued, mark->detached = false;
  *(s->last ? &s->last->next : &s->first) = mark;
  s->last = mark;
  s->marks++;
  return PX_OK;
}

void px__stream_poll(px_stream *s) {
  while (s->first) {
    px__mark *mark = s->first;
    bool done = px__completed(s) >= mark->seq;
    if (!done && (px__rt.backend->event_query(mark->event, &done) != PX_OK || !done)) return;
    advance(&s->completed, mark->seq);
    s->first = mark->next;
    if (!s->first) s->last = NULL;
    s->marks--;
    mark->detached = true;
    mark_recycle(s->owner, mark);
  }
}

void px__stream_query(px_stream *s) {
  px__stream_poll(s);
  bool idle = true;
  uint64_t seq = s->issued;
  if (px__completed(s) >= seq || px__capture_of(s)) return;
  if (px__rt.backend->stream_query(s->native, &idle) != PX_OK)
    px_error_clear();
  else if (idle)
    advance(&s->completed, seq);
}

// Returns the first mark at or after `seq`, with one more user. Lock held.
static px_status mark_at(px__mark **out, px_stream *s, uint64_t seq) {
  px__mark *mark = s->last && s->last->seq <= seq ? s->last : s->first;
  while (mark && mark->seq < seq) mark = mark->next;
  if (!mark) {
    if (px__capture_of(s)) return px__capture_invalidate(px__capture_of(s), 900);
    PX_TRY(px__stream_mark(s));
    mark = s->last;
  }
  if (mark) mark->users++;
  *out = mark;
  return PX_OK;
}

static void mark_release(px_stream *s, px__mark *mark) {
  mark->users--;
  mark_recycle(s->owner, mark);
}

// ---- waits
px_status px__stream_wait_seq(px_stream *s, uint64_t seq) {
  if (px__completed(s) >= seq) return advance(&s->allocator_synced, seq), PX_OK;
  px__mark *mark = NULL;
  px__device_lock(s->owner);
  px_status status = mark_at(&mark, s, seq);
  px__device_unlock(s->owner);
  px__waiting now = px__wait_begin();
  if (status == PX_OK && mark)
    status = px__broken_note(s->owner, px__rt.backend->event_synchronize(mark->event));
  px__wait_end(now);
  px__device_lock(s->owner);
  if (status == PX_OK) advance(&s->completed, mark ? mark->seq : seq);
  if (status == PX_OK) advance(&s->allocator_synced, seq);
  if (mark) mark_release(s, mark);
  px__stream_poll(s);
  px__device_unlock(s->owner);
  return status;
}

px_status px__stream_wait_all(px_stream *s) {
  px__clock clock = {0};
  if (px__capture_of(s)) return px__capture_invalidate(px__capture_of(s), 900);
  px__device_lock(s->owner);
  uint64_t seq = s->issued;
  // Without memory for the clock, less work is known to be done.
  if (px__clock_copy(&clock, &s->clock) != PX_OK) px_error_clear();
  px__device_unlock(s->owner);
  px__waiting now = px__wait_begin();
  px_status status = px__broken_note(s->owner, px__rt.backend->stream_synchronize(s->native));
  px__wait_end(now);
  if (status == PX_OK) {
    px__device_lock(s->owner);
    px__stream_synced(s, seq, &clock);
    px__stream_poll(s);
    px__device_unlock(s->owner);
  }
  px__free(clock.at);
  return status;
}

// Marks a stream before it joins a capture, for waits for its earlier work.
static px_status join(px_stream *stream, uint64_t capture) {
  PX_TRY(px__stream_mark(stream));
  return px__capture_join(stream, capture);
}

// Makes later work of `after` wait for an event recorded after work `seq` of `before` in `capture`.
// NULL: the work is done, and only the clock is updated. Lock held.
static px_status wait_for(px_stream *after, void *event, px_stream *before, uint64_t seq,
                          const px__clock *clock, uint64_t capture) {
  int count = before->index + 1 > clock->count ? before->index + 1 : clock->count;
  PX_TRY(px__clock_reserve(&after->clock, count));
  if (PX_UNLIKELY(capture || px__capture_of(after))) PX_TRY(join(after, capture));
  if (event) PX_TRY(px__rt.backend->stream_wait(after->native, event));
  px__clock_join(&after->clock, clock);
  if (after->clock.at[before->index] < seq) after->clock.at[before->index] = seq;
  __atomic_store_n(&after->issued, after->issued + 1, __ATOMIC_RELEASE);
  return PX_OK;
}

px_status px__stream_wait_mark(px_stream *after, void *event, px_stream *before, uint64_t seq,
                               const px__clock *clock, uint64_t capture) {
  px__device_lock(after->owner);
  px_status status = wait_for(after, event, before, seq, clock, capture);
  px__device_unlock(after->owner);
  return status;
}

px_status px__stream_order_at(px_stream *after, px_stream *before, uint64_t seq,
                              const px__clock *clock) {
  px__mark *mark = NULL;
  px_status status = PX_OK;
  px__device_lock(before->owner);
  if (px__completed(before) < seq) status = mark_at(&mark, before, seq);
  px__device_unlock(before->owner);
  if (status == PX_OK)
    status = px__stream_wait_mark(after, mark ? mark->event : NULL, before, seq, clock, 0);
  if (mark) {
    px__device_lock(before->owner);
    mark_release(before, mark);
    px__device_unlock(before->owner);
  }
  return status;
}

// The same in a capture, with an event outside the stream's marks: its record belongs to the graph
// and is never reached.
static px_status order_captured(px_stream *after, px_stream *before, uint64_t seq,
                                const px__clock *clock, uint64_t capture) {
  px__mark *mark = NULL;
  px__device_lock(before->owner);
  px_status status = mark_new(&mark, before->owner);
  if (status == PX_OK) status = px__rt.backend->event_record(mark->event, before->native);
  px__device_unlock(before->owner);
  if (status == PX_OK)
    status = px__stream_wait_mark(after, mark->event, before, seq, clock, capture);
  px__device_lock(before->owner);
  if (mark) mark_recycle(before->owner, mark);
  px__device_unlock(before->owner);
  return status;
}

px_status px__stream_order(px_stream *after, px_stream *before) {
  if (after == before) return PX_OK;
  px__clock clock = {0};
  px__device_lock(before->owner);
  // Unknown work queued by the owner of a foreign stream counts as one unit of work.
  if (before->foreign) __atomic_store_n(&before->issued, before->issued + 1, __ATOMIC_RELEASE);
  uint64_t seq = before->issued, capture = px__capture_of(before);
  px_status status = px__clock_copy(&clock, &before->clock);
  px__device_unlock(before->owner);
  if (status == PX_OK)
    status = capture ? order_captured(after, before, seq, &clock, capture)
                     : px__stream_order_at(after, before, seq, &clock);
  px__free(clock.at);
  return status;
}

// ---- work
static px_status record_uses(px__work *work, const px_access *accesses, int count) {
  for (int i = 0; i < count; i++)
    if (px__access_given(&accesses[i]))
      PX_TRY(px__allocation_add_use(px__allocation_of(accesses[i].allocation), work,
                                    accesses[i].write));
  return px__races() ? px__race_accesses(work, accesses, count) : PX_OK;
}

void px__work_describe(px__work *work, px_stream *stream, const char *op, const px_access *accesses,
                       int count) {
  work->op = op, work->stream = stream, work->caller = px__caller();
  px__work_find_site(work, count && accesses[0].write ? accesses[0].allocation : NULL);
}

px_status px__work_number(px__work *work, const px_access *accesses, int count) {
  px_stream *stream = work->stream;
  work->seq = stream->issued + 1;
  work->id = ++stream->owner->launches;
  work->capture = px__capture_of(stream);
  px_status status = record_uses(work, accesses, count);
  if (PX_UNLIKELY(work->capture != 0) && status == PX_OK)
    status = px__capture_record(work, accesses, count);
  // The number is consumed even if nothing is issued: recorded uses may refer to it.
  __atomic_store_n(&stream->issued, work->seq, __ATOMIC_RELEASE);
  if (status != PX_OK) return px_error_add_frame(status, __FILE__, __LINE__, __func__);
  px__record_add(work);
  work->profiled = px__profile_on() ? px__profile_work_begin(work) : 0;
  return PX_OK;
}

px_status px__work_begin(px__work *work, px_stream *stream, const char *op,
                         const px_access *accesses, int count) {
  PX_TRY(px__launch_batch_flush());
  px__work_describe(work, stream, op, accesses, count);
  px__device_lock(stream->owner);
  px_status status = px__work_number(work, accesses, count);
  if (PX_UNLIKELY(status != PX_OK)) px__device_unlock(stream->owner);
  return status;
}

void px__work_end(px__work *work, bool mark) {
  if (PX_UNLIKELY(work->profiled != 0)) px__profile_work_end(work->profiled);
  // A missing mark costs precision, not correctness: a wait records one.
  if (mark && px__stream_mark(work->stream) != PX_OK) px_error_clear();
  px__device_unlock(work->stream->owner);
}
