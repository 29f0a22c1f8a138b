// SPDX-License-Identifier: Apache-2.0
// Instances of gemm_block.h for integers; sums wrap around. With the vectors of the variant being
// compiled, and with AVX-512, selected at run time.
#include "cpu/threads/buffer.h"
#include "cpu/gemm/gemm_row_tables.h"
#include "cpu/gemm/gemm_tiles.h"
#include "cpu/vector/simd.h"
#include "cpu/threads/threads.h"

#include <stdlib.h>

#define INTEGERS
#define TARGET
#define T int16_t
#define L (PX_SIMD_BYTES / 2)
#define NAME(x) x##_i16
#include "cpu/integer/gemm_integer.h"
#define T int32_t
#define L (PX_SIMD_BYTES / 4)
#define NAME(x) x##_i32
#include "cpu/integer/gemm_integer.h"
#define T int64_t
#define L (PX_SIMD_BYTES / 8)
#define NAME(x) x##_i64
#include "cpu/integer/gemm_integer.h"
PX__TILES(i16, PX__TILE_ROWS, int16_t, PX_SIMD_BYTES / 2, NULL)
PX__TILES(i32, PX__TILE_ROWS, int32_t, PX_SIMD_BYTES / 4, NULL)
PX__TILES(i64, PX__TILE_ROWS, int64_t, PX_SIMD_BYTES / 8, NULL)
#undef TARGET

#if defined(__AVX2__)
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq")))
#define T int16_t
#define L (64 / 2)
#define NAME(x) x##_i16_512
#include "cpu/integer/gemm_integer.h"
#define T int32_t
#define L (64 / 4)
#define NAME(x) x##_i32_512
#include "cpu/integer/gemm_integer.h"
#define T int64_t
#define L (64 / 8)
#define NAME(x) x##_i64_512
#include "cpu/integer/gemm_integer.h"
PX__TILES(i16_512, PX__TILE_ROWS, int16_t, 64 / 2, NULL)
PX__TILES(i32_512, PX__TILE_ROWS, int32_t, 64 / 4, NULL)
PX__TILES(i64_512, PX__TILE_ROWS, int64_t, 64 / 8, NULL)
static bool wide(void) { return px_cpu_level_used() >= PX_CPU_AVX512; }
const px__tiles *px__tiles_i16(void) { return wide() ? &with_i16_512 : &with_i16; }
const px__tiles *px__tiles_i32(void) { return wide() ? &with_i32_512 : &with_i32; }
const px__tiles *px__tiles_i64(void) { return wide() ? &with_i64_512 : &with_i64; }
#else
const px__tiles *px__tiles_i16(void) { return &with_i16; }
const px__tiles *px__tiles_i32(void) { return &with_i32; }
const px__tiles *px__tiles_i64(void) { return &with_i64; }
#endif
