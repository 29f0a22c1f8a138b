// SPDX-License-Identifier: Apache-2.0
// Mixed precision: the compute dtype of each op, nested regions, the cache of cast parameters,
// gradients through casts, and threads. On the CPU and on simulated devices.
#include "faults.h"

#include "ops_help.h"
#include "phlox/parallel.h"

#include <pthread.h>

// Returns the dtype of a result and releases it.
static px_dtype dtype_of(px_tensor *result) {
  px_dtype dtype = px_tensor_dtype(result);
  px_release(result);
  return dtype;
}
static px_tensor *square(px_device device, px_dtype dtype) {
  PX_SCOPED(px_tensor) t = NULL;
  px_tensor *made = NULL;
  int64_t sizes[2] = {3, 3};
  OK(px_tensor_from_data(&t, (const float[]){1, 2, 3, 4, 5, 6, 7, 8, 9}, 2, sizes, PX_FLOAT32,
                         px_cpu()));
  OK(px_to(&made, t, dtype, device, false, true));
  return made;
}
static px_tensor *parameter(px_device device) {
  px_tensor *t = square(device, PX_FLOAT32);
  OK(px_tensor_set_requires_grad(t, true));
  return t;
}
static px_dtype product(const px_tensor *a, const px_tensor *b) {
  px_tensor *c = NULL;
  OK(px_mm(&c, a, b));
  return dtype_of(c);
}

static void follows_the_policies(px_device device, px_dtype low) {
  px_device_type type = (px_device_type)device.type;
  bool cuda = type == PX_CUDA;
  PX_SCOPED(px_tensor) f = square(device, PX_FLOAT32);
  PX_SCOPED(px_tensor) h = square(device, low);
  PX_SCOPED(px_tensor) d = square(device, PX_FLOAT64);
  PX_SCOPED(px_tensor) i = square(device, PX_INT64);
  px_tensor *out = NULL;
  px_autocast before;
  OK(px_autocast_enter(&before, type, low, true));
  CHECK_EQ(product(f, h), low);
  CHECK_EQ(product(d, d), PX_FLOAT64);
  CHECK_EQ(product(i, i), PX_INT64);
  OK(px_exp(&out, h));
  CHECK_EQ(dtype_of(out), cuda ? PX_FLOAT32 : low);
  OK(px_mse_loss(&out, h, h, "mean", NULL));
  CHECK_EQ(dtype_of(out), PX_FLOAT32);
  OK(px_sum_all(&out, h, PX_DTYPE_NONE));
  CHECK_EQ(dtype_of(out), cuda ? PX_FLOAT32 : low);
  OK(px_sum_all(&out, h, low));
  CHECK_EQ(dtype_of(out), low);
  OK(px_addcmul(&out, h, h, f, px_int(1)));
  CHECK_EQ(dtype_of(out), PX_FLOAT32);
  OK(px_addcmul(&out, h, h, h, px_int(1)));
  CHECK_EQ(dtype_of(out), low);
  OK(px_add(&out, h, h, px_int(1)));
  CHECK_EQ(dtype_of(out), low);
  px_autocast_exit(before);
  CHECK_EQ(product(f, f), PX_FLOAT32);
}
PX_TEST(ops_follow_their_policies_on_the_cpu) {
  follows_the_policies(px_cpu(), PX_BFLOAT16);
  follows_the_policies(px_cpu(), PX_FLOAT16);
}
PX_TEST(ops_follow_their_policies_on_devices) {
  simulate(1);
  follows_the_policies(px_cuda(0), PX_FLOAT16);
  follows_the_policies(px_cuda(0), PX_BFLOAT16);
}

PX_TEST(a_region_applies_to_one_device_type) {
  simulate(1);
  PX_SCOPED(px_tensor) here = square(px_cpu(), PX_FLOAT32);
  PX_SCOPED(px_tensor) there = square(px_cuda(0), PX_FLOAT32);
  px_autocast before;
  OK(px_autocast_enter(&before, PX_CUDA, PX_DTYPE_NONE, true));
  CHECK_EQ(product(here, here), PX_FLOAT32);
  CHECK_EQ(product(there, there), PX_FLOAT16);
  px_autocast_exit(before);
}

