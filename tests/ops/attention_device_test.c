// SPDX-License-Identifier: Apache-2.0
// Attention kernels of a device, forward and backward, against the composition of other ops in
// float32. On a real device if there is one (TEST_DEVICE), also at model sizes; otherwise on a
// simulated one.
#include "device_help.h"
#include "phlox/op.h"

// Operand layouts: row-major; heads interleaved in rows, as the projection of a layer leaves them;
// with gaps that prevent vector loads.
typedef enum layout { PLAIN, HEADS_INTERLEAVED, ODD } layout;
// Masks: none, bool for each pair, bool for keys only, additive.
typedef enum masking { NONE, PAIRS, KEYS, NUMBERS } masking;
typedef struct problem {
  int64_t batch, heads, groups, length, keys, width, value_width;
  bool causal;
  layout layout;
  masking mask;
  double chance;  // dropout probability
} problem;

enum { INPUTS = 3, RESULTS = 4 };
static const char *const names[RESULTS] = {"output", "gradient of query", "gradient of key",
                                           "gradient of value"};

static px_tensor *take_as(px_tensor *t, px_dtype dtype) {
  px_tensor *out = NULL;
  OK(px_to(&out, t, dtype, PX_DEVICE_NONE, false, false));
  px_release(t);
  return out;
}
// A random tensor of the sizes and the layout, with its own memory.
static px_tensor *random_of(const int64_t *sizes, px_dtype dtype, layout layout_of) {
  int64_t made[4] = {sizes[0], sizes[1], sizes[2], sizes[3] + (layout_of == ODD ? 3 : 0)};
  if (layout_of == HEADS_INTERLEAVED) made[1] = sizes[2], made[2] = sizes[1];
  px_tensor *t = NULL, *seen = NULL;
  OK(px_randn(&t, made, 4, NULL, PX_FLOAT32, px_cuda(0), false, false));
  t = take_as(t, dtype);
  if (layout_of == HEADS_INTERLEAVED)
    OK(px_transpose(&seen, t, 1, 2));
  else
    OK(px_narrow(&seen, t, 3, 0, sizes[3]));
  px_release(t);
  return seen;
}
// Two queries see no key at all, and the first keys are hidden from all queries.
static px_tensor *mask_of(const problem *p) {
  if (p->mask == NONE) return NULL;
  int64_t sizes[4] = {p->mask == KEYS ? p->batch : 1, 1, p->mask == KEYS ? 1 : p->length, p->keys};
  int64_t n = sizes[0] * sizes[2] * sizes[3];
  px_tensor *t = NULL;
  OK(px_tensor_empty(&t, 4, sizes, p->mask == NUMBERS ? PX_FLOAT32 : PX_BOOL, px_cpu()));
  char *at = px_tensor_data(t);
  for (int64_t i = 0; i < n; i++) {
    int64_t row = i / p->keys, key = i % p->keys;
    bool seen = p->mask == KEYS ? key >= 2 + row : i * 7 % 11 > 3 && key >= 1 && row != 1;
    if (p->mask == NUMBERS)
      ((float *)(void *)at)[i] = seen ? (float)(i % 13) / 4 : -INFINITY;
    else
      at[i] = seen;
  }
  return to_device_take(t);
}

