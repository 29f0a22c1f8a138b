// SPDX-License-Identifier: Apache-2.0
// Matrix products: selects the method by size, splits large products over the thread pool, and
// converts dtypes other than float and double.
//
// The result does not depend on the number of threads. A split cuts rows and columns of C, never
// the sums, and the method is selected before the split.
#include "cpu/threads/buffer.h"
#include "cpu/threads/cache_line.h"
#include "cpu/convert/convert.h"
#include "cpu/gemm/gemm_limits.h"
#include "cpu/gemm/gemm_tiles.h"
#include "cpu/threads/threads.h"

#include <stdlib.h>

static double work_of(const px__gemm *g) { return (double)g->m * (double)g->n * (double)g->k; }

// The transposed problem.
static px__gemm transposed(const px__gemm *g) {
  return (px__gemm){.m = g->n,
                    .n = g->m,
                    .k = g->k,
                    .whole_m = g->whole_n,
                    .whole_n = g->whole_m,
                    .a_rows = g->b_columns,
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
                    .beta = g->beta,
                    .c_float = g->c_float};
}

// Methods. Selected once for the whole product, so that all pieces sum in the same order.
typedef enum method { SCALE, VECTOR, VECTORS, FEW, BLOCKED, DIRECT } method;

// True if so few columns use dot products with contiguous rows; more columns are allowed if rows
// are whole cache lines.
static bool can_use_dots(const px__gemm *g, int64_t columns, const px__tiles *tiles) {
  int64_t item = (int64_t)tiles->item,
          max = (g->ar | g->bc) * item % PX__CACHE_LINE ? DOT_MAX_COLUMNS : DOT_MAX_COLUMNS_ALIGNED;
  return tiles->vectors && columns <= max && g->k >= DOT_MIN_LENGTH &&
         g->k >= DOT_MIN_TERMS_PER_COLUMN * columns;
}

static method choose(const px__gemm *g, const px__tiles *tiles) {
  if (g->k == 0) return SCALE;
  if (g->packed || g->a_columns) return BLOCKED;
  bool lines = g->ac == 1 && g->br == 1 && !g->b_rows && !g->b_columns && !g->b_f16;
  if (lines && g->n <= (g->a_rows ? DOT_MAX_COLUMNS_INDIRECT : 1)) return VECTOR;
  if (lines && !g->a_rows && can_use_dots(g, g->n, tiles)) return VECTORS;
  if (g->b_rows && g->m <= UNPACKED_MAX_ROWS && tiles->few) return FEW;
  if (g->a_rows || g->b_rows || g->b_columns || !tiles->direct) return BLOCKED;
  bool small = g->m * g->k + g->k * g->n <= DIRECT_MAX_ELEMENTS &&
               g->m * g->n <= DIRECT_MAX_RESULTS &&
               (size_t)(g->k * tiles->columns) * tiles->item <= DIRECT_PANEL_BYTES;
  // If each row of B is used by few tiles, packing does not pay off. The limit is one tile if
  // packing converts B, if A is not contiguous along k, or if C dominates.
  bool one = g->b_f16 || g->ac != 1 || g->k <= SHALLOW_MAX_K;
  int64_t max_rows = one ? tiles->rows : DIRECT_MAX_TILES * tiles->rows;
  bool thin = g->bc == 1 && g->m <= max_rows;
  return small || thin ? DIRECT : BLOCKED;
}

static void direct(const px__gemm *g, const px__tiles *tiles) {
  PX__BUFFER(char, scratch, DIRECT_PANEL_BYTES);
  tiles->direct(g, scratch);
}

// Returns false if out of memory.
static bool serial(const px__gemm *g, const px__tiles *tiles, method how) {
  switch (how) {
    case SCALE:
      return tiles->scale(g), true;
    case VECTOR:
      return tiles->vector(g), true;
    case VECTORS:
      return tiles->vectors(g), true;
    case FEW:
      return tiles->few(g), true;
    case BLOCKED:
      return tiles->blocked(g);
    default:
      return direct(g, tiles), true;
  }
}

// ---- parallel pieces: C as a grid of rectangles

