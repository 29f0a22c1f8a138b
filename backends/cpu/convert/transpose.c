// SPDX-License-Identifier: Apache-2.0
// Transposing copies. Dimensions are sorted by the target's strides and merged if both sides allow
// it. Tiles keep both sides in cache, and threads share bands of rows.
#include "cpu/convert/transpose.h"

#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/vector/simd.h"
#include "cpu/threads/threads.h"

typedef struct plan {
  int ndim;
  int64_t sizes[PX_MAX_DIMS], to[PX_MAX_DIMS], from[PX_MAX_DIMS];  // strides in elements
} plan;

static int64_t abs_stride(int64_t stride) { return stride < 0 ? -stride : stride; }

// True if dimension a belongs outside of b.
static bool is_outer(const plan *p, int a, int b) {
  int64_t x = abs_stride(p->to[a]), y = abs_stride(p->to[b]);
  return x != y ? x > y : abs_stride(p->from[a]) > abs_stride(p->from[b]);
}

static void swap_dims(plan *p, int a, int b) {
  int64_t n = p->sizes[a], t = p->to[a], f = p->from[a];
  p->sizes[a] = p->sizes[b], p->to[a] = p->to[b], p->from[a] = p->from[b];
  p->sizes[b] = n, p->to[b] = t, p->from[b] = f;
}

static void make_plan(plan *p, const px_operand *to, const px_operand *from) {
  p->ndim = 0;
  for (int d = 0; d < to->ndim; d++) {
    if (to->sizes[d] == 1) continue;
    p->sizes[p->ndim] = to->sizes[d];
    p->to[p->ndim] = to->strides[d], p->from[p->ndim++] = from->strides[d];
  }
  for (int i = 1; i < p->ndim; i++)
    for (int k = i; k > 0 && is_outer(p, k, k - 1); k--) swap_dims(p, k, k - 1);
  int n = 0;
  for (int d = 1; d < p->ndim; d++) {
    bool joins = p->to[n] == p->to[d] * p->sizes[d] && p->from[n] == p->from[d] * p->sizes[d];
    if (!joins) n++;
    p->sizes[n] = joins ? p->sizes[n] * p->sizes[d] : p->sizes[d];
    p->to[n] = p->to[d], p->from[n] = p->from[d];
  }
  if (p->ndim == 0) p->sizes[0] = p->to[0] = p->from[0] = 1;
  p->ndim = p->ndim ? n + 1 : 1;
}

// ---- tiles: the source is contiguous along a non-contiguous dimension of the target

enum {
  TILE = 32,                  // side, elements
  MAX_SINGLE_THREAD = 32768,  // max elements copied by the calling thread
  GRAIN = 16384               // grain of the pool, elements
};
#define TRANSPOSE(name, type) \
  static void name(char *to, int64_t ts, const char *from, int64_t fs, int64_t m, int64_t n) { \
    type *t = (type *)(void *)to; \
    const type *f = (const type *)(const void *)from; \
    for (int64_t i0 = 0; i0 < m; i0 += TILE) \
      for (int64_t k0 = 0; k0 < n; k0 += TILE) { \
        int64_t i1 = i0 + TILE < m ? i0 + TILE : m, k1 = k0 + TILE < n ? k0 + TILE : n; \
        for (int64_t i = i0; i < i1; i++) \
          for (int64_t k = k0; k < k1; k++) t[i * ts + k] = f[k * fs + i]; \
      } \
  }
TRANSPOSE(transpose1, uint8_t)
TRANSPOSE(transpose2_elements, uint16_t)
TRANSPOSE(transpose4, uint32_t)
TRANSPOSE(transpose8, uint64_t)
typedef struct wide {
  uint64_t half[2];
} wide;
TRANSPOSE(transpose16, wide)

