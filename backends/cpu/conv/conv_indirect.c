// SPDX-License-Identifier: Apache-2.0
// Float convolution by AVX-512: rows of weights, read directly, times rows of source pixels
// addressed by an offset table.
//
// A tile is 6 results by 4 vectors of pixels, in registers; nothing is packed. Edge vectors overlap
// the preceding ones, so nothing past the last pixel is read. For a distant source, the rows of the
// next pixels and the result lines are prefetched evenly: a burst would stall.
//
// A result is a chain of FMAs per block of terms, plus the block sums in order. Blocks depend only
// on the number of terms, so results do not depend on the tile.
#include "cpu/conv/conv_indirect.h"
#include "cpu/conv/conv_limits.h"
#include "cpu/vector/simd_avx512.h"
#include "cpu/threads/threads.h"

#if defined(__AVX2__)
enum {
  ROWS = 6,     // results of a tile
  VECTORS = 4,  // vectors of a tile
  LANES = WF,
  PREFETCH_TERMS = 16,   // terms between prefetches
  PANELS_PER_GROUP = 32  // panels processed by each group of rows in turn
};

// Prefetches of a tile, per group of PREFETCH_TERMS terms: one result row if `results`, and `rows`
// rows of the next pixels, from `at` to `end` of their offset table.
typedef struct prefetch {
  const float *next;
  const int64_t *at, *end;
  int64_t rows;
  bool results;
} prefetch;
// Destination of a tile; adds earlier sums (unless NULL) and a bias.
typedef struct destination {
  float *to;
  const float *earlier, *bias;
  int64_t step, earlier_step;
} destination;
// Vectors of pixels and their positions among the results: the full vector at `to`, or only the
// active `lanes`, compressed. `whole`: all lanes are active and the vectors contiguous.
typedef struct panel {
  int64_t from, vectors, to[VECTORS];
  uint32_t lanes[VECTORS];
  bool whole;
} panel;

// Products of `rows` by `vectors` (constants at each call) over terms [0, k). `transposed`: results
// are contiguous in `a` and terms `ar` apart. Two pointers address the rows of `a`, three rows
// each; more would spill.
WIDE_INLINE void tile(const int rows, const int vectors, const bool transposed, int64_t k,
                      const float *a, int64_t ar, const float *b, const int64_t *at, const float *c,
                      int64_t cr, const prefetch *f, const destination *l) {
  wf s[ROWS][VECTORS], y[VECTORS];
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) s[i][v] = wf_set(0);
  const int64_t *next = f->at, *end = at + k;
  const float *upper = a + ROWS / 2 * ar;
  int64_t row = 0;
  while (at < end) {
    for (const int64_t *stop = end - at < PREFETCH_TERMS ? end : at + PREFETCH_TERMS; at < stop;
         at++) {
      const float *from = b + *at;
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) y[v] = wf_load(from + v * LANES);
#pragma GCC unroll 8
      for (int i = 0; i < rows; i++) {
        const float *x = i < ROWS / 2 ? a + i * ar : upper + (i - ROWS / 2) * ar;
        wf each = wf_set(transposed ? a[i] : *x);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) s[i][v] = wf_fma(each, y[v], s[i][v]);
      }
      a += transposed ? ar : 1, upper++;
    }
    if (f->results && row < rows) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) __builtin_prefetch(c + row * cr + v * LANES, 1);
      row++;
    }
    for (int64_t i = 0; i < f->rows && next < f->end; i++, next++)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; v++) __builtin_prefetch(f->next + *next + v * LANES, 0, 2);
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
#define TILE(rows, vectors, name, transposed) \
  static __attribute__((noinline)) WIDE void name##_##rows##_##vectors( \
      int64_t k, const float *a, int64_t ar, const float *b, const int64_t *at, const float *c, \
      int64_t cr, const prefetch *f, const destination *l) { \
    tile(rows, vectors, transposed, k, a, ar, b, at, c, cr, f, l); \
  }
#define TILES(rows, name, transposed) \
  TILE(rows, 1, name, transposed) \
  TILE(rows, 2, name, transposed) \
  TILE(rows, 3, name, transposed) \
  TILE(rows, 4, name, transposed)
#define BOTH(rows) TILES(rows, tile, false) TILES(rows, transposed, true)
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
                           const float *c, int64_t cr, const prefetch *f, const destination *l);
