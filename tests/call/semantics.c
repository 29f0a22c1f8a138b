// SPDX-License-Identifier: Apache-2.0
// Element-wise ops and reductions: PyTorch's values, dtypes, errors and gradient names.
#include "phlox/autograd.h"
#include "phlox/ops.h"
#include "test.h"

static px_tensor *make(const double *values, int64_t n, px_dtype dtype) {
  px_tensor *t = NULL;
  char value[1024];
  CHECK(n * 8 <= (int64_t)sizeof value);
  for (int64_t i = 0; i < n; i++)
    px_scalar_store(px_float(values[i]), dtype, value + (size_t)i * px_dtype_size(dtype));
  OK(px_tensor_from_data(&t, value, 1, &n, dtype, (px_device){PX_CPU, -1}));
  return t;
}
#define TENSOR(name, dtype, ...) \
  const double name##_values[] = {__VA_ARGS__}; \
  PX_SCOPED(px_tensor) \
  name = make(name##_values, (int64_t)(sizeof name##_values / sizeof(double)), dtype)
static double at(const px_tensor *t, int64_t i) {
  char value[1024];
  OK(px_tensor_read(t, value, (size_t)px_tensor_numel(t) * px_dtype_size(px_tensor_dtype(t))));
  return px_scalar_float(
      px_scalar_load(px_tensor_dtype(t), value + (size_t)i * px_dtype_size(px_tensor_dtype(t))));
}
#define IS(t, i, wanted) CHECK_NEAR(at(t, i), wanted, 1e-6)

PX_TEST(division_is_true_floored_or_truncated) {
  TENSOR(a, PX_INT64, 7, -7);
  TENSOR(b, PX_INT64, 2, 2);
  PX_SCOPED(px_tensor) real = NULL;
  PX_SCOPED(px_tensor) down = NULL;
  PX_SCOPED(px_tensor) zero = NULL;
  OK(px_div(&real, a, b));
  CHECK_EQ(px_tensor_dtype(real), PX_FLOAT32);
  IS(real, 1, -3.5);
  OK(px_div_mode(&down, a, b, "floor"));
  OK(px_div_mode(&zero, a, b, "trunc"));
  CHECK_EQ(px_tensor_dtype(down), PX_INT64);
  IS(down, 1, -4);
  IS(zero, 1, -3);
}
PX_TEST(remainders_have_the_sign_of_the_divisor_and_fmod_of_the_dividend) {
  TENSOR(a, PX_FLOAT32, 7, -7, 7, -7);
  TENSOR(b, PX_FLOAT32, 3, 3, -3, -3);
  PX_SCOPED(px_tensor) r = NULL;
  PX_SCOPED(px_tensor) f = NULL;
  OK(px_remainder(&r, a, b));
  OK(px_fmod(&f, a, b));
  IS(r, 0, 1);
  IS(r, 1, 2);
  IS(r, 2, -2);
  IS(r, 3, -1);
  IS(f, 0, 1);
  IS(f, 1, -1);
  IS(f, 2, 1);
  IS(f, 3, -1);
}
PX_TEST(scalars_promote_only_across_categories) {
  TENSOR(half, PX_FLOAT16, 1, 2);
  TENSOR(integer_at, PX_INT32, 1, 2);
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  OK(px_add_scalar(&a, half, px_float(0.5), px_int(1)));
  OK(px_add_scalar(&b, integer_at, px_int(3), px_int(1)));
  OK(px_add_scalar(&c, integer_at, px_float(0.5), px_int(1)));
  CHECK_EQ(px_tensor_dtype(a), PX_FLOAT16);
  CHECK_EQ(px_tensor_dtype(b), PX_INT32);
  CHECK_EQ(px_tensor_dtype(c), PX_FLOAT32);
  IS(a, 1, 2.5);
  IS(b, 1, 5);
  IS(c, 1, 2.5);
}
PX_TEST(bools_are_not_subtracted) {
  TENSOR(a, PX_BOOL, 0, 1);
  PX_SCOPED(px_tensor) r = NULL;
  FAILS(px_sub(&r, a, a, px_int(1)), PX_UNIMPLEMENTED, "with two bool tensors is not supported");
  FAILS(px_sub_scalar(&r, a, px_int(1), px_int(1)), PX_UNIMPLEMENTED,
        "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to");
  FAILS(px_neg(&r, a), PX_UNIMPLEMENTED, "on a bool tensor is not supported");
}
PX_TEST(clamp_propagates_nan_of_input_and_bounds) {
  TENSOR(a, PX_FLOAT64, NAN, 1, 7, -7, 2);
  TENSOR(low, PX_FLOAT64, 0, NAN, 0, 0, 0);
  TENSOR(high, PX_FLOAT64, 5, 5, 5, 5, NAN);
  PX_SCOPED(px_tensor) clamped_below = NULL;
  PX_SCOPED(px_tensor) between = NULL;
  OK(px_minimum(&clamped_below, a, high));
  OK(px_clamp(&between, a, low, high));
  CHECK(isnan(at(clamped_below, 0)) && isnan(at(clamped_below, 4)) && isnan(at(between, 0)));
  CHECK(isnan(at(between, 1)) && isnan(at(between, 4)));
  IS(clamped_below, 2, 5);
  IS(between, 2, 5);
  IS(between, 3, 0);
}
PX_TEST(min_and_max_propagate_nan) {
  TENSOR(a, PX_FLOAT32, 1, NAN, 3);
  TENSOR(b, PX_FLOAT32, 2, 2, 2);
  PX_SCOPED(px_tensor) m = NULL;
  PX_SCOPED(px_tensor) top = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  OK(px_maximum(&m, a, b));
  IS(m, 0, 2);
  IS(m, 2, 3);
  CHECK(isnan(at(m, 1)));
  OK(px_max(&top, a));
  CHECK(isnan(at(top, 0)));
  OK(px_relu(&c, a));
  CHECK(isnan(at(c, 1)));
}
PX_TEST(round_is_half_to_even) {
  TENSOR(a, PX_FLOAT32, 0.5, 1.5, 2.5, -0.5);
  PX_SCOPED(px_tensor) r = NULL;
  OK(px_round(&r, a));
  IS(r, 0, 0);
  IS(r, 1, 2);
  IS(r, 2, 2);
  IS(r, 3, 0);
}
PX_TEST(activations_match_reference_values) {
  TENSOR(x, PX_FLOAT32, -1, 0.5);
  PX_SCOPED(px_tensor) g = NULL;
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) s = NULL;
  OK(px_gelu(&g, x, "none"));
  OK(px_gelu(&t, x, "tanh"));
  OK(px_silu(&s, x));
  IS(g, 0, -0.158655254);
  IS(g, 1, 0.345731230);
  IS(t, 0, -0.158808019);
  IS(t, 1, 0.345714003);
  IS(s, 0, -0.268941421);
  IS(s, 1, 0.311229665);
}

