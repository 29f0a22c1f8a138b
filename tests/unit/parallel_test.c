// SPDX-License-Identifier: Apache-2.0
// Data parallelism over simulated devices: splitting of batches, gradients equal to those of one
// device, and errors of replicas.
#include "autograd/engine/graph.h"
#include "devices.h"

static px_device devices[8];

static void with_devices(int count) {
  simulate(count);
  for (int i = 0; i < count; i++) devices[i] = px_cuda(i);
}

static px_tensor *random_on(px_device device, int ndim, const int64_t *sizes) {
  PX_SCOPED(px_tensor) drawn = NULL;
  px_tensor *out = NULL;
  OK(px_randn(&drawn, sizes, ndim, NULL, PX_FLOAT32, px_cpu(), false, false));
  OK(px_to(&out, drawn, PX_DTYPE_NONE, device, false, false));
  return out;
}

static void release_all(px_tensor **tensors, int count) {
  for (int i = 0; i < count; i++) px_release(tensors[i]);
}

static bool equal(const px_tensor *a, const px_tensor *b, double tolerance) {
  float x[256], y[256];
  CHECK_EQ(px_tensor_numel(a), px_tensor_numel(b));
  CHECK(px_tensor_numel(a) <= 256);
  OK(px_tensor_read(a, x, (size_t)px_tensor_numel(a) * 4));
  OK(px_tensor_read(b, y, (size_t)px_tensor_numel(b) * 4));
  for (int64_t i = 0; i < px_tensor_numel(a); i++)
    if (!(fabsf(x[i] - y[i]) <= tolerance)) return false;
  return true;
}

// ---- scatter and gather

static void check_split(int64_t batch, int count, const int64_t *wanted, int parts) {
  PX_SCOPED(px_tensor) x = random_on(px_cpu(), 2, (int64_t[]){batch, 3});
  px_tensor *results[8];
  int got;
  OK(px_scatter_parts(results, &got, x, devices, count, 0));
  CHECK_EQ(got, parts);
  for (int i = 0; i < parts; i++) {
    CHECK_EQ(px_tensor_size(results[i], 0), wanted[i]);
    CHECK(px_device_equal(px_tensor_device(results[i]), devices[i]));
  }
  release_all(results, got);
}
#define CHECK_SPLIT(batch, count, ...) \
  check_split(batch, count, (const int64_t[]){__VA_ARGS__}, \
              (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

PX_TEST(a_batch_is_split_like_chunk) {
  with_devices(8);
  CHECK_SPLIT(30, 2, 15, 15);
  CHECK_SPLIT(10, 2, 5, 5);
  CHECK_SPLIT(30, 3, 10, 10, 10);
  CHECK_SPLIT(10, 3, 4, 4, 2);
  CHECK_SPLIT(30, 8, 4, 4, 4, 4, 4, 4, 4, 2);
  CHECK_SPLIT(10, 8, 2, 2, 2, 2, 2);  // fewer parts than devices
  CHECK_SPLIT(7, 2, 4, 3);
  CHECK_SPLIT(1, 8, 1);
}

PX_TEST(a_scalar_cannot_be_split) {
  with_devices(2);
  PX_SCOPED(px_tensor) x = random_on(px_cpu(), 0, (int64_t[]){0});
  px_tensor *results[8];
  int count;
  FAILS(px_scatter_parts(results, &count, x, devices, 2, 0), PX_RUNTIME,
        "chunk expects at least a 1-dimensional tensor");
}

PX_TEST(split_sizes_must_sum_to_the_dimension) {
  with_devices(2);
  PX_SCOPED(px_tensor) x = random_on(px_cpu(), 2, (int64_t[]){4, 3});
  px_tensor *results[2];
  FAILS(px_scatter_sizes(results, x, devices, (int64_t[]){1, 2}, 2, 0), PX_RUNTIME,
        "sizes that sum to 4, the size of dimension 0, but got a sum of 3");
  CHECK(!results[0] && !results[1]);
  FAILS(px_scatter_sizes(results, x, devices, (int64_t[]){-1, 5}, 2, 0), PX_RUNTIME,
        "length must be non-negative");
}

PX_TEST(device_counts_are_bounded) {
  with_devices(2);
  PX_SCOPED(px_tensor) x = random_on(px_cpu(), 1, (int64_t[]){4});
  px_tensor *results[2];
  int count;
  FAILS(px_scatter_parts(results, &count, x, devices, 0, 0), PX_VALUE,
        "1 to 64 devices, but got 0");
  FAILS(px_broadcast(results, x, devices, -1), PX_VALUE, "non-negative count of `results`, got -1");
  FAILS(px_broadcast(results, x, devices, 65), PX_VALUE, "0 to 64 devices, but got 65");
  FAILS(px_gather_parts(results, (px_tensor *[]){x, NULL}, 2, px_cpu(), 0), PX_TYPE,
        "input 1 of gather is missing");
}

PX_TEST(gather_inverts_scatter) {
  with_devices(3);
  for (int dim = 0; dim < 2; dim++) {
    PX_SCOPED(px_tensor) x = random_on(devices[0], 2, (int64_t[]){7, 5});
    PX_SCOPED(px_tensor) whole = NULL;
    px_tensor *parts[8];
    int count;
    OK(px_scatter_parts(parts, &count, x, devices, 3, dim));
    OK(px_gather_parts(&whole, parts, count, devices[1], dim));
    CHECK(px_device_equal(px_tensor_device(whole), devices[1]));
    CHECK_EQ(px_tensor_size(whole, dim), px_tensor_size(x, dim));
    CHECK(equal(x, whole, 0));
    release_all(parts, count);
  }
}

PX_TEST(gradients_flow_through_scatter_and_gather) {
  with_devices(2);
  PX_SCOPED(px_tensor) x = random_on(px_cpu(), 2, (int64_t[]){5, 2});
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) weight = random_on(devices[0], 2, (int64_t[]){5, 2});
  px_tensor *parts[8];
  int count;
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_scatter_parts(parts, &count, x, devices, 2, 0));
  OK(px_gather_parts(&y, parts, count, devices[0], 0));
  OK(px_backward(1, &y, &weight, false, false));
  CHECK(px_tensor_grad(x) && !px_tensor_is_cuda(px_tensor_grad(x)));
  CHECK(equal(px_tensor_grad(x), weight, 0));
  release_all(parts, count);
}

