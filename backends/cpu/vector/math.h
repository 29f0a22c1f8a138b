// SPDX-License-Identifier: Apache-2.0
// The kernel math library: the functions available to expressions of ops/*.op. `exp(x)` in a table
// is k_exp_f32 or k_exp_f64 here.
//
// In float exp, log, log1p, tanh, sigmoid, erf, erfinv, asin, acos and atan have no branches and no
// calls, so that loops around them vectorize. In double (math_f64.h) this holds for all of these
// but erf. Errors are within 2.5 ulp; polynomials are minimax fits of their degree. Other float
// functions are computed in double (math_f32_in_f64.h). The rest is libm. scalars.h holds the part
// shared by backends.
#pragma once
#include "cpu/vector/math_f64.h"
#include "cpu/vector/fp16_bf16.h"
#include "cpu/vector/math_f32_in_f64.h"
#include "phlox/backend.h"

#include <float.h>
#include <math.h>

#define K_inf_f32 INFINITY
#define K_inf_f64 ((double)INFINITY)
#define K_nan_f32 NAN
#define K_nan_f64 ((double)NAN)
#define K_max_value_f32 INFINITY
#define K_max_value_f64 ((double)INFINITY)
#define K_min_value_f32 (-INFINITY)
#define K_min_value_f64 (-(double)INFINITY)
#define K_max_value_u8 UINT8_MAX
#define K_min_value_u8 0
#define K_max_value_i32 INT32_MAX
#define K_min_value_i32 INT32_MIN
#define K_max_value_i64 INT64_MAX
#define K_min_value_i64 INT64_MIN

#define K_FMA K_FMA_f32
#define K_SHIFT 12582912.0f  // 1.5 * 2^23: adding it rounds to an integer

// e^r - 1 for |r| <= ln 2 / 2.
static inline float k_exp_rest(float r) {
  float q = r * r, p = K_FMA(r, 0.00139503835f, 0.00836885047f);
  p = K_FMA(p, q, K_FMA(r, 0.0416662082f, 0.166665193f));
  p = K_FMA(p, r, 0.5f);
  return K_FMA(p, q, r);
}

// 2^n e^r with x = n ln 2 + r. The lowest bits of `shifted` hold n with two biases. The power is
// applied in two halves, so that subnormal results are right.
static inline float k_exp_f32(float x) {
  const float magic = K_SHIFT + 254;
  float shifted = K_FMA(x, 1.44269504f, magic), n = shifted - magic;
  float r = K_FMA(n, -0.693145752f, x);
  r = K_FMA(n, -1.42860677e-6f, r);
  uint32_t m = px__float_bits(shifted), half = m >> 1;
  float y = (k_exp_rest(r) + 1) * px__bits_float(half << 23) * px__bits_float((m - half) << 23);
  y = x < -104 ? 0 : y;
  return x > 89 ? INFINITY : y;
}

// e^-a = power * (1 + rest) for 0 <= a <= 80; `power` is a power of two.
static inline float k_exp_parts(float a, float *rest) {
  float shifted = K_FMA(a, -1.44269504f, K_SHIFT), n = shifted - K_SHIFT;
  float r = K_FMA(n, -0.693145752f, -a);
  *rest = k_exp_rest(K_FMA(n, -1.42860677e-6f, r));
  return px__bits_float((px__float_bits(shifted) << 23) + (127u << 23));
}
// 1 - e^-a, accurate for small a too.
static inline float k_exp_lack(float a) {
  float rest, power = k_exp_parts(a, &rest);
  return K_FMA(-power, rest, 1.0f - power);
}

// (log(1 + f) - f) / f^2 for 1 + f in [sqrt(0.5), sqrt(2)).
static inline float k_log_rest(float f) {
  float q = f * f, p = K_FMA(f, -0.0786023472f, 0.128814352f);
  p = K_FMA(p, q, K_FMA(f, -0.131284026f, 0.141812073f));
  p = K_FMA(p, q, K_FMA(f, -0.166245961f, 0.200022865f));
  p = K_FMA(p, f, -0.25000809f);
  p = K_FMA(p, f, 0.333333167f);
  return K_FMA(p, f, -0.5f);
}

