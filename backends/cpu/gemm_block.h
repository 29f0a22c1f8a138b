// SPDX-License-Identifier: Apache-2.0
// The blocked product for one element type; gemm.c includes it once for float and once for double.
//
// T is the element, V its vector, L the lanes of V, NAME(x) the name of x for this type. A tile of
// C is TILE_M rows by two vectors, held in registers. Small products read A and B where they lie
// (`direct`); large ones pack panels of B (KC x NC) and of A (MC x KC) so that a tile reads memory
// in order.

// acc = A(rows x k) * B(k x 2L); `rows` is a constant at each call. Rows of A are `ar` apart and
// its columns `ac`; rows of B are `br` apart and contiguous.
static inline __attribute__((always_inline)) void NAME(tile)(const int rows, int64_t k, const T *a,
                                                             int64_t ar, int64_t ac, const T *b,
                                                             int64_t br, V acc[TILE_M][2]) {
  V c[TILE_M][2];
  for (int i = 0; i < rows; i++) c[i][0] = c[i][1] = SET(0);
  for (int64_t p = 0; p < k; p++, a += ac, b += br) {
    V b0 = LOAD(b), b1 = LOAD(b + L);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
      V x = SET(a[i * ar]);
      c[i][0] = FMA(x, b0, c[i][0]);
      c[i][1] = FMA(x, b1, c[i][1]);
    }
  }
  for (int i = 0; i < rows; i++) acc[i][0] = c[i][0], acc[i][1] = c[i][1];
}

// One tile of packed panels.
static __attribute__((noinline)) void NAME(tile_packed)(int64_t k, const T *a, const T *b,
                                                        V acc[TILE_M][2]) {
  NAME(tile)(TILE_M, k, a, 1, TILE_M, b, 2 * L, acc);
}

// Writes the rows x cols corner of a tile: C = alpha * acc + beta * S (first), C += alpha * acc
// (later blocks of k).
static void NAME(put)(const px__gemm *g, int64_t i0, int64_t j0, int rows, int cols, bool first,
                      V acc[TILE_M][2]) {
  T alpha = (T)g->alpha, beta = first ? (T)g->beta : 1;
  const T *s = first ? (beta == 0 ? NULL : (const T *)g->s) : (const T *)g->c;
  int64_t sr = first ? g->sr : g->cr, sc = first ? g->sc : g->cc;
  bool plain = cols == 2 * L && g->cc == 1 && (!s || sc == 1 || sc == 0);
  for (int i = 0; i < rows; i++) {
    T *c = (T *)g->c + (i0 + i) * g->cr + j0 * g->cc;
    const T *from = s ? s + (i0 + i) * sr + j0 * sc : NULL;
    V r0 = acc[i][0] * alpha, r1 = acc[i][1] * alpha;
    if (plain) {
      if (from && sc)
        r0 += LOAD(from) * beta, r1 += LOAD(from + L) * beta;
      else if (from)
        r0 += SET(*from * beta), r1 += SET(*from * beta);
      STORE(c, r0);
      STORE(c + L, r1);
      continue;
    }
    T line[2 * L];
    STORE(line, r0);
    STORE(line + L, r1);
    for (int j = 0; j < cols; j++) c[j * g->cc] = from ? line[j] + from[j * sc] * beta : line[j];
  }
}

// Copies k x cols of B into a panel of width 2L, zeros beyond cols.
static void NAME(pack_b)(const T *b, int64_t br, int64_t bc, int64_t k, int cols, T *to) {
  if (bc == 1 && cols == 2 * L) {
    for (int64_t p = 0; p < k; p++, to += 2 * L) memcpy(to, b + p * br, 2 * L * sizeof(T));
    return;
  }
  if (cols < 2 * L) memset(to, 0, (size_t)k * 2 * L * sizeof(T));
  if (br == 1) {
    for (int j = 0; j < cols; j++)
      for (int64_t p = 0; p < k; p++) to[p * 2 * L + j] = b[p + j * bc];
    return;
  }
  for (int64_t p = 0; p < k; p++, to += 2 * L)
    for (int j = 0; j < cols; j++) to[j] = b[p * br + j * bc];
}
// Copies rows x k of A into a panel of TILE_M, column by column, zeros beyond rows.
static void NAME(pack_a)(const T *a, int64_t ar, int64_t ac, int64_t k, int rows, T *to) {
  if (rows < TILE_M) memset(to, 0, (size_t)k * TILE_M * sizeof(T));
  if (ac == 1) {
    for (int i = 0; i < rows; i++)
      for (int64_t p = 0; p < k; p++) to[p * TILE_M + i] = a[i * ar + p];
    return;
  }
  for (int64_t p = 0; p < k; p++, to += TILE_M)
    for (int i = 0; i < rows; i++) to[i] = a[i * ar + p * ac];
}