// 2-byte elements: 8x8 blocks are transposed in registers; the edges by elements.
enum { BLOCK_SIDE = 8 };
typedef uint16_t block_row __attribute__((vector_size(2 * BLOCK_SIDE)));
static inline void transpose_block(uint16_t *to, int64_t ts, const uint16_t *from, int64_t fs) {
  block_row x[BLOCK_SIDE], y[BLOCK_SIDE];
  for (int k = 0; k < BLOCK_SIDE; k++) memcpy(&x[k], from + k * fs, sizeof x[k]);
    // Each round interleaves the first half of the rows with the second.
#pragma GCC unroll 4
  for (int round = 1; round < BLOCK_SIDE; round *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK_SIDE / 2; i++) {
      y[2 * i] = PX_SHUFFLE(x[i], x[i + BLOCK_SIDE / 2], 0, 8, 1, 9, 2, 10, 3, 11);
      y[2 * i + 1] = PX_SHUFFLE(x[i], x[i + BLOCK_SIDE / 2], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    memcpy(x, y, sizeof x);
  }
  for (int i = 0; i < BLOCK_SIDE; i++) memcpy(to + i * ts, &x[i], sizeof x[i]);
}
static void transpose2(char *to, int64_t ts, const char *from, int64_t fs, int64_t m, int64_t n) {
  uint16_t *t = (uint16_t *)(void *)to;
  const uint16_t *f = (const uint16_t *)(const void *)from;
  int64_t rows = m / BLOCK_SIDE * BLOCK_SIDE, columns = n / BLOCK_SIDE * BLOCK_SIDE;
  for (int64_t i = 0; i < rows; i += BLOCK_SIDE)
    for (int64_t k = 0; k < columns; k += BLOCK_SIDE)
      transpose_block(t + i * ts + k, ts, f + k * fs + i, fs);
  transpose2_elements(to + columns * 2, ts, from + columns * fs * 2, fs, rows, n - columns);
  transpose2_elements(to + rows * ts * 2, ts, from + rows * 2, fs, m - rows, n);
}

static void transpose(size_t item, char *to, int64_t ts, const char *from, int64_t fs, int64_t m,
                      int64_t n) {
  (item == 1   ? transpose1
   : item == 2 ? transpose2
   : item == 4 ? transpose4
   : item == 8 ? transpose8
               : transpose16)(to, ts, from, fs, m, n);
}

// True if the source is contiguous along another dimension than the target. Moves that dimension
// to the second-last position.
static bool is_transposed(plan *p) {
  int n = p->ndim, d = n - 2;
  if (n < 2 || p->to[n - 1] != 1 || p->from[n - 1] == 1) return false;
  while (d >= 0 && p->from[d] != 1) d--;
  if (d < 0) return false;
  swap_dims(p, d, n - 2);
  return true;
}

// ---- planes

typedef struct planes {
  plan p;
  int64_t bands;  // of TILE rows, in a plane
  size_t item;
  char *to;
  const char *from;
} planes;

// Rows [begin, end) of plane i of the outer dimensions.
static void run_plane(const planes *x, int64_t i, int64_t begin, int64_t end) {
  const plan *p = &x->p;
  int row = p->ndim - 2, last = row + 1;
  int64_t to = begin * p->to[row], from = begin * p->from[row];
  for (int d = row - 1; d >= 0; d--) {
    int64_t at = i % p->sizes[d];
    i /= p->sizes[d];
    to += at * p->to[d], from += at * p->from[d];
  }
  transpose(x->item, x->to + to * (int64_t)x->item, p->to[row], x->from + from * (int64_t)x->item,
            p->from[last], end - begin, p->sizes[last]);
}

// Bands are numbered across all planes.
static void run_bands(void *context, int64_t begin, int64_t end) {
  const planes *x = context;
  int64_t rows = x->p.sizes[x->p.ndim - 2];
  while (begin < end) {
    int64_t plane = begin / x->bands, first = begin % x->bands, rest = x->bands - first;
    int64_t count = rest < end - begin ? rest : end - begin, stop = (first + count) * TILE;
    run_plane(x, plane, first * TILE, stop < rows ? stop : rows);
    begin += count;
  }
}

bool px__cpu_copy_across(const px_operand *to, const px_operand *from) {
  planes x = {.to = to->data, .from = from->data};
  if (to->dtype != from->dtype) return false;
  make_plan(&x.p, to, from);
  if (!is_transposed(&x.p)) return false;
  x.item = px__cpu_item[to->dtype];
  int64_t rows = x.p.sizes[x.p.ndim - 2], bands = 1, total = 1;
  for (int d = 0; d < x.p.ndim; d++) total *= x.p.sizes[d];
  for (int d = 0; d < x.p.ndim - 2; d++) bands *= x.p.sizes[d];
  x.bands = px__ceil_div(rows, TILE);
  bands *= x.bands;
  if (total <= MAX_SINGLE_THREAD)
    run_bands(&x, 0, bands);
  else
    px__cpu_parallel(bands, GRAIN / (total / bands + 1) + 1, run_bands, &x);
  return true;
}
