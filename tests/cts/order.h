// SPDX-License-Identifier: Apache-2.0
// Shared by the conformance programs: gates, and random programs of streams and events with a model
// of their ordering guarantees.
//
// A gate is a host function that blocks its stream until it is opened. It makes "work is running" a
// fact instead of a guess about time. A random program queues work (host functions that record
// their time), records, waits and synchronisations. The model keeps vector clocks. Work ordered by
// the model must have run in that order; nothing else is required.
#pragma once
// Renames the main of the harness. The programs' main below adds --seeds.
#define main px_test_main
int px_test_main(int argc, char **argv);
#include "test.h"
#undef main

#include <pthread.h>
#include <semaphore.h>
#include <time.h>

// ---- gates

typedef struct gate {
  sem_t started, opened;
} gate;
static void gate_init(gate *g) {
  sem_init(&g->started, 0, 0);
  sem_init(&g->opened, 0, 0);
}
static void gate_run(void *g) {
  sem_post(&((gate *)g)->started);
  while (sem_wait(&((gate *)g)->opened)) continue;
}
static void gate_open(gate *g) { sem_post(&g->opened); }
static void gate_started(gate *g) {
  while (sem_wait(&g->started)) continue;
}
// Gives blocked work a chance to run if it is not blocked. The duration matters for wrong
// implementations only.
static void give_time(void) {
  struct timespec time = {0, 3000000};
  nanosleep(&time, NULL);
}
// Opens a gate from another thread a little later.
typedef struct later {
  gate *gate;
  int opened;
  pthread_t thread;
} later;
static void *later_main(void *argument) {
  later *l = argument;
  give_time();
  __atomic_store_n(&l->opened, 1, __ATOMIC_SEQ_CST);
  gate_open(l->gate);
  return NULL;
}
static void later_start(later *l, gate *g) {
  *l = (later){.gate = g};
  CHECK_EQ(pthread_create(&l->thread, NULL, later_main, l), 0);
}
// Joins the thread. Returns true if the gate was open before that.
static bool later_end(later *l) {
  int opened = __atomic_load_n(&l->opened, __ATOMIC_SEQ_CST);
  pthread_join(l->thread, NULL);
  return opened;
}
// A host function that sets an int atomically.
static void set_flag(void *flag) { __atomic_store_n((int *)flag, 1, __ATOMIC_SEQ_CST); }
static int get_flag(const int *flag) { return __atomic_load_n(flag, __ATOMIC_SEQ_CST); }

// ---- random programs

enum { ORDER_STREAMS = 5, ORDER_EVENTS = 4, ORDER_STEPS = 80 };

// The system under test. Streams and events are numbered; `device_of` maps them to devices.
typedef struct order_system {
  void (*work)(int stream, void (*fn)(void *), void *argument);
  void (*record)(int event, int stream);
  void (*wait)(int stream, int event);
  void (*sync_stream)(int stream);
  void (*sync_event)(int event);
  bool (*query_event)(int event);
  int (*stream_device)(int stream);
  int (*event_device)(int event);
} order_system;

typedef struct order_clock {
  int seen[ORDER_STREAMS];  // per stream, the work known to precede
} order_clock;
typedef struct order_item {
  int stream, rank;  // 1-based number of the work in its stream
  order_clock before;
  int begin, end;  // ticks, atomic
} order_item;
typedef struct order_run {
  const order_system *system;
  uint64_t random;
  int items;
  order_item item[ORDER_STEPS];
  order_clock host, stream[ORDER_STREAMS], event[ORDER_EVENTS];
} order_run;
static int order_ticks;

static uint64_t order_random(uint64_t *state, uint64_t n) {
  *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
  return (*state >> 11) % n;
}

static void order_join(order_clock *into, const order_clock *from) {
  for (int i = 0; i < ORDER_STREAMS; i++)
    if (into->seen[i] < from->seen[i]) into->seen[i] = from->seen[i];
}

