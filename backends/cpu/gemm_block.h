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

// acc = A(rows x k) * B(k x vectors L); `rows` and `vectors` are constants at each call. Rows of A
// are `ar` apart and its columns `ac`; rows of B are contiguous, and `br` apart or where `at` says.
// `fetch`: what lies so far behind each row of B is fetched, for another tile, as no cache sees by
// itself that rows far apart are walked, or of a packed panel, which the first cache does not hold.
// `next`, unless NULL: a column of numbers, `step` apart, that the second cache is to have.
static inline __attribute__((always_inline)) TARGET void NAME(tile)(
    const int rows, const int vectors, int64_t k, const T *a, int64_t ar, int64_t ac, const T *b,
    int64_t br, const int64_t *at, const bool fetch, int64_t ahead, const T *next, int64_t step,
    V *acc) {
  V c[R][MOST_VECTORS];
  for (int i = 0; i < rows; i++)
    for (int v = 0; v < vectors; v++) c[i][v] = SET(0);
  for (int64_t p = 0; p < k; p++, a += ac, b += br) {
    const T *row = at ? b + at[p] : b;
    V y[2];
    for (int v = 0; vectors <= 2 && v < vectors; v++) y[v] = LOAD(row + v * L);
    if (fetch) __builtin_prefetch(row + ahead);
    if (fetch && vectors > 1 && L * sizeof(T) >= 64) __builtin_prefetch(row + ahead + L);
    if (next) __builtin_prefetch(next + p * step, 0, 2);
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
  const T *s, *next;  // next, step: of a packed tile
  int64_t cr, cc, sr, sc, ahead, step;
  T alpha, beta;
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

// The first `whole` vectors of each row, which are written as such.
static inline __attribute__((always_inline)) TARGET void NAME(put_whole)(const NAME(target) * t,
                                                                         int rows, const int whole,
                                                                         const V *row, int width) {
  T *c = t->c;
  const T *s = t->s;
  for (int i = 0; i < rows; i++, row += width, c += t->cr)
    for (int v = 0; v < whole; v++) {
      V r = row[v] * t->alpha;
      if (s) r += (t->sc ? LOAD(s + i * t->sr + v * L) : SET(s[i * t->sr])) * t->beta;
      STORE(c + v * L, r);
    }
}
// Writes the first `cols` numbers of each row of a tile, whose rows are `width` vectors apart:
// whole vectors, then one by one. It is one function for all tiles: at the end of each the same
// would be most of its code.
static __attribute__((noinline)) TARGET void NAME(put)(const NAME(target) * t, int rows, int cols,
                                                       const V *row, int width) {
  int whole = NAME(plain)(t) ? cols / L : 0;
  int64_t first = whole * L;
  if (whole == 2)
    NAME(put_whole)(t, rows, 2, row, width);
  else
    NAME(put_whole)(t, rows, whole, row, width);
  if (first == cols) return;
  T room[L];
  for (int i = 0; i < rows; i++, row += width) {
    T *c = t->c + i * t->cr + first * t->cc;
    const T *s = t->s ? t->s + i * t->sr + first * t->sc : NULL;
    const V *rest = row + whole;
    for (int64_t left = cols - first; left > 0; left -= L, rest++) {
      STORE(room, *rest * t->alpha);
      for (int64_t j = 0; j < left && j < L; j++, c += t->cc) {
        *c = s ? room[j] + *s * t->beta : room[j];
        if (s) s += t->sc;
      }
    }
  }
}

// A whole tile of bare sums, which need not leave the registers before.
static inline __attribute__((always_inline)) TARGET void NAME(put_bare)(const NAME(target) * t,
                                                                        const int rows,
                                                                        const int vectors,
                                                                        const V *acc) {
  T *c = t->c;
  if (t->s) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++, c += t->cr)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; v++) STORE(c + v * L, acc[i * vectors + v] + LOAD(c + v * L));
    return;
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++, c += t->cr)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) STORE(c + v * L, acc[i * vectors + v]);
}

