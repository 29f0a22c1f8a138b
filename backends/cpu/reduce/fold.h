// SPDX-License-Identifier: Apache-2.0
// Reductions: macros for the generated folds, and their driver.
//
// Elements of type T are combined in lanes of T, and blocks in a wider type D (double for float,
// also for complex), in an order that depends on the shapes only: results do not depend on the
// number of threads. Inputs of other dtypes are converted in blocks. fp16 and bf16 sums load a few
// floats at a time and equal the sums in float bit for bit.
#pragma once
#include "cpu/reduce/extreme.h"
#include "cpu/vector/fp16_bf16.h"
#include "cpu/vector/math.h"
#include "cpu/vector/simd.h"
#include "cpu/vector/loop_hints.h"

enum {
  PX__CPU_LANES = 16,   // accumulators
  PX__CPU_FEW = 8,      // elements merged at a time in short rows
  PX__CPU_BLOCK = 1024  // elements combined in T
};

typedef void (*px__cpu_fold_rows)(void *wide, const char *rows, int64_t step, int64_t count,
                                  int64_t n);
typedef struct px__cpu_fold {
  int dtype, wide;  // dtypes of T and D
  void (*identity)(void *wide, int64_t n);
  // wide[i] combines the n contiguous elements of row i; `count` rows are `step` bytes apart.
  px__cpu_fold_rows rows;
  // narrow[i] combines element i of `count` rows, `step` bytes apart, in order. `widen` merges
  // narrow[i] into wide[i] and resets it.
  px__cpu_fold_rows columns;
  void (*widen)(void *wide, void *narrow, int64_t n);
  void (*clear)(void *narrow, int64_t n);
  void (*merge)(void *wide, const void *other, int64_t n);
  void (*finish)(void *wide, int64_t n, int64_t count, const px_launch *l);
  // For float16 and bfloat16; NULL: inputs are converted to T first.
  px__cpu_fold_rows half_rows[2], half_columns[2];
} px__cpu_fold;

// Operands: the result, with stride 0 in the reduced dimensions, and the input. `folds` is indexed
// by element type: int64, float32, float64, complex; NULL if the op does not support it.
px_status px__cpu_fold_run(const px_launch *l, const px__cpu_fold *const *folds);

#define PX__WIDE_u8 PX_INT64
#define PX__WIDE_i32 PX_INT64
#define PX__WIDE_i64 PX_INT64
#define PX__WIDE_f32 PX_FLOAT64
#define PX__WIDE_f64 PX_FLOAT64
#define PX__WIDE_c64 PX_COMPLEX128
#define PX__WIDE_c128 PX_COMPLEX128
#define PX__NARROW_u8 PX_UINT8
#define PX__NARROW_i32 PX_INT32
#define PX__NARROW_i64 PX_INT64
#define PX__NARROW_f32 PX_FLOAT32
#define PX__NARROW_f64 PX_FLOAT64
#define PX__NARROW_c64 PX_COMPLEX64
#define PX__NARROW_c128 PX_COMPLEX128

// Loads two vectors of floats: in the cheapest lane order, whose store restores the order; and in
// memory order.
static inline void px__half_load_two(vf two[2], const uint16_t *e) {
#if defined(__F16C__) && defined(__AVX2__)
  two[0] = (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)e));
  two[1] = (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(e + VF)));
#else
  float x[2 * VF];
  px__half_load_many(x, e, 2 * VF);
  two[0] = vf_load(x), two[1] = vf_load(x + VF);
#endif
}
static inline void px__half_load_in_order(vf two[2], const uint16_t *e) {
  px__half_load_two(two, e);
}
static inline void px__bfloat_load_in_order(vf two[2], const uint16_t *e) {
#if defined(__AVX2__)
  for (int i = 0; i < 2; i++) {
    __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(e + i * VF));
    two[i] = (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
  }
#else
  float x[2 * VF];
  for (int i = 0; i < 2 * VF; i++) x[i] = px__bfloat_load(e[i]);
  two[0] = vf_load(x), two[1] = vf_load(x + VF);
#endif
}
static inline void px__half_store_two(float *to, const vf two[2]) {
  vf_store(to, two[0]), vf_store(to + VF, two[1]);
}
static inline void px__bfloat_load_two(vf two[2], const uint16_t *e) {
  vfi both;
  memcpy(&both, e, sizeof both);
  two[0] = (vf)(both << 16), two[1] = (vf)(both & ~0xffff);
}
static inline void px__bfloat_store_two(float *to, const vf two[2]) {
  for (int i = 0; i < VF; i++) to[2 * i] = two[0][i], to[2 * i + 1] = two[1][i];
}

