// SPDX-License-Identifier: Apache-2.0
// bfloat16 products in hardware with float sums: by tiles (AMX) or by pairs (AVX512-BF16).
//
// Both read the same panels. k is divided into blocks of STEP. A strip of A is two halves of HALF
// rows; a half is a row of HALF x STEP blocks. A panel of B has SIDE columns, with pairs of
// consecutive k adjacent. Edges are zero-filled. Contiguous rows of A are read directly if they are
// whole cache lines or C is narrow. An element of C is one chain over all of k, whatever its
// position in a tile.
#include "cpu/threads/buffer.h"
#include "cpu/threads/cache_line.h"
#include "cpu/gemm/gemm_tiles.h"
#include "cpu/vector/fp16_bf16.h"
#include "cpu/vector/simd.h"
#include "cpu/threads/threads.h"

#include <stdlib.h>

#if defined(__AVX2__) && (defined(__clang__) || __GNUC__ >= 11)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum {
  HALF = 16,      // rows of a half strip; rows of an AMX tile
  SIDE = 32,      // rows of a strip and columns of a panel
  STEP = 32,      // k of a block: 64 bytes
  KC = 16 * STEP  // k per pass over a strip
};
enum { PANEL = SIDE * STEP, STRIP = 2 * HALF * KC };  // elements, per block of k

enum { PACKED_TOGETHER = 8 };  // panels packed in one pass over rows of B
enum { GROUP = 8 };            // rows of C in registers
typedef uint16_t half32 __attribute__((vector_size(64)));
typedef uint32_t word16 __attribute__((vector_size(64)));

typedef struct strip {
  const uint16_t *half[2];
  int64_t row, step;  // strides of rows and of blocks of k, in elements
} strip;

// ---- kernels: sums (SIDE x SIDE) = or += a strip times a panel

// `c`: the target rows, `c_stride` bytes apart. Each step prefetches two of them: KC has as many
// steps as a tile has pairs of rows.
typedef void multiply(int rows, int cols, const strip *a, const uint16_t *b, int64_t steps,
                      float *sums, bool more, const char *c, int64_t c_stride);

INLINE void pairs(const int rows, const uint16_t *a, int64_t row, int64_t step, const uint16_t *b,
                  int64_t steps, float *sums, bool more) {
  __m512 acc[GROUP][2];
  for (int i = 0; i < rows; i++)
    for (int v = 0; v < 2; v++)
      acc[i][v] = more ? _mm512_loadu_ps(sums + i * SIDE + v * HALF) : _mm512_setzero_ps();
  for (int64_t s = 0; s < steps; s++, a += step)
    for (int q = 0; q < STEP; q += 2, b += 2 * SIDE) {
      __m512bh y0 = (__m512bh)_mm512_loadu_si512(b), y1 = (__m512bh)_mm512_loadu_si512(b + SIDE);
#pragma GCC unroll 8
      for (int i = 0; i < rows; i++) {
        int32_t pair;
        memcpy(&pair, a + i * row + q, sizeof pair);
        __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
        acc[i][0] = _mm512_dpbf16_ps(acc[i][0], x, y0);
        acc[i][1] = _mm512_dpbf16_ps(acc[i][1], x, y1);
      }
    }
  for (int i = 0; i < rows; i++)
    for (int v = 0; v < 2; v++) _mm512_storeu_ps(sums + i * SIDE + v * HALF, acc[i][v]);
}
static TARGET void multiply_pairs(int rows, int cols, const strip *a, const uint16_t *b,
                                  int64_t steps, float *sums, bool more, const char *c,
                                  int64_t c_stride) {
  for (int i = 0; i < rows; i += GROUP) {
    const uint16_t *from = a->half[i / HALF] + i % HALF * a->row;
    if (rows - i > 2)
      pairs(GROUP, from, a->row, a->step, b, steps, sums + i * SIDE, more);
    else
      pairs(2, from, a->row, a->step, b, steps, sums + i * SIDE, more);
  }
}

#define TILES \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")))
// Memory barrier: the compiler does not see the memory accesses of tile instructions.
#define MEMORY_BARRIER __asm__ volatile("" ::: "memory")