// A tile of a direct product, with fewer rows at the lower edge.
static __attribute__((noinline)) void NAME(tile_direct)(int rows, int64_t k, const T *a, int64_t ar,
                                                        int64_t ac, const T *b, int64_t br,
                                                        V acc[TILE_M][2]) {
  switch (rows) {
    case 1:
      NAME(tile)(1, k, a, ar, ac, b, br, acc);
      break;
    case 2:
      NAME(tile)(2, k, a, ar, ac, b, br, acc);
      break;
    case 3:
      NAME(tile)(3, k, a, ar, ac, b, br, acc);
      break;
    case 4:
      NAME(tile)(4, k, a, ar, ac, b, br, acc);
      break;
    case 5:
      NAME(tile)(5, k, a, ar, ac, b, br, acc);
      break;
    default:
      NAME(tile)(TILE_M, k, a, ar, ac, b, br, acc);
  }
}

// A product small enough for the nearest caches: one panel of B after the other, packed (into
// `room`, k * 2L elements) only if its columns are not contiguous.
static void NAME(direct)(const px__gemm *g, T *room) {
  const T *a = g->a, *b = g->b;
  for (int64_t j = 0; j < g->n; j += 2 * L) {
    int cols = g->n - j < 2 * L ? (int)(g->n - j) : 2 * L;
    const T *panel = b + j * g->bc;
    int64_t br = g->br;
    if (g->bc != 1 || cols < 2 * L) {
      NAME(pack_b)(panel, g->br, g->bc, g->k, cols, room);
      panel = room, br = 2 * L;
    }
    for (int64_t i = 0; i < g->m; i += TILE_M) {
      V acc[TILE_M][2];
      int rows = g->m - i < TILE_M ? (int)(g->m - i) : TILE_M;
      NAME(tile_direct)(rows, g->k, a + i * g->ar, g->ar, g->ac, panel, br, acc);
      NAME(put)(g, i, j, rows, cols, true, acc);
    }
  }
}

static T NAME(dot_row)(const T *a, const T *x, int64_t k) {
  V s0 = SET(0), s1 = SET(0);
  int64_t p = 0;
  for (; p + 2 * L <= k; p += 2 * L) {
    s0 = FMA(LOAD(a + p), LOAD(x + p), s0);
    s1 = FMA(LOAD(a + p + L), LOAD(x + p + L), s1);
  }
  s0 += s1;
  T sum = 0;
  for (int i = 0; i < L; i++) sum += s0[i];
  for (; p < k; p++) sum += a[p] * x[p];
  return sum;
}
// Matrix times vector (n = 1) where the rows of A and the vector are contiguous.
static void NAME(rows_times_vector)(const px__gemm *g) {
  const T *a = g->a, *x = g->b, *s = g->beta != 0 ? g->s : NULL;
  T *c = g->c, alpha = (T)g->alpha, beta = (T)g->beta;
  for (int64_t i = 0; i < g->m; i++) {
    T sum = alpha * NAME(dot_row)(a + i * g->ar, x, g->k);
    c[i * g->cr] = s ? sum + beta * s[i * g->sr] : sum;
  }
}

enum { NAME(KC) = 1024 / sizeof(T), NAME(MC) = 32 * TILE_M, NAME(NC) = 64 * 2 * L };

// All tiles of one packed block.
static void NAME(block)(const px__gemm *g, int64_t i0, int64_t mc, int64_t j0, int64_t nc,
                        int64_t kc, bool first, const T *pa, const T *pb) {
  for (int64_t j = 0; j < nc; j += 2 * L)
    for (int64_t i = 0; i < mc; i += TILE_M) {
      V acc[TILE_M][2];
      NAME(tile_packed)(kc, pa + i * kc, pb + j * kc, acc);
      int rows = mc - i < TILE_M ? (int)(mc - i) : TILE_M;
      int cols = nc - j < 2 * L ? (int)(nc - j) : 2 * L;
      NAME(put)(g, i0 + i, j0 + j, rows, cols, first, acc);
    }
}
static bool NAME(blocked)(const px__gemm *g) {
  T *pb = aligned_alloc(64, (size_t)NAME(KC) * (NAME(NC) + NAME(MC)) * sizeof(T));
  if (!pb) return false;
  T *pa = pb + (size_t)NAME(KC) * NAME(NC);
  const T *a = g->a, *b = g->b;
  for (int64_t j = 0; j < g->n; j += NAME(NC))
    for (int64_t p = 0; p < g->k; p += NAME(KC)) {
      int64_t nc = g->n - j < NAME(NC) ? g->n - j : NAME(NC);
      int64_t kc = g->k - p < NAME(KC) ? g->k - p : NAME(KC);
      for (int64_t q = 0; q < nc; q += 2 * L) NAME(pack_b)
      (b + p * g->br + (j + q) * g->bc, g->br, g->bc, kc, nc - q < 2 * L ? (int)(nc - q) : 2 * L,
       pb + q * kc);
      for (int64_t i = 0; i < g->m; i += NAME(MC)) {
        int64_t mc = g->m - i < NAME(MC) ? g->m - i : NAME(MC);
        for (int64_t q = 0; q < mc; q += TILE_M) NAME(pack_a)
        (a + (i + q) * g->ar + p * g->ac, g->ar, g->ac, kc,
         mc - q < TILE_M ? (int)(mc - q) : TILE_M, pa + q * kc);
        NAME(block)(g, i, mc, j, nc, kc, p == 0, pa, pb);
      }
    }
  free(pb);
  return true;
}