// Built from identity_, map_, combine_ (on T) and merge_, finish_ (on D). If combine_ selects
// between floats, gcc emits branches unless the loop over lanes stays rolled (_CHOICE). If it is
// k_max or k_min of the elements themselves, it uses vectors (_EXTREME).
#define PX__CPU_FOLD(NAME, S, T, D) \
  PX__CPU_FOLD_LANES(PX__CPU_UNROLLED, NAME, S, T, D) \
  PX__CPU_FOLD_BY(4, NAME, S, T, D, {NULL}, {NULL})
// Float with a vector operator OP; includes fp16 and bf16.
#define PX__CPU_FOLD_HALVES(NAME, S, T, D, OP) \
  PX__CPU_FOLD_LANES(PX__CPU_UNROLLED, NAME, S, T, D) \
  PX__CPU_FOLD_HALF(NAME, half, OP) \
  PX__CPU_FOLD_HALF(NAME, bfloat, OP) \
  PX__CPU_FOLD_BY(4, NAME, S, T, D, {fold_rows_##NAME##_half, fold_rows_##NAME##_bfloat}, \
                  {fold_columns_##NAME##_half, fold_columns_##NAME##_bfloat})
#define PX__CPU_FOLD_CHOICE(NAME, S, T, D) \
  PX__CPU_FOLD_LANES(PX__CPU_ROLLED, NAME, S, T, D) \
  PX__CPU_FOLD_BY(1, NAME, S, T, D, {NULL}, {NULL})
// Bytes, in any order: gcc vectorizes the plain loop.
#define PX__CPU_FOLD_BYTES(NAME, S, T, D) \
  static D fold_block_##NAME##_##S(const T *e, int64_t n) { \
    T all = (T)identity_##NAME##_##S(); \
    for (int64_t i = 0; i < n; i++) all = combine_##NAME##_##S(all, map_##NAME##_##S(e[i])); \
    return (D)all; \
  } \
  PX__CPU_FOLD_BY(4, NAME, S, T, D, {NULL}, {NULL})
#define PX__CPU_FOLD_EXTREME(NAME, S, T, D, LEAST) \
  static D fold_block_##NAME##_##S(const T *e, int64_t n) { \
    bool has_nan = false; \
    int64_t place; \
    T top = px__extreme_##S(e, n, LEAST, &has_nan, &place); \
    for (int64_t i = 0; has_nan && i < n; i++) top = combine_##NAME##_##S(top, e[i]); \
    return (D)top; \
  } \
  PX__CPU_FOLD_BY(4, NAME, S, T, D, {NULL}, {NULL})
#define PX__CPU_FOLD_LANES(LOOP, NAME, S, T, D) \
  static D fold_block_##NAME##_##S(const T *e, int64_t n) { \
    T lane[PX__CPU_LANES]; \
    D sum = identity_##NAME##_##S(); \
    int64_t i = 0; \
    if (n < PX__CPU_LANES) { \
      for (; i + PX__CPU_FEW <= n; i += PX__CPU_FEW) { \
        D pairs[PX__CPU_FEW]; \
        PX__CPU_UNROLLED for (int k = 0; k < PX__CPU_FEW; k++) pairs[k] = \
            (D)map_##NAME##_##S(e[i + k]); \
        PX__CPU_UNROLLED for (int half = PX__CPU_FEW / 2; half; half /= 2) \
            PX__CPU_UNROLLED for (int k = 0; k < half; k++) pairs[k] = \
                merge_##NAME##_##S(pairs[k], pairs[k + half]); \
        sum = merge_##NAME##_##S(sum, pairs[0]); \
      } \
      for (; i < n; i++) sum = merge_##NAME##_##S(sum, (D)map_##NAME##_##S(e[i])); \
      return sum; \
    } \
    PX__CPU_UNROLLED for (int k = 0; k < PX__CPU_LANES; k++) lane[k] = (T)sum; \
    for (; i + PX__CPU_LANES <= n; i += PX__CPU_LANES) \
      LOOP for (int k = 0; k < PX__CPU_LANES; k++) lane[k] = \
          combine_##NAME##_##S(lane[k], map_##NAME##_##S(e[i + k])); \
    for (int k = 0; i < n; i++, k++) \
      lane[k] = combine_##NAME##_##S(lane[k], map_##NAME##_##S(e[i])); \
    PX__CPU_FOLD_JOINED(NAME, S, D) \
  }