// x = 2^e m with m near 1. log m = f - f^2 / 2 + f^3 times a polynomial, with f = m - 1. The float
// nearest to ln 2 is accurate enough for every e.
static inline float k_log_of_bits(uint32_t bits, float scale) {
  uint32_t v = bits - 0x3f3504f3u;  // bits of sqrt(0.5)
  float e = (float)((int32_t)v >> 23) - scale;
  float f = px__bits_float((v & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  return K_FMA(e, 0.693147182f, K_FMA(f * f, k_log_rest(f), f));
}
// Plain arguments are positive normal numbers.
static inline float k_plain_log_f32(float x) { return k_log_of_bits(px__float_bits(x), 0); }
static inline float k_log_f32(float x) {
  bool tiny = x < FLT_MIN;
  float y = k_log_of_bits(px__float_bits(tiny ? x * 8388608.0f : x), tiny ? 23.0f : 0.0f);
  y = x > FLT_MAX ? x : y;
  y = x == 0 ? -INFINITY : y;
  return x >= 0 ? y : NAN;
}

// e ln 2 + log(1 + f) with 1 + x = 2^e (1 + f). f is computed from x itself and so keeps all digits
// of a small x. Large x are scaled; the 1 is then negligible.
static inline float k_log1p_f32(float x) {
  bool large = x > 0x1p60f;
  float scaled = large ? x * 0x1p-64f : x, one = large ? 0.0f : 1.0f;
  uint32_t v = px__float_bits(scaled + one) - 0x3f3504f3u;  // bits of sqrt(0.5)
  uint32_t whole = v & 0xff800000u;
  float power = px__bits_float(0x3f800000u - whole);  // 2^-e
  float f = K_FMA(scaled, power, K_FMA(one, power, -1.0f));
  float e = (float)((int32_t)whole >> 23) + (large ? 64.0f : 0.0f);
  float y = K_FMA(e, 0.693145752f, f + K_FMA(f * f, k_log_rest(f), e * 1.42860677e-6f));
  y = fabsf(x) < FLT_MIN ? x : y;
  y = x > FLT_MAX ? x : y;
  y = x == -1 ? -INFINITY : y;
  return x >= -1 ? y : NAN;
}

// True if all n numbers are plain. `distance` maps `bits`, the bits of x, to a distance from the
// smallest plain number; x is plain if it is below `end`.
#define K_ARE_PLAIN(name, S, T, BITS, bits_of, distance, end) \
  K_INLINE bool k_are_plain_##name##_##S(const T *x, int64_t n) { \
    BITS largest = 0; \
    for (int64_t k = 0; k < n; k++) { \
      BITS bits = (BITS)bits_of(x[k]), at = distance; \
      largest = at > largest ? at : largest; \
    } \
    return largest < end; \
  }
K_ARE_PLAIN(log, f32, float, uint32_t, px__float_bits, bits - 0x00800000u, 0x7f000000u)
// Vectors compare 64-bit integers as signed, hence the halving.
K_ARE_PLAIN(log, f64, double, int64_t, k_double_bits,
            (int64_t)(((uint64_t)bits - 0x0010000000000000) >> 1), 0x3ff0000000000000)
K_ARE_PLAIN(exp, f64, double, int64_t, k_double_bits, bits &INT64_MAX, 0x4086200000000000)  // 708

// Nonnegative numbers compare like their bits: the smaller of x and `cap`; `cap` for NaN.
static inline float k_min_bits(uint32_t x, float cap) {
  uint32_t limit = px__float_bits(cap);
  return px__bits_float(x < limit ? x : limit);
}

// The same for any sign; negative numbers are smaller.
static inline float k_min_signed(float x, float cap) {
  int32_t bits = (int32_t)px__float_bits(x), limit = (int32_t)px__float_bits(cap);
  return px__bits_float((uint32_t)(bits < limit ? bits : limit));
}

// m / (m + 1) with m = (exp(2 |x|) - 1) / 2; for m >= 1 as 1 - 1 / (m + 1), whose error near 1 is
// below 1 ulp of the result, so that 1 - tanh^2 keeps its digits. The smaller of m and 1 is the
// numerator of both, so one division suffices. Only the exponent is clamped; the polynomial covers
// larger arguments and NaN.
static inline float k_tanh_f32(float x) {
  const float magic = K_SHIFT + 127;
  uint32_t size = px__float_bits(x) & 0x7fffffffu;
  float shifted = K_FMA(k_min_bits(size, 10), 2.88539008f, magic), n = shifted - magic;
  float r = K_FMA(n, -0.346573591f, px__bits_float(size)), q = r * r;
  float p = K_FMA(r, 0.0446412272f, 0.133901607f);
  p = K_FMA(p, q, K_FMA(r, 0.333329666f, 0.666660786f));
  p = K_FMA(K_FMA(p, r, 1.0f), q, r);  // (exp(2 r) - 1) / 2
  float power = px__bits_float(px__float_bits(shifted) << 23);
  float m = K_FMA(power, p, K_FMA(power, 0.5f, -0.5f));
  float part = k_min_bits(px__float_bits(m), 1) / (m + 1.0f);
  return copysignf(m < 1.0f ? part : 1.0f - part, x);
}

static inline float k_sigmoid_f32(float x) {
  float t = k_exp_f32(-fabsf(x)), d = 1.0f + t;
  return (x < 0 ? t : 1.0f) / d;
}

// 1 - exp(-q(x)); q is fitted to -log(erfc(x)) on [0, 3.92].
static inline float k_erf_f32(float x) {
  float a = fabsf(x);
  a = a > 3.92f ? 3.92f : a;
  float q = a * a, p = K_FMA(a, -9.25629147e-6f, 0.000117641579f);
  p = K_FMA(p, q, K_FMA(a, -0.000632838008f, 0.00166702929f));
  p = K_FMA(p, q, K_FMA(a, -0.000160397251f, -0.0191530638f));
  p = K_FMA(p, q, K_FMA(a, 0.102777831f, 0.636619382f));
  p = K_FMA(p, a, 0.128379172f);
  return copysignf(k_exp_lack(K_FMA(p, a, a)), x);
}

// The standard normal CDF, to 9e-9 plus rounding. For x < 0 it is exp(-q(|x|)) / 2: accurate in
// most digits down to -4, and 0 below about -13. NaN gives an arbitrary number, since gelu
// multiplies the result by x.
static inline float k_normal_f32(float x) {
  const float magic = K_SHIFT + 126;
  float a = fabsf(x), q = K_FMA(a, 1.78980167e-06f, -2.54260776e-05f);
  q = K_FMA(q, a, 0.000121154982f);
  q = K_FMA(q, a, 0.000111887122f);
  q = K_FMA(q, a, -0.00491580786f);
  q = K_FMA(q, a, 0.0364000238f);
  q = K_FMA(q, a, 0.318294972f);
  q = K_FMA(q, a, 0.797885835f);
  q = K_FMA(q, a, -1.7639298e-08f);
  q = k_min_signed(q, 87.36f);
  float shifted = K_FMA(q, -1.44269504f, magic), n = shifted - magic;
  float r = K_FMA(n, 0.693147182f, q), p = K_FMA(r, 0.00138201355f, -0.00836868584f);
  p = K_FMA(p, r, 0.0416682735f);
  p = K_FMA(p, r, -0.166665211f);
  p = K_FMA(p, r, 0.49999994f);
  p = K_FMA(p, r, -1.0f);
  float half = K_FMA(p, r, 1.0f) * px__bits_float(px__float_bits(shifted) << 23);
  return x < 0 ? half : 1.0f - half;
}
// The standard normal density; 0 for NaN.
static inline float k_density_f32(float x) {
  const float magic = K_SHIFT + 127;
  float q = k_min_bits(px__float_bits(x * x), 175.4f);
  float shifted = K_FMA(q, -0.72134752f, magic), n = shifted - magic;
  float r = K_FMA(n, 1.38629436f, q), p = K_FMA(r, 2.15939617e-05f, -0.000261521433f);
  p = K_FMA(p, r, 0.00260426709f);
  p = K_FMA(p, r, -0.0208331514f);
  p = K_FMA(p, r, 0.124999985f);
  p = K_FMA(p, r, -0.5f);
  p = K_FMA(p, r, 1.0f) * px__bits_float(px__float_bits(shifted) << 23);
  return p * 0.39894228f;
}

// atan of x, or of -1 / x for |x| > 1, by a polynomial on [-1, 1]. pi / 2 is 4.4e-8 less than the
// nearest float.
static inline float k_atan_f32(float x) {
  float a = fabsf(x), inverse = -1 / a;
  float t = a > 1 ? inverse : a, z = t * t, q = z * z;
  float p = K_FMA(z, -0.0017936453f, 0.010914721f);
  p = K_FMA(p, q, K_FMA(z, -0.031178081f, 0.057957854f));
  p = K_FMA(p, q, K_FMA(z, -0.084034674f, 0.109521925f));
  p = K_FMA(p, q, K_FMA(z, -0.14264244f, 0.19998549f));
  p = K_FMA(p, z, -0.333333f);
  float y = K_FMA(t * z, p, t), far = 1.57079637f + y;
  return copysignf(a > 1 ? far : y, x);
}
// asin(|x|) for |x| <= 0.5; otherwise asin(sqrt((1 - |x|) / 2)), half of the distance to pi / 2.
static inline float k_arc_of(float x) {
  float a = fabsf(x), half = K_FMA(a, -0.5f, 0.5f), root = sqrtf(half), square = a * a;
  float t = a > 0.5f ? root : a, z = a > 0.5f ? half : square;
  float p = K_FMA(z, 0.037565257f, 0.014402563f);
  p = K_FMA(p, z, 0.031817622f);
  p = K_FMA(p, z, 0.04451572f);
  p = K_FMA(p, z, 0.07500511f);
  p = K_FMA(p, z, 0.1666666f);
  return K_FMA(t * z, p, t);
}
static inline float k_asin_f32(float x) {
  float y = k_arc_of(x), far = K_FMA(y, -2, 1.57079637f);
  return copysignf(fabsf(x) > 0.5f ? far : y, x);
}
static inline float k_acos_f32(float x) {
  float y = k_arc_of(x), twice = 2 * y, back = 3.14159274f - twice;
  float near = 1.57079637f - copysignf(y, x), far = x < 0 ? back : twice;
  return fabsf(x) > 0.5f ? far : near;
}

// 1 - y^2, rounded once.
#ifdef __FMA__
#define K_BELOW_SQUARE(y) K_FMA(-(y), y, 1.0f)
#else
#define K_BELOW_SQUARE(y) (float)(1 - (double)(y) * (y))
#endif
// erfinv(y) = y + y p(t) with t = log(1 - y^2) > -5; *far is inf elsewhere. p is flat, so the
// logarithm may be less accurate.
static inline float k_near_erfinv_f32(float *far, float y) {
  float u = K_BELOW_SQUARE(y);
  uint32_t v = px__float_bits(u) - 0x3f3504f3u;  // bits of sqrt(0.5)
  float e = (float)((int32_t)v >> 23), f = px__bits_float((v & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  float t = K_FMA(f, -0.100351639f, 0.163358226f);
  t = K_FMA(t, f, -0.173258737f);
  t = K_FMA(t, f, 0.198882475f);
  t = K_FMA(t, f, -0.249614745f);
  t = K_FMA(t, f, 0.333352625f);
  t = K_FMA(t, f, -0.500005841f);
  t = K_FMA(e, 0.693147182f, K_FMA(f * f, t, f));
  float p = K_FMA(t, 8.80663098e-09f, 2.21402217e-07f);
  p = K_FMA(p, t, 1.98018961e-06f);
  p = K_FMA(p, t, 4.00370482e-06f);
  p = K_FMA(p, t, -4.44983962e-05f);
  p = K_FMA(p, t, -0.000127349747f);
  p = K_FMA(p, t, 0.00233444897f);
  p = K_FMA(p, t, 0.0115487492f);
  p = K_FMA(p, t, -0.232013792f);
  p = K_FMA(p, t, -0.113773078f);
  *far = u > 0.00673795f ? 0 : INFINITY;
  return K_FMA(y, p, y);
}

// ---- functions shared by all backends, and the remaining ones

// Loops of constant length use libm's vector functions (libmvec, within 4 ulp) if the C library and
// the compiler provide all of these, on x86 only.
#if defined(__GLIBC_PREREQ) && defined(__x86_64__) && !defined(__clang__)
#if __GLIBC_PREREQ(2, 35)
#define K_VECTORS(name, T, ...) __attribute__((__simd__("notinbranch"))) extern T name(__VA_ARGS__);
#define K_VECTORS_OF(name) K_VECTORS(name##f, float, float) K_VECTORS(name, double, double)
K_VECTORS_OF(exp2)
K_VECTORS_OF(expm1)
K_VECTORS_OF(log2)
K_VECTORS_OF(log10)
K_VECTORS_OF(sin)
K_VECTORS_OF(cos)
K_VECTORS_OF(tan)
K_VECTORS(asin, double, double)
K_VECTORS(acos, double, double)
K_VECTORS(atan, double, double)
K_VECTORS_OF(sinh)
K_VECTORS_OF(cosh)
K_VECTORS_OF(asinh)
K_VECTORS_OF(acosh)
K_VECTORS_OF(atanh)
K_VECTORS_OF(erfc)
K_VECTORS(atan2f, float, float, float)
K_VECTORS(atan2, double, double, double)
K_VECTORS(powf, float, float, float)
K_VECTORS(pow, double, double, double)
K_VECTORS(exp, double, double)
K_VECTORS(log, double, double)
K_VECTORS(erf, double, double)
#endif
#endif

// lgamma without the global signgam, which threads would share.
static inline double k_lgamma(double x) {
  int sign;
  return lgamma_r(x, &sign);
}
#define K_LGAMMA(x) k_lgamma(x)
#define K_LGAMMA_F32(x) k_narrow_lgamma(x)
#define K_ERFINV_F64(y) k_double_erfinv(y)
#define K_ERFINV_F32(y) (float)k_double_erfinv((double)(y))
#define K_LOG(x) k_narrow_log(x)
#define K_ARCS_F32(name)  // above
#define K_POW_F32         // below
#ifdef __FMA__
#define K_POW_F64  // below
#endif
#define K_BESSEL(name) name
// Computes both branches, for vectorization. No float has a finite I where e^x overflows.
#define K_BESSEL_IE \
  K_INLINE double k_series_on(double sum, const double *c, int n, double z) { \
    PX__CPU_UNROLLED for (int i = n - 1; i >= 0; i--) sum = K_FMA_f64(sum, z, c[i]); \
    return sum; \
  } \
  K_INLINE double k_bessel_ie_narrow(int v, double x) { \
    const double near0[] = {K_I_NEAR0}, near1[] = {K_I_NEAR1}; \
    const double far0[] = {K_I_FAR0}, far1[] = {K_I_FAR1}; \
    double u = x / 4 - 1, w = 16 / x - 1; \
    const double *c = v ? near1 : near0; \
    double near = k_series_on(k_series_on(0, c + 10, 9, u), c, 10, u); \
    double far = k_series_on(0, v ? far1 : far0, 7, w) / sqrt(x); \
    return x < 8 ? v ? x * near : near : far; \
  } \
  K_INLINE double k_bessel_i_narrow(int v, double x) { \
    double y = k_bessel_ie_narrow(v, x) * k_exp_f64(x); \
    return x == (double)INFINITY ? x : y; \
  }

// Calls would prevent vectorization of the loops around these.
K_INLINE float k_lgamma_f32(float x);

#define K_MATH static inline
// Not inlined, so that an element's result does not depend on its position: a loop over an inlined
// function would be vectorized in part, with different rounding.
#define K_CALLED __attribute__((noinline, unused)) static
#define K_LAUNCH const px_launch *
#define K_ZERO_DIVISION(l) px_kernel_fault(l, PX_FAULT_ZERO_DIVISION, 0, 0, 0)
#include "scalars.h"

// gcc does not vectorize selection between bools.
static inline bool k_choose_bool(bool c, bool a, bool b) { return (c & a) | (!c & b); }
static inline bool k_either_bool(bool a, bool b) { return a | b; }
static inline bool k_both_bool(bool a, bool b) { return a & b; }
#define k_select_bool k_choose_bool
#define k_max_bool k_either_bool
#define k_min_bool k_both_bool

#define K_LIBM_F64(name) \
  static inline double k_##name##_f64(double x) { return name(x); }
K_LIBM_F64(erf)

// K_POW's special exponents without branches. Roots and quotients take as long as everything else;
// k_near_pow skips them for other exponents and marks special ones in `far`.
#define K_IS_EASY(T, size, b) ((size == 2) | (size == 1) | (size == (T)0.5) | (b == 3))
#define K_POW_BY(S, T, M, general) \
  K_INLINE T k_pow_##S(T a, T b) { \
    T y = general(a, b), size = fabs##M(b); \
    T part = size == 2 ? a * a : a; \
    part = size == (T)0.5 ? K_ROOT(T, M, a) : part; \
    part = b < 0 ? 1 / part : part; \
    y = ((size == 2) | (size == 1) | (size == (T)0.5)) ? part : y; \
    return b == 3 ? a * a * a : y; \
  }
K_POW_BY(f32, float, f, k_narrow_pow)
#ifdef K_POW_F64
K_POW_BY(f64, double, , k_double_pow)
K_INLINE double k_near_pow_f64(double *far, double a, double b) {
  double size = fabs(b);
  *far = K_IS_EASY(double, size, b) ? (double)INFINITY : 0;
  return k_double_pow(a, b);
}
// log2 of a normal magnitude, *low receiving the low part: for m near 1 through
// s = (m - 1) / (m + 1), in two parts up to s^3.
K_INLINE float k_log2_parts(uint32_t size, float *low) {
  const float one = 2.88539004f, rest = 3.85192598e-08f;  // 2 / ln 2
  uint32_t v = size - 0x3f3504f3u;                        // bits of sqrt(0.5)
  float e = (float)((int32_t)v >> 23), m = px__bits_float((v & 0x007fffffu) + 0x3f3504f3u);
  float f = m - 1, d = m + 1, d_low = m - (d - 1), r = 1 / d, s = f * r;
  float s_low = r * K_FMA(-s, d_low, K_FMA(-s, d, f));
  float z = s * s, c = s * z, p = K_FMA(z, 0.336489528f, 0.411927283f);
  p = K_FMA(p, z, 0.577078819f);
  float h = s * one, l = K_FMA(s, rest, K_FMA(s, one, -h));
  l = K_FMA(s_low, K_FMA(z, one, one), l);
  l = K_FMA(K_FMA(s, z, -c), 0.961796701f, l);
  l = K_FMA(c, 0.961796701f, K_FMA(c * z, p, l));
  float log = e + h;
  *low = l + (h - (log - e));
  return log;
}
// size^b for a normal magnitude; *t receives b times its base-2 logarithm.
K_INLINE float k_power_of(uint32_t size, float b, float *t) {
  float low, log = k_log2_parts(size, &low);
  *t = b * log;
  low = K_FMA(b, low, K_FMA(b, log, -*t));
  float shifted = (*t + low) + K_SHIFT, q = (*t - (shifted - K_SHIFT)) + low;
  float y = K_FMA(q, 0.00015327803f, 0.00133909972f);
  y = K_FMA(y, q, 0.00961850304f);
  y = K_FMA(y, q, 0.0555035956f);
  y = K_FMA(y, q, 0.240226477f);
  y = K_FMA(y, q, 0.693147182f);
  y = K_FMA(y, q, 1.0f);
  return px__bits_float(px__float_bits(y) + (px__float_bits(shifted) << 23));
}
// The max |t| for an error within 1.5 ulp: a large exponent magnifies the logarithm's error.
K_INLINE float k_most_close(float power) { return power < 128 ? 126.0f : 64.0f; }
// a^b for a positive normal a. Valid if *size is below k_most_close.
K_INLINE float k_plain_pow_f32(float *size, float a, float b) {
  float t, y = k_power_of(px__float_bits(a), b, &t);
  *size = fabsf(t);
  return y;
}
// The bits of |a|, or of 1 if a is 0.
K_INLINE uint32_t k_power_size(float a) {
  uint32_t size = px__float_bits(a) & 0x7fffffffu;
  return size | ((uint32_t)((int32_t)(size - 1) >> 31) & 0x3f800000u);
}
// Completes a^b from y = k_power_of(size, b, &t). *far is inf for special exponents, for bases
// other than normal numbers and zero, and for results beyond 2^126 or 2^-126 (2^64 or 2^-64 if |b|
// is large).
K_INLINE float k_settled_power(float *far, float a, float b, uint32_t size, float y, float t) {
  uint32_t bits = px__float_bits(a);
  float end = b > 0 ? 0 : y;
  end = b < 0 ? INFINITY : end;
  y = a == 0 ? end : y;
  // Floats beyond int32 are even; the conversion yields INT32_MIN, whose low bit is 0.
  uint32_t sign = bits & ((uint32_t)(int32_t)b << 31);
  float part = a < 0 ? NAN : y;
  y = rintf(b) == b ? px__bits_float(px__float_bits(y) ^ sign) : part;
  bool normal = size - 0x00800000u < 0x7f000000u;
  float power = fabsf(b);
  bool close = (px__float_bits(t) & 0x7fffffffu) < px__float_bits(k_most_close(power));
  *far = (normal & close & !K_IS_EASY(float, power, b)) ? 0 : INFINITY;
  return y;
}
// a^b within 1.5 ulp, or marked in *far as above.
K_INLINE float k_near_pow_f32(float *far, float a, float b) {
  float t, y = k_power_of(k_power_size(a), b, &t);
  return k_settled_power(far, a, b, k_power_size(a), y, t);
}
// True if all n bases are positive normal numbers and no exponent is special. Special exponents,
// their negatives, 1.5 and 0.75 are the only ones with rotated bits of at most 5. For double,
// halved because vectors compare as signed.
K_INLINE bool k_are_plain_pow_f32(const float *a, const float *b, int64_t n) {
  uint32_t smallest = UINT32_MAX;
  for (int64_t k = 0; k < n; k++) {
    uint32_t u = px__float_bits(b[k]) * 2 - 0x7e000000u, rotated = u << 9 | u >> 23;
    smallest = rotated < smallest ? rotated : smallest;
  }
  return (smallest > 5) & k_are_plain_log_f32(a, n);
}
K_INLINE bool k_are_plain_pow_f64(const double *a, const double *b, int64_t n) {
  int64_t smallest = INT64_MAX;
  for (int64_t k = 0; k < n; k++) {
    uint64_t u = k_double_bits(b[k]) * 2 - 0x7fc0000000000000;
    int64_t rotated = (int64_t)((u << 12 | u >> 52) >> 1);
    smallest = rotated < smallest ? rotated : smallest;
  }
  return (smallest > 2) & k_are_plain_log_f64(a, n);
}
// True if all are below the limit of validity; false for NaN.
#define K_ARE_CLOSE(S, T, BITS, bits_of, end) \
  K_INLINE bool k_are_close_##S(const T *size, int64_t n) { \
    BITS largest = 0; \
    for (int64_t k = 0; k < n; k++) { \
      BITS bits = (BITS)bits_of(size[k]); \
      largest = bits > largest ? bits : largest; \
    } \
    return largest < end; \
  }
K_ARE_CLOSE(f32, float, int32_t, px__float_bits, 0x42800000)          // 64
K_ARE_CLOSE(f64, double, int64_t, k_double_bits, 0x4086200000000000)  // 708
// Converts sizes to the marks of k_near_pow_f32 for the same powers. In double the whole block is
// recomputed.
K_INLINE bool k_mark_far_f32(float *size, const float *b, int64_t n) {
  for (int64_t k = 0; k < n; k++) size[k] = size[k] < k_most_close(fabsf(b[k])) ? 0 : INFINITY;
  return true;
}
K_INLINE bool k_mark_far_f64(double *size, const double *b, int64_t n) { return false; }
#else
#define K_NO_PLAIN_POW(S, T) \
  K_INLINE T k_plain_pow_##S(T *size, T a, T b) { return a; } \
  K_INLINE bool k_are_plain_pow_##S(const T *a, const T *b, int64_t n) { return false; } \
  K_INLINE bool k_are_close_##S(const T *size, int64_t n) { return false; } \
  K_INLINE bool k_mark_far_##S(T *size, const T *b, int64_t n) { return false; }
K_NO_PLAIN_POW(f32, float)
K_NO_PLAIN_POW(f64, double)
K_INLINE float k_near_pow_f32(float *far, float a, float b) {
  *far = INFINITY;
  return a;
}
static inline double k_near_pow_f64(double *far, double a, double b) {
  *far = (double)INFINITY;
  return a;
}
#endif

// a^b for an exponent known at compile time: 0 or one of K_POW's.
#define K_EASY(S, T, M) \
  static inline T k_easy_pow_##S(double known, T a, T b) { \
    if (known == 0) return 1; \
    T product = known == 3 ? a * a * a : known == 2 || known == -2 ? a * a : a; \
    T part = known == 0.5 || known == -0.5 ? sqrt##M(a) : product; \
    return known < 0 ? 1 / part : part; \
  }
