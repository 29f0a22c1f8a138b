// SPDX-License-Identifier: Apache-2.0
// Collective backend "sim": ranks are threads of this process and use the rendezvous of
// rendezvous.h. Collectives on device memory are tasks of simulated streams, ordered as in NCCL.
// Those on host memory complete in the calling thread.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/rendezvous.h"

#define KEY "simulated"
typedef struct group_key {
  int64_t process;
  uint64_t group;
} group_key;

static int fail(char *why, size_t capacity, const char *text) {
  return snprintf(why, capacity, "%s", text), 1;
}

// ---- joining

static int make_group(const px_engine_job *job, group_key *note, char *why, size_t capacity) {
  px__sim_lock();
  px__sim_group *group = px__sim_group_new(job->size);
  *note = (group_key){getpid(), group ? px__sim_group_id(group) : 0};
  px__sim_unlock();
  if (!group) return fail(why, capacity, "out of host memory");
  return job->set(job->store, KEY, note, sizeof *note, why, capacity);
}

static int find_group(const px_engine_job *job, group_key *note, char *why, size_t capacity) {
  void *value;
  size_t size;
  if (job->rank == 0) return make_group(job, note, why, capacity);
  if (job->get(job->store, KEY, &value, &size, why, capacity)) return 1;
  bool whole = size == sizeof *note;
  if (whole) memcpy(note, value, sizeof *note);
  job->release(value);
  if (whole && note->process == getpid()) return 0;
  return fail(why, capacity,
              "rank 0 is in another process; engine sim requires ranks of one process");
}

static bool interrupted;  // guarded by px__sim.lock

static bool wait_for_all(px__sim_group *group, int64_t timeout_ms) {
  const struct timespec pause = {0, 1000000};
  int64_t end = px__sim_clock() / 1000000 + timeout_ms;
  while (!px__sim_group_full(group) && !interrupted && px__sim_clock() / 1000000 < end) {
    px__sim_unlock();
    nanosleep(&pause, NULL);
    px__sim_lock();
  }
  return px__sim_group_full(group);
}

static int join(void **out, const px_engine_job *job, char *why, size_t capacity) {
  group_key note;
  bool all = false;
  *out = NULL;
  if (!px__sim.core) return fail(why, capacity, "engine sim requires simulated devices");
  px__sim_lock();
  px_status status = px__sim_configure();
  px__sim_unlock();
  if (status != PX_OK) return fail(why, capacity, "a PHLOX_SIM_* variable has an invalid value");
  if (find_group(job, &note, why, capacity)) return 1;
  px__sim_lock();
  px__sim_group *group = px__sim_group_find(note.group);
  px__sim_member *member = group ? px__sim_member_take(group, job->rank) : NULL;
  if (member) all = wait_for_all(group, job->timeout_ms);
  if (member && !all) px__sim_leave(member);
  px__sim_unlock();
  if (!member) return fail(why, capacity, "its rank is already in use, or the group was closed");
  if (!all) return fail(why, capacity, "timed out waiting for all ranks to join");
  *out = member;
  return 0;
}

static void leave(void *self) {
  px__sim_lock();
  px__sim_leave(self);
  px__sim_unlock();
}

static void fail_from(void *self, uint64_t number, const char *why) {
  px__sim_member *member = self;
  px__sim_lock();
  if (number)
    px__sim_depart(member, number - 1, why);
  else if (!px__sim_group_failed(member->group))
    px__sim_fail_group(member->group, 0, "rank %d: %.900s", member->rank, why);
  px__sim_unlock();
}

static void abort_all(void *self) { fail_from(self, 0, "the group was aborted"); }

// ---- calls on host memory

static px__sim_participant participant_of(px__sim_member *member, const px_engine_call *call) {
  int size = px__sim_group_size(member->group);
  return (px__sim_participant){.member = member,
                               .call = call,
                               .peer = -1,
                               .in_bytes = px__sim_side(call, size, member->rank, false),
                               .out_bytes = px__sim_side(call, size, member->rank, true),
                               .deadline = px__sim_clock() + call->timeout_ms * 1000000};
}

static int wait_for_call(px__sim_participant *participant, char *why, size_t capacity) {
  px__sim_lock();
  px__sim_participant_wait(participant);
  if (participant->failed) px__sim_reason(participant, why, capacity);
  px__sim_unlock();
  return participant->failed;
}

static int run(void *self, const px_engine_call *call, char *why, size_t capacity) {
  px__sim_participant participant = participant_of(self, call);
  return wait_for_call(&participant, why, capacity);
}

static int start(void **pending, void *self, const px_engine_call *call, char *why,
                 size_t capacity) {
  px__sim_participant *participant = malloc(sizeof *participant);
  *pending = participant;
  if (!participant) return fail(why, capacity, "out of host memory");
  *participant = participant_of(self, call);
  px__sim_lock();
  px__sim_arrive(participant);
  px__sim_unlock();
  return 0;
}

static int finish(void *pending, int *peer, int64_t timeout_ms, char *why, size_t capacity) {
  px__sim_participant *participant = pending;
  int bad = 0;
  participant->deadline = px__sim_clock() + timeout_ms * 1000000;
  if (timeout_ms < 0)
    px__sim_lock(), px__sim_withdraw(participant), px__sim_unlock();
  else
    bad = wait_for_call(participant, why, capacity);
  *peer = participant->call->op == PX_RECV ? participant->peer : -1;
  free(participant);
  return bad;
}

// ---- calls on device memory

static bool touches(const px__sim_task *task, uintptr_t low, uintptr_t high) {
  const px__sim_participant *participant = task->participant;
  uintptr_t in = (uintptr_t)participant->call->in, out = (uintptr_t)participant->call->out;
  return (participant->in_bytes && in < high && in + participant->in_bytes > low) ||
         (participant->out_bytes && out < high && out + participant->out_bytes > low);
}

static int post(void *self, const px_engine_call *call, void *stream, px_engine_ended ended,
                void *argument, char *why, size_t capacity) {
  px__sim_stream *s = stream;
  px__sim_lock();
  bool captured = s->capture != NULL;
  px__sim_unlock();
  if (captured) return fail(why, capacity, "a collective cannot be captured");
  px__sim_task *task = px__sim_task_new(PX__SIM_TASK_COLLECTIVE, sizeof(px__sim_participant));
  if (!task) return fail(why, capacity, "out of host memory");
  task->participant = (px__sim_participant *)task->payload;
  *task->participant = participant_of(self, call);
  task->participant->stream = s, task->participant->ended = ended,
  task->participant->argument = argument;
  task->touches = touches;
  if (px__sim_issue(s, task, NULL) == PX_OK) return 0;
  return fail(why, capacity, "cannot start the thread of its stream");
}

static void begin(int ranks) {
  px__sim_lock();
  (void)px__sim_configure();  // opening the first device reports errors
  interrupted = ranks < 0;
  if (interrupted) px__sim_fail_all("the simulated cluster was interrupted");
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
