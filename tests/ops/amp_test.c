// SPDX-License-Identifier: Apache-2.0
// Gradient scaling in mixed precision: unscaling, detection of inf and NaN, and updates of the
// scale. On the CPU and on simulated devices.
#include "faults.h"

#include "ops_help.h"

static px_tensor *placed(px_device device, px_tensor *source, px_dtype dtype) {
  px_tensor *made = NULL;
  OK(px_to(&made, source, dtype, device, false, true));
  px_release(source);
  return made;
}
static px_tensor *number(px_device device, double value, px_dtype dtype) {
  px_tensor *made = NULL;
  OK(px_scalar_tensor(&made, px_float(value), dtype, device, false, false));
  return made;
}

static void check_unscale(px_device device, px_dtype dtype) {
  PX_SCOPED(px_tensor) found = number(device, 0, PX_FLOAT32);
  PX_SCOPED(px_tensor) by = number(device, 0.5, PX_FLOAT32);
  PX_SCOPED(px_tensor) good = placed(device, floats(3, 2., -4., 0.5), dtype);
  PX_SCOPED(px_tensor) bad = placed(device, floats(3, 2., -INFINITY, 4.), dtype);
  PX_SCOPED(px_tensor) lost = placed(device, floats(1, NAN), dtype);
  uint64_t version = px_tensor_version(good);
  OK(px_amp_unscale(1, &good, found, by));
  IS(good, 3, 1., -2., 0.25);
  IS(found, 1, 0.);
  CHECK(px_tensor_version(good) > version);
  OK(px_amp_unscale(2, (px_tensor *[]){good, bad}, found, by));
  IS(good, 3, 0.5, -1., 0.125);
  IS(found, 1, 1.);
  OK(px_zero_(found));
  OK(px_amp_unscale(1, &lost, found, by));
  IS(found, 1, 1.);
  OK(px_amp_unscale(0, NULL, found, by));
}
PX_TEST(gradients_are_unscaled_and_inf_or_nan_is_found) {
  const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16};
  simulate(1);
  for (int i = 0; i < 4; i++) {
    check_unscale(px_cpu(), dtypes[i]);
    check_unscale(px_cuda(0), dtypes[i]);
  }
}

// Elements are finite before scaling and overflow by it: the step is not skipped.
PX_TEST(elements_are_checked_before_scaling) {
  PX_SCOPED(px_tensor) found = number(px_cpu(), 0, PX_FLOAT32);
  PX_SCOPED(px_tensor) by = number(px_cpu(), 1e5, PX_FLOAT32);
  PX_SCOPED(px_tensor) grad = floats(1, 1e38);
  OK(px_amp_unscale(1, &grad, found, by));
  IS(found, 1, 0.);
}

PX_TEST(gradients_of_any_strides_and_size_are_unscaled) {
  PX_SCOPED(px_tensor) found = number(px_cpu(), 0, PX_FLOAT32);
  PX_SCOPED(px_tensor) by = number(px_cpu(), 2, PX_FLOAT32);
  PX_SCOPED(px_tensor) grad = matrix();
  PX_SCOPED(px_tensor) transposed = NULL;
  PX_SCOPED(px_tensor) large = NULL;
  PX_SCOPED(px_tensor) last = NULL;
  PX_SCOPED(px_tensor) none = NULL;
  int64_t size = 200000, nothing = 0;
  OK(px_transpose(&transposed, grad, 0, 1));
  OK(px_full(&large, &size, 1, px_int(1), PX_FLOAT32, PX_DEVICE_NONE, false, false));
  OK(px_tensor_empty(&none, 1, &nothing, PX_FLOAT32, px_cpu()));
  OK(px_amp_unscale(3, (px_tensor *[]){transposed, large, none}, found, by));
  IS(grad, 6, 0., 2., 4., 6., 8., 10.);
  IS(found, 1, 0.);
  OK(px_select(&last, large, 0, size - 1));
  IS(last, 1, 2.);
  OK(px_fill_(last, px_float(INFINITY)));
  OK(px_amp_unscale(1, &large, found, by));
  IS(found, 1, 1.);
}

