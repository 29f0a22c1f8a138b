// SPDX-License-Identifier: Apache-2.0
// Matrix products: picks the way for each size (direct, blocked, the system's BLAS), splits large
// ones over the kernel threads, and converts what is neither float nor double.
//
// The result does not depend on the number of threads: a split cuts rows or columns of C, never the
// sums.
#include "cpu/gemm.h"
#include "cpu/half.h"
#include "cpu/simd.h"
#include "cpu/threads.h"

#include <stdlib.h>

enum { TILE_M = 6 };

#define T float
#define V vf
#define L VF
#define LOAD vf_load
#define STORE vf_store
#define SET vf_set
#define FMA vf_fma
#define NAME(x) x##_f32
#include "cpu/gemm_block.h"
#undef T
#undef V
#undef L
#undef LOAD
#undef STORE
#undef SET
#undef FMA
#undef NAME
#define T double
#define V vd
#define L VD
#define LOAD vd_load
#define STORE vd_store
#define SET vd_set
#define FMA vd_fma
#define NAME(x) x##_f64
#include "cpu/gemm_block.h"

// Elements of A and B up to which a product is direct, and of a panel of B on the stack.
enum { DIRECT_ELEMENTS = 48 * 1024, PANEL_BYTES = 32 * 1024 };
// Multiplications from which BLAS, and from which threads, are worth their start.
static const double blas_work = 256.0 * 256 * 256, thread_work = 64.0 * 64 * 64;

// k = 0: C = beta * S.
static void scale_only(const px__gemm *g, bool wide) {
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->n; j++) {
      int64_t c = i * g->cr + j * g->cc, s = i * g->sr + j * g->sc;
      if (wide)
        ((double *)g->c)[c] = g->s && g->beta != 0 ? ((const double *)g->s)[s] * g->beta : 0;
      else
        ((float *)g->c)[c] = g->s && g->beta != 0 ? ((const float *)g->s)[s] * (float)g->beta : 0;
    }
}

// The transposed problem, for a C whose columns are contiguous.
static px__gemm flipped(const px__gemm *g) {
  return (px__gemm){.m = g->n,
                    .n = g->m,
                    .k = g->k,
                    .a = g->b,
                    .ar = g->bc,
                    .ac = g->br,
                    .b = g->a,
                    .br = g->ac,
                    .bc = g->ar,
                    .c = g->c,
                    .cr = g->cc,
                    .cc = g->cr,
                    .s = g->s,
                    .sr = g->sc,
                    .sc = g->sr,
                    .alpha = g->alpha,
                    .beta = g->beta};
}

static bool serial(const px__gemm *g, bool wide) {
  size_t item = wide ? sizeof(double) : sizeof(float);
  int lanes = wide ? VD : VF;
  double work = (double)g->m * (double)g->n * (double)g->k;
  if (g->k == 0) return scale_only(g, wide), true;
  if (g->n == 1 && g->ac == 1 && g->br == 1)
    return wide ? rows_times_vector_f64(g) : rows_times_vector_f32(g), true;
  if (work >= blas_work && (wide ? px__blas_f64(g) : px__blas_f32(g))) return true;
  if (g->m * g->k + g->k * g->n > DIRECT_ELEMENTS ||
      (size_t)g->k * 2 * (size_t)lanes * item > PANEL_BYTES)
    return wide ? blocked_f64(g) : blocked_f32(g);
  char room[PANEL_BYTES] __attribute__((aligned(64)));
  if (wide)
    direct_f64(g, (double *)room);
  else
    direct_f32(g, (float *)room);
  return true;
}

typedef struct split {
  const px__gemm *g;
  bool wide, rows, failed;
} split;
enum { SPLIT_UNIT = 48 };  // a multiple of the tile's rows and columns
static void split_run(void *ctx, int64_t begin, int64_t end) {
  split *s = ctx;
  px__gemm g = *s->g;
  int64_t item = s->wide ? sizeof(double) : sizeof(float);
  int64_t from = begin * SPLIT_UNIT, whole = s->rows ? g.m : g.n;
  int64_t count = (end * SPLIT_UNIT < whole ? end * SPLIT_UNIT : whole) - from;
  if (s->rows) {
    g.m = count;
    g.a = (const char *)g.a + from * g.ar * item;
  } else {
    g.n = count;
    g.b = (const char *)g.b + from * g.bc * item;
  }
  g.c = (char *)g.c + from * (s->rows ? g.cr : g.cc) * item;
  if (g.s) g.s = (const char *)g.s + from * (s->rows ? g.sr : g.sc) * item;
  if (!serial(&g, s->wide)) __atomic_store_n(&s->failed, true, __ATOMIC_RELAXED);
}

