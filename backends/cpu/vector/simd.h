// SPDX-License-Identifier: Apache-2.0
// Short vectors for the hand-written CPU kernels, with the register width of the variant being
// compiled: files of this folder are compiled for plain x86-64 and for AVX2, or for NEON.
//
// These are the compilers' vectors (vector_size). Loads and stores need no alignment. `fma` rounds
// once with hardware FMA and twice without, so kernels that must match a formula bit for bit avoid
// it.
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX2__)
#define PX_SIMD_BYTES 32
#else
#define PX_SIMD_BYTES 16
#endif
typedef float vf __attribute__((vector_size(PX_SIMD_BYTES)));
typedef int32_t vfi __attribute__((vector_size(PX_SIMD_BYTES)));
typedef double vd __attribute__((vector_size(PX_SIMD_BYTES)));
typedef int64_t vdi __attribute__((vector_size(PX_SIMD_BYTES)));
// Broadcasts. 0 + x would be an addition and lose the sign of zero.
#if PX_SIMD_BYTES == 32
static inline vf vf_set(float x) { return (vf){x, x, x, x, x, x, x, x}; }
static inline vd vd_set(double x) { return (vd){x, x, x, x}; }
static inline vdi vdi_set(int64_t x) { return (vdi){x, x, x, x}; }
#else
static inline vf vf_set(float x) { return (vf){x, x, x, x}; }
static inline vd vd_set(double x) { return (vd){x, x}; }
static inline vdi vdi_set(int64_t x) { return (vdi){x, x}; }
#endif
enum { VF = PX_SIMD_BYTES / 4, VD = PX_SIMD_BYTES / 8 };

static inline vf vf_load(const float *p) {
  vf v;
  memcpy(&v, p, sizeof v);
  return v;
}
static inline void vf_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
static inline vd vd_load(const double *p) {
  vd v;
  memcpy(&v, p, sizeof v);
  return v;
}
static inline void vd_store(double *p, vd v) { memcpy(p, &v, sizeof v); }
static inline vdi vdi_load(const int64_t *p) {
  vdi v;
  memcpy(&v, p, sizeof v);
  return v;
}

