// SPDX-License-Identifier: Apache-2.0
// The race checker and collectives of a simulated cluster: an unordered access to memory of a
// pending collective from another stream is a race with both lines named. Waiting on the work
// orders the access.
#include "devices.h"

#include <semaphore.h>

enum { RANKS = 4 };
typedef px_status (*rank_body)(px_comm *comm, px_tensor *x, px_tensor *all);

static void show(void) {
  for (int64_t i = 0; i < px_race_count(); i++) fprintf(stderr, "%s\n", px_race_report(i));
}

// Checks one race per rank, or two if an in-place op both reads and writes. Each report contains
// `text`.
static void check(const char *text) {
  bool fine = px_race_count() == RANKS || px_race_count() == 2 * RANKS;
  for (int64_t i = 0; i < px_race_count(); i++) fine &= strstr(px_race_report(i), text) != NULL;
  if (!fine) show();
  CHECK(fine);
}

static void no_race(void) {
  show();
  CHECK_EQ(px_race_count(), 0);
}

static px_status run_rank(int rank, int ranks, void *argument) {
  PX_SCOPED(px_comm) comm = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  int64_t one = 8, many = 8 * RANKS;
  rank_body *body = argument;
  px_comm_options options = {"nccl", px_cluster_store(), rank, ranks, 60000};
  PX_TRY(px_comm_new(&comm, &options));
  PX_TRY(px_ones(&x, &one, 1, PX_FLOAT32, px_cuda(rank), false, false));
  PX_TRY(px_ones(&all, &many, 1, PX_FLOAT32, px_cuda(rank), false, false));
  PX_TRY((*body)(comm, x, all));
  return px_device_synchronize(rank);
}

static void run(const char *mode, rank_body body) {
  setenv("PHLOX_SIM_MODE", mode, 1);
  simulate(RANKS);
  px_race_enable(1, false);
  OK(px_cluster_run(RANKS, run_rank, &body));
}

static px_status reduce(px_work **work, px_comm *comm, px_tensor *x) {
  px_site_set("collective.c", 7);
  px_collective sum = {PX_ALL_REDUCE, .outputs = &x, .output_count = 1};
  PX_TRY(px_comm_run(work, comm, &sum));
  px_site_set("other.c", 9);
  return PX_OK;
}
static px_status gather(px_work **work, px_comm *comm, px_tensor *x, px_tensor *all) {
  px_site_set("collective.c", 7);
  px_collective join = {PX_ALL_GATHER, .inputs = &x, .input_count = 1, .outputs = &all,
                        .output_count = 1};
  PX_TRY(px_comm_run(work, comm, &join));
  px_site_set("other.c", 9);
  return PX_OK;
}

// ---- races

static px_status write_in_flight(px_comm *comm, px_tensor *x, px_tensor *all) {
  PX_TRY(reduce(NULL, comm, x));
  return px_fill_(x, px_float(3));
}
// As above, but harmless: the write is unordered and runs late. With threads as streams,
// ThreadSanitizer would otherwise sometimes report the race.
static void signal_done(void *done) { sem_post(done); }
static void wait_done(void *done) {
  while (sem_wait(done)) continue;
}
static px_status write_late(px_comm *comm, px_tensor *x, px_tensor *all) {
  PX_SCOPED(px_work) work = NULL;
  px_stream *current;
  sem_t done;
  sem_init(&done, 0, 0);
  PX_TRY(px_stream_current(&current, px_tensor_device(x)));
  PX_TRY(reduce(&work, comm, x));
  PX_TRY(px_work_at_end(work, signal_done, &done));
  PX_TRY(px_stream_host_call(current, wait_done, &done));
  PX_TRY(px_fill_(x, px_float(3)));
  return px_device_synchronize(px_comm_rank(comm));
}
static px_status read_in_flight(px_comm *comm, px_tensor *x, px_tensor *all) {
  PX_SCOPED(px_tensor) y = NULL;
  PX_TRY(gather(NULL, comm, x, all));
  return px_neg(&y, all);
}
// The input of a gather may be read, but not written.
static px_status write_gather_input(px_comm *comm, px_tensor *x, px_tensor *all) {
  PX_SCOPED(px_tensor) y = NULL;
  PX_TRY(gather(NULL, comm, x, all));
  PX_TRY(px_neg(&y, x));
  return px_fill_(x, px_float(3));
}
// Waits for the work on another stream than the writer's.
static px_status wait_elsewhere(px_comm *comm, px_tensor *x, px_tensor *all) {
  PX_SCOPED(px_work) work = NULL;
  PX_SCOPED(px_stream) side = NULL;
  px_stream *current;
  PX_TRY(px_stream_current(&current, px_tensor_device(x)));
  PX_TRY(px_stream_new(&side, px_tensor_device(x), 0));
  PX_TRY(reduce(&work, comm, x));
  PX_TRY(px_stream_set_current(side));
  PX_TRY(px_work_wait(work, 0));
  PX_TRY(px_stream_set_current(current));
  return px_fill_(x, px_float(3));
}