static inline __attribute__((always_inline)) TILES void tiles(const bool low, const bool right,
                                                              const strip *a, const uint16_t *b,
                                                              int64_t steps, float *sums, bool more,
                                                              const char *c, int64_t c_stride) {
  const uint16_t *a0 = a->half[0], *a1 = a->half[1];
  const int64_t row = a->row * 2, line = SIDE * 4;
  MEMORY_BARRIER;
  _tile_zero(0);
  if (right) _tile_zero(1);
  if (low) _tile_zero(2);
  if (low && right) _tile_zero(3);
  if (more) {
    _tile_loadd(0, sums, line);
    if (right) _tile_loadd(1, sums + HALF, line);
    if (low) _tile_loadd(2, sums + HALF * SIDE, line);
    if (low && right) _tile_loadd(3, sums + HALF * SIDE + HALF, line);
  }
  for (int64_t s = 0; s < steps; s++, a0 += a->step, a1 += a->step, b += PANEL) {
    for (int64_t i = 2 * s; i < 2 * s + 2; i++) __builtin_prefetch(c + i * c_stride, 1);
    _tile_loadd(4, a0, row);
    _tile_loadd(6, b, line);
    _tile_dpbf16ps(0, 4, 6);
    if (right) _tile_loadd(7, b + SIDE, line);
    if (right) _tile_dpbf16ps(1, 4, 7);
    if (low) _tile_loadd(5, a1, row);
    if (low) _tile_dpbf16ps(2, 5, 6);
    if (low && right) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, line);
  if (right) _tile_stored(1, sums + HALF, line);
  if (low) _tile_stored(2, sums + HALF * SIDE, line);
  if (low && right) _tile_stored(3, sums + HALF * SIDE + HALF, line);
  MEMORY_BARRIER;
}
static __attribute__((noinline)) TILES void multiply_tiles(int rows, int cols, const strip *a,
                                                           const uint16_t *b, int64_t steps,
                                                           float *sums, bool more, const char *c,
                                                           int64_t c_stride) {
  bool low = rows > HALF, right = cols > HALF;
  if (low && right)
    tiles(true, true, a, b, steps, sums, more, c, c_stride);
  else if (low)
    tiles(true, false, a, b, steps, sums, more, c, c_stride);
  else if (right)
    tiles(false, true, a, b, steps, sums, more, c, c_stride);
  else
    tiles(false, false, a, b, steps, sums, more, c, c_stride);
}
// Configures all eight tiles as HALF rows of 64 bytes.
static TILES void tiles_begin(void) {
  struct {
    uint8_t palette, start, unused[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } shape = {.palette = 1};
  for (int i = 0; i < 8; i++) shape.bytes[i] = 64, shape.rows[i] = HALF;
  MEMORY_BARRIER;
  _tile_loadconfig(&shape);
}
static TILES void tiles_end(void) { _tile_release(); }

// ---- packing

INLINE word16 low_words(word16 a, word16 b) {
  return PX_SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
INLINE word16 high_words(word16 a, word16 b) {
  return PX_SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
// Each round interleaves the first half of the rows with the second.
INLINE void transpose(word16 x[HALF]) {
#pragma GCC unroll 4
  for (int round = 1; round < HALF; round *= 2) {
    word16 y[HALF];
#pragma GCC unroll 8
    for (int i = 0; i < HALF / 2; i++) {
      y[2 * i] = low_words(x[i], x[i + HALF / 2]);
      y[2 * i + 1] = high_words(x[i], x[i + HALF / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < HALF; i++) x[i] = y[i];
  }
}
INLINE __mmask32 first(int64_t n) { return n >= 32 ? ~0u : (1u << n) - 1; }
INLINE half32 load_first(const uint16_t *p, int64_t n) {
  return (half32)_mm512_maskz_loadu_epi16(first(n), p);
}
// Interleaves two rows: the first half of the columns, and the second.
INLINE void pair_up(half32 a, half32 b, word16 *low, word16 *high) {
  *low = (word16)PX_SHUFFLE(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9,
                            41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47);
  *high = (word16)PX_SHUFFLE(a, b, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                             24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
}

static int64_t steps_of(int64_t k) { return px__ceil_div(k, STEP); }
static const uint16_t *row_of(const void *at, const int64_t *rows, int64_t stride, int64_t i) {
  return (const uint16_t *)at + (rows ? rows[i] : i * stride);
}

// Packs adjacent panels of B from column j, for contiguous rows: each row is read across all
// panels.
static TARGET void pack_b_rows(const px__gemm *g, int64_t j, int64_t cols, uint16_t *to) {
  const half32 none = {0};
  const int64_t panel = steps_of(g->k) * PANEL;
  for (int64_t p = 0, end = steps_of(g->k) * STEP; p < end; p += 2, to += 2 * SIDE) {
    const uint16_t *upper = p < g->k ? row_of(g->b, g->b_rows, g->br, p) + j : NULL;
    const uint16_t *lower = p + 1 < g->k ? row_of(g->b, g->b_rows, g->br, p + 1) + j : NULL;
    for (int64_t c = 0; c < cols; c += SIDE) {
      word16 low, high;
      pair_up(upper ? load_first(upper + c, cols - c) : none,
              lower ? load_first(lower + c, cols - c) : none, &low, &high);
      memcpy(to + c / SIDE * panel, &low, sizeof low);
      memcpy(to + c / SIDE * panel + SIDE, &high, sizeof high);
    }
  }
}
// Packs a panel of B with contiguous columns; and with arbitrary strides.
static TARGET void pack_b_columns(const px__gemm *g, int64_t j, int64_t cols, uint16_t *to) {
  for (int64_t p = 0; p < g->k; p += STEP, to += PANEL)
    for (int64_t side = 0; side < 2; side++) {
      word16 x[HALF] = {0};
      int64_t count = px__min_count(cols - side * HALF, HALF);
      for (int64_t i = 0; i < count; i++) {
        const uint16_t *from = row_of(g->b, g->b_columns, g->bc, j + side * HALF + i);
        x[i] = (word16)load_first(from + p, g->k - p);
      }
      if (count > 0) transpose(x);
      for (int q = 0; q < HALF; q++) memcpy(to + q * 2 * SIDE + side * STEP, &x[q], sizeof x[q]);
    }
}
static void pack_b_any(const px__gemm *g, int64_t j, int64_t cols, uint16_t *to) {
  memset(to, 0, (size_t)(steps_of(g->k) * PANEL) * sizeof *to);
  for (int64_t p = 0; p < g->k; p++) {
    const uint16_t *from = row_of(g->b, g->b_rows, g->br, p) + j * g->bc;
    for (int64_t i = 0; i < cols; i++) to[p / 2 * 2 * SIDE + i * 2 + p % 2] = from[i * g->bc];
  }
}
// Packs up to PACKED_TOGETHER panels of B.
static void pack_b(const px__gemm *g, int64_t j, int64_t cols, uint16_t *to) {
  if (g->bc == 1 && !g->b_columns) {
    pack_b_rows(g, j, cols, to);
    return;
  }
  for (; cols > 0; j += SIDE, cols -= SIDE, to += steps_of(g->k) * PANEL)
    (g->br == 1 && !g->b_rows ? pack_b_columns : pack_b_any)(g, j, px__min_count(cols, SIDE), to);
}

// Packs up to HALF rows of A from row i, for k in [p, p + kc): the same three cases.
static TARGET void pack_a_rows(const px__gemm *g, int64_t i, int64_t rows, int64_t p, int64_t kc,
                               uint16_t *to) {
  for (int64_t r = 0; r < HALF; r++) {
    const uint16_t *from = r < rows ? row_of(g->a, g->a_rows, g->ar, i + r) + p : NULL;
    for (int64_t q = 0; q < kc; q += STEP) {
      half32 x = {0};
      if (from) x = load_first(from + q, kc - q);
      memcpy(to + q * HALF + r * STEP, &x, sizeof x);
    }
  }
}
// Both halves of a strip at once: together they are whole cache lines.
static TARGET void pack_a_columns(const px__gemm *g, int64_t i, int64_t rows, int64_t p, int64_t kc,
                                  uint16_t *to) {
  const uint16_t *from = (const uint16_t *)g->a + i + p * g->ac;
  for (int64_t q = 0; q < kc; q += STEP, to += HALF * STEP) {
    word16 x[HALF], y[HALF];
    for (int64_t r = 0; r < HALF; r++) {
      half32 a = {0}, b = {0};
      if (q + 2 * r < kc) a = load_first(from + (q + 2 * r) * g->ac, rows);
      if (q + 2 * r + 1 < kc) b = load_first(from + (q + 2 * r + 1) * g->ac, rows);
      pair_up(a, b, &x[r], &y[r]);
    }
    transpose(x);
    memcpy(to, x, sizeof x);
    if (rows > HALF) {
      transpose(y);
      memcpy(to + HALF * KC, y, sizeof y);
    }
  }
}
static void pack_a_any(const px__gemm *g, int64_t i, int64_t rows, int64_t p, int64_t kc,
                       uint16_t *to) {
  memset(to, 0, (size_t)(steps_of(kc) * STEP * HALF) * sizeof *to);
  for (int64_t r = 0; r < rows; r++) {
    const uint16_t *from = row_of(g->a, g->a_rows, g->ar, i + r) + p * g->ac;
    for (int64_t q = 0; q < kc; q++)
      to[q / STEP * STEP * HALF + r * STEP + q % STEP] = from[q * g->ac];
  }
}
static void pack_a(const px__gemm *g, int64_t i, int64_t rows, int64_t p, int64_t kc,
                   uint16_t *to) {
  if (g->ac != 1 && g->ar == 1 && !g->a_rows) {
    pack_a_columns(g, i, rows, p, kc, to);
    return;
  }
  for (int64_t h = 0; h < rows; h += HALF, to += HALF * KC)
    (g->ac == 1 ? pack_a_rows : pack_a_any)(g, i + h, px__min_count(rows - h, HALF), p, kc, to);
}
// The strip of A from row i, for k in [p, p + kc); packed into `buffer` if needed.
static strip strip_of(const px__gemm *g, int64_t i, int64_t p, int64_t kc, uint16_t *buffer) {
  int64_t rows = px__min_count(g->m - i, 2 * HALF);
  const uint16_t *at = (const uint16_t *)g->a + i * g->ar + p;
  bool lines = g->ar % STEP == 0 && (uintptr_t)at % (STEP * sizeof *at) == 0;
  bool whole = g->ac == 1 && !g->a_rows && rows % HALF == 0 && kc % STEP == 0;
  if (whole && (lines || g->n <= BF16_MAX_UNPACKED_COLUMNS))
    return (strip){{at, at + HALF * g->ar}, g->ar, STEP};
  pack_a(g, i, rows, p, kc, buffer);
  return (strip){{buffer, buffer + HALF * KC}, STEP, HALF * STEP};
}

// ---- results

// C and S from one of their elements on; bfloat16, or float if `wide`.
typedef struct target {
  char *c;
  const char *s;
  int64_t cr, cc, sr, sc;
  float alpha, beta;
  bool wide;
} target;

static target target_of(const px__gemm *g, int64_t i, int64_t j) {
  int64_t item = g->c_float ? 4 : 2;
  bool add = g->s && g->beta != 0;
  return (target){.c = (char *)g->c + (i * g->cr + j * g->cc) * item,
                  .s = add ? (const char *)g->s + (i * g->sr + j * g->sc) * item : NULL,
                  .cr = g->cr,
                  .cc = g->cc,
                  .sr = g->sr,
                  .sc = g->sc,
                  .alpha = (float)g->alpha,
                  .beta = (float)g->beta,
                  .wide = g->c_float};
}
static void store_element(const target *t, int64_t i, int64_t j, float sum) {
  int64_t c = i * t->cr + j * t->cc, s = i * t->sr + j * t->sc;
  float x = sum * t->alpha;
  if (t->s)
    x += t->beta * (t->wide ? ((const float *)(const void *)t->s)[s]
                            : px__bfloat_load(((const uint16_t *)(const void *)t->s)[s]));
  if (t->wide)
    ((float *)(void *)t->c)[c] = x;
  else
    ((uint16_t *)(void *)t->c)[c] = px__bfloat_store(x);
}

// Elements of S for up to 16 columns from j of row i, masked by `mask`.
INLINE __m512 addends(const target *t, int64_t i, int64_t j, __mmask16 mask) {
  int64_t at = i * t->sr + j * t->sc;
  const float *wide = (const float *)(const void *)t->s + at;
  const uint16_t *half = (const uint16_t *)(const void *)t->s + at;
  if (t->wide) return t->sc ? _mm512_maskz_loadu_ps(mask, wide) : _mm512_set1_ps(*wide);
  if (!t->sc) return _mm512_set1_ps(px__bfloat_load(*half));
  __m512i words = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, half));
  return (__m512)_mm512_slli_epi32(words, 16);
}
// Stores full rows of sums times alpha.
static TARGET void store_full_rows(const target *t, int rows, const float *sums) {
  uint16_t *to = (uint16_t *)(void *)t->c;
  const __m512 alpha = _mm512_set1_ps(t->alpha);
  for (int i = 0; i < rows; i++, to += t->cr, sums += SIDE)
    for (int j = 0; j < SIDE; j += HALF) {
      __m512 x = _mm512_mul_ps(_mm512_loadu_ps(sums + j), alpha);
      _mm256_storeu_si256((__m256i *)(void *)(to + j), (__m256i)_mm512_cvtneps_pbh(x));
    }
}
static TARGET void store_rows(const target *t, int rows, int cols, const float *sums) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < cols; j += HALF) {
      __mmask16 mask = (__mmask16)first(cols - j);
      int64_t at = i * t->cr + j;
      __m512 x = _mm512_mul_ps(_mm512_loadu_ps(sums + i * SIDE + j), _mm512_set1_ps(t->alpha));
      if (t->s) x = _mm512_fmadd_ps(addends(t, i, j, mask), _mm512_set1_ps(t->beta), x);
      if (t->wide)
        _mm512_mask_storeu_ps((float *)(void *)t->c + at, mask, x);
      else
        _mm256_mask_storeu_epi16((uint16_t *)(void *)t->c + at, mask,
                                 (__m256i)_mm512_cvtneps_pbh(x));
    }
}
static TARGET void transpose_sums(const float *sums, float *to) {
  for (int i = 0; i < SIDE; i += HALF)
    for (int j = 0; j < SIDE; j += HALF) {
      word16 x[HALF];
      for (int r = 0; r < HALF; r++) memcpy(&x[r], sums + (i + r) * SIDE + j, sizeof x[r]);
      transpose(x);
      for (int r = 0; r < HALF; r++) memcpy(to + (j + r) * SIDE + i, &x[r], sizeof x[r]);
    }
}
static void store_tile(const target *t, int rows, int cols, const float *sums) {
  PX__BUFFER(float, transposed, SIDE *SIDE);
  if (t->cc == 1 && !t->s && !t->wide && cols == SIDE) {
    store_full_rows(t, rows, sums);
  } else if (t->cc == 1 && (!t->s || t->sc == 1 || t->sc == 0)) {
    store_rows(t, rows, cols, sums);
  } else if (t->cr == 1 && (!t->s || t->sr == 1 || t->sr == 0)) {
    target other = *t;
    other.cr = t->cc, other.cc = 1, other.sr = t->sc, other.sc = t->sr;
    transpose_sums(sums, transposed);
    store_rows(&other, cols, rows, transposed);
  } else {
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < cols; j++) store_element(t, i, j, sums[i * SIDE + j]);
  }
}

// ---- the product

static void scale(const px__gemm *g) {
  target t = target_of(g, 0, 0);
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->n; j++) store_element(&t, i, j, 0);
}

