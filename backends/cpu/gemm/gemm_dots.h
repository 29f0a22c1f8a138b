// SPDX-License-Identifier: Apache-2.0
// Part of gemm_block.h: rows times vectors that are contiguous both.

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