PX_TEST(sums_of_small_integers_are_int64_and_means_are_refused) {
  TENSOR(a, PX_UINT8, 200, 100);
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) mean = NULL;
  OK(px_sum_all(&sum, a, PX_DTYPE_NONE));
  CHECK_EQ(px_tensor_dtype(sum), PX_INT64);
  IS(sum, 0, 300);
  FAILS(px_mean_all(&mean, a, PX_DTYPE_NONE), PX_UNIMPLEMENTED,
        "mean(): could not infer output dtype. Input dtype must be either a floating point or "
        "complex dtype. Got: Byte");
}
// A reduction of an expanded scalar computes one result and copies it to all rows.
PX_TEST(sums_of_an_expanded_scalar_are_equal) {
  TENSOR(one, PX_FLOAT32, 0.5);
  const int64_t shape[] = {3, 2, 4, 5}, dims[] = {1};
  PX_SCOPED(px_tensor) many = NULL;
  PX_SCOPED(px_tensor) sums = NULL;
  OK(px_expand(&many, one, shape, 4));
  OK(px_sum(&sums, many, dims, 1, false, PX_DTYPE_NONE));
  CHECK_EQ(px_tensor_numel(sums), 60);
  for (int i = 0; i < 60; i++) IS(sums, i, 1);
}
PX_TEST(fp16_sums_accumulate_in_float) {
  double ones[100];
  for (int i = 0; i < 100; i++) ones[i] = 40;
  PX_SCOPED(px_tensor) a = make(ones, 100, PX_FLOAT16);
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) inf = NULL;
  OK(px_sum_all(&sum, a, PX_DTYPE_NONE));
  CHECK_EQ(px_tensor_dtype(sum), PX_FLOAT16);
  IS(sum, 0, 4000);
  OK(px_mul_scalar(&inf, a, px_int(10000)));
  CHECK(isinf(at(inf, 0)));
}
PX_TEST(min_and_max_of_no_elements_are_refused) {
  int64_t sizes[2] = {0, 3};
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) v = NULL;
  PX_SCOPED(px_tensor) i = NULL;
  OK(px_tensor_empty(&a, 2, sizes, PX_FLOAT32, (px_device){PX_CPU, -1}));
  FAILS(px_max(&v, a), PX_RUNTIME,
        "max(): Expected reduction dim to be specified for input.numel() == 0.");
  FAILS(px_max_dim(&v, &i, a, 0, false), PX_INDEX,
        "max(): Expected reduction dim 0 to have non-zero size.");
}
PX_TEST(integer_division_by_zero_is_an_error) {
  TENSOR(a, PX_INT64, 1, 2);
  TENSOR(b, PX_INT64, 1, 0);
  PX_SCOPED(px_tensor) r = NULL;
  px_status status = px_floor_divide(&r, a, b);
  CHECK(status == PX_RUNTIME && strstr(px_error_last()->message, "ZeroDivisionError"));
}

