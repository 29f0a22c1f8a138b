// SPDX-License-Identifier: Apache-2.0
// Single-threaded products of one element type, with the widest vectors of the processor.
#pragma once
#include "cpu/gemm/gemm.h"
#include "cpu/gemm/gemm_limits.h"

// Rows of a tile. AVX-512 has twice the registers.
#define PX__TILE_ROWS 6
#define PX__TILE_ROWS_512 14
enum {
  MAX_VECTORS = 8,  // vectors per row of the widest tile
  DOT_ROWS = 4      // rows multiplied by a vector at once
};

typedef struct px__tiles {
  int64_t rows, columns;             // of a tile
  size_t item;                       // bytes of an element
  void (*scale)(const px__gemm *g);  // k = 0
  void (*vector)(const px__gemm *g);
  void (*vectors)(const px__gemm *g);               // few columns of B; NULL: unavailable
  void (*few)(const px__gemm *g);                   // few rows of A; NULL: unavailable
  void (*direct)(const px__gemm *g, void *buffer);  // buffer: DIRECT_PANEL_BYTES; NULL: unavailable
  bool (*blocked)(const px__gemm *g);               // false: out of memory
  void (*pack)(const px__gemm *g, void *to);
  double thread_work;     // multiplications per thread grain
  int64_t max_thin_rows;  // max rows of A for which the transposed problem is better, if A and B
                          // lie along k
} px__tiles;
const px__tiles *px__tiles_f32(void);
const px__tiles *px__tiles_f64(void);
// NULL: no hardware bfloat16 multiplication.
const px__tiles *px__tiles_bf16(void);
// Integers; sums wrap around.
const px__tiles *px__tiles_i16(void);
const px__tiles *px__tiles_i32(void);
const px__tiles *px__tiles_i64(void);

// Defines the function table of an instance of gemm_block.h.
#define PX__TILES(name, height, type, lanes, few) \
  static void direct_in_##name(const px__gemm *g, void *buffer) { \
    direct_##name(g, (type *)buffer); \
  } \
  static void pack_to_##name(const px__gemm *g, void *to) { pack_all_##name(g, (type *)to); } \
  static const px__tiles with_##name = {height, \
                                        2 * (lanes), \
                                        sizeof(type), \
                                        scale_##name, \
                                        rows_times_vector_##name, \
                                        rows_times_vectors_##name, \
                                        few, \
                                        direct_in_##name, \
                                        blocked_##name, \
                                        pack_to_##name, \
                                        PX__THREAD_WORK, \
                                        0};
