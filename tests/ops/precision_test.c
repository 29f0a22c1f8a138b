// SPDX-License-Identifier: Apache-2.0
// Accuracy of float functions against libm in double, and of double functions against long double,
// over all magnitudes. An element's result depends neither on its position nor on the number of
// threads.
#include "hidden.h"
#include "kernels_help.h"

#include <float.h>

enum { SIDE = 256, KINDS = SIDE * SIDE };
typedef px_status (*function)(px_tensor **out, const px_tensor *self);

// Returns the error in units in the last place of `wanted`. Zeros and infinities must match in
// sign.
static double units(float got, double wanted) {
  float rounded = (float)wanted;
  if (wanted != wanted) return got != got ? 0 : (double)INFINITY;
  if (isinf(rounded) || isinf(got)) return got == rounded ? 0 : (double)INFINITY;
  if (wanted == 0) return got == 0 && signbit(got) == signbit(rounded) ? 0 : (double)INFINITY;
  int power;
  frexp(fmax(fabs(wanted), 0x1p-126), &power);
  return fabs((double)got - wanted) / ldexp(1, power - 24);
}

static double wide_units(double got, long double wanted) {
  double rounded = (double)wanted;
  if (wanted != wanted) return got != got ? 0 : (double)INFINITY;
  if (isinf(rounded) || isinf(got)) return got == rounded ? 0 : (double)INFINITY;
  if (wanted == 0) return got == 0 && signbit(got) == signbit(rounded) ? 0 : (double)INFINITY;
  int power;
  frexp(fmax(fabs(rounded), DBL_MIN), &power);
  return (double)(fabsl((long double)got - wanted) / ldexpl(1, power - 53));
}

// One of each 65537 floats.
static px_tensor *all_kinds(void) {
  px_tensor *t = NULL;
  OK(px_tensor_empty(&t, S(SIDE, SIDE), PX_FLOAT32, px_cpu()));
  uint32_t *bits = px_tensor_data(t);
  for (uint32_t i = 0; i < KINDS; i++) bits[i] = i * 65537u;
  return t;
}

// One of each 2^48 doubles, with varying low bits.
static px_tensor *all_wide_kinds(void) {
  px_tensor *t = NULL;
  OK(px_tensor_empty(&t, S(SIDE, SIDE), PX_FLOAT64, px_cpu()));
  uint64_t *bits = px_tensor_data(t);
  for (uint64_t i = 0; i < KINDS; i++) bits[i] = i * 0x0001000100010001u;
  return t;
}

static double number_at(px_dtype dtype, const char *data, int64_t i) {
  return px_scalar_float(px_scalar_load(dtype, data + (size_t)i * px_dtype_size(dtype)));
}

// Any NaN equals any other.
static bool same(double a, double b) { return a != a ? b != b : !memcmp(&a, &b, sizeof a); }

// Strided elements, and fewer than a vector.
static void check_positions(function f, const px_tensor *t, const px_tensor *wanted) {
  PX_SCOPED(px_tensor) gaps = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  PX_SCOPED(px_tensor) few = NULL;
  OK(px_slice(&gaps, t, 1, NULL, NULL, 3));
  OK(px_select(&row, gaps, 0, SIDE / 2 - 1));
  OK(f(&result, gaps));
  OK(f(&few, row));
  px_dtype dtype = px_tensor_dtype(t);
  const char *all = px_tensor_data((px_tensor *)wanted), *some = px_tensor_data(result);
  int64_t width = px_tensor_sizes(result)[1];
  for (int64_t i = 0; i < SIDE; i++)
    for (int64_t j = 0; j < width; j++)
      CHECK(same(number_at(dtype, some, i * width + j), number_at(dtype, all, i * SIDE + 3 * j)));
  for (int64_t j = 0; j < width; j++)
    CHECK(same(element(few, j), number_at(dtype, all, (SIDE / 2 - 1) * SIDE + 3 * j)));
}
static void check_threads(function f, const px_tensor *t, const px_tensor *wanted) {
  static const int counts[] = {1, 2, 7, 16};
  int before = px_num_threads();
  for (int i = 0; i < 4; i++) {
    PX_SCOPED(px_tensor) result = NULL;
    OK(px_set_num_threads(counts[i]));
    OK(f(&result, t));
    CHECK(!memcmp(px_tensor_data(result), px_tensor_data((px_tensor *)wanted),
                  KINDS * px_dtype_size(px_tensor_dtype(t))));
  }
  OK(px_set_num_threads(before));
}
static void check_function(const char *name, function f, double (*exact)(double),
                           double max_units) {
  PX_SCOPED(px_tensor) t = all_kinds();
  PX_SCOPED(px_tensor) result = NULL;
  OK(f(&result, t));
  const float *x = px_tensor_data(t), *y = px_tensor_data(result);
  for (int64_t i = 0; i < KINDS; i++)
    if (!(units(y[i], exact((double)x[i])) <= max_units)) {
      fprintf(stderr, "%s(%a) is %a\n", name, (double)x[i], (double)y[i]);
      exit(1);
    }
  check_positions(f, t, result);
  check_threads(f, t, result);
}