typedef struct grid {
  const px__gemm *g;
  const px__tiles *tiles;
  method how;
  bool failed;
  int64_t down, across;  // pieces
} grid;

// First row or column of part i; parts begin at tile boundaries.
static int64_t part_begin(int64_t size, int64_t unit, int64_t parts, int64_t i) {
  int64_t at = px__ceil_div(size, unit) * i / parts * unit;
  return at < size ? at : size;
}

static void run_piece(grid *s, int64_t i, int64_t j) {
  px__gemm g = *s->g;
  int64_t item = (int64_t)s->tiles->item, height = s->tiles->rows, width = s->tiles->columns;
  int64_t row = part_begin(g.m, height, s->down, i), col = part_begin(g.n, width, s->across, j);
  int64_t result = g.c_float ? (int64_t)sizeof(float) : item;
  g.m = part_begin(g.m, height, s->down, i + 1) - row;
  g.n = part_begin(g.n, width, s->across, j + 1) - col;
  g.a = (const char *)g.a + row * g.ar * (g.a_f16 ? (int64_t)sizeof(uint16_t) : item);
  g.b = (const char *)g.b + col * g.bc * (g.b_f16 ? (int64_t)sizeof(uint16_t) : item);
  if (g.c_f16) g.c_f16 += row * g.c_f16_stride + col;
  if (g.packed) g.packed = (const char *)g.packed + col * g.k * item;
  g.c = (char *)g.c + (row * g.cr + col * g.cc) * result;
  if (g.a_rows) g.a_rows += row;
  if (g.b_columns) g.b_columns += col;
  if (g.s) g.s = (const char *)g.s + (row * g.sr + col * g.sc) * result;
  if (!serial(&g, s->tiles, s->how)) __atomic_store_n(&s->failed, true, __ATOMIC_RELAXED);
}

static void run_pieces(void *ctx, int64_t begin, int64_t end) {
  grid *s = ctx;
  for (int64_t i = begin; i < end; i++) run_piece(s, i / s->across, i % s->across);
}

// Each piece packs its own rows of A and columns of B. Minimizes the largest piece, then the sum of
// its sides.
static void choose_grid(grid *s, int64_t pieces) {
  int64_t height = s->tiles->rows, width = s->tiles->columns, best = INT64_MAX, border = 0;
  int64_t m = px__ceil_div(s->g->m, height), n = px__ceil_div(s->g->n, width);
  for (int64_t down = 1; down <= pieces && down <= m; down++) {
    int64_t across = pieces / down < n ? pieces / down : n;
    int64_t rows = px__ceil_div(m, down) * height, columns = px__ceil_div(n, across) * width;
    int64_t size = rows * columns;
    if (size > best || (size == best && rows + columns >= border)) continue;
    best = size, border = rows + columns;
    s->down = down, s->across = across;
  }
}

// True if C fits into one vector per row and rows of A lie along k. Each element of A is then read
// once without packing, faster than packing A into panels for full vectors. If many lanes would be
// unused, k must be long.
static bool is_narrow(const px__gemm *g, const px__tiles *tiles) {
  int64_t lanes = tiles->columns / 2;
  if (!tiles->few || g->ac != 1 || g->n > lanes) return false;
  return g->k >= DOT_MIN_LENGTH || 4 * g->n >= 3 * lanes;
}

// True if the transposed problem is better: C has contiguous columns, A is a vector, packing of A
// is avoided, or C is so narrow that much of a tile's width would be unused.
static bool should_transpose(const px__gemm *g, const px__tiles *tiles) {
  if (g->b_columns) return g->m <= DOT_MAX_COLUMNS_INDIRECT;
  if (g->a_rows || g->a_columns || g->b_rows || g->packed || g->a_f16 || g->b_f16) return false;
  if (g->cc != 1 && g->cr == 1) return true;
  if (g->m == 1) return g->br == 1 && g->ac == 1;
  if (g->n == 1) return g->ac != 1;
  bool thin = g->m <= tiles->max_thin_rows || can_use_dots(g, g->m, tiles);
  if (thin && g->m < g->n && g->br == 1 && g->ac == 1) return true;
  if (is_narrow(g, tiles)) return false;
  int64_t width = tiles->columns;
  int64_t here = g->m * px__ceil_div(g->n, width), widen_b = g->n * px__ceil_div(g->m, width);
  return g->n < width && 4 * widen_b < 3 * here;
}

