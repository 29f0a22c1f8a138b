// SPDX-License-Identifier: Apache-2.0
// Part of gemm_block.h: dot products of contiguous rows of A and contiguous columns of B.

// sums[i] = dot(a[i], x) for a constant number of rows, two accumulators each.
static inline __attribute__((always_inline)) TARGET void NAME(dots)(const int rows,
                                                                    const T *const *a, const T *x,
                                                                    int64_t k, T *sums) {
  V s[DOT_ROWS][2];
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

// Horizontal sums of L vectors; lane i of s[0] receives the sum of s[i].
static inline __attribute__((always_inline)) TARGET void NAME(sum_lanes)(V s[L]) {
#pragma GCC unroll 8
  for (int half = L / 2; half > 0; half /= 2)
#pragma GCC unroll 16
    for (int i = 0; i < half; i++)
      s[i] = INTERLEAVE_LOW(s[i], s[i + half]) + INTERLEAVE_HIGH(s[i], s[i + half]);
}
// Tiles of DOT_ROWS x DOT_COLUMNS dot products, one accumulator each, over whole vectors.
enum {
  NAME(DOT_COLUMNS) = L * sizeof(T) == 64 ? 4 : 2,
  NAME(DOT_COUNT) = DOT_ROWS * NAME(DOT_COLUMNS)
};
enum { NAME(DOT_COUNT_PADDED) = (NAME(DOT_COUNT) + L - 1) / L * L };
// One step at offset p: L elements each, or the last `left`.
static inline __attribute__((always_inline)) TARGET void NAME(dots_step)(
    const bool whole, const T *const *a, const T *const *x, int64_t p, int64_t left,
    V s[NAME(DOT_COUNT_PADDED)]) {
  V y[NAME(DOT_COLUMNS)];
#pragma GCC unroll 8
  for (int j = 0; j < NAME(DOT_COLUMNS); j++)
    y[j] = whole ? LOAD(x[j] + p) : NAME(load_first)(x[j] + p, left);
#pragma GCC unroll 8
  for (int i = 0; i < DOT_ROWS; i++) {
    V v = whole ? LOAD(a[i] + p) : NAME(load_first)(a[i] + p, left);
#pragma GCC unroll 8
    for (int j = 0; j < NAME(DOT_COLUMNS); j++)
      s[i * NAME(DOT_COLUMNS) + j] = FMA(v, y[j], s[i * NAME(DOT_COLUMNS) + j]);
  }
}
static __attribute__((noinline)) TARGET void NAME(dot_tile)(const T *const *a, const T *const *x,
                                                            int64_t k,
                                                            T sums[NAME(DOT_COUNT_PADDED)]) {
  V s[NAME(DOT_COUNT_PADDED)];
  int64_t p = 0;
#pragma GCC unroll 16
  for (int i = 0; i < NAME(DOT_COUNT_PADDED); i++) s[i] = SET(0);
  for (; p + L <= k; p += L) NAME(dots_step)(true, a, x, p, L, s);
  if (p < k) NAME(dots_step)(false, a, x, p, k - p, s);
#pragma GCC unroll 16
  for (int i = 0; i < NAME(DOT_COUNT); i += L) {
    NAME(sum_lanes)(s + i);
    STORE(sums + i, s[i]);
  }
}
// Matrix times few vectors (columns of B); rows of A and vectors are contiguous and long, so the
// horizontal sums are cheap. At the edges the last row and column are repeated.
static TARGET void NAME(rows_times_vectors)(const px__gemm *g) {
  T *c = g->c, alpha = NUMBER(g->alpha), beta = NUMBER(g->beta), sums[NAME(DOT_COUNT_PADDED)];
  const T *s = g->beta != 0 ? g->s : NULL, *rows_at[DOT_ROWS], *x[NAME(DOT_COLUMNS)];
  int64_t work = 0;
  for (int64_t i = 0; i < g->m && !px__work_stopped(&work, DOT_ROWS * g->k); i += DOT_ROWS) {
    for (int64_t r = 0; r < DOT_ROWS; r++)
      rows_at[r] = (const T *)g->a + (i + r < g->m ? i + r : g->m - 1) * g->ar;
    for (int64_t j = 0; j < g->n; j += NAME(DOT_COLUMNS)) {
      for (int64_t q = 0; q < NAME(DOT_COLUMNS); q++)
        x[q] = (const T *)g->b + (j + q < g->n ? j + q : g->n - 1) * g->bc;
      NAME(dot_tile)(rows_at, x, g->k, sums);
      for (int64_t r = 0; r < DOT_ROWS && i + r < g->m; r++)
        for (int64_t q = 0; q < NAME(DOT_COLUMNS) && j + q < g->n; q++) {
          T sum = alpha * sums[r * NAME(DOT_COLUMNS) + q];
          c[(i + r) * g->cr + (j + q) * g->cc] =
              s ? sum + beta * s[(i + r) * g->sr + (j + q) * g->sc] : sum;
        }
    }
  }
}
// Matrix times vectors (columns of B); rows of A and vectors are contiguous.
static TARGET void NAME(rows_times_vector)(const px__gemm *g) {
  T *c = g->c, alpha = NUMBER(g->alpha), beta = NUMBER(g->beta), sums[DOT_ROWS];
  const T *s = g->beta != 0 ? g->s : NULL, *rows_at[DOT_ROWS];
  int64_t work = 0;
  for (int64_t i = 0; i < g->m && !px__work_stopped(&work, DOT_ROWS * g->k); i += DOT_ROWS) {
    int rows = g->m - i < DOT_ROWS ? (int)(g->m - i) : DOT_ROWS;
    for (int r = 0; r < rows; r++)
      rows_at[r] = (const T *)g->a + NAME(row_at)(g->a_rows, g->ar, i + r);
    for (int64_t j = 0; j < g->n; j++) {
      const T *x = (const T *)g->b + j * g->bc;
      if (rows == DOT_ROWS)
        NAME(dots)(DOT_ROWS, rows_at, x, g->k, sums);
      else
        for (int r = 0; r < rows; r++) NAME(dots)(1, rows_at + r, x, g->k, sums + r);
      for (int r = 0; r < rows; r++) {
        T sum = alpha * sums[r];
        c[(i + r) * g->cr + j * g->cc] = s ? sum + beta * s[(i + r) * g->sr + j * g->sc] : sum;
      }
    }
  }
}