static void check_wide_function(const char *name, function f, long double (*exact)(long double),
                                double max_units) {
  PX_SCOPED(px_tensor) t = all_wide_kinds();
  PX_SCOPED(px_tensor) result = NULL;
  OK(f(&result, t));
  const double *x = px_tensor_data(t), *y = px_tensor_data(result);
  for (int64_t i = 0; i < KINDS; i++)
    if (!(wide_units(y[i], exact(x[i])) <= max_units)) {
      fprintf(stderr, "%s(%a) is %a\n", name, x[i], y[i]);
      exit(1);
    }
  check_positions(f, t, result);
  check_threads(f, t, result);
}

// By bisection.
static double erfinv(double y) {
  double low = 0, high = 6, a = fabs(y);
  if (!(a < 1)) return a == 1 ? copysign((double)INFINITY, y) : (double)NAN;
  if (a < 1e-8) return y * 0.88622692545275801;
  for (int i = 0; i < 110; i++) {
    double middle = 0.5 * (low + high);
    bool below = a <= 0.5 ? erf(middle) < a : erfc(middle) > 1 - a;
    *(below ? &low : &high) = middle;
  }
  return copysign(low, y);
}
static double logarithm_of_gamma(double x) {
  int sign;
  return lgamma_r(x, &sign);
}
static long double wide_logarithm_of_gamma(long double x) {
  int sign;
  return lgammal_r(x, &sign);
}
static double sigmoid(double x) { return (x < 0 ? exp(x) : 1) / (1 + exp(-fabs(x))); }
static long double wide_sigmoid(long double x) {
  return (x < 0 ? expl(x) : 1) / (1 + expl(-fabsl(x)));
}

PX_TEST(functions_of_float_are_within_three_units_in_the_last_place) {
  check_function("exp", px_exp, exp, 3);
  check_function("log", px_log, log, 3);
  check_function("tanh", px_tanh, tanh, 3);
  check_function("erf", px_erf, erf, 3);
  check_function("sigmoid", px_sigmoid, sigmoid, 3);
  check_function("log1p", px_log1p, log1p, 3);
}
// The gradient, 1 - tanh^2, has only the remaining digits.
PX_TEST(tanh_near_one_is_within_two_thirds_of_an_ulp) {
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  OK(px_linspace(&t, px_float(2), px_float(10), 4001, PX_FLOAT32, PX_DEVICE_NONE, false, false));
  OK(px_tanh(&result, t));
  const float *x = px_tensor_data(t), *y = px_tensor_data(result);
  for (int64_t i = 0; i < 4001; i++) CHECK(units(y[i], tanh((double)x[i])) <= 0.667);
}
PX_TEST(float_functions_computed_in_double_are_within_one_unit) {
  check_function("lgamma", px_lgamma, logarithm_of_gamma, 0.75);
}
PX_TEST(erfinv_of_float_is_within_one_and_a_half_units) {
  check_function("erfinv", px_erfinv, erfinv, 1.5);
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  OK(px_linspace(&t, px_float(-1), px_float(1), 40001, PX_FLOAT32, PX_DEVICE_NONE, false, false));
  OK(px_erfinv(&result, t));
  const float *y = px_tensor_data(t), *x = px_tensor_data(result);
  for (int64_t i = 0; i < 40001; i++) CHECK(units(x[i], erfinv((double)y[i])) <= 1.5);
}

