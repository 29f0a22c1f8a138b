// SPDX-License-Identifier: Apache-2.0
// The thread pool of the CPU kernels. This program compiles its own copy under other names to reach
// the internal counters.
#define px__cpu_parallel own_parallel
#define px__cpu_parallel_of own_parallel_of
#define px__cpu_plan_of own_plan_of
#define px__cpu_run own_run
#define px__cpu_stopped own_stopped
#define px__cpu_thread_count own_thread_count
#define px__job_cost_of own_kind_of
#define px__job_cost_record own_kind_note
#define px__job_cost_ns own_kind_work
#include "cpu/threads/threads.c"
#include "cpu/threads/cost.c"

#include <sys/resource.h>

#include "test.h"

static void add(void *context, int64_t begin, int64_t end) {
  __atomic_fetch_add((int64_t *)context, end - begin, __ATOMIC_RELAXED);
}
static void add_nested(void *context, int64_t begin, int64_t end) {
  int64_t inner = 0;
  px__cpu_parallel(10, 1, add, &inner);  // the pool is busy, so this runs on the calling thread
  CHECK_EQ(inner, 10);
  add(context, begin, end);
}
static void *many_jobs(void *unused) {
  for (int i = 1; i < 300; i++) {
    int64_t n = 0;
    px__cpu_parallel(i * 37, 1, add, &n);
    px__cpu_parallel(i * 37, 5, add,
                     &n);  // mostly single-threaded once the job is known to be short
    CHECK_EQ(n, i * 74);
  }
  return unused;
}