// Loads and stores of the first n lanes, 0 <= n <= lanes; the other lanes load as zero.
#if PX_SIMD_BYTES == 32
static inline __m256i vf_first_mask(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf vf_load_first(const float *p, int64_t n) {
  return (vf)_mm256_maskload_ps(p, vf_first_mask(n));
}
static inline void vf_store_first(float *p, vf v, int64_t n) {
  _mm256_maskstore_ps(p, vf_first_mask(n), (__m256)v);
}
#else
static inline vf vf_load_first(const float *p, int64_t n) {
  vf v = vf_set(0);
  for (int64_t i = 0; i < n; i++) v[i] = p[i];
  return v;
}
static inline void vf_store_first(float *p, vf v, int64_t n) {
  for (int64_t i = 0; i < n; i++) p[i] = v[i];
}
#endif

// Gathers: element p[at[i]] in lane i.
#if PX_SIMD_BYTES == 32
static inline vd vd_gather(const double *p, vdi at) {
  return (vd)_mm256_i64gather_pd(p, (__m256i)at, 8);
}
static inline vdi vdi_gather(const int64_t *p, vdi at) {
  return (vdi)_mm256_i64gather_epi64((const long long *)p, (__m256i)at, 8);
}
#else
static inline vd vd_gather(const double *p, vdi at) { return (vd){p[at[0]], p[at[1]]}; }
static inline vdi vdi_gather(const int64_t *p, vdi at) { return (vdi){p[at[0]], p[at[1]]}; }
#endif

#if defined(__FMA__) && defined(__AVX2__)
static inline vf vf_fma(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps(a, b, c); }
static inline vd vd_fma(vd a, vd b, vd c) { return (vd)_mm256_fmadd_pd(a, b, c); }
#elif defined(__aarch64__)
static inline vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static inline vd vd_fma(vd a, vd b, vd c) { return vfmaq_f64(c, a, b); }
#else
static inline vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
static inline vd vd_fma(vd a, vd b, vd c) { return a * b + c; }
#endif

// A permutation of the lanes of two vectors, numbered consecutively.
#if defined(__clang__) || __GNUC__ >= 12
#define PX_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PX_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (__typeof__((a) < (b))){__VA_ARGS__})
#endif
// Interleave the lower halves of two vectors, or the upper halves.
#if PX_SIMD_BYTES == 32
static inline vf vf_interleave_low(vf a, vf b) {
  return PX_SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
static inline vf vf_interleave_high(vf a, vf b) {
  return PX_SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
static inline vd vd_interleave_low(vd a, vd b) { return PX_SHUFFLE(a, b, 0, 4, 1, 5); }
static inline vd vd_interleave_high(vd a, vd b) { return PX_SHUFFLE(a, b, 2, 6, 3, 7); }
#else
static inline vf vf_interleave_low(vf a, vf b) { return PX_SHUFFLE(a, b, 0, 4, 1, 5); }
static inline vf vf_interleave_high(vf a, vf b) { return PX_SHUFFLE(a, b, 2, 6, 3, 7); }
static inline vd vd_interleave_low(vd a, vd b) { return PX_SHUFFLE(a, b, 0, 2); }
static inline vd vd_interleave_high(vd a, vd b) { return PX_SHUFFLE(a, b, 1, 3); }
#endif
// The even lanes of both vectors, or the odd lanes.
#if PX_SIMD_BYTES == 32
static inline vf vf_even(vf a, vf b) { return PX_SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
static inline vf vf_odd(vf a, vf b) { return PX_SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15); }
#else
static inline vf vf_even(vf a, vf b) { return PX_SHUFFLE(a, b, 0, 2, 4, 6); }
static inline vf vf_odd(vf a, vf b) { return PX_SHUFFLE(a, b, 1, 3, 5, 7); }
#endif

// Per lane: a if the mask's lane is all ones, else b.
static inline vf vf_select(vfi mask, vf a, vf b) {
  return (vf)((mask & (vfi)a) | (~mask & (vfi)b));
}
static inline vdi vdi_select(vdi mask, vdi a, vdi b) { return (mask & a) | (~mask & b); }
// Per-lane max and min; b if either lane is NaN.
#if PX_SIMD_BYTES == 32
static inline vf vf_max(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
static inline vf vf_min(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
static inline vd vd_max(vd a, vd b) { return (vd)_mm256_max_pd((__m256d)a, (__m256d)b); }
static inline vd vd_min(vd a, vd b) { return (vd)_mm256_min_pd((__m256d)a, (__m256d)b); }
#else
static inline vf vf_max(vf a, vf b) { return vf_select(a > b, a, b); }
static inline vf vf_min(vf a, vf b) { return vf_select(a < b, a, b); }
static inline vd vd_max(vd a, vd b) { return (vd)vdi_select(a > b, (vdi)a, (vdi)b); }
static inline vd vd_min(vd a, vd b) { return (vd)vdi_select(a < b, (vdi)a, (vdi)b); }
#endif
static inline vdi vdi_max(vdi a, vdi b) { return vdi_select(a > b, a, b); }
static inline vdi vdi_min(vdi a, vdi b) { return vdi_select(a < b, a, b); }
// Whether any lane of a mask is nonzero; and one bit per lane.
#if PX_SIMD_BYTES == 32
static inline bool vfi_any(vfi mask) { return !_mm256_testz_si256((__m256i)mask, (__m256i)mask); }
static inline uint32_t vfi_bits(vfi mask) { return (uint32_t)_mm256_movemask_ps((__m256)mask); }
static inline uint32_t vdi_bits(vdi mask) { return (uint32_t)_mm256_movemask_pd((__m256d)mask); }
#else
static inline bool vfi_any(vfi mask) {
  uint64_t half[2];
  memcpy(half, &mask, sizeof half);
  return (half[0] | half[1]) != 0;
}
static inline uint32_t vfi_bits(vfi mask) {
  vfi bit = mask & (vfi){1, 2, 4, 8};
  return (uint32_t)(bit[0] | bit[1] | bit[2] | bit[3]);
}
static inline uint32_t vdi_bits(vdi mask) { return (uint32_t)((mask[0] & 1) | (mask[1] & 2)); }
#endif
static inline float vf_sum(vf v) {
  float s = 0;
  for (int i = 0; i < VF; i++) s += v[i];
  return s;
}

// exp(x) for x <= 0, to about 1 ulp: 2^n from the exponent bits, times a polynomial in the
// remainder. Results below the smallest normal number are 0; NaN stays NaN.
static inline vf vf_exp_nonpositive(vf x) {
  vfi underflow = x < -87.33654f;
  // Adding it to k leaves k + 127 in the lowest bits.
  vf shift = vf_set(12582912.0f + 127), k = vf_fma(x, vf_set(1.44269504088896341f), shift);
  vf power = (vf)((vfi)k << 23);
  k -= shift;
  vf r = vf_fma(k, vf_set(-0.693359375f), x);
  r = vf_fma(k, vf_set(2.12194440e-4f), r);
  vf p = vf_set(1.9875691500e-4f);
  p = vf_fma(p, r, vf_set(1.3981999507e-3f));
  p = vf_fma(p, r, vf_set(8.3334519073e-3f));
  p = vf_fma(p, r, vf_set(4.1665795894e-2f));
  p = vf_fma(p, r, vf_set(1.6666665459e-1f));
  p = vf_fma(p, r, vf_set(5.0000001201e-1f));
  p = vf_fma(p, r * r, r) + 1.0f;
  return (vf)((vfi)(p * power) & ~underflow);
}