// ---- gelu: small results lose digits

static px_status gelu(px_tensor **out, const px_tensor *self) { return px_gelu(out, self, "none"); }
static px_status gelu_gradient(px_tensor **out, const px_tensor *grad, const px_tensor *self) {
  return HIDDEN(gelu_backward, (out), PX_T(grad), PX_T(self), PX_TX("none"));
}
static double exact_gelu(double x) { return 0.5 * x * erfc(-x * sqrt(0.5)); }
static double exact_slope(double x) {
  return 0.5 * erfc(-x * sqrt(0.5)) + x * 0.39894228040143268 * exp(-0.5 * x * x);
}

PX_TEST(gelu_of_float_is_accurate_to_its_condition) {
  PX_SCOPED(px_tensor) t = all_kinds();
  PX_SCOPED(px_tensor) result = NULL;
  PX_SCOPED(px_tensor) ones = NULL;
  PX_SCOPED(px_tensor) slope = NULL;
  OK(gelu(&result, t));
  OK(px_ones_like(&ones, t, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  OK(gelu_gradient(&slope, ones, t));
  const float *x = px_tensor_data(t), *y = px_tensor_data(result), *g = px_tensor_data(slope);
  for (int64_t i = 0; i < KINDS; i++) {
    double wide = (double)x[i];
    if (isinf(x[i]) || x[i] != x[i]) continue;
    CHECK(fabs((double)y[i] - exact_gelu(wide)) <= 1.2e-7 * fmax(1, fabs(wide)));
    CHECK(fabs((double)g[i] - exact_slope(wide)) <= 1.8e-7);
  }
  check_positions(gelu, t, result);
  check_threads(gelu, t, result);
}
PX_TEST(gelu_below_zero_keeps_most_digits) {
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  OK(px_linspace(&t, px_float(-4), px_float(-1), 4001, PX_FLOAT32, PX_DEVICE_NONE, false, false));
  OK(gelu(&result, t));
  const float *x = px_tensor_data(t), *y = px_tensor_data(result);
  for (int64_t i = 0; i < 4001; i++)
    CHECK(fabs((double)y[i] / exact_gelu((double)x[i]) - 1) < 1e-4);
}
PX_TEST(gelu_of_nan_inf_and_zeros_follows_the_formula) {
  const double inf = (double)INFINITY, nan = (double)NAN;
  const double x[] = {nan, -nan, inf, -inf, 0.0, -0.0, -20, 20, 1e-42, 3e38, -3e38};
  const double wanted[] = {nan, nan, inf, nan, 0.0, -0.0, -0.0, 20, 5e-43, 3e38, -0.0};
  PX_SCOPED(px_tensor) t = made(PX_FLOAT32, S(11), x);
  PX_SCOPED(px_tensor) result = NULL;
  OK(gelu(&result, t));
  for (int64_t i = 0; i < 11; i++) CHECK(units((float)element(result, i), wanted[i]) <= 1);
}

// ---- repeated operands

typedef px_status (*function_of_two)(px_tensor **out, const px_tensor *a, const px_tensor *b);
static void check_scalar_operand(function_of_two f, px_tensor *t, int64_t n) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) still = NULL;
  PX_SCOPED(px_tensor) many = NULL;
  OK(px_narrow(&x, t, 0, 0, n));
  OK(px_narrow(&one, t, 0, n / 2, 1));
  OK(px_expand(&still, one, &n, 1));
  OK(px_clone(&many, still, "contiguous_format"));
  for (int k = 0; k < 3; k++) {
    PX_SCOPED(px_tensor) got = NULL;
    PX_SCOPED(px_tensor) wanted = NULL;
    OK(f(&got, k == 1 ? x : still, k == 0 ? x : still));
    OK(f(&wanted, k == 1 ? x : many, k == 0 ? x : many));
    const float *a = px_tensor_data(got), *b = px_tensor_data(wanted);
    for (int64_t i = 0; i < n; i++) CHECK(same((double)a[i], (double)b[i]));
  }
}
PX_TEST(a_scalar_operand_equals_a_filled_row) {
  const int64_t lengths[] = {1, 15, 255, 256, 257, 1000, KINDS};
  PX_SCOPED(px_tensor) kinds = all_kinds();
  PX_SCOPED(px_tensor) flat = NULL;
  OK(px_view(&flat, kinds, SIZES(KINDS), 1));
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    check_scalar_operand(gelu_gradient, flat, lengths[i]);
    check_scalar_operand(px_xlogy, flat, lengths[i]);
  }
}
PX_TEST(arcs_of_float_are_within_two_and_a_half_units) {
  check_function("asin", px_asin, asin, 2.5);
  check_function("acos", px_acos, acos, 2.5);
  check_function("atan", px_atan, atan, 2.5);
}
static void check_functions_of_double(void) {
  check_wide_function("exp", px_exp, expl, 1.1);
  check_wide_function("log", px_log, logl, 1.1);
  check_wide_function("log1p", px_log1p, log1pl, 1.5);
  check_wide_function("tanh", px_tanh, tanhl, 2.75);
  check_wide_function("sigmoid", px_sigmoid, wide_sigmoid, 2.75);
}
// Results from the min normal number down to zero.
static void check_small_exponentials(void) {
  enum { MANY = 1 << 14 };
  static double x[MANY];
  for (int i = 0; i < MANY; i++) x[i] = -708 - 39.0 * i / MANY;
  PX_SCOPED(px_tensor) t = made(PX_FLOAT64, S(MANY), x);
  PX_SCOPED(px_tensor) result = NULL;
  OK(px_exp(&result, t));
  const double *y = px_tensor_data(result);
  for (int i = 0; i < MANY; i++) {
    long double off = fabsl(y[i] - expl(x[i]));
    CHECK(off <= 0.5L * 0x1p-1074L + 1.1L * expl(x[i]) * 0x1p-53L);
  }
}
PX_TEST(subnormal_exponentials_of_double_are_rounded_once) { check_small_exponentials(); }
PX_TEST(functions_of_double_are_within_three_units_in_the_last_place) {
  check_functions_of_double();
}
PX_TEST(functions_of_double_are_within_three_units_without_avx512) {
  setenv("PHLOX_CPU", "avx2", 1);
  check_functions_of_double();
}
// Includes squares of midpoints between two doubles.
PX_TEST(roots_of_double_are_rounded_once) {
  enum { MANY = 1 << 16 };
  static double squares[MANY];
  uint64_t state = 5;
  for (int i = 0; i < MANY; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    long double middle = (long double)(state >> 12 | (uint64_t)1 << 52) + 0.5L * (i % 2);
    squares[i] = ldexp((double)(middle * middle), i % 1700 - 950);
  }
  PX_SCOPED(px_tensor) x = made(PX_FLOAT64, S(MANY), squares);
  PX_SCOPED(px_tensor) result = NULL;
  OK(px_sqrt(&result, x));
  const double *y = px_tensor_data(result);
  for (int i = 0; i < MANY; i++) CHECK(y[i] == sqrt(squares[i]));
  check_wide_function("sqrt", px_sqrt, sqrtl, 0.501);
}
PX_TEST(functions_of_libm_are_within_four_units_also_outside_their_domain) {
  check_function("log2", px_log2, log2, 4);
  check_function("log10", px_log10, log10, 4);
  check_function("asin", px_asin, asin, 4);
  check_function("acos", px_acos, acos, 4);
  check_function("acosh", px_acosh, acosh, 4);
  check_function("atanh", px_atanh, atanh, 4);
  check_wide_function("log2", px_log2, log2l, 4);
  check_wide_function("log10", px_log10, log10l, 4);
  check_wide_function("asin", px_asin, asinl, 4);
  check_wide_function("acos", px_acos, acosl, 4);
  check_wide_function("acosh", px_acosh, acoshl, 4);
  check_wide_function("atanh", px_atanh, atanhl, 4);
}
PX_TEST(lgamma_of_double_is_within_four_units_at_branch_points_and_zeros) {
  check_wide_function("lgamma", px_lgamma, wide_logarithm_of_gamma, 4);
  const double inf = (double)INFINITY;
  static const double meet[] = {-2.5, -2,  -1.5, -1,  -0.5, -0.0, 0,   0.5, 1,  1.25,
                                1.7,  2.0, 2.5,  3.5, 4.5,  5.5,  6.5, 7.5, 8.5};
  enum { MEET = sizeof meet / sizeof *meet };
  double x[MEET * 5];
  for (int i = 0; i < MEET; i++) {
    double below = nextafter(meet[i], -inf), above = nextafter(meet[i], inf);
    double near[] = {meet[i], below, above, meet[i] - 0x1p-30, meet[i] + 0x1p-30};
    memcpy(x + 5 * i, near, sizeof near);
  }
  PX_SCOPED(px_tensor) t = made(PX_FLOAT64, S(MEET, 5), x);
  PX_SCOPED(px_tensor) result = NULL;
  OK(px_lgamma(&result, t));
  for (int i = 0; i < MEET * 5; i++) {
    long double wanted = wide_logarithm_of_gamma((long double)x[i]);
    double got = element(result, i);
    CHECK(got == (double)wanted || wide_units(got, wanted) <= 4);
  }
}
PX_TEST(erfinv_of_double_inverts_erf_within_two_units) {
  PX_SCOPED(px_tensor) t = all_kinds();
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  OK(px_to(&wide, t, PX_FLOAT64, px_cpu(), false, false));
  OK(px_erfinv(&result, wide));
  const double *y = px_tensor_data(wide), *x = px_tensor_data(result);
  for (int64_t i = 0; i < KINDS; i++) {
    double wanted = erfinv(y[i]);
    CHECK(wanted != wanted ? x[i] != x[i] : x[i] == wanted || fabs(x[i] / wanted - 1) < 1e-15);
  }
}

