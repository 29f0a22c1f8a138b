// SPDX-License-Identifier: Apache-2.0
// Launch batching: the launches of each backend call, the order of dependent launches, and the
// state after a failure.
#include <math.h>

#include "device/core/state.h"
#include "devices.h"
#include "phlox/phlox.h"

// The backend, with a function that records the number of launches per call.
enum { LISTS = 16 };
static px_backend recording_backend;
static int lists[LISTS], list_count;
static px_status launch_all(void *stream, const px_launch *const *launches, int count) {
  lists[list_count++ % LISTS] = count;
  for (int i = 0; i < count; i++) PX_TRY(recording_backend.launch(stream, launches[i]));
  return PX_OK;
}
static void record_batches(void) {
  simulate(2);
  OK(px_device_init());
  recording_backend = *px__rt.backend;
  recording_backend.launch_all = launch_all;
  px__rt.backend = &recording_backend;
}

enum { CALLS = 100, ADD_ARGS = 3 };
static px_tensor *numbers[CALLS];
static void *sums[CALLS];
static px_value args[CALLS * ADD_ARGS];

// Tensors of two elements, i and i + 1.
static void make_numbers(px_device device, int count) {
  for (int i = 0; i < count; i++) {
    float values[] = {(float)i, (float)i + 1};
    OK(px_tensor_from_data(&numbers[i], values, 1, (int64_t[]){2}, PX_FLOAT32, device));
  }
}
static void add_to_each(px_tensor *other, int count) {
  for (int i = 0; i < count; i++) {
    args[i * ADD_ARGS] = PX_T(numbers[i]), args[i * ADD_ARGS + 1] = PX_T(other);
    args[i * ADD_ARGS + 2] = PX_S(px_int(1));
  }
}
static void release_all(int sum_count) {
  for (int i = 0; i < sum_count; i++) px_release(sums[i]);
  for (int i = 0; i < CALLS; i++) px_release(numbers[i]);
}
static float second(const px_tensor *t) {
  float values[2];
  OK(px_tensor_read(t, values, sizeof values));
  return values[1];
}

PX_TEST(calls_are_batched_on_a_device) {
  int done;
  record_batches();
  for (int on_device = 0; on_device < 2; on_device++) {
    make_numbers(on_device ? px_cuda(1) : px_cpu(), CALLS);
    add_to_each(numbers[1], CALLS);
    OK(px_op_call_batch(px_op_find("add"), PX_CALL_NEW, CALLS, args, sums, &done));
    CHECK_EQ(done, CALLS);
    for (int i = 0; i < CALLS; i++) CHECK_EQ(second(sums[i]), i + 3);
    release_all(CALLS);
    CHECK_EQ(list_count, on_device ? 3 : 0);
  }
  CHECK(lists[0] == 48 && lists[1] == 48 && lists[2] == 4);
}

PX_TEST(dependent_calls_split_the_batch) {
  int done;
  record_batches();
  make_numbers(px_cuda(0), CALLS);
  add_to_each(numbers[3], 8);
  OK(px_op_call_batch(px_op_find("add"), PX_CALL_INPLACE, 8, args, sums, &done));
  // All eight are incremented by the fourth: three read it before, then it doubles, then four read
  // the new value.
  for (int i = 0; i < 8; i++) CHECK_EQ(second(numbers[i]), i < 3 ? i + 5 : i == 3 ? 8 : i + 9);
  CHECK(list_count == 3 && lists[0] == 3 && lists[1] == 1 && lists[2] == 4);
  release_all(8);
}

PX_TEST(overlapping_views_split_the_batch) {
  int done;
  record_batches();
  make_numbers(px_cuda(0), CALLS);
  for (int i = 1; i < 4; i++) {
    px_release(numbers[i]);
    OK(px_tensor_detach(&numbers[i], numbers[0]));
  }
  add_to_each(numbers[9], 4);
  OK(px_op_call_batch(px_op_find("add"), PX_CALL_INPLACE, 4, args, sums, &done));
  CHECK_EQ(second(numbers[0]), 41);
  CHECK_EQ(list_count, 4);
  release_all(4);
}

PX_TEST(a_failed_call_ends_the_batch) {
  px_tensor *odd = NULL;
  int done;
  record_batches();
  for (int on_device = 0; on_device < 2; on_device++) {
    px_device device = on_device ? px_cuda(0) : px_cpu();
    make_numbers(device, CALLS);
    OK(px_zeros(&odd, (int64_t[]){3}, 1, PX_FLOAT32, device, false, false));
    add_to_each(numbers[50], CALLS);
    args[60 * ADD_ARGS + 1] = PX_T(odd);
    FAILS(px_op_call_batch(px_op_find("add"), PX_CALL_NEW, CALLS, args, sums, &done), PX_RUNTIME,
          "The size of tensor a (2) must match the size of tensor b (3)");
    CHECK_EQ(done, 60);
    CHECK_EQ(second(sums[59]), 111);
    px_release(odd);
    release_all(done);
  }
  CHECK_EQ(px_live_objects("tensor"), 0);
}

PX_TEST(failures_leak_nothing) {
  static const char *const points[] = {"alloc", "device.alloc", "launch"};
  record_batches();
  make_numbers(px_cuda(0), 20);
  add_to_each(numbers[1], 20);
  int64_t held = px_live_objects("tensor");
  for (int i = 0; i < 3; i++) {
    px_status status = PX_RUNTIME;
    for (int64_t n = 1; status != PX_OK; n++) {
      int done = -1;
      OK(px_fault_arm(points[i], n, false));
      status = px_op_call_batch(px_op_find("add"), PX_CALL_NEW, 20, args, sums, &done);
      px_fault_disarm_all();
      CHECK(status == PX_OK ? done == 20 : done >= 0 && done < 20);
      for (int k = 0; k < done; k++) CHECK_EQ(second(sums[k]), k + 3);
      for (int k = 0; k < done; k++) px_release(sums[k]);
      CHECK_EQ(px_live_objects("tensor"), held);
    }
  }
  OK(px_device_synchronize(0));
}

