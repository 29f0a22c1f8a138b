// SPDX-License-Identifier: Apache-2.0
// Events of the simulated devices.
//
// Each record creates a new mark. A wait refers to the latest mark at the time of issue (rule C1).
// Query, synchronize and elapsed read the latest mark (C3). A record therefore does not affect
// tasks waiting for an earlier one. Releasing an event does not release the marks still waited for
// (C8).
#include "sim/sim.h"

#include <stdlib.h>

px_status px__sim_event_new(int device, unsigned flags, void **out) {
  *out = NULL;
  PX__SIM_TRY(px__sim_check(device));
  if ((flags & PX__SIM_SHARED) && (flags & PX__SIM_TIMING)) return px__sim_fail(PX__SIM_INVALID);
  px__sim_event *event = calloc(1, sizeof *event);
  if (!event) PX__SIM_FAIL(PX_NOMEM, 0, "no host memory for a simulated event");
  event->device = device, event->flags = flags;
  px_status status = flags & PX__SIM_SHARED ? px__sim_shared_make(&event->shared) : PX_OK;
  if (status != PX_OK) return free(event), status;
  *out = event;
  return PX_OK;
}

void px__sim_event_release(int device, void *event) {
  px__sim_event *e = event;
  if (!e) return;
  px__sim_lock();
  px__sim_mark_release(e->mark);
  px__sim_shared_release(e->shared);
  px__sim_unlock();
  free(e);
}

px_status px__sim_event_record(void *event, void *stream) {
  px__sim_event *e = event;
  px__sim_stream *s = stream;
  PX__SIM_TRY(px__sim_check(s->device));
  if (e->device != s->device) return px__sim_fail(PX__SIM_HANDLE);
  px__sim_lock();
  bool foreign = e->shared && s->capture;  // other processes would wait forever
  px__sim_unlock();
  if (foreign) return px__sim_fail(PX__SIM_CAPTURING);
  px__sim_task *task = px__sim_task_new(PX__SIM_TASK_RECORD, 0);
  px__sim_mark *mark = task ? px__sim_mark_new(2) : NULL;
  if (!mark) {
    free(task);
    PX__SIM_FAIL(PX_NOMEM, 0, "no host memory for a record of an event");
  }
  task->mark = mark;
  mark->shared = e->shared;
  mark->device = s->device;
  mark->ends = e->flags & PX__SIM_ENDS;
  if (e->shared) px__sim_lock(), e->shared->refs++, px__sim_unlock();
  // If issuing fails, the event keeps its previous mark and the new mark's reference is released.
  px_status status = px__sim_issue(s, task, NULL);
  px__sim_lock();
  px__sim_mark_release(status ? mark : e->mark);
  if (!status) e->mark = mark;
  px__sim_unlock();
  return status;
}

px_status px__sim_stream_wait(void *stream, void *event) {
  px__sim_event *e = event;
  px__sim_stream *s = stream;
  PX__SIM_TRY(px__sim_check(s->device));
  px__sim_lock();
  px_status status = px__sim_refresh(e);
  if (status == PX_OK && e->mark) status = px__sim_join(s, e->mark);
  px__sim_mark *mark = status == PX_OK ? e->mark : NULL;
  if (mark) mark->refs++;
  px__sim_unlock();
  if (!mark) return status;  // C2
  px__sim_task *task = px__sim_task_new(PX__SIM_TASK_WAIT, 0);
  if (task) return task->mark = mark, px__sim_issue(s, task, NULL);
  px__sim_lock();
  px__sim_mark_release(mark);
  px__sim_unlock();
  return px__sim_issue(s, NULL, NULL);  // returns the error for lack of memory
}

// Fails for events recorded in a capture, as they never complete. Lock held.
static px_status check_queryable(px__sim_event *e) {
  PX__SIM_TRY(px__sim_refresh(e));
  return e->mark && e->mark->captured ? px__sim_fail(PX__SIM_CAPTURED) : PX_OK;
}

px_status px__sim_event_query(void *event, bool *out) {
  px__sim_event *e = event;
  PX__SIM_TRY(px__sim_check(e->device));
  px__sim_lock();
  px_status status = check_queryable(e);
  if (status == PX_OK && e->mark && !e->mark->done) px__sim_schedule_step(e->device);
  *out = !e->mark || e->mark->done;
  px__sim_unlock();
  return status;
}

px_status px__sim_event_synchronize(void *event) {
  px__sim_event *e = event;
  px__sim_lock();
  px_status status = check_queryable(e);
  px__sim_mark *mark = e->mark;
  if (status == PX_OK && mark) {
    mark->refs++;
    px__sim_waiter waiter = {.mark = mark, .device = -1};
    status = px__sim_await_interruptible(&waiter);
    px__sim_mark_release(mark);
  }
  px__sim_unlock();
  return status == PX_OK ? px__sim_check(e->device) : status;
}

px_status px__sim_event_elapsed(void *start, void *end, float *out) {
  px__sim_event *a = start, *b = end;
  px__sim_lock();
  bool timed = (a->flags & b->flags & PX__SIM_TIMING) && a->mark && b->mark;
  bool done = timed && a->mark->done && b->mark->done;
  *out = done ? (float)((double)(b->mark->time - a->mark->time) / 1e6) : 0;
  px__sim_unlock();
  int code = !timed ? PX__SIM_HANDLE : PX__SIM_NOT_READY;
  return done ? PX_OK : px__sim_fail(code);
}

// ---- between processes
px_status px__sim_event_share(void *event, px_ipc_handle *out) {
  const px__sim_event *e = event;
  PX__SIM_TRY(px__sim_check(e->device));
  return px__sim_shared_handle(e->shared, out);
}

px_status px__sim_event_open(int device, const px_ipc_handle *handle, void **out) {
  px__sim_shared *shared = NULL;
  PX__SIM_TRY(px__sim_event_new(device, 0, out));
  px__sim_lock();
  px_status status = px__sim_shared_open(&shared, handle);
  px__sim_unlock();
  ((px__sim_event *)*out)->shared = shared;
  if (status == PX_OK) return PX_OK;
  px__sim_event_release(device, *out);
  *out = NULL;
  return status;
}