static int warnings;
static px_status count_warning(px_warning category, const char *text) {
  warnings += category == PX_WARN_USER && strstr(text, "all input tensors were scalars") != NULL;
  return PX_OK;
}

PX_TEST(gathering_scalars_warns_and_returns_a_vector) {
  with_devices(2);
  PX_SCOPED(px_tensor) a = random_on(devices[0], 0, (int64_t[]){0});
  PX_SCOPED(px_tensor) b = random_on(devices[1], 0, (int64_t[]){0});
  PX_SCOPED(px_tensor) both = NULL;
  px_warning_set_sink(count_warning);
  OK(px_gather_parts(&both, (px_tensor *[]){a, b}, 2, devices[0], 0));
  CHECK_EQ(px_tensor_ndim(both), 1);
  CHECK_EQ(px_tensor_size(both, 0), 2);
  CHECK_EQ(warnings, 1);
}

PX_TEST(broadcast_accumulates_the_gradients_on_the_source) {
  with_devices(4);
  PX_SCOPED(px_tensor) x = random_on(devices[0], 1, (int64_t[]){3});
  PX_SCOPED(px_tensor) sum = NULL;
  px_tensor *copies[4], *ones[4];
  float grad[3];
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_broadcast(copies, x, devices, 4));
  for (int i = 0; i < 4; i++) {
    CHECK(px_device_equal(px_tensor_device(copies[i]), devices[i]) && equal(copies[i], x, 0));
    OK(px_full(&ones[i], (int64_t[]){3}, 1, px_int(i + 1), PX_FLOAT32, devices[i], false, false));
  }
  OK(px_backward(4, copies, ones, false, false));
  OK(px_tensor_read(px_tensor_grad(x), grad, sizeof grad));
  CHECK_NEAR(grad[2], 1 + 2 + 3 + 4, 0);
  OK(px_reduce_add(&sum, ones, 4, devices[2]));
  CHECK(px_device_equal(px_tensor_device(sum), devices[2]));
  release_all(copies, 4), release_all(ones, 4);
}

PX_TEST(reduce_add_checks_its_operands) {
  with_devices(2);
  PX_SCOPED(px_tensor) a = random_on(devices[0], 1, (int64_t[]){1});
  PX_SCOPED(px_tensor) b = random_on(devices[1], 1, (int64_t[]){2});
  PX_SCOPED(px_tensor) host = random_on(px_cpu(), 1, (int64_t[]){1});
  px_tensor *sum = NULL;
  FAILS(px_reduce_add(&sum, (px_tensor *[]){a, b}, 2, PX_DEVICE_NONE), PX_VALUE,
        "input 1 has invalid size: got 2, but expected 1");
  FAILS(px_reduce_add(&sum, (px_tensor *[]){host, a}, 2, PX_DEVICE_NONE), PX_ASSERTION,
        "reduce_add expects all inputs to be on GPUs, but input 0 is on CPU");
  CHECK(!sum);
}

