// SPDX-License-Identifier: Apache-2.0
// The device math library: functions callable from expressions of ops/*.op, under the names
// written by the generator (`exp(x)` in a table is k_exp_f32 here). Functions shared with the
// CPU are in scalars.h.
#pragma once
#include "device.cuh"

#include <float.h>

#define K_inf_f32 __int_as_float(0x7f800000)
#define K_inf_f64 __longlong_as_double(0x7ff0000000000000ll)
#define K_nan_f32 __int_as_float(0x7fc00000)
#define K_nan_f64 __longlong_as_double(0x7ff8000000000000ll)
#define K_max_value_f32 K_inf_f32
#define K_max_value_f64 K_inf_f64
#define K_min_value_f32 (-K_inf_f32)
#define K_min_value_f64 (-K_inf_f64)
#define K_max_value_i64 INT64_MAX
#define K_min_value_i64 INT64_MIN

#define K_MATH static __device__ __forceinline__
// Not inlined: inlining it into every kernel variant takes nvcc minutes.
#define K_CALLED static inline __device__ __noinline__
#define K_LGAMMA(x) lgamma(x)
#define K_LGAMMA_F32(x) lgammaf(x)  // CUDA's float versions: errors of a few ulp,
#define K_ERFINV_F32(x) erfinvf(x)  // in a fraction of the time
#define K_BESSEL(name) name
#define K_EXTREME(name) \
  K_MATH float k_##name##_f32(float a, float b) { \
    float x; \
    asm(#name ".NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b)); \
    return x; \
  }
#define K_EXTREMES_F32 K_EXTREME(max) K_EXTREME(min)  // one instruction each
#define K_FMA_f64(a, b, c) fma(a, b, c)
#define K_LAUNCH const k_where *
#define K_ZERO_DIVISION(l) k_fault(l, K_FAULT_ZERO_DIVISION, 0, 0, 0)
#include "scalars.h"

K_LIBM(exp, expf, exp)
K_LIBM(log, logf, log)
K_LIBM(log1p, log1pf, log1p)
K_LIBM(rsqrt, rsqrtf, rsqrt)
K_LIBM(tanh, tanhf, tanh)
K_LIBM(erf, erff, erf)
K_MATH float k_sigmoid_f32(float x) { return 1.0f / (1.0f + expf(-x)); }
K_MATH double k_sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }

// Standard normal distribution.
K_MATH float k_normal_f32(float x) { return 0.5f * (1 + erff(x * 0.7071067811865476f)); }
K_MATH double k_normal_f64(double x) { return 0.5 * (1 + erf(x * 0.7071067811865476)); }
K_MATH float k_density_f32(float x) { return 0.3989422804014327f * expf(-0.5f * x * x); }
K_MATH double k_density_f64(double x) { return 0.3989422804014327 * exp(-0.5 * x * x); }

// Finite limits, by the suffix of the stored type.
#define K_LIMIT(S, T, LOW, HIGH) \
  K_MATH T k_highest_##S() { return HIGH; } \
  K_MATH T k_lowest_##S() { return LOW; }
K_LIMIT(bool, bool, false, true)
K_LIMIT(u8, uint8_t, 0, UINT8_MAX)
K_LIMIT(i8, int8_t, INT8_MIN, INT8_MAX)
K_LIMIT(i16, int16_t, INT16_MIN, INT16_MAX)
K_LIMIT(i32, int32_t, INT32_MIN, INT32_MAX)
K_LIMIT(i64, int64_t, INT64_MIN, INT64_MAX)
K_LIMIT(f16, float, -65504.0f, 65504.0f)
K_LIMIT(bf16, float, -3.38953139e38f, 3.38953139e38f)
K_LIMIT(f32, float, -FLT_MAX, FLT_MAX)
K_LIMIT(f64, double, -DBL_MAX, DBL_MAX)
