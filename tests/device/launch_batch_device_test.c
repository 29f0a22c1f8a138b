// SPDX-License-Identifier: Apache-2.0
// Calls that a device gets together: their results are those of the CPU, whatever the sizes are and
// wherever the tensors lie, and the same as of calls one by one.
#include "device_help.h"
#include "phlox/phlox.h"

// More than one launch takes; of no elements, of one, of fewer than a vector, of no whole number of
// vectors, and of several parts.
enum { MANY = 60 };
static int64_t size_of(int i) {
  static const int64_t sizes[] = {1, 5, 0, 4096, 1023, 3, 30001, 768, 2049, 64};
  return sizes[i % 10];
}

// Every third begins in the middle of a vector.
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
static px_tensor *moved(int i, px_dtype dtype) {
  PX_SCOPED(px_tensor) own = numbers(i, dtype);
  PX_SCOPED(px_tensor) room = NULL;
  px_tensor *part = NULL;
  int64_t shift = i % 3 == 2, n = px_tensor_numel(own);
  OK(px_empty(&room, (int64_t[]){n + shift}, 1, dtype, px_cuda(0), false, false, NULL));
  OK(px_narrow(&part, room, 0, shift, n));
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
  px_tensor *x[MANY], *far_x[MANY], *y[MANY], *far_y[MANY];
  bool good = true;
  OK(px_scalar_tensor(&number, px_float(0.75), dtype, px_cpu(), false, false));
  far_number = there(number);
  for (int i = 0; i < MANY; i++) {
    x[i] = numbers(i, dtype), far_x[i] = moved(i, dtype);
    y[i] = numbers(i + 10, other), far_y[i] = moved(i + 10, other);
  }
  px_launch_batch_begin();
  for (int i = 0; i < MANY; i++) OK(each(far_x[i], far_y[i], far_number));
  OK(px_launch_batch_end(PX_OK));
  for (int i = 0; i < MANY; i++) {
    OK(each(x[i], y[i], number));
    good &= agrees(name, x[i], far_x[i], tolerance_of(dtype));
    px_release(x[i]), px_release(far_x[i]), px_release(y[i]), px_release(far_y[i]);
  }
  return good;
}

PX_TEST(many_tensors_are_changed_as_one_by_one) {
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

PX_TEST(many_tensors_are_joined) {
  PX_SCOPED(px_tensor) joined = NULL;
  PX_SCOPED(px_tensor) far_joined = NULL;
  px_tensor *x[MANY], *far_x[MANY];
  arrange();
  for (int i = 0; i < MANY; i++)
    x[i] = numbers(i, PX_FLOAT32), far_x[i] = moved(i, i % 4 ? PX_FLOAT32 : PX_BFLOAT16);
  OK(px_cat(&joined, x, MANY, 0));
  OK(px_cat(&far_joined, far_x, MANY, 0));
  CHECK(agrees("cat", joined, far_joined, 1e-2));
  for (int i = 0; i < MANY; i++) px_release(x[i]), px_release(far_x[i]);
}

// Nothing has no greatest number.
static px_scalar order_for(const px_tensor *t, double order) {
  return px_float(px_tensor_numel(t) ? order : 2);
}
// Norms that are launched together are bit by bit those of launches by themselves.
static void norms_agree(px_dtype dtype, double order) {
  px_tensor *far_x[MANY], *alone[MANY], *together[MANY];
  for (int i = 0; i < MANY; i++) {
    far_x[i] = moved(i, dtype);
    OK(px_norm(&alone[i], far_x[i], order_for(far_x[i], order), NULL, 0, false, PX_DTYPE_NONE));
  }
  px_launch_batch_begin();
  for (int i = 0; i < MANY; i++)
    OK(px_norm(&together[i], far_x[i], order_for(far_x[i], order), NULL, 0, false, PX_DTYPE_NONE));
  OK(px_launch_batch_end(PX_OK));
  for (int i = 0; i < MANY; i++) {
    PX_SCOPED(px_tensor) here = NULL;
    PX_SCOPED(px_tensor) own = numbers(i, dtype);
    OK(px_norm(&here, own, order_for(own, order), NULL, 0, false, PX_DTYPE_NONE));
    CHECK(agrees("norm", alone[i], together[i], 0));
    CHECK(agrees("norm", here, together[i], tolerance_of(dtype)));
    px_release(far_x[i]), px_release(alone[i]), px_release(together[i]);
  }
}
PX_TEST(many_norms_are_those_of_each_tensor) {
  arrange();
  norms_agree(PX_FLOAT32, 2), norms_agree(PX_BFLOAT16, 2), norms_agree(PX_FLOAT64, 2);
  norms_agree(PX_FLOAT32, INFINITY), norms_agree(PX_FLOAT16, 1), norms_agree(PX_FLOAT32, 3);
}