static void expect(const char *mode, rank_body body, const char *first, const char *second) {
  run(mode, body);
  check(first);
  check(second);
  check(" at collective.c:7");
  check(" at other.c:9");
}
PX_TEST(a_write_to_a_reduced_tensor_is_a_race) {
  expect("schedule", write_in_flight, "all_reduce wrote bytes", "\n  fill ");
}
PX_TEST(a_write_to_a_reduced_tensor_is_a_race_in_mode_threads) {
  expect("threads", write_late, "all_reduce wrote bytes", "\n  fill ");
}
PX_TEST(a_read_of_a_gather_output_is_a_race) {
  expect("schedule", read_in_flight, "all_gather wrote bytes", "\n  neg reads it");
}
PX_TEST(a_write_to_a_gather_input_is_a_race) {
  expect("schedule", write_gather_input, "all_gather read bytes", "\n  fill ");
}
PX_TEST(a_wait_on_another_stream_does_not_order_this_one) {
  expect("schedule", wait_elsewhere, "all_reduce wrote bytes", "\n  fill ");
}

// ---- no races

static px_status wait_for_work(px_comm *comm, px_tensor *x, px_tensor *all) {
  PX_SCOPED(px_work) work = NULL;
  PX_SCOPED(px_work) next = NULL;
  PX_TRY(px_fill_(x, px_float(2)));
  PX_TRY(gather(&work, comm, x, all));
  PX_TRY(reduce(&next, comm, all));  // on the same stream
  PX_TRY(px_work_wait(next, 0));
  PX_TRY(px_fill_(x, px_float(3)));
  return px_fill_(all, px_float(3));
}
PX_TEST(waiting_on_work_orders_streams) {
  run("schedule", wait_for_work);
  no_race();
}

static px_status read_broadcast_source(px_comm *comm, px_tensor *x, px_tensor *all) {
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_work) work = NULL;
  px_collective copy = {PX_BROADCAST, .outputs = &x, .output_count = 1};
  PX_TRY(px_comm_run(&work, comm, &copy));
  if (px_comm_rank(comm)) PX_TRY(px_work_wait(work, 0));
  return px_neg(&y, x);
}
PX_TEST(the_root_of_a_broadcast_may_be_read) {
  run("threads", read_broadcast_source);
  no_race();
}

static px_status step(px_reducer *reducer, px_optimizer *optimizer, px_module *model,
                      px_device device) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) loss = NULL;
  int64_t size[] = {5, 6};
  PX_TRY(px_randn(&x, size, 2, NULL, PX_FLOAT32, device, false, false));
  PX_TRY(px_optimizer_zero_grad(optimizer, true));
  PX_TRY(px_reducer_begin(reducer));
  PX_TRY(px_module_call(&y, model, x));
  PX_TRY(px_reducer_expect(reducer, &y, 1));
  PX_TRY(px_sum(&loss, y, NULL, 0, false, PX_DTYPE_NONE));
  PX_TRY(px_backward(1, &loss, NULL, false, false));
  return px_optimizer_step(optimizer);
}
static px_status train(px_comm *comm, px_tensor *x, px_tensor *all) {
  PX_SCOPED(px_module) model = NULL;
  PX_SCOPED(px_list) list = NULL;
  PX_SCOPED(px_optimizer) optimizer = NULL;
  PX_SCOPED(px_reducer) reducer = NULL;
  px_device device = px_tensor_device(x);
  PX_TRY(px_linear_new(&model, 6, 40));
  PX_TRY(px_module_to(model, PX_DTYPE_NONE, device, false));
  PX_TRY(px_module_parameters(&list, model));
  px_tensor *const *parameters = px_list_items(list);
  int count = (int)px_list_size(list);
  PX_TRY(px_sgd_new(&optimizer, parameters, count, .lr = 0.1));
  PX_TRY(px_comm_copy_from(comm, 0, parameters, count));
  px_reducer_options options = {
      .comm = comm, .parameters = parameters, .count = count, .first_bytes = 1, .bucket_bytes = 1};
  PX_TRY(px_reducer_new(&reducer, &options));
  for (int i = 0; i < 4; i++) PX_TRY(step(reducer, optimizer, model, device));
  return PX_OK;
}
PX_TEST(training_with_a_reducer_has_no_race) {
  run("schedule", train);
  no_race();
}
PX_TEST(training_with_a_reducer_has_no_race_in_mode_threads) {
  setenv("PHLOX_SIM_DELAY", "50", 1);
  run("threads", train);
  no_race();
}
