// SPDX-License-Identifier: Apache-2.0
// The works of devices that may be under way, in a list, which the watch looks at: what it does
// there waits for no other thread, as all of them may wait for a collective that never ends.
#include "comm/comm_impl.h"
#include "phlox/queue.h"

#include <stdio.h>
#include <time.h>

// ---- works that are under way

// Of works of one stream: all up to this one are over.
static void note_done(px_comm *self, const px_work *work) {
  bool counts = work->queued && !work->error && !px__pairs_up(work->call.op);
  if (counts && work->called.number > self->works_done) self->works_done = work->called.number;
}

void px__works_keep(px_comm *self, px_work *work) {
  pthread_mutex_lock(&self->works);
  work->next = NULL;
  if (work->captured)  // it is a part of graphs, and is not asked for
    self->captured = true, note_done(self, work);
  else if (self->on_device)
    self->on_device_last->next = px_retain(work);
  else
    self->on_device = px_retain(work);
  if (!work->captured) self->on_device_last = work, self->work_count++;
  pthread_mutex_unlock(&self->works);
  // The communicator waits for its list before it ends; it may not be held by it.
  if (work->owns) work->owns = false, px_release(self);
}

// Waits for a work; what another one has left to be told is left.
static void wait_quietly(const px_work *work) {
  px_error why;
  if (px_event_synchronize(work->event) == PX_OK) return;
  px_error_take(&why);
  if (why.code == PX_DIST_BACKEND) px_device_fail(work->device, &why);
}

static bool is_over(px_work *work) {
  pthread_mutex_lock(&work->lock);
  bool done = work->done;
  pthread_mutex_unlock(&work->lock);
  return done && px_event_query_nolock(work->event);
}

// Takes the works that are over out of the list: all up to the first that is not, of those of one
// stream.
static px_work *take_over(px_comm *self) {
  px_work **at = &self->on_device, *over = NULL, *last = NULL;
  pthread_mutex_lock(&self->works);
  while (*at) {
    px_work *work = *at;
    if (!is_over(work)) {
      if (self->queues) break;
      last = work, at = &work->next;
      continue;
    }
    note_done(self, work);
    *at = work->next;
    work->next = over, over = work;
    self->work_count--;
  }
  if (!*at) self->on_device_last = last;
  pthread_mutex_unlock(&self->works);
  return over;
}

// The first, or NULL: a new reference.
static px_work *first_of(px_comm *self) {
  pthread_mutex_lock(&self->works);
  px_work *work = px_retain(self->on_device);
  pthread_mutex_unlock(&self->works);
  return work;
}

// One that was waited for in vain is not waited for again.
static void drop(px_comm *self, px_work *work) {
  bool first = false;
  pthread_mutex_lock(&self->works);
  if ((first = self->on_device == work)) self->on_device = work->next, self->work_count--;
  if (!self->on_device) self->on_device_last = NULL;
  pthread_mutex_unlock(&self->works);
  if (first) px_release(work);
}

void px__works_reap(px_comm *self, bool all) {
  for (;;) {
    for (px_work *work = take_over(self), *next; work; work = next) {
      next = work->next;
      px_release(work);
    }
    PX_SCOPED(px_work) left = all ? first_of(self) : NULL;
    if (!left) return;
    wait_quietly(left);
    if (!is_over(left)) drop(self, left);
  }
}

static bool is_broken(px_comm *self) {
  pthread_mutex_lock(&self->lock);
  bool broken = self->broken[0];
  pthread_mutex_unlock(&self->lock);
  return broken;
}

px_status px__works_await_room(px_comm *self) {
  for (;;) {
    px__works_reap(self, false);
    pthread_mutex_lock(&self->works);
    bool room = self->work_count < PX__WORKS;
    pthread_mutex_unlock(&self->works);
    if (room || is_broken(self)) return PX_OK;
    PX_TRY(px_interrupt_poll());
    nanosleep(&(struct timespec){0, 50000}, NULL);
  }
}

// ---- what the watch does

uint64_t px__works_done(px_comm *self) {
  pthread_mutex_lock(&self->works);
  uint64_t done = self->works_done;
  pthread_mutex_unlock(&self->works);
  return done;
}

static bool is_late(const px_work *work, char why[PX__WHY]) {
  char what[PX__CALL] = "";
  bool pairs = px__pairs_up(work->call.op);
  if (px__now_ms() < work->deadline) return false;
  if (pairs) px__call_describe(what, sizeof what, &work->called, false);
  snprintf(why, PX__WHY, "%s%sit has not ended within %lld ms", what, pairs ? ": " : "",
           (long long)work->call.timeout_ms);
  return true;
}

bool px__works_look(px_comm *self, uint64_t *number, char why[PX__WHY]) {
  bool bad = false;
  px_work *at;
  *number = 0;
  pthread_mutex_lock(&self->works);
  for (at = self->on_device; at && px_event_query_nolock(at->event); at = at->next)
    note_done(self, at);
  if (at && !px__pairs_up(at->call.op)) *number = at->called.number;
  if (at) bad = is_late(at, why);
  pthread_mutex_unlock(&self->works);
  if (bad) return true;
  pthread_mutex_lock(&self->lock);
  void *joined = self->aborted ? NULL : self->joined;
  pthread_mutex_unlock(&self->lock);
  return joined && self->engine->check(joined, why, PX__WHY);
}

// Under the lock of the works. The error is made by the calling thread, and told by others.
static void fail(px_comm *self, px_work *work, const char *why) {
  char text[PX__FAILURE];
  px__call_explain(text, &work->called, self->rank, work->call.timeout_ms, why);
  (void)px_error_set(PX_DIST_BACKEND, 0, __FILE__, __LINE__, __func__, "%s", text);
  px_error_take(work->room);
  pthread_mutex_lock(&work->lock);
  work->error = work->room;
  pthread_mutex_unlock(&work->lock);
  pthread_mutex_lock(&self->lock);
  if (!self->refused) snprintf(self->broken, sizeof self->broken, "%.1000s", text);
  self->refused = true;
  pthread_mutex_unlock(&self->lock);
}

// Graphs are replayed without works.
static void fail_device(const px_comm *self, const char *why) {
  px_error error;
  (void)px_error_set(PX_DIST_BACKEND, 0, __FILE__, __LINE__, __func__,
                     "[Rank %d] a group whose collectives are part of a graph has ended: %s",
                     self->rank, why);
  px_error_take(&error);
  px_device_fail(px_stream_device(self->streams[1]), &error);
}

void px__works_give_up(px_comm *self, const char *why) {
  if (!self->queues) return;
  const px_work *first = NULL;
  pthread_mutex_lock(&self->works);
  for (px_work *at = self->on_device; at; at = at->next) {
    if (at->error || px_event_query_nolock(at->event)) continue;
    fail(self, at, why);
    if (!first) px_device_fail(at->device, (first = at)->error);
  }
  if (!first && self->captured) fail_device(self, why);
  pthread_mutex_unlock(&self->works);
}