static bool product(const px__gemm *given, bool wide, bool parallel) {
  px__gemm turned;
  const px__gemm *g = given;
  if (g->m == 0 || g->n == 0) return true;
  if ((g->cc != 1 && g->cr == 1) || (g->m == 1 && g->br == 1 && g->ac == 1) ||
      (g->n == 1 && g->m > 1 && g->ac != 1)) {
    turned = flipped(g);
    g = &turned;
  }
  double work = (double)g->m * (double)g->n * (double)g->k;
  if (!parallel || work < thread_work) return serial(g, wide);
  split s = {.g = g, .wide = wide, .rows = g->m > g->n};
  int64_t units = ((s.rows ? g->m : g->n) + SPLIT_UNIT - 1) / SPLIT_UNIT;
  // BLAS packs what a piece shares with the others anew, so its pieces are few.
  int64_t pieces = work >= blas_work ? 2 * (int64_t)px__cpu_thread_count() : units;
  px__cpu_parallel(units, (units + pieces - 1) / pieces, split_run, &s);
  return !s.failed;
}
bool px__gemm_f32(const px__gemm *g, bool parallel) { return product(g, false, parallel); }
bool px__gemm_f64(const px__gemm *g, bool parallel) { return product(g, true, parallel); }

// ---- integers: rows of C as sums of rows of B
#define INTEGER_PRODUCT(name, type, sum) \
  static void name(const px__gemm *g) { \
    const type *a = g->a, *b = g->b, *s = g->s; \
    type *c = g->c; \
    sum alpha = (sum)(int64_t)g->alpha, beta = (sum)(int64_t)g->beta; \
    for (int64_t i = 0; i < g->m; i++) \
      for (int64_t j = 0; j < g->n; j++) { \
        sum t = 0; \
        for (int64_t p = 0; p < g->k; p++) \
          t += (sum)a[i * g->ar + p * g->ac] * (sum)b[p * g->br + j * g->bc]; \
        t *= alpha; \
        if (s && beta) t += beta * (sum)s[i * g->sr + j * g->sc]; \
        c[i * g->cr + j * g->cc] = (type)t; \
      } \
  }
INTEGER_PRODUCT(product_u8, uint8_t, uint64_t)
INTEGER_PRODUCT(product_i8, int8_t, uint64_t)
INTEGER_PRODUCT(product_i16, int16_t, uint64_t)
INTEGER_PRODUCT(product_i32, int32_t, uint64_t)
INTEGER_PRODUCT(product_i64, int64_t, uint64_t)

// ---- half formats: operands widened into scratch
static float widen(int dtype, uint16_t bits) {
  return dtype == PX_FLOAT16 ? px__half_load(bits) : px__bfloat_load(bits);
}
static void widen_matrix(int dtype, float *to, const uint16_t *from, int64_t m, int64_t n,
                         int64_t r, int64_t c) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) to[i * n + j] = widen(dtype, from[i * r + j * c]);
}
static bool product_half(const px__gemm *g, int dtype, bool parallel) {
  size_t na = (size_t)(g->m * g->k), nb = (size_t)(g->k * g->n), nc = (size_t)(g->m * g->n);
  float *a = malloc((na + nb + nc) * sizeof(float) + 1), *b = a + na, *c = b + nb;
  if (!a) return false;
  bool add = g->s && g->beta != 0;
  widen_matrix(dtype, a, g->a, g->m, g->k, g->ar, g->ac);
  widen_matrix(dtype, b, g->b, g->k, g->n, g->br, g->bc);
  if (add) widen_matrix(dtype, c, g->s, g->m, g->n, g->sr, g->sc);
  px__gemm f = {.m = g->m,
                .n = g->n,
                .k = g->k,
                .a = a,
                .ar = g->k,
                .ac = 1,
                .b = b,
                .br = g->n,
                .bc = 1,
                .c = c,
                .cr = g->n,
                .cc = 1,
                .s = add ? c : NULL,
                .sr = g->n,
                .sc = 1,
                .alpha = g->alpha,
                .beta = add ? g->beta : 0};
  bool done = px__gemm_f32(&f, parallel);
  uint16_t *to = g->c;
  for (int64_t i = 0; done && i < g->m; i++)
    for (int64_t j = 0; j < g->n; j++)
      to[i * g->cr + j * g->cc] =
          dtype == PX_FLOAT16 ? px__half_store(c[i * g->n + j]) : px__bfloat_store(c[i * g->n + j]);
  free(a);
  return done;
}

bool px__gemm_any(const px__gemm *g, int dtype, bool parallel) {
  switch (dtype) {
    case PX_FLOAT32:
      return px__gemm_f32(g, parallel);
    case PX_FLOAT64:
      return px__gemm_f64(g, parallel);
    case PX_FLOAT16:
    case PX_BFLOAT16:
      return product_half(g, dtype, parallel);
    case PX_UINT8:
    case PX_BOOL:
      return product_u8(g), true;
    case PX_INT8:
      return product_i8(g), true;
    case PX_INT16:
      return product_i16(g), true;
    case PX_INT32:
      return product_i32(g), true;
    default:
      return product_i64(g), true;
  }
}