// ---- replicas

static px_module *net_on(px_device device) {
  PX_SCOPED(px_module) first = NULL;
  PX_SCOPED(px_module) relu = NULL;
  PX_SCOPED(px_module) second = NULL;
  px_module *net = NULL;
  px_manual_seed(1);
  OK(px_linear_new(&first, 5, 7));
  OK(px_relu_new(&relu));
  OK(px_linear_new(&second, 7, 2));
  OK(px_sequential_new(&net, (px_module *[]){first, relu, second}, 3));
  OK(px_module_to(net, PX_DTYPE_NONE, device, false));
  return net;
}

// Gradients of the mean of squares over `count` devices (0: without replicas).
static px_list *gradients(px_module *net, px_tensor *x, int count) {
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) square = NULL;
  PX_SCOPED(px_tensor) loss = NULL;
  PX_SCOPED(px_list) parameters = NULL;
  px_tensor *grads[4];
  px_list *out = NULL;
  OK(px_module_zero_grad(net));
  OK(px_data_parallel(&y, net, x, devices, count, PX_DEVICE_NONE, 0));
  OK(px_mul(&square, y, y));
  OK(px_mean(&loss, square, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_backward(1, &loss, NULL, false, false));
  OK(px_module_parameters(&parameters, net));
  for (int i = 0; i < 4; i++) {
    grads[i] = px_tensor_grad(px_list_get(parameters, i));
    CHECK(grads[i] && px_device_equal(px_tensor_device(grads[i]), devices[0]));
  }
  OK(px_list_new(&out, grads, 4));
  return out;
}

PX_TEST(gradients_match_one_device) {
  with_devices(8);
  PX_SCOPED(px_module) net = net_on(devices[0]);
  PX_SCOPED(px_tensor) x = random_on(devices[0], 2, (int64_t[]){11, 5});
  PX_SCOPED(px_list) wanted = gradients(net, x, 0);
  for (int count = 1; count <= 8; count++) {
    PX_SCOPED(px_list) got = gradients(net, x, count);
    for (int i = 0; i < 4; i++) CHECK(equal(px_list_get(wanted, i), px_list_get(got, i), 1e-6));
  }
}

PX_TEST(data_parallel_returns_the_modules_result) {
  with_devices(3);
  PX_SCOPED(px_module) net = net_on(devices[0]);
  PX_SCOPED(px_tensor) x = random_on(px_cpu(), 2, (int64_t[]){10, 5});
  PX_SCOPED(px_tensor) here = NULL;
  PX_SCOPED(px_tensor) alone = NULL;
  PX_SCOPED(px_tensor) shared = NULL;
  OK(px_to(&here, x, PX_DTYPE_NONE, devices[0], false, false));
  OK(px_module_call(&alone, net, here));
  OK(px_data_parallel(&shared, net, x, devices, 3, devices[2], 0));
  CHECK(px_device_equal(px_tensor_device(shared), devices[2]));
  CHECK(equal(alone, shared, 1e-6));
}

PX_TEST(replicas_are_differentiable_copies) {
  with_devices(2);
  PX_SCOPED(px_module) net = net_on(devices[0]);
  px_module *replicas[2];
  OK(px_replicate(replicas, net, devices, 2));
  for (int i = 0; i < 2; i++) {
    px_module_entry child, weight;
    CHECK(px_module_entry_find(replicas[i], "0", &child));
    CHECK(px_module_entry_find(child.module, "weight", &weight));
    CHECK(px_device_equal(px_tensor_device(weight.tensor), devices[i]));
    CHECK(!px_tensor_is_leaf(weight.tensor) && px_tensor_requires_grad(weight.tensor));
    px_release(replicas[i]);
  }
}

PX_TEST(gradients_of_replicas_reduce_early_on_side_streams) {
  with_devices(2);
  PX_SCOPED(px_module) net = net_on(devices[0]);
  px_module *replicas[2];
  px_module_entry child, weight;
  px_stream *current[2];
  px_node *node = NULL;
  for (int i = 0; i < 2; i++) OK(px_stream_current(&current[i], devices[i]));
  OK(px_replicate(replicas, net, devices, 2));
  CHECK(px_module_entry_find(replicas[1], "0", &child));
  CHECK(px_module_entry_find(child.module, "weight", &weight));
  OK(px_tensor_grad_fn(&node, weight.tensor));
  CHECK_TEXT(px_node_name(node), "BroadcastBackward");
  CHECK(node->stream && node->stream != current[0]);
  CHECK(px_node_sequence(node) == UINT64_MAX);
  for (int i = 0; i < 2; i++) {  // following calls use the program's streams again
    px_stream *now = NULL;
    OK(px_stream_current(&now, devices[i]));
    CHECK(now == current[i]);
    px_release(replicas[i]);
  }
}

