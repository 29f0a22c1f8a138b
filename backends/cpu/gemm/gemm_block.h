// SPDX-License-Identifier: Apache-2.0
// The blocked product for one element type and one width of vectors: gemm_tiles.c includes it once
// for each.
//
// T is the element, V its vector, L the lanes of V, R the rows of a tile (6 or 14), NAME(x) the
// name of x, TARGET what a function needs to use V, NUMBER(x) a double as T. A tile of C is R rows
// by two vectors, held in registers. Small products read A and B where they lie (`direct`); large
// ones pack panels of B (KC x 2L) and of A (KC x R) so that a tile reads memory in order; rows of B
// by a table are read where they lie. Every element of C is a chain of FMAs over k in blocks that
// follow from k, and from what was chosen for the whole product, wherever in a tile it lies.

// k = 0: C = beta * S.
static TARGET void NAME(scale)(const px__gemm *g) {
  const T *s = g->beta != 0 ? g->s : NULL, beta = NUMBER(g->beta);
  T *c = g->c;
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->n; j++)
      c[i * g->cr + j * g->cc] = s ? (T)(s[i * g->sr + j * g->sc] * beta) : 0;
}

// The first n numbers of a vector, and zeros; and the way back, which not all have.
static inline __attribute__((always_inline)) TARGET V NAME(load_first)(const T *from, int64_t n) {
#ifdef LOAD_FIRST
  return LOAD_FIRST(from, n);
#else
  T room[L] = {0};
  memcpy(room, from, (size_t)n * sizeof(T));
  return LOAD(room);
#endif
}
#ifdef LOAD_FIRST
enum { NAME(PARTS) = 1 };
static inline __attribute__((always_inline)) TARGET void NAME(store_first)(T *to, V v, int64_t n) {
  STORE_FIRST(to, v, n);
}
#else
enum { NAME(PARTS) = 0 };
static inline void NAME(store_first)(T *to, V v, int64_t n) {}
#endif

// acc = A(rows x k) * B(k x vectors L); `rows` and `vectors` are constants at each call. Rows of A
// are `ar` apart and its columns `ac`; rows of B are contiguous, and `br` apart or where `at` says.
// `fetch`: what lies so far behind each row of B is fetched, for another tile, as no cache sees by
// itself that rows far apart are walked, or of a packed panel, which the first cache does not hold.
// `part`: of the last vector only `left` numbers are there.
// `next`, unless NULL: the first of two vectors of each of many rows, which the second cache is to
// have: rows are `step` apart, and one is fetched every 2^shift columns of A. More at once would
// wait for one another, and what the first cache lacks waits for them.
static inline __attribute__((always_inline)) TARGET void NAME(tile)(
    const int rows, const int vectors, int64_t k, const T *a, int64_t ar, int64_t ac, const T *b,
    int64_t br, const int64_t *at, const bool fetch, int64_t ahead, const T *next, int64_t step,
    int shift, const bool part, int left, V *acc) {
  V c[R][MOST_VECTORS];
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

// Where a tile goes, and what is added to it: C = alpha * acc + beta * S; S NULL: nothing. `bare`:
// the sums are written as they are, or added to rows of C (S is C).
typedef struct NAME(target) {
  T *c;
  const T *s, *next;  // next, step, shift: of a packed tile
  int64_t cr, cc, sr, sc, ahead, step;
  T alpha, beta;
  int shift;
  bool bare;
} NAME(target);

// The first block of k adds S, the later ones add to C.
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
    t.bare &= t.s == t.c && t.sr == t.cr && t.sc == 1 && g->beta == 1;
  }
  return t;
}

static inline TARGET bool NAME(plain)(const NAME(target) * t) {
  return t->cc == 1 && (!t->s || t->sc == 1 || t->sc == 0);
}

