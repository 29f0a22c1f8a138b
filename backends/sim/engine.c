// SPDX-License-Identifier: Apache-2.0
// The engine of collectives "sim": ranks that are threads of this process, over the meeting place
// (meet.h). Collectives of device memory are tasks of simulated streams, in NCCL's order; those of
// host memory end in the thread that calls.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/rendezvous.h"

#define KEY "simulated"
typedef struct invitation {
  int64_t process;
  uint64_t group;
} invitation;

static int fail(char *why, size_t room, const char *text) {
  return snprintf(why, room, "%s", text), 1;
}

// ---- joining

static int make_group(const px_engine_job *job, invitation *note, char *why, size_t room) {
  px__sim_lock();
  px__sim_group *group = px__sim_group_new(job->size);
  *note = (invitation){getpid(), group ? px__sim_group_id(group) : 0};
  px__sim_unlock();
  if (!group) return fail(why, room, "there is no memory left");
  return job->set(job->store, KEY, note, sizeof *note, why, room);
}

static int find_group(const px_engine_job *job, invitation *note, char *why, size_t room) {
  void *value;
  size_t size;
  if (job->rank == 0) return make_group(job, note, why, room);
  if (job->get(job->store, KEY, &value, &size, why, room)) return 1;
  bool whole = size == sizeof *note;
  if (whole) memcpy(note, value, sizeof *note);
  job->release(value);
  if (whole && note->process == getpid()) return 0;
  return fail(why, room, "rank 0 is in another process; the engine sim is for threads of one");
}

static bool interrupted;  // by px__sim.lock

static bool wait_for_all(px__sim_group *group, int64_t timeout_ms) {
  const struct timespec moment = {0, 1000000};
  int64_t end = px__sim_clock() / 1000000 + timeout_ms;
  while (!px__sim_group_full(group) && !interrupted && px__sim_clock() / 1000000 < end) {
    px__sim_unlock();
    nanosleep(&moment, NULL);
    px__sim_lock();
  }
  return px__sim_group_full(group);
}

static int join(void **out, const px_engine_job *job, char *why, size_t room) {
  invitation note;
  bool all = false;
  *out = NULL;
  if (!px__sim.core) return fail(why, room, "the engine sim is for simulated devices");
  px__sim_lock();
  px_status status = px__sim_configure();
  px__sim_unlock();
  if (status != PX_OK) return fail(why, room, "a variable PHLOX_SIM_... has a value that is wrong");
  if (find_group(job, &note, why, room)) return 1;
  px__sim_lock();
  px__sim_group *group = px__sim_group_find(note.group);
  px__sim_seat *seat = group ? px__sim_seat_of(group, job->rank) : NULL;
  if (seat) all = wait_for_all(group, job->timeout_ms);
  if (seat && !all) px__sim_leave(seat);
  px__sim_unlock();
  if (!seat) return fail(why, room, "its place in the group is taken, or the others have gone");
  if (!all) return fail(why, room, "not all ranks have come in time");
  *out = seat;
  return 0;
}

static void leave(void *self) {
  px__sim_lock();
  px__sim_leave(self);
  px__sim_unlock();
}

static void fail_from(void *self, uint64_t number, const char *why) {
  px__sim_seat *seat = self;
  px__sim_lock();
  if (number)
    px__sim_gone(seat, number - 1, why);
  else if (!px__sim_is_over(seat->group))
    px__sim_over(seat->group, 0, "rank %d: %.900s", seat->rank, why);
  px__sim_unlock();
}

static void abort_all(void *self) { fail_from(self, 0, "the group was aborted"); }

// ---- calls of host memory

static px__sim_visit visit_of(px__sim_seat *seat, const px_engine_call *call) {
  int size = px__sim_group_size(seat->group);
  return (px__sim_visit){.seat = seat,
                         .call = call,
                         .peer = -1,
                         .in_bytes = px__sim_side(call, size, seat->rank, false),
                         .out_bytes = px__sim_side(call, size, seat->rank, true),
                         .deadline = px__sim_clock() + call->timeout_ms * 1000000};
}

static int stay(px__sim_visit *visit, char *why, size_t room) {
  px__sim_lock();
  px__sim_visit_stay(visit);
  if (visit->failed) px__sim_reason(visit, why, room);
  px__sim_unlock();
  return visit->failed;
}

static int run(void *self, const px_engine_call *call, char *why, size_t room) {
  px__sim_visit visit = visit_of(self, call);
  return stay(&visit, why, room);
}

static int start(void **pending, void *self, const px_engine_call *call, char *why, size_t room) {
  px__sim_visit *visit = malloc(sizeof *visit);
  *pending = visit;
  if (!visit) return fail(why, room, "there is no memory left");
  *visit = visit_of(self, call);
  px__sim_lock();
  px__sim_arrive(visit);
  px__sim_unlock();
  return 0;
}

static int finish(void *pending, int *peer, int64_t timeout_ms, char *why, size_t room) {
  px__sim_visit *visit = pending;
  int bad = 0;
  visit->deadline = px__sim_clock() + timeout_ms * 1000000;
  if (timeout_ms < 0)
    px__sim_lock(), px__sim_withdraw(visit), px__sim_unlock();
  else
    bad = stay(visit, why, room);
  *peer = visit->call->op == PX_RECV ? visit->peer : -1;
  free(visit);
  return bad;
}

// ---- calls of device memory

static bool touches(const px__sim_task *task, uintptr_t low, uintptr_t high) {
  const px__sim_visit *visit = task->visit;
  uintptr_t in = (uintptr_t)visit->call->in, out = (uintptr_t)visit->call->out;
  return (visit->in_bytes && in < high && in + visit->in_bytes > low) ||
         (visit->out_bytes && out < high && out + visit->out_bytes > low);
}

static int post(void *self, const px_engine_call *call, void *stream, px_engine_ended ended,
                void *argument, char *why, size_t room) {
  px__sim_stream *s = stream;
  px__sim_lock();
  bool captured = s->capture != NULL;
  px__sim_unlock();
  if (captured) return fail(why, room, "a collective cannot be captured");
  px__sim_task *task = px__sim_task_new(PX__SIM_TASK_VISIT, sizeof(px__sim_visit));
  if (!task) return fail(why, room, "there is no memory left");
  task->visit = (px__sim_visit *)task->room;
  *task->visit = visit_of(self, call);
  task->visit->stream = s, task->visit->ended = ended, task->visit->argument = argument;
  task->touches = touches;
  if (px__sim_issue(s, task, NULL) == PX_OK) return 0;
  return fail(why, room, "its stream has no thread");
}

static void begin(int ranks) {
  px__sim_lock();
  (void)px__sim_configure();  // what is wrong, the first device tells
  interrupted = ranks < 0;
  if (interrupted) px__sim_over_all("the simulated cluster was interrupted");
  px__sim_unlock();
  if (ranks >= 0) px__sim_cluster(ranks);
}

static const px_engine table = {.abi = PX_ENGINE_ABI,
                                .size = sizeof(px_engine),
                                .name = "sim",
                                .open = join,
                                .close = leave,
                                .abort = abort_all,
                                .run = run,
                                .start = start,
                                .finish = finish,
                                .post = post,
                                .fail = fail_from,
                                .cluster = begin};

PX_API const px_engine *px_engine_entry(uint32_t abi);
const px_engine *px_engine_entry(uint32_t abi) { return abi == PX_ENGINE_ABI ? &table : NULL; }
