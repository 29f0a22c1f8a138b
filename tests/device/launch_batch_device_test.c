// SPDX-License-Identifier: Apache-2.0
// Batched launches: the results equal those of the CPU and of single launches, for all sizes and
// alignments.
#include "device_help.h"
#include "phlox/phlox.h"

// Enough tensors for several launches. Sizes: empty, one element, less than a vector, vectors with
// a tail, and several parts.
enum { MANY = 60 };
static int64_t size_of(int i) {
  static const int64_t sizes[] = {1, 5, 0, 4096, 1023, 3, 30001, 768, 2049, 64};
  return sizes[i % 10];
}

// Each third tensor begins in the middle of a vector.
static px_tensor *numbers(int i, px_dtype dtype) {
  PX_SCOPED(px_tensor) line = NULL;
  PX_SCOPED(px_tensor) wave = NULL;
  px_tensor *part = NULL, *out = NULL;
  int64_t shift = i % 3 == 2;
  OK(px_arange(&line, px_float(i), px_float((double)(i + size_of(i) + shift)), px_float(1),
               PX_FLOAT32, px_cpu(), false, false));
  OK(px_sin(&wave, line));
  OK(px_narrow(&part, wave, 0, shift, size_of(i)));
  OK(px_to(&out, part, dtype, PX_DEVICE_NONE, false, true));
  px_release(part);
  return out;
}
static px_tensor *on_device(int i, px_dtype dtype) {
  PX_SCOPED(px_tensor) own = numbers(i, dtype);
  PX_SCOPED(px_tensor) storage = NULL;
  px_tensor *part = NULL;
  int64_t shift = i % 3 == 2, n = px_tensor_numel(own);
  OK(px_empty(&storage, (int64_t[]){n + shift}, 1, dtype, px_cuda(0), false, false, NULL));
  OK(px_narrow(&part, storage, 0, shift, n));
  OK(px_copy_(part, own, false));
  return part;
}

typedef px_status (*each_fn)(px_tensor *x, const px_tensor *y, const px_tensor *number);
static px_status multiply(px_tensor *x, const px_tensor *y, const px_tensor *number) {
  return px_mul_(x, number);
}
static px_status add(px_tensor *x, const px_tensor *y, const px_tensor *number) {
  return px_add_(x, y, px_float(0.5));
}
static px_status add_product(px_tensor *x, const px_tensor *y, const px_tensor *number) {
  return px_addcmul_(x, y, y, px_float(2));
}
static px_status negate(px_tensor *x, const px_tensor *y, const px_tensor *number) {
  return px_neg_(x);
}
static px_status copy(px_tensor *x, const px_tensor *y, const px_tensor *number) {
  return px_copy_(x, y, false);
}
static px_status clear(px_tensor *x, const px_tensor *y, const px_tensor *number) {
  return px_zero_(x);
}

static bool same(const char *name, each_fn each, px_dtype dtype, px_dtype other) {
  PX_SCOPED(px_tensor) number = NULL;
  PX_SCOPED(px_tensor) far_number = NULL;
  px_tensor *x[MANY], *device_x[MANY], *y[MANY], *far_y[MANY];
  bool good = true;
  OK(px_scalar_tensor(&number, px_float(0.75), dtype, px_cpu(), false, false));
  far_number = to_device(number);
  for (int i = 0; i < MANY; i++) {
    x[i] = numbers(i, dtype), device_x[i] = on_device(i, dtype);
    y[i] = numbers(i + 10, other), far_y[i] = on_device(i + 10, other);
  }
  px_launch_batch_begin();
  for (int i = 0; i < MANY; i++) OK(each(device_x[i], far_y[i], far_number));
  OK(px_launch_batch_end(PX_OK));
  for (int i = 0; i < MANY; i++) {
    OK(each(x[i], y[i], number));
    good &= agrees(name, x[i], device_x[i], tolerance_of(dtype));
    px_release(x[i]), px_release(device_x[i]), px_release(y[i]), px_release(far_y[i]);
  }
  return good;
}

PX_TEST(batched_updates_equal_single_updates) {
  static const struct {
    const char *name;
    each_fn each;
  } cases[] = {{"mul", multiply}, {"add", add},   {"addcmul", add_product},
               {"neg", negate},   {"copy", copy}, {"zero", clear}};
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_BFLOAT16, PX_FLOAT64, PX_FLOAT16};
  arrange();
  for (int i = 0; i < 6; i++)
    for (int k = 0; k < 4; k++) CHECK(same(cases[i].name, cases[i].each, dtypes[k], dtypes[k]));
  CHECK(same("converting copy", copy, PX_BFLOAT16, PX_FLOAT32));
  CHECK(same("converting copy", copy, PX_FLOAT32, PX_FLOAT16));
  CHECK(same("converting copy", copy, PX_FLOAT64, PX_FLOAT32));
  CHECK(same("sum of two dtypes", add, PX_FLOAT32, PX_BFLOAT16));
}

PX_TEST(batched_cat_equals_the_cpus) {
  PX_SCOPED(px_tensor) joined = NULL;
  PX_SCOPED(px_tensor) device_joined = NULL;
  px_tensor *x[MANY], *device_x[MANY];
  arrange();
  for (int i = 0; i < MANY; i++)
    x[i] = numbers(i, PX_FLOAT32), device_x[i] = on_device(i, i % 4 ? PX_FLOAT32 : PX_BFLOAT16);
  OK(px_cat(&joined, x, MANY, 0));
  OK(px_cat(&device_joined, device_x, MANY, 0));
  CHECK(agrees("cat", joined, device_joined, 1e-2));
  for (int i = 0; i < MANY; i++) px_release(x[i]), px_release(device_x[i]);
}

// An empty tensor has no max.
static px_scalar order_for(const px_tensor *t, double order) {
  return px_float(px_tensor_numel(t) ? order : 2);
}
// Norms of batched launches are bitwise those of single launches.
static void norms_agree(px_dtype dtype, double order) {
  px_tensor *device_x[MANY], *alone[MANY], *batched[MANY];
  for (int i = 0; i < MANY; i++) {
    device_x[i] = on_device(i, dtype);
    OK(px_norm(&alone[i], device_x[i], order_for(device_x[i], order), NULL, 0, false,
               PX_DTYPE_NONE));
  }
  px_launch_batch_begin();
  for (int i = 0; i < MANY; i++)
    OK(px_norm(&batched[i], device_x[i], order_for(device_x[i], order), NULL, 0, false,
               PX_DTYPE_NONE));
  OK(px_launch_batch_end(PX_OK));
  for (int i = 0; i < MANY; i++) {
    PX_SCOPED(px_tensor) here = NULL;
    PX_SCOPED(px_tensor) own = numbers(i, dtype);
    OK(px_norm(&here, own, order_for(own, order), NULL, 0, false, PX_DTYPE_NONE));
    CHECK(agrees("norm", alone[i], batched[i], 0));
    CHECK(agrees("norm", here, batched[i], tolerance_of(dtype)));
    px_release(device_x[i]), px_release(alone[i]), px_release(batched[i]);
  }
}
PX_TEST(batched_norms_equal_single_norms) {
  arrange();
  norms_agree(PX_FLOAT32, 2), norms_agree(PX_BFLOAT16, 2), norms_agree(PX_FLOAT64, 2);
  norms_agree(PX_FLOAT32, INFINITY), norms_agree(PX_FLOAT16, 1), norms_agree(PX_FLOAT32, 3);
}