PX_TEST(inplace_and_out_forms_are_not_autocast) {
  PX_SCOPED(px_tensor) a = square(px_cpu(), PX_FLOAT32);
  PX_SCOPED(px_tensor) to = square(px_cpu(), PX_FLOAT32);
  px_autocast before;
  OK(px_autocast_enter(&before, PX_CPU, PX_DTYPE_NONE, true));
  OK(px_matmul_out(to, a, a));
  OK(px_addmm_(to, a, a, px_int(1), px_int(1)));
  px_autocast_exit(before);
  CHECK_EQ(px_tensor_dtype(to), PX_FLOAT32);
}

PX_TEST(unsafe_ops_are_refused_on_devices) {
  simulate(1);
  PX_SCOPED(px_tensor) a = square(px_cuda(0), PX_FLOAT32);
  px_tensor *out = NULL;
  px_autocast before;
  OK(px_autocast_enter(&before, PX_CUDA, PX_FLOAT16, true));
  FAILS(px_binary_cross_entropy(&out, a, a, NULL, "mean"), PX_RUNTIME, "are unsafe to autocast.\n");
  px_autocast_exit(before);
}

PX_TEST(mixed_low_precision_dtypes_are_refused) {
  simulate(1);
  PX_SCOPED(px_tensor) a = square(px_cuda(0), PX_BFLOAT16);
  px_tensor *out = NULL;
  px_autocast before;
  OK(px_autocast_enter(&before, PX_CUDA, PX_FLOAT16, true));
  FAILS(px_atan2(&out, a, a), PX_RUNTIME, "Unexpected floating ScalarType");
  px_autocast_exit(before);
}

PX_TEST(regions_nest) {
  PX_SCOPED(px_tensor) a = square(px_cpu(), PX_FLOAT32);
  px_autocast first, second, third;
  OK(px_autocast_enter(&first, PX_CPU, PX_DTYPE_NONE, true));
  CHECK_EQ(product(a, a), PX_BFLOAT16);
  OK(px_autocast_enter(&second, PX_CPU, PX_FLOAT16, true));
  CHECK_EQ(product(a, a), PX_FLOAT16);
  OK(px_autocast_enter(&third, PX_CPU, PX_DTYPE_NONE, false));
  CHECK_EQ(product(a, a), PX_FLOAT32);
  px_autocast_exit(third);
  CHECK_EQ(product(a, a), PX_FLOAT16);
  px_autocast_exit(second);
  CHECK_EQ(product(a, a), PX_BFLOAT16);
  px_autocast_exit(first);
  CHECK_EQ(product(a, a), PX_FLOAT32);
  CHECK_EQ(px_autocast_get().dtype[PX_CPU], PX_BFLOAT16);
}

static px_status ignore(px_warning category, const char *text) { return PX_OK; }
static px_status as_error(px_warning category, const char *text) {
  PX_FAIL(PX_RUNTIME, "%s", text);
}
PX_TEST(unsupported_devices_and_dtypes_are_refused) {
  px_autocast before;
  FAILS(px_autocast_enter(&before, PX_META, PX_FLOAT16, true), PX_RUNTIME,
        "unsupported scalarType");
  FAILS(px_autocast_set_enabled(PX_META, true), PX_RUNTIME, "unknown device type for autocast");
  FAILS(px_autocast_set_enabled((px_device_type)9, true), PX_RUNTIME, "unknown device type");
  FAILS(px_autocast_set_dtype(PX_CUDA, PX_INT32), PX_TYPE, "floating-point dtype, but got int32");
  CHECK(!px_autocast_is_available(PX_META) && px_autocast_is_available(PX_CUDA));
  px_warning_set_sink(as_error);
  FAILS(px_autocast_enter(&before, PX_CPU, PX_FLOAT32, true), PX_RUNTIME,
        "CPU Autocast only supports dtypes of torch.bfloat16, torch.float16 currently.");
  CHECK_EQ(px_autocast_nest(0), 0);
  px_warning_set_sink(ignore);
  OK(px_autocast_enter(&before, PX_CPU, PX_FLOAT32, true));
  CHECK(!px_autocast_get().enabled[PX_CPU]);
  px_autocast_exit(before);
  bool enabled = false;
  OK(px_autocast_check(PX_CPU, PX_FLOAT32, &enabled));
  px_warning_set_sink(NULL);
}

