// SPDX-License-Identifier: Apache-2.0
// Assigns rows to tiles, for products whose A has row and column tables (a_rows, a_columns).
//
// Many rows are evenly spaced: pixels of an image row, or channels of a pixel. Such runs are cut
// evenly into half tiles, and half tiles of equal height are paired, whatever their position. If
// runs are too short, tiles consist of fewer rows at arbitrary offsets.
#pragma once
#include "cpu/threads/buffer.h"
#include "cpu/threads/ceil_div.h"
#include "cpu/gemm/gemm.h"

// A tile: the first rows of its halves; first[1] is -1 if there is no second half. `half` is the
// height of a half, or 0 if the rows are at arbitrary offsets.
typedef struct px__row_tile {
  int64_t first[2];
  int half, rows;
} px__row_tile;

enum {
  PX__MAX_HALF_ROWS = 8,    // max rows of a half tile
  PX__MAX_BLOCK_ROWS = 256  // max rows of a block
};

static inline int64_t px__gemm_row_offset(const px__gemm *g, int64_t i) {
  return g->a_rows ? g->a_rows[i] : i * g->ar;
}
// Length of the run of rows starting at row i, up to row n.
static inline int64_t px__gemm_row_run(const px__gemm *g, int64_t i, int64_t n, int64_t step) {
  int64_t run = 1;
  while (i + run < n &&
         px__gemm_row_offset(g, i + run) - px__gemm_row_offset(g, i + run - 1) == step)
    run++;
  return run;
}
// First rows of the half tiles, by height.
typedef struct px__half_tiles {
  int64_t from[PX__MAX_HALF_ROWS][PX__MAX_BLOCK_ROWS];
  int64_t count[PX__MAX_HALF_ROWS];
} px__half_tiles;
static inline void px__split_runs(const px__gemm *g, int64_t i, int64_t n, int64_t step,
                                  int max_half, px__half_tiles *to) {
  for (int h = 0; h < max_half; h++) to->count[h] = 0;
  for (int64_t at = 0, run; at < n; at += run) {
    run = px__gemm_row_run(g, i + at, i + n, step);
    int64_t parts = px__ceil_div(run, max_half);
    for (int64_t part = 0; part < parts; part++) {
      int64_t from = run * part / parts, rows = run * (part + 1) / parts - from;
      to->from[rows - 1][to->count[rows - 1]++] = at + from;
    }
  }
}
// Computes the tiles of n rows of A from row i; a tile is stored at its index of first row in the
// processing order. Halves have at most `max_half` rows, tiles with arbitrary rows at most
// `max_indirect`. Returns the row distance.
static inline int64_t px__row_tiles(const px__gemm *g, int64_t i, int64_t n, int max_half,
                                    int max_indirect, px__row_tile *tiles) {
  int64_t step = n > 1 ? px__gemm_row_offset(g, i + 1) - px__gemm_row_offset(g, i) : 0, count = 0;
  PX__BUFFER(px__half_tiles, all, 1);
  px__split_runs(g, i, n, step, max_half, all);
  for (int h = 0; h < max_half; h++) count += (all->count[h] + 1) / 2;
  if (count > px__ceil_div(n, max_indirect)) {
    for (int64_t at = 0; at < n; at += max_indirect)
      tiles[at] = (px__row_tile){.first = {at, -1},
                                 .rows = n - at < max_indirect ? (int)(n - at) : max_indirect};
    return step;
  }
  px__row_tile *next = tiles;
  for (int h = max_half - 1; h >= 0; h--)
    for (int64_t j = 0; j < all->count[h]; j += 2) {
      bool two = j + 1 < all->count[h];
      *next = (px__row_tile){.first = {all->from[h][j], two ? all->from[h][j + 1] : -1},
                             .half = h + 1,
                             .rows = two ? 2 * (h + 1) : h + 1};
      next += next->rows;
    }
  return step;
}