// The first `whole` vectors of each row, which are written as such, and `left` numbers of one more.
static inline __attribute__((always_inline)) TARGET void NAME(put_whole)(const NAME(target) * t,
                                                                         int rows, const int whole,
                                                                         int left, const V *row,
                                                                         int width) {
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
// Writes the first `cols` numbers of each row of a tile, whose rows are `width` vectors apart:
// whole vectors, then one by one where parts of vectors cannot be stored. It is one function for
// all tiles: at the end of each the same would be most of its code.
static __attribute__((noinline)) TARGET void NAME(put)(const NAME(target) * t, int rows, int cols,
                                                       const V *row, int width) {
  bool plain = NAME(plain)(t);
  int whole = plain ? cols / L : 0, left = plain && NAME(PARTS) ? cols % L : 0;
  int64_t first = whole * L + left;
  if (whole == 2 && !left)
    NAME(put_whole)(t, rows, 2, 0, row, width);
  else
    NAME(put_whole)(t, rows, whole, left, row, width);
  if (first == cols) return;
  T room[L];
  for (int i = 0; i < rows; i++, row += width) {
    T *c = t->c + i * t->cr + first * t->cc;
    const T *s = t->s ? t->s + i * t->sr + first * t->sc : NULL;
    const V *rest = row + whole;
    for (int64_t over = cols - first; over > 0; over -= L, rest++) {
      STORE(room, *rest * t->alpha);
      for (int64_t j = 0; j < over && j < L; j++, c += t->cc) {
        *c = s ? room[j] + *s * t->beta : room[j];
        if (s) s += t->sc;
      }
    }
  }
}

// A tile of bare sums, which need not leave the registers before; `part`: as of `tile`; `more`:
// they are added to C.
static inline __attribute__((always_inline)) TARGET void NAME(put_rows)(
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
static inline __attribute__((always_inline)) TARGET void NAME(put_bare)(const NAME(target) * t,
                                                                        const int rows,
                                                                        const int vectors,
                                                                        const bool part, int left,
                                                                        const V *acc) {
  if (t->s)
    NAME(put_rows)(t->c, t->cr, rows, vectors, part, left, true, acc);
  else
    NAME(put_rows)(t->c, t->cr, rows, vectors, part, left, false, acc);
}

// One tile: `rows` and `vectors` are constants at each call. `packed`: of panels, which have whole
// vectors.
static inline __attribute__((always_inline)) TARGET void NAME(tile_rows)(
    const int rows, const int vectors, int cols, int64_t k, const T *a, int64_t ar, int64_t ac,
    const T *b, int64_t br, const bool fetch, const bool packed, const NAME(target) * t) {
  V acc[2 * R];
  const bool part = !packed && NAME(PARTS);
  int left = cols - (vectors - 1) * L;
  for (int i = 0; i < rows && !(packed && t->next == t->c); i++) {
    __builtin_prefetch(t->c + i * t->cr, 1);
    if (vectors > 1) __builtin_prefetch(t->c + i * t->cr + L, 1);
  }
  NAME(tile)
  (rows, vectors, k, a, ar, ac, b, br, NULL, fetch, t->ahead, packed ? t->next : NULL, t->step,
   t->shift, part, left, acc);
  if (t->bare && (part || cols == vectors * L)) {
    NAME(put_bare)(t, rows, vectors, part, left, acc);
    return;
  }
  V room[2 * R];
#pragma GCC unroll 32
  for (int i = 0; i < rows * vectors; i++) room[i] = acc[i];
  NAME(put)(t, rows, cols, room, vectors);
}

enum { NAME(AHEAD) = R > 8 ? 16 * 2 * L : 0 };  // numbers of a packed B

// A tile of packed panels, but for the edges.
static __attribute__((noinline)) TARGET void NAME(tile_packed)(int cols, int64_t k, const T *a,
                                                               const T *b, const NAME(target) * t) {
  NAME(tile_rows)(R, 2, cols, k, a, 1, R, b, 2 * L, NAME(AHEAD) != 0, true, t);
}

// A tile of any strides, with as many rows as there are, and one vector or two.
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
  static void (*const by_rows[][2])(int, int64_t, const T *, int64_t, int64_t, const T *, int64_t,
                                    const NAME(target) *) = {
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
  by_rows[rows - 1][cols > L](cols, k, a, ar, ac, b, br, t);
}

// The rows of the next tile, `most` at most. The last two share theirs if the last one would have
// so few that reading B takes longer than multiplying.
static TARGET int NAME(height)(int64_t left, int most, int fewest) {
  if (left > most && left < most + fewest) return (int)(left + 1) / 2;
  return left < most ? (int)left : most;
}

#include "cpu/gemm/gemm_pack.h"

// Blocks of k are of equal length, KC at most: so that a panel of B and one of A fit into the first
// cache, which has 48 KB where vectors have 64 bytes, else 32. Of a deep product (gemm.h) they are
// twice as long, and C is read and written less often: tiles of many rows ask for B so slowly that
// it comes from the second cache in time, if it is fetched ahead.
enum { NAME(NEAR) = L * sizeof(T) == 64 ? 46 * 1024 : 30 * 1024 };
enum { NAME(KC) = NAME(NEAR) / ((2 * L + NAME(APART)) * sizeof(T)) };
enum { NAME(MC) = 198 / R * R, NAME(NC) = 64 * 2 * L };
// Rows of a panel of a direct product: that many fit into its room.
enum {
  NAME(DEPTH) = 1024 <= PANEL_BYTES / (2 * L) ? 1024 / sizeof(T) : PANEL_BYTES / (2 * L * sizeof(T))
};

// Rows [p, p + k) of B, of a product whose operands are small, or whose A is: one panel of B after
// the other, packed into `room` only if its columns are not contiguous.
static TARGET void NAME(direct_rows)(const px__gemm *g, int64_t p, int64_t k, T *room) {
  const T *a = (const T *)g->a + p * g->ac, *b = (const T *)g->b + p * g->br;
  for (int64_t j = 0; j < g->n; j += 2 * L) {
    int cols = g->n - j < 2 * L ? (int)(g->n - j) : 2 * L;
    const T *panel = b + j * g->bc;
    // What the last tile fetches: the next panel, or after the last one the first of later rows.
    int64_t br = g->br, ahead = j + 2 * L < g->n ? 2 * L : p + k < g->k ? k * br - j : 0;
    if (g->bc != 1 || (cols % L && !NAME(PARTS)) || g->b_half) {
      NAME(pack_b)(g, p, k, j, cols, room);
      panel = room, br = 2 * L;
    }
    for (int64_t i = 0, rows; i < g->m; i += rows) {
      rows = NAME(height)(g->m - i, R, NAME(APART));
      NAME(target) t = NAME(target_of)(g, i, j, p == 0);
      if (panel != room && i + rows >= g->m) t.ahead = ahead;
      NAME(tile_direct)((int)rows, cols, k, a + i * g->ar, g->ar, g->ac, panel, br, &t);
    }
  }
}
// What is longer than a panel is thin: B is most of what is read. In blocks of a few rows it is
// read along them, which caches see coming.
static TARGET void NAME(direct)(const px__gemm *g, T *room) {
  int64_t most = g->k > NAME(DEPTH) ? THIN_DEPTH : NAME(DEPTH), work = 0;
  for (int64_t p = 0; p < g->k && !px__worked(&work, g->m * g->n); p += most)
    NAME(direct_rows)(g, p, g->k - p < most ? g->k - p : most, room);
}

#ifndef WHOLE
#include "cpu/gemm/gemm_gather.h"
#endif
#include "cpu/gemm/gemm_dots.h"

// One block: mc x nc of C at (i, j), summed over kc of k from p. A is packed; a panel of B is
// packed right before its tiles by the first block that uses it, and kept if others follow.
typedef struct NAME(cell) {
  const px__gemm *g;
  T *pa, *pb;
  int64_t i, j, p, mc, nc, kc;
  // Where columns of A have a table: what tile comes after so many rows of others, and how far
  // apart the rows of its halves are.
  const px__spread *tiles;
  int64_t step;
} NAME(cell);

// Whether rows of A that lie apart are read where they are: for few columns, of a B that is packed
// once for all, and where packing would take them one by one, as they do not follow one another.
static TARGET bool NAME(spread)(const px__gemm *g) {
  bool beside = g->m >= R && g->a_rows && g->a_rows[R - 1] - g->a_rows[0] == R - 1;
  return g->a_columns && (g->packed || g->n <= 4 * L || !beside);
}
// Rows of a tile of the block, from `row`, and where their panel of A is.
static TARGET int NAME(rows_from)(const NAME(cell) * x, int64_t row) {
#ifndef WHOLE
  if (NAME(spread)(x->g)) return x->tiles[row].rows;
#endif
  bool apart = x->g->b_rows != NULL;
  return NAME(height)(x->mc - row, apart ? NAME(APART) : R, apart ? 0 : NAME(APART));
}
#ifndef WHOLE
static TARGET const T *NAME(line_of)(const NAME(cell) * x, int64_t row) {
  return (const T *)x->g->a + NAME(row_at)(x->g->a_rows, x->g->ar, x->i + row);
}
// A tile of rows of A that begin anywhere.
static TARGET void NAME(one_spread)(const NAME(cell) * x, const px__spread *tile, int64_t col,
                                    int cols, const T *panel) {
  const int64_t *at = x->g->a_columns + x->p;
  NAME(target) t[2] = {NAME(target_of)(x->g, x->i + tile->first[0], x->j + col, x->p == 0)};
  if (tile->half) {
    const T *from[] = {NAME(line_of)(x, tile->first[0]), NAME(line_of)(x, tile->first[0])};
    T unused[NAME(HALF) * 2 * L];
    t[1] = (NAME(target)){.c = unused, .cr = 2 * L, .cc = 1, .alpha = 1, .beta = 1};
    if (tile->first[1] >= 0) {
      from[1] = NAME(line_of)(x, tile->first[1]);
      t[1] = NAME(target_of)(x->g, x->i + tile->first[1], x->j + col, x->p == 0);
    }
    int64_t next = tile->first[0] + tile->rows < x->mc ? tile->first[0] + tile->rows : 0;
    const T *ahead = NAME(line_of)(x, next);
    NAME(halves_of)(tile->half, cols)(cols, x->kc, from, x->step, at, ahead, panel, t);
    return;
  }
  const T *from[NAME(APART)];
  for (int i = 0; i < NAME(APART); i++)
    from[i] = NAME(line_of)(x, tile->first[0] + (i < tile->rows ? i : tile->rows - 1));
  NAME(tile_lines)(tile->rows, cols, x->kc, from, at, panel, t);
}
#endif
static TARGET T *NAME(panel_of)(const NAME(cell) * x, int64_t row) {
  return x->pa + (x->g->b_rows ? row : px__ceil_div(row, R) * R) * x->kc;
}
static TARGET void NAME(pack_strip)(const NAME(cell) * x, int64_t row, int rows) {
  T *to = NAME(panel_of)(x, row);
#ifndef WHOLE
  if (x->g->b_rows && NAME(APART) < R) {
    NAME(pack_apart)(x->g, x->i + row, rows, x->p, x->kc, to);
    return;
  }
#endif
  NAME(pack_tile)(x->g, x->i + row, rows, x->p, x->kc, to);
}
// Whether each row of A is read but once, and lies along k: it is not packed.
static TARGET bool NAME(once)(const px__gemm *g) {
  bool apart = g->a_rows || g->a_columns || g->b_rows;
  return g->n <= 2 * L && g->ac == 1 && !apart && !g->a_half;
}
// Has a tile fetch its part of C; but the first one of few rows fetches the next panel of B, a row
// at a time: it is packed soon, and its rows may lie apart.
static TARGET void NAME(fetch_next)(const NAME(cell) * x, int64_t row, int64_t col,
                                    NAME(target) * t) {
  const px__gemm *g = x->g;
  int64_t next = col + 2 * L;
  bool packs = g->m <= NAME(MC) && g->bc == 1 && !g->packed && !g->b_rows && !g->b_half;
  if (packs && row == 0 && next + 2 * L <= x->nc) {
    t->next = (const T *)g->b + x->p * g->br + x->j + next, t->step = g->br;
    return;
  }
  t->next = t->c, t->step = t->cr;
  for (int64_t k = x->kc / R; k > 1; k /= 2) t->shift++;
}
// A tile of the block, into its target; gives the number of its rows.
static TARGET int NAME(tile_into)(const NAME(cell) * x, int64_t row, int64_t col, int cols,
                                  const T *panel, NAME(target) * t) {
  int rows = NAME(rows_from)(x, row);
  const T *a = NAME(panel_of)(x, row);
  t->ahead = NAME(AHEAD);
#ifndef WHOLE
  if (x->g->b_rows) {
    const T *b = (const T *)x->g->b + x->j + col;
    NAME(tile_apart)(rows, cols, x->kc, a, b, x->g->b_rows + x->p, t);
    return rows;
  }
  if (NAME(spread)(x->g)) {
    NAME(one_spread)(x, &x->tiles[row], col, cols, panel);
    return rows;
  }
#endif
  if (NAME(once)(x->g)) {
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
static TARGET int NAME(one_tile)(const NAME(cell) * x, int64_t row, int64_t col, const T *panel) {
  int cols = x->nc - col < 2 * L ? (int)(x->nc - col) : 2 * L;
  NAME(target) t = NAME(target_of)(x->g, x->i + row, x->j + col, x->p == 0);
#ifdef LOAD_HALVES
  // Sums over the last columns of A become float16.
  if (x->g->half && x->p + x->kc == x->g->k) {
    T sums[R * 2 * L];
    t.c = sums, t.cr = 2 * L, t.cc = 1, t.bare &= !t.s;
    int rows = NAME(tile_into)(x, row, col, cols, panel, &t);
    uint16_t *to = x->g->half + (x->i + row) * x->g->half_r + x->j + col;
    for (int i = 0; i < rows; i++, to += x->g->half_r)
      px__half_store_many(to, sums + i * 2 * L, cols);
    return rows;
  }
#endif
  return NAME(tile_into)(x, row, col, cols, panel, &t);
}
// Of a short k, which is one block, nearly all time goes into writing C: it is written row by row.
static TARGET void NAME(by_rows)(const NAME(cell) * x) {
  const T *panels = x->g->packed ? (const T *)x->g->packed + x->j * x->kc : x->pb;
  for (int64_t row = 0; row < x->mc; row += NAME(rows_from)(x, row))
    for (int64_t col = 0; col < x->nc; col += 2 * L)
      NAME(one_tile)(x, row, col, panels + col * x->kc);
}

// A panel of B in its order, at `to`. If all panels are kept, some are packed at once where they
// can, with the first of them.
static TARGET void NAME(bring_b)(const NAME(cell) * x, int64_t col, int cols, bool kept, T *to) {
  const int64_t group = NAME(PANELS) * 2 * L;
  bool whole = x->nc - col / group * group >= group;
  if (!(kept && whole && x->g->bc == 1))
    NAME(pack_b)(x->g, x->p, x->kc, x->j + col, cols, to);
  else if (col % group == 0)
    NAME(pack_panels)(x->g, x->p, x->kc, x->j + col, to);
}

static TARGET void NAME(block)(const NAME(cell) * x) {
  const px__gemm *g = x->g;
  bool shallow = g->k <= SHALLOW, only = g->m <= NAME(MC) && !shallow;
  bool packs = !NAME(once)(g) && !NAME(spread)(g), late = packs && g->a_columns && !shallow;
  for (int64_t row = 0, rows; row < x->mc && packs && !late; row += rows) {
    rows = NAME(rows_from)(x, row);
    NAME(pack_strip)(x, row, (int)rows);
  }
  for (int64_t col = 0; col < x->nc; col += 2 * L) {
    int cols = x->nc - col < 2 * L ? (int)(x->nc - col) : 2 * L;
    const T *packed = (const T *)g->packed;
    T *own = only ? x->pb : x->pb + col * x->kc;
    if (x->i == 0 && !packed && !g->b_rows) NAME(bring_b)(x, col, cols, !only, own);
    const T *panel = packed ? packed + (x->j + col) * g->k + x->p * 2 * L : own;
    for (int64_t row = 0; row < x->mc && !shallow;) {
      // What comes from far away comes while tiles are computed.
      if (late && col == 0) NAME(pack_strip)(x, row, NAME(rows_from)(x, row));
      row += NAME(one_tile)(x, row, col, panel);
    }
  }
  if (shallow) NAME(by_rows)(x);
}

// A block's side from `at`.
static int64_t NAME(side)(int64_t whole, int64_t at, int64_t most) {
  return whole - at < most ? whole - at : most;
}

static TARGET bool NAME(blocked)(const px__gemm *g) {
  px__spread tiles[NAME(MC)];
  int64_t most = g->deep && NAME(AHEAD) ? 2 * NAME(KC) : NAME(KC);
  // Of columns of A by a table, parts of a product are products: the depth follows from none of
  // their sides.
  if (g->a_columns) most = g->packed && NAME(AHEAD) ? 2 * NAME(KC) : NAME(KC);
  int64_t blocks = px__ceil_div(g->k, most), depth = px__ceil_div(g->k, blocks);
  int64_t wide = g->n < NAME(NC) ? (g->n + 2 * L - 1) / (2 * L) * 2 * L : NAME(NC);
  int64_t panels = g->m <= NAME(MC) && g->k > SHALLOW ? 2 * L : wide;
  // Packing a panel of A may store beyond its end.
  size_t bytes = (size_t)(depth * (panels + NAME(MC) + R)) * sizeof(T);
  T *room = px__room_new(bytes + PX__CACHE_LINE);
  if (!room) return false;
  // No block of rows is much lower than others: reading B would take longer than multiplying.
  int64_t down = px__ceil_div(g->m, NAME(MC)), high = px__ceil_div(px__ceil_div(g->m, down), R) * R;
  NAME(cell) x = {.g = g, .pa = room + depth * panels, .pb = room, .tiles = tiles};
  for (x.j = 0; x.j < g->n; x.j += NAME(NC))
    for (x.p = 0; x.p < g->k; x.p += depth)
      for (x.i = 0; x.i < g->m && !px__cpu_stopped(); x.i += high) {
        x.mc = NAME(side)(g->m, x.i, high);
        x.nc = NAME(side)(g->n, x.j, NAME(NC));
        x.kc = NAME(side)(g->k, x.p, depth);
#ifndef WHOLE
        if (NAME(spread)(g))
          x.step = px__spread_tiles(g, x.i, x.mc, NAME(HALF), NAME(APART), tiles);
#endif
        NAME(block)(&x);
      }
  free(room);
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
