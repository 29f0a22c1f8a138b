// SPDX-License-Identifier: Apache-2.0
// Part of gemm_block.h: packing of A and B in the order in which tiles read them.

// Tile rows for indirect rows of B or columns of A.
enum { NAME(INDIRECT_ROWS) = R < 8 ? R : 8 };

// Transposes n x L elements in registers; n is a power of two and at most L. Each round interleaves
// the first half of the rows with the second. The columns are stored consecutively in x.
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

// Offset of a row or column, by its table or stride.
static inline TARGET int64_t NAME(row_at)(const int64_t *rows, int64_t stride, int64_t i) {
  return rows ? rows[i] : i * stride;
}
// Integers of 2 bytes have up to 32 lanes. An inlined transposition would take too much stack.
#ifdef INTEGERS
static __attribute__((noinline)) TARGET void NAME(transpose_all)(V *x) { NAME(transpose)(L, x); }
#else
static inline __attribute__((always_inline)) TARGET void NAME(transpose_all)(V *x) {
  NAME(transpose)(L, x);
}
#endif
// Packs L contiguous columns of B into half a panel; missing columns repeat the last one.
static TARGET void NAME(pack_columns)(const T *b, const int64_t *columns, int64_t bc, int64_t k,
                                      int64_t cols, T *to) {
  const T *from[L];
  int64_t p = 0;
  for (int j = 0; j < L; j++) from[j] = b + NAME(row_at)(columns, bc, j < cols ? j : cols - 1);
  for (; p + L <= k; p += L) {
    V x[L];
    for (int j = 0; j < L; j++) x[j] = LOAD(from[j] + p);
    NAME(transpose_all)(x);
    for (int j = 0; j < L; j++) STORE(to + (p + j) * 2 * L, x[j]);
  }
  for (; p < k; p++)
    for (int j = 0; j < L; j++) to[p * 2 * L + j] = from[j][p];
}
// Packs `rows` contiguous rows of A (constant at each call). A vector stored past a column's end is
// overwritten by the next column; `to` needs space for one vector past the panel's end.
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
      NAME(transpose_all)(x[g]);
    }
    for (int i = 0; i < L; i++)
      for (int g = 0; g * L < rows; g++) STORE(to + (p + i) * rows + g * L, x[g][i]);
  }
  for (; p < k; p++)
    for (int i = 0; i < rows; i++) to[p * rows + i] = a[i][p];
}

