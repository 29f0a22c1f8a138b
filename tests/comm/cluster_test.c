// SPDX-License-Identifier: Apache-2.0
// Simulated clusters of many ranks in one process: stream order, links, and ranks that die,
// diverge, leave or are late. tests/comm/comm_test.c tests each collective.
#include "phlox/comm.h"
#include "phlox/extend.h"
#include "phlox/phlox.h"
#include "phlox/profile.h"

#include "test.h"

static void simulate(const char *mode, const char *seed) {
  setenv("PHLOX_BACKENDS", "sim", 1);
  setenv("PHLOX_SIM_DEVICES", "64", 1);
  setenv("PHLOX_SIM_MEMORY", "64M", 1);
  setenv("PHLOX_SIM_MODE", mode, 1);
  setenv("PHLOX_SIM_SEED", seed, 1);
  setenv("PHLOX_THREADS", "1", 1);
}

static px_status join(px_comm **out, int rank, int ranks, int64_t timeout_ms) {
  return px_comm_new(out, &(px_comm_options){"nccl", px_cluster_store(), rank, ranks, timeout_ms});
}

static px_status full(px_tensor **out, int rank, int64_t n, double value) {
  px_device device = {PX_CUDA, rank};
  return px_full(out, &n, 1, px_float(value), PX_FLOAT32, device, false, false);
}

static px_status sum(px_work **work, px_comm *comm, px_tensor *x) {
  return px_comm_run(work, comm, &(px_collective){PX_ALL_REDUCE, .outputs = &x, .output_count = 1});
}

static px_status sum_now(px_comm *comm, px_tensor *x) {
  PX_SCOPED(px_work) work = NULL;
  PX_TRY(sum(&work, comm, x));
  PX_TRY(px_work_wait(work, 0));
  return px_device_synchronize(px_tensor_device(x).index);
}

static double first_of(px_tensor *x) {
  PX_SCOPED(px_tensor) host = NULL;
  OK(px_to(&host, x, PX_DTYPE_NONE, (px_device){PX_CPU, -1}, false, true));
  return ((float *)px_tensor_data(host))[0];
}

// ---- many ranks

static px_status add_up(int rank, int ranks, void *argument) {
  PX_SCOPED(px_comm) comm = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  CHECK_EQ(px_cluster_rank(), rank);
  CHECK_EQ(px_cluster_size(), ranks);
  PX_TRY(join(&comm, rank, ranks, 0));
  PX_TRY(full(&x, rank, 1000, rank + 1));
  for (int i = 0; i < 3; i++) PX_TRY(sum_now(comm, x));
  CHECK_NEAR(first_of(x), 65 * 32.0 * 64 * 64, 0);
  return PX_OK;
}
PX_TEST(sixty_four_ranks_reduce) {
  simulate("threads", "0");
  CHECK_EQ(px_cluster_rank(), -1);
  CHECK(!px_cluster_store());
  OK(px_cluster_run(64, add_up, NULL));
}
PX_TEST(sixty_four_ranks_reduce_under_a_schedule) {
  simulate("schedule", "3");
  OK(px_cluster_run(64, add_up, NULL));
}

static px_status run_another(int rank, int ranks, void *argument) {
  FAILS(px_cluster_run(1, run_another, NULL), PX_RUNTIME, "only one can run at a time");
  return PX_OK;
}
PX_TEST(invalid_clusters_are_refused) {
  simulate("threads", "0");
  FAILS(px_cluster_run(65, add_up, NULL), PX_RUNTIME, "PHLOX_SIM_DEVICES=65");
  FAILS(px_cluster_run(0, add_up, NULL), PX_VALUE, "at least one rank");
  FAILS(px_cluster_run(1, NULL, NULL), PX_TYPE,
        "expected a function to run in the simulated cluster, got NULL");
  OK(px_cluster_run(1, run_another, NULL));
}

// ---- order

// A collective does not block the host: rank 1 calls it only after rank 0 has returned from its
// call.
static px_status call_after_rank_0(int rank, int ranks, void *argument) {
  PX_SCOPED(px_comm) comm = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_work) work = NULL;
  const char *keys[] = {"called"};
  PX_TRY(join(&comm, rank, ranks, 0));
  PX_TRY(full(&x, rank, 10, 1));
  if (rank) PX_TRY(px_store_wait(px_cluster_store(), keys, 1, 60000));
  PX_TRY(sum(&work, comm, x));
  PX_TRY(px_work_wait(work, 0));
  if (!rank) PX_TRY(px_store_set(px_cluster_store(), keys[0], "1", 1));
  CHECK_NEAR(first_of(x), 2, 0);
  CHECK(px_work_is_completed(work));
  return PX_OK;
}
PX_TEST(a_collective_is_queued_on_its_stream) {
  simulate("threads", "0");
  OK(px_cluster_run(2, call_after_rank_0, NULL));
}
PX_TEST(a_collective_is_queued_on_its_stream_under_a_schedule) {
  simulate("schedule", "0");
  OK(px_cluster_run(2, call_after_rank_0, NULL));
}

