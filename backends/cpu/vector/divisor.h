// SPDX-License-Identifier: Apache-2.0
// Integer division of rows by one divisor, through its reciprocal: the upper bits of a product are
// the quotient. Exact (Granlund and Montgomery, 1994): with l bits in d - 1 and N below the type's
// width, the reciprocal is 2^(N + l) / d rounded up, valid for numbers up to 2^N. Magnitudes are
// divided; negative numbers are complemented before and after.
#pragma once
#include "cpu/vector/loop_hints.h"
#include "phlox/backend.h"

#include <stdbool.h>
#include <stdint.h>

__extension__ typedef unsigned __int128 k_uint128;
enum { K_FEW_QUOTIENTS = 16 };  // min elements to compute a reciprocal

static inline int k_bits_below(uint64_t d) { return d > 1 ? 64 - __builtin_clzll(d - 1) : 0; }
// The shift keeps the upper 64 bits of a 128-bit product, so d = 1 has no int64 reciprocal.
static inline bool k_reciprocal_i32(int32_t d, uint32_t *by, int *shift) {
  if (d < 1) return false;
  *shift = 31 + k_bits_below((uint64_t)d);
  *by = (uint32_t)((((uint64_t)1 << *shift) + (uint64_t)d - 1) / (uint64_t)d);
  return true;
}
static inline bool k_reciprocal_i64(int64_t d, uint64_t *by, int *shift) {
  if (d < 2) return false;
  *shift = k_bits_below((uint64_t)d) - 1;
  *by = (uint64_t)((((k_uint128)1 << (*shift + 64)) + (k_uint128)d - 1) / (k_uint128)d);
  return true;
}
static inline uint32_t k_times_i32(uint32_t u, uint32_t by, int shift) {
  return (uint32_t)((uint64_t)u * by >> shift);
}
static inline uint64_t k_times_i64(uint64_t u, uint64_t by, int shift) {
  return (uint64_t)((k_uint128)u * by >> 64) >> shift;
}

// minus: the correction of the complement ~x = -1 - x of a negative x. 0: the quotient rounds down.
// s (-1): the magnitude is -x, and the quotient rounds to zero.
#define K_BY_ONE_LOOP(S, T, U, minus, result) \
  PX__CPU_INDEPENDENT for (int64_t k = 0; k < n; k++) { \
    U a = (U)from[k], s = (U)(from[k] < 0 ? -1 : 0); \
    U q = (k_times_##S((a ^ s) - (minus), by, shift) ^ s) - (minus); \
    to[k] = (T)(result); \
  }
// 64-bit products and their upper halves are not vectorizable.
#define K_VECTORS_i32 (px_cpu_level_used() >= PX_CPU_AVX512)
#define K_VECTORS_i64 false
#define K_BY_ONE_ROW(S, T, U, name, minus, result) \
  PX__CPU_WIDE static inline void k_##name##_by_one_wide_##S(T *to, const T *from, int64_t n, T d, \
                                                             U by, int shift) { \
    (void)d; \
    K_BY_ONE_LOOP(S, T, U, minus, result) \
  } \
  static inline bool k_##name##_by_one_##S(char *const *p, int64_t n) { \
    const T d = *(const T *)(const void *)p[2], *from = (const T *)(const void *)p[1]; \
    T *to = (T *)(void *)p[0]; \
    U by; \
    int shift; \
    if (n < K_FEW_QUOTIENTS || !k_reciprocal_##S(d, &by, &shift)) return false; \
    if (K_VECTORS_##S) \
      k_##name##_by_one_wide_##S(to, from, n, d, by, shift); \
    else \
      K_BY_ONE_LOOP(S, T, U, minus, result) \
    return true; \
  }
#define K_BY_ONE(S, T, U) \
  K_BY_ONE_ROW(S, T, U, floordiv, 0, q) \
  K_BY_ONE_ROW(S, T, U, remainder, 0, a - q * (U)d) \
  K_BY_ONE_ROW(S, T, U, truncdiv, s, q) \
  K_BY_ONE_ROW(S, T, U, fmod, s, a - q * (U)d)
K_BY_ONE(i32, int32_t, uint32_t)
K_BY_ONE(i64, int64_t, uint64_t)
