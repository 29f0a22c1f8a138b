// SPDX-License-Identifier: Apache-2.0
// Results of a float convolution by AVX-512: rows of weights, read where they lie, times rows of
// what positions see, which a table names.
//
// A tile is 6 results by 4 vectors of positions, in registers: nothing is packed. Vectors at the
// edge overlap those before them, so that nothing behind the last position is read. Of a source
// that is far away the rows of the next positions are fetched meanwhile, evenly, and so are the
// lines of the results: a burst would wait for memory.
//
// A result is a chain of FMAs over blocks of terms, which follow from their number, and the sums
// of the blocks in order, whatever tile it lies in.
#include "cpu/conv_tiles.h"

#include "cpu/simd_wide.h"
#include "cpu/threads.h"

#if defined(__AVX2__)
// Rows and vectors of a tile, lanes, terms between two of which something is fetched, and panels
// that each group of rows meets in turn.
enum { ROWS = 6, ACROSS = 4, LANES = WF, STEPS = 16, SOME = 32 };
// Terms of a block at most: of a source that is far away 32 KB of a panel, for the first cache; of
// one that is near places share the lines of the cache.
enum { DEPTH = 512, FAR_DEPTH = 128 };

// What is fetched within a tile, in each of its groups of STEPS terms: a row of the results, if
// `results`, and rows of the next positions, from `at` to `end` of their table.
typedef struct ahead {
  const float *next;
  const int64_t *at, *end;
  int64_t rows;
  bool results;
} ahead;
// Where a tile's rows go, and what is added to them: earlier sums, unless NULL, and a bias.
typedef struct landing {
  float *to;
  const float *earlier, *bias;
  int64_t step, earlier_step;
} landing;
// Vectors of positions, and where they lie among the results: all of a vector from `to` on, or
// those of `lanes`, which then follow one another. `whole`: all of all vectors, one behind the
// other.
typedef struct panel {
  int64_t from, vectors, to[ACROSS];
  uint32_t lanes[ACROSS];
  bool whole;
} panel;

// Sums of products of `rows` by `vectors`, constants at each call, over terms [0, k); `turned`:
// results follow one another in `a`, and terms are `ar` apart. Rows of `a` have two pointers, for
// three each, as more do not stay in registers.
WIDE_INLINE void tile(const int rows, const int vectors, const bool turned, int64_t k,
                      const float *a, int64_t ar, const float *b, const int64_t *at, const float *c,
                      int64_t cr, const ahead *f, const landing *l) {
  wf s[ROWS][ACROSS], y[ACROSS];
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) s[i][v] = wf_set(0);
  const int64_t *next = f->at, *end = at + k;
  const float *upper = a + ROWS / 2 * ar;
  int64_t row = 0;
  while (at < end) {
    for (const int64_t *stop = end - at < STEPS ? end : at + STEPS; at < stop; at++) {
      const float *from = b + *at;
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) y[v] = wf_load(from + v * LANES);
#pragma GCC unroll 8
      for (int i = 0; i < rows; i++) {
        const float *x = i < ROWS / 2 ? a + i * ar : upper + (i - ROWS / 2) * ar;
        wf each = wf_set(turned ? a[i] : *x);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) s[i][v] = wf_fma(each, y[v], s[i][v]);
      }
      a += turned ? ar : 1, upper++;
    }
    if (f->results && row < rows) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) __builtin_prefetch(c + row * cr + v * LANES, 1);
      row++;
    }
    for (int64_t i = 0; i < f->rows && next < f->end; i++, next++)
#pragma GCC unroll 4
      for (int v = 0; v < ACROSS; v++) __builtin_prefetch(f->next + *next + v * LANES, 0, 2);
  }
  float *to = l->to;
  const float *earlier = l->earlier;
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++, to += l->step) {
    wf bias = wf_set(l->bias ? l->bias[i] : 0);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) s[i][v] += bias;
#pragma GCC unroll 4
    for (int v = 0; earlier && v < vectors; v++) s[i][v] += wf_load(earlier + v * LANES);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) wf_store(to + v * LANES, s[i][v]);
    if (earlier) earlier += l->earlier_step;
  }
}
#define TILE(rows, vectors, name, turned) \
  static __attribute__((noinline)) WIDE void name##_##rows##_##vectors( \
      int64_t k, const float *a, int64_t ar, const float *b, const int64_t *at, const float *c, \
      int64_t cr, const ahead *f, const landing *l) { \
    tile(rows, vectors, turned, k, a, ar, b, at, c, cr, f, l); \
  }
#define TILES(rows, name, turned) \
  TILE(rows, 1, name, turned) \
  TILE(rows, 2, name, turned) \
  TILE(rows, 3, name, turned) \
  TILE(rows, 4, name, turned)
