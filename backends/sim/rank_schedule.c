// SPDX-License-Identifier: Apache-2.0
// Mode `schedule` for the devices of a simulated cluster. Each rank's device has its own task
// order, determined by the seed and by its host thread's actions, independent of the timing of
// other ranks' threads. Failures are therefore reproducible.
//
// A device's tasks run only while a host thread waits or polls for them. An unfinished collective
// stays among the candidates; if it is chosen, it blocks its device until it completes. When all
// devices are blocked and all hosts wait, blocked collectives are deferred until no other task of
// their device is runnable. The same happens when nothing was issued for PATIENCE, because a host
// may wait for something outside the simulator.
#include "sim/rendezvous.h"

#define PATIENCE 2000000000ll  // nanoseconds of real time

typedef struct device_schedule {
  bool in_cluster;
  uint64_t random;
  px__sim_stream *blocked;  // stream of the unfinished collective blocking the device
  int polls;                // tasks requested by polling hosts
  int64_t host;             // the host's virtual clock
} device_schedule;
static device_schedule schedules[PX__SIM_DEVICES];
static int cluster_size;  // number of ranks
static int64_t last_issue;

bool px__sim_in_cluster(int device) { return schedules[device].in_cluster; }

void px__sim_cluster(int ranks) {
  px__sim_lock();
  cluster_size = px__sim.schedule ? ranks : 0;
  last_issue = px__sim_clock();
  for (int d = 0; d < PX__SIM_DEVICES; d++)
    schedules[d] = (device_schedule){.in_cluster = d < cluster_size,
                                     .random = px__sim.seed * 1000003u + (uint64_t)d};
  px__sim_schedule_wake();
  px__sim_unlock();
}

int64_t px__sim_cluster_issue(int device, int64_t cost) {
  last_issue = px__sim_clock();
  schedules[device].host += cost;
  return schedules[device].host - cost;
}

void px__sim_cluster_waited(int device, int64_t time) {
  if (schedules[device].host < time) schedules[device].host = time;
}

// ---- choice of the next task

static bool waits_for(const px__sim_waiter *w, int device) {
  bool any = !w->mark && !w->stream && w->device < 0;  // waits for users of host memory
  return any || w->device == device || (w->stream && w->stream->device == device) ||
         (w->mark && w->mark->device == device);
}

static bool is_awaited(int device) {
  if (schedules[device].polls) return true;
  for (const px__sim_waiter *w = px__sim.waiters; w; w = w->next)
    if (waits_for(w, device)) return true;
  return false;
}

static px__sim_participant *participant_of(const px__sim_stream *s) {
  return s->head && s->head->kind == PX__SIM_TASK_COLLECTIVE ? s->head->participant : NULL;
}

// True if the stream's head can run and its deferral equals `deferred`.
static bool is_runnable(const px__sim_stream *s, int device, bool deferred) {
  const px__sim_task *task = s->head;
  const px__sim_participant *participant = participant_of(s);
  if (s->device != device || !task || task->detached) return false;
  if (task->kind == PX__SIM_TASK_WAIT && !task->mark->done) return false;
  return (participant && participant->deferred) == deferred;
}

static int count_runnable(int device, bool deferred, bool starved) {
  int count = 0;
  for (const px__sim_stream *s = px__sim.streams; s; s = s->next)
    count += is_runnable(s, device, deferred) && (s->number == px__sim.starve) == starved;
  return count;
}

static px__sim_stream *choose_on(int device, bool deferred) {
  bool starved = count_runnable(device, deferred, false) == 0;
  int count = count_runnable(device, deferred, starved);
  if (!count) return NULL;
  int left = (int)(px__sim_random(&schedules[device].random) % (uint64_t)count);
  px__sim_stream *s = px__sim.streams;
  while (!is_runnable(s, device, deferred) || (s->number == px__sim.starve) != starved || left--)
    s = s->next;
  return s;
}

// Chooses the stream to run next on a device; NULL if it is idle or blocked.
static px__sim_stream *next_on(int device) {
  px__sim_stream *s = schedules[device].blocked;
  if (!s) s = choose_on(device, false);
  if (!s) s = choose_on(device, true);
  px__sim_participant *participant = s ? participant_of(s) : NULL;
  bool blocks = participant && participant->arrived && !participant->done;
  if (participant) participant->deferred = false;
  schedules[device].blocked = blocks ? s : NULL;
  return blocks ? NULL : s;
}

px__sim_stream *px__sim_cluster_next(void) {
  bool all = cluster_size && px__sim_clock() >= last_issue + PATIENCE;
  for (int d = 0; d < cluster_size; d++) {
    px__sim_stream *s = all || is_awaited(d) ? next_on(d) : NULL;
    if (s) return s;
  }
  return NULL;
}

// ---- when nothing can run

// Unblocks a blocked device if it has another runnable task, and defers its collective.
static bool defer_blocked(int device) {
  px__sim_stream *blocked = schedules[device].blocked;
  if (!blocked) return false;
  participant_of(blocked)->deferred = true;
  bool other = count_runnable(device, false, false) + count_runnable(device, false, true) > 0;
  for (px__sim_stream *s = px__sim.streams; s && !other; s = s->next)
    if (is_runnable(s, device, true) && participant_of(s)->done) {
      participant_of(s)->deferred = false;
      other = true;
    }
  if (other) schedules[device].blocked = NULL;
  if (!other) participant_of(blocked)->deferred = false;
  return other;
}

bool px__sim_cluster_settle(void) {
  bool recent = px__sim_clock() < last_issue + PATIENCE, moved = false;
  for (int d = 0; d < cluster_size && recent; d++)
    if (!is_awaited(d)) return false;
  for (int d = 0; d < cluster_size; d++) moved |= defer_blocked(d);
  for (int d = 0; d < cluster_size && !moved; d++) schedules[d].polls = 0;
  return moved;
}

int64_t px__sim_cluster_patience(void) {
  int64_t end = last_issue + PATIENCE;
  return cluster_size && px__sim_clock() < end ? end : 0;
}

bool px__sim_cluster_poll(int device, int change) {
  schedules[device].polls += change;
  if (schedules[device].polls < 0) schedules[device].polls = 0;
  return schedules[device].polls > 0;
}
