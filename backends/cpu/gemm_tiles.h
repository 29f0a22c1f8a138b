// SPDX-License-Identifier: Apache-2.0
// The products of one thread, for one element type, with the widest vectors that the machine has.
#pragma once
#include "cpu/gemm.h"

// Rows of a tile; vectors in the widest tile's row; rows that are multiplied with a vector at once.
enum { TILE_M = 6, MOST_VECTORS = 8, DOTS = 4 };

typedef struct px__tiles {
  int64_t columns;  // of a tile
  size_t item;      // bytes of an element
  void (*vector)(const px__gemm *g);
  void (*few)(const px__gemm *g);
  void (*direct)(const px__gemm *g, void *room);  // room: k * columns elements
  bool (*blocked)(const px__gemm *g);             // false: no memory
  void (*pack)(const px__gemm *g, void *to);
} px__tiles;
const px__tiles *px__tiles_f32(void);
const px__tiles *px__tiles_f64(void);