PX_TEST(a_fault_names_its_call) {
  const px_op *op = px_op_find("index_select");
  px_tensor *index = NULL;
  int done;
  record_batches();
  make_numbers(px_cuda(0), 3);
  OK(px_tensor_from_data(&index, (int64_t[]){7}, 1, (int64_t[]){1}, PX_INT64, px_cuda(0)));
  for (int i = 0; i < 3; i++) {
    args[i * 3] = PX_T(numbers[i]), args[i * 3 + 1] = PX_I(0), args[i * 3 + 2] = PX_T(index);
  }
  OK(px_op_call_batch(op, PX_CALL_NEW, 3, args, sums, &done));
  CHECK_EQ(done, 3);
  FAILS(px_device_synchronize(0), PX_INDEX, "index_select");
  px_release(index);
}

PX_TEST(an_optimizer_step_is_few_launches) {
  enum { PARAMETERS = 40 };
  PX_SCOPED(px_optimizer) o = NULL;
  record_batches();
  make_numbers(px_cuda(0), CALLS);
  for (int i = 0; i < PARAMETERS; i++) {
    OK(px_tensor_set_requires_grad(numbers[i], true));
    OK(px_tensor_set_grad(numbers[i], numbers[PARAMETERS + i]));
  }
  OK(px_adam_new(&o, numbers, PARAMETERS, .lr = 0.5));
  OK(px_optimizer_step(o));
  CHECK(list_count == 2 && lists[0] == 32 && lists[1] == 8);
  for (int i = 0; i < PARAMETERS; i++) CHECK_NEAR(second(numbers[i]), i + 0.5, 1e-6);
  release_all(0);
}

PX_TEST(launches_between_begin_and_end_are_batched) {
  record_batches();
  make_numbers(px_cuda(0), 5);
  px_launch_batch_begin();
  for (int i = 0; i < 4; i++) OK(px_mul_scalar_(numbers[i], px_float(2)));
  OK(px_device_synchronize(0));  // synchronization flushes the batch
  OK(px_add_(numbers[4], numbers[3], px_int(1)));
  CHECK_EQ(second(numbers[4]), 13);
  OK(px_neg_(numbers[0]));
  OK(px_launch_batch_end(PX_OK));
  CHECK_EQ(second(numbers[0]), -2);
  CHECK(list_count == 3 && lists[0] == 4 && lists[1] == 1 && lists[2] == 1);
  px_launch_batch_begin();
  OK(px_neg_(numbers[0]));
  CHECK_EQ(px_launch_batch_end(PX_INDEX), PX_INDEX);
  CHECK_EQ(second(numbers[0]), 2);
  release_all(0);
}

PX_TEST(copies_of_parts_are_batched) {
  enum { MANY = 20 };
  PX_SCOPED(px_tensor) joined = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  float values[2 * MANY];
  record_batches();
  make_numbers(px_cuda(0), MANY);
  OK(px_cat(&joined, numbers, MANY, 0));
  OK(px_stack(&rows, numbers, MANY, 0));
  CHECK(list_count == 2 && lists[0] == MANY && lists[1] == MANY);
  OK(px_tensor_read(joined, values, sizeof values));
  for (int i = 0; i < 2 * MANY; i++) CHECK_EQ(values[i], i / 2 + i % 2);
  OK(px_tensor_read(rows, values, sizeof values));
  for (int i = 0; i < 2 * MANY; i++) CHECK_EQ(values[i], i / 2 + i % 2);
  release_all(0);
}

PX_TEST(gradients_are_clipped_in_few_launches) {
  enum { PARAMETERS = 40 };
  PX_SCOPED(px_tensor) total = NULL;
  double sum = 0;
  record_batches();
  make_numbers(px_cuda(0), CALLS);
  for (int i = 0; i < PARAMETERS; i++) {
    OK(px_tensor_set_requires_grad(numbers[i], true));
    OK(px_tensor_set_grad(numbers[i], numbers[PARAMETERS + i]));
    sum += pow(PARAMETERS + i, 2) + pow(PARAMETERS + i + 1, 2);
  }
  OK(px_clip_grad_norm(&total, numbers, PARAMETERS, 1, 2, false));
  CHECK(list_count == 3 && lists[0] == PARAMETERS && lists[1] == PARAMETERS &&
        lists[2] == PARAMETERS);
  for (int i = 0; i < PARAMETERS; i++)
    CHECK_NEAR(second(numbers[PARAMETERS + i]), (PARAMETERS + i + 1) / sqrt(sum), 1e-6);
  release_all(0);
}

PX_TEST(missing_arguments_are_errors) {
  int done = 7;
  FAILS(px_op_call_batch(px_op_find("no such op"), PX_CALL_NEW, 0, NULL, NULL, &done), PX_ATTRIBUTE,
        "no op 'no such op'");
  CHECK_EQ(done, 0);
  FAILS(px_op_call_batch(px_op_find("add"), PX_CALL_NEW, 1, NULL, sums, &done), PX_TYPE, "`args`");
  OK(px_op_call_batch(px_op_find("add"), PX_CALL_NEW, 0, NULL, NULL, &done));
}
