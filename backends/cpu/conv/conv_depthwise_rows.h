// SPDX-License-Identifier: Apache-2.0
// Strips of conv_depthwise.c for one vector width (simd_names.h).
#include "cpu/vector/simd_names.h"

// A source row for the strip from column x0 on, zero-padded: used directly, or copied into `line`,
// whose padding is zero already.
static inline TARGET const float *NAME(source_row)(const depth_plane *p, int64_t y, int64_t x0,
                                                   int64_t length, float *line) {
  const float *from = p->source + y * p->width;
  int64_t left = x0 - p->left, low = left < 0 ? -left : 0;
  int64_t high = p->width - left < length ? p->width - left : length, i = low;
  if (low == 0 && high == length) return from + left;
  for (; i + L <= high; i += L) STORE(line + i, LOAD(from + left + i));
  if (high - low >= L)
    STORE(line + high - L, LOAD(from + left + high - L));
  else
    STORE_FIRST(line + low, LOAD_FIRST(from + left + low, high - low), high - low);
  return line;
}
// Adds a source row to the `size` result rows that read it. sums[rotation] belongs to the row that
// reads it by the kernel's first row; earlier result rows precede it cyclically.
static inline __attribute__((always_inline)) TARGET void NAME(add_row)(
    const int size, const int across, const int rotation, const float *line, const float *weight,
    V sums[MAX_KERNEL][2]) {
#pragma GCC unroll 8
  for (int x = 0; x < size; x++) {
    V v[2];
#pragma GCC unroll 2
    for (int i = 0; i < across; i++) v[i] = LOAD(line + x + i * L);
#pragma GCC unroll 8
    for (int y = 0; y < size; y++) {
      V w = SET(weight[y * size + x]);
#pragma GCC unroll 2
      for (int i = 0; i < across; i++)
        sums[(rotation - y + size) % size][i] = FMA(w, v[i], sums[(rotation - y + size) % size][i]);
    }
  }
}
// Stores a result row of the strip, and clears its sums for the next row.
static inline __attribute__((always_inline)) TARGET void NAME(end_row)(const depth_plane *p,
                                                                       const int across, int64_t y,
                                                                       int64_t x0, V sums[2]) {
  float *to = p->result + y * p->columns + x0;
  for (int i = 0; i < across && y >= p->y0; i++) {
    V sum = sums[i] + SET(p->bias);
    if (p->columns >= L)
      STORE(to + i * L, sum);
    else
      STORE_FIRST(to, sum, p->columns);
  }
#pragma GCC unroll 2
  for (int i = 0; i < across; i++) sums[i] = SET(0);
}
// The strip of `across` vectors from column x0; `size` and `across` are constants at each call.
static inline __attribute__((always_inline)) TARGET void NAME(strip)(const int size,
                                                                     const int across,
                                                                     const depth_plane *p,
                                                                     int64_t x0) {
  enum { LINE = 2 * L + MAX_KERNEL };
  float lines[2][LINE] = {{0}};
  V sums[MAX_KERNEL][2];
#pragma GCC unroll 8
  for (int i = 0; i < size; i++) sums[i][0] = sums[i][1] = SET(0);
  int64_t length = across * L + size - 1, y = p->y0 < p->top ? 0 : p->y0 - p->top;
  int64_t last = p->y1 - 1 - p->top + size - 1;
  const float *line = y < p->height ? NAME(source_row)(p, y, x0, length, lines[y & 1]) : NULL;
  for (;;) {
#define ROTATION(rotation) \
  if (rotation < size) { \
    if (y > last) return; \
    const float *next = NULL; \
    if (y + 1 < p->height) next = NAME(source_row)(p, y + 1, x0, length, lines[(y + 1) & 1]); \
    if (line) NAME(add_row)(size, across, rotation, line, p->weight, sums); \
    NAME(end_row)(p, across, y + p->top - (size - 1), x0, sums[(rotation + 1) % size]); \
    line = next, y++; \
  }
    ROTATION(0)
    ROTATION(1)
    ROTATION(2)
    ROTATION(3)
    ROTATION(4)
    ROTATION(5)
    ROTATION(6)
#undef ROTATION
  }
}
// Strips over all columns; the last strip overlaps its predecessor.
static inline __attribute__((always_inline)) TARGET void NAME(plane)(const int size,
                                                                     const int across,
                                                                     const depth_plane *p) {
  int64_t x = 0;
  while (across > 1 && p->columns >= across * L && x + L < p->columns) {
    if (x + across * L > p->columns) x = p->columns - across * L;
    NAME(strip)(size, across, p, x);
    x += across * L;
  }
  for (; x < p->columns; x += L) {
    if (x + L > p->columns && p->columns >= L) x = p->columns - L;
    NAME(strip)(size, 1, p, x);
  }
}
static __attribute__((noinline)) TARGET void NAME(plane_3)(const depth_plane *p) {
  NAME(plane)(3, 2, p);
}
static __attribute__((noinline)) TARGET void NAME(plane_5)(const depth_plane *p) {
  NAME(plane)(5, 2, p);
}
static __attribute__((noinline)) TARGET void NAME(plane_7)(const depth_plane *p) {
  NAME(plane)(7, L * sizeof(float) == 64 ? 2 : 1, p);
}

#include "cpu/vector/simd_names_end.h"