// The last rank's device already waits for the collective when the others join.
static px_status profile_late(int rank, int ranks, void *argument) {
  PX_SCOPED(px_comm) comm = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_work) work = NULL;
  px_profile *profile = NULL;
  const char *keys[] = {"waits"};
  PX_TRY(join(&comm, rank, ranks, 0));
  PX_TRY(full(&x, rank, 8, 1));
  if (rank == 0) {
    PX_TRY(px_store_wait(px_cluster_store(), keys, 1, 60000));
    PX_TRY(px_profile_start(&(px_profile_options){.devices = true}));
  }
  PX_TRY(sum(&work, comm, x));
  PX_TRY(px_work_wait(work, 0));
  if (rank == 1) PX_TRY(px_store_set(px_cluster_store(), keys[0], "1", 1));
  PX_TRY(px_device_synchronize(rank));
  if (rank == 0) PX_TRY(px_profile_stop(&profile));
  px_profile_free(profile);
  return PX_OK;
}
PX_TEST(a_profile_can_begin_while_a_rank_waits_in_a_collective) {
  simulate("threads", "0");
  OK(px_cluster_run(2, profile_late, NULL));
}

// A program with missing waits: each rank's numbers depend on the order of its streams. The seed
// alone determines the order, independent of thread timing.
enum { RACERS = 8, ROUNDS = 12 };
static double results[RACERS];
static px_status race(int rank, int ranks, void *argument) {
  PX_SCOPED(px_comm) comm = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_stream) side = NULL;
  px_stream *home;
  PX_TRY(join(&comm, rank, ranks, 0));
  PX_TRY(full(&x, rank, 64, 1));
  PX_TRY(full(&y, rank, 64, rank));
  PX_TRY(px_stream_current(&home, (px_device){PX_CUDA, rank}));
  PX_TRY(px_stream_new(&side, (px_device){PX_CUDA, rank}, 0));
  for (int i = 0; i < ROUNDS; i++) {
    PX_TRY(sum(NULL, comm, x));
    PX_TRY(px_mul_scalar_(x, px_float(0.125)));  // lacks a wait for the sum
    PX_TRY(px_stream_set_current(side));
    PX_TRY(px_add_(y, x, px_int(1)));  // lacks a wait for both
    PX_TRY(px_stream_set_current(home));
    usleep((unsigned)(rank * 7 + i) % 5 * (argument ? 300 : 50));
    if (i % 4 == 3) PX_TRY(px_device_synchronize(rank));
  }
  PX_TRY(px_device_synchronize(rank));
  results[rank] = first_of(y);
  return PX_OK;
}
static void race_with_seed(const char *seed, void *slower, double out[RACERS]) {
  simulate("schedule", seed);
  px_race_enable(0, false);
  OK(px_cluster_run(RACERS, race, slower));
  memcpy(out, results, sizeof results);
}
PX_TEST(a_seed_reproduces_racy_results) {
  double first[RACERS], again[RACERS];
  race_with_seed("5", NULL, first);
  race_with_seed("5", results, again);
  for (int r = 0; r < RACERS; r++) CHECK(first[r] == again[r]);
}
static void *race_once(const char *seed) {
  static double shared[RACERS];
  race_with_seed(seed, NULL, shared);
  return shared;
}
// The first opened device reads the seed, so each seed needs a process.
static double race_in_child(const char *seed) {
  int ends[2];
  double sum = 0;
  CHECK(!pipe(ends));
  pid_t child = fork();
  if (!child) {
    double *all = race_once(seed);
    for (int r = 0; r < RACERS; r++) sum += all[r] * (r + 1);
    CHECK(write(ends[1], &sum, sizeof sum) == sizeof sum);
    _exit(0);
  }
  close(ends[1]);
  CHECK(read(ends[0], &sum, sizeof sum) == sizeof sum);
  close(ends[0]);
  waitpid(child, NULL, 0);
  return sum;
}
PX_TEST(another_seed_changes_racy_results) {
  double first = race_in_child("1");
  CHECK(race_in_child("1") == first);
  bool differs = false;
  for (int i = 2; i < 8; i++) {
    char seed[] = {(char)('0' + i), 0};
    differs |= race_in_child(seed) != first;
  }
  CHECK(differs);
}

