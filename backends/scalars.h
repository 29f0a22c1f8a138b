// SPDX-License-Identifier: Apache-2.0
// The part of the kernel math library shared by C and CUDA C++: libm under the generator's names
// (`sin(x)` in a table is k_sin_f32 here), selection, and division of real and integer types.
// Integer division follows PyTorch. Division by zero is reported and returns 0.
//
// The includer defines K_MATH (prefix of library functions), K_LAUNCH (fault target),
// K_ZERO_DIVISION(launch) (reports a fault), K_inf_f32 and K_inf_f64, and the requirements of
// special.h.
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// ---- floating point

#define K_LIBM(name, ffn, dfn) \
  K_MATH float k_##name##_f32(float x) { return ffn(x); } \
  K_MATH double k_##name##_f64(double x) { return dfn(x); }
K_LIBM(exp2, exp2f, exp2)
K_LIBM(expm1, expm1f, expm1)
K_LIBM(log2, log2f, log2)
K_LIBM(log10, log10f, log10)
K_LIBM(sqrt, sqrtf, sqrt)
K_LIBM(sin, sinf, sin)
K_LIBM(cos, cosf, cos)
K_LIBM(tan, tanf, tan)
#ifndef K_ARCS_F32  // backends may override it
#define K_ARCS_F32(name) \
  K_MATH float k_##name##_f32(float x) { return name##f(x); }
#endif
#define K_ARC(name) \
  K_ARCS_F32(name) \
  K_MATH double k_##name##_f64(double x) { return name(x); }
K_ARC(asin)
K_ARC(acos)
K_ARC(atan)
K_LIBM(sinh, sinhf, sinh)
K_LIBM(cosh, coshf, cosh)
K_LIBM(asinh, asinhf, asinh)
K_LIBM(acosh, acoshf, acosh)
K_LIBM(atanh, atanhf, atanh)
K_LIBM(erfc, erfcf, erfc)
K_LIBM(trunc, truncf, trunc)
K_LIBM(floor, floorf, floor)
K_LIBM(ceil, ceilf, ceil)
K_LIBM(round, rintf, rint)
K_LIBM(abs, fabsf, fabs)

// Functions of complex numbers, for real types.
#define K_ALONE(S, T) \
  K_MATH T k_real_##S(T x) { return x; } \
  K_MATH T k_conj_##S(T x) { return x; } \
  K_MATH bool k_isreal_##S(T x) { return true; }
K_ALONE(f32, float)
K_ALONE(f64, double)
K_ALONE(bool, bool)
K_ALONE(u8, uint8_t)
K_ALONE(i8, int8_t)
K_ALONE(i16, int16_t)
K_ALONE(i32, int32_t)
K_ALONE(i64, int64_t)

// remainder_of and floordiv_of take r = fmod(a, b).
#define K_FLOAT(S, T, M) \
  K_MATH T k_select_##S(bool c, T a, T b) { return c ? a : b; } \
  K_MATH T k_sign_##S(T x) { return (T)((x > 0) - (x < 0)); } \
  K_MATH T k_sgn_##S(T x) { return k_sign_##S(x); } \
  K_MATH T k_angle_##S(T x) { return x < 0 ? (T)3.14159265358979323846 : x != x ? x : 0; } \
  K_MATH bool k_isnan_##S(T x) { return x != x; } \
  K_MATH bool k_isinf_##S(T x) { return fabs##M(x) == K_inf_##S; } \
  K_MATH bool k_isfinite_##S(T x) { return fabs##M(x) < K_inf_##S; } \
  K_MATH bool k_signbit_##S(T x) { return signbit(x); } \
  K_MATH T k_copysign_##S(T a, T b) { return copysign##M(a, b); } \
  K_MATH T k_atan2_##S(T y, T x) { return atan2##M(y, x); } \
  K_MATH T k_fmod_##S(K_LAUNCH l, T a, T b) { return fmod##M(a, b); } \
  K_MATH T k_truncdiv_##S(K_LAUNCH l, T a, T b) { return trunc##M(a / b); } \
  K_MATH T k_remainder_of_##S(T r, T b) { return r != 0 && (b < 0) != (r < 0) ? r + b : r; } \
  K_MATH T k_floordiv_of_##S(T r, T a, T b) { \
    T q = (a - r) / b; \
    q = r != 0 && (b < 0) != (r < 0) ? q - 1 : q; \
    T f = floor##M(q); \
    f = q - f > (T)0.5 ? f + 1 : f; \
    f = q == 0 ? copysign##M((T)0, a / b) : f; \
    return b == 0 ? a / b : f; \
  } \
  K_MATH T k_remainder_##S(K_LAUNCH l, T a, T b) { return k_remainder_of_##S(fmod##M(a, b), b); } \
  K_MATH T k_floordiv_##S(K_LAUNCH l, T a, T b) { return k_floordiv_of_##S(fmod##M(a, b), a, b); }
