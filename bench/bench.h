// SPDX-License-Identifier: Apache-2.0
// Shared by the benchmark programs: a clock, and the minimum time over many repeats.
//
// On a busy machine the minimum measures the code; a mean also measures other processes.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline double bench_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Returns the seconds of one call of fn: the minimum over `repeats` rounds of `calls` calls. Each
// round ends with a call of `finish` (may be NULL), which waits for the queued work.
static inline double bench_min_seconds(void (*fn)(void *context), void (*finish)(void *context),
                                       void *context, int calls, int repeats) {
  double minimum = 1e30;
  fn(context);
  if (finish) finish(context);
  for (int r = 0; r < repeats; r++) {
    double start = bench_seconds();
    for (int i = 0; i < calls; i++) fn(context);
    if (finish) finish(context);
    double took = (bench_seconds() - start) / calls;
    if (took < minimum) minimum = took;
  }
  return minimum;
}