// ---- logsumexp

// Compares rows of a matrix and columns of its transpose, as a view and contiguous.
static void check_logsumexp(px_dtype dtype, int64_t columns, const double *values) {
  PX_SCOPED(px_tensor) t = made(dtype, S(1, columns), values);
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) transposed = NULL;
  PX_SCOPED(px_tensor) upright = NULL;
  OK(px_expand(&wide, t, SIZES(200, columns), 2));
  OK(px_transpose(&transposed, wide, 0, 1));
  OK(px_clone(&upright, transposed, "contiguous_format"));
  double top = -(double)INFINITY, sum = 0;
  for (int64_t i = 0; i < columns; i++) top = values[i] > top ? values[i] : top;
  double shift = isinf(top) ? 0 : top;
  for (int64_t i = 0; i < columns; i++) sum += exp(values[i] - shift);
  double wanted = log(sum) + shift, epsilon = dtype == PX_FLOAT64 ? 1e-15 : 1.2e-7;
  const px_tensor *all[] = {transposed, wide, upright};
  for (int i = 0; i < 3; i++) {
    PX_SCOPED(px_tensor) result = NULL;
    int64_t dim = i == 1;
    OK(px_logsumexp(&result, all[i], &dim, 1, false));
    double got = element(result, 150);
    CHECK(wanted != wanted ? got != got
                           : got == wanted || fabs(got - wanted) <= epsilon * (1 + fabs(wanted)));
  }
}
PX_TEST(logsumexp_is_accurate_in_blocks_and_tails) {
  enum { LONG = 5000 };
  static double values[LONG];
  const double inf = (double)INFINITY;
  for (int d = 0; d < 2; d++) {
    px_dtype dtype = d ? PX_FLOAT64 : PX_FLOAT32;
    for (int i = 0; i < LONG; i++) values[i] = (i * 37 % 101) / 8.0 + (i / 1000 % 3) * 40 - 300;
    check_logsumexp(dtype, LONG, values);
    check_logsumexp(dtype, 1000, values);
    values[4500] = -inf, values[0] = -inf;
    check_logsumexp(dtype, LONG, values);
    values[4500] = inf;
    check_logsumexp(dtype, LONG, values);
    values[7] = (double)NAN;
    check_logsumexp(dtype, LONG, values);
    check_logsumexp(dtype, 3, (const double[]){-inf, -inf, -inf});
    check_logsumexp(dtype, 1, (const double[]){2.5});
  }
}