// Virtual time: 6 steps of 1000 ns, and 6 times a quarter of a mebibyte at 1 GB/s.
static px_status measure(int rank, int ranks, void *argument) {
  PX_SCOPED(px_comm) comm = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_work) work = NULL;
  PX_SCOPED(px_event) begin = NULL;
  PX_SCOPED(px_event) end = NULL;
  px_stream *stream;
  float ms;
  double model = 6 * 0.001 + 6 * 0.262144;
  PX_TRY(join(&comm, rank, ranks, 0));
  PX_TRY(full(&x, rank, 1 << 18, 1));
  PX_TRY(px_stream_current(&stream, (px_device){PX_CUDA, rank}));
  PX_TRY(px_event_new(&begin, PX_EVENT_TIMING));
  PX_TRY(px_event_new(&end, PX_EVENT_TIMING));
  PX_TRY(px_event_record(begin, stream));
  PX_TRY(sum(&work, comm, x));
  PX_TRY(px_work_wait(work, 0));
  PX_TRY(px_event_record(end, stream));
  PX_TRY(px_event_synchronize(end));
  PX_TRY(px_event_elapsed(&ms, begin, end));
  CHECK((double)ms > model - 1e-6);
  return PX_OK;
}
PX_TEST(links_take_virtual_time) {
  simulate("schedule", "0");
  setenv("PHLOX_SIM_LINK_BANDWIDTH", "1000000000", 1);
  setenv("PHLOX_SIM_LINK_LATENCY", "1000", 1);
  OK(px_cluster_run(4, measure, NULL));
}

static double draw(void) {
  PX_SCOPED(px_tensor) x = NULL;
  int64_t one = 1;
  OK(px_rand(&x, &one, 1, NULL, PX_FLOAT64, (px_device){PX_CPU, -1}, false, false));
  return *(double *)px_tensor_data(x);
}
PX_TEST(a_thread_may_use_its_own_generator) {
  PX_SCOPED(px_generator) own = NULL;
  simulate("threads", "0");
  OK(px_generator_new(&own, (px_device){PX_CPU, -1}));
  px_manual_seed(5);
  double first = draw(), second = draw();
  px_manual_seed(5);
  CHECK(draw() == first);
  px_random_isolate(own, 0);
  px_manual_seed(5);
  CHECK(draw() == first);
  px_manual_seed(7);
  px_random_isolate(NULL, 0);
  CHECK(draw() == second);  // the process-wide generator continues its sequence
}

// ---- failures

enum { FAULTY = 4 };
static char errors[FAULTY][1024];

static void save_error(int rank) {
  snprintf(errors[rank], sizeof errors[rank], "%.1000s", px_error_last()->message);
  px_error_clear();
}
static void expect(int rank, const char *text) {
  if (!strstr(errors[rank], text)) fprintf(stderr, "rank %d: %s\n", rank, errors[rank]);
  CHECK(strstr(errors[rank], text) != NULL);
}

static px_status work_until_error(int rank, int ranks, void *argument) {
  PX_SCOPED(px_comm) comm = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(join(&comm, rank, ranks, 60000));
  PX_TRY(full(&x, rank, 10, 1));
  px_status status = PX_OK;
  for (int i = 0; i < 30 && status == PX_OK; i++) status = sum_now(comm, x);
  CHECK_EQ(status, PX_DIST_BACKEND);
  save_error(rank);
  return PX_OK;
}

static int find_dead(void) {
  int dead = -1;
  for (int r = 0; r < FAULTY; r++)
    if (strstr(errors[r], "has died at its collective number")) dead = r;
  return dead;
}

static void die_by_seed(const char *mode) {
  char before[FAULTY][1024], text[100];
  simulate(mode, "11");
  setenv("PHLOX_SIM_DEATH", "20", 1);
  OK(px_cluster_run(FAULTY, work_until_error, NULL));
  memcpy(before, errors, sizeof errors);
  int dead = find_dead();
  CHECK(dead >= 0);
  snprintf(text, sizeof text, "failed: lost the connection to rank %d", dead);
  for (int r = 0; r < FAULTY; r++)
    if (r != dead) expect(r, text);
  // The same seed kills the same rank.
  OK(px_cluster_run(FAULTY, work_until_error, NULL));
  for (int r = 0; r < FAULTY; r++) CHECK(!strcmp(before[r], errors[r]));
}
PX_TEST(the_seed_selects_the_rank_that_dies) { die_by_seed("threads"); }
PX_TEST(the_seed_selects_the_rank_that_dies_under_a_schedule) { die_by_seed("schedule"); }