// Quotients and remainders of one pair in C arithmetic.
typedef struct quotients {
  int64_t down, zero, remainder, rest;
} quotients;
static quotients divided(int64_t a, int64_t b) {
  if (b == -1) return (quotients){(int64_t)(0 - (uint64_t)a), (int64_t)(0 - (uint64_t)a), 0, 0};
  int64_t q = a / b, r = a % b, low = r != 0 && (r < 0) != (b < 0);
  return (quotients){q - low, q, r + low * b, r};
}
enum { DIVIDED = 1000 };
// Numbers of all magnitudes, or products of such numbers with `factors`, and their neighbours.
static px_tensor *magnitudes(px_dtype dtype, uint64_t state, const px_tensor *factors) {
  int64_t n = DIVIDED;
  px_tensor *t = NULL;
  OK(px_tensor_empty(&t, 1, &n, dtype, px_cpu()));
  char *to = px_tensor_data(t);
  for (int64_t i = 0; i < n; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    int64_t x = (int64_t)state >> (state >> 20) % 64;
    const char *from = factors ? px_tensor_data(factors) : NULL;
    from += factors ? (size_t)i * px_dtype_size(dtype) : 0;
    if (factors && i % 2) {
      uint64_t factor = (uint64_t)px_scalar_load(dtype, from).v.i;
      x = (int64_t)(factor * (state >> 40 >> (state >> 20) % 24) + (uint64_t)(i % 3) - 1);
    }
    px_scalar_store(px_int(x), dtype, to + (size_t)i * px_dtype_size(dtype));
    if (!factors && px_scalar_load(dtype, to + (size_t)i * px_dtype_size(dtype)).v.i == 0)
      px_scalar_store(px_int(3), dtype, to + (size_t)i * px_dtype_size(dtype));
  }
  return t;
}
static int64_t integer_at(const px_tensor *t, int64_t i) {
  px_dtype dtype = px_tensor_dtype(t);
  const char *from = px_tensor_data(t);
  return px_scalar_load(dtype, from + (size_t)(i * px_tensor_strides(t)[0]) * px_dtype_size(dtype))
      .v.i;
}
static int64_t wrapped(int64_t x, px_dtype dtype) {
  int64_t value = 0;
  px_scalar_store(px_int(x), dtype, &value);
  return px_scalar_load(dtype, &value).v.i;
}
static void check_quotients(const px_tensor *a, const px_tensor *b) {
  PX_SCOPED(px_tensor) down = NULL;
  PX_SCOPED(px_tensor) zero = NULL;
  PX_SCOPED(px_tensor) remainder = NULL;
  PX_SCOPED(px_tensor) rest = NULL;
  OK(px_floor_divide(&down, a, b));
  OK(px_div_mode(&zero, a, b, "trunc"));
  OK(px_remainder(&remainder, a, b));
  OK(px_fmod(&rest, a, b));
  px_dtype dtype = px_tensor_dtype(a);
  for (int64_t i = 0; i < px_tensor_numel(a); i++) {
    quotients q = divided(integer_at(a, i), integer_at(b, px_tensor_numel(b) > 1 ? i : 0));
    CHECK_EQ(integer_at(down, i), wrapped(q.down, dtype));
    CHECK_EQ(integer_at(zero, i), wrapped(q.zero, dtype));
    CHECK_EQ(integer_at(remainder, i), q.remainder);
    CHECK_EQ(integer_at(rest, i), q.rest);
  }
}
PX_TEST(integer_division_is_exact_for_all_magnitudes) {
  for (px_dtype dtype = PX_UINT8; dtype <= PX_INT64; dtype++)
    for (uint64_t seed = 1; seed < 20; seed++) {
      PX_SCOPED(px_tensor) b = magnitudes(dtype, seed, NULL);
      PX_SCOPED(px_tensor) a = magnitudes(dtype, seed + 100, b);
      PX_SCOPED(px_tensor) one = NULL;
      PX_SCOPED(px_tensor) gaps = NULL;
      PX_SCOPED(px_tensor) others = NULL;
      int64_t begin = (int64_t)seed, end = begin + 1;
      OK(px_slice(&one, b, 0, &begin, &end, 1));
      OK(px_slice(&gaps, a, 0, NULL, NULL, 3));
      OK(px_slice(&others, b, 0, NULL, NULL, 3));
      check_quotients(a, b);
      check_quotients(a, one);
      check_quotients(gaps, others);
    }
}