// ---- powers

static const float ends[] = {0,         -0.0f,     1,         -1,    2,      -2,       3,
                             -3,        0.5f,      -0.5f,     1.5f,  -1.5f,  INFINITY, -INFINITY,
                             NAN,       1e-45f,    -1e-45f,   3e38f, -3e38f, 16777216, 16777217,
                             -16777215, 8388609.f, 0.999999f, 4,     127.5f, -149};
enum { ENDS = sizeof ends / sizeof *ends };

static void check_power(float a, float b, float got) {
  if (fabsf(b) == 0.5f && (a == 0 || isinf(a))) return;  // a square root's sign and NaN
  if (units(got, pow((double)a, (double)b)) <= 1.5) return;
  fprintf(stderr, "%a ^ %a is %a\n", (double)a, (double)b, (double)got);
  exit(1);
}
PX_TEST(powers_of_float_match_double_at_extremes) {
  PX_SCOPED(px_tensor) bases = NULL;
  PX_SCOPED(px_tensor) column = NULL;
  PX_SCOPED(px_tensor) exponents = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  int64_t count = ENDS;
  OK(px_tensor_from_data(&exponents, ends, 1, &count, PX_FLOAT32, px_cpu()));
  OK(px_tensor_from_data(&bases, ends, 1, &count, PX_FLOAT32, px_cpu()));
  OK(px_unsqueeze(&column, bases, 1));
  OK(px_pow(&result, column, exponents));
  const float *y = px_tensor_data(result);
  for (int i = 0; i < ENDS * ENDS; i++) check_power(ends[i / ENDS], ends[i % ENDS], y[i]);
}