#define PX__CPU_FOLD_JOINED(NAME, S, D) \
  D all[PX__CPU_LANES]; \
  PX__CPU_UNROLLED for (int k = 0; k < PX__CPU_LANES; k++) all[k] = (D)lane[k]; \
  PX__CPU_UNROLLED for (int half = PX__CPU_LANES / 2; half; half /= 2) \
      PX__CPU_UNROLLED for (int k = 0; k < half; k++) all[k] = \
          merge_##NAME##_##S(all[k], all[k + half]); \
  return all[0];
// Folds rows of T into sums of D, by blocks of S; merges with M's function.
#define PX__CPU_FOLD_ROWS(NAME, S, M, T, D) \
  static void fold_rows_##NAME##_##S(void *wide, const char *rows, int64_t step, int64_t count, \
                                     int64_t n) { \
    for (D *sum = wide; count > 0; count--, sum++, rows += step) { \
      const T *e = (const T *)(const void *)rows; \
      for (int64_t i = 0; i < n; i += PX__CPU_BLOCK) { \
        int64_t some = n - i < PX__CPU_BLOCK ? n - i : PX__CPU_BLOCK; \
        *sum = merge_##NAME##_##M(*sum, fold_block_##NAME##_##S(e + i, some)); \
      } \
    } \
  }
#define PX__CPU_FOLD_HALF(NAME, H, OP) \
  static double fold_block_##NAME##_##H(const uint16_t *e, int64_t n) { \
    enum { V = PX__CPU_LANES / VF }; \
    float lane[PX__CPU_LANES], at[PX__CPU_LANES]; \
    vf v[V]; \
    int64_t i = 0; \
    if (n < PX__CPU_LANES) { \
      for (; i < n; i++) at[i] = px__##H##_load(e[i]); \
      return fold_block_##NAME##_f32(at, n); \
    } \
    PX__CPU_UNROLLED for (int k = 0; k < V; k++) v[k] = vf_set((float)identity_##NAME##_f32()); \
    for (; i + PX__CPU_LANES <= n; i += PX__CPU_LANES) \
      PX__CPU_UNROLLED for (int k = 0; k < V; k += 2) { \
        vf two[2]; \
        px__##H##_load_two(two, e + i + k * VF); \
        v[k] = v[k] OP two[0], v[k + 1] = v[k + 1] OP two[1]; \
      } \
    PX__CPU_UNROLLED for (int k = 0; k < V; k += 2) px__##H##_store_two(lane + k * VF, v + k); \
    for (int k = 0; i < n; i++, k++) \
      lane[k] = combine_##NAME##_f32(lane[k], px__##H##_load(e[i])); \
    PX__CPU_FOLD_JOINED(NAME, f32, double) \
  } \
  PX__CPU_FOLD_ROWS(NAME, H, f32, uint16_t, double) \
  static inline void fold_some_##NAME##_##H(float *a, const char *rows, int64_t step, int count, \
                                            int64_t n) { \
    int64_t i = 0; \
    for (; i + 2 * VF <= n; i += 2 * VF) { \
      vf x = vf_load(a + i), y = vf_load(a + i + VF), two[2]; \
      for (int k = 0; k < count; k++) { \
        px__##H##_load_in_order(two, (const uint16_t *)(const void *)(rows + k * step) + i); \
        x = x OP two[0], y = y OP two[1]; \
      } \
      vf_store(a + i, x), vf_store(a + i + VF, y); \
    } \
    for (; i < n; i++) \
      for (int k = 0; k < count; k++) { \
        const uint16_t *e = (const uint16_t *)(const void *)(rows + k * step); \
        a[i] = combine_##NAME##_f32(a[i], px__##H##_load(e[i])); \
      } \
  } \
  static void fold_columns_##NAME##_##H(void *narrow, const char *rows, int64_t step, \
                                        int64_t count, int64_t n) { \
    for (; count >= 4; count -= 4, rows += 4 * step) \
      fold_some_##NAME##_##H(narrow, rows, step, 4, n); \
    for (; count > 0; count--, rows += step) fold_some_##NAME##_##H(narrow, rows, step, 1, n); \
  }