// ---- gradients have PyTorch's names

static void check_name(px_tensor *result, const char *wanted) {
  px_node *node = NULL;
  OK(px_tensor_grad_fn(&node, result));
  CHECK(node != NULL);
  CHECK_TEXT(px_node_name(node), wanted);
  px_release(result);
}
PX_TEST(gradients_have_pytorchs_names) {
  TENSOR(a, PX_FLOAT32, 1, 2);
  px_tensor *r = NULL, *i = NULL;
  int64_t dim = 0;
  OK(px_tensor_set_requires_grad(a, true));
  OK(px_add_scalar(&r, a, px_int(1), px_int(1)));
  check_name(r, "AddBackward0");
  OK(px_rsub_scalar(&r, a, px_int(1), px_int(1)));
  check_name(r, "RsubBackward1");
  OK(px_sum_all(&r, a, PX_DTYPE_NONE));
  check_name(r, "SumBackward0");
  OK(px_sum(&r, a, &dim, 1, false, PX_DTYPE_NONE));
  check_name(r, "SumBackward1");
  OK(px_max(&r, a));
  check_name(r, "MaxBackward1");
  OK(px_max_dim(&r, &i, a, 0, false));
  px_release(i);
  check_name(r, "MaxBackward0");
  OK(px_clamp(&r, a, a, NULL));
  check_name(r, "ClampBackward1");
}

PX_TEST(logsumexp_of_long_rows) {
  double values[100], sum = 0;
  for (int i = 0; i < 100; i++) sum += exp(values[i] = 700 + sin(i) - 700 * (i % 9 == 4));
  values[7] = -(double)INFINITY, sum -= exp(700 + sin(7));
  PX_SCOPED(px_tensor) x = make(values, 100, PX_FLOAT64);
  PX_SCOPED(px_tensor) y = NULL;
  const int64_t dim = 0;
  OK(px_logsumexp(&y, x, &dim, 1, false));
  CHECK_NEAR(at(y, 0), log(sum), 1e-11);
  values[50] = NAN;
  PX_SCOPED(px_tensor) spoilt = make(values, 100, PX_FLOAT64);
  px_release(y);
  OK(px_logsumexp(&y, spoilt, &dim, 1, false));
  CHECK(isnan(at(y, 0)));
}