static void order_stamp(void *argument) {
  order_item *item = argument;
  __atomic_store_n(&item->begin, __atomic_add_fetch(&order_ticks, 1, __ATOMIC_SEQ_CST),
                   __ATOMIC_SEQ_CST);
  __atomic_store_n(&item->end, __atomic_add_fetch(&order_ticks, 1, __ATOMIC_SEQ_CST),
                   __ATOMIC_SEQ_CST);
}

// Checks that all work known to the host as complete is complete.
static void order_check_host(order_run *run) {
  for (int i = 0; i < run->items; i++) {
    const order_item *item = &run->item[i];
    if (item->rank <= run->host.seen[item->stream])
      CHECK(__atomic_load_n(&item->end, __ATOMIC_SEQ_CST) != 0);
  }
}

static void order_work(order_run *run, int s) {
  order_item *item = &run->item[run->items++];
  order_join(&run->stream[s], &run->host);
  item->stream = s;
  item->before = run->stream[s];
  item->rank = ++run->stream[s].seen[s];
  run->system->work(s, order_stamp, item);
}

static void order_record(order_run *run, int e, int s) {
  if (run->system->event_device(e) != run->system->stream_device(s)) return;
  run->system->record(e, s);
  run->event[e] = run->stream[s];
}

static void order_join_host(order_run *run, const order_clock *clock) {
  order_join(&run->host, clock);
  order_check_host(run);
}

static void order_step(order_run *run) {
  const order_system *system = run->system;
  int kind = (int)order_random(&run->random, 16);
  int s = (int)order_random(&run->random, ORDER_STREAMS);
  int e = (int)order_random(&run->random, ORDER_EVENTS);
  if (kind < 7) order_work(run, s);
  if (kind >= 7 && kind < 10) order_record(run, e, s);
  if (kind >= 10 && kind < 13) {
    system->wait(s, e);
    order_join(&run->stream[s], &run->event[e]);
  }
  if (kind == 13 && system->query_event(e)) order_join_host(run, &run->event[e]);
  if (kind == 14) system->sync_event(e), order_join_host(run, &run->event[e]);
  if (kind == 15) system->sync_stream(s), order_join_host(run, &run->stream[s]);
}

// Runs and checks one random program. The ticks hold the execution order.
static void order_program(order_run *run, const order_system *system, uint64_t seed) {
  *run = (order_run){.system = system, .random = seed * 2654435761u + 88172645463325252u};
  order_ticks = 0;
  for (int i = 0; i < ORDER_STEPS; i++) order_step(run);
  for (int s = 0; s < ORDER_STREAMS; s++) {
    system->sync_stream(s);
    order_join_host(run, &run->stream[s]);
  }
  for (int j = 0; j < run->items; j++)
    for (int i = 0; i < run->items; i++)
      if (run->item[i].rank <= run->item[j].before.seen[run->item[i].stream])
        CHECK(run->item[i].end < run->item[j].begin);
}

// ---- seeds

// Runs `test(seed)` for seeds 1..count, each in a process with the environment of a seeded
// simulator. Returns the number of failures. Real devices ignore the variables.
static int over_seeds(int count, void (*test)(uint64_t seed)) {
  int failed = 0;
  for (int seed = 1; seed <= count; seed++) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      char text[24];
      snprintf(text, sizeof text, "%d", seed);
      setenv("PHLOX_SIM_SEED", text, 1);
      setenv("PHLOX_SIM_DELAY", seed % 3 == 0 ? "0" : seed % 3 == 1 ? "20" : "200", 1);
      setenv("PHLOX_SIM_MODE", seed % 4 == 0 ? "schedule" : "threads", 1);
      alarm(60);
      test((uint64_t)seed);
      exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77)) continue;
    fprintf(stderr, "seed %d failed\n", seed);
    failed++;
  }
  return failed;
}

// The programs' main: `--seeds N` runs the ordering tests for N seeds instead of all tests.
static int seeds_main(int argc, char **argv, void (*test)(uint64_t seed)) {
  if (argc != 3 || strcmp(argv[1], "--seeds")) return px_test_main(argc, argv);
  int count = atoi(argv[2]), failed = over_seeds(count, test);
  printf("%d of %d seeds passed\n", count - failed, count);
  return failed != 0 || count <= 0;
}
