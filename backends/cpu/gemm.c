// SPDX-License-Identifier: Apache-2.0
// Matrix products: picks the way for each size (direct or blocked), splits large ones over the
// kernel threads, and converts what is neither float nor double.
//
// The result does not depend on the number of threads: a split cuts rows and columns of C, never
// the sums, and the way is chosen before the split.
#include "cpu/gemm_tiles.h"
#include "cpu/half.h"
#include "cpu/threads.h"

#include <stdlib.h>

// Elements of A and B up to which a product is direct, and of a panel of B on the stack.
enum { DIRECT_ELEMENTS = 48 * 1024, PANEL_BYTES = 32 * 1024 };
// Columns of B that are taken one by one if rows of A lie apart, and rows of A for which packing
// rows of B that lie apart does not pay.
enum { MOST_COLUMNS = 8, FEW_ROWS = 16 };
// Multiplications from which threads are worth their start.
static const double thread_work = 64.0 * 64 * 64;

static double work_of(const px__gemm *g) { return (double)g->m * (double)g->n * (double)g->k; }

// k = 0: C = beta * S.
static void scale_only(const px__gemm *g, bool wide) {
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->n; j++) {
      int64_t c = i * g->cr + j * g->cc, s = i * g->sr + j * g->sc;
      if (wide)
        ((double *)g->c)[c] = g->s && g->beta != 0 ? ((const double *)g->s)[s] * g->beta : 0;
      else
        ((float *)g->c)[c] = g->s && g->beta != 0 ? ((const float *)g->s)[s] * (float)g->beta : 0;
    }
}

// The transposed problem, for a C whose columns are contiguous.
static px__gemm flipped(const px__gemm *g) {
  return (px__gemm){.m = g->n,
                    .n = g->m,
                    .k = g->k,
                    .a = g->b,
                    .ar = g->bc,
                    .ac = g->br,
                    .b = g->a,
                    .br = g->ac,
                    .bc = g->ar,
                    .c = g->c,
                    .cr = g->cc,
                    .cc = g->cr,
                    .s = g->s,
                    .sr = g->sc,
                    .sc = g->sr,
                    .alpha = g->alpha,
                    .beta = g->beta};
}

// How a product is done. It is chosen once for the whole, so that its pieces all add up alike.
typedef enum way { SCALE, VECTOR, FEW, BLOCKED, DIRECT } way;

static way choose(const px__gemm *g, const px__tiles *tiles) {
  if (g->k == 0) return SCALE;
  if (g->packed) return BLOCKED;
  bool lines = g->ac == 1 && g->br == 1 && !g->b_rows;
  if (lines && g->n <= (g->a_rows ? MOST_COLUMNS : 1)) return VECTOR;
  if (g->b_rows && g->m <= FEW_ROWS) return FEW;
  if (g->a_rows) return BLOCKED;
  bool small = g->m * g->k + g->k * g->n <= DIRECT_ELEMENTS &&
               (size_t)(g->k * tiles->columns) * tiles->item <= PANEL_BYTES;
  return small ? DIRECT : BLOCKED;
}

static void direct(const px__gemm *g, const px__tiles *tiles) {
  char room[PANEL_BYTES] __attribute__((aligned(64)));
  tiles->direct(g, room);
}

// False if there was no memory.
static bool serial(const px__gemm *g, const px__tiles *tiles, way how) {
  switch (how) {
    case SCALE:
      return scale_only(g, tiles->item == sizeof(double)), true;
    case VECTOR:
      return tiles->vector(g), true;
    case FEW:
      return tiles->few(g), true;
    case BLOCKED:
      return tiles->blocked(g);
    default:
      return direct(g, tiles), true;
  }
}

// ---- pieces: C as a grid of rectangles

typedef struct grid {
  const px__gemm *g;
  const px__tiles *tiles;
  way how;
  bool failed;
  int64_t down, across;  // pieces
} grid;

static int64_t whole_units(int64_t size, int64_t unit) { return (size + unit - 1) / unit; }