PX_TEST(every_element_is_visited_once) {
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
static void add_and_yield(void *context, int64_t begin, int64_t end) {
  sched_yield();
  add(context, begin, end);
}
// With at least as many threads as cores, the caller sleeps until a job ends. The last worker wakes
// it.
PX_TEST(the_end_of_a_job_wakes_the_caller) {
  setenv("PHLOX_THREADS", "3", 1);
  for (int i = 0; i < 20000; i++) {
    int64_t n = 0;
    px__cpu_parallel(3, 1, add_and_yield, &n);
    CHECK_EQ(n, 3);
  }
}
PX_TEST(one_thread_needs_no_pool) {
  setenv("PHLOX_THREADS", "1", 1);
  many_jobs(NULL);
  CHECK_EQ(started, 0);
}
PX_TEST(a_job_starts_one_worker_per_piece) {
  setenv("PHLOX_THREADS", "16", 1);
  int64_t n = 0;
  px__cpu_parallel(2, 1, add, &n);
  CHECK_EQ(started, 1);
  px__cpu_parallel(100, 40, add, &n);
  CHECK_EQ(started, 2);
  px__cpu_parallel(100, 1, add, &n);
  CHECK_EQ(started, 15);
  px__cpu_parallel(2, 1, add, &n);  // one sleeping worker is enough
  CHECK_EQ(n, 204);
}
// ---- the number of threads of a job
static const char ops[10000], *const op = ops;

PX_TEST(the_measured_cost_limits_the_threads_of_a_job) {
  setenv("PHLOX_THREADS", "16", 1);
  min_work_awake = 2000;
  CHECK_EQ(px__cpu_plan_of(op, 5).count, 5);  // without a measurement, each grain gets a thread
  CHECK_EQ(px__cpu_plan_of(op, 0.5).count, 1);
  px__job_cost_record(px__job_cost_of(op, 5), 5, 2900);
  CHECK_EQ(px__cpu_plan_of(op, 5).count, 1);
  px__job_cost_record(px__job_cost_of(op + 1, 5), 2, 4000);
  CHECK_EQ(px__cpu_plan_of(op + 1, 4.4).count, 4);
  CHECK_EQ(px__cpu_plan_of(op + 1, 7.9).count, 8);
  px__job_cost_record(px__job_cost_of(op + 2, 0.5), 0.5, 100000);
  CHECK_EQ(px__cpu_plan_of(op + 2, 0.5).count, 16);
}
PX_TEST(costs_are_kept_per_op_and_magnitude) {
  px__job_cost_record(px__job_cost_of(op, 1), 1, 1000);
  CHECK_NEAR(px__job_cost_ns(px__job_cost_of(op, 1.9), 1), 1000, 1);
  CHECK_EQ(px__job_cost_ns(px__job_cost_of(op, 4), 1), 0);
  CHECK_EQ(px__job_cost_ns(px__job_cost_of(op, 1e12), 1), 0);
}
PX_TEST(the_cost_estimate_rises_slowly) {
  px__job_cost *k = px__job_cost_of(op, 1);
  px__job_cost_record(k, 1, 1000);
  px__job_cost_record(k, 1, 1000000);  // one slow run, which waited
  CHECK_NEAR(px__job_cost_ns(k, 1), 1000 + 3 * 1000 / 32.0, 2);
  px__job_cost_record(k, 2, 1000);
  CHECK_NEAR(px__job_cost_ns(k, 1), 500, 2);
  for (int i = 0; i < 200; i++) px__job_cost_record(k, 1, 4000);
  CHECK_NEAR(px__job_cost_ns(k, 1), 4000, 100);
}
PX_TEST(a_cost_entry_can_be_evicted) {
  px__job_cost_record(px__job_cost_of(op, 1), 1, 1000);
  for (const char *other = op + 1; px__job_cost_of(other, 1) != px__job_cost_of(op, 1); other++)
    if (other == op + sizeof ops - 1) break;
  CHECK_EQ(px__job_cost_ns(px__job_cost_of(op, 1), 1), 0);
}
PX_TEST(jobs_are_measured_as_they_run) {
  setenv("PHLOX_THREADS", "4", 1);
  int64_t n = 0;
  px__cpu_parallel_of(op, 100, 80, add, &n);  // single-threaded
  CHECK(px__job_cost_ns(px__job_cost_of(op, 1.25), 1) > 0);
  CHECK_EQ(n, 100);
  px__job_cost *k =
      px__job_cost_of(op, 100);  // large enough that workers leave a part to this thread
  for (int i = 0; i < 10000 && px__job_cost_ns(k, 1) <= 0; i++)
    px__cpu_parallel_of(op, 8000, 80, add, &n);
  CHECK(px__job_cost_ns(k, 1) > 0 && min_work_awake >= MIN_WORK_NS && started == 3);
}
PX_TEST(presplit_work_is_done_once) {
  setenv("PHLOX_THREADS", "4", 1);
  for (int64_t pieces = 1; pieces < 40; pieces++) {
    int64_t n = 0;
    px__cpu_plan plan = px__cpu_plan_of(op, 50);
    px__cpu_run(&plan, pieces, 1, add, &n);
    CHECK_EQ(n, pieces);
  }
}
PX_TEST(a_forked_child_restarts_the_pool) {
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

// ---- buffers

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static void *use_shared_region(void *unused) {
  CHECK(!px__buffers_reserve());
  for (int round = 0; round < 1000; round++) {
    PX__BUFFER(char, outer, 100000);
    memset(outer, 1, 100000);
    {
      PX__BUFFER(char, inner, 1000);
      CHECK(inner >= outer + 100000);
      memset(inner, 2, 1000);
    }
    CHECK(outer[0] == 1 && outer[99999] == 1);
  }
  return NULL;
}

// The limit leaves no address space for a region, after the stacks of the threads have been mapped.
static pthread_barrier_t limited;
static void *wait_and_use(void *unused) {
  pthread_barrier_wait(&limited);
  return use_shared_region(unused);
}

PX_TEST(threads_without_memory_take_turns_with_the_shared_region) {
  enum { COUNT = 4 };
  pthread_t threads[COUNT];
  struct rlimit before, none;
  CHECK(!pthread_barrier_init(&limited, NULL, COUNT + 1) && !getrlimit(RLIMIT_AS, &before));
  for (int i = 0; i < COUNT; i++) CHECK(!pthread_create(&threads[i], NULL, wait_and_use, NULL));
  none = (struct rlimit){1 << 20, before.rlim_max};
  CHECK(!setrlimit(RLIMIT_AS, &none));
  pthread_barrier_wait(&limited);
  for (int i = 0; i < COUNT; i++) pthread_join(threads[i], NULL);
  CHECK(!setrlimit(RLIMIT_AS, &before));
  CHECK(px__buffers_reserve());
}
#endif