// ---- gradients and the cache

static void check_gradient_dtype(px_device device) {
  PX_SCOPED(px_tensor) w = parameter(device);
  PX_SCOPED(px_tensor) x = square(device, PX_FLOAT32);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) loss = NULL;
  px_autocast before;
  OK(px_autocast_enter(&before, (px_device_type)device.type, PX_FLOAT16, true));
  OK(px_mm(&y, x, w));
  OK(px_sum_all(&loss, y, PX_FLOAT32));
  px_autocast_exit(before);
  CHECK_EQ(px_tensor_dtype(y), PX_FLOAT16);
  OK(px_backward(1, &loss, NULL, false, false));
  CHECK_EQ(px_tensor_dtype(px_tensor_grad(w)), PX_FLOAT32);
  IS(px_tensor_grad(w), 9, 12., 12., 12., 15., 15., 15., 18., 18., 18.);
}
PX_TEST(gradients_have_the_parameters_dtype) {
  check_gradient_dtype(px_cpu());
  simulate(1);
  check_gradient_dtype(px_cuda(0));
}

// Returns the cast node of the second operand of a product.
static px_node *cast_of(const px_tensor *x, const px_tensor *w) {
  px_node *node = NULL, *cast;
  int nr;
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_mm(&y, x, w));
  OK(px_tensor_grad_fn(&node, y));
  cast = px_retain(px_node_edge(node, 1, &nr));
  CHECK(cast && !strcmp(px_node_name(cast), "ToCopyBackward0"));
  return cast;
}

PX_TEST(a_parameter_is_cast_once_in_a_region) {
  PX_SCOPED(px_tensor) w = parameter(px_cpu());
  PX_SCOPED(px_tensor) x = square(px_cpu(), PX_BFLOAT16);
  px_autocast outer, inner;
  OK(px_autocast_enter(&outer, PX_CPU, PX_DTYPE_NONE, true));
  PX_SCOPED(px_node) first = cast_of(x, w);
  OK(px_autocast_enter(&inner, PX_CPU, PX_DTYPE_NONE, true));
  PX_SCOPED(px_node) second = cast_of(x, w);
  px_autocast_exit(inner);
  PX_SCOPED(px_node) third = cast_of(x, w);
  CHECK(first == second && second == third);
  OK(px_autocast_enter(&inner, PX_CPU, PX_FLOAT16, true));
  PX_SCOPED(px_node) other = cast_of(x, w);
  px_autocast_exit(inner);
  px_autocast_set_cache_enabled(false);
  PX_SCOPED(px_node) alone = cast_of(x, w);
  CHECK(other != first && alone != first);
  px_autocast_exit(outer);
  OK(px_autocast_enter(&outer, PX_CPU, PX_DTYPE_NONE, true));
  PX_SCOPED(px_node) later = cast_of(x, w);
  CHECK(later != first);
  px_autocast_clear_cache();
  PX_SCOPED(px_node) cleared = cast_of(x, w);
  CHECK(cleared != later);
  px_autocast_exit(outer);
}

PX_TEST(a_modified_parameter_is_cast_again) {
  PX_SCOPED(px_tensor) w = parameter(px_cpu());
  PX_SCOPED(px_tensor) x = square(px_cpu(), PX_FLOAT32);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) other = square(px_cpu(), PX_FLOAT32);
  px_autocast before;
  OK(px_autocast_enter(&before, PX_CPU, PX_DTYPE_NONE, true));
  OK(px_mm(&y, x, w));
  IS(y, 9, 30., 36., 42., 66., 81., 96., 102., 126., 150.);
  px_grad_set_enabled(false);
  OK(px_fill_(w, px_int(1)));
  px_grad_set_enabled(true);
  px_release(y);
  OK(px_mm(&y, x, w));
  IS(y, 9, 6., 6., 6., 15., 15., 15., 24., 24., 24.);
  OK(px_tensor_set_data(w, other));
  px_release(y);
  OK(px_mm(&y, x, w));
  IS(y, 9, 30., 36., 42., 66., 81., 96., 102., 126., 150.);
  px_autocast_exit(before);
}

