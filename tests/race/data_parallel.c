// SPDX-License-Identifier: Apache-2.0
// The race checker: training over four devices has no race, whatever the timing of streams.
// Unordered work on two streams is reported with both ops, even if the result was right.
#include "devices.h"

static px_device devices[4];

static void with_devices(int count) {
  setenv("PHLOX_SANITIZE", "1", 1);
  setenv("PHLOX_SIM_DELAY", "50", 1);  // varies the order of streams
  simulate(count);
  px_race_enable(1, false);  // record reports without raising errors
  for (int i = 0; i < count; i++) devices[i] = px_cuda(i);
}

static void no_races(void) {
  if (px_race_count()) fprintf(stderr, "%s\n", px_race_report(0));
  CHECK_EQ(px_race_count(), 0);
}

// ---- training

static px_status net_new(px_module **out) {
  PX_SCOPED(px_module) conv = NULL;
  PX_SCOPED(px_module) relu = NULL;
  PX_SCOPED(px_module) pool = NULL;
  PX_SCOPED(px_module) flat = NULL;
  PX_SCOPED(px_module) last = NULL;
  PX_TRY(px_conv2d_new(&conv, 1, 2, 3, .padding = 1));
  PX_TRY(px_relu_new(&relu));
  PX_TRY(px_max_pool2d_new(&pool, 2));
  PX_TRY(px_flatten_new(&flat));
  PX_TRY(px_linear_new(&last, 18, 4));
  return px_sequential_new(out, (px_module *[]){conv, relu, pool, flat, last}, 5);
}

static void batch(px_tensor **x, px_tensor **target, px_device device) {
  PX_SCOPED(px_tensor) drawn = NULL;
  PX_SCOPED(px_tensor) classes = NULL;
  int64_t shape[] = {12, 1, 6, 6};
  OK(px_randn(&drawn, shape, 4, NULL, PX_FLOAT32, px_cpu(), false, false));
  OK(px_randint_below(&classes, 4, shape, 1, NULL, PX_INT64, px_cpu(), false, false));
  OK(px_to(x, drawn, PX_DTYPE_NONE, device, false, false));
  OK(px_to(target, classes, PX_DTYPE_NONE, device, false, false));
}

static double step(px_module *net, px_optimizer *optimizer, int count) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) target = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) loss = NULL;
  px_scalar number;
  batch(&x, &target, devices[0]);
  OK(px_optimizer_zero_grad(optimizer, true));
  OK(px_data_parallel(&y, net, x, devices, count, PX_DEVICE_NONE, 0));
  OK(px_cross_entropy(&loss, y, target, NULL, -100, "mean", 0));
  OK(px_backward(1, &loss, NULL, false, false));
  OK(px_optimizer_step(optimizer));
  OK(px_tensor_item(&number, loss));
  return px_scalar_float(number);
}

// Losses of the first steps over `count` devices.
static void train(double *losses, int steps, int count, const char *kind) {
  PX_SCOPED(px_module) net = NULL;
  PX_SCOPED(px_optimizer) optimizer = NULL;
  PX_SCOPED(px_list) parameters = NULL;
  px_manual_seed(0);
  OK(net_new(&net));
  OK(px_module_to(net, PX_DTYPE_NONE, devices[0], false));
  OK(px_module_parameters(&parameters, net));
  OK(px_optimizer_new(&optimizer, kind));
  OK(px_optimizer_add(optimizer, px_list_items(parameters), px_list_size(parameters)));
  OK(px_optimizer_set(optimizer, -1, "lr", 0.05));
  for (int i = 0; i < steps; i++) losses[i] = step(net, optimizer, count);
}

PX_TEST(training_over_four_devices_has_no_race) {
  with_devices(4);
  double shared[5], alone[5];
  train(shared, 5, 4, "SGD");
  train(alone, 5, 1, "SGD");
  for (int i = 0; i < 5; i++) CHECK_NEAR(shared[i], alone[i], 1e-4);
  train(shared, 5, 4, "Adam");
  no_races();
}

PX_TEST(training_has_no_race_in_any_of_many_schedules) {
  for (int seed = 1; seed <= 6; seed++) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      char number[16];
      double losses[2];
      snprintf(number, sizeof number, "%d", seed);
      setenv("PHLOX_SIM_SEED", number, 1);
      with_devices(4);
      train(losses, 2, 4, "SGD");
      no_races();
      exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
}

PX_TEST(training_on_a_side_stream_has_no_race) {
  with_devices(2);
  PX_SCOPED(px_stream) side = NULL;
  px_stream *home;
  double losses[2];
  OK(px_stream_new(&side, devices[0], 0));
  OK(px_stream_current(&home, devices[0]));
  OK(px_stream_set_current(side));
  train(losses, 2, 2, "SGD");
  OK(px_stream_set_current(home));
  no_races();
}

