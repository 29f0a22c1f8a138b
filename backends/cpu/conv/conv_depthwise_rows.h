// SPDX-License-Identifier: Apache-2.0
// Strips of conv_depth.c for one width of vectors, by the names of names.h.
#include "cpu/vector/simd_names.h"

// A row of sources for the strip from column x0 on, zeros outside of the image: where it lies, or
// copied into `line`, whose zeros are there.
static inline TARGET const float *NAME(line_of)(const depth_plane *p, int64_t y, int64_t x0,
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
// Adds what a row of sources gives to the `size` rows of results that see it; the one that is seen
// by the kernel's first row is `turn`-th in `sums`, and those before it follow backwards.
static inline __attribute__((always_inline)) TARGET void NAME(add_row)(
    const int size, const int across, const int turn, const float *line, const float *weight,
    V sums[MOST_SIZE][2]) {
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
        sums[(turn - y + size) % size][i] = FMA(w, v[i], sums[(turn - y + size) % size][i]);
    }
  }
}
// Writes a row of results of the strip, and begins the one that takes its place.
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
// The strip of `across` vectors from column x0 on; `size` and `across` are constants at each call.
static inline __attribute__((always_inline)) TARGET void NAME(strip)(const int size,
                                                                     const int across,
                                                                     const depth_plane *p,
                                                                     int64_t x0) {
  enum { LINE = 2 * L + MOST_SIZE };
  float lines[2][LINE] = {{0}};
  V sums[MOST_SIZE][2];
#pragma GCC unroll 8
  for (int i = 0; i < size; i++) sums[i][0] = sums[i][1] = SET(0);
  int64_t length = across * L + size - 1, y = p->y0 < p->top ? 0 : p->y0 - p->top;
  int64_t last = p->y1 - 1 - p->top + size - 1;
  const float *line = y < p->height ? NAME(line_of)(p, y, x0, length, lines[y & 1]) : NULL;
  for (;;) {
#define TURN(turn) \
  if (turn < size) { \
    if (y > last) return; \
    const float *next = NULL; \
    if (y + 1 < p->height) next = NAME(line_of)(p, y + 1, x0, length, lines[(y + 1) & 1]); \
    if (line) NAME(add_row)(size, across, turn, line, p->weight, sums); \
    NAME(end_row)(p, across, y + p->top - (size - 1), x0, sums[(turn + 1) % size]); \
    line = next, y++; \
  }
    TURN(0)
    TURN(1)
    TURN(2)
    TURN(3)
    TURN(4)
    TURN(5)
    TURN(6)
#undef TURN
  }
}
// Strips of all columns; the last one overlaps the one before it.
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