K_FLOAT(f32, float, f)
K_FLOAT(f64, double, )

// NaN if one of both is.
#define K_EXTREMES(S, T) \
  K_MATH T k_max_##S(T a, T b) { \
    T most = a < b ? b : a; \
    return b != b ? b : most; \
  } \
  K_MATH T k_min_##S(T a, T b) { \
    T least = b < a ? b : a; \
    return b != b ? b : least; \
  }
#ifndef K_EXTREMES_F32  // backends may override it
#define K_EXTREMES_F32 K_EXTREMES(f32, float)
#endif
K_EXTREMES_F32
K_EXTREMES(f64, double)

// Splits a number into a mantissa in [0.5, 1) and a power of 2. SMALLEST_NORMAL: the smallest
// normal number; subnormals are scaled first. Branch-free, for vectorized loops.
#define K_SPLIT(S, T, M, BITS, MANTISSA_BITS, HALF, SMALLEST_NORMAL) \
  K_MATH BITS k_scaled_##S(T size) { \
    T raised = size * ((BITS)1 << (MANTISSA_BITS + 1)), \
      y = size < (T)SMALLEST_NORMAL ? raised : size; \
    BITS bits; \
    memcpy(&bits, &y, sizeof bits); \
    return bits; \
  } \
  K_MATH T k_mantissa_##S(T x) { \
    T size = fabs##M(x), y; \
    BITS bits = \
        (k_scaled_##S(size) & (((BITS)1 << MANTISSA_BITS) - 1)) | ((BITS)HALF << MANTISSA_BITS); \
    memcpy(&y, &bits, sizeof y); \
    y = copysign##M(y, x); \
    y = size < K_inf_##S ? y : x; \
    return size == 0 ? x : y; \
  } \
  K_MATH T k_exponent_##S(T x) { \
    T size = fabs##M(x); \
    int lifted = size < (T)SMALLEST_NORMAL ? MANTISSA_BITS + 1 : 0; \
    T e = (T)((int)(k_scaled_##S(size) >> MANTISSA_BITS) - HALF - lifted); \
    e = size < K_inf_##S ? e : 0; \
    return size == 0 ? 0 : e; \
  }
K_SPLIT(f32, float, f, int32_t, 23, 126, 0x1p-126f)
K_SPLIT(f64, double, , int64_t, 52, 1022, 0x1p-1022)

// Rounds a float to a narrower format, identified by its max value `highest`. The format's numbers
// are floats with `shift` trailing zero bits; below `least`, float16 has uniform steps. Needed
// since x may be a scalar operand, which is not rounded to the dtype.
K_MATH float k_among_f32(float x, int32_t shift, float least, float highest) {
  const int32_t odd = shift ? 1 : 0, rest = ((1 << shift) >> 1) - odd;
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits + rest + ((bits >> shift) & odd)) & -(1 << shift);
  float y, few = rintf(x * 0x1p24f) * 0x1p-24f, size = fabsf(x);
  memcpy(&y, &bits, sizeof y);
  y = fabsf(y) > highest ? K_inf_f32 : y;
  y = size < least ? few : y;
  return size < K_inf_f32 ? copysignf(y, x) : x;
}
// nextafter(a, b) in the format: numbers are counted from 0, and the count moves by one.
// Selects are by value with both sides computed, for vectorized loops.
K_MATH float k_nextafter_f32(float a, float b, float highest) {
  const bool half = highest == 65504.0f;
  const int32_t shift = half ? 13 : highest > 3.39e38f ? 0 : 16, first = half ? 0x38000000 : 0;
  const int32_t evens = half ? 0x400 : 0, last = half ? 0x7c00 : 0x7f800000 >> shift;
  const float least = half ? 0x1p-14f : 0;
  a = k_among_f32(a, shift, least, highest), b = k_among_f32(b, shift, least, highest);
  float x = fabsf(a);
  int32_t bits, sign;
  memcpy(&bits, &x, sizeof bits);
  memcpy(&sign, &a, sizeof sign);
  int32_t index = (bits - first) >> shift, even = (int32_t)(x * 0x1p24f);
  index = index > last ? last : index;
  index = x < least ? even : index;
  index = (sign < 0 ? -index : index) + (b > a) - (b < a);
  int32_t count = index < 0 ? -index : index;
  bits = (count << shift) + first;
  float y, few = (float)count * 0x1p-24f;
  memcpy(&y, &bits, sizeof y);
  y = count >= last ? K_inf_f32 : y;
  y = count < evens ? few : y;
  y = copysignf(y, index == 0 ? a : (float)index);
  y = a == b ? b : y;
  return a == a && b == b ? y : a + b;
}
K_MATH double k_nextafter_f64(double a, double b, double highest) {
  int64_t bits, step = (b > a) == (a > 0) ? 1 : -1;
  memcpy(&bits, &a, sizeof bits);
  bits += step;
  double y, first = copysign(4.9406564584124654e-324, b);
  memcpy(&y, &bits, sizeof y);
  y = a == 0 ? first : y;
  y = a == b ? b : y;
  return a == a && b == b ? y : a + b;
}

