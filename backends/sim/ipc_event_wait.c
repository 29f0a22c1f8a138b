// SPDX-License-Identifier: Apache-2.0
// Records made by other processes: a thread waits for each such record and then wakes this
// process's waiters.
#include "sim/sim.h"

static void *watch_main(void *argument) {
  px__sim_mark *mark = argument;
  px__sim_shared_await(mark->shared, mark->number);
  px__sim_lock();
  px__sim_reached(mark, px__sim_clock());
  px__sim_mark_release(mark);
  px__sim_schedule_wake();
  px__sim_unlock();
  return NULL;
}

// Adds a reference to the mark, released by the thread. Lock held.
static bool start_watch(px__sim_mark *mark) {
  pthread_t thread;
  if (!px__sim_thread(&thread, watch_main, mark)) return false;
  mark->refs++;
  pthread_detach(thread);
  return true;
}

px_status px__sim_refresh(px__sim_event *e) {
  px__sim_shared *s = e->shared;
  uint64_t number = s ? px__sim_shared_latest(s) : 0;
  if (!s || number == (e->mark ? e->mark->number : 0)) return PX_OK;
  px__sim_mark *mark = px__sim_mark_new(1);
  if (mark) mark->shared = s, s->refs++, mark->number = number;
  bool good = mark && ((mark->done = px__sim_shared_is_done(s, number)) || start_watch(mark));
  if (!good) {
    px__sim_mark_release(mark);
    PX__SIM_FAIL(PX_NOMEM, 0, "cannot wait for an event of another process");
  }
  px__sim_mark_release(e->mark);
  e->mark = mark;
  return PX_OK;
}
