// SPDX-License-Identifier: Apache-2.0
// Runs pairs of actions on one set of shared objects, each pair on two threads. Every action may
// fail, since the other thread changes what it uses; none may crash, and the thread and address
// sanitizers report nothing.
#pragma once
// Two threads write and read elements of one tensor: the values are the program's affair.
#define CONTENTS_RACE \
  "race:backends/cpu/\nrace:gen/kernels_cpu\nrace:px__copy_interruptible\n" \
  "race:px_scalar_load\nrace:copy_host\n"

#include <pthread.h>
#include <time.h>

#include "test.h"

typedef struct action {
  const char *name;
  px_status (*run)(void *shared);
} action;

typedef struct side {
  pthread_t thread;
  const action *action;
  void *shared;
  double deadline;
} side;

static inline double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *run_side(void *argument) {
  side *s = argument;
  do {
    if (s->action->run(s->shared) != PX_OK) px_error_clear();
  } while (seconds_now() < s->deadline);
  return NULL;
}

// Seconds for each pair: PAIR_SECONDS, or a hundredth.
static inline double seconds_of_pair(void) {
  const char *text = getenv("PAIR_SECONDS");
  return text ? atof(text) : 0.01;
}

static inline void run_pair(const action *a, const action *b, void *shared) {
  double start = seconds_now(), deadline = start + seconds_of_pair();
  side sides[2] = {{.action = a, .shared = shared, .deadline = deadline},
                   {.action = b, .shared = shared, .deadline = deadline}};
  for (int i = 0; i < 2; i++)
    CHECK(pthread_create(&sides[i].thread, NULL, run_side, &sides[i]) == 0);
  for (int i = 0; i < 2; i++) pthread_join(sides[i].thread, NULL);
  CHECK(seconds_now() < deadline + 5);  // no wait of one thread for the other
  tally("pairs", 1);
}
