// SPDX-License-Identifier: Apache-2.0
// Tasks: creation, completion, waking of waiters. Threads and the clock of both modes.
#include "sim/cost_model.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int64_t px__sim_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

void px__sim_condition(pthread_cond_t *condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

// Starts a thread with all signals blocked except faults of its own; the rest are for the program's
// threads.
bool px__sim_thread(pthread_t *out, void *(*run)(void *), void *argument) {
  sigset_t all, before;
  sigfillset(&all);
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&all, own[i]);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(out, NULL, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return !failed;
}

// ---- marks and waiters

px__sim_mark *px__sim_mark_new(int refs) {
  px__sim_mark *mark = calloc(1, sizeof *mark);
  if (!mark) return NULL;
  mark->refs = refs;
  mark->device = -1;
  px__sim_condition(&mark->reached);
  return mark;
}

void px__sim_mark_release(px__sim_mark *mark) {
  if (!mark || --mark->refs) return;
  pthread_cond_destroy(&mark->reached);
  px__sim_shared_release(mark->shared);
  free(mark);
}

// True if the stream still has a task matching the waiter.
static bool stream_holds(const px__sim_stream *s, const px__sim_waiter *w) {
  if (!s->head || s->head->sequence > w->sequence) return false;
  if (s == w->stream || s->device == w->device) return true;
  for (const px__sim_task *t = s->head; t && t->sequence <= w->sequence; t = t->next)
    if (w->high > w->low && t->touches && t->touches(t, w->low, w->high)) return true;
  return false;
}

bool px__sim_satisfied(const px__sim_waiter *waiter) {
  if (waiter->mark) return waiter->mark->done;
  for (const px__sim_stream *s = px__sim.streams; s; s = s->next)
    if (stream_holds(s, waiter)) return false;
  return true;
}

static void wake_waiters(void) {
  for (px__sim_waiter **at = &px__sim.waiters; *at;) {
    px__sim_waiter *waiter = *at;
    if (!px__sim_satisfied(waiter)) {
      at = &waiter->next;
      continue;
    }
    *at = waiter->next;
    waiter->satisfied = true;
    pthread_cond_signal(&waiter->wake);
  }
}

void px__sim_reached(px__sim_mark *mark, int64_t time) {
  mark->time = time;
  mark->done = true;
  pthread_cond_broadcast(&mark->reached);
  wake_waiters();
}

// ---- tasks

px__sim_task *px__sim_task_new(px__sim_kind kind, size_t extra) {
  size_t bytes = (sizeof(px__sim_task) + extra + 15) & ~(size_t)15;
  px__sim_task *task = bytes > extra ? aligned_alloc(16, bytes) : NULL;
  if (!task) return NULL;
  memset(task, 0, sizeof *task);
  task->kind = kind;
  // Records and waits cost the host nothing, so the ones added by profiling do not change times.
  bool free_of_cost = kind == PX__SIM_TASK_RECORD || kind == PX__SIM_TASK_WAIT;
  task->host = free_of_cost ? 0 : px__sim_host_cost(NULL);
  return task;
}

void px__sim_task_free(px__sim_task *task) {
  px__sim_mark_release(task->mark);
  px__sim_graph_free(task->graph);
  free(task);
}

void px__sim_finish(px__sim_stream *stream) {
  px__sim_task *task = stream->head;
  stream->head = task->next;
  if (!stream->head) stream->tail = NULL;
  stream->tasks--;
  px__sim_mark *mark = task->kind == PX__SIM_TASK_RECORD ? task->mark : NULL;
  if (mark && mark->shared) px__sim_shared_done(mark->shared, mark->number);
  if (mark)
    px__sim_reached(mark, px__sim.schedule ? stream->now : px__sim_clock());
  else
    wake_waiters();
  px__sim_task_free(task);
}

// Unlinks and frees a stream without tasks. Lock held.
void px__sim_stream_free(px__sim_stream *stream) {
  px__sim_stream **at = &px__sim.streams;
  while (*at != stream) at = &(*at)->next;
  *at = stream->next;
  pthread_cond_destroy(&stream->work);
  free(stream);
}

// ---- captured tasks

void px__sim_capture_task(px__sim_stream *s, px__sim_task *task) {
  px__sim_graph *g = s->capture;
  task->branch = s->branch;
  if (task->kind == PX__SIM_TASK_RECORD) {
    task->mark->captured = true, task->mark->graph = g;
    task->mark->step = g->steps++;
  }
  task->next = NULL;
  *(g->last ? &g->last->next : &g->first) = task;
  g->last = task;
}

void px__sim_graph_free(px__sim_graph *g) {
  if (!g || --g->refs) return;
  while (g->first) {
    px__sim_task *node = g->first;
    g->first = node->next;
    px__sim_task_free(node);
  }
  free(g->devices);
  free(g->branch_streams);
  free(g);
}