static void allow(bool tiled) {
  px_setting_set(PX_SETTING_SDP_MATH, !tiled);
  px_setting_set(PX_SETTING_SDP_FLASH, tiled);
  px_setting_set(PX_SETTING_SDP_EFFICIENT, false);
  px_setting_set(PX_SETTING_SDP_CUDNN, false);
}
// Computes output and gradients. Inputs become leaves of `dtype` and keep their layout. Recorded
// gradients are those of the composition, which drops the same weights.
static void compute(px_tensor *out[RESULTS], const problem *p, px_tensor *const inputs[INPUTS],
                    px_tensor *mask, px_tensor *grad, px_dtype dtype, bool recorded) {
  px_tensor *leaves[INPUTS] = {NULL}, *weight = NULL;
  for (int i = 0; i < INPUTS; i++) {
    OK(px_to(&leaves[i], inputs[i], dtype, PX_DEVICE_NONE, false, true));
    OK(px_tensor_set_requires_grad(leaves[i], true));
  }
  OK(px_to(&weight, grad, dtype, PX_DEVICE_NONE, false, false));
  px_status status = px_scaled_dot_product_attention(&out[0], leaves[0], leaves[1], leaves[2], mask,
                                                     p->chance, p->causal, NULL, true);
  if (status) {
    const char *why =
        px_attention_unsupported(leaves[0], leaves[1], leaves[2], mask, p->chance, p->causal, true);
    fprintf(stderr, "%s: %s\n", px_error_last()->message, why ? why : "");
    exit(1);
  }
  OK(px_backward(1, &out[0], &weight, false, recorded));
  for (int i = 0; i < INPUTS; i++) {
    out[1 + i] = px_retain(px_tensor_grad(leaves[i]));
    // A recorded gradient references its leaf, which holds it.
    OK(px_tensor_set_grad(leaves[i], NULL));
    px_release(leaves[i]);
  }
  px_release(weight);
}

static double number_of(px_tensor *source) {
  px_scalar x;
  OK(px_tensor_item(&x, source));
  px_release(source);
  return px_scalar_float(x);
}
static double size_of(const px_tensor *t, bool max) {
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) each = NULL;
  px_tensor *one = NULL;
  OK(px_tensor_detach(&plain, t));
  OK(px_to(&wide, plain, PX_FLOAT32, PX_DEVICE_NONE, false, false));
  OK(max ? px_abs(&each, wide) : px_mul(&each, wide, wide));
  OK(max ? px_max(&one, each) : px_mean(&one, each, NULL, 0, false, PX_DTYPE_NONE));
  return max ? number_of(one) : sqrt(number_of(one));
}
// Compares mean and max error, relative to the size of the result.
static bool is_near(const char *what, int number, const px_tensor *want, const px_tensor *got,
                    double tolerance) {
  PX_SCOPED(px_tensor) error = NULL;
  OK(px_sub(&error, want, got, px_int(1)));
  double mean = size_of(error, false) / size_of(want, false);
  double worst = size_of(error, true) / size_of(want, true);
  if (getenv("TEST_DEVICE")) printf("problem %d: %-18s %.2e %.2e\n", number, what, mean, worst);
  if (mean <= tolerance && worst <= 4 * tolerance) return true;
  fprintf(stderr, "%s of problem %d: off by %g, %g at worst\n", what, number, mean, worst);
  return false;
}
static double product_of(const px_tensor *a, const px_tensor *b) {
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) each = NULL;
  px_tensor *sum = NULL;
  OK(px_tensor_detach(&plain, a));
  OK(px_to(&other, b, PX_FLOAT64, PX_DEVICE_NONE, false, false));
  OK(px_mul(&each, plain, other));
  OK(px_sum(&sum, each, NULL, 0, false, PX_FLOAT64));
  return number_of(sum);
}
// Output and gradient of value drop the same weights, since the output is linear in value.
static bool is_linear(px_tensor *const results[RESULTS], px_tensor *const inputs[4]) {
  double forward = product_of(results[0], inputs[3]), back = product_of(results[3], inputs[2]);
  if (fabs(forward - back) <= 1e-4 * (1 + fabs(back))) return true;
  fprintf(stderr, "output and gradient of value drop other weights: %g, %g\n", forward, back);
  return false;
}
static bool is_right(const problem *p, int number, px_dtype dtype, double tolerance) {
  const int64_t sizes[4][4] = {{p->batch, p->heads, p->length, p->width},
                               {p->batch, p->groups, p->keys, p->width},
                               {p->batch, p->groups, p->keys, p->value_width},
                               {p->batch, p->heads, p->length, p->value_width}};
  px_tensor *inputs[4], *want[RESULTS] = {NULL}, *got[RESULTS] = {NULL};
  bool right = true;
  px_manual_seed((uint64_t)number);
  for (int i = 0; i < 4; i++) inputs[i] = random_of(sizes[i], dtype, p->layout);
  px_tensor *mask = mask_of(p);
  bool drops = p->chance > 0;
  px_manual_seed((uint64_t)number);
  allow(true), compute(got, p, inputs, mask, inputs[3], dtype, false);
  px_setting_set(PX_SETTING_MATMUL_TF32, false);
  px_manual_seed((uint64_t)number);
  allow(drops), compute(want, p, inputs, mask, inputs[3], PX_FLOAT32, drops);
  if (drops) right &= is_linear(want, inputs);
  for (int i = 0; i < RESULTS; i++) {
    right &= is_near(names[i], number, want[i], got[i], tolerance);
    px_release(want[i]), px_release(got[i]);
  }
  for (int i = 0; i < 4; i++) px_release(inputs[i]);
  px_release(mask);
  return right;
}
static void check_all(const problem *p, int count, px_dtype dtype, double tolerance) {
  int wrong = 0;
  for (int i = 0; i < count; i++) wrong += !is_right(&p[i], i, dtype, tolerance);
  CHECK_EQ(wrong, 0);
}