PX_TEST(buffer_updates_of_replica_0_are_kept) {
  with_devices(2);
  PX_SCOPED(px_module) net = NULL;
  PX_SCOPED(px_tensor) x = random_on(devices[0], 2, (int64_t[]){6, 2});
  PX_SCOPED(px_tensor) y = NULL;
  px_module_entry seen;
  px_scalar count;
  OK(px_module_new(&net, px_module_kind_find("BatchNorm1d"), (px_value[8]){PX_I(2)}, NULL));
  OK(px_module_to(net, PX_DTYPE_NONE, devices[0], false));
  OK(px_data_parallel(&y, net, x, devices, 2, PX_DEVICE_NONE, 0));
  CHECK(px_module_entry_find(net, "num_batches_tracked", &seen));
  OK(px_tensor_item(&count, seen.tensor));
  CHECK_EQ(px_scalar_int(count), 1);
}

PX_TEST(parameters_must_be_on_the_first_device) {
  with_devices(2);
  PX_SCOPED(px_module) net = net_on(px_cpu());
  PX_SCOPED(px_tensor) x = random_on(px_cpu(), 2, (int64_t[]){4, 5});
  px_tensor *y = NULL;
  FAILS(px_data_parallel(&y, net, x, devices, 2, PX_DEVICE_NONE, 0), PX_RUNTIME,
        "module must have its parameters and buffers on device cuda:0 (device_ids[0]) but found "
        "one of them on device: cpu");
}

PX_TEST(an_error_in_a_replica_names_the_replica) {
  with_devices(2);
  PX_SCOPED(px_module) net = net_on(devices[0]);
  PX_SCOPED(px_tensor) x = random_on(px_cpu(), 2, (int64_t[]){4, 6});
  px_tensor *y = NULL;
  int64_t objects = px_live_objects(NULL);
  FAILS(px_data_parallel(&y, net, x, devices, 2, PX_DEVICE_NONE, 0), PX_RUNTIME,
        "Caught RuntimeError in replica 0 on device 0.\nOriginal error: addmm: mat1 and mat2 "
        "shapes cannot be multiplied (2x6 and 5x7)");
  CHECK(!y);
  CHECK_EQ(px_live_objects(NULL), objects);
}

typedef struct seen {
  int device[4];
  bool grad[4];
  px_stream *streams[4];
  int failing;
} seen;

static px_status record_thread_state(int i, void *context) {
  seen *s = context;
  PX_CHECK(i != s->failing, PX_VALUE, "boom");
  PX_TRY(px_device_current(&s->device[i]));
  s->grad[i] = px_grad_enabled();
  return px_stream_current(&s->streams[i], px_cuda(i));
}

PX_TEST(replica_threads_inherit_the_callers_settings) {
  with_devices(4);
  PX_SCOPED(px_stream) side = NULL;
  seen s = {.failing = -1};
  OK(px_stream_new(&side, devices[2], 0));
  OK(px_stream_set_current(side));
  px_grad_set_enabled(false);
  OK(px_parallel_apply(4, devices, record_thread_state, &s));
  for (int i = 0; i < 4; i++) CHECK(s.device[i] == i && !s.grad[i]);
  CHECK(s.streams[2] == side && s.streams[1] != side);
  px_grad_set_enabled(true);
  OK(px_parallel_apply(4, devices, record_thread_state, &s));
  CHECK(s.grad[3]);
}

PX_TEST(the_error_of_the_first_replica_is_returned) {
  with_devices(4);
  seen s = {.failing = 2};
  FAILS(px_parallel_apply(4, devices, record_thread_state, &s), PX_VALUE,
        "Caught ValueError in replica 2 on device 2.\nOriginal error: boom");
}

static void count_release(void *count) { __atomic_add_fetch((int *)count, 1, __ATOMIC_RELAXED); }
static px_status raise_foreign(int i, void *count) {
  return px_error_set_foreign(count, count_release, "boom");
}

PX_TEST(the_exceptions_of_all_replicas_are_released) {
  with_devices(4);
  int released = 0;
  FAILS(px_parallel_apply(4, devices, raise_foreign, &released), PX_FOREIGN, "boom");
  CHECK_EQ(released, 4);
}

PX_TEST(a_single_replica_runs_on_the_calling_thread) {
  with_devices(1);
  seen s = {.failing = 0};
  FAILS(px_parallel_apply(1, devices, record_thread_state, &s), PX_VALUE, "boom");
}
