// SPDX-License-Identifier: Apache-2.0
// The blocked product for one element type and one width of vectors: gemm_tiles.c includes it once
// for each.
//
// T is the element, V its vector, L the lanes of V, NAME(x) the name of x, TARGET what a function
// needs to use V. A tile of C is TILE_M rows by two vectors, held in registers. Small products read
// A and B where they lie (`direct`); large ones pack panels of B (KC x 2L) and of A (KC x TILE_M)
// so that a tile reads memory in order. Every element of C is a chain of FMAs over k in blocks of
// KC, wherever in a tile it lies.

// acc = A(rows x k) * B(k x 2L); `rows` is a constant at each call. Rows of A are `ar` apart and
// its columns `ac`; rows of B are `br` apart and contiguous.
static inline __attribute__((always_inline)) TARGET void NAME(tile)(const int rows, int64_t k,
                                                                    const T *a, int64_t ar,
                                                                    int64_t ac, const T *b,
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

// Where a tile goes, and what is added to it: C = alpha * acc + beta * S; S NULL: nothing.
typedef struct NAME(target) {
  T *c;
  const T *s;
  int64_t cr, cc, sr, sc;
  T alpha, beta;
} NAME(target);

// The first block of k adds S, the later ones add to C.
static inline TARGET NAME(target)
    NAME(target_of)(const px__gemm *g, int64_t i, int64_t j, bool first) {
  NAME(target)
  t = {(T *)g->c + i * g->cr + j * g->cc, NULL, g->cr, g->cc, g->cr, g->cc, (T)g->alpha, 1};
  if (!first) {
    t.s = t.c;
  } else if (g->s && g->beta != 0) {
    t.s = (const T *)g->s + i * g->sr + j * g->sc;
    t.sr = g->sr, t.sc = g->sc, t.beta = (T)g->beta;
  }
  return t;
}

// A row of a whole tile.
static inline __attribute__((always_inline)) TARGET void NAME(put_row)(const NAME(target) * t,
                                                                       int i, V r0, V r1) {
  const T *s = t->s ? t->s + i * t->sr : NULL;
  r0 *= t->alpha, r1 *= t->alpha;
  if (s && t->sc)
    r0 += LOAD(s) * t->beta, r1 += LOAD(s + L) * t->beta;
  else if (s)
    r0 += SET(*s * t->beta), r1 += SET(*s * t->beta);
  STORE(t->c + i * t->cr, r0);
  STORE(t->c + i * t->cr + L, r1);
}
static inline TARGET bool NAME(plain)(const NAME(target) * t) {
  return t->cc == 1 && (!t->s || t->sc == 1 || t->sc == 0);
}

// Writes the rows x cols corner of a tile.
static TARGET void NAME(put)(const NAME(target) * t, int rows, int cols, V acc[TILE_M][2]) {
  for (int i = 0; i < rows; i++) {
    T line[2 * L], *c = t->c + i * t->cr;
    const T *s = t->s ? t->s + i * t->sr : NULL;
    STORE(line, acc[i][0] * t->alpha);
    STORE(line + L, acc[i][1] * t->alpha);
    for (int j = 0; j < cols; j++) c[j * t->cc] = s ? line[j] + s[j * t->sc] * t->beta : line[j];
  }
}

// One tile: `rows` is a constant at each call.
static inline __attribute__((always_inline)) TARGET void NAME(tile_rows)(const int rows, int cols,
                                                                         int64_t k, const T *a,
                                                                         int64_t ar, int64_t ac,
                                                                         const T *b, int64_t br,
                                                                         const NAME(target) * t) {
  V acc[TILE_M][2];
  bool whole = cols == 2 * L && NAME(plain)(t);
#pragma GCC unroll 8
  for (int i = 0; whole && i < rows; i++) __builtin_prefetch(t->c + i * t->cr, 1);
  NAME(tile)(rows, k, a, ar, ac, b, br, acc);
  if (!whole) {
    NAME(put)(t, rows, cols, acc);
    return;
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++) NAME(put_row)(t, i, acc[i][0], acc[i][1]);
}

// A tile of packed panels, but for the lower edge.
static __attribute__((noinline)) TARGET void NAME(tile_packed)(int cols, int64_t k, const T *a,
                                                               const T *b, const NAME(target) * t) {
  NAME(tile_rows)(TILE_M, cols, k, a, 1, TILE_M, b, 2 * L, t);
}

// A tile of any strides, with fewer rows at the lower edge.
static __attribute__((noinline)) TARGET void NAME(tile_direct)(int rows, int cols, int64_t k,
                                                               const T *a, int64_t ar, int64_t ac,
                                                               const T *b, int64_t br,
                                                               const NAME(target) * t) {
  switch (rows) {
    case 1:
      NAME(tile_rows)(1, cols, k, a, ar, ac, b, br, t);
      break;
    case 2:
      NAME(tile_rows)(2, cols, k, a, ar, ac, b, br, t);
      break;
    case 3:
      NAME(tile_rows)(3, cols, k, a, ar, ac, b, br, t);
      break;
    case 4:
      NAME(tile_rows)(4, cols, k, a, ar, ac, b, br, t);
      break;
    case 5:
      NAME(tile_rows)(5, cols, k, a, ar, ac, b, br, t);
      break;
    default:
      NAME(tile_rows)(TILE_M, cols, k, a, ar, ac, b, br, t);
  }
}

// ---- packing

// Transposes L x L elements in registers: each round interleaves the first half of the rows with
// the second.
static inline __attribute__((always_inline)) TARGET void NAME(transpose)(V x[L]) {
#pragma GCC unroll 8
  for (int round = 1; round < L; round *= 2) {
    V y[L];
#pragma GCC unroll 8
    for (int i = 0; i < L / 2; i++) {
      y[2 * i] = INTERLEAVE_LOW(x[i], x[i + L / 2]);
      y[2 * i + 1] = INTERLEAVE_HIGH(x[i], x[i + L / 2]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < L; i++) x[i] = y[i];
  }
}

// L columns of B that are contiguous each, into half a panel.
static TARGET void NAME(pack_columns)(const T *b, int64_t bc, int64_t k, T *to) {
  int64_t p = 0;
  for (; p + L <= k; p += L) {
    V x[L];
    for (int j = 0; j < L; j++) x[j] = LOAD(b + p + j * bc);
    NAME(transpose)(x);
    for (int j = 0; j < L; j++) STORE(to + (p + j) * 2 * L, x[j]);
  }
  for (; p < k; p++)
    for (int j = 0; j < L; j++) to[p * 2 * L + j] = b[p + j * bc];
}
// TILE_M rows of A that are contiguous each. Vectors stored past a column's end are overwritten by
// the next column; past the panel's end there must be room for one.
enum { NAME(GROUPS) = (TILE_M + L - 1) / L };
static TARGET void NAME(pack_rows)(const T *a, int64_t ar, int64_t k, T *to) {
  int64_t p = 0;
  for (; p + L <= k; p += L) {
    V x[NAME(GROUPS)][L];
    for (int g = 0; g < NAME(GROUPS); g++) {
      for (int i = 0; i < L; i++) {
        int row = g * L + i < TILE_M ? g * L + i : TILE_M - 1;
        x[g][i] = LOAD(a + row * ar + p);
      }
      NAME(transpose)(x[g]);
    }
    for (int i = 0; i < L; i++)
      for (int g = 0; g < NAME(GROUPS); g++) STORE(to + (p + i) * TILE_M + g * L, x[g][i]);
  }
  for (; p < k; p++)
    for (int i = 0; i < TILE_M; i++) to[p * TILE_M + i] = a[i * ar + p];
}

// Copies k x cols of B into a panel of width 2L, zeros beyond cols.
static TARGET void NAME(pack_b)(const T *b, int64_t br, int64_t bc, int64_t k, int cols, T *to) {
  if (bc == 1 && cols == 2 * L) {
    for (int64_t p = 0; p < k; p++, to += 2 * L) memcpy(to, b + p * br, 2 * L * sizeof(T));
    return;
  }
  if (cols < 2 * L) memset(to, 0, (size_t)k * 2 * L * sizeof(T));
  if (br == 1 && cols == 2 * L) {
    NAME(pack_columns)(b, bc, k, to);
    NAME(pack_columns)(b + L * bc, bc, k, to + L);
    return;
  }
  for (int64_t p = 0; p < k; p++, to += 2 * L)
    for (int j = 0; j < cols; j++) to[j] = b[p * br + j * bc];
}
// Copies rows x k of A into a panel of TILE_M, column by column, zeros beyond rows.
static TARGET void NAME(pack_a)(const T *a, int64_t ar, int64_t ac, int64_t k, int rows, T *to) {
  if (rows == TILE_M && ac == 1) {
    NAME(pack_rows)(a, ar, k, to);
    return;
  }
  if (rows == TILE_M && ar == 1) {
    for (int64_t p = 0; p < k; p++) memcpy(to + p * TILE_M, a + p * ac, TILE_M * sizeof(T));
    return;
  }
  memset(to, 0, (size_t)k * TILE_M * sizeof(T));
  for (int64_t p = 0; p < k; p++, to += TILE_M)
    for (int i = 0; i < rows; i++) to[i] = a[i * ar + p * ac];
}

// A product small enough for the nearest caches: one panel of B after the other, packed (into
// `room`, k * 2L elements) only if its columns are not contiguous.
static TARGET void NAME(direct)(const px__gemm *g, T *room) {
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
      int rows = g->m - i < TILE_M ? (int)(g->m - i) : TILE_M;
      NAME(target) t = NAME(target_of)(g, i, j, true);
      NAME(tile_direct)(rows, cols, g->k, a + i * g->ar, g->ar, g->ac, panel, br, &t);
    }
  }
}