// `ROWS_AT_ONCE` rows (4 or 1) are combined at a time. The variadic part: the fp16 and bf16
// functions.
#define PX__CPU_FOLD_BY(ROWS_AT_ONCE, NAME, S, T, D, ...) \
  static void fold_identity_##NAME##_##S(void *wide, int64_t n) { \
    for (int64_t i = 0; i < n; i++) ((D *)wide)[i] = identity_##NAME##_##S(); \
  } \
  static void fold_clear_##NAME##_##S(void *narrow, int64_t n) { \
    for (int64_t i = 0; i < n; i++) ((T *)narrow)[i] = (T)identity_##NAME##_##S(); \
  } \
  PX__CPU_FOLD_ROWS(NAME, S, S, T, D) \
  static void fold_columns_##NAME##_##S(void *narrow, const char *rows, int64_t step, \
                                        int64_t count, int64_t n) { \
    T *a = narrow; \
    for (; ROWS_AT_ONCE == 4 && count >= 4; count -= 4, rows += 4 * step) { \
      const T *e = (const T *)(const void *)rows, *f = (const T *)(const void *)(rows + step); \
      const T *g = (const T *)(const void *)(rows + 2 * step); \
      const T *h = (const T *)(const void *)(rows + 3 * step); \
      PX__CPU_INDEPENDENT for (int64_t i = 0; i < n; i++) { \
        T x = combine_##NAME##_##S(a[i], map_##NAME##_##S(e[i])); \
        x = combine_##NAME##_##S(x, map_##NAME##_##S(f[i])); \
        x = combine_##NAME##_##S(x, map_##NAME##_##S(g[i])); \
        a[i] = combine_##NAME##_##S(x, map_##NAME##_##S(h[i])); \
      } \
    } \
    for (; count > 0; count--, rows += step) { \
      const T *e = (const T *)(const void *)rows; \
      PX__CPU_INDEPENDENT for (int64_t i = 0; i < n; i++) a[i] = \
          combine_##NAME##_##S(a[i], map_##NAME##_##S(e[i])); \
    } \
  } \
  static void fold_widen_##NAME##_##S(void *wide, void *narrow, int64_t n) { \
    for (int64_t i = 0; i < n; i++) \
      ((D *)wide)[i] = merge_##NAME##_##S(((D *)wide)[i], (D)((T *)narrow)[i]); \
    fold_clear_##NAME##_##S(narrow, n); \
  } \
  static void fold_merge_##NAME##_##S(void *wide, const void *other, int64_t n) { \
    PX__CPU_INDEPENDENT for (int64_t i = 0; i < n; i++)((D *)wide)[i] = \
        merge_##NAME##_##S(((D *)wide)[i], ((const D *)other)[i]); \
  } \
  static void fold_finish_##NAME##_##S(void *wide, int64_t n, int64_t count, const px_launch *l) { \
    for (int64_t i = 0; i < n; i++) \
      ((D *)wide)[i] = finish_##NAME##_##S(((D *)wide)[i], count, l); \
  } \
  static const px__cpu_fold fold_##NAME##_##S = {PX__NARROW_##S, \
                                                 PX__WIDE_##S, \
                                                 fold_identity_##NAME##_##S, \
                                                 fold_rows_##NAME##_##S, \
                                                 fold_columns_##NAME##_##S, \
                                                 fold_widen_##NAME##_##S, \
                                                 fold_clear_##NAME##_##S, \
                                                 fold_merge_##NAME##_##S, \
                                                 fold_finish_##NAME##_##S, \
                                                 __VA_ARGS__};