// One tile: `rows` and `vectors` are constants at each call.
static inline __attribute__((always_inline)) TARGET void NAME(tile_rows)(
    const int rows, const int vectors, int cols, int64_t k, const T *a, int64_t ar, int64_t ac,
    const T *b, int64_t br, const bool fetch, const bool next, const NAME(target) * t) {
  V acc[2 * R];
  for (int i = 0; i < rows; i++) {
    __builtin_prefetch(t->c + i * t->cr, 1);
    if (vectors > 1) __builtin_prefetch(t->c + i * t->cr + L, 1);
  }
  NAME(tile)
  (rows, vectors, k, a, ar, ac, b, br, NULL, fetch, t->ahead, next ? t->next : NULL, t->step, acc);
  if (t->bare && cols == vectors * L) {
    NAME(put_bare)(t, rows, vectors, acc);
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

// ---- packing

// Rows of a tile of which rows of B, or columns of A, lie apart.
enum { NAME(APART) = R < 8 ? R : 8 };

// Transposes n x L elements in registers, n a power of two that is at most L: each round
// interleaves the first half of the rows with the second. The columns follow one another in x.
static inline __attribute__((always_inline)) TARGET void NAME(transpose)(const int n, V *x) {
#pragma GCC unroll 16
  for (int round = 1; round < n; round *= 2) {
    V y[L];
#pragma GCC unroll 16
    for (int i = 0; i < n / 2; i++) {
      y[2 * i] = INTERLEAVE_LOW(x[i], x[i + n / 2]);
      y[2 * i + 1] = INTERLEAVE_HIGH(x[i], x[i + n / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) x[i] = y[i];
  }
}

// Where a row or column begins, by its table or by the stride.
static inline TARGET int64_t NAME(row_at)(const int64_t *rows, int64_t stride, int64_t i) {
  return rows ? rows[i] : i * stride;
}
// L columns of B that are contiguous each, into half a panel.
static TARGET void NAME(pack_columns)(const T *b, const int64_t *columns, int64_t bc, int64_t k,
                                      T *to) {
  const T *from[L];
  int64_t p = 0;
  for (int j = 0; j < L; j++) from[j] = b + NAME(row_at)(columns, bc, j);
  for (; p + L <= k; p += L) {
    V x[L];
    for (int j = 0; j < L; j++) x[j] = LOAD(from[j] + p);
    NAME(transpose)(L, x);
    for (int j = 0; j < L; j++) STORE(to + (p + j) * 2 * L, x[j]);
  }
  for (; p < k; p++)
    for (int j = 0; j < L; j++) to[p * 2 * L + j] = from[j][p];
}
// So many rows of A that are contiguous each; the number is constant at each call. Vectors stored
// past a column's end are overwritten by the next column; past the panel's end there must be room
// for one.
enum { NAME(GROUPS) = (R + L - 1) / L };
static inline __attribute__((always_inline)) TARGET void NAME(pack_rows)(const int rows,
                                                                         const T *const *a,
                                                                         int64_t k, T *to) {
  const bool even = (rows & (rows - 1)) == 0 && rows < L;
  int64_t p = 0;
  for (; even && p + L <= k; p += L) {
    V x[L];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) x[i] = LOAD(a[i] + p);
    NAME(transpose)(even ? rows : 1, x);
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) STORE(to + p * rows + i * L, x[i]);
  }
  for (; p + L <= k; p += L) {
    V x[NAME(GROUPS)][L];
    for (int g = 0; g * L < rows; g++) {
      for (int i = 0; i < L; i++) {
        int row = g * L + i < rows ? g * L + i : rows - 1;
        x[g][i] = LOAD(a[row] + p);
      }
      NAME(transpose)(L, x[g]);
    }
    for (int i = 0; i < L; i++)
      for (int g = 0; g * L < rows; g++) STORE(to + (p + i) * rows + g * L, x[g][i]);
  }
  for (; p < k; p++)
    for (int i = 0; i < rows; i++) to[p * rows + i] = a[i][p];
}

#ifdef LOAD_HALVES
// The same of a B of float16: L columns, of which the last one is taken for those that are missing.
static TARGET void NAME(pack_half_columns)(const uint16_t *b, int64_t bc, int64_t k, int64_t cols,
                                           T *to) {
  const uint16_t *from[L];
  int64_t p = 0;
  for (int64_t j = 0; j < L; j++) from[j] = b + (j < cols ? j : cols - 1) * bc;
  for (; p + L <= k; p += L) {
    V x[L];
    for (int j = 0; j < L; j++) x[j] = LOAD_HALVES(from[j] + p);
    NAME(transpose)(L, x);
    for (int j = 0; j < L; j++) STORE(to + (p + j) * 2 * L, x[j]);
  }
  for (; p < k; p++)
    for (int j = 0; j < L; j++) to[p * 2 * L + j] = px__half_load(from[j][p]);
}
// As pack_b does: it has no tables.
static TARGET void NAME(pack_half)(const px__gemm *g, int64_t p0, int64_t k, int64_t j0, int cols,
                                   T *to) {
  const uint16_t *b = (const uint16_t *)g->b + p0 * g->br + j0 * g->bc;
  if (cols < 2 * L) memset(to, 0, (size_t)k * 2 * L * sizeof(T));
  if (g->br == 1 && g->bc != 1) {
    NAME(pack_half_columns)(b, g->bc, k, cols, to);
    if (cols > L) NAME(pack_half_columns)(b + L * g->bc, g->bc, k, cols - L, to + L);
    return;
  }
  for (int64_t p = 0; p < k; p++, b += g->br, to += 2 * L)
    if (g->bc == 1)
      px__half_load_many(to, b, cols);
    else
      for (int j = 0; j < cols; j++) to[j] = px__half_load(b[j * g->bc]);
}
#endif
// Copies rows [p, p + k) and `cols` columns from j of B into a panel of width 2L, zeros beyond.
static TARGET void NAME(pack_b)(const px__gemm *g, int64_t p0, int64_t k, int64_t j0, int cols,
                                T *to) {
#ifdef LOAD_HALVES
  if (g->b_half) {
    NAME(pack_half)(g, p0, k, j0, cols, to);
    return;
  }
#endif
  const T *b = (const T *)g->b + p0 * g->br + j0 * g->bc;
  const int64_t *columns = g->b_columns ? g->b_columns + j0 : NULL;
  int64_t br = g->br, bc = g->bc;
  if (bc == 1 && cols == 2 * L) {
    for (int64_t p = 0; p < k; p++, to += 2 * L, b += br) {
      STORE(to, LOAD(b));
      STORE(to + L, LOAD(b + L));
    }
    return;
  }
  if (cols < 2 * L) memset(to, 0, (size_t)k * 2 * L * sizeof(T));
  if (br == 1 && cols >= L) {
    NAME(pack_columns)(b, columns, bc, k, to);
    if (cols == 2 * L) NAME(pack_columns)(b + L * bc, columns ? columns + L : NULL, bc, k, to + L);
    for (int64_t p = 0; cols < 2 * L && p < k; p++)
      for (int j = L; j < cols; j++) to[p * 2 * L + j] = b[p + NAME(row_at)(columns, bc, j)];
    return;
  }
  for (int64_t p = 0; p < k; p++, to += 2 * L)
    for (int j = 0; j < cols; j++) to[j] = b[p * br + NAME(row_at)(columns, bc, j)];
}
// Copies `rows` rows from i0 and k columns from p0 of A into a panel of `high`, column by column,
// zeros or a row beyond the last one.
static inline __attribute__((always_inline)) TARGET void NAME(pack_a)(const int high,
                                                                      const px__gemm *g, int64_t i0,
                                                                      int rows, int64_t p0,
                                                                      int64_t k, T *to) {
  const T *a = (const T *)g->a + i0 * g->ar + p0 * g->ac, *from[R];
  int64_t ar = g->ar, ac = g->ac;
  for (int i = 0; i < high; i++)
    from[i] = a + NAME(row_at)(g->a_rows ? g->a_rows + i0 : NULL, ar, i < rows ? i : rows - 1);
  if (ac == 1) {
    NAME(pack_rows)(high, from, k, to);
    return;
  }
  if (rows == high && ar == 1 && !g->a_rows) {
    for (int64_t p = 0; p < k; p++) memcpy(to + p * high, a + p * ac, (size_t)high * sizeof(T));
    return;
  }
  memset(to, 0, (size_t)(k * high) * sizeof(T));
  for (int64_t p = 0; p < k; p++, to += high)
    for (int i = 0; i < high && i < rows; i++) to[i] = from[i][p * ac];
}
#ifndef WHOLE
// A few numbers, in pieces that overlap.
static inline TARGET void NAME(copy_few)(const T *from, int n, T *to) {
  enum { PIECE = 16 / sizeof(T) };
  if (n < PIECE) {
    for (int i = 0; i < n; i++) to[i] = from[i];
    return;
  }
  for (int i = 0; i + PIECE <= n; i += PIECE) memcpy(to + i, from + i, 16);
  memcpy(to + n - PIECE, from + n - PIECE, 16);
}
// The same of columns that a table names: rows that follow one another are copied at once, and
// those that follow the last one are fetched.
static TARGET void NAME(pack_named)(const px__gemm *g, int64_t i0, int rows, int64_t p0, int64_t k,
                                    T *to) {
  const int64_t *at = g->a_columns + p0;
  const T *from[R];
  int begin[R + 1], runs = 0;
  for (int i = 0; i < R; i++) {
    int64_t row = i0 + (i < rows ? i : rows - 1);
    from[i] = (const T *)g->a + NAME(row_at)(g->a_rows, g->ar, row);
    if (i == 0 || from[i] != from[i - 1] + 1) begin[runs++] = i;
  }
  begin[runs] = R;
  for (int64_t p = 0; p < k; p++, to += R) {
    __builtin_prefetch(from[R - 1] + at[p] + R);
    if (runs == 1)
      memcpy(to, from[0] + at[p], R * sizeof(T));
    else
      for (int i = 0; i < runs; i++)
        NAME(copy_few)(from[begin[i]] + at[p], begin[i + 1] - begin[i], to + begin[i]);
  }
}
#endif
static __attribute__((noinline)) TARGET void NAME(pack_tile)(const px__gemm *g, int64_t i0,
                                                             int rows, int64_t p0, int64_t k,
                                                             T *to) {
#ifndef WHOLE
  if (g->a_columns) {
    NAME(pack_named)(g, i0, rows, p0, k, to);
    return;
  }
#endif
  NAME(pack_a)(R, g, i0, rows, p0, k, to);
}
#ifndef WHOLE
static __attribute__((noinline)) TARGET void NAME(pack_apart)(const px__gemm *g, int64_t i0,
                                                              int rows, int64_t p0, int64_t k,
                                                              T *to) {
  NAME(pack_a)(NAME(APART), g, i0, rows, p0, k, to);
}
#endif

// All of B, panel by panel.
static TARGET void NAME(pack_all)(const px__gemm *g, T *to) {
  for (int64_t j = 0; j < g->n; j += 2 * L)
    NAME(pack_b)(g, 0, g->k, j, g->n - j < 2 * L ? (int)(g->n - j) : 2 * L, to + j * g->k);
}

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
    if (g->bc != 1 || cols % L || g->b_half) {
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
// ---- few rows of A, rows of B by a table: integers have none

// A tile of `rows` by `vectors`, constants at each call, read where B lies. Past the last column it
// reads B's slack.
static inline __attribute__((always_inline)) TARGET void NAME(few_tile)(const int rows,
                                                                        const int vectors,
                                                                        const px__gemm *g,
                                                                        int64_t i0, int64_t j0) {
  V acc[R * MOST_VECTORS];
  const T *a = (const T *)g->a + i0 * g->ar, *b = (const T *)g->b + j0;
  NAME(tile)(rows, vectors, g->k, a, g->ar, g->ac, b, 0, g->b_rows, false, 0, NULL, 0, acc);
  NAME(target) t = NAME(target_of)(g, i0, j0, true);
  int cols = g->n - j0 < vectors * L ? (int)(g->n - j0) : vectors * L;
  NAME(put)(&t, rows, cols, acc, vectors);
}
// A tile of a packed A, of which `rows` rows are wanted, and of rows of B that are read where they
// lie: those of places that see nearly the same of an image lie in the same lines of the cache.
static __attribute__((noinline)) TARGET void NAME(tile_apart)(int rows, int cols, int64_t k,
                                                              const T *a, const T *b,
                                                              const int64_t *at,
                                                              const NAME(target) * t) {
  V acc[2 * NAME(APART)];
  if (rows > NAME(APART) / 2)
    NAME(tile)(NAME(APART), 2, k, a, 1, NAME(APART), b, 0, at, false, 0, NULL, 0, acc);
  else
    NAME(tile)(NAME(APART) / 2, 2, k, a, 1, NAME(APART), b, 0, at, false, 0, NULL, 0, acc);
  NAME(put)(t, rows, cols, acc, 2);
}
// A tile of rows of A that begin anywhere, and of their columns that a table names, of which `rows`
// rows are wanted; of a packed B. `vectors` is a constant at each call.
static inline __attribute__((always_inline)) TARGET void NAME(tile_spread)(
    const int vectors, int64_t k, const T *const a[NAME(APART)], const int64_t *at, const T *b,
    V *acc) {
  V c[NAME(APART)][2];
  for (int i = 0; i < NAME(APART); i++) c[i][0] = c[i][1] = SET(0);
  for (int64_t p = 0; p < k; p++, b += 2 * L) {
    int64_t q = at[p];
    V y0 = LOAD(b), y1 = vectors > 1 ? LOAD(b + L) : y0;
#pragma GCC unroll 16
    for (int i = 0; i < NAME(APART); i++) {
      V x = SET(a[i][q]);
      c[i][0] = FMA(x, y0, c[i][0]);
      if (vectors > 1) c[i][1] = FMA(x, y1, c[i][1]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < NAME(APART); i++)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) acc[i * vectors + v] = c[i][v];
}
static __attribute__((noinline)) TARGET void NAME(tile_lines)(int rows, int cols, int64_t k,
                                                              const T *const a[NAME(APART)],
                                                              const int64_t *at, const T *b,
                                                              const NAME(target) * t) {
  V acc[2 * NAME(APART)];
  for (int i = 0; i < rows; i++) {
    __builtin_prefetch(t->c + i * t->cr, 1);
    __builtin_prefetch(t->c + i * t->cr + L, 1);
  }
  if (cols > L)
    NAME(tile_spread)(2, k, a, at, b, acc);
  else
    NAME(tile_spread)(1, k, a, at, b, acc);
  NAME(put)(t, rows, cols, acc, cols > L ? 2 : 1);
}
// A tile of two halves, each of `half` rows of A that are `ar` apart, and of a packed B; `half` and
// `vectors` are constants at each call. So many rows would not have a register each for where they
// begin.
enum { NAME(HALF) = R / 2 };
static inline __attribute__((always_inline)) TARGET void NAME(tile_halves)(
    const int half, const int vectors, int cols, int64_t k, const T *const a[2], int64_t ar,
    const int64_t *at, const T *ahead, const T *b, const NAME(target) t[2]) {
  V c[2][NAME(HALF) * 2], y[2];
  for (int h = 0; h < 2; h++)
    for (int i = 0; i < half; i++) {
      __builtin_prefetch(t[h].c + i * t[h].cr, 1);
      if (vectors > 1) __builtin_prefetch(t[h].c + i * t[h].cr + L, 1);
    }
#pragma GCC unroll 16
  for (int i = 0; i < half * vectors; i++) c[0][i] = c[1][i] = SET(0);
  for (int64_t p = 0; p < k; p++, b += 2 * L) {
    const T *from[] = {a[0] + at[p], a[1] + at[p]};
    for (int v = 0; v < vectors; v++) y[v] = LOAD(b + v * L);
    if (NAME(AHEAD)) __builtin_prefetch(b + NAME(AHEAD));
    if (NAME(AHEAD) && vectors > 1) __builtin_prefetch(b + NAME(AHEAD) + L);
    __builtin_prefetch(ahead + p * 64 / (int64_t)sizeof(T));
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++)
#pragma GCC unroll 8
      for (int i = 0; i < half; i++) {
        V x = SET(from[h][i * ar]);
        for (int v = 0; v < vectors; v++)
          c[h][i * vectors + v] = FMA(x, y[v], c[h][i * vectors + v]);
      }
  }
  bool bare = t->bare && cols == vectors * L;
#pragma GCC unroll 2
  for (int h = 0; h < 2 && bare; h++) NAME(put_bare)(&t[h], half, vectors, c[h]);
  if (bare) return;
  V room[2][NAME(HALF) * 2];
#pragma GCC unroll 2
  for (int h = 0; h < 2; h++)
#pragma GCC unroll 16
    for (int i = 0; i < half * vectors; i++) room[h][i] = c[h][i];
  for (int h = 0; h < 2; h++) NAME(put)(&t[h], half, cols, room[h], vectors);
}
#define HALVES(half, vectors) \
  static __attribute__((noinline)) TARGET void NAME(halves_##half##_##vectors)( \
      int cols, int64_t k, const T *const a[2], int64_t ar, const int64_t *at, const T *ahead, \
      const T *b, const NAME(target) t[2]) { \
    NAME(tile_halves)(half, vectors, cols, k, a, ar, at, ahead, b, t); \
  }
#define BOTH_WIDTHS(half) HALVES(half, 1) HALVES(half, 2)
BOTH_WIDTHS(1)
BOTH_WIDTHS(2)
BOTH_WIDTHS(3)
#if R > 6
BOTH_WIDTHS(4)
BOTH_WIDTHS(5)
BOTH_WIDTHS(6)
BOTH_WIDTHS(7)
#endif
#undef BOTH_WIDTHS
#undef HALVES
typedef void NAME(halves)(int cols, int64_t k, const T *const a[2], int64_t ar, const int64_t *at,
                          const T *ahead, const T *b, const NAME(target) t[2]);
static TARGET NAME(halves) * NAME(halves_of)(int half, int cols) {
#define BOTH_WIDTHS(half) \
  { NAME(halves_##half##_1), NAME(halves_##half##_2) }
  static NAME(halves) *const by_rows[][2] = {
    BOTH_WIDTHS(1),
    BOTH_WIDTHS(2),
    BOTH_WIDTHS(3),
#if R > 6
    BOTH_WIDTHS(4),
    BOTH_WIDTHS(5),
    BOTH_WIDTHS(6),
    BOTH_WIDTHS(7),
#endif
  };
#undef BOTH_WIDTHS
  return by_rows[half - 1][cols > L];
}
#define FEW(rows, most) \
  static __attribute__((noinline)) TARGET void NAME(few_##rows)(const px__gemm *g, int64_t i) { \
    for (int64_t j = 0, work = 0; j < g->n && !px__worked(&work, g->k);) { \
      bool wide = g->n - j > (most) / 2 * L; \
      if (wide) \
        NAME(few_tile)(rows, most, g, i, j); \
      else \
        NAME(few_tile)(rows, (most) / 2, g, i, j); \
      j += (wide ? (most) : (most) / 2) * L; \
    } \
  }
FEW(1, 8)
FEW(2, 4)
FEW(3, 4)
#if R > 6
FEW(4, 4)
FEW(5, 4)
FEW(6, 4)
FEW(7, 2)
FEW(8, 2)
#else
FEW(4, 2)
FEW(5, 2)
FEW(6, 2)
#endif
#undef FEW
static TARGET void NAME(few)(const px__gemm *g) {
  static void (*const by_rows[])(const px__gemm *, int64_t) = {
    NAME(few_1),
    NAME(few_2),
    NAME(few_3),
    NAME(few_4),
    NAME(few_5),
    NAME(few_6),
#if R > 6
    NAME(few_7),
    NAME(few_8),
#endif
  };
  const int64_t most = sizeof by_rows / sizeof *by_rows, groups = (g->m + most - 1) / most;
  for (int64_t i = 0; i < groups; i++) {
    int64_t from = g->m * i / groups, to = g->m * (i + 1) / groups;
    by_rows[to - from - 1](g, from);
  }
}
#endif

// ---- vectors

// sums[i] = a[i] times x, for a constant number of rows: each in two chains.
static inline __attribute__((always_inline)) TARGET void NAME(dots)(const int rows,
                                                                    const T *const *a, const T *x,
                                                                    int64_t k, T *sums) {
  V s[DOTS][2];
  int64_t p = 0;
  for (int i = 0; i < rows; i++) s[i][0] = s[i][1] = SET(0);
  for (; p + 2 * L <= k; p += 2 * L)
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
      s[i][0] = FMA(LOAD(a[i] + p), LOAD(x + p), s[i][0]);
      s[i][1] = FMA(LOAD(a[i] + p + L), LOAD(x + p + L), s[i][1]);
    }
  for (int i = 0; i < rows; i++) {
    T line[L];
    STORE(line, s[i][0] + s[i][1]);
    for (int half = L / 2; half > 0; half /= 2)
      for (int j = 0; j < half; j++) line[j] += line[j + half];
    sums[i] = line[0];
    for (int64_t q = p; q < k; q++) sums[i] += a[i][q] * x[q];
  }
}

// The first n numbers of a vector, and zeros.
static inline __attribute__((always_inline)) TARGET V NAME(load_first)(const T *from, int64_t n) {
  T room[L] = {0};
  memcpy(room, from, (size_t)n * sizeof(T));
  return LOAD(room);
}
// The sums of L vectors, each in its own lane of s[0].
static inline __attribute__((always_inline)) TARGET void NAME(sum_lanes)(V s[L]) {
#pragma GCC unroll 8
  for (int half = L / 2; half > 0; half /= 2)
#pragma GCC unroll 16
    for (int i = 0; i < half; i++)
      s[i] = INTERLEAVE_LOW(s[i], s[i + half]) + INTERLEAVE_HIGH(s[i], s[i + half]);
}
// Rows times columns that are contiguous all: DOTS by BESIDE sums, each one chain, in whole
// vectors.
enum { NAME(BESIDE) = L * sizeof(T) == 64 ? 4 : 2, NAME(ABREAST) = DOTS * NAME(BESIDE) };
enum { NAME(SUMS) = (NAME(ABREAST) + L - 1) / L * L };
// Of L numbers from the p-th of each, or if fewer are left of those.
static inline __attribute__((always_inline)) TARGET void NAME(dots_step)(const bool whole,
                                                                         const T *const *a,
                                                                         const T *const *x,
                                                                         int64_t p, int64_t left,
                                                                         V s[NAME(SUMS)]) {
  V y[NAME(BESIDE)];
#pragma GCC unroll 8
  for (int j = 0; j < NAME(BESIDE); j++)
    y[j] = whole ? LOAD(x[j] + p) : NAME(load_first)(x[j] + p, left);
#pragma GCC unroll 8
  for (int i = 0; i < DOTS; i++) {
    V v = whole ? LOAD(a[i] + p) : NAME(load_first)(a[i] + p, left);
#pragma GCC unroll 8
    for (int j = 0; j < NAME(BESIDE); j++)
      s[i * NAME(BESIDE) + j] = FMA(v, y[j], s[i * NAME(BESIDE) + j]);
  }
}
static __attribute__((noinline)) TARGET void NAME(dots_abreast)(const T *const *a,
                                                                const T *const *x, int64_t k,
                                                                T sums[NAME(SUMS)]) {
  V s[NAME(SUMS)];
  int64_t p = 0;
#pragma GCC unroll 16
  for (int i = 0; i < NAME(SUMS); i++) s[i] = SET(0);
  for (; p + L <= k; p += L) NAME(dots_step)(true, a, x, p, L, s);
  if (p < k) NAME(dots_step)(false, a, x, p, k - p, s);
#pragma GCC unroll 16
  for (int i = 0; i < NAME(ABREAST); i += L) {
    NAME(sum_lanes)(s + i);
    STORE(sums + i, s[i]);
  }
}
// Matrix times few vectors (the columns of B) where rows of A and the vectors are contiguous, and
// so long that their sums take little time. At the edges the last ones are taken again.
static TARGET void NAME(rows_times_vectors)(const px__gemm *g) {
  T *c = g->c, alpha = NUMBER(g->alpha), beta = NUMBER(g->beta), sums[NAME(SUMS)];
  const T *s = g->beta != 0 ? g->s : NULL, *from[DOTS], *x[NAME(BESIDE)];
  int64_t work = 0;
  for (int64_t i = 0; i < g->m && !px__worked(&work, DOTS * g->k); i += DOTS) {
    for (int64_t r = 0; r < DOTS; r++)
      from[r] = (const T *)g->a + (i + r < g->m ? i + r : g->m - 1) * g->ar;
    for (int64_t j = 0; j < g->n; j += NAME(BESIDE)) {
      for (int64_t q = 0; q < NAME(BESIDE); q++)
        x[q] = (const T *)g->b + (j + q < g->n ? j + q : g->n - 1) * g->bc;
      NAME(dots_abreast)(from, x, g->k, sums);
      for (int64_t r = 0; r < DOTS && i + r < g->m; r++)
        for (int64_t q = 0; q < NAME(BESIDE) && j + q < g->n; q++) {
          T sum = alpha * sums[r * NAME(BESIDE) + q];
          c[(i + r) * g->cr + (j + q) * g->cc] =
              s ? sum + beta * s[(i + r) * g->sr + (j + q) * g->sc] : sum;
        }
    }
  }
}
// Matrix times vectors (the columns of B) where rows of A and the vectors are contiguous.
static TARGET void NAME(rows_times_vector)(const px__gemm *g) {
  T *c = g->c, alpha = NUMBER(g->alpha), beta = NUMBER(g->beta), sums[DOTS];
  const T *s = g->beta != 0 ? g->s : NULL, *from[DOTS];
  int64_t work = 0;
  for (int64_t i = 0; i < g->m && !px__worked(&work, DOTS * g->k); i += DOTS) {
    int rows = g->m - i < DOTS ? (int)(g->m - i) : DOTS;
    for (int r = 0; r < rows; r++)
      from[r] = (const T *)g->a + NAME(row_at)(g->a_rows, g->ar, i + r);
    for (int64_t j = 0; j < g->n; j++) {
      const T *x = (const T *)g->b + j * g->bc;
      if (rows == DOTS)
        NAME(dots)(DOTS, from, x, g->k, sums);
      else
        for (int r = 0; r < rows; r++) NAME(dots)(1, from + r, x, g->k, sums + r);
      for (int r = 0; r < rows; r++) {
        T sum = alpha * sums[r];
        c[(i + r) * g->cr + j * g->cc] = s ? sum + beta * s[(i + r) * g->sr + j * g->sc] : sum;
      }
    }
  }
}

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
  return x->pa + (x->g->b_rows ? row : (row + R - 1) / R * R) * x->kc;
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
  return g->n <= 2 * L && g->ac == 1 && !g->a_rows && !g->a_columns && !g->b_rows;
}
// Has the first tiles of a panel of B fetch the next one, a vector of each row at a time: it is
// packed soon, and its rows may lie apart. Others fetch what they have.
static TARGET void NAME(fetch_next)(const NAME(cell) * x, int64_t row, int64_t col, const T *panel,
                                    NAME(target) * t) {
  const px__gemm *g = x->g;
  int64_t tile = row / R, next = col + 2 * L;
  bool packs = x->i == 0 && g->bc == 1 && !g->packed && !g->b_rows && !g->b_half;
  t->next = panel, t->step = 0;
  if (!packs || tile >= 2 || next + 2 * L > x->nc) return;
  t->next = (const T *)g->b + x->p * g->br + x->j + next + tile * L, t->step = g->br;
}
// Gives the number of its rows.
static TARGET int NAME(one_tile)(const NAME(cell) * x, int64_t row, int64_t col, const T *panel) {
  int cols = x->nc - col < 2 * L ? (int)(x->nc - col) : 2 * L, rows = NAME(rows_from)(x, row);
  NAME(target) t = NAME(target_of)(x->g, x->i + row, x->j + col, x->p == 0);
  const T *a = NAME(panel_of)(x, row);
  t.ahead = NAME(AHEAD);
#ifndef WHOLE
  if (x->g->b_rows) {
    const T *b = (const T *)x->g->b + x->j + col;
    NAME(tile_apart)(rows, cols, x->kc, a, b, x->g->b_rows + x->p, &t);
    return rows;
  }
  if (NAME(spread)(x->g)) {
    NAME(one_spread)(x, &x->tiles[row], col, cols, panel);
    return rows;
  }
#endif
  if (NAME(once)(x->g)) {
    const T *lines = (const T *)x->g->a + (x->i + row) * x->g->ar + x->p;
    NAME(tile_direct)(rows, cols, x->kc, lines, x->g->ar, 1, panel, 2 * L, &t);
  } else if (rows == R && cols > L) {
    NAME(fetch_next)(x, row, col, panel, &t);
    NAME(tile_packed)(cols, x->kc, a, panel, &t);
  } else {
    NAME(tile_direct)(rows, cols, x->kc, a, 1, R, panel, 2 * L, &t);
  }
  return rows;
}
// Of a short k, which is one block, nearly all time goes into writing C: it is written row by row.
static TARGET void NAME(by_rows)(const NAME(cell) * x) {
  const T *panels = x->g->packed ? (const T *)x->g->packed + x->j * x->kc : x->pb;
  for (int64_t row = 0; row < x->mc; row += NAME(rows_from)(x, row))
    for (int64_t col = 0; col < x->nc; col += 2 * L)
      NAME(one_tile)(x, row, col, panels + col * x->kc);
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
    if (x->i == 0 && !packed && !g->b_rows) NAME(pack_b)(g, x->p, x->kc, x->j + col, cols, own);
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
  int64_t blocks = (g->k + most - 1) / most, depth = (g->k + blocks - 1) / blocks;
  int64_t wide = g->n < NAME(NC) ? (g->n + 2 * L - 1) / (2 * L) * 2 * L : NAME(NC);
  int64_t panels = g->m <= NAME(MC) && g->k > SHALLOW ? 2 * L : wide;
  // Packing a panel of A may store beyond its end.
  size_t bytes = (size_t)(depth * (panels + NAME(MC) + R)) * sizeof(T);
  T *room = aligned_alloc(64, (bytes + 127) / 64 * 64);
  if (!room) return false;
  NAME(cell) x = {.g = g, .pa = room + depth * panels, .pb = room, .tiles = tiles};
  for (x.j = 0; x.j < g->n; x.j += NAME(NC))
    for (x.p = 0; x.p < g->k; x.p += depth)
      for (x.i = 0; x.i < g->m && !px__cpu_stopped(); x.i += NAME(MC)) {
        x.mc = NAME(side)(g->m, x.i, NAME(MC));
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
#undef NUMBER
#undef NAME