PX_TEST(casts_cached_under_no_grad_are_not_reused_for_gradients) {
  PX_SCOPED(px_tensor) w = parameter(px_cpu());
  PX_SCOPED(px_tensor) x = square(px_cpu(), PX_FLOAT32);
  px_autocast before;
  OK(px_autocast_enter(&before, PX_CPU, PX_DTYPE_NONE, true));
  px_grad_set_enabled(false);
  CHECK_EQ(product(x, w), PX_BFLOAT16);
  px_grad_set_enabled(true);
  PX_SCOPED(px_node) cast = cast_of(x, w);
  px_autocast_exit(before);
}

PX_TEST(a_region_allows_several_backward_passes) {
  PX_SCOPED(px_tensor) w = parameter(px_cpu());
  PX_SCOPED(px_tensor) x = square(px_cpu(), PX_FLOAT32);
  px_autocast before;
  OK(px_autocast_enter(&before, PX_CPU, PX_DTYPE_NONE, true));
  for (int i = 0; i < 2; i++) {
    PX_SCOPED(px_tensor) y = NULL;
    PX_SCOPED(px_tensor) loss = NULL;
    OK(px_mm(&y, x, w));
    OK(px_sum_all(&loss, y, PX_DTYPE_NONE));
    OK(px_backward(1, &loss, NULL, false, false));
  }
  px_autocast_exit(before);
  IS(px_tensor_grad(w), 9, 24., 24., 24., 30., 30., 30., 36., 36., 36.);
}

// Enough parameters that the table grows.
PX_TEST(the_cache_is_emptied_when_the_region_ends) {
  enum { COUNT = 500 };
  static px_tensor *w[COUNT];
  PX_SCOPED(px_tensor) x = square(px_cpu(), PX_FLOAT32);
  for (int i = 0; i < COUNT; i++) w[i] = parameter(px_cpu());
  int64_t objects = px_live_objects("tensor");
  px_autocast before;
  OK(px_autocast_enter(&before, PX_CPU, PX_DTYPE_NONE, true));
  for (int i = 0; i < COUNT; i++) CHECK_EQ(product(x, w[i]), PX_BFLOAT16);
  int64_t cast = px_live_objects("tensor");
  CHECK(cast >= objects + COUNT);
  for (int i = 0; i < COUNT; i++) CHECK_EQ(product(x, w[i]), PX_BFLOAT16);
  CHECK_EQ(px_live_objects("tensor"), cast);
  px_autocast_exit(before);
  CHECK_EQ(px_live_objects("tensor"), objects);
  for (int i = 0; i < COUNT; i++) px_release(w[i]);
}

PX_TEST(a_failed_call_in_a_region_leaks_nothing) {
  PX_SCOPED(px_tensor) w = parameter(px_cpu());
  PX_SCOPED(px_tensor) x = square(px_cpu(), PX_FLOAT32);
  PX_SCOPED(px_tensor) h = square(px_cpu(), PX_BFLOAT16);
  bool failed = true;
  for (int64_t n = 1; failed; n++) {
    int64_t objects = px_live_objects(NULL);
    px_autocast before;
    px_tensor *y = NULL, *all = NULL, *many[40];
    for (int i = 0; i < 40; i++) many[i] = i % 2 ? x : h;
    OK(px_autocast_enter(&before, PX_CPU, PX_DTYPE_NONE, true));
    OK(px_fault_arm("alloc", n, false));
    failed = px_mm(&y, x, w) != PX_OK || px_stack(&all, many, 40, 0) != PX_OK;
    px_fault_disarm_all();
    px_release(y), px_release(all);
    CHECK_EQ(product(x, w), PX_BFLOAT16);
    px_autocast_exit(before);
    CHECK_EQ(px_live_objects(NULL), objects);
    if (failed) px_error_clear();
  }
}

