// SPDX-License-Identifier: Apache-2.0
// Graphs over several devices and streams. Nodes run on the calling thread, or on their device's
// worker if the graph spans several devices, on the stream of the forward op. The caller's current
// stream is ordered after the writes of backward. The race checker is on, so a missing dependency
// is an error. Simulated devices.
#include <pthread.h>

#include "autograd_helpers.h"
#include "phlox/memory.h"

static void find_backend(void) {
  char path[4096];
  built_path(path, sizeof path, "");
  setenv("PHLOX_BACKEND_PATH", path, 0);
}

static void open_devices(void) {
  find_backend();
  setenv("PHLOX_SIM_DEVICES", "2", 1);
  setenv("PHLOX_SIM_DELAY", "200", 1);
  setenv("PHLOX_BACKENDS", "sim", 1);
  if (px_device_count(PX_CUDA) < 2) SKIP("the simulated backend is not there");
  px_race_enable(1, true);
}

static px_tensor *on(int device, px_tensor *t) {
  px_tensor *moved = NULL;
  OK(px_to(&moved, t, PX_DTYPE_NONE, px_cuda(device), false, false));
  return moved;
}

// A leaf created on the device.
#define LEAF_ON(device, ...) needing_grad(moved_to(device, VECTOR(__VA_ARGS__)))
static px_tensor *moved_to(int device, px_tensor *source) {
  px_tensor *moved = on(device, source);
  px_release(source);
  return moved;
}

static px_stream *current(int device) {
  px_stream *stream = NULL;
  OK(px_stream_current(&stream, px_cuda(device)));
  return stream;
}

PX_TEST(gradients_of_a_device_leaf_are_on_the_device) {
  open_devices();
  PX_SCOPED(px_tensor) x = LEAF_ON(0, 2, 3), *y = NULL;
  OK(px_mul(&y, x, x));
  back(y);
  CHECK(px_device_equal(px_tensor_device(px_tensor_grad(x)), px_cuda(0)));
  CHECK_NEAR(at(px_tensor_grad(x), 1), 6, 0);
}

PX_TEST(gradients_of_a_layer_are_not_copied) {
  open_devices();
  PX_SCOPED(px_tensor) input = VECTOR(1, 2, 3), *x = NULL, *y = NULL;
  PX_SCOPED(px_tensor)
  moved = on(0, input), *weights = moved_to(0, VECTOR(1, 2, 3, 4, 5, 6)), *w = NULL;
  OK(px_reshape(&x, moved, (int64_t[]){1, 3}, 2));
  OK(px_reshape(&w, weights, (int64_t[]){2, 3}, 2));
  PX_SCOPED(px_tensor) weight = needing_grad(PX_MOVE(w)), *bias = LEAF_ON(0, 1, 2);
  OK(px_linear(&y, x, weight, bias));
  OK(px_fault_arm("copy", 1, true));  // any copy fails
  back(y);
  px_fault_disarm_all();
  CHECK_NEAR(at(px_tensor_grad(bias), 1), 1, 0);
  CHECK(px_tensor_is_contiguous(px_tensor_grad(weight)));
}

PX_TEST(a_graph_over_three_devices) {
  open_devices();
  PX_SCOPED(px_tensor) x = LEAF(2, 3), *y = NULL, *z = NULL;
  PX_SCOPED(px_tensor) first = on(0, x);
  CHECK_TEXT(maker(first), "ToCopyBackward0");
  OK(px_mul(&y, first, first));
  PX_SCOPED(px_tensor) second = on(1, y);
  OK(px_mul(&z, second, second));
  back(z);
  CHECK(px_tensor_device(px_tensor_grad(x)).type == PX_CPU);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 32, 0);
  CHECK_NEAR(at(px_tensor_grad(x), 1), 108, 0);
}

PX_TEST(gradients_of_two_devices_accumulate_in_a_leaf) {
  open_devices();
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *a = NULL, *b = NULL, *sum = NULL;
  PX_SCOPED(px_tensor) first = on(0, x), *second = on(1, x);
  OK(px_mul_scalar(&a, first, px_float(3)));
  OK(px_mul_scalar(&b, second, px_float(4)));
  PX_SCOPED(px_tensor) moved = on(0, b);
  OK(px_add(&sum, a, moved, px_int(1)));
  back(sum);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 7, 0);
}