// Dot products of contiguous rows and vectors.
static TARGET void vectors(const px__gemm *g) {
  target t = target_of(g, 0, 0);
  const uint16_t *from[DOT_ROWS];
  int64_t work = 0;
  for (int64_t i = 0; i < g->m && !px__work_stopped(&work, DOT_ROWS * g->k); i += DOT_ROWS)
    for (int64_t j = 0; j < g->n; j++) {
      const uint16_t *x = (const uint16_t *)g->b + j * g->bc;
      __m512 acc[DOT_ROWS];
      for (int r = 0; r < DOT_ROWS; r++) {
        from[r] = row_of(g->a, g->a_rows, g->ar, px__min_count(i + r, g->m - 1));
        acc[r] = _mm512_setzero_ps();
      }
      for (int64_t p = 0; p < g->k; p += STEP) {
        __m512bh y = (__m512bh)load_first(x + p, g->k - p);
#pragma GCC unroll 8
        for (int r = 0; r < DOT_ROWS; r++)
          acc[r] = _mm512_dpbf16_ps(acc[r], (__m512bh)load_first(from[r] + p, g->k - p), y);
      }
      for (int r = 0; r < DOT_ROWS && i + r < g->m; r++)
        store_element(&t, i + r, j, _mm512_reduce_add_ps(acc[r]));
    }
}