// Bases near one with large powers, and bases of all magnitudes, including negative ones with
// integer exponents.
static void check_powers(void) {
  enum { MANY = 200000 };
  static double bases[MANY], exponents[MANY];
  uint64_t state = 3;
  for (int i = 0; i < MANY; i++) {
    double part[2];
    for (int k = 0; k < 2; k++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      part[k] = (double)(state >> 11) * 0x1p-53 - 0.5;
    }
    bases[i] = (double)(float)(i % 3 == 0 ? 1.06 + part[0] * 0.72 : exp2(part[0] * 200));
    exponents[i] = (double)(float)(i % 3 == 0 ? part[1] * 260 : part[1] * 3);
    if (i % 7 == 0) bases[i] = -bases[i], exponents[i] = rint(exponents[i]);
  }
  PX_SCOPED(px_tensor) a = made(PX_FLOAT32, S(MANY), bases);
  PX_SCOPED(px_tensor) b = made(PX_FLOAT32, S(MANY), exponents);
  PX_SCOPED(px_tensor) result = NULL;
  OK(px_pow(&result, a, b));
  const float *y = px_tensor_data(result);
  for (int i = 0; i < MANY; i++) check_power((float)bases[i], (float)exponents[i], y[i]);
}
PX_TEST(powers_of_float_are_within_one_and_a_half_units) { check_powers(); }
PX_TEST(powers_of_float_are_within_one_and_a_half_units_without_avx512) {
  setenv("PHLOX_CPU", "avx2", 1);
  check_powers();
}

static void check_wide_power(double a, double b, double got) {
  if (fabs(b) == 0.5 && (a == 0 || isinf(a))) return;  // a square root's sign and NaN
  if (wide_units(got, powl((long double)a, (long double)b)) <= 1.5) return;
  fprintf(stderr, "%a ^ %a is %a\n", a, b, got);
  exit(1);
}
// Extreme values of float and of double, and bases near one with powers near the max.
PX_TEST(powers_of_double_are_within_one_and_a_half_units) {
  enum { SOME = ENDS + 12 };
  double some[SOME] = {1e308,      -1e308,        5e-324,       -5e-324, 1.4232, 399.6,
                       0x1p53 - 1, 0.99999999999, 1.0000000001, 7e12,    -7e11,  1.41421356};
  for (int i = 0; i < ENDS; i++) some[12 + i] = (double)ends[i];
  PX_SCOPED(px_tensor) bases = made(PX_FLOAT64, S(SOME, 1), some);
  PX_SCOPED(px_tensor) exponents = made(PX_FLOAT64, S(SOME), some);
  PX_SCOPED(px_tensor) result = NULL;
  OK(px_pow(&result, bases, exponents));
  const double *y = px_tensor_data(result);
  for (int i = 0; i < SOME * SOME; i++) check_wide_power(some[i / SOME], some[i % SOME], y[i]);
}

