// SPDX-License-Identifier: Apache-2.0
// Streams of the simulated devices: task queues and, in mode `threads`, one thread each.
//
// A stream's thread starts with its first task. When the stream is released, the thread ends at
// once if idle, else after its last task (rule C8: releasing does not wait). At process exit,
// threads of unreleased streams may be waiting or executing a task; nothing used by them is torn
// down.
#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- waiting

static int target_of(const px__sim_waiter *waiter) {
  return waiter->mark     ? waiter->mark->device
         : waiter->stream ? waiter->stream->device
                          : waiter->device;
}

static int64_t completion_time(const px__sim_waiter *waiter) {
  if (waiter->mark) return waiter->mark->time;
  int64_t latest = 0;
  for (const px__sim_stream *s = px__sim.streams; s; s = s->next)
    if ((s == waiter->stream || s->device == waiter->device) && s->now > latest) latest = s->now;
  return latest;
}

// Sleeps until the waiter is satisfied. If `interruptible`, calls the core's interrupt check at
// first and every 50 ms, without the lock.
static px_status sleep_until(px__sim_waiter *waiter, bool interruptible) {
  px_status status = PX_OK;
  while (!waiter->satisfied && status == PX_OK) {
    if (!interruptible) {
      pthread_cond_wait(&waiter->wake, &px__sim.lock);
      continue;
    }
    px__sim_unlock();
    status = px__sim.core->interrupt_poll();
    px__sim_lock();
    if (waiter->satisfied || status != PX_OK) break;
    int64_t until = px__sim_clock() + 50 * 1000 * 1000;
    struct timespec time = {until / 1000000000, until % 1000000000};
    (void)pthread_cond_timedwait(&waiter->wake, &px__sim.lock, &time);
  }
  return status;
}

static void leave(const px__sim_waiter *waiter) {
  px__sim_waiter **at = &px__sim.waiters;
  while (*at && *at != waiter) at = &(*at)->next;
  if (*at) *at = waiter->next;
}

// The thread finishing a task decides which waiters are satisfied. A host thread therefore wakes
// exactly once, and mode `schedule` runs nothing beyond the awaited task.
static px_status await(px__sim_waiter *waiter, bool interruptible) {
  px_status status = PX_OK;
  if (!waiter->sequence) waiter->sequence = px__sim.sequence;
  waiter->satisfied = px__sim_satisfied(waiter);
  if (!waiter->satisfied) {
    px__sim_condition(&waiter->wake);
    waiter->next = px__sim.waiters;
    px__sim.waiters = waiter;
    px__sim_schedule_wake();
    status = sleep_until(waiter, interruptible);
    if (!waiter->satisfied) leave(waiter);
    pthread_cond_destroy(&waiter->wake);
  }
  if (status == PX_OK) px__sim_schedule_waited(target_of(waiter), completion_time(waiter));
  return status;
}

void px__sim_await(px__sim_waiter *waiter) { (void)await(waiter, false); }

px_status px__sim_await_interruptible(px__sim_waiter *waiter) {
  const px_core *core = px__sim.core;  // older cores have no interrupt checks
  return await(waiter, core->interrupt_wanted && core->interrupt_wanted());
}

// ---- issuing

static void *stream_main(void *argument);

// Limits how far the host runs ahead of a stream, in tasks, as drivers do. At the limit it waits
// until half of them are done. Otherwise unawaited work would accumulate without bound.
enum { AHEAD = 1024 };
static void limit_run_ahead(const px__sim_stream *stream) {
  if (stream->tasks < AHEAD) return;
  const px__sim_task *middle = stream->head;
  for (int i = 1; i < AHEAD / 2; i++) middle = middle->next;
  px__sim_waiter waiter = {.stream = stream, .device = -1, .sequence = middle->sequence};
  px__sim_await(&waiter);
}

px_status px__sim_start(px__sim_stream *stream) {
  if (!stream->started)
    stream->started = px__sim.schedule ? px__sim_schedule_start()
                                       : px__sim_thread(&stream->thread, stream_main, stream);
  if (stream->started) return PX_OK;
  PX__SIM_FAIL(PX_NOMEM, 0, "cannot start the thread of a simulated stream");
}

// Lock held.
static void append(px__sim_stream *stream, px__sim_task *task, uint64_t *sequence) {
  limit_run_ahead(stream);
  task->sequence = ++px__sim.sequence;
  if (task->kind == PX__SIM_TASK_RECORD && task->mark->shared)
    task->mark->number = px__sim_shared_record(task->mark->shared);
  if (sequence) *sequence = task->sequence;
  task->issued = px__sim_schedule_issue(stream->device, task->host);
  task->next = NULL;
  if (stream->tail)
    stream->tail->next = task;
  else
    stream->head = task;
  stream->tail = task;
  stream->tasks++;
  if (px__sim.schedule)
    px__sim_schedule_wake();
  else
    pthread_cond_signal(&stream->work);
}

