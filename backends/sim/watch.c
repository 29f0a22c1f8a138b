// SPDX-License-Identifier: Apache-2.0
// Marks of what other processes have recorded: a thread waits at the event's post, and then tells
// who waits here.
#include "sim/sim.h"

#include <stdlib.h>

typedef struct watch {
  px__sim_shared *shared;
  px__sim_mark *mark;
  uint64_t number;
} watch;

static void *watch_main(void *argument) {
  watch w = *(watch *)argument;
  free(argument);
  px__sim_shared_await(w.shared, w.number);
  px__sim_lock();
  px__sim_reached(w.mark, px__sim_clock());
  px__sim_mark_release(w.mark);
  px__sim_shared_release(w.shared);
  px__sim_schedule_wake();
  px__sim_unlock();
  return NULL;
}

static bool start_watch(px__sim_shared *s, px__sim_mark *mark, uint64_t number) {
  pthread_t thread;
  watch *w = malloc(sizeof *w);
  if (!w) return false;
  *w = (watch){s, mark, number};
  s->refs++, mark->refs++;
  if (px__sim_thread(&thread, watch_main, w)) return pthread_detach(thread), true;
  s->refs--, mark->refs--;
  return free(w), false;
}

px_status px__sim_look(px__sim_event *e) {
  px__sim_shared *s = e->shared;
  uint64_t number = s ? px__sim_shared_latest(s) : 0;
  if (!s || number == s->seen) return PX_OK;
  px__sim_mark *mark = px__sim_mark_new(1);
  bool good =
      mark && ((mark->done = px__sim_shared_is_done(s, number)) || start_watch(s, mark, number));
  if (!good) {
    px__sim_mark_release(mark);
    PX__SIM_FAIL(PX_NOMEM, 0, "cannot wait for an event of another process");
  }
  px__sim_mark_release(e->mark);
  e->mark = mark;
  s->seen = number;
  return PX_OK;
}