PX_TEST(backward_of_a_side_stream_is_ordered) {
  open_devices();
  PX_SCOPED(px_tensor) x = LEAF_ON(0, 2, 3), *y = NULL, *z = NULL, *plus = NULL;
  PX_SCOPED(px_stream) side = NULL;
  px_stream *callers_stream = current(0);
  OK(px_stream_new(&side, px_cuda(0), 0));
  OK(px_stream_wait_stream(side, callers_stream));
  OK(px_stream_set_current(side));
  OK(px_mul(&y, x, x));
  OK(px_stream_set_current(callers_stream));
  OK(px_stream_wait_stream(callers_stream, side));
  OK(px_mul(&z, y, x));
  back(z);
  OK(px_add(&plus, px_tensor_grad(x), x, px_int(1)));  // on the caller's current stream
  CHECK_NEAR(at(plus, 0), 14, 0);
  CHECK_EQ(px_race_count(), 0);
}

static px_status note_stream(px_tensor **out, px_tensor *grad, void *context) {
  *(px_stream **)context = current(0);
  return PX_OK;
}

PX_TEST(a_hook_runs_on_the_stream_of_the_forward_op) {
  open_devices();
  PX_SCOPED(px_tensor) x = LEAF_ON(0, 2), *y = NULL;
  PX_SCOPED(px_stream) side = NULL;
  px_stream *callers_stream = current(0), *seen = NULL;
  int64_t id;
  OK(px_stream_new(&side, px_cuda(0), 0));
  OK(px_stream_wait_stream(side, callers_stream));
  OK(px_stream_set_current(side));
  OK(px_mul(&y, x, x));
  OK(px_tensor_add_hook(&id, y, note_stream, &seen, NULL));
  OK(px_stream_set_current(callers_stream));
  OK(px_stream_wait_stream(callers_stream, side));
  back(y);
  CHECK(seen == side);
  CHECK(current(0) == callers_stream);
}

static px_status note_thread(px_tensor **out, px_tensor *grad, void *context) {
  *(pthread_t *)context = pthread_self();
  return PX_OK;
}

// Returns the thread that runs the node of `t` in a backward call from `root`.
static pthread_t thread_of(px_tensor *t, px_tensor *root) {
  pthread_t seen = 0;
  int64_t id;
  OK(px_tensor_add_hook(&id, t, note_thread, &seen, NULL));
  back(root);
  return seen;
}

PX_TEST(a_graph_of_one_device_runs_on_the_calling_thread) {
  open_devices();
  PX_SCOPED(px_tensor) x = LEAF(2), *on_peer = on(1, x), *y = NULL;
  OK(px_mul(&y, on_peer, on_peer));
  CHECK(pthread_equal(thread_of(y, y), pthread_self()));
}

PX_TEST(a_graph_of_two_devices_runs_on_their_workers) {
  open_devices();
  PX_SCOPED(px_tensor) x = LEAF_ON(0, 2), *on_peer = on(1, x), *y = NULL;
  OK(px_mul(&y, on_peer, on_peer));
  CHECK(!pthread_equal(thread_of(y, y), pthread_self()));
}

PX_TEST(without_multithreading_all_nodes_run_on_the_calling_thread) {
  open_devices();
  PX_SCOPED(px_tensor) x = LEAF_ON(0, 2), *on_peer = NULL, *y = NULL, *z = NULL;
  px_stream *sides[2] = {NULL, NULL}, *before[2] = {current(0), current(1)};
  for (int i = 0; i < 2; i++) {
    OK(px_stream_new(&sides[i], px_cuda(i), 0));
    OK(px_stream_set_current(sides[i]));
  }
  on_peer = on(1, x);
  OK(px_mul(&y, on_peer, on_peer));
  for (int i = 0; i < 2; i++) {
    OK(px_stream_set_current(before[i]));
    OK(px_stream_wait_stream(before[i], sides[i]));
    px_release(sides[i]);
  }
  px_multithreading_set_enabled(false);
  CHECK(!px_multithreading_enabled());
  CHECK(pthread_equal(thread_of(y, y), pthread_self()));
  CHECK(current(0) == before[0] && current(1) == before[1] && px_device_peek() == 0);
  px_multithreading_set_enabled(true);
  OK(px_mul(&z, on_peer, on_peer));
  CHECK(!pthread_equal(thread_of(z, z), pthread_self()));
}

static px_status failing(px_tensor **in, int in_count, px_tensor *const *out, int out_count,
                         void *context) {
  PX_FAIL(PX_VALUE, "not on this device");
}

