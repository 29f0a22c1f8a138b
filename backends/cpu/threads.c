// SPDX-License-Identifier: Apache-2.0
// The pool: threads that sleep on a condition, one job at a time, pieces taken from a counter.
//
// Who wants the pool takes `busy`; who does not get it works alone. A worker joins a job under the
// lock and leaves it under the lock, so the owner knows when nobody looks at its job any more. The
// pool is made at the first large job; a forked child starts without one. Workers never end.
#include "cpu/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { MOST_THREADS = 64 };

typedef struct job {
  void (*fn)(void *context, int64_t begin, int64_t end);
  void *context;
  int64_t n, chunk;
  int64_t next;  // atomic
} job;

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, left = PTHREAD_COND_INITIALIZER;
static job *current;   // under lock
static int inside;     // workers in `current`; under lock
static int started;    // under busy
static int threads;    // atomic; 0 until asked
static uint64_t turn;  // under lock: counts jobs

static void work(job *j) {
  for (;;) {
    int64_t begin = __atomic_fetch_add(&j->next, j->chunk, __ATOMIC_RELAXED);
    if (begin >= j->n) return;
    int64_t end = begin + j->chunk;
    j->fn(j->context, begin, end < j->n ? end : j->n);
  }
}

static void *worker(void *unused) {
  (void)unused;
  uint64_t seen = 0;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (!current || turn == seen) pthread_cond_wait(&wake, &lock);
    job *j = current;
    seen = turn;
    inside++;
    pthread_mutex_unlock(&lock);
    work(j);
    pthread_mutex_lock(&lock);
    if (--inside == 0) pthread_cond_signal(&left);
  }
  return NULL;
}

// In a forked child no worker lives, and another thread may have held the locks.
static void start_afresh(void) {
  busy = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  wake = left = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
  current = NULL;
  inside = started = 0;
}

static int count_cores(void) {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const char *wanted = getenv("PHLOX_THREADS");
  int asked = wanted ? atoi(wanted) : 0;
  if (asked > 0) n = asked;
  return n > MOST_THREADS ? MOST_THREADS : n;
}

int px__cpu_thread_count(void) {
  int n = __atomic_load_n(&threads, __ATOMIC_RELAXED);
  if (n) return n;
  n = count_cores();
  int none = 0;
  if (__atomic_compare_exchange_n(&threads, &none, n, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    pthread_atfork(NULL, NULL, start_afresh);
  return none ? none : n;
}

// Holding `busy`. Threads that cannot be started are done without.
static void start_workers(int wanted) {
  pthread_attr_t attributes;
  if (started >= wanted || pthread_attr_init(&attributes)) return;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  while (started < wanted) {
    pthread_t thread;
    if (pthread_create(&thread, &attributes, worker, NULL)) break;
    started++;
  }
  pthread_attr_destroy(&attributes);
}

static void run_together(job *j) {
  pthread_mutex_lock(&lock);
  current = j;
  turn++;
  pthread_cond_broadcast(&wake);
  pthread_mutex_unlock(&lock);
  work(j);
  pthread_mutex_lock(&lock);
  current = NULL;
  while (inside > 0) pthread_cond_wait(&left, &lock);
  pthread_mutex_unlock(&lock);
}

void px__cpu_parallel(int64_t n, int64_t grain,
                      void (*fn)(void *context, int64_t begin, int64_t end), void *context) {
  if (n <= 0) return;
  int count = n > grain ? px__cpu_thread_count() : 1;
  if (count == 1 || pthread_mutex_trylock(&busy)) {
    fn(context, 0, n);
    return;
  }
  // Four pieces a thread, so that a late one costs little.
  int64_t pieces = 4 * (int64_t)count, chunk = (n + pieces - 1) / pieces;
  chunk = (chunk + grain - 1) / grain * grain;
  job j = {fn, context, n, chunk, 0};
  start_workers(count - 1);
  run_together(&j);
  pthread_mutex_unlock(&busy);
}
