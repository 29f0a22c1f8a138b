// SPDX-License-Identifier: Apache-2.0
// The blocked product for one element type and one vector width; included once per instance by
// gemm_tiles.c and gemm_integer.c.
//
// Parameters: T: element; V: its vector; L: lanes of V; R: rows of a tile (6 or 14); NAME(x):
// suffixed name; TARGET: function attributes for V; NUMBER(x): a double converted to T.
//
// A tile of C is R rows by two vectors, held in registers. Small products read A and B directly
// (`direct`). Large ones pack panels of B (KC x 2L) and of A (KC x R), so that a tile reads memory
// in order. Indirect rows of B are read without packing. Every element of C is a chain of FMAs over
// k, in blocks that depend only on k and on the method chosen for the whole product, not on the
// element's position in a tile.

// k = 0: C = beta * S.
static TARGET void NAME(scale)(const px__gemm *g) {
  const T *s = g->beta != 0 ? g->s : NULL, beta = NUMBER(g->beta);
  T *c = g->c;
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->n; j++)
      c[i * g->cr + j * g->cc] = s ? (T)(s[i * g->sr + j * g->sc] * beta) : 0;
}

// Loads the first n lanes, zero-filled; and stores them, if the vectors support it (MASKED_STORES).
static inline __attribute__((always_inline)) TARGET V NAME(load_first)(const T *from, int64_t n) {
#ifdef LOAD_FIRST
  return LOAD_FIRST(from, n);
#else
  T buffer[L] = {0};
  memcpy(buffer, from, (size_t)n * sizeof(T));
  return LOAD(buffer);
#endif
}
#ifdef LOAD_FIRST
enum { NAME(MASKED_STORES) = 1 };
static inline __attribute__((always_inline)) TARGET void NAME(store_first)(T *to, V v, int64_t n) {
  STORE_FIRST(to, v, n);
}
#else
enum { NAME(MASKED_STORES) = 0 };
static inline void NAME(store_first)(T *to, V v, int64_t n) {}
#endif

