// SPDX-License-Identifier: Apache-2.0
// The products of one thread, for one element type, with the widest vectors that the machine has.
#pragma once
#include "cpu/gemm/gemm.h"

// Rows of a tile, and of one of AVX-512, which has twice the registers; vectors in the widest
// tile's row; rows that are multiplied with a vector at once.
#define PX__TILE_ROWS 6
#define PX__TILE_ROWS_512 14
enum { MOST_VECTORS = 8, DOTS = 4 };
// Bytes of a panel of B on the stack, for direct products.
enum { PANEL_BYTES = 32 * 1024 };
// A k up to which C is more than what is read for it, and rows of B in a block of thin products.
enum { SHALLOW = 64, THIN_DEPTH = 64 };

// Multiplications that take about as long as a thread takes to be woken.
#define PX__THREAD_WORK (64.0 * 64 * 64)

typedef struct px__tiles {
  int64_t rows, columns;             // of a tile
  size_t item;                       // bytes of an element
  void (*scale)(const px__gemm *g);  // k = 0
  void (*vector)(const px__gemm *g);
  void (*vectors)(const px__gemm *g);             // NULL: none for few columns of B
  void (*few)(const px__gemm *g);                 // NULL: none for few rows of A
  void (*direct)(const px__gemm *g, void *room);  // room: PANEL_BYTES; NULL: none
  bool (*blocked)(const px__gemm *g);             // false: no memory
  void (*pack)(const px__gemm *g, void *to);
  double worth;  // multiplications that are worth waking a thread
  int64_t thin;  // rows of an A that is better the B, if both lie along k
} px__tiles;
const px__tiles *px__tiles_f32(void);
const px__tiles *px__tiles_f64(void);
// NULL: the processor does not multiply them itself.
const px__tiles *px__tiles_bf16(void);
// Integers: sums that do not fit wrap around.
const px__tiles *px__tiles_i16(void);
const px__tiles *px__tiles_i32(void);
const px__tiles *px__tiles_i64(void);

// The row of the functions that gemm_block.h has stamped out by this name.
#define PX__TILES(name, height, type, lanes, few) \
  static void direct_in_##name(const px__gemm *g, void *room) { direct_##name(g, (type *)room); } \
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
