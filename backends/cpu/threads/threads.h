// SPDX-License-Identifier: Apache-2.0
// Thread pool of the CPU kernels.
#pragma once
#include "cpu/threads/ceil_div.h"
#include "phlox/backend.h"

#include <string.h>

// Calls fn(context, begin, end) on pieces of [0, n), on the calling thread and on pool threads.
// Returns when all pieces are done or the program has interrupted the call.
//
// Results must not depend on the piece boundaries. `grain` is the minimum chunk per thread until
// the op's cost has been measured; from then on the measured cost determines the thread count.
// A grain of 1 uses all threads. Runs on the calling thread alone if the range is too small, if
// the pool is busy with another thread's job, or inside fn.
void px__cpu_parallel(int64_t n, int64_t grain,
                      void (*fn)(void *context, int64_t begin, int64_t end), void *context);
// px__cpu_parallel for an `fn` shared by several ops. `op` identifies the op, such as the address
// of its inner function; costs are measured per `op`.
void px__cpu_parallel_of(const void *op, int64_t n, int64_t grain,
                         void (*fn)(void *context, int64_t begin, int64_t end), void *context);
// px__cpu_parallel in two steps, for callers that split the work by thread count. px__cpu_plan_of
// takes the work in grains. px__cpu_run splits n into ranges, each a multiple of 1/8 grain.
typedef struct px__cpu_plan {
  struct px__job_cost *kind;  // NULL: the cost is not measured
  double grains;
  int count;  // threads
} px__cpu_plan;
px__cpu_plan px__cpu_plan_of(const void *op, double grains);
void px__cpu_run(const px__cpu_plan *p, int64_t n, int64_t grain,
                 void (*fn)(void *context, int64_t begin, int64_t end), void *context);
// True if the program has interrupted the call: its result is discarded. Long kernels poll this at
// safe points. Values left behind must not be used as indices.
bool px__cpu_stopped(void);
// A long loop over [0, n) in steps. Between steps it polls for an interrupt and ends early.
//   for (px__steps s = {.n = n}; px__step(&s);)
//     for (int64_t i = s.begin; i < s.end; i++) ...
enum { PX__STEP = 1 << 16 };
typedef struct px__steps {
  int64_t n, begin, end;  // total, and the current step's range
} px__steps;
static inline bool px__step(px__steps *s) {
  s->begin = s->end;
  int64_t rest = s->n - s->begin;
  if (__builtin_expect(rest > PX__STEP, 0)) {
    if (px__cpu_stopped()) return false;
    rest = PX__STEP;
  }
  s->end += rest;
  return rest > 0;
}
// True if the loop ran to its end.
static inline bool px__steps_done(const px__steps *s) { return s->begin == s->n; }
// Interrupt poll for loops over blocks of n elements. True: end this loop and its enclosing loops.
// `work` starts as 0.
static inline bool px__work_stopped(int64_t *work, int64_t n) {
  if ((*work += n) < PX__STEP) return false;
  *work = px__cpu_stopped() ? PX__STEP : 0;
  return *work > 0;
}
// Clears memory. Fresh pages take long, so it polls for interrupts. False: interrupted; the caller
// should not touch the uncleared rest.
static inline bool px__cpu_clear(void *at, size_t bytes) {
  px__steps s = {.n = (int64_t)bytes};
  while (px__step(&s)) memset((char *)at + s.begin, 0, (size_t)(s.end - s.begin));
  return px__steps_done(&s);
}
// Number of threads, the caller included: px_num_threads, limited by the pool's maximum.
int px__cpu_thread_count(void);