K_EASY(f32, float, f)
K_EASY(f64, double, )
// For integers: exponents 0 to 3.
#define K_EASY_WHOLE(S, T) \
  static inline T k_easy_pow_##S(int known, T a, T b) { \
    T square = (T)(a * a); \
    return known == 0 ? 1 : known == 1 ? a : known == 2 ? square : (T)(square * a); \
  }
K_EASY_WHOLE(u8, uint8_t)
K_EASY_WHOLE(i8, int8_t)
K_EASY_WHOLE(i16, int16_t)
K_EASY_WHOLE(i32, int32_t)
K_EASY_WHOLE(i64, int64_t)

static inline double k_normal_f64(double x) { return 0.5 * (1 + erf(x * 0.7071067811865476)); }
static inline double k_density_f64(double x) {
  return 0.3989422804014327 * k_exp_f64(-0.5 * x * x);
}
static inline double k_sigmoid_f64(double x) {
  double t = k_exp_f64(-fabs(x));
  return (x < 0 ? t : 1.0) / (1.0 + t);
}

// The largest finite number of the compute dtype, which may be fp16 or bf16.
static inline float k_highest_f32(const px_launch *l) {
  return l->compute == PX_FLOAT16 ? 65504.0f : l->compute == PX_BFLOAT16 ? 3.38953139e38f : FLT_MAX;
}
static inline float k_lowest_f32(const px_launch *l) { return -k_highest_f32(l); }
static inline double k_highest_f64(const px_launch *l) { return DBL_MAX; }
static inline double k_lowest_f64(const px_launch *l) { return -DBL_MAX; }

