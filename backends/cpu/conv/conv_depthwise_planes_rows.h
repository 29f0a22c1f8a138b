// SPDX-License-Identifier: Apache-2.0
// Line kernels of conv_depthwise_planes.c for one vector width (simd_names.h).
#include "cpu/vector/simd_names.h"

static TARGET void NAME(copy)(const float *from, int64_t n, float *to) {
  int64_t i = 0;
  for (; i + L <= n; i += L) STORE(to + i, LOAD(from + i));
  if (i < n) STORE_FIRST(to + i, LOAD_FIRST(from + i, n - i), n - i);
}
// Splits n elements into those at even and odd indices; there may be one odd element fewer, or
// none.
static TARGET void NAME(deinterleave)(const float *from, int64_t n, float *even, float *odd) {
  int64_t i = 0;
  for (; 2 * i < n; i += L) {
    int64_t left = n - 2 * i, some = left < L ? left : L;
    int64_t evens = (left + 1) / 2, odds = left / 2;
    V a = LOAD_FIRST(from + 2 * i, some), b = SET(0);
    if (left > L) b = LOAD_FIRST(from + 2 * i + L, left < 2 * L ? left - L : L);
    STORE_FIRST(even + i, EVEN(a, b), evens < L ? evens : L);
    STORE_FIRST(odd + i, ODD(a, b), odds < L ? odds : L);
  }
}
// The inverse: interleaves n elements. May read past the end of `even` and `odd`.
static TARGET void NAME(interleave)(const float *even, const float *odd, int64_t n, float *to) {
  for (int64_t i = 0; 2 * i < n; i += L) {
    V a = LOAD(even + i), b = LOAD(odd + i);
    int64_t left = n - 2 * i;
    STORE_FIRST(to + 2 * i, LOW(a, b), left < L ? left : L);
    if (left > L) STORE_FIRST(to + 2 * i + L, HIGH(a, b), left < 2 * L ? left - L : L);
  }
}

// `count` vectors of results; constant at each call.
static inline __attribute__((always_inline)) TARGET void NAME(sum_vectors)(
    const int count, const tap *taps, int64_t n, const float *weight, float bias,
    const float *source, float *to) {
  V sums[4];
#pragma GCC unroll 4
  for (int i = 0; i < count; i++) sums[i] = SET(0);
  for (int64_t t = 0; t < n; t++) {
    V w = SET(weight[taps[t].weight]);
    const float *from = source + taps[t].offset;
#pragma GCC unroll 4
    for (int i = 0; i < count; i++) sums[i] = FMA(w, LOAD(from + i * L), sums[i]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < count; i++) STORE(to + i * L, sums[i] + SET(bias));
}
// Sums over the taps for `length` elements, and up to L - 1 more.
static TARGET void NAME(sum)(const tap *taps, int64_t n, const float *weight, float bias,
                             const float *source, int64_t length, float *to) {
  int64_t i = 0, end = px__ceil_div(length, L) * L;
  for (; i + 4 * L <= end; i += 4 * L)
    NAME(sum_vectors)(4, taps, n, weight, bias, source + i, to + i);
  if (end - i == 3 * L)
    NAME(sum_vectors)(3, taps, n, weight, bias, source + i, to + i);
  else if (end - i == 2 * L)
    NAME(sum_vectors)(2, taps, n, weight, bias, source + i, to + i);
  else if (end - i == L)
    NAME(sum_vectors)(1, taps, n, weight, bias, source + i, to + i);
}

// Adds the products of `length` elements to the totals of TAP_GROUP taps, per lane.
static TARGET void NAME(multiply)(const tap *taps, const float *source, const float *grad,
                                  int64_t length, float totals[TAP_GROUP][MAX_LANES]) {
  V sums[TAP_GROUP];
#pragma GCC unroll 16
  for (int t = 0; t < TAP_GROUP; t++) sums[t] = SET(0);
  for (int64_t i = 0; i < length; i += L) {
    V g = LOAD(grad + i);
#pragma GCC unroll 16
    for (int t = 0; t < TAP_GROUP; t++)
      sums[t] = FMA(g, LOAD(source + taps[t].offset + i), sums[t]);
  }
#pragma GCC unroll 16
  for (int t = 0; t < TAP_GROUP; t++) STORE(totals[t], LOAD(totals[t]) + sums[t]);
}

#include "cpu/vector/simd_names_end.h"