// Mantissas of all positions between powers of two, with powers near both ends of the range.
PX_TEST(powers_of_double_by_large_exponents_are_within_one_and_a_half_units) {
  enum { MANY = 4096 };
  static double bases[MANY], exponents[MANY];
  for (int i = 0; i < MANY; i++) {
    bases[i] = 0.7 + 0.00018 * i;
    exponents[i] = (i % 2 ? 705 : -700) / log(bases[i]);
  }
  PX_SCOPED(px_tensor) a = made(PX_FLOAT64, S(MANY), bases);
  PX_SCOPED(px_tensor) b = made(PX_FLOAT64, S(MANY), exponents);
  PX_SCOPED(px_tensor) result = NULL;
  OK(px_pow(&result, a, b));
  const double *y = px_tensor_data(result);
  for (int i = 0; i < MANY; i++)
    if (fabs(exponents[i]) < 1e15) check_wide_power(bases[i], exponents[i], y[i]);
}

static px_status power_of_itself(px_tensor **out, const px_tensor *x) { return px_pow(out, x, x); }
// Numbers in range of the fast path, except one in the middle.
static void check_neighbour(function f, px_dtype dtype, double odd) {
  enum { COUNT = 192 };
  double values[COUNT];
  for (int i = 0; i < COUNT; i++) values[i] = 0.3 + 0.0371 * i;
  values[COUNT / 2 + 5] = 25;  // a power beyond 2^64
  PX_SCOPED(px_tensor) plain = made(dtype, S(COUNT), values);
  values[COUNT / 2] = odd;
  PX_SCOPED(px_tensor) mixed = made(dtype, S(COUNT), values);
  PX_SCOPED(px_tensor) wanted = NULL;
  PX_SCOPED(px_tensor) got = NULL;
  OK(f(&wanted, plain));
  OK(f(&got, mixed));
  for (int i = 0; i < COUNT; i++)
    if (i != COUNT / 2) CHECK(same(element(got, i), element(wanted, i)));
}
PX_TEST(results_do_not_depend_on_neighbouring_elements) {
  static const double odd[] = {0, 2, -1.5, 800, -800, 1e-310, 90, (double)INFINITY, (double)NAN};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
    for (int k = 0; k < 2; k++) {
      px_dtype dtype = k ? PX_FLOAT64 : PX_FLOAT32;
      check_neighbour(px_exp, dtype, odd[i]);
      check_neighbour(px_log, dtype, odd[i]);
      check_neighbour(px_sqrt, dtype, odd[i]);
      check_neighbour(power_of_itself, dtype, odd[i]);
    }
}

// Scalar exponents use a special case for some values.
static void check_exponent_forms(px_tensor *t) {
  for (int i = 0; i < ENDS; i++) {
    PX_SCOPED(px_tensor) filled = NULL;
    PX_SCOPED(px_tensor) apart = NULL;
    PX_SCOPED(px_tensor) at_once = NULL;
    OK(px_full_like(&filled, t, px_float((double)ends[i]), PX_DTYPE_NONE, PX_DEVICE_NONE, false,
                    false, NULL));
    OK(px_pow(&apart, t, filled));
    OK(px_pow_scalar(&at_once, t, px_float((double)ends[i])));
    const char *a = px_tensor_data(apart), *b = px_tensor_data(at_once);
    px_dtype dtype = px_tensor_dtype(t);
    for (int64_t k = 0; k < KINDS; k++) CHECK(same(number_at(dtype, a, k), number_at(dtype, b, k)));
  }
}
PX_TEST(a_power_does_not_depend_on_how_its_exponent_is_given) {
  PX_SCOPED(px_tensor) floats = all_kinds();
  PX_SCOPED(px_tensor) doubles = all_wide_kinds();
  check_exponent_forms(floats);
  check_exponent_forms(doubles);
}