static void check_update(px_device device) {
  PX_SCOPED(px_tensor) scale = number(device, 8, PX_FLOAT32);
  PX_SCOPED(px_tensor) tracker = number(device, 0, PX_INT32);
  PX_SCOPED(px_tensor) good = number(device, 0, PX_FLOAT32);
  PX_SCOPED(px_tensor) bad = number(device, 2, PX_FLOAT32);
  const bool finite[] = {true, true, false, true, true, true, false, false};
  const double scales[] = {8, 16, 4, 4, 8, 8, 2, 0.5}, counts[] = {1, 0, 0, 1, 0, 1, 0, 0};
  for (int i = 0; i < 8; i++) {
    OK(px_amp_update_scale(scale, tracker, finite[i] ? good : bad, 2, 0.25, 2));
    IS(scale, 1, scales[i]);
    IS(tracker, 1, counts[i]);
  }
}
PX_TEST(the_scale_grows_after_finite_steps_and_shrinks_otherwise) {
  check_update(px_cpu());
  simulate(1);
  check_update(px_cuda(0));
}

PX_TEST(the_scale_does_not_grow_to_infinity) {
  PX_SCOPED(px_tensor) scale = number(px_cpu(), 3e38, PX_FLOAT32);
  PX_SCOPED(px_tensor) tracker = number(px_cpu(), 0, PX_INT32);
  PX_SCOPED(px_tensor) good = number(px_cpu(), 0, PX_FLOAT32);
  OK(px_amp_update_scale(scale, tracker, good, 2, 0.5, 1));
  IS(scale, 1, (double)3e38f);
}

PX_TEST(mismatched_sizes_and_dtypes_are_refused) {
  PX_SCOPED(px_tensor) one = number(px_cpu(), 1, PX_FLOAT32);
  PX_SCOPED(px_tensor) wide = number(px_cpu(), 1, PX_FLOAT64);
  PX_SCOPED(px_tensor) count = number(px_cpu(), 0, PX_INT32);
  PX_SCOPED(px_tensor) integers = longs(2, 1, 2);
  PX_SCOPED(px_tensor) two = floats(2, 1., 2.);
  FAILS(px_amp_unscale(1, &two, two, one), PX_RUNTIME, "found_inf must be a 1-element tensor.");
  FAILS(px_amp_unscale(1, &two, one, two), PX_RUNTIME, "inv_scale must be a 1-element tensor.");
  FAILS(px_amp_unscale(1, &two, wide, one), PX_RUNTIME, "found_inf must be a float tensor.");
  FAILS(px_amp_unscale(1, &two, one, wide), PX_RUNTIME, "inv_scale must be a float tensor.");
  FAILS(px_amp_unscale(1, &integers, one, one), PX_UNIMPLEMENTED,
        "\"_amp_foreach_non_finite_check_and_unscale_cpu\" not implemented for 'Long'");
  FAILS(px_amp_unscale(1, (px_tensor *[]){NULL}, one, one), PX_TYPE, "gradient 0 is missing");
  FAILS(px_amp_update_scale(one, one, one, 2, 0.5, 1), PX_RUNTIME,
        "growth_tracker must be an int tensor.");
  FAILS(px_amp_update_scale(two, count, one, 2, 0.5, 1), PX_RUNTIME,
        "current_scale must be a 1-element tensor.");
  FAILS(px_amp_update_scale(wide, count, one, 2, 0.5, 1), PX_RUNTIME,
        "current_scale must be a float tensor.");
  FAILS(px_amp_update_scale(one, count, wide, 2, 0.5, 1), PX_RUNTIME,
        "found_inf must be a float tensor.");
  IS(two, 2, 1., 2.);
  IS(one, 1, 1.);
  simulate(1);
  PX_SCOPED(px_tensor) elsewhere = number(px_cuda(0), 0, PX_FLOAT32);
  FAILS(px_amp_unscale(1, &two, elsewhere, one), PX_RUNTIME, "on the same device");
}

// True if the fault was reached. In this case nothing has changed.
static bool fails_at(const char *point, int64_t n) {
  PX_SCOPED(px_tensor) found = number(px_cuda(0), 0, PX_FLOAT32);
  PX_SCOPED(px_tensor) by = number(px_cuda(0), 0.5, PX_FLOAT32);
  PX_SCOPED(px_tensor) grad = placed(px_cuda(0), floats(2, 2., 4.), PX_FLOAT16);
  int64_t objects = px_live_objects(NULL);
  OK(px_fault_arm(point, n, false));
  bool failed = px_amp_unscale(1, &grad, found, by) != PX_OK;
  px_fault_disarm_all();
  CHECK_EQ(px_live_objects(NULL), objects);
  if (failed) px_error_clear();
  IS(grad, 2, failed ? 2. : 1., failed ? 4. : 2.);
  return failed;
}
PX_TEST(a_failed_unscale_changes_nothing) {
  simulate(1);
  for (int64_t n = 1; fails_at("alloc", n); n++)
    ;
  CHECK(fails_at("launch", 1));
  CHECK(!fails_at("launch", 2));
}