// fmod without branches, for quotients with fewer bits than the mantissa. *far receives the
// quotient's magnitude; from K_far on the result is invalid. The rounded quotient is exact or one
// too large; then the sign of the remainder is wrong. The remainder is exact.
#ifdef __FMA__
#define K_far_f32 0x1p23f
#define K_far_f64 0x1p52
#else
#define K_far_f32 -1.0f  // never valid
#define K_far_f64 -1.0
#endif
#define K_NEAR(S, T, M) \
  static inline T k_near_fmod_##S(T *far, T a, T b) { \
    T q = trunc##M(a / b), r = K_FMA_##S(-q, b, a); \
    *far = q == q ? fabs##M(q) : 0; \
    r = r != 0 && (r < 0) != (a < 0) ? r + copysign##M(b, a) : r; \
    return q == 0 ? a : copysign##M(r, a); \
  } \
  static inline T k_near_remainder_##S(T *far, T a, T b) { \
    return k_remainder_of_##S(k_near_fmod_##S(far, a, b), b); \
  } \
  static inline T k_near_floordiv_##S(T *far, T a, T b) { \
    return k_floordiv_of_##S(k_near_fmod_##S(far, a, b), a, b); \
  }
K_NEAR(f32, float, f)
K_NEAR(f64, double, )