static px_status differ(int rank, int ranks, void *argument) {
  PX_SCOPED(px_comm) comm = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(join(&comm, rank, ranks, 60000));
  PX_TRY(full(&x, rank, 12, 1));
  PX_TRY(sum_now(comm, x));
  px_site_set("train.c", rank == 2 ? 20 : 17);
  px_collective copy = {PX_BROADCAST, .outputs = &x, .output_count = 1};
  px_status status = rank == 2 ? px_comm_run(NULL, comm, &copy) : sum(NULL, comm, x);
  CHECK_EQ(status, PX_OK);
  CHECK_EQ(px_device_synchronize(rank), PX_DIST_BACKEND);
  save_error(rank);
  FAILS(sum(NULL, comm, x), PX_DIST_BACKEND, "the group is no longer usable");
  return PX_OK;
}
static void check_difference(const char *mode) {
  simulate(mode, "0");
  OK(px_cluster_run(FAULTY, differ, NULL));
  for (int r = 0; r < FAULTY; r++)
    expect(r,
           "failed: rank 2 called broadcast number 2 of 12 elements float32, root 0 "
           "(train.c:20), and rank 0 called all_reduce number 2 of 12 elements float32, SUM "
           "(train.c:17)");
}
PX_TEST(mismatched_calls_are_named_with_their_lines) { check_difference("threads"); }
PX_TEST(mismatched_calls_are_named_under_a_schedule) { check_difference("schedule"); }

static px_status leave_early(int rank, int ranks, void *argument) {
  PX_SCOPED(px_comm) comm = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(join(&comm, rank, ranks, 60000));
  PX_TRY(full(&x, rank, 12, 1));
  PX_TRY(sum_now(comm, x));
  if (rank == 1) return PX_OK;
  CHECK_EQ(sum_now(comm, x), PX_DIST_BACKEND);
  save_error(rank);
  return PX_OK;
}
PX_TEST(a_rank_that_left_is_named) {
  simulate("schedule", "0");
  OK(px_cluster_run(3, leave_early, NULL));
  expect(0, "failed: rank 1 has left the group after its call number 1");
  expect(2, "failed: rank 1 has left the group after its call number 1");
}

static int late_ms = 300;
static px_status be_late(int rank, int ranks, void *argument) {
  PX_SCOPED(px_comm) comm = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  const char *keys[] = {"over"};
  PX_TRY(join(&comm, rank, ranks, late_ms));
  PX_TRY(full(&x, rank, 12, 1));
  if (rank == 1) return px_store_wait(px_cluster_store(), keys, 1, 60000);
  CHECK_EQ(sum_now(comm, x), PX_DIST_BACKEND);
  save_error(rank);
  return rank ? PX_OK : px_store_set(px_cluster_store(), keys[0], "1", 1);
}
static void check_late(const char *mode) {
  simulate(mode, "0");
  OK(px_cluster_run(3, be_late, NULL));
  expect(0, "failed: rank 1 has not called number 1");
  expect(2, "failed: rank 1 has not called number 1");
}
PX_TEST(a_late_rank_is_named) { check_late("threads"); }
PX_TEST(a_late_rank_is_named_under_a_schedule) { check_late("schedule"); }
// The schedule's worker is idle by then.
PX_TEST(a_late_rank_is_named_when_the_schedule_is_idle) {
  late_ms = 2500;
  simulate("schedule", "0");
  OK(px_cluster_run(2, be_late, NULL));
  expect(0, "failed: rank 1 has not called number 1");
}

static px_status abort_it(int rank, int ranks, void *argument) {
  PX_SCOPED(px_comm) comm = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(join(&comm, rank, ranks, 60000));
  PX_TRY(full(&x, rank, 12, 1));
  if (rank == 1) return px_comm_abort(comm), PX_OK;
  CHECK_EQ(sum_now(comm, x), PX_DIST_BACKEND);
  save_error(rank);
  return PX_OK;
}
PX_TEST(an_abort_ends_the_calls_of_all_ranks) {
  simulate("threads", "0");
  OK(px_cluster_run(3, abort_it, NULL));
  expect(0, "rank 1: the group was aborted");
  expect(2, "rank 1: the group was aborted");
}

