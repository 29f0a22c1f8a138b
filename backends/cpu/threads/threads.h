// SPDX-License-Identifier: Apache-2.0
// A small pool of threads for the CPU kernels.
#pragma once
#include "cpu/threads/ceil_div.h"
#include "phlox/backend.h"

#include <string.h>

// Calls fn(context, begin, end) for pieces of [0, n) on this thread and those of the pool; returns
// when all are done, or the program has ended the call. The results must not depend on how long the
// pieces are. A grain is about as much as is worth a thread, until it was measured how long it
// takes: from then on as many threads work as that pays for. With grains of 1 all do that there
// are. Runs here alone where the range is not worth more, where the pool is at work for another
// thread, and inside of fn.
void px__cpu_parallel(int64_t n, int64_t grain,
                      void (*fn)(void *context, int64_t begin, int64_t end), void *context);
// The same where `fn` does several things, of which `op` stands for this one: the address of what
// it calls, say. They are measured each for itself.
void px__cpu_parallel_of(const void *op, int64_t n, int64_t grain,
                         void (*fn)(void *context, int64_t begin, int64_t end), void *context);
// The same in two steps, for who cuts the work to the number of threads: work of as many grains as
// is said, which is then run in n pieces, or ranges of n that are multiples of a part of a grain.
typedef struct px__cpu_plan {
  struct px__kind *kind;  // NULL: nothing is measured
  double grains;
  int count;  // of threads
} px__cpu_plan;
px__cpu_plan px__cpu_plan_of(const void *op, double grains);
void px__cpu_run(const px__cpu_plan *p, int64_t n, int64_t grain,
                 void (*fn)(void *context, int64_t begin, int64_t end), void *context);
// Whether the program has ended the call: its result will not be used. Kernels that take long ask
// where they can stop; what they leave behind must not become an index.
bool px__cpu_stopped(void);
// A long loop over [0, n), in steps: between two it is asked whether the program has ended the
// call, and then there are no more.
//   for (px__steps s = {.n = n}; px__step(&s);)
//     for (int64_t i = s.begin; i < s.end; i++) ...
enum { PX__STEP = 1 << 16 };
typedef struct px__steps {
  int64_t n, begin, end;  // of all, and of this step
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
// Whether all steps were made.
static inline bool px__steps_done(const px__steps *s) { return s->begin == s->n; }
// The same for a loop that goes on by blocks of n elements: true if it, and those around it, are to
// end here. `work` begins as 0.
static inline bool px__worked(int64_t *work, int64_t n) {
  if ((*work += n) < PX__STEP) return false;
  *work = px__cpu_stopped() ? PX__STEP : 0;
  return *work > 0;
}
// Clears memory; what is fresh from the system takes long. False: the call has been ended, and what
// was not cleared is better not touched.
static inline bool px__cpu_clear(void *at, size_t bytes) {
  px__steps s = {.n = (int64_t)bytes};
  while (px__step(&s)) memset((char *)at + s.begin, 0, (size_t)(s.end - s.begin));
  return px__steps_done(&s);
}
// The number of threads, this one included: px_num_threads, as far as the pool goes.
int px__cpu_thread_count(void);