// Integer quotients through floats of type F, without branches. The rounded quotient is at most one
// away from the floored and the truncated one. It, its product with b and the remainder are exact;
// a negative product indicates different signs. *far marks cases left to integer division: zero
// divisors, numbers with more bits than F's mantissa, and INT32_MIN / -1.
#define K_far_u8 1
#define K_far_i8 1
#define K_far_i16 1
#define K_far_i32 1
#define K_far_i64 1
#define K_FLOAT_i64(x) (k_bits_double((uint64_t)(x) + 0x4338000000000000) - 0x1.8p52)
#define K_WHOLE_i64(x) ((int64_t)(k_double_bits((x) + 0x1.8p52) - 0x4338000000000000))
#define K_HIGH(x) ((uint64_t)(x) + ((uint64_t)1 << 51))
#define K_NEAR_WHOLE(S, T, F, M, SHIFT, FAR, TO, FROM) \
  K_INLINE F k_near_quotient_##S(T *far, T a, T b, F *rest, F *divisor) { \
    T d = b == 0 ? 1 : b; \
    *far = b == 0 ? 1 : (T)(FAR); \
    F x = TO(a), y = TO(d), n = x / y + SHIFT - SHIFT; \
    *rest = x - n * y, *divisor = y; \
    return n; \
  } \
  K_INLINE T k_near_floordiv_##S(T *far, T a, T b) { \
    F r, y, n = k_near_quotient_##S(far, a, b, &r, &y); \
    return FROM(n - (r * y < 0 ? 1 : 0)); \
  } \
  K_INLINE T k_near_remainder_##S(T *far, T a, T b) { \
    F r, y; \
    (void)k_near_quotient_##S(far, a, b, &r, &y); \
    return FROM(r + (r * y < 0 ? y : 0)); \
  } \
  K_INLINE T k_near_truncdiv_##S(T *far, T a, T b) { \
    F r, y, n = k_near_quotient_##S(far, a, b, &r, &y), one = copysign##M(1, n); \
    return FROM(n - (r * TO(a) < 0 ? one : 0)); \
  } \
  K_INLINE T k_near_fmod_##S(T *far, T a, T b) { \
    F r, y; \
    (void)k_near_quotient_##S(far, a, b, &r, &y); \
    y = copysign##M(y, r); \
    return FROM(r - (r * TO(a) < 0 ? y : 0)); \
  }