#define BOTH(rows) TILES(rows, tile, false) TILES(rows, turned, true)
BOTH(1)
BOTH(2)
BOTH(3)
BOTH(4)
BOTH(5)
BOTH(6)
#undef BOTH
#undef TILES
#undef TILE
typedef void tile_function(int64_t k, const float *a, int64_t ar, const float *b, const int64_t *at,
                           const float *c, int64_t cr, const ahead *f, const landing *l);
static tile_function *tile_of(int64_t rows, int64_t vectors, bool turned) {
#define TILES(name, rows) \
  { name##_##rows##_1, name##_##rows##_2, name##_##rows##_3, name##_##rows##_4 }
#define ALL(name) \
  { TILES(name, 1), TILES(name, 2), TILES(name, 3), TILES(name, 4), TILES(name, 5), TILES(name, 6) }
  static tile_function *const all[2][ROWS][ACROSS] = {ALL(tile), ALL(turned)};
#undef ALL
#undef TILES
  return all[turned][rows - 1][vectors - 1];
}

// Writes a tile's sums where some lanes are for nobody.
static WIDE void put(const px__conv_product *g, const panel *x, int64_t row, int64_t rows,
                     const wf *sums) {
  for (int64_t i = 0; i < rows; i++, sums += ACROSS) {
    float *c = g->c + (row + i) * g->cr;
    for (int64_t v = 0; v < x->vectors; v++) {
      __m512 some = _mm512_maskz_compress_ps((__mmask16)x->lanes[v], (__m512)sums[v]);
      uint32_t count = (uint32_t)__builtin_popcount(x->lanes[v]);
      _mm512_mask_storeu_ps(c + x->to[v], (__mmask16)((1u << count) - 1), some);
    }
  }
}
// How a product goes: its blocks of terms, and groups of rows, the first `higher` of which have
// `rows` + 1 of them; and how many rows of the next positions a tile fetches, and in each turn.
typedef struct course {
  int64_t blocks, depth, groups, rows, higher, each, some;
} course;
static course course_of(int64_t m, int64_t k, int64_t blocks, int64_t depth) {
  int64_t groups = px__ceil_div(m, ROWS), turns = px__ceil_div(depth, STEPS);
  int64_t each = (k + blocks * groups - 1) / (blocks * groups);
  return (course){blocks, depth, groups, m / groups, m % groups, each, px__ceil_div(each, turns)};
}
// What a block's tile fetches: the lines of the results, for the last one, and its part of the rows
// of `next`.
static ahead ahead_of(const px__conv_product *g, const course *o, int64_t group, int64_t block,
                      const float *next) {
  ahead f = {next, g->at, g->at, o->some, block == o->blocks - 1};
  if (!next) return f;
  int64_t first = (block * o->groups + group) * o->each;
  f.at += px__min_count(first, g->k), f.end += px__min_count(first + o->each, g->k);
  return f;
}
// Where a tile goes whose first row is `row`, and so_far or `sums` if it does not go to the
// results.
static landing landing_of(const px__conv_product *g, const panel *x, int64_t row, bool first,
                          bool last, wf *so_far, wf *sums) {
  enum { STEP = ACROSS * LANES };
  landing l = {.to = (float *)(last ? sums : so_far), .step = STEP, .earlier_step = STEP};
  if (!first) l.earlier = (float *)so_far;
  if (last && g->bias) l.bias = g->bias + row;
  if (!last || !x->whole) return l;
  l.to = g->c + row * g->cr + x->to[0], l.step = g->cr;
  if (g->more) l.earlier = l.to, l.earlier_step = g->cr;
  return l;
}
// One tile of a block of terms, which goes on from `so_far`, and leaves it there but for the last.
static WIDE void one_tile(const px__conv_product *g, const course *o, const panel *x, int64_t group,
                          int64_t block, const float *next, wf *so_far) {
  wf sums[ROWS * ACROSS];
  int64_t row = group * o->rows + px__min_count(group, o->higher);
  int64_t rows = o->rows + (group < o->higher);
  int64_t p = block * o->depth, k = g->k - p < o->depth ? g->k - p : o->depth;
  bool last = block == o->blocks - 1;
  ahead f = ahead_of(g, o, group, block, next);
  landing l = landing_of(g, x, row, block == 0, last, so_far, sums);
  const float *a = g->a + (g->turned ? row + p * g->ar : row * g->ar + p);
  const float *c = g->c + row * g->cr + x->to[0];
  tile_of(rows, x->vectors, g->turned)(k, a, g->ar, g->b + x->from, g->at + p, c, g->cr, &f, &l);
  if (last && !x->whole) put(g, x, row, rows, sums);
}

// ---- panels

// Where the positions from x->from on lie among the results, of which those beyond `grid` in each
// `pitch` are none.
static void place(const px__conv_product *g, panel *x) {
  x->whole = true;
  for (int64_t v = 0; v < x->vectors; v++) {
    int64_t from = x->from + v * LANES, at = from % g->pitch;
    x->to[v] = from / g->pitch * g->grid + (at < g->grid ? at : g->grid);
    x->lanes[v] = 0;
    for (int64_t i = 0; i < LANES; i++, at = at + 1 < g->pitch ? at + 1 : 0)
      x->lanes[v] |= (uint32_t)(at < g->grid) << i;
    x->whole &= x->lanes[v] == 0xffff && x->to[v] == x->to[0] + v * LANES;
  }
}
static int64_t vectors_of(const px__conv_product *g) { return px__ceil_div(g->n, LANES); }
// Few positions that are no whole vectors have a panel for the last one.
static int64_t panels_of(const px__conv_product *g) {
  int64_t n = px__ceil_div(vectors_of(g), ACROSS);
  return n == 1 && g->n > LANES && g->n % LANES ? 2 : n;
}
static panel panel_of(const px__conv_product *g, int64_t i) {
  int64_t vectors = vectors_of(g), panels = panels_of(g);
  int64_t first = vectors * i / panels, last = vectors * (i + 1) / panels;
  if (vectors <= ACROSS && panels == 2)
    first = i ? vectors - 1 : 0, last = i ? vectors : vectors - 1;
  panel x = {.from = first * LANES, .vectors = last - first};
  if (last * LANES > g->n) x.from = g->n - x.vectors * LANES;
  place(g, &x);
  return x;
}

// Of a source that is near each group of rows meets some panels.
static void run_near(const px__conv_product *g, const course *o) {
  int64_t panels = panels_of(g), work = 0;
  for (int64_t first = 0; first < panels; first += SOME) {
    panel some[SOME];
    wf sums[ROWS * ACROSS];
    int64_t count = panels - first < SOME ? panels - first : SOME;
    for (int64_t j = 0; j < count; j++) some[j] = panel_of(g, first + j);
    for (int64_t i = 0; i < o->groups; i++)
      for (int64_t j = 0; j < count && !px__work_stopped(&work, ROWS * g->k); j++)
        for (int64_t b = 0; b < o->blocks; b++) one_tile(g, o, &some[j], i, b, NULL, sums);
  }
}
// Some groups, from `first` on, a block of terms that fits into the first cache after the other.
static void run_some(const px__conv_product *g, const course *o, const panel *x, int64_t first,
                     const float *next, int64_t *work) {
  wf *sums = (wf *)(void *)g->room;
  int64_t end = px__min_count(first + PX__CONV_NEAR, o->groups);
  for (int64_t b = 0; b < o->blocks; b++)
    for (int64_t i = first; i < end && !px__work_stopped(work, ROWS * o->depth); i++)
      one_tile(g, o, x, i, b, next, sums + (i - first) * ROWS * ACROSS);
}
// Of one that is far away each panel is read once.
static void run_far(const px__conv_product *g, const course *o) {
  int64_t panels = panels_of(g), work = 0;
  for (int64_t j = 0; j < panels; j++) {
    panel x = panel_of(g, j);
    const float *next = j + 1 < panels ? g->b + panel_of(g, j + 1).from : g->after;
    for (int64_t i = 0; i < o->groups; i += PX__CONV_NEAR) run_some(g, o, &x, i, next, &work);
  }
}
bool px__conv_has_tiles(void) { return px_cpu_level_used() >= PX_CPU_AVX512; }
// Of many terms and few sums each block of terms is read once, and what it gives is added.
void px__conv_sums_run(const px__conv_product *g, bool more) {
  px__conv_product part = *g;
  course o = course_of(g->m, FAR_DEPTH, 1, FAR_DEPTH);
  int64_t panels = panels_of(g), work = 0;
  for (int64_t p = 0; p < g->k; p += part.k) {
    part.k = g->k - p < FAR_DEPTH ? g->k - p : FAR_DEPTH;
    part.a = g->a + p * g->ar, part.at = g->at + p, o.depth = part.k;
    part.more = more || p > 0;
    for (int64_t j = 0; j < panels; j++) {
      panel x = panel_of(&part, j);
      const float *next =
          p + 2 * part.k <= g->k ? g->b + g->at[p + part.k] - g->at[p] + x.from : NULL;
      for (int64_t i = 0; i < o.groups && !px__work_stopped(&work, ROWS * part.k); i++)
        one_tile(&part, &o, &x, i, 0, next, NULL);
    }
  }
}
void px__conv_product_run(const px__conv_product *g) {
  int64_t most = g->room ? FAR_DEPTH : DEPTH, blocks = px__ceil_div(g->k, most);
  course o = course_of(g->m, g->k, blocks, px__ceil_div(g->k, blocks));
  (g->room ? run_far : run_near)(g, &o);
}
#else
bool px__conv_has_tiles(void) { return false; }
void px__conv_sums_run(const px__conv_product *g, bool more) { (void)g, (void)more; }
void px__conv_product_run(const px__conv_product *g) { (void)g; }
#endif