// a^0.5 by a square root. The root alone has the sign of -0, and is NaN for -inf.
#define K_ROOT(T, M, a) (sqrt##M((a) == -(T)INFINITY ? (T)INFINITY : (a)) + 0)
// Powers that are products, roots or reciprocals are computed as such. Their exponents are
// multiples of 1/2, so one comparison excludes most others.
#define K_POW(S, T, M) \
  K_MATH T k_pow_##S(T a, T b) { \
    if (b + b != rint##M(b + b)) return pow##M(a, b); \
    return b == 2         ? a * a \
           : b == 1       ? a \
           : b == 3       ? a * a * a \
           : b == (T)0.5  ? K_ROOT(T, M, a) \
           : b == -1      ? 1 / a \
           : b == -2      ? 1 / (a * a) \
           : b == 0       ? (T)1 \
           : b == (T)-0.5 ? 1 / K_ROOT(T, M, a) \
                          : pow##M(a, b); \
  }
#ifndef K_POW_F32  // backends may override it
K_POW(f32, float, f)
#endif
#ifndef K_POW_F64
K_POW(f64, double, )
#endif

#include "special.h"

// ---- integers

// By squaring. A negative power is 0 except for bases 1 and -1.
K_MATH int64_t k_pow_int(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
  uint64_t r = 1, x = (uint64_t)a;
  for (; b; b >>= 1, x *= x)
    if (b & 1) r *= x;
  return (int64_t)r;
}

#define K_WHOLE(S, T) \
  K_MATH T k_select_##S(bool c, T a, T b) { return c ? a : b; } \
  K_MATH T k_max_##S(T a, T b) { return a > b ? a : b; } \
  K_MATH T k_min_##S(T a, T b) { return a < b ? a : b; } \
  K_MATH T k_floor_##S(T x) { return x; } \
  K_MATH T k_ceil_##S(T x) { return x; } \
  K_MATH T k_round_##S(T x) { return x; } \
  K_MATH T k_trunc_##S(T x) { return x; } \
  K_MATH bool k_isnan_##S(T x) { return false; } \
  K_MATH bool k_isinf_##S(T x) { return false; } \
  K_MATH bool k_isfinite_##S(T x) { return true; } \
  K_MATH T k_abs_##S(T x) { return x < (T)1 && x != 0 ? (T)(0 - (uint64_t)x) : x; } \
  K_MATH bool k_signbit_##S(T x) { return x < (T)1 && x != 0; } \
  K_MATH T k_sign_##S(T x) { return (T)((x > 0) - k_signbit_##S(x)); } \
  K_MATH T k_sgn_##S(T x) { return k_sign_##S(x); }

