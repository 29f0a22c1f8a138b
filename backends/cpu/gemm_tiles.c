// SPDX-License-Identifier: Apache-2.0
// The stamps of gemm_block.h: float and double, in the vectors of the variant that is being
// compiled, and in those of AVX-512, which are chosen at run time.
#include "cpu/gemm_spread.h"
#include "cpu/gemm_tiles.h"
#include "cpu/half.h"
#include "cpu/simd.h"
#include "cpu/threads.h"

#include <stdlib.h>

static inline vf vf_load_halves(const uint16_t *p) {
  float line[VF];
  px__half_load_many(line, p, VF);
  return vf_load(line);
}
#define TARGET
#define T float
#define LOAD_HALVES vf_load_halves
#define V vf
#define L VF
#define R PX__TILE_ROWS
#define LOAD vf_load
#define STORE vf_store
#define SET vf_set
#define FMA vf_fma
#define INTERLEAVE_LOW vf_interleave_low
#define INTERLEAVE_HIGH vf_interleave_high
#define NUMBER(x) ((T)(x))
#define NAME(x) x##_f32
#include "cpu/gemm_block.h"
#define T double
#define V vd
#define L VD
#define R PX__TILE_ROWS
#define LOAD vd_load
#define STORE vd_store
#define SET vd_set
#define FMA vd_fma
#define INTERLEAVE_LOW vd_interleave_low
#define INTERLEAVE_HIGH vd_interleave_high
#define NUMBER(x) ((T)(x))
#define NAME(x) x##_f64
#include "cpu/gemm_block.h"
#undef TARGET

#if defined(__AVX2__)
// ---- AVX-512
#define TARGET __attribute__((target("avx512f")))
#define INLINE static inline __attribute__((always_inline)) TARGET
typedef float wf __attribute__((vector_size(64)));
typedef double wd __attribute__((vector_size(64)));
enum { WF = 16, WD = 8 };
INLINE wf wf_load(const float *p) { return (wf)_mm512_loadu_ps(p); }
INLINE wd wd_load(const double *p) { return (wd)_mm512_loadu_pd(p); }
INLINE wf wf_load_halves(const uint16_t *p) {
  return (wf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
INLINE void wf_store(float *p, wf v) { _mm512_storeu_ps(p, (__m512)v); }
INLINE void wd_store(double *p, wd v) { _mm512_storeu_pd(p, (__m512d)v); }
// The first n numbers, of which there may be all.
INLINE wf wf_load_first(const float *p, int64_t n) {
  return (wf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
INLINE wd wd_load_first(const double *p, int64_t n) {
  return (wd)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), p);
}
INLINE void wf_store_first(float *p, wf v, int64_t n) {
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
}
INLINE void wd_store_first(double *p, wd v, int64_t n) {
  _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), (__m512d)v);
}
INLINE wf wf_set(float x) { return (wf)_mm512_set1_ps(x); }
INLINE wd wd_set(double x) { return (wd)_mm512_set1_pd(x); }
INLINE wf wf_fma(wf a, wf b, wf c) { return (wf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE wd wd_fma(wd a, wd b, wd c) {
  return (wd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
INLINE wf wf_interleave_low(wf a, wf b) {
  return PX_SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
INLINE wf wf_interleave_high(wf a, wf b) {
  return PX_SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
INLINE wd wd_interleave_low(wd a, wd b) { return PX_SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
INLINE wd wd_interleave_high(wd a, wd b) { return PX_SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
#define T float
#define LOAD_HALVES wf_load_halves
#define V wf
#define L WF
#define R PX__TILE_ROWS_512
#define LOAD wf_load
#define STORE wf_store
#define LOAD_FIRST wf_load_first
#define STORE_FIRST wf_store_first
#define SET wf_set
#define FMA wf_fma
#define INTERLEAVE_LOW wf_interleave_low
#define INTERLEAVE_HIGH wf_interleave_high
#define NUMBER(x) ((T)(x))
#define NAME(x) x##_f32_512
#include "cpu/gemm_block.h"
#define T double
#define V wd
#define L WD
#define R PX__TILE_ROWS_512
#define LOAD wd_load
#define STORE wd_store
#define LOAD_FIRST wd_load_first
#define STORE_FIRST wd_store_first
#define SET wd_set
#define FMA wd_fma
#define INTERLEAVE_LOW wd_interleave_low
#define INTERLEAVE_HIGH wd_interleave_high
#define NUMBER(x) ((T)(x))
#define NAME(x) x##_f64_512
#include "cpu/gemm_block.h"
#endif

PX__TILES(f32, PX__TILE_ROWS, float, VF, few_f32)
PX__TILES(f64, PX__TILE_ROWS, double, VD, few_f64)
#if defined(__AVX2__)
PX__TILES(f32_512, PX__TILE_ROWS_512, float, WF, few_f32_512)
PX__TILES(f64_512, PX__TILE_ROWS_512, double, WD, few_f64_512)
const px__tiles *px__tiles_f32(void) {
  return px_cpu_level_used() >= PX_CPU_AVX512 ? &with_f32_512 : &with_f32;
}
const px__tiles *px__tiles_f64(void) {
  return px_cpu_level_used() >= PX_CPU_AVX512 ? &with_f64_512 : &with_f64;
}
#else
const px__tiles *px__tiles_f32(void) { return &with_f32; }
const px__tiles *px__tiles_f64(void) { return &with_f64; }
#endif
