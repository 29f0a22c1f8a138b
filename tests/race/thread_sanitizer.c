// SPDX-License-Identifier: Apache-2.0
// Simulated streams are threads, synchronized only as the streams are ordered. Therefore
// ThreadSanitizer itself reports the documentation's incorrect example (a side stream sums a tensor
// during its fill on the default stream) as a data race, and accepts the corrected one. Skipped in
// builds without ThreadSanitizer.

// The first race ends the process, since each of the million elements is one.
#define TSAN_DEFAULTS "halt_on_error=1:history_size=7"
#include "devices.h"

enum { FOUND = 66 };  // exit status of a process with a reported race

static void sum_on_side_stream(bool wait) {
  PX_SCOPED(px_stream) side = NULL;
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  px_stream *home;
  px_scalar number;
  simulate(1);
  OK(px_stream_new(&side, px_cuda(0), 0));
  OK(px_stream_default(&home, px_cuda(0)));
  OK(px_empty(&a, (int64_t[]){1000, 1000}, 2, PX_FLOAT32, px_cuda(0), false, false, NULL));
  OK(px_normal_(a, 0, 1, NULL));
  if (wait) OK(px_stream_wait_stream(side, home));
  OK(px_stream_set_current(side));
  OK(px_sum(&b, a, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_tensor_item(&number, b));
}

// Runs the example in a child with its stderr in `report`. Returns the exit status.
static int status_of(bool wait, char *report, size_t capacity) {
  int ends[2], status = 0;
  CHECK(pipe(ends) == 0);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    sum_on_side_stream(wait);
    exit(0);
  }
  close(ends[1]);
  size_t filled = 0;
  char rest[4096];
  for (;;) {
    bool full = filled + 1 == capacity;
    ssize_t n = full ? read(ends[0], rest, sizeof rest)
                     : read(ends[0], report + filled, capacity - 1 - filled);
    if (n <= 0) break;
    if (!full) filled += (size_t)n;
  }
  report[filled] = 0;
  close(ends[0]);
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#ifndef __SANITIZE_THREAD__
#define NEEDS_SANITIZER() SKIP("not built with ThreadSanitizer")
#else
#define NEEDS_SANITIZER() (void)0
#endif

PX_TEST(a_missing_wait_is_a_data_race) {
  NEEDS_SANITIZER();
  char report[16384];
  // It reports accesses that overlap in time. On a loaded machine one thread may finish before the
  // other begins.
  int status = 0;
  for (int tries = 0; tries < 10 && status == 0; tries++)
    status = status_of(false, report, sizeof report);
  CHECK_EQ(status, FOUND);
  CHECK(strstr(report, "WARNING: ThreadSanitizer: data race"));
  CHECK(strstr(report, "px__cpu_op_sum") && strstr(report, "_normal"));
}

PX_TEST(a_wait_orders_the_streams) {
  NEEDS_SANITIZER();
  char report[16384];
  CHECK_EQ(status_of(true, report, sizeof report), 0);
  CHECK_TEXT(report, "");
}
