// SPDX-License-Identifier: Apache-2.0
// Which rows are a tile, of a product whose A has rows and columns by tables (a_rows, a_columns).
//
// Many of the rows follow one another at one distance: pixels of a row of an image, or channels of
// one. Such runs are cut evenly into halves of a tile, and halves of equal height are paired, from
// wherever they are. Where runs are too short for that, a tile is of fewer rows that begin
// anywhere.
#pragma once
#include "cpu/threads/ceil_div.h"
#include "cpu/gemm/gemm.h"

// Where its halves begin; the second is -1 if there is none. `half` is 0 if its rows begin
// anywhere.
typedef struct px__spread {
  int64_t first[2];
  int half, rows;
} px__spread;

enum { PX__MOST_HALF = 8, PX__MOST_SPREAD = 256 };  // rows of a half, and of a block

static inline int64_t px__spread_row(const px__gemm *g, int64_t i) {
  return g->a_rows ? g->a_rows[i] : i * g->ar;
}
// How long the run from row i is, of those up to n.
static inline int64_t px__spread_run(const px__gemm *g, int64_t i, int64_t n, int64_t step) {
  int64_t run = 1;
  while (i + run < n && px__spread_row(g, i + run) - px__spread_row(g, i + run - 1) == step) run++;
  return run;
}
// Where the halves of each height begin, up to `most` rows high.
typedef struct px__halves {
  int64_t from[PX__MOST_HALF][PX__MOST_SPREAD];
  int64_t count[PX__MOST_HALF];
} px__halves;
static inline void px__cut_runs(const px__gemm *g, int64_t i, int64_t n, int64_t step, int most,
                                px__halves *to) {
  for (int h = 0; h < most; h++) to->count[h] = 0;
  for (int64_t at = 0, run; at < n; at += run) {
    run = px__spread_run(g, i + at, i + n, step);
    int64_t parts = px__ceil_div(run, most);
    for (int64_t part = 0; part < parts; part++) {
      int64_t from = run * part / parts, rows = run * (part + 1) / parts - from;
      to->from[rows - 1][to->count[rows - 1]++] = at + from;
    }
  }
}
// The tiles of n rows of A from row i, each at the number of rows of those before it; halves are of
// `most` rows at most, and tiles of rows that begin anywhere of `apart`. Gives the distance of
// rows.
static inline int64_t px__spread_tiles(const px__gemm *g, int64_t i, int64_t n, int most, int apart,
                                       px__spread *tiles) {
  int64_t step = n > 1 ? px__spread_row(g, i + 1) - px__spread_row(g, i) : 0, count = 0;
  px__halves all;
  px__cut_runs(g, i, n, step, most, &all);
  for (int h = 0; h < most; h++) count += (all.count[h] + 1) / 2;
  if (count > px__ceil_div(n, apart)) {
    for (int64_t at = 0; at < n; at += apart)
      tiles[at] = (px__spread){.first = {at, -1}, .rows = n - at < apart ? (int)(n - at) : apart};
    return step;
  }
  px__spread *next = tiles;
  for (int h = most - 1; h >= 0; h--)
    for (int64_t j = 0; j < all.count[h]; j += 2) {
      bool two = j + 1 < all.count[h];
      *next = (px__spread){.first = {all.from[h][j], two ? all.from[h][j + 1] : -1},
                           .half = h + 1,
                           .rows = two ? 2 * (h + 1) : h + 1};
      next += next->rows;
    }
  return step;
}