static const problem small[] = {
    {2, 4, 4, 64, 64, 64, 64, true, PLAIN, NONE, 0},
    {2, 4, 4, 64, 64, 64, 64, false, HEADS_INTERLEAVED, NONE, 0},
    {2, 6, 2, 37, 53, 32, 32, false, PLAIN, NONE, 0},
    {1, 4, 1, 130, 130, 64, 64, true, HEADS_INTERLEAVED, NONE, 0},
    {2, 2, 2, 50, 70, 64, 64, true, PLAIN, NONE, 0},
    {2, 2, 2, 70, 50, 64, 64, true, PLAIN, NONE, 0},
    {1, 2, 2, 1, 40, 64, 64, false, PLAIN, NONE, 0},
    {2, 3, 3, 17, 19, 16, 16, false, ODD, NONE, 0},
    {2, 2, 2, 33, 40, 64, 64, false, PLAIN, PAIRS, 0},
    {3, 2, 2, 20, 129, 64, 64, false, PLAIN, KEYS, 0},
    {2, 4, 2, 33, 41, 64, 64, false, HEADS_INTERLEAVED, NUMBERS, 0},
    {1, 2, 2, 65, 65, 128, 128, true, PLAIN, NONE, 0},
    {1, 2, 2, 40, 48, 80, 80, false, PLAIN, NONE, 0},
    {1, 2, 2, 40, 48, 64, 32, false, PLAIN, NONE, 0},
    {1, 4, 2, 157, 131, 30, 17, true, ODD, NONE, 0},
    {2, 2, 2, 90, 77, 100, 128, false, HEADS_INTERLEAVED, PAIRS, 0},
    {2, 3, 3, 70, 99, 64, 64, false, PLAIN, NONE, 0.3},
    {1, 4, 2, 99, 130, 32, 128, true, HEADS_INTERLEAVED, NONE, 0.1},
    {1, 2, 2, 40, 41, 24, 24, false, ODD, NUMBERS, 0.5},
    {3, 4, 2, 1, 97, 64, 64, false, HEADS_INTERLEAVED, KEYS, 0},
    {2, 4, 4, 5, 300, 128, 128, false, PLAIN, PAIRS, 0},
    {2, 2, 2, 15, 40, 30, 17, true, ODD, NONE, 0},
    {1, 2, 1, 3, 2000, 32, 32, false, PLAIN, NUMBERS, 0},
    {2, 2, 2, 7, 9, 24, 24, false, ODD, NUMBERS, 0.5},
    {1, 2, 2, 40, 40, 256, 256, true, PLAIN, NONE, 0},
};
enum { ALL = sizeof small / sizeof *small, OF_ALL_DTYPES = ALL - 1 };
static const problem large[] = {
    {16, 12, 12, 1024, 1024, 64, 64, true, PLAIN, NONE, 0},
    {16, 12, 12, 1024, 1024, 64, 64, true, HEADS_INTERLEAVED, NONE, 0},
    {128, 12, 12, 197, 197, 64, 64, false, PLAIN, NONE, 0},
    {128, 12, 12, 197, 197, 64, 64, false, HEADS_INTERLEAVED, NONE, 0},
    {4, 16, 16, 4096, 4096, 128, 128, true, PLAIN, NONE, 0},
    {4, 16, 4, 1024, 1024, 128, 128, true, HEADS_INTERLEAVED, NONE, 0},
    {8, 12, 12, 512, 512, 64, 64, false, HEADS_INTERLEAVED, KEYS, 0},
};