// All of A times some packed panels of B.
typedef struct panels_block {
  const px__gemm *g;
  uint16_t *pa, *pb;
  float *sums;  // of a strip; one array per panel if k has several blocks
  int64_t j, panels;
  multiply *multiply;
} panels_block;

static void run_strip(const panels_block *x, int64_t i) {
  const px__gemm *g = x->g;
  int rows = (int)px__min_count(g->m - i, SIDE);
  for (int64_t p = 0; p < g->k; p += KC) {
    int64_t kc = px__min_count(g->k - p, KC);
    strip a = strip_of(g, i, p, kc, x->pa);
    for (int64_t panel = 0; panel < x->panels; panel++) {
      int64_t j = x->j + panel * SIDE;
      int cols = (int)px__min_count(g->n - j, SIDE);
      const uint16_t *b = x->pb + (panel * steps_of(g->k) + p / STEP) * PANEL;
      // With several blocks of k, each panel keeps its own sums between blocks.
      float *sums = x->sums + (g->k > KC ? panel * SIDE * SIDE : 0);
      target t = target_of(g, i, j);
      x->multiply(rows, cols, &a, b, steps_of(kc), sums, p > 0, t.c, t.cr * (t.wide ? 4 : 2));
      if (p + kc == g->k) store_tile(&t, rows, cols, sums);
    }
  }
}
static bool blocked(const px__gemm *g, multiply *by) {
  int64_t steps = steps_of(g->k), all = px__ceil_div(g->n, SIDE), work = 0;
  int64_t max = BF16_PACKED_BYTES / (steps * PANEL * 2);
  max = px__min_count(max < 1 ? 1 : px__min_count(max, BF16_MAX_PACKED_PANELS), all);
  size_t sums = (size_t)(max * SIDE * SIDE) * 4, panels = (size_t)(max * steps * PANEL) * 2;
  char *buffer = px__aligned_new(sums + panels + STRIP * 2);
  if (!buffer) return false;
  panels_block x = {.g = g, .sums = (float *)(void *)buffer, .multiply = by};
  x.pb = (uint16_t *)(void *)(buffer + sums), x.pa = (uint16_t *)(void *)(buffer + sums + panels);
  for (x.j = 0; x.j < g->n; x.j += max * SIDE) {
    x.panels = px__min_count(max, px__ceil_div(g->n - x.j, SIDE));
    for (int64_t i = 0, j = x.j; i < x.panels; i += PACKED_TOGETHER, j += PACKED_TOGETHER * SIDE)
      pack_b(g, j, px__min_count(g->n - j, px__min_count(x.panels - i, PACKED_TOGETHER) * SIDE),
             x.pb + i * steps * PANEL);
    for (int64_t i = 0; i < g->m && !px__work_stopped(&work, x.panels * SIDE * g->k); i += SIDE)
      run_strip(&x, i);
  }
  free(buffer);
  return true;
}
static bool blocked_pairs(const px__gemm *g) { return blocked(g, multiply_pairs); }
static bool blocked_tiles(const px__gemm *g) {
  tiles_begin();
  bool done = blocked(g, multiply_tiles);
  tiles_end();
  return done;
}

const px__tiles *px__tiles_bf16(void) {
  static const px__tiles by_pairs = {.rows = SIDE,
                                     .columns = SIDE,
                                     .item = 2,
                                     .scale = scale,
                                     .vector = vectors,
                                     .blocked = blocked_pairs,
                                     .thread_work = PX__THREAD_WORK,
                                     .max_thin_rows = SIDE},
                         by_tiles = {.rows = SIDE,
                                     .columns = SIDE,
                                     .item = 2,
                                     .scale = scale,
                                     .vector = vectors,
                                     .blocked = blocked_tiles,
                                     .thread_work = 8 * PX__THREAD_WORK,
                                     .max_thin_rows = SIDE};
  px_cpu_level level = px_cpu_level_used();
  return level >= PX_CPU_AMX ? &by_tiles : level >= PX_CPU_AVX512_BF16 ? &by_pairs : NULL;
}
#else
const px__tiles *px__tiles_bf16(void) { return NULL; }
#endif
