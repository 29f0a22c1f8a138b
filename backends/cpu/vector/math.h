// SPDX-License-Identifier: Apache-2.0
// The kernel math library: what the expressions of ops/*.op may call, `exp(x)` in a table being
// k_exp_f32 or k_exp_f64 here.
//
// exp, log, log1p, tanh, sigmoid, erf, erfinv, asin, acos and atan of float, and all but erf of
// double (double.h), have no branches and no calls, so that the loops around them are vectorised;
// they are within 2.5 units in the last place. Their polynomials are the best ones of their degree.
// Others of float are computed in double (narrow.h). The rest is libm; what all backends have in
// common is in scalars.h.
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
#define K_SHIFT 12582912.0f  // 1.5 * 2^23: adding it rounds to a whole number

// e^r - 1 for |r| up to half of ln 2.
static inline float k_exp_rest(float r) {
  float q = r * r, p = K_FMA(r, 0.00139503835f, 0.00836885047f);
  p = K_FMA(p, q, K_FMA(r, 0.0416662082f, 0.166665193f));
  p = K_FMA(p, r, 0.5f);
  return K_FMA(p, q, r);
}

// 2^n e^r, where x = n ln 2 + r; n, with two biases, is in the lowest bits of `shifted`. The power
// is applied in halves, so that subnormal results are right.
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

// e^-a as a power of two and what comes to it, as a share of that, for a from 0 to 80.
static inline float k_exp_parts(float a, float *rest) {
  float shifted = K_FMA(a, -1.44269504f, K_SHIFT), n = shifted - K_SHIFT;
  float r = K_FMA(n, -0.693145752f, -a);
  *rest = k_exp_rest(K_FMA(n, -1.42860677e-6f, r));
  return px__bits_float((px__float_bits(shifted) << 23) + (127u << 23));
}
// 1 - e^-a, to its last place where a is small, too.
static inline float k_exp_lack(float a) {
  float rest, power = k_exp_parts(a, &rest);
  return K_FMA(-power, rest, 1.0f - power);
}

// (log(1 + f) - f) / f^2 for 1 + f from the root of one half to that of two.
static inline float k_log_rest(float f) {
  float q = f * f, p = K_FMA(f, -0.0786023472f, 0.128814352f);
  p = K_FMA(p, q, K_FMA(f, -0.131284026f, 0.141812073f));
  p = K_FMA(p, q, K_FMA(f, -0.166245961f, 0.200022865f));
  p = K_FMA(p, f, -0.25000809f);
  p = K_FMA(p, f, 0.333333167f);
  return K_FMA(p, f, -0.5f);
}

