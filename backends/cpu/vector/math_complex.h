// SPDX-License-Identifier: Apache-2.0
// The kernel math library for complex numbers: `exp(x)` in a table is k_exp_c64 here. C's complex
// types do the arithmetic, and libm implements most functions. Branch cuts are those of C and
// PyTorch. Numbers in an expression are real, so 2 * x and x / 2 operate on the parts alone.
#pragma once
#include <complex.h>
#undef I  // names of structs and loops
#undef complex

typedef float _Complex k_complex_c64;
typedef double _Complex k_complex_c128;

#define K_COMPLEX_LIBM(S, T, M, name) \
  static inline T k_##name##_##S(T x) { return c##name##M(x); }

// expm1 and log1p avoid the cancellation of exp(x) - 1 and log(1 + x) for small x.
#define K_COMPLEX(S, R, T, M) \
  static inline T k_of_parts_##S(R re, R im) { \
    R parts[2] = {re, im}; \
    T made; \
    memcpy(&made, parts, sizeof made); \
    return made; \
  } \
  K_COMPLEX_LIBM(S, T, M, exp) \
  K_COMPLEX_LIBM(S, T, M, log) \
  K_COMPLEX_LIBM(S, T, M, sqrt) \
  K_COMPLEX_LIBM(S, T, M, sin) \
  K_COMPLEX_LIBM(S, T, M, cos) \
  K_COMPLEX_LIBM(S, T, M, tan) \
  K_COMPLEX_LIBM(S, T, M, asin) \
  K_COMPLEX_LIBM(S, T, M, acos) \
  K_COMPLEX_LIBM(S, T, M, atan) \
  K_COMPLEX_LIBM(S, T, M, sinh) \
  K_COMPLEX_LIBM(S, T, M, cosh) \
  K_COMPLEX_LIBM(S, T, M, tanh) \
  K_COMPLEX_LIBM(S, T, M, asinh) \
  K_COMPLEX_LIBM(S, T, M, acosh) \
  K_COMPLEX_LIBM(S, T, M, atanh) \
  static inline T k_select_##S(bool c, T a, T b) { return c ? a : b; } \
  static inline T k_conj_##S(T x) { return conj##M(x); } \
  static inline R k_real_##S(T x) { return creal##M(x); } \
  static inline bool k_isreal_##S(T x) { return cimag##M(x) == 0; } \
  static inline T k_abs_##S(T x) { return cabs##M(x); } \
  static inline T k_angle_##S(T x) { return carg##M(x); } \
  static inline T k_sgn_##S(T x) { \
    R length = cabs##M(x); \
    return length == 0 ? (T)0 : x / length; \
  } \
  static inline bool k_isnan_##S(T x) { return isnan(creal##M(x)) || isnan(cimag##M(x)); } \
  static inline bool k_isinf_##S(T x) { return isinf(creal##M(x)) || isinf(cimag##M(x)); } \
  static inline bool k_isfinite_##S(T x) { \
    return isfinite(creal##M(x)) && isfinite(cimag##M(x)); \
  } \
  static inline T k_rsqrt_##S(T x) { return 1 / csqrt##M(x); } \
  static inline T k_sigmoid_##S(T x) { return 1 / (1 + cexp##M(-x)); } \
  static inline T k_exp2_##S(T x) { return cexp##M(x * (R)0.69314718055994530942); } \
  static inline T k_log2_##S(T x) { return clog##M(x) / (R)0.69314718055994530942; } \
  static inline T k_log10_##S(T x) { return clog##M(x) / (R)2.30258509299404568402; } \
  static inline T k_expm1_##S(T x) { \
    R a = creal##M(x), b = cimag##M(x), s = sin##M(b / 2); \
    return k_of_parts_##S(expm1##M(a) * cos##M(b) - 2 * s * s, exp##M(a) * sin##M(b)); \
  } \
  static inline T k_log1p_##S(T x) { \
    R a = creal##M(x), b = cimag##M(x), u = 1 + a; \
    R length = fabs##M(a) < (R)0.5 && fabs##M(b) < (R)0.5 \
                   ? log1p##M(a * (2 + a) + b * b) / 2 \
                   : creal##M(clog##M(k_of_parts_##S(u, b))); \
    return k_of_parts_##S(length, atan2##M(b, u)); \
  } \
  static inline T k_easy_pow_##S(double known, T a, T b) { return a * a; } \
  static inline T k_pow_##S(T a, T b) { \
    return b == 2         ? a * a \
           : b == 1       ? a \
           : b == 0       ? (T)1 \
           : a == 1       ? (T)1 \
           : b == 3       ? a * a * a \
           : b == (R)0.5  ? csqrt##M(a) \
           : b == -1      ? 1 / a \
           : b == -2      ? 1 / (a * a) \
           : b == (R)-0.5 ? 1 / csqrt##M(a) \
                          : cpow##M(a, b); \
  }
K_COMPLEX(c64, float, k_complex_c64, f)
K_COMPLEX(c128, double, k_complex_c128, )

static const float K_inf_c64 = INFINITY, K_nan_c64 = NAN;
static const double K_inf_c128 = (double)INFINITY, K_nan_c128 = (double)NAN;