PX_TEST(gathered_parts_are_complete_on_the_host) {
  with_devices(2);
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) joined = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  px_tensor *parts[4];
  int count;
  px_scalar number;
  OK(px_ones(&x, (int64_t[]){4, 3}, 2, PX_FLOAT32, px_cpu(), false, false));
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_broadcast(&parts[0], x, devices, 2));
  OK(px_scatter_parts(&parts[2], &count, x, devices, 2, 0));
  OK(px_gather_parts(&joined, parts, 4, px_cpu(), 0));
  OK(px_sum(&sum, joined, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_tensor_item(&number, sum));
  CHECK_EQ(px_scalar_float(number), 36);
  OK(px_backward(
      1, &sum, NULL, false,
      false));  // accumulates the gradients of copies and joins those of parts on the home device
  px_release(sum), sum = NULL;
  OK(px_sum(&sum, px_tensor_grad(x), NULL, 0, false, PX_DTYPE_NONE));
  OK(px_tensor_item(&number, sum));
  CHECK_EQ(px_scalar_float(number), 36);
  for (int i = 0; i < 4; i++) px_release(parts[i]);
  no_races();
}

// ---- the example of the documentation: a side stream sums a tensor during its fill on the default
// stream

static void slow(void *argument) { usleep(20000); }

// The sum of 100 x 100 numbers drawn on the default stream, computed on a side stream.
static double sum_on_side_stream(bool wait) {
  PX_SCOPED(px_stream) side = NULL;
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  px_stream *home;
  px_scalar number;
  OK(px_stream_new(&side, devices[0], 0));
  OK(px_stream_default(&home, devices[0]));
  OK(px_zeros(&a, (int64_t[]){100, 100}, 2, PX_FLOAT32, devices[0], false, false));
  OK(px_device_synchronize(0));
  OK(px_stream_host_call(home, slow, NULL));
  px_site_set("example.py", 3);
  OK(px_normal_(a, 5, 0.5, NULL));
  if (wait) OK(px_stream_wait_stream(side, home));
  OK(px_stream_set_current(side));
  px_site_set("example.py", 5);
  OK(px_sum(&b, a, NULL, 0, false, PX_DTYPE_NONE));
  px_site_set(NULL, 0);
  OK(px_tensor_item(&number, b));
  OK(px_stream_set_current(home));
  OK(px_device_synchronize(0));
  return px_scalar_float(number);
}

PX_TEST(a_sum_without_a_wait_is_reported) {
  with_devices(1);
  double sum = sum_on_side_stream(false);
  CHECK(sum < 40000);  // wrong: the numbers were not drawn yet
  CHECK(px_race_count() > 0);
  const char *report = px_race_report(0);
  CHECK(strstr(report, "normal wrote") && strstr(report, "sum reads"));
  CHECK(strstr(report, "example.py:3") && strstr(report, "example.py:5"));
}

PX_TEST(a_sum_after_a_wait_is_not_reported) {
  with_devices(1);
  double sum = sum_on_side_stream(true);
  CHECK_NEAR(sum, 50000, 500);
  no_races();
}

PX_TEST(a_race_with_a_right_result_is_found) {
  with_devices(1);
  setenv("PHLOX_SIM_DELAY", "0", 1);
  PX_SCOPED(px_stream) side = NULL;
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  OK(px_stream_new(&side, devices[0], 0));
  OK(px_zeros(&a, (int64_t[]){4}, 1, PX_FLOAT32, devices[0], false, false));
  usleep(50000);  // the zeros are written, but unordered
  OK(px_stream_set_current(side));
  OK(px_sum(&b, a, NULL, 0, false, PX_DTYPE_NONE));
  CHECK(px_race_count() > 0);
  CHECK(strstr(px_race_report(0), "wait"));  // the missing call
}

PX_TEST(a_race_may_be_an_error) {
  with_devices(1);
  px_race_enable(1, true);
  PX_SCOPED(px_stream) side = NULL;
  PX_SCOPED(px_tensor) a = NULL;
  px_tensor *b = NULL;
  OK(px_stream_new(&side, devices[0], 0));
  OK(px_zeros(&a, (int64_t[]){4}, 1, PX_FLOAT32, devices[0], false, false));
  OK(px_stream_set_current(side));
  FAILS(px_sum(&b, a, NULL, 0, false, PX_DTYPE_NONE), PX_RUNTIME, "sum");
  CHECK(!b);
}

PX_TEST(memory_reused_on_another_stream_is_ordered) {
  with_devices(1);
  PX_SCOPED(px_stream) side = NULL;
  px_stream *home;
  OK(px_stream_new(&side, devices[0], 0));
  OK(px_stream_default(&home, devices[0]));
  for (int i = 0; i < 50; i++) {  // freed during a write and requested on another stream
    PX_SCOPED(px_tensor) t = NULL;
    OK(px_stream_set_current(i % 2 ? side : home));
    OK(px_randn(&t, (int64_t[]){1000}, 1, NULL, PX_FLOAT32, devices[0], false, false));
  }
  OK(px_stream_set_current(home));
  no_races();
}

PX_TEST(an_early_read_of_a_pinned_buffer_is_reported) {
  with_devices(1);
  PX_SCOPED(px_tensor) host = NULL;
  PX_SCOPED(px_tensor) t = NULL;
  px_stream *home;
  OK(px_stream_default(&home, devices[0]));
  OK(px_tensor_empty_pinned(&host, 1, (int64_t[]){4}, PX_FLOAT32));
  OK(px_zeros(&t, (int64_t[]){4}, 1, PX_FLOAT32, devices[0], false, false));
  OK(px_stream_host_call(home, slow, NULL));
  OK(px_copy_(host, t, true));
  PX_SCOPED(px_tensor) sum = NULL;
  OK(px_sum(&sum, host, NULL, 0, false, PX_DTYPE_NONE));  // on the host, immediately
  CHECK(px_race_count() > 0);
  OK(px_device_synchronize(0));
}