#define K_INTEGER(S, T, HIGH) \
  static const bool k_signed_##S = (T)-1 < 1; \
  static const T K_inf_##S = HIGH; \
  K_MATH T k_bitnot_##S(T x) { return (T)~x; } \
  K_MATH bool k_far_##S(T n) { return k_signbit_##S(n) || n >= (T)(8 * sizeof(T)); } \
  K_MATH T k_shl_##S(T a, T n) { \
    T y = sizeof(T) > 4 ? (T)((uint64_t)a << (n & 63)) : (T)((uint32_t)a << (n & 31)); \
    return k_far_##S(n) ? (T)0 : y; \
  } \
  K_MATH T k_shr_##S(T a, T n) { \
    return k_far_##S(n) ? (T)(0 - (uint64_t)k_signbit_##S(a)) : (T)(a >> n); \
  } \
  K_MATH T k_gcd_##S(T a, T b) { \
    a = k_abs_##S(a), b = k_abs_##S(b); \
    for (T r; b != 0; a = b, b = r) r = (T)-1 < 0 && b == (T)-1 ? (T)0 : (T)(a % b); \
    return a; \
  } \
  K_MATH T k_pow_##S(T a, T b) { return (T)k_pow_int((int64_t)a, (int64_t)b); } \
  K_MATH bool k_bad_divisor_##S(K_LAUNCH l, T b) { \
    if (b == 0) K_ZERO_DIVISION(l); \
    return b == 0; \
  } \
  K_MATH T k_truncdiv_##S(K_LAUNCH l, T a, T b) { \
    if (k_bad_divisor_##S(l, b)) return 0; \
    return k_signed_##S && b == (T)-1 ? (T)(0 - (uint64_t)a) : (T)(a / b); \
  } \
  K_MATH T k_fmod_##S(K_LAUNCH l, T a, T b) { \
    if (k_bad_divisor_##S(l, b)) return 0; \
    return k_signed_##S && b == (T)-1 ? (T)0 : (T)(a % b); \
  } \
  K_MATH T k_remainder_##S(K_LAUNCH l, T a, T b) { \
    T r = k_fmod_##S(l, a, b); \
    return k_signed_##S && r != 0 && (r ^ b) >> (8 * sizeof(T) - 1) ? (T)(r + b) : r; \
  } \
  K_MATH T k_floordiv_##S(K_LAUNCH l, T a, T b) { \
    if (k_bad_divisor_##S(l, b)) return 0; \
    T q = k_truncdiv_##S(l, a, b), r = k_fmod_##S(l, a, b); \
    return k_signed_##S && r != 0 && (r ^ b) >> (8 * sizeof(T) - 1) ? (T)(q - 1) : q; \
  }
K_WHOLE(bool, bool)
K_WHOLE(u8, uint8_t)
K_WHOLE(i8, int8_t)
K_WHOLE(i16, int16_t)
K_WHOLE(i32, int32_t)
K_WHOLE(i64, int64_t)
K_INTEGER(u8, uint8_t, UINT8_MAX)
K_INTEGER(i8, int8_t, INT8_MAX)
K_INTEGER(i16, int16_t, INT16_MAX)
K_INTEGER(i32, int32_t, INT32_MAX)
K_INTEGER(i64, int64_t, INT64_MAX)
K_MATH bool k_bitnot_bool(bool x) { return !x; }
K_MATH bool k_pow_bool(bool a, bool b) { return a || !b; }
static const bool K_inf_bool = true;
