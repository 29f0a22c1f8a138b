// SPDX-License-Identifier: Apache-2.0
// Max or min of contiguous elements: px__extreme_f32, _f64 and _i64. NaN is detected by unordered
// comparisons of pairs, cheaper than a selection.
#pragma once
#include "cpu/vector/simd.h"
#include "cpu/vector/loop_hints.h"

// The better of two elements, or of two vectors per lane; the second if either is NaN.
#define PX__BETTER(S, T, V, P) \
  static inline T px__better_##S(T x, T y, bool is_min) { \
    return (is_min ? x < y : x > y) ? x : y; \
  } \
  static inline V px__better_lanes_##S(V x, V y, bool is_min) { \
    return is_min ? P##_min(x, y) : P##_max(x, y); \
  }
PX__BETTER(f32, float, vf, vf)
PX__BETTER(f64, double, vd, vd)
PX__BETTER(i64, int64_t, vdi, vdi)

// Lanes of all ones if either operand is NaN.
static inline vfi px__nan_lanes_f32(vf x, vf y) { return (x != x) | (y != y); }
static inline vdi px__nan_lanes_f64(vd x, vd y) { return (x != x) | (y != y); }
static inline vdi px__nan_lanes_i64(vdi x, vdi y) { return (vdi){0}; }

// Returns the extreme of n >= 1 elements. *index receives the index of its first occurrence or a
// slightly smaller index. If an element is NaN, sets *has_nan and returns an arbitrary element.
#define PX__EXTREME(S, T, V, M, P) \
  static inline __attribute__((always_inline)) \
  T px__extreme_##S(const T *e, int64_t n, bool is_min, bool *has_nan, int64_t *index) { \
    enum { L = sizeof(V) / sizeof(T), STEP = 4 * L }; \
    T top = e[0], lane[L]; \
    *index = 0; \
    if (n < STEP) { \
      for (int64_t i = 0; i < n; i++) \
        *has_nan |= e[i] != e[i], top = px__better_##S(e[i], top, is_min); \
      return top; \
    } \
    V best = P##_load(e); \
    M p = {0}, q = {0}, from = {0}; \
    for (int64_t i = 0; i < n; i += STEP) { \
      int64_t at = i + STEP <= n ? i : n - STEP; /* the last elements may be read twice */ \
      V a = P##_load(e + at), b = P##_load(e + at + L); \
      V c = P##_load(e + at + 2 * L), d = P##_load(e + at + 3 * L); \
      p |= px__nan_lanes_##S(a, b), q |= px__nan_lanes_##S(c, d); \
      a = px__better_lanes_##S(a, b, is_min), c = px__better_lanes_##S(c, d, is_min); \
      a = px__better_lanes_##S(a, c, is_min); \
      M beats = is_min ? a < best : a > best, here = (M){0} + (__typeof__(from[0]))at; \
      best = px__better_lanes_##S(a, best, is_min), from = (beats & here) | (~beats & from); \
    } \
    *has_nan |= vfi_any((vfi)(p | q)); \
    memcpy(lane, &best, sizeof lane); \
    PX__CPU_UNROLLED for (int half = L / 2; half; half /= 2) \
        PX__CPU_UNROLLED for (int k = 0; k < half; k++) lane[k] = \
            px__better_##S(lane[k + half], lane[k], is_min); \
    *index = n; \
    for (int k = 0; k < L; k++) \
      *index = best[k] == lane[0] && from[k] < *index ? (int64_t)from[k] : *index; \
    return lane[0]; \
  }
PX__EXTREME(f32, float, vf, vfi, vf)
PX__EXTREME(f64, double, vd, vdi, vd)
PX__EXTREME(i64, int64_t, vdi, vdi, vdi)