// x = 2^e m with m near 1, and log m = f - f^2 / 2 + f^3 times a polynomial, f = m - 1. The float
// next to ln 2 is so near to it that it does for all e.
static inline float k_log_of_bits(uint32_t bits, float scale) {
  uint32_t v = bits - 0x3f3504f3u;  // of the square root of one half
  float e = (float)((int32_t)v >> 23) - scale;
  float f = px__bits_float((v & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  return K_FMA(e, 0.693147182f, K_FMA(f * f, k_log_rest(f), f));
}
// Plain are positive normal numbers.
static inline float k_plain_log_f32(float x) { return k_log_of_bits(px__float_bits(x), 0); }
static inline float k_log_f32(float x) {
  bool tiny = x < FLT_MIN;
  float y = k_log_of_bits(px__float_bits(tiny ? x * 8388608.0f : x), tiny ? 23.0f : 0.0f);
  y = x > FLT_MAX ? x : y;
  y = x == 0 ? -INFINITY : y;
  return x >= 0 ? y : NAN;
}

// e ln 2 + log(1 + f), where 1 + x = 2^e (1 + f): f comes from x itself, and so has all of its
// digits where x is small. What is large is scaled, and 1 is nothing beside it.
static inline float k_log1p_f32(float x) {
  bool large = x > 0x1p60f;
  float scaled = large ? x * 0x1p-64f : x, one = large ? 0.0f : 1.0f;
  uint32_t v = px__float_bits(scaled + one) - 0x3f3504f3u;  // of the square root of one half
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

// Whether all of n numbers are plain, by the greatest distance from the least plain one: `place` of
// x, whose bits are `bits`, is below `end` where x is plain.
#define K_ARE_PLAIN(name, S, T, BITS, bits_of, place, end) \
  K_INLINE bool k_are_plain_##name##_##S(const T *x, int64_t n) { \
    BITS most = 0; \
    for (int64_t k = 0; k < n; k++) { \
      BITS bits = (BITS)bits_of(x[k]), at = place; \
      most = at > most ? at : most; \
    } \
    return most < end; \
  }
K_ARE_PLAIN(log, f32, float, uint32_t, px__float_bits, bits - 0x00800000u, 0x7f000000u)
// Vectors compare signed numbers of 64 bits, so that these are halved.
K_ARE_PLAIN(log, f64, double, int64_t, k_double_bits,
            (int64_t)(((uint64_t)bits - 0x0010000000000000) >> 1), 0x3ff0000000000000)
K_ARE_PLAIN(exp, f64, double, int64_t, k_double_bits, bits &INT64_MAX, 0x4086200000000000)  // 708

// Numbers that are not negative compare as their bits do: the lesser of two, or `most` of NaN.
static inline float k_least_bits(uint32_t x, float most) {
  uint32_t limit = px__float_bits(most);
  return px__bits_float(x < limit ? x : limit);
}

// The same of numbers below 0, too, which are less.
static inline float k_least_signed(float x, float most) {
  int32_t bits = (int32_t)px__float_bits(x), limit = (int32_t)px__float_bits(most);
  return px__bits_float((uint32_t)(bits < limit ? bits : limit));
}

// m / (m + 1), where m = (exp(2 |x|) - 1) / 2; from 1 on 1 - 1 / (m + 1), which near 1 is right to
// the last place, and so 1 - tanh^2 keeps what digits it can. The lesser of m and 1 is above both,
// so that there is one quotient. The exponent alone is limited: what is past it, and NaN, comes
// from the rest.
static inline float k_tanh_f32(float x) {
  const float magic = K_SHIFT + 127;
  uint32_t size = px__float_bits(x) & 0x7fffffffu;
  float shifted = K_FMA(k_least_bits(size, 10), 2.88539008f, magic), n = shifted - magic;
  float r = K_FMA(n, -0.346573591f, px__bits_float(size)), q = r * r;
  float p = K_FMA(r, 0.0446412272f, 0.133901607f);
  p = K_FMA(p, q, K_FMA(r, 0.333329666f, 0.666660786f));
  p = K_FMA(K_FMA(p, r, 1.0f), q, r);  // (exp(2 r) - 1) / 2
  float power = px__bits_float(px__float_bits(shifted) << 23);
  float m = K_FMA(power, p, K_FMA(power, 0.5f, -0.5f));
  float part = k_least_bits(px__float_bits(m), 1) / (m + 1.0f);
  return copysignf(m < 1.0f ? part : 1.0f - part, x);
}

static inline float k_sigmoid_f32(float x) {
  float t = k_exp_f32(-fabsf(x)), d = 1.0f + t;
  return (x < 0 ? t : 1.0f) / d;
}

// 1 - exp(-q(x)), where q is fitted to -log(erfc(x)) between 0 and 3.92.
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

// The share of a standard normal distribution that is below x, to 9e-9 and rounding. Below 0 it is
// exp(-q(|x|)) / 2, which has most of its digits down to -4, and is 0 from about -13 on. Of NaN it
// is some number, as gelu multiplies it by x.
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
  q = k_least_signed(q, 87.36f);
  float shifted = K_FMA(q, -1.44269504f, magic), n = shifted - magic;
  float r = K_FMA(n, 0.693147182f, q), p = K_FMA(r, 0.00138201355f, -0.00836868584f);
  p = K_FMA(p, r, 0.0416682735f);
  p = K_FMA(p, r, -0.166665211f);
  p = K_FMA(p, r, 0.49999994f);
  p = K_FMA(p, r, -1.0f);
  float half = K_FMA(p, r, 1.0f) * px__bits_float(px__float_bits(shifted) << 23);
  return x < 0 ? half : 1.0f - half;
}
// The density of that distribution; 0 of NaN.
static inline float k_density_f32(float x) {
  const float magic = K_SHIFT + 127;
  float q = k_least_bits(px__float_bits(x * x), 175.4f);
  float shifted = K_FMA(q, -0.72134752f, magic), n = shifted - magic;
  float r = K_FMA(n, 1.38629436f, q), p = K_FMA(r, 2.15939617e-05f, -0.000261521433f);
  p = K_FMA(p, r, 0.00260426709f);
  p = K_FMA(p, r, -0.0208331514f);
  p = K_FMA(p, r, 0.124999985f);
  p = K_FMA(p, r, -0.5f);
  p = K_FMA(p, r, 1.0f) * px__bits_float(px__float_bits(shifted) << 23);
  return p * 0.39894228f;
}

// atan of x or of -1 / x, which is below 1 as x is, by a polynomial; pi / 2 is 4.4e-8 less than the
// float next to it.
static inline float k_atan_f32(float x) {
  float a = fabsf(x), turned = -1 / a;
  float t = a > 1 ? turned : a, z = t * t, q = z * z;
  float p = K_FMA(z, -0.0017936453f, 0.010914721f);
  p = K_FMA(p, q, K_FMA(z, -0.031178081f, 0.057957854f));
  p = K_FMA(p, q, K_FMA(z, -0.084034674f, 0.109521925f));
  p = K_FMA(p, q, K_FMA(z, -0.14264244f, 0.19998549f));
  p = K_FMA(p, z, -0.333333f);
  float y = K_FMA(t * z, p, t), far = 1.57079637f + y;
  return copysignf(a > 1 ? far : y, x);
}
// asin of |x| up to one half, and from there on of the root of (1 - |x|) / 2, which is half of what
// is left to pi / 2.
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
// erfinv as y + y p(t), where t = log(1 - y^2), above -5; *far is infinite elsewhere. As p is flat,
// the logarithm need not be right to the last place.
static inline float k_near_erfinv_f32(float *far, float y) {
  float u = K_BELOW_SQUARE(y);
  uint32_t v = px__float_bits(u) - 0x3f3504f3u;  // of the square root of one half
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

// ---- what every backend has, and the rest

// Loops of a constant length take libm's forms for vectors (libmvec, within 4 units in the last
// place) where the C library and the compiler have them: all of these, which is on x86 alone.
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

// Without the global of lgamma, which threads would share.
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
// Both ways at once, without branches. A float has no I that is finite where e^x is not.
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

// Calls would keep the loops around these from being vectorised.
K_INLINE float k_lgamma_f32(float x);

#define K_MATH static inline
// Is called, so that what an element gives does not depend on its place: a loop over these would be
// partly vectorised, and rounded in other places there.
#define K_CALLED __attribute__((noinline, unused)) static
#define K_LAUNCH const px_launch *
#define K_ZERO_DIVISION(l) px_kernel_fault(l, PX_FAULT_ZERO_DIVISION, 0, 0, 0)
#include "scalars.h"

// gcc makes no vectors of a choice between truths.
static inline bool k_choose_bool(bool c, bool a, bool b) { return (c & a) | (!c & b); }
static inline bool k_either_bool(bool a, bool b) { return a | b; }
static inline bool k_both_bool(bool a, bool b) { return a & b; }
#define k_select_bool k_choose_bool
#define k_max_bool k_either_bool
#define k_min_bool k_both_bool

#define K_LIBM_F64(name) \
  static inline double k_##name##_f64(double x) { return name(x); }
K_LIBM_F64(erf)

// As K_POW has it, without branches. Roots and quotients take as long as all else; what has none of
// those exponents is spared them (`far`).
#define K_IS_EASY(T, size, b) ((size == 2) | (size == 1) | (size == (T)0.5) | (b == 3))
#define K_POW_BY(S, T, M, general) \
  K_INLINE T k_pow_##S(T a, T b) { \
    T y = general(a, b), size = fabs##M(b); \
    T part = size == 2 ? a * a : a; \
    part = size == (T)0.5 ? sqrt##M(a) : part; \
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
// The logarithm to base 2 of the magnitude of a normal number, and in *low what it lacks: of m near
// 1 by s = (m - 1) / (m + 1), in two parts as far as s^3.
K_INLINE float k_log2_parts(uint32_t size, float *low) {
  const float one = 2.88539004f, rest = 3.85192598e-08f;  // 2 / ln 2
  uint32_t v = size - 0x3f3504f3u;                        // of the square root of one half
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
// size^b for a normal size: *t is b times its logarithm to base 2.
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
// Up to which t that is within 1.5 units: a large exponent makes much of the logarithm's error.
K_INLINE float k_most_close(float power) { return power < 128 ? 126.0f : 64.0f; }
// a^b of a positive normal a, where *size is below that.
K_INLINE float k_plain_pow_f32(float *size, float a, float b) {
  float t, y = k_power_of(px__float_bits(a), b, &t);
  *size = fabsf(t);
  return y;
}
// The bits of |a|, and of 1 if that is 0.
K_INLINE uint32_t k_power_size(float a) {
  uint32_t size = px__float_bits(a) & 0x7fffffffu;
  return size | ((uint32_t)((int32_t)(size - 1) >> 31) & 0x3f800000u);
}
// a^b from y, the power of what has such bits, and from its t. *far is infinite for easy
// exponents, for what is neither a normal number nor zero, and where the result is beyond 2^126 or
// 2^-126, or 2^64 or 2^-64 by a large exponent.
K_INLINE float k_settled_power(float *far, float a, float b, uint32_t size, float y, float t) {
  uint32_t bits = px__float_bits(a);
  float end = b > 0 ? 0 : y;
  end = b < 0 ? INFINITY : end;
  y = a == 0 ? end : y;
  // What has more bits than an int32 is even, and becomes the lowest one.
  uint32_t sign = bits & ((uint32_t)(int32_t)b << 31);
  float part = a < 0 ? NAN : y;
  y = rintf(b) == b ? px__bits_float(px__float_bits(y) ^ sign) : part;
  bool normal = size - 0x00800000u < 0x7f000000u;
  float power = fabsf(b);
  bool close = (px__float_bits(t) & 0x7fffffffu) < px__float_bits(k_most_close(power));
  *far = (normal & close & !K_IS_EASY(float, power, b)) ? 0 : INFINITY;
  return y;
}
// a^b within 1.5 units, and *far as above.
K_INLINE float k_near_pow_f32(float *far, float a, float b) {
  float t, y = k_power_of(k_power_size(a), b, &t);
  return k_settled_power(far, a, b, k_power_size(a), y, t);
}
// Whether all of n bases are positive normal numbers, and no exponent is easy. Those, their
// opposites, 1.5 and 0.75 are the only ones whose bits, turned so, are up to 5; of double, which
// vectors compare with a sign, half of that.
K_INLINE bool k_are_plain_pow_f32(const float *a, const float *b, int64_t n) {
  uint32_t least = UINT32_MAX;
  for (int64_t k = 0; k < n; k++) {
    uint32_t u = px__float_bits(b[k]) * 2 - 0x7e000000u, turned = u << 9 | u >> 23;
    least = turned < least ? turned : least;
  }
  return (least > 5) & k_are_plain_log_f32(a, n);
}
K_INLINE bool k_are_plain_pow_f64(const double *a, const double *b, int64_t n) {
  int64_t least = INT64_MAX;
  for (int64_t k = 0; k < n; k++) {
    uint64_t u = k_double_bits(b[k]) * 2 - 0x7fc0000000000000;
    int64_t turned = (int64_t)((u << 12 | u >> 52) >> 1);
    least = turned < least ? turned : least;
  }
  return (least > 2) & k_are_plain_log_f64(a, n);
}
// Whether all are below what the results may be taken for; NaN is not.
#define K_ARE_CLOSE(S, T, BITS, bits_of, end) \
  K_INLINE bool k_are_close_##S(const T *size, int64_t n) { \
    BITS most = 0; \
    for (int64_t k = 0; k < n; k++) { \
      BITS bits = (BITS)bits_of(size[k]); \
      most = bits > most ? bits : most; \
    } \
    return most < end; \
  }
K_ARE_CLOSE(f32, float, int32_t, px__float_bits, 0x42800000)          // 64
K_ARE_CLOSE(f64, double, int64_t, k_double_bits, 0x4086200000000000)  // 708
// Makes of such sizes what k_near_pow_f32 says of the same powers; those of double are all computed
// again.
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

// To an exponent that is a constant of K_POW's, or 0, which b is equal to.
#define K_EASY(S, T, M) \
  static inline T k_easy_pow_##S(double known, T a, T b) { \
    if (known == 0) return 1; \
    T product = known == 3 ? a * a * a : known == 2 || known == -2 ? a * a : a; \
    T part = known == 0.5 || known == -0.5 ? sqrt##M(a) : product; \
    return known < 0 ? 1 / part : part; \
  }
K_EASY(f32, float, f)
K_EASY(f64, double, )
// Of whole numbers 0 to 3 are such.
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

// The highest finite number of the compute type, which may be a half type.
static inline float k_highest_f32(const px_launch *l) {
  return l->compute == PX_FLOAT16 ? 65504.0f : l->compute == PX_BFLOAT16 ? 3.38953139e38f : FLT_MAX;
}
static inline float k_lowest_f32(const px_launch *l) { return -k_highest_f32(l); }
static inline double k_highest_f64(const px_launch *l) { return DBL_MAX; }
static inline double k_lowest_f64(const px_launch *l) { return -DBL_MAX; }

// fmod where the quotient has fewer bits than a number: without branches. Its magnitude goes to *q;
// from K_far on, the result is wrong. The rounded quotient is right or one too large, and then the
// remainder's sign is wrong; the remainder itself is exact.
#ifdef __FMA__
#define K_far_f32 0x1p23f
#define K_far_f64 0x1p52
#else
#define K_far_f32 -1.0f  // never near
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

// Quotients of whole numbers by floats of type F, without branches: the rounded quotient is at most
// one from both others, and it, its product with b and the rest are exact; signs differ where a
// product is below 0. What is far is divided as whole numbers are: zero divisors, what has more
// bits than F, and int32's least number by -1.
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

// Numbers among the parameters, and finite limits of whole numbers.
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