// The product with the sizes that select the method.
static px__gemm whole_of(const px__gemm *g) {
  px__gemm whole = *g;
  if (g->whole_m) whole.m = g->whole_m, whole.n = g->whole_n;
  return whole;
}
static bool product(const px__gemm *given, const px__tiles *tiles, bool parallel) {
  px__gemm own, all;  // copied only if needed: small products come in thousands
  const px__gemm *g = given, *whole = given;
  if (g->m == 0 || g->n == 0) return true;
  if (g->whole_m) all = whole_of(g), whole = &all;
  if (should_transpose(whole, tiles)) {
    own = transposed(g), g = &own;
    if (g->whole_m) all = transposed(&all);
    whole = g->whole_m ? &all : g;
  }
  method how = choose(whole, tiles);
  if (whole->m >= DEEP_MIN_ROWS && how == BLOCKED && !g->b_rows && !g->a_columns) {
    if (g == given) own = *g, g = &own;
    own.deep = true;
  }
  double thread_work = work_of(g) / tiles->thread_work;
  if (!parallel || thread_work < 1) return serial(g, tiles, how);
  grid s = {.g = g, .tiles = tiles, .how = how};
  px__cpu_plan plan = px__cpu_plan_of((const char *)tiles + how, thread_work);
  // A direct product packs little. If it has all threads, smaller pieces reduce the imbalance.
  bool finer = how == DIRECT && plan.count == px__cpu_thread_count();
  choose_grid(&s, finer ? 4 * plan.count : plan.count);
  px__cpu_run(&plan, s.down * s.across, 1, run_pieces, &s);
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
bool px__gemm_bf16(const px__gemm *g, bool parallel) {
  return product(g, px__tiles_bf16(), parallel);
}
bool px__gemm_has_bf16(void) { return px__tiles_bf16() != NULL; }

// ---- dtypes computed in a wider type, through scratch

typedef struct matrix {
  void *at;
  int64_t row, column;  // strides in elements
  int dtype;
} matrix;
typedef struct conversion {
  matrix to, from;
  int64_t rows, columns;
} conversion;

static void convert_rows(void *ctx, int64_t begin, int64_t end) {
  const conversion *c = ctx;
  const matrix *to = &c->to, *from = &c->from;
  int64_t a = px__cpu_item[to->dtype], b = px__cpu_item[from->dtype];
  for (int64_t i = begin, work = 0; i < end && !px__work_stopped(&work, c->columns); i++)
    px__cpu_convert((char *)to->at + i * to->row * a, to->column * a, to->dtype,
                    (const char *)from->at + i * from->row * b, from->column * b, from->dtype,
                    c->columns);
}
// Iterates along the contiguous dimension of `to`.
static void convert(const matrix *to, const matrix *from, int64_t m, int64_t n, bool parallel) {
  conversion c = {*to, *from, m, n};
  if (to->column != 1) {
    c = (conversion){{to->at, to->column, to->row, to->dtype},
                     {from->at, from->column, from->row, from->dtype},
                     n,
                     m};
  }
  if (parallel)
    px__cpu_parallel(c.rows, CONVERT_GRAIN / (c.columns + 1) + 1, convert_rows, &c);
  else
    convert_rows(&c, 0, c.rows);
}

// The scratch copy of an m x n matrix, contiguous along the same dimension.
static matrix scratch_matrix(const matrix *from, int64_t m, int64_t n, int wide, char *scratch) {
  bool by_column = from->row == 1 && from->column != 1;
  return (matrix){scratch, by_column ? 1 : n, by_column ? m : 1, wide};
}

// A large float16 product: operands are converted during packing, sums when stored. Between blocks
// of k the sums are kept in float scratch.
static bool product_f16_packed(px__gemm w, bool parallel) {
  float *scratch = malloc((size_t)(w.m * w.n) * sizeof *scratch);
  if (!scratch) return false;
  matrix s = {(void *)w.s, w.sr, w.sc, PX_FLOAT16}, sums = {scratch, w.n, 1, PX_FLOAT32};
  bool add = w.s && w.beta != 0;
  if (add) convert(&sums, &s, w.m, w.n, parallel);
  w.c_f16 = w.c, w.c_f16_stride = w.cr;
  w.c = scratch, w.cr = w.sr = w.n, w.sc = 1;
  w.s = add ? scratch : NULL;
  bool done = product(&w, px__tiles_f32(), parallel);
  free(scratch);
  return done;
}
// A product with A and C already wide; B is converted piece by piece, never as a whole.
typedef struct pieces {
  px__gemm w;
  matrix b;
  int wide;
  int64_t columns;  // of a piece
  bool failed;
} pieces;
static void run_wide_pieces(void *ctx, int64_t begin, int64_t end) {
  pieces *p = ctx;
  int64_t item = px__cpu_item[p->b.dtype], size = px__cpu_item[p->wide], work = 0;
  char *scratch = px__aligned_new((size_t)(p->w.k * p->columns * size));
  bool done = scratch != NULL;
  for (int64_t i = begin; done && i < end && !px__work_stopped(&work, p->w.k * p->columns); i++) {
    px__gemm g = whole_of(&p->w);
    int64_t j = i * p->columns;
    g.whole_m = g.m, g.whole_n = g.n;
    g.m = p->w.m, g.n = px__min_count(p->columns, p->w.n - j);
    matrix from = p->b;
    from.at = (char *)from.at + j * from.column * item;
    matrix to = scratch_matrix(&from, g.k, g.n, p->wide, scratch);
    convert(&to, &from, g.k, g.n, false);
    g.b = to.at, g.br = to.row, g.bc = to.column;
    g.c = (char *)g.c + j * g.cc * size;
    if (g.s) g.s = (const char *)g.s + j * g.sc * size;
    done = px__gemm_any(&g, p->wide, false);
  }
  if (!done) __atomic_store_n(&p->failed, true, __ATOMIC_RELAXED);
  free(scratch);
}
static bool product_in_pieces(const px__gemm *w, const matrix *b, int wide, bool parallel) {
  int64_t columns =
      PIECE_BYTES / (w->k * px__cpu_item[wide]) / PIECE_MIN_COLUMNS * PIECE_MIN_COLUMNS;
  if (columns < PIECE_MIN_COLUMNS) columns = PIECE_MIN_COLUMNS;
  pieces p = {.w = *w, .b = *b, .wide = wide, .columns = columns};
  int64_t count = px__ceil_div(w->n, columns);
  if (parallel)
    px__cpu_parallel(count, 1, run_wide_pieces, &p);
  else
    run_wide_pieces(&p, 0, count);
  return !p.failed;
}

// A float16 B, the larger operand, is converted during packing. A large B with contiguous columns
// is converted in cache-sized pieces if A has few rows.
static bool product_wide(const px__gemm *given, int dtype, int wide, bool parallel) {
  bool half = dtype == PX_FLOAT16, tall = given->m > given->n;
  int64_t size = px__cpu_item[wide], small_side = tall ? given->n : given->m;
  bool large = (given->m + given->n - small_side) * given->k * size > PIECE_BYTES;
  bool contiguous = (tall ? given->ac : given->br) == 1;
  bool by_pieces = !half && large && contiguous && small_side <= PIECES_MAX_ROWS;
  bool widen_b = !half && !by_pieces;  // convert B as a whole
  px__gemm w = tall && !widen_b ? transposed(given) : *given;
  int64_t m = w.m, n = w.n, k = w.k;
  size_t for_a = px__round_to_cache_line((size_t)(m * k * size));
  size_t for_b = widen_b ? px__round_to_cache_line((size_t)(k * n * size)) : 0;
  char *own = malloc(PX__CACHE_LINE + for_a + for_b + (size_t)(m * n * size));
  if (!own) return false;
  char *scratch =
      own + PX__CACHE_LINE - (uintptr_t)own % PX__CACHE_LINE;  // faster than aligned_alloc
  matrix a = {(void *)w.a, w.ar, w.ac, dtype}, b = {(void *)w.b, w.br, w.bc, dtype};
  matrix c = {w.c, w.cr, w.cc, dtype}, s = {(void *)w.s, w.sr, w.sc, dtype};
  matrix wa = scratch_matrix(&a, m, k, wide, scratch);
  matrix wb = scratch_matrix(&b, k, n, wide, scratch + for_a);
  matrix wc = scratch_matrix(&c, m, n, wide, scratch + for_a + for_b);
  convert(&wa, &a, m, k, parallel);
  if (widen_b) convert(&wb, &b, k, n, parallel);
  bool add = w.s && w.beta != 0;
  if (add) convert(&wc, &s, m, n, parallel);
  w.a = wa.at, w.ar = wa.row, w.ac = wa.column;
  if (widen_b) w.b = wb.at, w.br = wb.row, w.bc = wb.column;
  w.b_f16 = half;
  w.c = wc.at, w.cr = w.sr = wc.row, w.cc = w.sc = wc.column;
  w.s = add ? wc.at : NULL;
  bool done =
      by_pieces ? product_in_pieces(&w, &b, wide, parallel) : px__gemm_any(&w, wide, parallel);
  if (done) convert(&c, &wc, m, n, parallel);
  free(own);
  return done;
}

// ---- bfloat16 without AMX: the processor multiplies it at half the rate of float, so it
// is converted to float, except for vectors and a few rows, which are memory-bound

static bool product_of_rows(const px__gemm *g, bool parallel) {
  for (int64_t i = 0; i < g->m; i++) {
    px__gemm row = *g;
    row.m = 1;
    row.a = (const uint16_t *)g->a + i * g->ar, row.c = (uint16_t *)g->c + i * g->cr;
    if (g->s) row.s = (const uint16_t *)g->s + i * g->sr;
    if (!px__gemm_bf16(&row, parallel)) return false;
  }
  return true;
}
static bool product_bf16(const px__gemm *g, bool parallel) {
  bool multiplies = px__gemm_has_bf16(), vector = g->m == 1 || g->n == 1;
  bool tiles = px_cpu_level_used() >= PX_CPU_AMX,
       few_rows = g->bc == 1 && g->m <= BF16_MAX_ROWS_ALONG_N;
  if (multiplies && (tiles || vector || few_rows)) return px__gemm_bf16(g, parallel);
  if (multiplies && g->bc != 1 && g->m <= BF16_MAX_ROWS_ALONG_K)
    return product_of_rows(g, parallel);
  return product_wide(g, PX_BFLOAT16, PX_FLOAT32, parallel);
}

static bool product_f16(const px__gemm *g, bool parallel) {
  px__gemm w = g->cc != 1 ? transposed(g) : *g;
  w.a_f16 = w.b_f16 = true;
  px__gemm whole = whole_of(&w);
  if (w.cc == 1 && choose(&whole, px__tiles_f32()) == BLOCKED)
    return product_f16_packed(w, parallel);
  return product_wide(g, PX_FLOAT16, PX_FLOAT32, parallel);
}
bool px__gemm_any(const px__gemm *g, int dtype, bool parallel) {
  switch (dtype) {
    case PX_FLOAT32:
      return product(g, px__tiles_f32(), parallel);
    case PX_FLOAT64:
      return product(g, px__tiles_f64(), parallel);
    case PX_BFLOAT16:
      return product_bf16(g, parallel);
    case PX_FLOAT16:
      return product_f16(g, parallel);
    case PX_INT16:
      return product(g, px__tiles_i16(), parallel);
    case PX_INT32:
      return product(g, px__tiles_i32(), parallel);
    case PX_INT64:
      return product(g, px__tiles_i64(), parallel);
    default:  // 8 bits: wraparound in 16 bits is wraparound in 8
      return product_wide(g, dtype, PX_INT16, parallel);
  }
}