static px_status receive_wrong(int rank, int ranks, void *argument) {
  PX_SCOPED(px_comm) comm = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(join(&comm, rank, ranks, 60000));
  PX_TRY(full(&x, rank, rank ? 2 : 3, 1));
  px_collective send = {PX_SEND, .inputs = &x, .input_count = 1, .peer = 1};
  px_collective recv = {PX_RECV, .outputs = &x, .output_count = 1};
  PX_TRY(px_comm_run(NULL, comm, rank ? &recv : &send));
  px_status status = px_device_synchronize(rank);
  CHECK_EQ(status, rank ? PX_DIST_BACKEND : PX_OK);
  if (rank) save_error(rank);
  return PX_OK;
}
PX_TEST(a_receive_of_mismatched_size_is_named) {
  simulate("threads", "0");
  OK(px_cluster_run(2, receive_wrong, NULL));
  expect(1, "rank 0 sent 12 bytes, and rank 1, which receives 8, called recv");
}

static px_status fail_alone(int rank, int ranks, void *argument) {
  PX_SCOPED(px_comm) comm = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(join(&comm, rank, ranks, 60000));
  if (rank == 2) PX_FAIL(PX_INDEX, "an error of its own");
  PX_TRY(full(&x, rank, 12, 1));
  return sum_now(comm, x);
}
PX_TEST(the_failing_rank_is_named) {
  simulate("threads", "0");
  FAILS(px_cluster_run(4, fail_alone, NULL), PX_INDEX, "rank 2 of 4 failed: an error of its own");
  CHECK_EQ(px_live_objects("work"), 0);
  CHECK_EQ(px_live_objects("comm"), 0);
}

// ---- interrupts

static px_status add_up_some(int rank, int ranks, void *argument) {
  PX_SCOPED(px_comm) comm = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(join(&comm, rank, ranks, 600000));
  PX_TRY(full(&x, rank, 12, 1));
  PX_TRY(sum_now(comm, x));
  CHECK_NEAR(first_of(x), ranks, 0);
  return PX_OK;
}
// Ranks blocked in a collective, on a key, or joining, for a rank that never arrives. The check of
// the calling thread fails once all wait.
static int waiting;  // atomic
static px_status stop_when_all_wait(void) {
  if (__atomic_load_n(&waiting, __ATOMIC_ACQUIRE) < FAULTY) return PX_OK;
  return px_error_set(PX_VALUE, 0, __FILE__, __LINE__, __func__, "stopped by a signal");
}
static px_status wait_forever(int rank, int ranks, void *argument) {
  PX_SCOPED(px_comm) comm = NULL;
  PX_SCOPED(px_comm) more = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  const char *keys[] = {"never"};
  PX_TRY(join(&comm, rank, ranks, 600000));
  PX_TRY(full(&x, rank, 12, 1));
  PX_TRY(sum_now(comm, x));
  __atomic_add_fetch(&waiting, 1, __ATOMIC_RELEASE);
  px_comm_options others = {"nccl", px_cluster_store(), 0, 2, 600000};
  px_status status = rank == 1   ? px_store_wait(px_cluster_store(), keys, 1, 600000)
                     : rank == 2 ? px_comm_new(&more, &others)
                                 : sum_now(comm, x);
  CHECK_EQ(status, PX_DIST_BACKEND);
  save_error(rank);
  FAILS(sum(NULL, comm, x), PX_DIST_BACKEND, "");
  return PX_OK;
}
static void check_interrupt(const char *mode) {
  simulate(mode, "0");
  px_interrupt_set_check(stop_when_all_wait);
  FAILS(px_cluster_run(FAULTY, wait_forever, NULL), PX_VALUE, "stopped by a signal");
  px_interrupt_set_check(NULL);
  expect(0, "the simulated cluster was interrupted");
  expect(1, "[Rank 1] the simulated cluster was interrupted");
  expect(2, "[Rank 0] cannot join a group of 2 ranks");
  expect(3, "the simulated cluster was interrupted");
  CHECK_EQ(px_live_objects("work"), 0);
  CHECK_EQ(px_live_objects("comm"), 0);
  OK(px_cluster_run(FAULTY, add_up_some, NULL));  // the next cluster runs normally
}
PX_TEST(an_interrupt_ends_all_ranks) { check_interrupt("threads"); }
PX_TEST(an_interrupt_ends_all_ranks_under_a_schedule) { check_interrupt("schedule"); }