PX_TEST(backward_restores_the_callers_device_and_stream) {
  open_devices();
  PX_SCOPED(px_tensor) x = LEAF_ON(1, 2), *y = NULL, *bad = NULL;
  PX_SCOPED(px_stream) side = NULL, *mine = NULL;
  const px_function failure = {"BadBackward", failing, NULL, NULL};
  OK(px_stream_new(&side, px_cuda(1), 0));
  OK(px_stream_new(&mine, px_cuda(1), 0));
  OK(px_stream_set_current(side));
  OK(px_stream_wait_stream(side, mine));
  OK(px_mul(&y, x, x));
  OK(px_tensor_detach(&bad, x));
  OK(px_function_record(&failure, NULL, 1, &x, 1, &bad));
  OK(px_stream_set_current(mine));
  OK(px_stream_wait_stream(mine, side));
  back(y);
  FAILS(px_backward(1, &bad, NULL, false, false), PX_VALUE, "not on this device");
  CHECK(current(1) == mine);
  CHECK_EQ(px_device_peek(), 0);
}

PX_TEST(an_error_on_a_worker_is_returned_to_the_caller) {
  open_devices();
  const px_function bad = {"BadBackward", failing, NULL, NULL};
  PX_SCOPED(px_tensor) leaf = LEAF_ON(0, 1), *x = on(1, leaf), *y = NULL;
  OK(px_tensor_detach(&y, x));
  OK(px_function_record(&bad, NULL, 1, &x, 1, &y));
  FAILS(px_backward(1, &y, NULL, false, false), PX_VALUE, "not on this device");
  px_release(PX_MOVE(y));
  OK(px_mul(&y, x, x));
  back(y);  // the worker still runs
  CHECK_NEAR(at(px_tensor_grad(leaf), 0), 2, 0);
}

static px_status on_the_cpu(px_tensor **in, int in_count, px_tensor *const *out, int out_count,
                            void *context) {
  in[0] = VECTOR(1, 1);
  return PX_OK;
}

PX_TEST(a_gradient_on_a_wrong_device_is_refused) {
  open_devices();
  const px_function wrong = {"FnBackward", on_the_cpu, NULL, NULL};
  PX_SCOPED(px_tensor) x = LEAF_ON(0, 1, 2), *y = NULL, *g = VECTOR(1, 1);
  OK(px_tensor_detach(&y, x));
  OK(px_function_record(&wrong, NULL, 1, &x, 1, &y));
  FAILS(px_backward(1, &y, &g, false, false), PX_RUNTIME,
        "invalid gradient at index 0 - expected device cuda:0 but got cpu");
  PX_SCOPED(px_tensor) moved = on(0, g);
  FAILS(px_backward(1, &y, &moved, false, false), PX_RUNTIME,
        "Function FnBackward returned an invalid gradient at index 0 - expected device cuda:0 but "
        "got cpu");
}

static px_status inner_backward(px_tensor **out, px_tensor *grad, void *context) {
  px_tensor *x = context;
  PX_SCOPED(px_tensor) y = NULL;
  bool before = px_grad_enabled();
  px_grad_set_enabled(true);
  OK(px_mul(&y, x, x));
  PX_SCOPED(px_tensor) other = on(1, y);
  back(other);
  px_grad_set_enabled(before);
  return PX_OK;
}

PX_TEST(backward_inside_a_workers_backward) {
  open_devices();
  int64_t id;
  PX_SCOPED(px_tensor) leaf = LEAF_ON(1, 3), *x = on(0, leaf), *inner = LEAF_ON(0, 4);
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_mul(&y, x, x));
  OK(px_tensor_add_hook(&id, y, inner_backward, inner, NULL));
  back(y);
  CHECK_NEAR(at(px_tensor_grad(leaf), 0), 6, 0);
  CHECK_NEAR(at(px_tensor_grad(inner), 0), 8, 0);
}

static void *replica(void *leaf) {
  static int next;
  int device = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % 2;
  for (int i = 0; i < 20; i++) {
    px_tensor *moved = on(device, leaf), *y = NULL;
    OK(px_mul_scalar(&y, moved, px_float(1)));
    back(y);
    px_release(moved);
    px_release(y);
  }
  return NULL;
}

PX_TEST(replicas_in_threads_share_a_leaf) {
  open_devices();
  px_race_enable(0, false);  // the threads are not ordered with each other
  PX_SCOPED(px_tensor) x = LEAF(1);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, replica, x);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 80, 0);
}

PX_TEST(a_grad_of_another_device_cannot_be_assigned) {
  open_devices();
  PX_SCOPED(px_tensor) x = LEAF_ON(0, 1, 2), *g = VECTOR(1, 2);
  FAILS(px_tensor_set_grad(x, g), PX_RUNTIME,
        "attempting to assign a gradient with device type 'cpu' to a tensor with device type "
        "'cuda'. Please ensure that the gradient and the tensor are on the same device");
}