K_NEAR_WHOLE(u8, uint8_t, float, f, K_SHIFT, 0, (float), (uint8_t)(int))
K_NEAR_WHOLE(i8, int8_t, float, f, K_SHIFT, 0, (float), (int8_t)(int))
K_NEAR_WHOLE(i16, int16_t, float, f, K_SHIFT, 0, (float), (int16_t)(int))
K_NEAR_WHOLE(i32, int32_t, double, , 0x1.8p52, b == -1, (double), (int32_t))
K_NEAR_WHOLE(i64, int64_t, double, , 0x1.8p52, (K_HIGH(a) | K_HIGH(b)) >> 52, K_FLOAT_i64,
             K_WHOLE_i64)

#include "cpu/vector/math_complex.h"

// Scalar parameters, and finite limits of integers.
#define K_REAL(S, T, M) \
  static inline T k_number_##S(const px_value *v) { return (T)px_value_float(*v); } \
  static inline T k_rsqrt_##S(T x) { return 1 / sqrt##M(x); }
K_REAL(f32, float, f)
K_REAL(f64, double, )
static inline float k_number_c64(const px_value *v) { return k_number_f32(v); }
static inline double k_number_c128(const px_value *v) { return k_number_f64(v); }

#define K_NUMBER(S, T, LOW, HIGH) \
  static inline T k_number_##S(const px_value *v) { return (T)px_value_int(*v); } \
  static inline T k_highest_##S(const px_launch *l) { return HIGH; } \
  static inline T k_lowest_##S(const px_launch *l) { return LOW; }
K_NUMBER(u8, uint8_t, 0, UINT8_MAX)
K_NUMBER(i8, int8_t, INT8_MIN, INT8_MAX)
K_NUMBER(i16, int16_t, INT16_MIN, INT16_MAX)
K_NUMBER(i32, int32_t, INT32_MIN, INT32_MAX)
K_NUMBER(i64, int64_t, INT64_MIN, INT64_MAX)
static inline bool k_number_bool(const px_value *v) { return px_value_float(*v) != 0; }
static inline bool k_highest_bool(const px_launch *l) { return true; }
static inline bool k_lowest_bool(const px_launch *l) { return false; }
