// SPDX-License-Identifier: Apache-2.0
// A small pool of threads for the CPU kernels.
#pragma once
#include "phlox/backend.h"

// Calls fn(context, begin, end) for pieces of [0, n), each a multiple of `grain` long but the last,
// on this thread and those of the pool; returns when all are done. The pieces do not depend on the
// number of threads' speed, only on n and grain and their number. Runs here alone where the range
// is not worth more, where the pool is at work for another thread, and inside of fn.
void px__cpu_parallel(int64_t n, int64_t grain,
                      void (*fn)(void *context, int64_t begin, int64_t end), void *context);
// The number of threads, this one included: px_num_threads, as far as the pool goes.
int px__cpu_thread_count(void);
