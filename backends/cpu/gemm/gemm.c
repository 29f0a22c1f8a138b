// SPDX-License-Identifier: Apache-2.0
// Matrix products: picks the way for each size (direct or blocked), splits large ones over the
// kernel threads, and converts what is neither float nor double.
//
// The result does not depend on the number of threads: a split cuts rows and columns of C, never
// the sums, and the way is chosen before the split.
#include "cpu/threads/cache_line.h"
#include "cpu/convert/convert.h"
#include "cpu/gemm/gemm_tiles.h"
#include "cpu/threads/threads.h"

#include <stdlib.h>

// Elements of A and B, and of C, up to which a product is direct.
enum { DIRECT_ELEMENTS = 48 * 1024, DIRECT_RESULTS = 256 * 1024 };
// Columns of B that are taken one by one if rows of A lie anywhere, rows of A for which packing
// rows of B that lie apart does not pay, the length of rows that are multiplied as they lie, and
// tiles that a row of B is used for at most if it is read where it lies.
enum { MOST_COLUMNS = 8, FEW_ROWS = 16, LONG_ROWS = 128, FEW_TILES = 3 };
// Columns that are multiplied as they lie at most, of rows that are whole lines of the cache and of
// others, and the terms for each that their sums pay for.
enum { FEW_LINES = 32, ODD_LINES = 16, LINE_TERMS = 16 };
// Rows of A from which blocks of k are long: of fewer, a panel of B is used too seldom.
enum { DEEP_ROWS = 400 };
// Elements that a thread converts at least.
enum { CONVERTED = 32 * 1024 };
// Of a B that is converted by pieces: rows of A at most, bytes of a piece, and columns at least.
enum { PIECE_ROWS = 32, PIECE_BYTES = 256 * 1024, LEAST_PIECE = 16 };

static double work_of(const px__gemm *g) { return (double)g->m * (double)g->n * (double)g->k; }

