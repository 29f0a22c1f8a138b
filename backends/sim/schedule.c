// SPDX-License-Identifier: Apache-2.0
// Mode `schedule`: one thread runs the tasks of all streams, one at a time, in a random order
// determined by the seed. Time is virtual and follows the cost model.
//
// Tasks run only while a host thread waits or polls for them, so one host thread and one seed
// always give the same order. Two timeouts prevent deadlock. If the host has issued nothing and
// waited for nothing for PATIENCE, tasks run anyway. If a host function runs longer than GRACE, it
// continues on its own thread and other streams proceed. A starved stream runs only when no other
// can.
#include "sim/cost_model.h"
#include "sim/rendezvous.h"

#include <stdlib.h>
#include <time.h>

#define PATIENCE 200000000ll  // nanoseconds of real time
#define GRACE 100000000ll
enum { CALL_COST = 5000 };  // virtual nanoseconds

static struct {
  pthread_cond_t stepped;
  int steps;           // tasks requested by polling host threads
  int64_t host;        // the host's virtual clock
  int64_t last_issue;  // real time of the last issue
  uint64_t random;
} worker;

static struct timespec timespec_of(int64_t time) {
  return (struct timespec){time / 1000000000, time % 1000000000};
}

static bool ready(const px__sim_stream *s) {
  if (px__sim_in_cluster(s->device)) return false;  // rank_schedule.c
  const px__sim_task *t = s->head;
  if (!t || t->detached) return false;
  if (t->kind == PX__SIM_TASK_COLLECTIVE) return !t->participant->arrived || t->participant->done;
  return t->kind != PX__SIM_TASK_WAIT || t->mark->done;
}

static int count_ready(bool with_starved) {
  int count = 0;
  for (const px__sim_stream *s = px__sim.streams; s; s = s->next)
    count += ready(s) && (with_starved || s->number != px__sim.starve);
  return count;
}

// The list is in creation order, so the choice depends on the seed alone.
static px__sim_stream *choose(void) {
  bool with_starved = count_ready(false) == 0;
  int count = count_ready(with_starved);
  if (!count) return NULL;
  int left = (int)(px__sim_random(&worker.random) % (uint64_t)count);
  for (px__sim_stream *s = px__sim.streams; s; s = s->next)
    if (ready(s) && (with_starved || s->number != px__sim.starve) && left-- == 0) return s;
  return NULL;
}

static bool may_run(void) {
  return px__sim.waiters || worker.steps || px__sim_clock() >= worker.last_issue + PATIENCE;
}

// Removes the head; frees a released stream after its last task.
static void finish(px__sim_stream *s) {
  px__sim_finish(s);
  if (s->orphan && !s->head) px__sim_stream_free(s);
}

// Runs a host function on a detached thread; the worker waits for it up to GRACE.
static void *detached_main(void *argument) {
  px__sim_stream *s = argument;
  px__sim_lock();
  px__sim_task *task = s->head;
  px__sim_unlock();
  task->call(task->argument);
  px__sim_lock();
  finish(s);
  pthread_cond_broadcast(&px__sim.work);
  px__sim_unlock();
  return NULL;
}

static bool is_running(uint64_t sequence) {
  for (const px__sim_stream *s = px__sim.streams; s; s = s->next)
    if (s->head && s->head->sequence == sequence) return true;
  return false;
}

static void run_call(px__sim_stream *s) {
  px__sim_task *task = s->head;
  uint64_t sequence = task->sequence;
  pthread_t thread;
  task->detached = true;
  if (!px__sim_thread(&thread, detached_main, s)) {
    px__sim_unlock();
    task->call(task->argument);
    px__sim_lock();
    finish(s);
    return;
  }
  pthread_detach(thread);
  struct timespec until = timespec_of(px__sim_clock() + GRACE);
  while (is_running(sequence))
    if (pthread_cond_timedwait(&px__sim.work, &px__sim.lock, &until)) break;
}

// A rank's part of a collective runs in two steps: arrival, then completion after all have arrived.
static void run_participant(px__sim_stream *s, px__sim_participant *participant) {
  if (!participant->arrived) return px__sim_arrive(participant);
  px__sim_participant_finish(participant);
  finish(s);
}