px_status px__sim_issue(px__sim_stream *stream, px__sim_task *task, uint64_t *sequence) {
  if (!task) PX__SIM_FAIL(PX_NOMEM, 0, "no host memory for a task of a simulated stream");
  px__sim_lock();
  px_status status = stream->capture ? PX_OK : px__sim_start(stream);
  if (status != PX_OK)
    px__sim_task_free(task);
  else if (stream->capture)
    px__sim_capture_task(stream, task);
  else
    append(stream, task, sequence);
  px__sim_unlock();
  return status;
}

// Fails while the stream is capturing, when its work can be neither queried nor awaited. Lock held.
static px_status check_idle(const px__sim_stream *stream) {
  return stream->capture ? px__sim_fail(PX__SIM_CAPTURING) : PX_OK;
}

// ---- stream threads

static void delay(px__sim_stream *s) {
  if (!px__sim.delay) return;
  uint64_t us = px__sim_random(&s->random) % ((uint64_t)px__sim.delay + 1);
  struct timespec time = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
  if (us) nanosleep(&time, NULL);
}

static void run_head(px__sim_stream *s) {
  px__sim_task *task = s->head;
  px__sim_unlock();
  delay(s);
  if (task->run) task->run(s, task);
  if (task->kind == PX__SIM_TASK_CALL) task->call(task->argument);
  px__sim_lock();
  if (task->kind == PX__SIM_TASK_COLLECTIVE) {
    px__sim_participant_wait(task->participant);
    px__sim_participant_finish(task->participant);
  }
  if (task->kind == PX__SIM_TASK_WAIT)
    while (!task->mark->done) pthread_cond_wait(&task->mark->reached, &px__sim.lock);
  px__sim_finish(s);
}

static void *stream_main(void *argument) {
  px__sim_stream *s = argument;
  px__sim_lock();
  for (;;) {
    while (!s->head && !s->closing) pthread_cond_wait(&s->work, &px__sim.lock);
    if (!s->head) break;
    run_head(s);
  }
  if (s->orphan) px__sim_stream_free(s);
  px__sim_unlock();
  return NULL;
}

// ---- functions of the backend table

px_status px__sim_stream_new(int device, int priority, void **out) {
  *out = NULL;
  PX__SIM_TRY(px__sim_check(device));
  px__sim_stream *s = calloc(1, sizeof *s);
  if (!s) PX__SIM_FAIL(PX_NOMEM, 0, "no host memory for a simulated stream");
  px__sim_condition(&s->work);
  s->device = device, s->priority = priority;
  px__sim_lock();
  s->number = px__sim.streams_made++;
  s->random = px__sim.seed * 1000003u + (uint64_t)s->number;
  s->next = px__sim.streams;
  px__sim.streams = s;
  px__sim_unlock();
  *out = s;
  return PX_OK;
}

void px__sim_stream_release(int device, void *stream) {
  px__sim_stream *s = stream;
  if (!s) return;
  px__sim_lock();
  s->closing = true;
  s->orphan = s->head != NULL;
  bool pending = s->orphan, threaded = s->started && !px__sim.schedule;
  if (threaded && pending) pthread_detach(s->thread);
  pthread_cond_signal(&s->work);
  if (!threaded && !pending) px__sim_stream_free(s);
  px__sim_unlock();
  if (!threaded || pending) return;
  pthread_join(s->thread, NULL);
  px__sim_lock();
  px__sim_stream_free(s);
  px__sim_unlock();
}

void px__sim_priority_range(int *least, int *greatest) { *least = 0, *greatest = -3; }

px_status px__sim_stream_adopt(int device, void *stream, int *priority) {
  px__sim_lock();
  const px__sim_stream *s = px__sim.streams;
  while (s && (s != stream || s->device != device)) s = s->next;
  *priority = s ? s->priority : 0;
  px__sim_unlock();
  return s ? PX_OK : px__sim_fail(PX__SIM_HANDLE);
}

px_status px__sim_stream_query(void *stream, bool *out) {
  px__sim_stream *s = stream;
  PX__SIM_TRY(px__sim_check(s->device));
  px__sim_lock();
  px_status status = check_idle(s);
  if (s->head) px__sim_schedule_step(s->device);
  *out = !s->head;
  px__sim_unlock();
  return status;
}

px_status px__sim_stream_synchronize(void *stream) {
  px__sim_stream *s = stream;
  px__sim_waiter waiter = {.stream = s, .device = -1};
  px__sim_lock();
  px_status status = check_idle(s);
  if (status == PX_OK) status = px__sim_await_interruptible(&waiter);
  px__sim_unlock();
  return status ? status : px__sim_check(s->device);
}

px_status px__sim_synchronize(int device) {
  px__sim_waiter waiter = {.device = device};
  px__sim_lock();
  px_status status = px__sim_await_interruptible(&waiter);
  px__sim_unlock();
  return status ? status : px__sim_check(device);
}

px_status px__sim_host_call(void *stream, void (*fn)(void *), void *argument) {
  px__sim_stream *s = stream;
  PX__SIM_TRY(px__sim_check(s->device));
  px__sim_task *task = px__sim_task_new(PX__SIM_TASK_CALL, 0);
  if (task) task->call = fn, task->argument = argument;
  return px__sim_issue(s, task, NULL);
}