static TARGET T NAME(dot_row)(const T *a, const T *x, int64_t k) {
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
static TARGET void NAME(rows_times_vector)(const px__gemm *g) {
  const T *a = g->a, *x = g->b, *s = g->beta != 0 ? g->s : NULL;
  T *c = g->c, alpha = (T)g->alpha, beta = (T)g->beta;
  for (int64_t i = 0; i < g->m; i++) {
    T sum = alpha * NAME(dot_row)(a + i * g->ar, x, g->k);
    c[i * g->cr] = s ? sum + beta * s[i * g->sr] : sum;
  }
}

enum { NAME(KC) = 1536 / sizeof(T), NAME(MC) = 32 * TILE_M, NAME(NC) = 64 * 2 * L };

// One block: mc x nc of C at (i, j), summed over kc of k from p. A is packed; a panel of B is
// packed right before its tiles by the first block that uses it, and kept if others follow.
typedef struct NAME(cell) {
  const px__gemm *g;
  T *pa, *pb;
  int64_t i, j, p, mc, nc, kc;
} NAME(cell);

static TARGET void NAME(tiles)(const NAME(cell) * x, int64_t col, const T *panel) {
  int cols = x->nc - col < 2 * L ? (int)(x->nc - col) : 2 * L;
  for (int64_t row = 0; row < x->mc; row += TILE_M) {
    int rows = x->mc - row < TILE_M ? (int)(x->mc - row) : TILE_M;
    NAME(target) t = NAME(target_of)(x->g, x->i + row, x->j + col, x->p == 0);
    const T *a = x->pa + row * x->kc;
    if (rows == TILE_M)
      NAME(tile_packed)(cols, x->kc, a, panel, &t);
    else
      NAME(tile_direct)(rows, cols, x->kc, a, 1, TILE_M, panel, 2 * L, &t);
  }
}

static TARGET void NAME(block)(const NAME(cell) * x) {
  const px__gemm *g = x->g;
  bool only = g->m <= NAME(MC);
  const T *a = (const T *)g->a + x->i * g->ar + x->p * g->ac;
  const T *b = (const T *)g->b + x->p * g->br + x->j * g->bc;
  for (int64_t row = 0; row < x->mc; row += TILE_M) {
    int rows = x->mc - row < TILE_M ? (int)(x->mc - row) : TILE_M;
    NAME(pack_a)(a + row * g->ar, g->ar, g->ac, x->kc, rows, x->pa + row * x->kc);
  }
  for (int64_t col = 0; col < x->nc; col += 2 * L) {
    int cols = x->nc - col < 2 * L ? (int)(x->nc - col) : 2 * L;
    T *panel = only ? x->pb : x->pb + col * x->kc;
    if (x->i == 0) NAME(pack_b)(b + col * g->bc, g->br, g->bc, x->kc, cols, panel);
    NAME(tiles)(x, col, panel);
  }
}

// A block's side from `at`.
static int64_t NAME(side)(int64_t whole, int64_t at, int64_t most) {
  return whole - at < most ? whole - at : most;
}

static TARGET bool NAME(blocked)(const px__gemm *g) {
  int64_t panels = g->m <= NAME(MC) ? 2 * L : NAME(NC);
  // Packing a panel of A may store beyond its end.
  T *room = aligned_alloc(64, (size_t)NAME(KC) * (size_t)(panels + NAME(MC)) * sizeof(T) + 64);
  if (!room) return false;
  NAME(cell) x = {.g = g, .pa = room + NAME(KC) * panels, .pb = room};
  for (x.j = 0; x.j < g->n; x.j += NAME(NC))
    for (x.p = 0; x.p < g->k; x.p += NAME(KC))
      for (x.i = 0; x.i < g->m; x.i += NAME(MC)) {
        x.mc = NAME(side)(g->m, x.i, NAME(MC));
        x.nc = NAME(side)(g->n, x.j, NAME(NC));
        x.kc = NAME(side)(g->k, x.p, NAME(KC));
        NAME(block)(&x);
      }
  free(room);
  return true;
}

#undef T
#undef V
#undef L
#undef LOAD
#undef STORE
#undef SET
#undef FMA
#undef INTERLEAVE_LOW
#undef INTERLEAVE_HIGH
#undef NAME
