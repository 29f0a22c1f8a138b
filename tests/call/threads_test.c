// SPDX-License-Identifier: Apache-2.0
// Scope of settings: per process or per thread, and inheritance by threads
// (docs/reference/threads.md).
#include "devices.h"

#include <pthread.h>

typedef struct seen {
  px_dtype dtype;
  px_device home, device;
  bool grad, inference, anomaly;
  int current, threads, edge, sync, race;
} seen;

static seen read_settings(void) {
  return (seen){.dtype = px_dtype_default(),
                .home = px_device_home(),
                .device = px_device_default(),
                .grad = px_grad_enabled(),
                .inference = px_inference_enabled(),
                .anomaly = px_anomaly_enabled(),
                .current = px_device_peek(),
                .threads = px_num_threads(),
                .edge = px_print_options_get().edgeitems,
                .sync = px_sync_debug_get(),
                .race = px_race_level()};
}

static void *read_settings_in_thread(void *settings) {
  *(seen *)settings = read_settings();
  return NULL;
}

static seen other_thread(void) {
  pthread_t thread;
  seen there;
  CHECK(pthread_create(&thread, NULL, read_settings_in_thread, &there) == 0);
  pthread_join(thread, NULL);
  return there;
}

PX_TEST(process_settings_apply_to_all_threads) {
  simulate(2);
  px_print_options options = px_print_options_get();
  options.edgeitems = 9;
  px_print_options_set(options);
  OK(px_dtype_set_default(PX_FLOAT64));
  OK(px_device_set_home(px_cuda(1)));
  OK(px_set_num_threads(3));
  OK(px_sync_debug_set(PX_SYNC_WARN));
  px_anomaly_set(true, true);
  px_race_enable(1, true);
  seen there = other_thread();
  CHECK_EQ(there.dtype, PX_FLOAT64);
  CHECK(px_device_equal(there.home, px_cuda(1)) && px_device_equal(there.device, px_cuda(1)));
  CHECK(there.anomaly && there.threads == 3 && there.edge == 9);
  CHECK(there.sync == PX_SYNC_WARN && there.race);
  OK(px_device_set_home(PX_DEVICE_NONE));
  CHECK(px_device_equal(px_device_default(), px_cpu()));
}

PX_TEST(settings_of_a_thread_do_not_apply_to_others) {
  simulate(2);
  OK(px_device_set(1));
  OK(px_device_set_default(px_cuda(1)));
  px_grad_set_enabled(false);
  px_inference_set_enabled(true);
  seen there = other_thread();
  CHECK(px_device_equal(there.device, px_cpu()) && there.current == 0);
  CHECK(there.grad && !there.inference);
}

PX_TEST(modes_are_saved_and_restored_exactly) {
  px_grad_set_enabled(true);
  px_inference_set_enabled(true);
  px_modes modes = px_modes_get();
  CHECK(modes.grad && modes.inference && modes.device.type < 0);
  px_modes_set((px_modes){false, false, px_cuda(0), px_autocast_get(), 0});
  CHECK(!px_grad_enabled() && px_device_equal(px_device_default(), px_cuda(0)));
  px_modes_set(modes);
  CHECK(!px_grad_enabled());
  px_inference_set_enabled(false);
  CHECK(px_grad_enabled());
  CHECK(px_device_equal(px_device_default(), px_cpu()));
}

// ---- threads of the library
PX_TEST(a_single_threaded_caller_has_one_thread) {
  OK(px_set_num_threads(3));
  px_set_single_threaded(true);
  CHECK_EQ(px_num_threads(), 1);
  CHECK_EQ(other_thread().threads, 3);
  px_set_single_threaded(false);
  CHECK_EQ(px_num_threads(), 3);
}

static px_status note_hook(px_tensor **out, px_tensor *grad, void *context) {
  ((seen *)context)[px_tensor_device(grad).index] = read_settings();
  return PX_OK;
}

PX_TEST(the_engine_inherits_the_callers_default_device) {
  simulate(2);
  seen there[2];
  int64_t id;
  px_tensor *leaves[2] = {NULL}, *sums[2] = {NULL};
  for (int i = 0; i < 2; i++) {
    const int64_t size = 4;
    OK(px_ones(&leaves[i], &size, 1, PX_DTYPE_NONE, px_cuda(i), false, true));
    OK(px_sum(&sums[i], leaves[i], NULL, 0, false, PX_DTYPE_NONE));
    OK(px_tensor_add_hook(&id, leaves[i], note_hook, there, NULL));
  }
  OK(px_device_set_default(px_cuda(1)));
  OK(px_backward(2, sums, NULL, false, false));
  for (int i = 0; i < 2; i++) {
    CHECK(px_device_equal(there[i].device, px_cuda(1)) && there[i].current == i);
    CHECK(!there[i].grad);
    px_release(leaves[i]), px_release(sums[i]);
  }
}

static px_status note_replica(int number, void *context) {
  ((seen *)context)[number] = read_settings();
  return PX_OK;
}

PX_TEST(replicas_inherit_the_grad_mode_and_set_their_device) {
  simulate(2);
  seen there[2];
  px_device devices[2] = {px_cuda(0), px_cuda(1)};
  px_grad_set_enabled(false);
  OK(px_device_set_default(px_cuda(1)));
  OK(px_parallel_apply(2, devices, note_replica, there));
  for (int i = 0; i < 2; i++) {
    CHECK(!there[i].grad && there[i].current == i);
    CHECK(px_device_equal(there[i].device, px_cpu()));
  }
}

// ---- threads of CPU kernels
// Work is in place: an element visited twice, or never, has a wrong value.
PX_TEST(any_number_of_threads_covers_each_element_once) {
  static const int64_t sizes[] = {40001, 65536, 262147, 1000003},
                       counts[] = {1, 2, 3, 7, 16, 63, 64, 80};
  const int64_t threads = px_num_threads();
  for (int i = 0; i < 4; i++) {
    PX_SCOPED(px_tensor) t = NULL;
    OK(px_zeros(&t, &sizes[i], 1, PX_FLOAT32, px_cpu(), false, false));
    for (int k = 0; k < 8; k++) {
      OK(px_set_num_threads(counts[k]));
      for (int turn = 0; turn < 5; turn++) OK(px_add_scalar_(t, px_int(1), px_int(1)));
      const float *at = px_tensor_data(t), wanted = (float)(5 * (k + 1));
      int64_t wrong = 0;
      for (int64_t j = 0; j < sizes[i]; j++) wrong += at[j] != wanted;
      CHECK_EQ(wrong, 0);
    }
  }
  OK(px_set_num_threads(threads));
}