static void run(px__sim_stream *s) {
  px__sim_task *task = s->head;
  bool ends = task->kind == PX__SIM_TASK_RECORD && task->mark->ends;
  if (!ends && s->now < task->issued) s->now = task->issued;
  if (task->kind == PX__SIM_TASK_COLLECTIVE) return run_participant(s, task->participant);
  s->now += task->cost;
  if (task->kind == PX__SIM_TASK_CALL) {
    s->now += CALL_COST;
    run_call(s);
    return;
  }
  if (task->kind == PX__SIM_TASK_WAIT) {
    int64_t seen = task->mark->time + px__sim_wait_cost(s->device, task->mark->device);
    if (s->now < seen) s->now = seen;
  }
  px__sim_unlock();
  if (task->run) task->run(s, task);
  px__sim_lock();
  finish(s);
}

// Fails overdue collectives and returns true if any ended, so that their streams can continue.
// Otherwise *out is the next deadline, or 0.
static bool expire_deadlines(int64_t *out) {
  int64_t next = 0, now = px__sim_clock();
  bool ended = false;
  for (px__sim_stream *s = px__sim.streams; s; s = s->next) {
    px__sim_participant *participant =
        s->head && s->head->kind == PX__SIM_TASK_COLLECTIVE ? s->head->participant : NULL;
    if (!participant || !participant->arrived || participant->done) continue;
    if (participant->deadline <= now) px__sim_time_out(participant);
    ended |= participant->done;
    if (!participant->done && (!next || participant->deadline < next)) next = participant->deadline;
  }
  *out = next > now ? next : next ? now + GRACE : 0;
  return ended;
}

static void wait_for_work(void) {
  int64_t next, patience = px__sim_cluster_patience();
  if (expire_deadlines(&next)) return;
  if (count_ready(true) && !may_run()) patience = worker.last_issue + PATIENCE;
  if (!next || (patience && patience < next)) next = patience;
  struct timespec until = timespec_of(next);
  if (next)
    pthread_cond_timedwait(&px__sim.work, &px__sim.lock, &until);
  else
    pthread_cond_wait(&px__sim.work, &px__sim.lock);
}

static void end_steps(int left) {
  worker.steps = left;
  if (!left) pthread_cond_broadcast(&worker.stepped);
}

static void end_poll(int device) {
  if (!px__sim_cluster_poll(device, -1)) pthread_cond_broadcast(&worker.stepped);
}

static void *worker_main(void *unused) {
  px__sim_lock();
  for (;;) {
    px__sim_stream *s = may_run() ? choose() : NULL;
    if (!s && worker.steps) end_steps(0);
    if (s) {
      run(s);
      if (worker.steps) end_steps(worker.steps - 1);
    } else if ((s = px__sim_cluster_next())) {
      int device = s->device;
      run(s);
      end_poll(device);
    } else if (!px__sim_cluster_settle()) {
      pthread_cond_broadcast(&worker.stepped);
      wait_for_work();
    }
  }
  return unused;
}

// ---- interface to the streams

bool px__sim_schedule_start(void) {
  if (px__sim.working) return true;
  px__sim_condition(&px__sim.work);
  px__sim_condition(&worker.stepped);
  worker.random = px__sim.seed;
  pthread_t thread;
  px__sim.working = px__sim_thread(&thread, worker_main, NULL);
  if (px__sim.working) pthread_detach(thread);
  return px__sim.working;
}

void px__sim_schedule_step(int device) {
  if (!px__sim.working) return;
  if (px__sim_in_cluster(device)) {
    px__sim_cluster_poll(device, 1);
    pthread_cond_broadcast(&px__sim.work);
    while (px__sim_cluster_poll(device, 0)) pthread_cond_wait(&worker.stepped, &px__sim.lock);
    return;
  }
  worker.steps++;
  pthread_cond_broadcast(&px__sim.work);
  while (worker.steps) pthread_cond_wait(&worker.stepped, &px__sim.lock);
}

// A task may start at the host's time before the cost of issuing it.
int64_t px__sim_schedule_issue(int device, int64_t cost) {
  if (!px__sim.schedule) return 0;
  if (px__sim_in_cluster(device)) return px__sim_cluster_issue(device, cost);
  worker.last_issue = px__sim_clock();
  worker.host += cost;
  return worker.host - cost;
}

void px__sim_schedule_waited(int device, int64_t time) {
  if (device >= 0 && px__sim_in_cluster(device)) return px__sim_cluster_waited(device, time);
  if (worker.host < time) worker.host = time;
}

int64_t px__sim_schedule_clock(int device, const px__sim_stream *s, const px__sim_event *e) {
  if (e) return e->mark ? e->mark->time : 0;
  if (s) return s->now;
  return device >= 0 && px__sim_in_cluster(device) ? px__sim_cluster_issue(device, 0) : worker.host;
}