// The transposed problem, for a C whose columns are contiguous.
static px__gemm flipped(const px__gemm *g) {
  return (px__gemm){.m = g->n,
                    .n = g->m,
                    .k = g->k,
                    .all_m = g->all_n,
                    .all_n = g->all_m,
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

// How a product is done. It is chosen once for the whole, so that its pieces all add up alike.
typedef enum way { SCALE, VECTOR, VECTORS, FEW, BLOCKED, DIRECT } way;

// Whether so few columns are multiplied with rows of k as they lie: more of them, if those are
// whole lines of the cache.
static bool few_lines(const px__gemm *g, int64_t columns, const px__tiles *tiles) {
  int64_t item = (int64_t)tiles->item,
          most = (g->ar | g->bc) * item % PX__CACHE_LINE ? ODD_LINES : FEW_LINES;
  return tiles->vectors && columns <= most && g->k >= LONG_ROWS && g->k >= LINE_TERMS * columns;
}

static way choose(const px__gemm *g, const px__tiles *tiles) {
  if (g->k == 0) return SCALE;
  if (g->packed || g->a_columns) return BLOCKED;
  bool lines = g->ac == 1 && g->br == 1 && !g->b_rows && !g->b_columns && !g->b_half;
  if (lines && g->n <= (g->a_rows ? MOST_COLUMNS : 1)) return VECTOR;
  if (lines && !g->a_rows && few_lines(g, g->n, tiles)) return VECTORS;
  if (g->b_rows && g->m <= FEW_ROWS && tiles->few) return FEW;
  if (g->a_rows || g->b_rows || g->b_columns || !tiles->direct) return BLOCKED;
  bool small = g->m * g->k + g->k * g->n <= DIRECT_ELEMENTS && g->m * g->n <= DIRECT_RESULTS &&
               (size_t)(g->k * tiles->columns) * tiles->item <= PANEL_BYTES;
  // Where each row of B is used for few tiles, packing it does not pay; if it has to be converted,
  // A lies across k or C is most of it all, for one.
  bool one = g->b_half || g->ac != 1 || g->k <= SHALLOW;
  int64_t few = one ? tiles->rows : FEW_TILES * tiles->rows;
  bool thin = g->bc == 1 && g->m <= few;
  return small || thin ? DIRECT : BLOCKED;
}

static void direct(const px__gemm *g, const px__tiles *tiles) {
  char room[PANEL_BYTES] __attribute__((aligned(64)));
  tiles->direct(g, room);
}

// False if there was no memory.
static bool serial(const px__gemm *g, const px__tiles *tiles, way how) {
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

// ---- pieces: C as a grid of rectangles

typedef struct grid {
  const px__gemm *g;
  const px__tiles *tiles;
  way how;
  bool failed;
  int64_t down, across;  // pieces
} grid;

// Where the i-th of so many parts of a side begins: between tiles.
static int64_t cut(int64_t size, int64_t unit, int64_t parts, int64_t i) {
  int64_t at = px__ceil_div(size, unit) * i / parts * unit;
  return at < size ? at : size;
}

static void run_piece(grid *s, int64_t i, int64_t j) {
  px__gemm g = *s->g;
  int64_t item = (int64_t)s->tiles->item, height = s->tiles->rows, width = s->tiles->columns;
  int64_t row = cut(g.m, height, s->down, i), col = cut(g.n, width, s->across, j);
  int64_t result = g.c_float ? (int64_t)sizeof(float) : item;
  g.m = cut(g.m, height, s->down, i + 1) - row;
  g.n = cut(g.n, width, s->across, j + 1) - col;
  g.a = (const char *)g.a + row * g.ar * (g.a_half ? (int64_t)sizeof(uint16_t) : item);
  g.b = (const char *)g.b + col * g.bc * (g.b_half ? (int64_t)sizeof(uint16_t) : item);
  if (g.half) g.half += row * g.half_r + col;
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

// A piece packs its rows of A and its columns of B anew: of the grids whose greatest piece is
// smallest, that with the shortest sides is taken.
static void lay_grid(grid *s, int64_t pieces) {
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

// Whether C is so narrow that one vector holds its columns, with rows of A along k: each number of
// A is read once, where it lies, which takes less time than turning A into panels for full vectors.
// Where few lanes would be used, A must be long.
static bool is_narrow(const px__gemm *g, const px__tiles *tiles) {
  int64_t lanes = tiles->columns / 2;
  if (!tiles->few || g->ac != 1 || g->n > lanes) return false;
  return g->k >= LONG_ROWS || 4 * g->n >= 3 * lanes;
}

// Whether the transposed problem is the better one: a C whose columns are contiguous, a vector from
// the left, a B that need not be packed as an A, and a C so narrow that much of a tile's width
// would be empty.
static bool should_flip(const px__gemm *g, const px__tiles *tiles) {
  if (g->b_columns) return g->m <= MOST_COLUMNS;
  if (g->a_rows || g->a_columns || g->b_rows || g->packed || g->a_half || g->b_half) return false;
  if (g->cc != 1 && g->cr == 1) return true;
  if (g->m == 1) return g->br == 1 && g->ac == 1;
  if (g->n == 1) return g->ac != 1;
  bool thin = g->m <= tiles->thin || few_lines(g, g->m, tiles);
  if (thin && g->m < g->n && g->br == 1 && g->ac == 1) return true;
  if (is_narrow(g, tiles)) return false;
  int64_t width = tiles->columns;
  int64_t here = g->m * px__ceil_div(g->n, width), there = g->n * px__ceil_div(g->m, width);
  return g->n < width && 4 * there < 3 * here;
}

// A product of the sizes by which it is done.
static px__gemm whole_of(const px__gemm *g) {
  px__gemm whole = *g;
  if (g->all_m) whole.m = g->all_m, whole.n = g->all_n;
  return whole;
}
static bool product(const px__gemm *given, const px__tiles *tiles, bool parallel) {
  px__gemm own, all;  // small products come in thousands: what need not be copied is not
  const px__gemm *g = given, *whole = given;
  if (g->m == 0 || g->n == 0) return true;
  if (g->all_m) all = whole_of(g), whole = &all;
  if (should_flip(whole, tiles)) {
    own = flipped(g), g = &own;
    if (g->all_m) all = flipped(&all);
    whole = g->all_m ? &all : g;
  }
  way how = choose(whole, tiles);
  if (whole->m >= DEEP_ROWS && how == BLOCKED && !g->b_rows && !g->a_columns) {
    if (g == given) own = *g, g = &own;
    own.deep = true;
  }
  double worth = work_of(g) / tiles->worth;
  if (!parallel || worth < 1) return serial(g, tiles, how);
  grid s = {.g = g, .tiles = tiles, .how = how};
  px__cpu_plan plan = px__cpu_plan_of((const char *)tiles + how, worth);
  // A direct product packs little: with more pieces, if it has all threads, a late one costs less.
  bool finer = how == DIRECT && plan.count == px__cpu_thread_count();
  lay_grid(&s, finer ? 4 * plan.count : plan.count);
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

// ---- dtypes that are computed in a wider one: through scratch

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
  for (int64_t i = begin, work = 0; i < end && !px__worked(&work, c->columns); i++)
    px__cpu_convert((char *)to->at + i * to->row * a, to->column * a, to->dtype,
                    (const char *)from->at + i * from->row * b, from->column * b, from->dtype,
                    c->columns);
}
// Goes along what lies together in `to`.
static void convert(const matrix *to, const matrix *from, int64_t m, int64_t n, bool parallel) {
  conversion c = {*to, *from, m, n};
  if (to->column != 1) {
    c = (conversion){{to->at, to->column, to->row, to->dtype},
                     {from->at, from->column, from->row, from->dtype},
                     n,
                     m};
  }
  if (parallel)
    px__cpu_parallel(c.rows, CONVERTED / (c.columns + 1) + 1, convert_rows, &c);
  else
    convert_rows(&c, 0, c.rows);
}

// Where a matrix of m x n has its place in scratch: what lies together there does so here.
static matrix place_of(const matrix *from, int64_t m, int64_t n, int wide, char *room) {
  bool turned = from->row == 1 && from->column != 1;
  return (matrix){room, turned ? 1 : n, turned ? m : 1, wide};
}

// A large product of float16, whose operands are converted where they are packed, and sums where
// they are written; between blocks of k they are in scratch.
static bool product_half(px__gemm w, bool parallel) {
  float *room = malloc((size_t)(w.m * w.n) * sizeof *room);
  if (!room) return false;
  matrix s = {(void *)w.s, w.sr, w.sc, PX_FLOAT16}, sums = {room, w.n, 1, PX_FLOAT32};
  bool add = w.s && w.beta != 0;
  if (add) convert(&sums, &s, w.m, w.n, parallel);
  w.half = w.c, w.half_r = w.cr;
  w.c = room, w.cr = w.sr = w.n, w.sc = 1;
  w.s = add ? room : NULL;
  bool done = product(&w, px__tiles_f32(), parallel);
  free(room);
  return done;
}
// A product whose A and C are wide already: B is not, nor is it anywhere in whole.
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
  char *room = px__room_new((size_t)(p->w.k * p->columns * size));
  bool done = room != NULL;
  for (int64_t i = begin; done && i < end && !px__worked(&work, p->w.k * p->columns); i++) {
    px__gemm g = whole_of(&p->w);
    int64_t j = i * p->columns;
    g.all_m = g.m, g.all_n = g.n;
    g.m = p->w.m, g.n = px__least(p->columns, p->w.n - j);
    matrix from = p->b;
    from.at = (char *)from.at + j * from.column * item;
    matrix to = place_of(&from, g.k, g.n, p->wide, room);
    convert(&to, &from, g.k, g.n, false);
    g.b = to.at, g.br = to.row, g.bc = to.column;
    g.c = (char *)g.c + j * g.cc * size;
    if (g.s) g.s = (const char *)g.s + j * g.sc * size;
    done = px__gemm_any(&g, p->wide, false);
  }
  if (!done) __atomic_store_n(&p->failed, true, __ATOMIC_RELAXED);
  free(room);
}
static bool product_in_pieces(const px__gemm *w, const matrix *b, int wide, bool parallel) {
  int64_t columns = PIECE_BYTES / (w->k * px__cpu_item[wide]) / LEAST_PIECE * LEAST_PIECE;
  if (columns < LEAST_PIECE) columns = LEAST_PIECE;
  pieces p = {.w = *w, .b = *b, .wide = wide, .columns = columns};
  int64_t count = px__ceil_div(w->n, columns);
  if (parallel)
    px__cpu_parallel(count, 1, run_wide_pieces, &p);
  else
    run_wide_pieces(&p, 0, count);
  return !p.failed;
}

// A B of float16, the greater operand, is converted where it is packed, and one that is large, of
// few rows of A and whose columns lie together, in pieces that stay near.
static bool product_wide(const px__gemm *given, int dtype, int wide, bool parallel) {
  bool half = dtype == PX_FLOAT16, tall = given->m > given->n;
  int64_t size = px__cpu_item[wide], few = tall ? given->n : given->m;
  bool large = (given->m + given->n - few) * given->k * size > PIECE_BYTES;
  bool lies = (tall ? given->ac : given->br) == 1;
  bool by_pieces = !half && large && lies && few <= PIECE_ROWS;
  bool there = !half && !by_pieces;  // whether B is made wide as a whole
  px__gemm w = tall && !there ? flipped(given) : *given;
  int64_t m = w.m, n = w.n, k = w.k;
  size_t for_a = px__in_cache_lines((size_t)(m * k * size));
  size_t for_b = there ? px__in_cache_lines((size_t)(k * n * size)) : 0;
  char *own = malloc(PX__CACHE_LINE + for_a + for_b + (size_t)(m * n * size));
  if (!own) return false;
  char *room =
      own + PX__CACHE_LINE - (uintptr_t)own % PX__CACHE_LINE;  // malloc is quicker than what aligns
  matrix a = {(void *)w.a, w.ar, w.ac, dtype}, b = {(void *)w.b, w.br, w.bc, dtype};
  matrix c = {w.c, w.cr, w.cc, dtype}, s = {(void *)w.s, w.sr, w.sc, dtype};
  matrix wa = place_of(&a, m, k, wide, room);
  matrix wb = place_of(&b, k, n, wide, room + for_a);
  matrix wc = place_of(&c, m, n, wide, room + for_a + for_b);
  convert(&wa, &a, m, k, parallel);
  if (there) convert(&wb, &b, k, n, parallel);
  bool add = w.s && w.beta != 0;
  if (add) convert(&wc, &s, m, n, parallel);
  w.a = wa.at, w.ar = wa.row, w.ac = wa.column;
  if (there) w.b = wb.at, w.br = wb.row, w.bc = wb.column;
  w.b_half = half;
  w.c = wc.at, w.cr = w.sr = wc.row, w.cc = w.sc = wc.column;
  w.s = add ? wc.at : NULL;
  bool done =
      by_pieces ? product_in_pieces(&w, &b, wide, parallel) : px__gemm_any(&w, wide, parallel);
  if (done) convert(&c, &wc, m, n, parallel);
  free(own);
  return done;
}

// ---- bfloat16 without tiles: the processor multiplies it at half of float's rate, so that it is
// made float, but for vectors and a few rows, which wait for memory

enum { ROWS_ACROSS = 4, ROWS_ALONG = 16 };  // rows by rows of B that lie along k, and along n

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
  bool tiles = px_cpu_level_used() >= PX_CPU_AMX, few = g->bc == 1 && g->m <= ROWS_ALONG;
  if (multiplies && (tiles || vector || few)) return px__gemm_bf16(g, parallel);
  if (multiplies && g->bc != 1 && g->m <= ROWS_ACROSS) return product_of_rows(g, parallel);
  return product_wide(g, PX_BFLOAT16, PX_FLOAT32, parallel);
}

static bool product_f16(const px__gemm *g, bool parallel) {
  px__gemm w = g->cc != 1 ? flipped(g) : *g;
  w.a_half = w.b_half = true;
  px__gemm whole = whole_of(&w);
  if (w.cc == 1 && choose(&whole, px__tiles_f32()) == BLOCKED) return product_half(w, parallel);
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
    default:  // of a byte: what wraps around in 16 bits does so in 8
      return product_wide(g, dtype, PX_INT16, parallel);
  }
}
