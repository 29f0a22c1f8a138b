// SPDX-License-Identifier: Apache-2.0
// What the benchmark programs share: a clock, and the least time of many repeats.
//
// On a busy machine the least time is the one that says what the code costs; a mean says who else
// was running.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline double bench_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// The seconds of one call of fn, as the least of `repeats` rounds of `calls` calls, each of which
// ends with a call of `finish` (may be NULL), which waits for what they queued.
static inline double bench_least(void (*fn)(void *context), void (*finish)(void *context),
                                 void *context, int calls, int repeats) {
  double least = 1e30;
  fn(context);
  if (finish) finish(context);
  for (int r = 0; r < repeats; r++) {
    double start = bench_seconds();
    for (int i = 0; i < calls; i++) fn(context);
    if (finish) finish(context);
    double took = (bench_seconds() - start) / calls;
    if (took < least) least = took;
  }
  return least;
}
