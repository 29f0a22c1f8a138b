// SPDX-License-Identifier: Apache-2.0
// Part of gemm_block.h, except for integers: tiles with rows of A or B given by an offset table and
// read without packing.

// A tile of `rows` x `vectors` (constants at each call) that reads B directly. Past the last column
// it reads B's slack.
enum { NAME(MAX_FEW) = 24 };  // rows x vectors, max
static inline __attribute__((always_inline)) TARGET void NAME(few_tile)(const int rows,
                                                                        const int vectors,
                                                                        const px__gemm *g,
                                                                        int64_t i0, int64_t j0) {
  V acc[NAME(MAX_FEW)];
  const T *a = (const T *)g->a + i0 * g->ar, *b = (const T *)g->b + j0;
  NAME(tile)
  (rows, vectors, g->k, a, g->ar, g->ac, b, 0, g->b_rows, false, 0, NULL, 0, 0, false, 0, acc);
  NAME(target) t = NAME(target_of)(g, i0, j0, true);
  int cols = g->n - j0 < vectors * L ? (int)(g->n - j0) : vectors * L;
  NAME(store_tile)(&t, rows, cols, acc, vectors);
}
// A tile of a packed A, of which `rows` rows are stored, with rows of B read directly. Neighbouring
// output pixels see nearly the same input, so these rows share cache lines.
static __attribute__((noinline)) TARGET void NAME(tile_indirect_b)(int rows, int cols, int64_t k,
                                                                   const T *a, const T *b,
                                                                   const int64_t *at,
                                                                   const NAME(target) * t) {
  V acc[2 * NAME(INDIRECT_ROWS)];
  if (rows > NAME(INDIRECT_ROWS) / 2) NAME(tile)
  (NAME(INDIRECT_ROWS), 2, k, a, 1, NAME(INDIRECT_ROWS), b, 0, at, false, 0, NULL, 0, 0, false, 0,
   acc);
  else NAME(tile)(NAME(INDIRECT_ROWS) / 2, 2, k, a, 1, NAME(INDIRECT_ROWS), b, 0, at, false, 0,
                  NULL, 0, 0, false, 0, acc);
  NAME(store_tile)(t, rows, cols, acc, 2);
}
// A tile of rows of A at arbitrary offsets with a column table, and a packed B. `vectors` is a
// constant at each call.
static inline __attribute__((always_inline)) TARGET void NAME(tile_indirect_a)(
    const int vectors, int64_t k, const T *const a[NAME(INDIRECT_ROWS)], const int64_t *at,
    const T *b, V *acc) {
  V c[NAME(INDIRECT_ROWS)][2];
  for (int i = 0; i < NAME(INDIRECT_ROWS); i++) c[i][0] = c[i][1] = SET(0);
  for (int64_t p = 0; p < k; p++, b += 2 * L) {
    int64_t q = at[p];
    V y0 = LOAD(b), y1 = vectors > 1 ? LOAD(b + L) : y0;
#pragma GCC unroll 16
    for (int i = 0; i < NAME(INDIRECT_ROWS); i++) {
      V x = SET(a[i][q]);
      c[i][0] = FMA(x, y0, c[i][0]);
      if (vectors > 1) c[i][1] = FMA(x, y1, c[i][1]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < NAME(INDIRECT_ROWS); i++)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) acc[i * vectors + v] = c[i][v];
}
static __attribute__((noinline)) TARGET void NAME(store_indirect_a)(
    int rows, int cols, int64_t k, const T *const a[NAME(INDIRECT_ROWS)], const int64_t *at,
    const T *b, const NAME(target) * t) {
  V acc[2 * NAME(INDIRECT_ROWS)];
  for (int i = 0; i < rows; i++) {
    __builtin_prefetch(t->c + i * t->cr, 1);
    __builtin_prefetch(t->c + i * t->cr + L, 1);
  }
  if (cols > L)
    NAME(tile_indirect_a)(2, k, a, at, b, acc);
  else
    NAME(tile_indirect_a)(1, k, a, at, b, acc);
  NAME(store_tile)(t, rows, cols, acc, cols > L ? 2 : 1);
}
// A tile of two halves, each with `half` rows of A at distance `ar`, and a packed B. `half` and
// `vectors` are constants at each call. With this many rows there are not enough registers for one
// address per row.
enum { NAME(HALF_ROWS) = R / 2 };
static inline __attribute__((always_inline)) TARGET void NAME(tile_halves)(
    const int half, const int vectors, int cols, int64_t k, const T *const a[2], int64_t ar,
    const int64_t *at, const T *ahead, const T *b, const NAME(target) t[2]) {
  V c[2][NAME(HALF_ROWS) * 2], y[2];
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
    if (NAME(FETCH_AHEAD)) __builtin_prefetch(b + NAME(FETCH_AHEAD));
    if (NAME(FETCH_AHEAD) && vectors > 1) __builtin_prefetch(b + NAME(FETCH_AHEAD) + L);
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
  bool unscaled = t->unscaled && cols == vectors * L;
#pragma GCC unroll 2
  for (int h = 0; h < 2 && unscaled; h++)
    NAME(store_unscaled)(&t[h], half, vectors, false, 0, c[h]);
  if (unscaled) return;
  V buffer[2][NAME(HALF_ROWS) * 2];
#pragma GCC unroll 2
  for (int h = 0; h < 2; h++)
#pragma GCC unroll 16
    for (int i = 0; i < half * vectors; i++) buffer[h][i] = c[h][i];
  for (int h = 0; h < 2; h++) NAME(store_tile)(&t[h], half, cols, buffer[h], vectors);
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
  static NAME(halves) *const run_by_rows[][2] = {
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
  return run_by_rows[half - 1][cols > L];
}
#define FEW(rows, most) \
  static __attribute__((noinline)) TARGET void NAME(few_##rows)(const px__gemm *g, int64_t i) { \
    for (int64_t j = 0, work = 0; j < g->n && !px__work_stopped(&work, g->k);) { \
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
  static void (*const run_by_rows[])(const px__gemm *, int64_t) = {
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
  const int64_t most = sizeof run_by_rows / sizeof *run_by_rows, groups = px__ceil_div(g->m, most);
  for (int64_t i = 0; i < groups; i++) {
    int64_t from = g->m * i / groups, to = g->m * (i + 1) / groups;
    run_by_rows[to - from - 1](g, from);
  }
}