// ---- threads

static void *product_elsewhere(void *tensor) {
  static px_dtype seen[2];
  seen[0] = product(tensor, tensor);
  px_autocast before;
  OK(px_autocast_enter(&before, PX_CPU, PX_FLOAT16, true));
  seen[1] = product(tensor, tensor);
  return seen;  // inside the region: its cache ends with the thread
}
PX_TEST(settings_are_per_thread) {
  PX_SCOPED(px_tensor) w = parameter(px_cpu());
  pthread_t thread;
  void *seen;
  px_autocast before;
  OK(px_autocast_enter(&before, PX_CPU, PX_DTYPE_NONE, true));
  int64_t objects = px_live_objects("tensor");
  CHECK(pthread_create(&thread, NULL, product_elsewhere, w) == 0);
  CHECK(pthread_join(thread, &seen) == 0);
  CHECK_EQ(((px_dtype *)seen)[0], PX_FLOAT32);
  CHECK_EQ(((px_dtype *)seen)[1], PX_FLOAT16);
  CHECK_EQ(product(w, w), PX_BFLOAT16);
  px_autocast_exit(before);
  CHECK_EQ(px_live_objects("tensor"), objects);
}

static void *product_with_settings(void *tensor_and_settings) {
  void **given = tensor_and_settings;
  static px_dtype seen;
  px_autocast_set(*(px_autocast *)given[1]);
  seen = product(given[0], given[0]);
  return &seen;
}
PX_TEST(settings_can_be_handed_to_another_thread) {
  PX_SCOPED(px_tensor) w = parameter(px_cpu());
  pthread_t thread;
  void *seen;
  px_autocast before;
  OK(px_autocast_enter(&before, PX_CPU, PX_FLOAT16, true));
  px_autocast settings = px_autocast_get();
  px_autocast_exit(before);
  void *given[] = {w, &settings};
  CHECK(pthread_create(&thread, NULL, product_with_settings, given) == 0);
  CHECK(pthread_join(thread, &seen) == 0);
  CHECK_EQ(*(px_dtype *)seen, PX_FLOAT16);
}

static px_status replica(int number, void *tensors) {
  px_tensor *x = ((px_tensor **)tensors)[number];
  CHECK_EQ(product(x, x), PX_FLOAT16);
  return PX_OK;
}
PX_TEST(replicas_inherit_the_callers_settings) {
  simulate(2);
  const px_device devices[2] = {px_cuda(0), px_cuda(1)};
  PX_SCOPED(px_tensor) a = square(devices[0], PX_FLOAT32);
  PX_SCOPED(px_tensor) b = square(devices[1], PX_FLOAT32);
  px_autocast before;
  OK(px_autocast_enter(&before, PX_CUDA, PX_DTYPE_NONE, true));
  OK(px_parallel_apply(2, devices, replica, (px_tensor *[]){a, b}));
  px_autocast_exit(before);
}

static px_status see(px_tensor **out, px_tensor *grad, void *context) {
  *(px_dtype *)context = product(grad, grad);
  return PX_OK;
}
PX_TEST(backward_threads_inherit_the_callers_settings) {
  simulate(2);
  PX_SCOPED(px_tensor) a = parameter(px_cuda(0));
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  PX_SCOPED(px_tensor) loss = NULL;
  px_dtype seen[2] = {PX_BOOL, PX_BOOL};
  int64_t id;
  OK(px_mul_scalar(&b, a, px_int(2)));
  OK(px_to_cuda(&c, b, px_cuda(1), false));
  OK(px_sum_all(&loss, c, PX_DTYPE_NONE));
  OK(px_tensor_add_hook(&id, b, see, &seen[0], NULL));
  OK(px_tensor_add_hook(&id, c, see, &seen[1], NULL));
  px_autocast before;
  OK(px_autocast_enter(&before, PX_CUDA, PX_DTYPE_NONE, true));
  OK(px_backward(1, &loss, NULL, false, false));
  px_autocast_exit(before);
  CHECK_EQ(seen[0], PX_FLOAT16);
  CHECK_EQ(seen[1], PX_FLOAT16);
}