static tile_function *tile_of(int64_t rows, int64_t vectors, bool transposed) {
#define TILES(name, rows) \
  { name##_##rows##_1, name##_##rows##_2, name##_##rows##_3, name##_##rows##_4 }
#define ALL(name) \
  { TILES(name, 1), TILES(name, 2), TILES(name, 3), TILES(name, 4), TILES(name, 5), TILES(name, 6) }
  static tile_function *const all[2][ROWS][VECTORS] = {ALL(tile), ALL(transposed)};
#undef ALL
#undef TILES
  return all[transposed][rows - 1][vectors - 1];
}

// Stores a tile's sums, active lanes only.
static WIDE void store_lanes(const px__conv_product *g, const panel *x, int64_t row, int64_t rows,
                             const wf *sums) {
  for (int64_t i = 0; i < rows; i++, sums += VECTORS) {
    float *c = g->c + (row + i) * g->cr;
    for (int64_t v = 0; v < x->vectors; v++) {
      __m512 active = _mm512_maskz_compress_ps((__mmask16)x->lanes[v], (__m512)sums[v]);
      uint32_t count = (uint32_t)__builtin_popcount(x->lanes[v]);
      _mm512_mask_storeu_ps(c + x->to[v], (__mmask16)((1u << count) - 1), active);
    }
  }
}
// Schedule of a product: blocks of terms; groups of rows, the first `higher` of them with `rows` +
// 1 rows; and rows of the next pixels to prefetch per tile (`each`) and per step (`per_step`).
typedef struct schedule {
  int64_t blocks, depth, groups, rows, higher, each, per_step;
} schedule;
static schedule schedule_of(int64_t m, int64_t k, int64_t blocks, int64_t depth) {
  int64_t groups = px__ceil_div(m, ROWS), turns = px__ceil_div(depth, PREFETCH_TERMS);
  int64_t each = (k + blocks * groups - 1) / (blocks * groups);
  return (schedule){blocks, depth, groups, m / groups, m % groups, each, px__ceil_div(each, turns)};
}
// Prefetches of a block's tile: the result lines if it is the last block, and its share of the rows
// of `next`.
static prefetch prefetch_of(const px__conv_product *g, const schedule *o, int64_t group,
                            int64_t block, const float *next) {
  prefetch f = {next, g->at, g->at, o->per_step, block == o->blocks - 1};
  if (!next) return f;
  int64_t first = (block * o->groups + group) * o->each;
  f.at += px__min_count(first, g->k), f.end += px__min_count(first + o->each, g->k);
  return f;
}
// The destination of a tile with first row `row`: the results, `so_far` between blocks, or `sums`
// if lanes must be selected.
static destination destination_of(const px__conv_product *g, const panel *x, int64_t row,
                                  bool first, bool last, wf *so_far, wf *sums) {
  enum { STEP = VECTORS * LANES };
  destination l = {.to = (float *)(last ? sums : so_far), .step = STEP, .earlier_step = STEP};
  if (!first) l.earlier = (float *)so_far;
  if (last && g->bias) l.bias = g->bias + row;
  if (!last || !x->whole) return l;
  l.to = g->c + row * g->cr + x->to[0], l.step = g->cr;
  if (g->more) l.earlier = l.to, l.earlier_step = g->cr;
  return l;
}
// One tile of a block of terms. Continues from `so_far` and stores back to it, except for the last
// block.
static WIDE void run_tile(const px__conv_product *g, const schedule *o, const panel *x,
                          int64_t group, int64_t block, const float *next, wf *so_far) {
  wf sums[ROWS * VECTORS];
  int64_t row = group * o->rows + px__min_count(group, o->higher);
  int64_t rows = o->rows + (group < o->higher);
  int64_t p = block * o->depth, k = g->k - p < o->depth ? g->k - p : o->depth;
  bool last = block == o->blocks - 1;
  prefetch f = prefetch_of(g, o, group, block, next);
  destination l = destination_of(g, x, row, block == 0, last, so_far, sums);
  const float *a = g->a + (g->transposed ? row + p * g->ar : row * g->ar + p);
  const float *c = g->c + row * g->cr + x->to[0];
  tile_of(rows, x->vectors, g->transposed)(k, a, g->ar, g->b + x->from, g->at + p, c, g->cr, &f,
                                           &l);
  if (last && !x->whole) store_lanes(g, x, row, rows, sums);
}

// ---- panels

// Sets the positions of the panel's pixels among the results; pixels beyond `grid` in each `pitch`
// are inactive.
static void place_vectors(const px__conv_product *g, panel *x) {
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
// Few pixels that do not fill whole vectors: the last vector is a panel of its own.
static int64_t panels_of(const px__conv_product *g) {
  int64_t n = px__ceil_div(vectors_of(g), VECTORS);
  return n == 1 && g->n > LANES && g->n % LANES ? 2 : n;
}
static panel panel_of(const px__conv_product *g, int64_t i) {
  int64_t vectors = vectors_of(g), panels = panels_of(g);
  int64_t first = vectors * i / panels, last = vectors * (i + 1) / panels;
  if (vectors <= VECTORS && panels == 2)
    first = i ? vectors - 1 : 0, last = i ? vectors : vectors - 1;
  panel x = {.from = first * LANES, .vectors = last - first};
  if (last * LANES > g->n) x.from = g->n - x.vectors * LANES;
  place_vectors(g, &x);
  return x;
}

// Near source: each group of rows processes PANELS_PER_GROUP panels.
static void run_near(const px__conv_product *g, const schedule *o) {
  int64_t panels = panels_of(g), work = 0;
  for (int64_t first = 0; first < panels; first += PANELS_PER_GROUP) {
    panel group[PANELS_PER_GROUP];
    wf sums[ROWS * VECTORS];
    int64_t count = panels - first < PANELS_PER_GROUP ? panels - first : PANELS_PER_GROUP;
    for (int64_t j = 0; j < count; j++) group[j] = panel_of(g, first + j);
    for (int64_t i = 0; i < o->groups; i++)
      for (int64_t j = 0; j < count && !px__work_stopped(&work, ROWS * g->k); j++)
        for (int64_t b = 0; b < o->blocks; b++) run_tile(g, o, &group[j], i, b, NULL, sums);
  }
}
// Distant source: some groups from `first` on, one L1-sized block of terms after the other.
static void run_groups(const px__conv_product *g, const schedule *o, const panel *x, int64_t first,
                       const float *next, int64_t *work) {
  wf *sums = (wf *)(void *)g->scratch;
  int64_t end = px__min_count(first + PX__CONV_KEPT_GROUPS, o->groups);
  for (int64_t b = 0; b < o->blocks; b++)
    for (int64_t i = first; i < end && !px__work_stopped(work, ROWS * o->depth); i++)
      run_tile(g, o, x, i, b, next, sums + (i - first) * ROWS * VECTORS);
}
// Distant source: each panel is read once.
static void run_far(const px__conv_product *g, const schedule *o) {
  int64_t panels = panels_of(g), work = 0;
  for (int64_t j = 0; j < panels; j++) {
    panel x = panel_of(g, j);
    const float *next = j + 1 < panels ? g->b + panel_of(g, j + 1).from : g->after;
    for (int64_t i = 0; i < o->groups; i += PX__CONV_KEPT_GROUPS)
      run_groups(g, o, &x, i, next, &work);
  }
}
bool px__conv_has_tiles(void) { return px_cpu_level_used() >= PX_CPU_AVX512; }
// Many terms and few sums: each block of terms is read once, and its sums are added.
void px__conv_sums_run(const px__conv_product *g, bool more) {
  px__conv_product part = *g;
  schedule o = schedule_of(g->m, TILED_FAR_TERMS, 1, TILED_FAR_TERMS);
  int64_t panels = panels_of(g), work = 0;
  for (int64_t p = 0; p < g->k; p += part.k) {
    part.k = g->k - p < TILED_FAR_TERMS ? g->k - p : TILED_FAR_TERMS;
    part.a = g->a + p * g->ar, part.at = g->at + p, o.depth = part.k;
    part.more = more || p > 0;
    for (int64_t j = 0; j < panels; j++) {
      panel x = panel_of(&part, j);
      const float *next =
          p + 2 * part.k <= g->k ? g->b + g->at[p + part.k] - g->at[p] + x.from : NULL;
      for (int64_t i = 0; i < o.groups && !px__work_stopped(&work, ROWS * part.k); i++)
        run_tile(&part, &o, &x, i, 0, next, NULL);
    }
  }
}
void px__conv_product_run(const px__conv_product *g) {
  int64_t most = g->scratch ? TILED_FAR_TERMS : TILED_NEAR_TERMS, blocks = px__ceil_div(g->k, most);
  schedule o = schedule_of(g->m, g->k, blocks, px__ceil_div(g->k, blocks));
  (g->scratch ? run_far : run_near)(g, &o);
}
#else
bool px__conv_has_tiles(void) { return false; }
void px__conv_sums_run(const px__conv_product *g, bool more) { (void)g, (void)more; }
void px__conv_product_run(const px__conv_product *g) { (void)g; }
#endif