// Where the i-th of so many parts of a side begins: between tiles.
static int64_t cut(int64_t size, int64_t unit, int64_t parts, int64_t i) {
  int64_t at = whole_units(size, unit) * i / parts * unit;
  return at < size ? at : size;
}

static void run_piece(grid *s, int64_t i, int64_t j) {
  px__gemm g = *s->g;
  int64_t item = (int64_t)s->tiles->item, width = s->tiles->columns;
  int64_t row = cut(g.m, TILE_M, s->down, i), col = cut(g.n, width, s->across, j);
  g.m = cut(g.m, TILE_M, s->down, i + 1) - row;
  g.n = cut(g.n, width, s->across, j + 1) - col;
  g.a = (const char *)g.a + row * g.ar * item;
  g.b = (const char *)g.b + col * g.bc * item;
  if (g.packed) g.packed = (const char *)g.packed + col * g.k * item;
  g.c = (char *)g.c + (row * g.cr + col * g.cc) * item;
  if (g.a_rows) g.a_rows += row;
  if (g.s) g.s = (const char *)g.s + (row * g.sr + col * g.sc) * item;
  if (!serial(&g, s->tiles, s->how)) __atomic_store_n(&s->failed, true, __ATOMIC_RELAXED);
}

static void run_pieces(void *ctx, int64_t begin, int64_t end) {
  grid *s = ctx;
  for (int64_t i = begin; i < end; i++) run_piece(s, i / s->across, i % s->across);
}

// A piece packs its rows of A and its columns of B anew: of the grids whose greatest piece is
// smallest, that with the shortest sides is taken.
static void lay_grid(grid *s, int64_t pieces) {
  int64_t width = s->tiles->columns, best = INT64_MAX, border = 0;
  int64_t m = whole_units(s->g->m, TILE_M), n = whole_units(s->g->n, width);
  for (int64_t down = 1; down <= pieces && down <= m; down++) {
    int64_t across = pieces / down < n ? pieces / down : n;
    int64_t rows = whole_units(m, down) * TILE_M, columns = whole_units(n, across) * width;
    int64_t size = rows * columns;
    if (size > best || (size == best && rows + columns >= border)) continue;
    best = size, border = rows + columns;
    s->down = down, s->across = across;
  }
}

// Whether the transposed problem is the better one: a C whose columns are contiguous, a vector from
// the left, and a C so narrow that much of a tile's width would be empty.
static bool should_flip(const px__gemm *g, const px__tiles *tiles) {
  if (g->a_rows || g->b_rows || g->packed) return false;
  if (g->cc != 1 && g->cr == 1) return true;
  if (g->m == 1) return g->br == 1 && g->ac == 1;
  if (g->n == 1) return g->ac != 1;
  int64_t width = tiles->columns;
  int64_t here = g->m * whole_units(g->n, width), there = g->n * whole_units(g->m, width);
  return g->n < width && 4 * there < 3 * here;
}

static bool product(const px__gemm *given, const px__tiles *tiles, bool parallel) {
  px__gemm turned;
  const px__gemm *g = given;
  if (g->m == 0 || g->n == 0) return true;
  if (should_flip(g, tiles)) {
    turned = flipped(g);
    g = &turned;
  }
  way how = choose(g, tiles);
  if (!parallel || work_of(g) < thread_work) return serial(g, tiles, how);
  grid s = {.g = g, .tiles = tiles, .how = how};
  // A direct product packs little: with more pieces a late thread costs less.
  lay_grid(&s, px__cpu_thread_count() * (how == DIRECT ? 4 : 1));
  px__cpu_parallel(s.down * s.across, 1, run_pieces, &s);
  return !s.failed;
}
void px__gemm_pack(const px__gemm *g, bool wide, void *to) {
  (wide ? px__tiles_f64() : px__tiles_f32())->pack(g, to);
}
bool px__gemm_f32(const px__gemm *g, bool parallel) {
  return product(g, px__tiles_f32(), parallel);
}
bool px__gemm_f64(const px__gemm *g, bool parallel) {
  return product(g, px__tiles_f64(), parallel);
}

