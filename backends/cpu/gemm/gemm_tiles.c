// SPDX-License-Identifier: Apache-2.0
// Instances of gemm_block.h for float and double: with the vectors of the variant being compiled,
// and with AVX-512, selected at run time.
#include "cpu/threads/buffer.h"
#include "cpu/threads/cache_line.h"
#include "cpu/gemm/gemm_row_tables.h"
#include "cpu/gemm/gemm_tiles.h"
#include "cpu/vector/fp16_bf16.h"
#include "cpu/vector/simd_avx512.h"
#include "cpu/threads/threads.h"

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
#include "cpu/gemm/gemm_block.h"
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
#include "cpu/gemm/gemm_block.h"
#undef TARGET

#if defined(__AVX2__)
// ---- AVX-512
#define TARGET WIDE
WIDE_INLINE wf wf_load_halves(const uint16_t *p) {
  return (wf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
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
#include "cpu/gemm/gemm_block.h"
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
#include "cpu/gemm/gemm_block.h"
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