PX_TEST(attention_in_bfloat16) {
  arrange();
  check_all(small, ALL, PX_BFLOAT16, 1e-2);
}
PX_TEST(attention_in_float16) {
  arrange();
  check_all(small, ALL, PX_FLOAT16, 2e-3);
}
PX_TEST(attention_in_float32) {
  arrange();
  check_all(small, OF_ALL_DTYPES, PX_FLOAT32, 5e-6);
}
PX_TEST(attention_in_tf32_if_allowed) {
  arrange();
  for (int i = 0; i < OF_ALL_DTYPES; i++) {
    px_setting_set(PX_SETTING_MATMUL_TF32, true);
    CHECK(is_right(&small[i], i, PX_FLOAT32, 2e-3));
  }
}
PX_TEST(attention_at_the_sizes_of_models) {
  arrange();
  if (!getenv("TEST_DEVICE")) SKIP("needs a real device");
  check_all(large, 2, PX_FLOAT32, 5e-6);
  check_all(large, sizeof large / sizeof *large, PX_BFLOAT16, 1e-2);
}
PX_TEST(deterministic_attention_has_reproducible_gradients) {
  const problem *p = &small[3];
  px_tensor *inputs[4], *first[RESULTS] = {NULL}, *second[RESULTS] = {NULL};
  arrange();
  px_setting_set(PX_SETTING_DETERMINISTIC, true);
  CHECK(is_right(p, 3, PX_BFLOAT16, 1e-2));
  for (int i = 0; i < 4; i++)
    inputs[i] = random_of((int64_t[]){1, i % 3 ? 1 : 4, 130, 64}, PX_BFLOAT16, PLAIN);
  allow(true);
  compute(first, p, inputs, NULL, inputs[3], PX_BFLOAT16, false);
  compute(second, p, inputs, NULL, inputs[3], PX_BFLOAT16, false);
  for (int i = 0; i < RESULTS; i++) {
    CHECK(agrees(names[i], first[i], second[i], 0));
    px_release(first[i]), px_release(second[i]);
  }
  for (int i = 0; i < 4; i++) px_release(inputs[i]);
}
// A gradient is another op's operand: in the input's layout it needs no copy.
PX_TEST(gradients_have_the_layout_of_their_inputs) {
  const problem *p = &small[1];
  px_tensor *inputs[4], *got[RESULTS] = {NULL};
  arrange();
  for (int i = 0; i < 4; i++)
    inputs[i] = random_of((int64_t[]){2, 4, 64, 64}, PX_BFLOAT16, HEADS_INTERLEAVED);
  allow(true), compute(got, p, inputs, NULL, inputs[3], PX_BFLOAT16, false);
  for (int i = 0; i < RESULTS; i++) {
    for (int d = 0; d < 4; d++)
      CHECK_EQ(px_tensor_strides(got[i])[d], px_tensor_strides(inputs[0])[d]);
  }
  for (int i = 0; i < RESULTS; i++) px_release(got[i]), px_release(inputs[i]);
}
