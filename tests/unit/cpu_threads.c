// SPDX-License-Identifier: Apache-2.0
// The pool of the CPU kernels, built into this program once more, by names of its own: what it
// counts is hidden.
#define px__cpu_parallel own_parallel
#define px__cpu_stopped own_stopped
#define px__cpu_thread_count own_thread_count
#include "cpu/threads.c"

#include "test.h"

static void add(void *context, int64_t begin, int64_t end) {
  __atomic_fetch_add((int64_t *)context, end - begin, __ATOMIC_RELAXED);
}
static void add_nested(void *context, int64_t begin, int64_t end) {
  int64_t inner = 0;
  px__cpu_parallel(10, 1, add, &inner);  // the pool is taken: runs here
  CHECK_EQ(inner, 10);
  add(context, begin, end);
}
static void *many_jobs(void *unused) {
  for (int i = 1; i < 300; i++) {
    int64_t n = 0;
    px__cpu_parallel(i * 37, 5, add, &n);
    CHECK_EQ(n, i * 37);
  }
  return unused;
}

PX_TEST(every_element_is_worked_on_once) {
  setenv("PHLOX_THREADS", "4", 1);
  CHECK_EQ(px__cpu_thread_count(), 4);
  many_jobs(NULL);
}
PX_TEST(jobs_nest) {
  setenv("PHLOX_THREADS", "4", 1);
  int64_t n = 0;
  px__cpu_parallel(1000, 7, add_nested, &n);
  CHECK_EQ(n, 1000);
}
PX_TEST(several_threads_share_the_pool) {
  setenv("PHLOX_THREADS", "3", 1);
  pthread_t others[4];
  for (int i = 0; i < 4; i++) CHECK(!pthread_create(&others[i], NULL, many_jobs, NULL));
  for (int i = 0; i < 4; i++) pthread_join(others[i], NULL);
}
PX_TEST(one_thread_needs_no_pool) {
  setenv("PHLOX_THREADS", "1", 1);
  many_jobs(NULL);
  CHECK_EQ(started, 0);
}
PX_TEST(a_job_starts_as_many_workers_as_it_has_pieces_for) {
  setenv("PHLOX_THREADS", "16", 1);
  int64_t n = 0;
  px__cpu_parallel(2, 1, add, &n);
  CHECK_EQ(started, 1);
  px__cpu_parallel(100, 40, add, &n);
  CHECK_EQ(started, 2);
  px__cpu_parallel(100, 1, add, &n);
  CHECK_EQ(started, 15);
  px__cpu_parallel(2, 1, add, &n);  // one of those that sleep is enough
  CHECK_EQ(n, 204);
}
PX_TEST(a_forked_child_starts_afresh) {
#ifdef __SANITIZE_THREAD__
  SKIP("the thread sanitizer does not follow threads of a forked child");
#endif
  setenv("PHLOX_THREADS", "3", 1);
  many_jobs(NULL);
  pid_t child = fork();
  if (child == 0) {
    int workers = started;
    many_jobs(NULL);
    _exit(workers == 0 && started == 2 ? 0 : 1);
  }
  int status;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