// acc = A (rows x k) * B (k x vectors L). `rows` and `vectors` are constants at each call. A has
// strides `ar` and `ac`. Rows of B are contiguous, at stride `br` or at the offsets `at`.
// fetch: prefetch `ahead` elements after each row of B, for another tile: hardware prefetchers do
//   not follow distant rows, and L1 does not hold a packed panel.
// part: the last vector has only `left` elements.
// next, unless NULL: rows to prefetch into L2, two vectors each, at distance `step`; one per
// 2^shift
//   columns of A. More at once would queue up, and L1 misses would wait for them.
static inline __attribute__((always_inline)) TARGET void NAME(tile)(
    const int rows, const int vectors, int64_t k, const T *a, int64_t ar, int64_t ac, const T *b,
    int64_t br, const int64_t *at, const bool fetch, int64_t ahead, const T *next, int64_t step,
    int shift, const bool part, int left, V *acc) {
  V c[R][MAX_VECTORS];
  for (int i = 0; i < rows; i++)
    for (int v = 0; v < vectors; v++) c[i][v] = SET(0);
  for (int64_t p = 0; p < k; p++, a += ac, b += br) {
    const T *row = at ? b + at[p] : b;
    V y[2];
    for (int v = 0; vectors <= 2 && v < vectors; v++)
      y[v] = part && v == vectors - 1 ? NAME(load_first)(row + v * L, left) : LOAD(row + v * L);
    if (fetch) __builtin_prefetch(row + ahead);
    if (fetch && vectors > 1 && L * sizeof(T) >= 64) __builtin_prefetch(row + ahead + L);
    if (next) __builtin_prefetch(next + (p >> shift) * step, 0, 2);
    if (next) __builtin_prefetch(next + (p >> shift) * step + L, 0, 2);
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
      V x = SET(a[i * ar]);
#pragma GCC unroll 16
      for (int v = 0; v < vectors; v++)
        c[i][v] = FMA(x, vectors <= 2 ? y[v] : LOAD(row + v * L), c[i][v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
    for (int v = 0; v < vectors; v++) acc[i * vectors + v] = c[i][v];
}

// The target of a tile: C = alpha * acc + beta * S; S may be NULL. `unscaled`: the sums are stored
// unchanged, or added to C (S is C).
typedef struct NAME(target) {
  T *c;
  const T *s, *next;  // next, step, shift: see `tile`; packed tiles only
  int64_t cr, cc, sr, sc, ahead, step;
  T alpha, beta;
  int shift;
  bool unscaled;
} NAME(target);

// The first block of k adds S; later blocks add to C.
static inline TARGET NAME(target)
    NAME(target_of)(const px__gemm *g, int64_t i, int64_t j, bool first) {
  NAME(target)
  t = {(T *)g->c + i * g->cr + j * g->cc,
       NULL,
       NULL,
       g->cr,
       g->cc,
       g->cr,
       g->cc,
       0,
       0,
       NUMBER(g->alpha),
       1,
       0,
       g->cc == 1 && g->alpha == 1};
  if (!first) {
    t.s = t.c;
  } else if (g->s && g->beta != 0) {
    t.s = (const T *)g->s + i * g->sr + j * g->sc;
    t.sr = g->sr, t.sc = g->sc, t.beta = NUMBER(g->beta);
    t.unscaled &= t.s == t.c && t.sr == t.cr && t.sc == 1 && g->beta == 1;
  }
  return t;
}

static inline TARGET bool NAME(is_contiguous)(const NAME(target) * t) {
  return t->cc == 1 && (!t->s || t->sc == 1 || t->sc == 0);
}

// Stores `whole` full vectors per row, and `left` elements of one more.
static inline __attribute__((always_inline)) TARGET void NAME(store_vectors)(
    const NAME(target) * t, int rows, const int whole, int left, const V *row, int width) {
  T *c = t->c;
  const T *s = t->s;
  for (int i = 0; i < rows; i++, row += width, c += t->cr) {
    V same = SET(s && !t->sc ? s[i * t->sr] : 0);
    for (int v = 0; v < whole; v++) {
      V r = row[v] * t->alpha;
      if (s) r += (t->sc ? LOAD(s + i * t->sr + v * L) : same) * t->beta;
      STORE(c + v * L, r);
    }
    if (!left) continue;
    V r = row[whole] * t->alpha;
    if (s) r += (t->sc ? NAME(load_first)(s + i * t->sr + whole * L, left) : same) * t->beta;
    NAME(store_first)(c + whole * L, r, left);
  }
}
// Stores the first `cols` elements of each row of a tile with rows `width` vectors apart: full
// vectors, then single elements if partial vectors cannot be stored. Not inlined: it would be most
// of the code of every tile.
static __attribute__((noinline)) TARGET void NAME(store_tile)(const NAME(target) * t, int rows,
                                                              int cols, const V *row, int width) {
  bool is_contiguous = NAME(is_contiguous)(t);
  int whole = is_contiguous ? cols / L : 0,
      left = is_contiguous && NAME(MASKED_STORES) ? cols % L : 0;
  int64_t first = whole * L + left;
  if (whole == 2 && !left)
    NAME(store_vectors)(t, rows, 2, 0, row, width);
  else
    NAME(store_vectors)(t, rows, whole, left, row, width);
  if (first == cols) return;
  T buffer[L];
  for (int i = 0; i < rows; i++, row += width) {
    T *c = t->c + i * t->cr + first * t->cc;
    const T *s = t->s ? t->s + i * t->sr + first * t->sc : NULL;
    const V *rest = row + whole;
    for (int64_t over = cols - first; over > 0; over -= L, rest++) {
      STORE(buffer, *rest * t->alpha);
      for (int64_t j = 0; j < over && j < L; j++, c += t->cc) {
        *c = s ? buffer[j] + *s * t->beta : buffer[j];
        if (s) s += t->sc;
      }
    }
  }
}

// Stores unscaled sums directly from registers. `part`: see `tile`; `more`: add to C.
static inline __attribute__((always_inline)) TARGET void NAME(store_unscaled_rows)(
    T *c, const int64_t cr, const int rows, const int vectors, const bool part, const int left,
    const bool more, const V *acc) {
  const int whole = part ? vectors - 1 : vectors;
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++, c += cr, acc += vectors) {
#pragma GCC unroll 2
    for (int v = 0; v < whole; v++) STORE(c + v * L, more ? acc[v] + LOAD(c + v * L) : acc[v]);
    if (!part) continue;
    V last = acc[whole];
    if (more) last += NAME(load_first)(c + whole * L, left);
    NAME(store_first)(c + whole * L, last, left);
  }
}
static inline __attribute__((always_inline)) TARGET void NAME(store_unscaled)(
    const NAME(target) * t, const int rows, const int vectors, const bool part, int left,
    const V *acc) {
  if (t->s)
    NAME(store_unscaled_rows)(t->c, t->cr, rows, vectors, part, left, true, acc);
  else
    NAME(store_unscaled_rows)(t->c, t->cr, rows, vectors, part, left, false, acc);
}

// One tile; `rows` and `vectors` are constants at each call. `packed`: reads packed panels, with
// whole vectors.
static inline __attribute__((always_inline)) TARGET void NAME(tile_rows)(
    const int rows, const int vectors, int cols, int64_t k, const T *a, int64_t ar, int64_t ac,
    const T *b, int64_t br, const bool fetch, const bool packed, const NAME(target) * t) {
  V acc[2 * R];
  const bool part = !packed && NAME(MASKED_STORES);
  int left = cols - (vectors - 1) * L;
  for (int i = 0; i < rows && !(packed && t->next == t->c); i++) {
    __builtin_prefetch(t->c + i * t->cr, 1);
    if (vectors > 1) __builtin_prefetch(t->c + i * t->cr + L, 1);
  }
  NAME(tile)
  (rows, vectors, k, a, ar, ac, b, br, NULL, fetch, t->ahead, packed ? t->next : NULL, t->step,
   t->shift, part, left, acc);
  if (t->unscaled && (part || cols == vectors * L)) {
    NAME(store_unscaled)(t, rows, vectors, part, left, acc);
    return;
  }
  V buffer[2 * R];
#pragma GCC unroll 32
  for (int i = 0; i < rows * vectors; i++) buffer[i] = acc[i];
  NAME(store_tile)(t, rows, cols, buffer, vectors);
}

enum { NAME(FETCH_AHEAD) = R > 8 ? 16 * 2 * L : 0 };  // prefetch distance in a packed B, elements

// A full tile of packed panels.
static __attribute__((noinline)) TARGET void NAME(tile_packed)(int cols, int64_t k, const T *a,
                                                               const T *b, const NAME(target) * t) {
  NAME(tile_rows)(R, 2, cols, k, a, 1, R, b, 2 * L, NAME(FETCH_AHEAD) != 0, true, t);
}

// Tiles with any strides: any number of rows, one or two vectors.
#define TILE(rows, vectors) \
  static __attribute__((noinline)) TARGET void NAME(tile_##rows##_##vectors)( \
      int cols, int64_t k, const T *a, int64_t ar, int64_t ac, const T *b, int64_t br, \
      const NAME(target) * t) { \
    NAME(tile_rows)(rows, vectors, cols, k, a, ar, ac, b, br, true, false, t); \
  }
#define TILES(rows) TILE(rows, 1) TILE(rows, 2)
TILES(1)
TILES(2)
TILES(3)
TILES(4)
TILES(5)
TILES(6)
#if R > 6
TILES(7)
TILES(8)
TILES(9)
TILES(10)
TILES(11)
TILES(12)
TILES(13)
TILES(14)
#endif
#undef TILES
#undef TILE
static TARGET void NAME(tile_direct)(int rows, int cols, int64_t k, const T *a, int64_t ar,
                                     int64_t ac, const T *b, int64_t br, const NAME(target) * t) {
#define TILES(rows) \
  { NAME(tile_##rows##_1), NAME(tile_##rows##_2) }
  static void (*const run_by_rows[][2])(int, int64_t, const T *, int64_t, int64_t, const T *,
                                        int64_t, const NAME(target) *) = {
    TILES(1),
    TILES(2),
    TILES(3),
    TILES(4),
    TILES(5),
    TILES(6),
#if R > 6
    TILES(7),
    TILES(8),
    TILES(9),
    TILES(10),
    TILES(11),
    TILES(12),
    TILES(13),
    TILES(14),
#endif
  };
#undef TILES
  run_by_rows[rows - 1][cols > L](cols, k, a, ar, ac, b, br, t);
}

// Height of the next tile, at most `max`. If the last tile would have fewer than `fewest` rows,
// the last two split their rows evenly; otherwise reading B would take longer than multiplying.
static TARGET int NAME(tile_height)(int64_t left, int max, int fewest) {
  if (left > max && left < max + fewest) return (int)(left + 1) / 2;
  return left < max ? (int)left : max;
}

#include "cpu/gemm/gemm_pack.h"

// Blocks of k have equal lengths, at most KC: a panel of B and one of A must fit into L1, 48 KB on
// processors with 64-byte vectors, else 32 KB. For deep products (gemm.h) blocks are twice as long,
// which halves the traffic of C. Tall tiles consume B slowly enough for L2, given prefetching.
enum { NAME(L1_BYTES) = L * sizeof(T) == 64 ? 46 * 1024 : 30 * 1024 };
enum { NAME(KC) = NAME(L1_BYTES) / ((2 * L + NAME(INDIRECT_ROWS)) * sizeof(T)) };
enum { NAME(MC) = 198 / R * R, NAME(NC) = 64 * 2 * L };
// Rows of a panel of a direct product, limited by its buffer.
enum {
  NAME(DEPTH) = 1024 <= DIRECT_PANEL_BYTES / (2 * L) ? 1024 / sizeof(T)
                                                     : DIRECT_PANEL_BYTES / (2 * L * sizeof(T))
};

// Rows [p, p + k) of B, for small operands or a small A: panel by panel. A panel is packed into
// `buffer` only if its columns are not contiguous.
static TARGET void NAME(direct_rows)(const px__gemm *g, int64_t p, int64_t k, T *buffer) {
  const T *a = (const T *)g->a + p * g->ac, *b = (const T *)g->b + p * g->br;
  for (int64_t j = 0; j < g->n; j += 2 * L) {
    int cols = g->n - j < 2 * L ? (int)(g->n - j) : 2 * L;
    const T *panel = b + j * g->bc;
    // The last tile prefetches the next panel, or after the last panel the start of later rows.
    int64_t br = g->br, ahead = j + 2 * L < g->n ? 2 * L : p + k < g->k ? k * br - j : 0;
    if (g->bc != 1 || (cols % L && !NAME(MASKED_STORES)) || g->b_f16) {
      NAME(pack_b)(g, p, k, j, cols, buffer);
      panel = buffer, br = 2 * L;
    }
    for (int64_t i = 0, rows; i < g->m; i += rows) {
      rows = NAME(tile_height)(g->m - i, R, NAME(INDIRECT_ROWS));
      NAME(target) t = NAME(target_of)(g, i, j, p == 0);
      if (panel != buffer && i + rows >= g->m) t.ahead = ahead;
      NAME(tile_direct)((int)rows, cols, k, a + i * g->ar, g->ar, g->ac, panel, br, &t);
    }
  }
}
// If k exceeds a panel, the product is thin and dominated by reading B. Blocks of a few rows read B
// along its rows, in the hardware prefetchers' pattern.
static TARGET void NAME(direct)(const px__gemm *g, T *buffer) {
  int64_t max = g->k > NAME(DEPTH) ? THIN_DEPTH : NAME(DEPTH), work = 0;
  for (int64_t p = 0; p < g->k && !px__work_stopped(&work, g->m * g->n); p += max)
    NAME(direct_rows)(g, p, g->k - p < max ? g->k - p : max, buffer);
}

#ifndef INTEGERS
#include "cpu/gemm/gemm_gather.h"
#endif
#include "cpu/gemm/gemm_dots.h"

// One block: mc x nc of C at (i, j), summed over kc of k from p. A is packed. A panel of B is
// packed right before its tiles by the first block that uses it, and kept if other blocks follow.
typedef struct NAME(work_block) {
  const px__gemm *g;
  T *pa, *pb;
  int64_t i, j, p, mc, nc, kc;
  // With a column table of A: the tile at each row index, and the row distance within its halves.
  const px__row_tile *tiles;
  int64_t step;
} NAME(work_block);

// True if indirect rows of A are read without packing: for few columns, for a B packed in advance,
// and if packing would copy elements one by one because the rows are not adjacent.
static TARGET bool NAME(reads_a_indirectly)(const px__gemm *g) {
  bool adjacent = g->m >= R && g->a_rows && g->a_rows[R - 1] - g->a_rows[0] == R - 1;
  return g->a_columns && (g->packed || g->n <= 4 * L || !adjacent);
}
// Number of rows of the block's tile at `row`.
static TARGET int NAME(rows_from)(const NAME(work_block) * x, int64_t row) {
#ifndef INTEGERS
  if (NAME(reads_a_indirectly)(x->g)) return x->tiles[row].rows;
#endif
  bool indirect = x->g->b_rows != NULL;
  return NAME(tile_height)(x->mc - row, indirect ? NAME(INDIRECT_ROWS) : R,
                           indirect ? 0 : NAME(INDIRECT_ROWS));
}
#ifndef INTEGERS
static TARGET const T *NAME(row_of)(const NAME(work_block) * x, int64_t row) {
  return (const T *)x->g->a + NAME(row_at)(x->g->a_rows, x->g->ar, x->i + row);
}
// A tile of indirect rows of A.
static TARGET void NAME(indirect_tile)(const NAME(work_block) * x, const px__row_tile *tile,
                                       int64_t col, int cols, const T *panel) {
  const int64_t *at = x->g->a_columns + x->p;
  NAME(target) t[2] = {NAME(target_of)(x->g, x->i + tile->first[0], x->j + col, x->p == 0)};
  if (tile->half) {
    const T *from[] = {NAME(row_of)(x, tile->first[0]), NAME(row_of)(x, tile->first[0])};
    T unused[NAME(HALF_ROWS) * 2 * L];
    t[1] = (NAME(target)){.c = unused, .cr = 2 * L, .cc = 1, .alpha = 1, .beta = 1};
    if (tile->first[1] >= 0) {
      from[1] = NAME(row_of)(x, tile->first[1]);
      t[1] = NAME(target_of)(x->g, x->i + tile->first[1], x->j + col, x->p == 0);
    }
    int64_t next = tile->first[0] + tile->rows < x->mc ? tile->first[0] + tile->rows : 0;
    const T *ahead = NAME(row_of)(x, next);
    NAME(halves_of)(tile->half, cols)(cols, x->kc, from, x->step, at, ahead, panel, t);
    return;
  }
  const T *from[NAME(INDIRECT_ROWS)];
  for (int i = 0; i < NAME(INDIRECT_ROWS); i++)
    from[i] = NAME(row_of)(x, tile->first[0] + (i < tile->rows ? i : tile->rows - 1));
  NAME(store_indirect_a)(tile->rows, cols, x->kc, from, at, panel, t);
}
#endif
static TARGET T *NAME(panel_of)(const NAME(work_block) * x, int64_t row) {
  return x->pa + (x->g->b_rows ? row : px__ceil_div(row, R) * R) * x->kc;
}
static TARGET void NAME(pack_strip)(const NAME(work_block) * x, int64_t row, int rows) {
  T *to = NAME(panel_of)(x, row);
#ifndef INTEGERS
  if (x->g->b_rows && NAME(INDIRECT_ROWS) < R) {
    NAME(pack_indirect)(x->g, x->i + row, rows, x->p, x->kc, to);
    return;
  }
#endif
  NAME(pack_tile)(x->g, x->i + row, rows, x->p, x->kc, to);
}
// True if each row of A is read only once and is contiguous along k: A is not packed.
static TARGET bool NAME(reads_a_once)(const px__gemm *g) {
  bool indirect = g->a_rows || g->a_columns || g->b_rows;
  return g->n <= 2 * L && g->ac == 1 && !indirect && !g->a_f16;
}
// Sets a tile's prefetches to its part of C. The first tile of a product with few rows prefetches
// the next panel of B, a row at a time: the panel is packed next, and its rows may be far apart.
static TARGET void NAME(fetch_next)(const NAME(work_block) * x, int64_t row, int64_t col,
                                    NAME(target) * t) {
  const px__gemm *g = x->g;
  int64_t next = col + 2 * L;
  bool packs = g->m <= NAME(MC) && g->bc == 1 && !g->packed && !g->b_rows && !g->b_f16;
  if (packs && row == 0 && next + 2 * L <= x->nc) {
    t->next = (const T *)g->b + x->p * g->br + x->j + next, t->step = g->br;
    return;
  }
  t->next = t->c, t->step = t->cr;
  for (int64_t k = x->kc / R; k > 1; k /= 2) t->shift++;
}
// Computes a tile of the block into its target; returns the number of rows.
static TARGET int NAME(tile_into)(const NAME(work_block) * x, int64_t row, int64_t col, int cols,
                                  const T *panel, NAME(target) * t) {
  int rows = NAME(rows_from)(x, row);
  const T *a = NAME(panel_of)(x, row);
  t->ahead = NAME(FETCH_AHEAD);
#ifndef INTEGERS
  if (x->g->b_rows) {
    const T *b = (const T *)x->g->b + x->j + col;
    NAME(tile_indirect_b)(rows, cols, x->kc, a, b, x->g->b_rows + x->p, t);
    return rows;
  }
  if (NAME(reads_a_indirectly)(x->g)) {
    NAME(indirect_tile)(x, &x->tiles[row], col, cols, panel);
    return rows;
  }
#endif
  if (NAME(reads_a_once)(x->g)) {
    const T *lines = (const T *)x->g->a + (x->i + row) * x->g->ar + x->p;
    NAME(tile_direct)(rows, cols, x->kc, lines, x->g->ar, 1, panel, 2 * L, t);
  } else if (rows == R && cols > L) {
    NAME(fetch_next)(x, row, col, t);
    NAME(tile_packed)(cols, x->kc, a, panel, t);
  } else {
    NAME(tile_direct)(rows, cols, x->kc, a, 1, R, panel, 2 * L, t);
  }
  return rows;
}
static TARGET int NAME(run_tile)(const NAME(work_block) * x, int64_t row, int64_t col,
                                 const T *panel) {
  int cols = x->nc - col < 2 * L ? (int)(x->nc - col) : 2 * L;
  NAME(target) t = NAME(target_of)(x->g, x->i + row, x->j + col, x->p == 0);
#ifdef LOAD_HALVES
  // Final sums, over the last columns of A, are converted to float16.
  if (x->g->c_f16 && x->p + x->kc == x->g->k) {
    T sums[R * 2 * L];
    t.c = sums, t.cr = 2 * L, t.cc = 1, t.unscaled &= !t.s;
    int rows = NAME(tile_into)(x, row, col, cols, panel, &t);
    uint16_t *to = x->g->c_f16 + (x->i + row) * x->g->c_f16_stride + x->j + col;
    for (int i = 0; i < rows; i++, to += x->g->c_f16_stride)
      px__half_store_many(to, sums + i * 2 * L, cols);
    return rows;
  }
#endif
  return NAME(tile_into)(x, row, col, cols, panel, &t);
}
// For a k of one short block, writing C dominates: C is written row by row.
static TARGET void NAME(run_by_rows)(const NAME(work_block) * x) {
  const T *panels = x->g->packed ? (const T *)x->g->packed + x->j * x->kc : x->pb;
  for (int64_t row = 0; row < x->mc; row += NAME(rows_from)(x, row))
    for (int64_t col = 0; col < x->nc; col += 2 * L)
      NAME(run_tile)(x, row, col, panels + col * x->kc);
}

// Packs a panel of B to `to`. If all panels are kept, the first panel of a group packs the whole
// group where possible.
static TARGET void NAME(pack_b_panel)(const NAME(work_block) * x, int64_t col, int cols, bool kept,
                                      T *to) {
  const int64_t group = NAME(PANELS) * 2 * L;
  bool whole = x->nc - col / group * group >= group;
  if (!(kept && whole && x->g->bc == 1))
    NAME(pack_b)(x->g, x->p, x->kc, x->j + col, cols, to);
  else if (col % group == 0)
    NAME(pack_panels)(x->g, x->p, x->kc, x->j + col, to);
}

static TARGET void NAME(block)(const NAME(work_block) * x) {
  const px__gemm *g = x->g;
  bool shallow = g->k <= SHALLOW_MAX_K, only = g->m <= NAME(MC) && !shallow;
  bool packs = !NAME(reads_a_once)(g) && !NAME(reads_a_indirectly)(g),
       late = packs && g->a_columns && !shallow;
  for (int64_t row = 0, rows; row < x->mc && packs && !late; row += rows) {
    rows = NAME(rows_from)(x, row);
    NAME(pack_strip)(x, row, (int)rows);
  }
  for (int64_t col = 0; col < x->nc; col += 2 * L) {
    int cols = x->nc - col < 2 * L ? (int)(x->nc - col) : 2 * L;
    const T *packed = (const T *)g->packed;
    T *own = only ? x->pb : x->pb + col * x->kc;
    if (x->i == 0 && !packed && !g->b_rows) NAME(pack_b_panel)(x, col, cols, !only, own);
    const T *panel = packed ? packed + (x->j + col) * g->k + x->p * 2 * L : own;
    for (int64_t row = 0; row < x->mc && !shallow;) {
      // Distant rows are loaded while tiles are computed.
      if (late && col == 0) NAME(pack_strip)(x, row, NAME(rows_from)(x, row));
      row += NAME(run_tile)(x, row, col, panel);
    }
  }
  if (shallow) NAME(run_by_rows)(x);
}

// A block's extent from `at`.
static int64_t NAME(extent)(int64_t whole, int64_t at, int64_t max) {
  return whole - at < max ? whole - at : max;
}

static TARGET bool NAME(blocked)(const px__gemm *g) {
  PX__BUFFER(px__row_tile, tiles, NAME(MC));
  int64_t max = g->deep && NAME(FETCH_AHEAD) ? 2 * NAME(KC) : NAME(KC);
  // With a column table of A, parts of a product are products themselves: the depth must not depend
  // on their sizes.
  if (g->a_columns) max = g->packed && NAME(FETCH_AHEAD) ? 2 * NAME(KC) : NAME(KC);
  int64_t blocks = px__ceil_div(g->k, max), depth = px__ceil_div(g->k, blocks);
  int64_t wide = g->n < NAME(NC) ? (g->n + 2 * L - 1) / (2 * L) * 2 * L : NAME(NC);
  int64_t panels = g->m <= NAME(MC) && g->k > SHALLOW_MAX_K ? 2 * L : wide;
  // Packing a panel of A may store past its end.
  size_t bytes = (size_t)(depth * (panels + NAME(MC) + R)) * sizeof(T);
  T *buffer = px__aligned_new(bytes + PX__CACHE_LINE);
  if (!buffer) return false;
  // Balances the heights of row blocks: in a low block, reading B takes longer than multiplying.
  int64_t down = px__ceil_div(g->m, NAME(MC)), high = px__ceil_div(px__ceil_div(g->m, down), R) * R;
  NAME(work_block) x = {.g = g, .pa = buffer + depth * panels, .pb = buffer, .tiles = tiles};
  for (x.j = 0; x.j < g->n; x.j += NAME(NC))
    for (x.p = 0; x.p < g->k; x.p += depth)
      for (x.i = 0; x.i < g->m && !px__cpu_stopped(); x.i += high) {
        x.mc = NAME(extent)(g->m, x.i, high);
        x.nc = NAME(extent)(g->n, x.j, NAME(NC));
        x.kc = NAME(extent)(g->k, x.p, depth);
#ifndef INTEGERS
        if (NAME(reads_a_indirectly)(g))
          x.step = px__row_tiles(g, x.i, x.mc, NAME(HALF_ROWS), NAME(INDIRECT_ROWS), tiles);
#endif
        NAME(block)(&x);
      }
  free(buffer);
  return true;
}

#undef T
#undef V
#undef L
#undef R
#undef LOAD
#undef STORE
#undef SET
#undef FMA
#undef INTERLEAVE_LOW
#undef INTERLEAVE_HIGH
#undef LOAD_HALVES
#undef LOAD_FIRST
#undef STORE_FIRST
#undef NUMBER
#undef NAME