#ifdef LOAD_HALVES
// The same for a float16 B; missing columns repeat the last one.
static TARGET void NAME(pack_half_columns)(const uint16_t *b, int64_t bc, int64_t k, int64_t cols,
                                           T *to) {
  const uint16_t *from[L];
  int64_t p = 0;
  for (int64_t j = 0; j < L; j++) from[j] = b + (j < cols ? j : cols - 1) * bc;
  for (; p + L <= k; p += L) {
    V x[L];
    for (int j = 0; j < L; j++) x[j] = LOAD_HALVES(from[j] + p);
    NAME(transpose_all)(x);
    for (int j = 0; j < L; j++) STORE(to + (p + j) * 2 * L, x[j]);
  }
  for (; p < k; p++)
    for (int j = 0; j < L; j++) to[p * 2 * L + j] = px__half_load(from[j][p]);
}
// pack_a for a float16 A.
static __attribute__((noinline)) TARGET void NAME(pack_half_a)(const px__gemm *g, int64_t i0,
                                                               int rows, int64_t p0, int64_t k,
                                                               T *to) {
  enum { LINE = 128 };
  const uint16_t *a = (const uint16_t *)g->a + i0 * g->ar + p0 * g->ac;
  PX__BUFFER(T, room, R * LINE);
  const T *from[R];
  for (int i = 0; i < R; i++) from[i] = room + i * LINE;
  for (int64_t p = 0; p < k; p += LINE) {
    int64_t n = k - p < LINE ? k - p : LINE;
    for (int i = 0; i < R; i++) {
      const uint16_t *row = a + (i < rows ? i : rows - 1) * g->ar + p * g->ac;
      if (g->ac == 1)
        px__half_load_many(room + i * LINE, row, n);
      else
        for (int64_t q = 0; q < n; q++) room[i * LINE + q] = px__half_load(row[q * g->ac]);
    }
    NAME(pack_rows)(R, from, n, to + p * R);
  }
}
// pack_b for a float16 B; no offset tables.
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
// Rows of fewer than 2L contiguous elements, in whole vectors up to the end of B. Elements past the
// columns occupy lanes whose results are ignored.
static TARGET void NAME(pack_narrow)(const px__gemm *g, int64_t p0, int64_t k, int64_t j0, int cols,
                                     T *to) {
  const T *b = (const T *)g->b + p0 * g->br + j0;
  int64_t room = (g->k - 1 - p0) * g->br + g->n - j0, width = cols > L ? 2 * L : L;
  for (int64_t p = 0; p < k; p++, to += 2 * L, b += g->br) {
    if (p * g->br + width > room) {
      for (int j = 0; j < width; j++) to[j] = j < cols ? b[j] : 0;
      continue;
    }
    STORE(to, LOAD(b));
    if (width > L) STORE(to + L, LOAD(b + L));
  }
}
// Packs rows [p0, p0 + k) and `cols` columns from j0 of B into a panel of width 2L, zero-filled.
static TARGET void NAME(pack_b)(const px__gemm *g, int64_t p0, int64_t k, int64_t j0, int cols,
                                T *to) {
#ifdef LOAD_HALVES
  if (g->b_f16) {
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
  if (bc == 1 && !columns) {
    NAME(pack_narrow)(g, p0, k, j0, cols, to);
    return;
  }
  if (br == 1 && cols > L / 4) {
    NAME(pack_columns)(b, columns, bc, k, cols, to);
    if (cols <= L) return;
    if (columns) columns += L;
    NAME(pack_columns)(columns ? b : b + L * bc, columns, bc, k, cols - L, to + L);
    return;
  }
  if (cols < 2 * L) memset(to, 0, (size_t)k * 2 * L * sizeof(T));
  for (int64_t p = 0; p < k; p++, to += 2 * L)
    for (int j = 0; j < cols; j++) to[j] = b[p * br + NAME(row_at)(columns, bc, j)];
}
// Packs PANELS adjacent panels from column j0 of a B with contiguous rows; each row is read across
// all of them, so that memory is read in order.
enum { NAME(PANELS) = 8, NAME(ROWS_AHEAD) = 4 };
static TARGET void NAME(pack_panels)(const px__gemm *g, int64_t p0, int64_t k, int64_t j0, T *to) {
#ifdef LOAD_HALVES
  if (g->b_f16) {
    const uint16_t *half = (const uint16_t *)g->b + p0 * g->br + j0;
    for (int64_t p = 0; p < k; p++, half += g->br, to += 2 * L)
      for (int i = 0; i < 2 * NAME(PANELS); i++)
        STORE(to + i / 2 * 2 * L * k + i % 2 * L, LOAD_HALVES(half + i * L));
    return;
  }
#endif
  const T *b = (const T *)g->b + p0 * g->br + j0;
  for (int64_t p = 0; p < k; p++, b += g->br, to += 2 * L) {
    for (int j = 0; j < NAME(PANELS) * 2 * L; j += 64 / (int)sizeof(T))
      __builtin_prefetch(b + NAME(ROWS_AHEAD) * g->br + j);
    for (int i = 0; i < NAME(PANELS); i++) {
      STORE(to + i * 2 * L * k, LOAD(b + i * 2 * L));
      STORE(to + i * 2 * L * k + L, LOAD(b + i * 2 * L + L));
    }
  }
}
// Packs `rows` rows from i0 and k columns from p0 of A into a panel of height `high`, column by
// column. Missing rows are zero or repeat the last row.
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
#ifndef INTEGERS
// Copies a few elements, in overlapping 16-byte chunks.
static inline TARGET void NAME(copy_short)(const T *from, int n, T *to) {
  enum { PIECE = 16 / sizeof(T) };
  if (n < PIECE) {
    for (int i = 0; i < n; i++) to[i] = from[i];
    return;
  }
  for (int i = 0; i + PIECE <= n; i += PIECE) memcpy(to + i, from + i, 16);
  memcpy(to + n - PIECE, from + n - PIECE, 16);
}
// pack_a with a column table: adjacent rows are copied at once. Prefetches the elements after the
// last row.
static TARGET void NAME(pack_indirect_columns)(const px__gemm *g, int64_t i0, int rows, int64_t p0,
                                               int64_t k, T *to) {
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
        NAME(copy_short)(from[begin[i]] + at[p], begin[i + 1] - begin[i], to + begin[i]);
  }
}
#endif
static __attribute__((noinline)) TARGET void NAME(pack_tile)(const px__gemm *g, int64_t i0,
                                                             int rows, int64_t p0, int64_t k,
                                                             T *to) {
#ifndef INTEGERS
  if (g->a_columns) {
    NAME(pack_indirect_columns)(g, i0, rows, p0, k, to);
    return;
  }
#endif
#ifdef LOAD_HALVES
  if (g->a_f16) {
    NAME(pack_half_a)(g, i0, rows, p0, k, to);
    return;
  }
#endif
  NAME(pack_a)(R, g, i0, rows, p0, k, to);
}
#ifndef INTEGERS
static __attribute__((noinline)) TARGET void NAME(pack_indirect)(const px__gemm *g, int64_t i0,
                                                                 int rows, int64_t p0, int64_t k,
                                                                 T *to) {
  NAME(pack_a)(NAME(INDIRECT_ROWS), g, i0, rows, p0, k, to);
}
#endif

// Packs all of B, panel by panel.
static TARGET void NAME(pack_all)(const px__gemm *g, T *to) {
  for (int64_t j = 0; j < g->n; j += 2 * L)
    NAME(pack_b)(g, 0, g->k, j, g->n - j < 2 * L ? (int)(g->n - j) : 2 * L, to + j * g->k);
}
