// SPDX-License-Identifier: Apache-2.0
// The list of unfinished device works. The watchdog polls it. Functions for the watchdog never
// block on another thread, because any thread may be waiting for a hung collective.
#include "comm/comm_impl.h"
#include "phlox/extend.h"

#include <stdio.h>
#include <time.h>

// ---- the list

// Records completion. Works of one stream complete in order, so all earlier ones are done too.
static void note_done(px_comm *self, const px_work *work) {
  bool counts = work->queued && !work->error && !px__is_p2p(work->call.op);
  if (counts && work->called.number > self->works_done) self->works_done = work->called.number;
}

void px__works_add(px_comm *self, px_work *work) {
  pthread_mutex_lock(&self->works);
  work->next = NULL;
  if (work->captured)  // part of a graph: its completion is not polled
    self->captured = true, note_done(self, work);
  else if (self->on_device)
    self->on_device_last->next = px_retain(work);
  else
    self->on_device = px_retain(work);
  if (!work->captured) self->on_device_last = work, self->work_count++;
  pthread_mutex_unlock(&self->works);
  // The communicator waits for the list at its end, so listed works must not own it.
  if (work->owns) work->owns = false, px_release(self);
}

// Waits for a work. Errors other than the group's are discarded; the group's goes back to the
// device.
static void wait_quietly(const px_work *work) {
  px_error why;
  if (px_event_synchronize(work->event) == PX_OK) return;
  px_error_take(&why);
  if (why.code == PX_DIST_BACKEND) px_device_fail(work->device, &why);
  px_error_drop(&why);
}

static bool is_over(px_work *work) {
  pthread_mutex_lock(&work->lock);
  bool done = work->done;
  pthread_mutex_unlock(&work->lock);
  return done && px_event_query_nolock(work->event);
}

// Removes finished works from the list and returns them. A queueing engine uses one stream, so
// the scan stops at the first unfinished work.
static px_work *take_finished(px_comm *self) {
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

// Returns a new reference to the first work, or NULL.
static px_work *first_work(px_comm *self) {
  pthread_mutex_lock(&self->works);
  px_work *work = px_retain(self->on_device);
  pthread_mutex_unlock(&self->works);
  return work;
}

// Removes a work after its wait failed. It is not waited for again.
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
    for (px_work *work = take_finished(self), *next; work; work = next) {
      next = work->next;
      px_release(work);
    }
    PX_SCOPED(px_work) left = all ? first_work(self) : NULL;
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

px_status px__works_await_capacity(px_comm *self) {
  for (;;) {
    px__works_reap(self, false);
    pthread_mutex_lock(&self->works);
    bool has_capacity = self->work_count < PX__WORKS;
    pthread_mutex_unlock(&self->works);
    if (has_capacity || is_broken(self)) return PX_OK;
    PX_TRY(px_interrupt_poll());
    nanosleep(&(struct timespec){0, 50000}, NULL);
  }
}

// ---- for the watchdog

uint64_t px__works_done(px_comm *self) {
  pthread_mutex_lock(&self->works);
  uint64_t done = self->works_done;
  pthread_mutex_unlock(&self->works);
  return done;
}

static bool is_late(const px_work *work, char why[PX__REASON]) {
  char description[PX__CALL] = "";
  bool pairs = px__is_p2p(work->call.op);
  if (px__now_ms() < work->deadline) return false;
  if (pairs) px__call_describe(description, sizeof description, &work->called, false);
  snprintf(why, PX__REASON, "%s%stimed out after %lld ms", description, pairs ? ": " : "",
           (long long)work->call.timeout_ms);
  return true;
}

bool px__works_check(px_comm *self, uint64_t *number, char why[PX__REASON]) {
  bool bad = false;
  px_work *at;
  *number = 0;
  pthread_mutex_lock(&self->works);
  for (at = self->on_device; at && px_event_query_nolock(at->event); at = at->next)
    note_done(self, at);
  if (at && !px__is_p2p(at->call.op)) *number = at->called.number;
  if (at) bad = is_late(at, why);
  pthread_mutex_unlock(&self->works);
  if (bad) return true;
  pthread_mutex_lock(&self->lock);
  void *joined = self->aborted ? NULL : self->joined;
  pthread_mutex_unlock(&self->lock);
  return joined && self->engine->check(joined, why, PX__REASON);
}

// Caller holds `works`. The calling thread creates the error; other threads return it.
static void fail(px_comm *self, px_work *work, const char *why) {
  char text[PX__FAILURE];
  px__call_explain(text, &work->called, self->rank, work->call.timeout_ms, why);
  (void)px_error_set(PX_DIST_BACKEND, 0, __FILE__, __LINE__, __func__, "%s", text);
  px_error_take(work->error_storage);
  pthread_mutex_lock(&work->lock);
  work->error = work->error_storage;
  pthread_mutex_unlock(&work->lock);
  pthread_mutex_lock(&self->lock);
  if (!self->refused) snprintf(self->broken, sizeof self->broken, "%.1000s", text);
  self->refused = true;
  pthread_mutex_unlock(&self->lock);
}

// Replayed graphs have no works, so the error goes to the device.
static void fail_device(const px_comm *self, const char *why) {
  px_error error;
  (void)px_error_set(PX_DIST_BACKEND, 0, __FILE__, __LINE__, __func__,
                     "[Rank %d] a group with collectives in a graph has failed: %s", self->rank,
                     why);
  px_error_take(&error);
  px_device_fail(px_stream_device(self->streams[1]), &error);
}

void px__works_abort(px_comm *self, const char *why) {
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