// ---- integers: rows of C as sums of rows of B
#define INTEGER_PRODUCT(name, type, sum) \
  static void name(const px__gemm *g) { \
    const type *a = g->a, *b = g->b, *s = g->s; \
    type *c = g->c; \
    sum alpha = (sum)(int64_t)g->alpha, beta = (sum)(int64_t)g->beta; \
    for (int64_t i = 0, work = 0; i < g->m; i++) \
      for (int64_t j = 0; j < g->n && !px__worked(&work, g->k); j++) { \
        sum t = 0; \
        for (int64_t p = 0; p < g->k; p++) \
          t += (sum)a[i * g->ar + p * g->ac] * (sum)b[p * g->br + j * g->bc]; \
        t *= alpha; \
        if (s && beta) t += beta * (sum)s[i * g->sr + j * g->sc]; \
        c[i * g->cr + j * g->cc] = (type)t; \
      } \
  }
INTEGER_PRODUCT(product_u8, uint8_t, uint64_t)
INTEGER_PRODUCT(product_i8, int8_t, uint64_t)
INTEGER_PRODUCT(product_i16, int16_t, uint64_t)
INTEGER_PRODUCT(product_i32, int32_t, uint64_t)
INTEGER_PRODUCT(product_i64, int64_t, uint64_t)

// ---- half formats: operands widened into scratch
static float widen(int dtype, uint16_t bits) {
  return dtype == PX_FLOAT16 ? px__half_load(bits) : px__bfloat_load(bits);
}
static void widen_matrix(int dtype, float *to, const uint16_t *from, int64_t m, int64_t n,
                         int64_t r, int64_t c) {
  for (int64_t i = 0, work = 0; i < m && !px__worked(&work, n); i++)
    for (int64_t j = 0; j < n; j++) to[i * n + j] = widen(dtype, from[i * r + j * c]);
}
static bool product_half(const px__gemm *g, int dtype, bool parallel) {
  size_t na = (size_t)(g->m * g->k), nb = (size_t)(g->k * g->n), nc = (size_t)(g->m * g->n);
  float *a = malloc((na + nb + nc) * sizeof(float) + 1);
  if (!a) return false;
  float *b = a + na, *c = b + nb;
  bool add = g->s && g->beta != 0;
  widen_matrix(dtype, a, g->a, g->m, g->k, g->ar, g->ac);
  widen_matrix(dtype, b, g->b, g->k, g->n, g->br, g->bc);
  if (add) widen_matrix(dtype, c, g->s, g->m, g->n, g->sr, g->sc);
  px__gemm f = {.m = g->m,
                .n = g->n,
                .k = g->k,
                .a = a,
                .ar = g->k,
                .ac = 1,
                .b = b,
                .br = g->n,
                .bc = 1,
                .c = c,
                .cr = g->n,
                .cc = 1,
                .s = add ? c : NULL,
                .sr = g->n,
                .sc = 1,
                .alpha = g->alpha,
                .beta = add ? g->beta : 0};
  bool done = px__gemm_f32(&f, parallel);
  uint16_t *to = g->c;
  for (int64_t i = 0, work = 0; done && i < g->m && !px__worked(&work, g->n); i++)
    for (int64_t j = 0; j < g->n; j++)
      to[i * g->cr + j * g->cc] =
          dtype == PX_FLOAT16 ? px__half_store(c[i * g->n + j]) : px__bfloat_store(c[i * g->n + j]);
  free(a);
  return done;
}

bool px__gemm_any(const px__gemm *g, int dtype, bool parallel) {
  switch (dtype) {
    case PX_FLOAT32:
      return px__gemm_f32(g, parallel);
    case PX_FLOAT64:
      return px__gemm_f64(g, parallel);
    case PX_FLOAT16:
    case PX_BFLOAT16:
      return product_half(g, dtype, parallel);
    case PX_UINT8:
    case PX_BOOL:
      return product_u8(g), true;
    case PX_INT8:
      return product_i8(g), true;
    case PX_INT16:
      return product_i16(g), true;
    case PX_INT32:
      return product_i32(g), true;
    default:
      return product_i64(g), true;
  }
}
