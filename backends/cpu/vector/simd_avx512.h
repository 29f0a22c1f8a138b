// SPDX-License-Identifier: Apache-2.0
// The vectors of simd.h in AVX-512 width, for functions compiled with WIDE. Call these only if the
// processor has AVX-512 (PX_CPU_AVX512).
#pragma once
#include "cpu/vector/simd.h"

#if defined(__AVX2__)
#define WIDE __attribute__((target("avx512f")))
#define WIDE_INLINE static inline __attribute__((always_inline)) WIDE
typedef float wf __attribute__((vector_size(64)));
typedef double wd __attribute__((vector_size(64)));
enum { WF = 16, WD = 8 };
WIDE_INLINE wf wf_load(const float *p) { return (wf)_mm512_loadu_ps(p); }
WIDE_INLINE wd wd_load(const double *p) { return (wd)_mm512_loadu_pd(p); }
WIDE_INLINE void wf_store(float *p, wf v) { _mm512_storeu_ps(p, (__m512)v); }
WIDE_INLINE void wd_store(double *p, wd v) { _mm512_storeu_pd(p, (__m512d)v); }
// The first n lanes, 0 <= n <= lanes.
WIDE_INLINE wf wf_load_first(const float *p, int64_t n) {
  return (wf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
WIDE_INLINE wd wd_load_first(const double *p, int64_t n) {
  return (wd)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), p);
}
WIDE_INLINE void wf_store_first(float *p, wf v, int64_t n) {
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
}
WIDE_INLINE void wd_store_first(double *p, wd v, int64_t n) {
  _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), (__m512d)v);
}
WIDE_INLINE wf wf_set(float x) { return (wf)_mm512_set1_ps(x); }
WIDE_INLINE wd wd_set(double x) { return (wd)_mm512_set1_pd(x); }
WIDE_INLINE wf wf_fma(wf a, wf b, wf c) {
  return (wf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
WIDE_INLINE wd wd_fma(wd a, wd b, wd c) {
  return (wd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
WIDE_INLINE wf wf_interleave_low(wf a, wf b) {
  return PX_SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
WIDE_INLINE wf wf_interleave_high(wf a, wf b) {
  return PX_SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
WIDE_INLINE wd wd_interleave_low(wd a, wd b) { return PX_SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
WIDE_INLINE wd wd_interleave_high(wd a, wd b) {
  return PX_SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
WIDE_INLINE wf wf_even(wf a, wf b) {
  return PX_SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
WIDE_INLINE wf wf_odd(wf a, wf b) {
  return PX_SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
#endif
