// SPDX-License-Identifier: Apache-2.0
// Complex numbers on the device and their math library: `exp(x)` in an op table is k_exp_c64
// here. Real operands act on the parts separately, as in 2 * x and x / 2.
//
// Functions beyond arithmetic are the toolkit's (thrust). They are not inlined, as modules would
// become large and slow to compile.
#pragma once
#include "fold.cuh"
#include "loop.cuh"

#include <thrust/complex.h>

template <typename R>
struct alignas(2 * sizeof(R)) k_complex {
  R re, im;
  k_complex() = default;
  __device__ __forceinline__ k_complex(R real, R imag = 0) : re(real), im(imag) {}
  template <typename Q>
  explicit __device__ __forceinline__ k_complex(const k_complex<Q> &x) : re((R)x.re), im((R)x.im) {}
  explicit __device__ __forceinline__ operator bool() const { return re != 0 || im != 0; }

#define K_FRIEND(type) friend __device__ __forceinline__ type
  K_FRIEND(k_complex) operator-(k_complex x) { return {-x.re, -x.im}; }
  K_FRIEND(k_complex) operator+(k_complex a, k_complex b) { return {a.re + b.re, a.im + b.im}; }
  K_FRIEND(k_complex) operator+(k_complex a, R b) { return {a.re + b, a.im}; }
  K_FRIEND(k_complex) operator+(R a, k_complex b) { return {a + b.re, b.im}; }
  K_FRIEND(k_complex) operator-(k_complex a, k_complex b) { return {a.re - b.re, a.im - b.im}; }
  K_FRIEND(k_complex) operator-(k_complex a, R b) { return {a.re - b, a.im}; }
  K_FRIEND(k_complex) operator-(R a, k_complex b) { return {a - b.re, -b.im}; }
  K_FRIEND(k_complex) operator*(k_complex a, k_complex b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
  K_FRIEND(k_complex) operator*(k_complex a, R b) { return {a.re * b, a.im * b}; }
  K_FRIEND(k_complex) operator*(R a, k_complex b) { return {a * b.re, a * b.im}; }
  K_FRIEND(k_complex) operator/(k_complex a, R b) { return {a.re / b, a.im / b}; }
  K_FRIEND(bool) operator==(k_complex a, k_complex b) { return a.re == b.re && a.im == b.im; }
  K_FRIEND(bool) operator!=(k_complex a, k_complex b) { return a.re != b.re || a.im != b.im; }
#undef K_FRIEND
};
typedef k_complex<float> k_complex_c64, k_c64;
typedef k_complex<double> k_complex_c128, k_c128;

// Scales by the larger part of the divisor, so that squares do not overflow.
template <typename R>
static __device__ __noinline__ k_complex<R> operator/(k_complex<R> a, k_complex<R> b) {
  if (fabs(b.re) >= fabs(b.im)) {
    if (b.re == 0 && b.im == 0) return {a.re / fabs(b.re), a.im / fabs(b.im)};
    R ratio = b.im / b.re, scale = 1 / (b.re + b.im * ratio);
    return {(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
  }
  R ratio = b.re / b.im, scale = 1 / (b.re * ratio + b.im);
  return {(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};
}
static __device__ __forceinline__ k_complex_c64 operator/(float a, k_complex_c64 b) {
  return k_complex_c64(a) / b;
}
static __device__ __forceinline__ k_complex_c128 operator/(double a, k_complex_c128 b) {
  return k_complex_c128(a) / b;
}

// ---- elements, and operations used by folds

template <typename R>
static __device__ __forceinline__ k_complex<R> k_get(k_complex<R> x) {
  return x;
}
template <typename R, typename C>
static __device__ __forceinline__ void k_put(k_complex<R> *to, C x) {
  *to = (k_complex<R>)x;
}
template <typename R>
static __device__ __forceinline__ k_complex<R> k_shuffle(k_complex<R> x, int step, int width) {
  return {k_shuffle(x.re, step, width), k_shuffle(x.im, step, width)};
}
static __device__ __forceinline__ k_complex_c128 k_load_complex(const void *from, int dtype) {
  if (dtype == K_COMPLEX64) return (k_complex_c128) * (const k_c64 *)from;
  if (dtype == K_COMPLEX128) return *(const k_c128 *)from;
  if (dtype != K_COMPLEX32) return k_load<double>(from, dtype);
  return {k_get(((const __half *)from)[0]), k_get(((const __half *)from)[1])};
}
template <>
__device__ __forceinline__ k_complex_c64 k_load<k_complex_c64>(const void *from, int dtype) {
  return (k_complex_c64)k_load_complex(from, dtype);
}
template <>
__device__ __forceinline__ k_complex_c128 k_load<k_complex_c128>(const void *from, int dtype) {
  return k_load_complex(from, dtype);
}
template <>
__device__ __forceinline__ void k_store<k_complex_c128>(void *to, int dtype, k_complex_c128 x) {
  if (dtype == K_COMPLEX64) k_put((k_c64 *)to, x);
  if (dtype == K_COMPLEX128) k_put((k_c128 *)to, x);
  if (dtype == K_COMPLEX32) k_put((__half *)to, x.re), k_put((__half *)to + 1, x.im);
}

template <typename R>
struct k_is_real<k_complex<R>> {
  static const bool value = true;
};
template <typename R>
struct k_native<k_complex<R>> {
  typedef k_complex<R> A, B, C;
  enum { a = sizeof(R) == 4 ? K_COMPLEX64 : K_COMPLEX128, b = -1, c = -1 };
};
// A loop operand. The imaginary part of an immediate is stored in its unused data pointer.
template <typename S, int I, int N>
struct k_complex_in : k_in<S, I, N> {
  __device__ __forceinline__ explicit k_complex_in(const k_loop &p) : k_in<S, I, N>(p) {
    double imag = __longlong_as_double((long long)p.data[I]);
    if (p.kind[I] == K_VALUE) this->one = (S)k_c128(p.value[I].f, imag);
  }
};

// ---- functions

#define K_inf_c64 K_inf_f32
#define K_inf_c128 K_inf_f64
#define K_nan_c64 K_nan_f32
#define K_nan_c128 K_nan_f64

#define K_COMPLEX_CALLED(S, R, name, ...) \
  K_CALLED k_complex_##S k_##name##_##S(k_complex_##S x) { \
    thrust::complex<R> z(x.re, x.im), y = __VA_ARGS__; \
    return {y.real(), y.imag()}; \
  }
#define K_COMPLEX_THRUST(S, R, name) K_COMPLEX_CALLED(S, R, name, thrust::name(z))
// expm1 and log1p avoid the cancellation of exp(x) - 1 and log(1 + x) for small x.
#define K_COMPLEX(S, R) \
  K_COMPLEX_THRUST(S, R, exp) \
  K_COMPLEX_THRUST(S, R, log) \
  K_COMPLEX_THRUST(S, R, sqrt) \
  K_COMPLEX_THRUST(S, R, sin) \
  K_COMPLEX_THRUST(S, R, cos) \
  K_COMPLEX_THRUST(S, R, tan) \
  K_COMPLEX_THRUST(S, R, asin) \
  K_COMPLEX_THRUST(S, R, acos) \
  K_COMPLEX_THRUST(S, R, atan) \
  K_COMPLEX_THRUST(S, R, sinh) \
  K_COMPLEX_THRUST(S, R, cosh) \
  K_COMPLEX_THRUST(S, R, tanh) \
  K_COMPLEX_THRUST(S, R, asinh) \
  K_COMPLEX_THRUST(S, R, acosh) \
  K_COMPLEX_THRUST(S, R, atanh) \
  K_MATH k_complex_##S k_rsqrt_##S(k_complex_##S x) { return (R)1 / k_sqrt_##S(x); } \
  K_MATH k_complex_##S k_sigmoid_##S(k_complex_##S x) { return (R)1 / ((R)1 + k_exp_##S(-x)); } \
  K_COMPLEX_CALLED(S, R, exp2, thrust::exp(z *(R)0.69314718055994530942)) \
  K_COMPLEX_CALLED(S, R, log2, thrust::log(z) / (R)0.69314718055994530942) \
  K_COMPLEX_CALLED(S, R, log10, thrust::log(z) / (R)2.30258509299404568402) \
  K_MATH k_complex_##S k_select_##S(bool c, k_complex_##S a, k_complex_##S b) { \
    return c ? a : b; \
  } \
  K_MATH k_complex_##S k_conj_##S(k_complex_##S x) { return {x.re, -x.im}; } \
  K_MATH R k_real_##S(k_complex_##S x) { return x.re; } \
  K_MATH bool k_isreal_##S(k_complex_##S x) { return x.im == 0; } \
  K_MATH k_complex_##S k_abs_##S(k_complex_##S x) { return hypot(x.re, x.im); } \
  K_MATH k_complex_##S k_angle_##S(k_complex_##S x) { return atan2(x.im, x.re); } \
  K_MATH k_complex_##S k_sgn_##S(k_complex_##S x) { \
    R length = hypot(x.re, x.im); \
    return length == 0 ? k_complex_##S(0) : x / length; \
  } \
  K_MATH bool k_isnan_##S(k_complex_##S x) { return isnan(x.re) || isnan(x.im); } \
  K_MATH bool k_isinf_##S(k_complex_##S x) { return isinf(x.re) || isinf(x.im); } \
  K_MATH bool k_isfinite_##S(k_complex_##S x) { return isfinite(x.re) && isfinite(x.im); } \
  K_CALLED k_complex_##S k_expm1_##S(k_complex_##S x) { \
    R s = sin(x.im / 2); \
    return {expm1(x.re) * cos(x.im) - 2 * s * s, exp(x.re) * sin(x.im)}; \
  } \
  K_CALLED k_complex_##S k_log1p_##S(k_complex_##S x) { \
    R a = x.re, b = x.im, u = 1 + a; \
    R length = fabs(a) < (R)0.5 && fabs(b) < (R)0.5 ? log1p(a * (2 + a) + b * b) / 2 \
                                                    : k_log_##S(k_complex_##S(u, b)).re; \
    return {length, atan2(b, u)}; \
  } \
  K_CALLED k_complex_##S k_pow_##S(k_complex_##S a, k_complex_##S b) { \
    if (b == (R)2) return a * a; \
    if (b == (R)1) return a; \
    if (b == (R)0 || a == (R)1) return (R)1; \
    if (b == (R)3) return a * a * a; \
    if (b == (R)0.5) return k_sqrt_##S(a); \
    if (b == (R)-1) return (R)1 / a; \
    if (b == (R)-2) return (R)1 / (a * a); \
    if (b == (R)-0.5) return k_rsqrt_##S(a); \
    thrust::complex<R> y = \
        thrust::pow(thrust::complex<R>(a.re, a.im), thrust::complex<R>(b.re, b.im)); \
    return {y.real(), y.imag()}; \
  }
K_COMPLEX(c64, float)
K_COMPLEX(c128, double)
