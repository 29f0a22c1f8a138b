// SPDX-License-Identifier: Apache-2.0
// Moves of indexed elements: stored by element size, or combined by dtype. Strides and steps are in
// bytes.
#pragma once
#include "cpu/vector/fp16_bf16.h"
#include "cpu/vector/loop_hints.h"
#include "phlox/backend.h"

// Moves n elements of `from` along a line of `to`.
typedef void (*line_fn)(char *to, int64_t ts, const char *from, int64_t fs, int64_t n);
// Positions of indexed elements: number k is at base + k * stride + index[k] * step.
typedef struct positions {
  char *base;
  int64_t stride, step;
  const int64_t *index;
} positions;
// Moves n elements of `from` to `to`, in order: a later element sees earlier results.
typedef void (*scatter_fn)(const positions *to, const char *from, int64_t fs, int64_t n);
typedef struct moves {
  line_fn line;
  scatter_fn scatter;
} moves;

enum {
  PREFETCH_GROUP = 8,   // indices per cache line
  PREFETCH_AHEAD = 128  // prefetch distance, elements
};

// Separate loops for contiguous operands and for a broadcast element.
#define PUT(name, T, expr) \
  static void name##_line(char *to_, int64_t ts, const char *from_, int64_t fs, int64_t n) { \
    const int64_t item = sizeof(T); \
    T *t = (T *)(void *)to_; \
    const T *f = (const T *)(const void *)from_; \
    if (ts == item && fs == item) { \
      PX__CPU_INDEPENDENT for (int64_t k = 0; k < n; k++) { \
        T a = t[k], b = f[k]; \
        (void)a; \
        t[k] = (T)(expr); \
      } \
      return; \
    } \
    if (ts == item && fs == 0) { \
      const T b = *f; \
      for (int64_t k = 0; k < n; k++) { \
        T a = t[k]; \
        (void)a; \
        t[k] = (T)(expr); \
      } \
      return; \
    } \
    for (int64_t k = 0; k < n; k++) { \
      T *at = (T *)(void *)(to_ + k * ts), a = *at; \
      T b = *(const T *)(const void *)(from_ + k * fs); \
      (void)a; \
      *at = (T)(expr); \
    } \
  } \
  static void name##_scatter(const positions *to, const char *from, int64_t fs, int64_t n) { \
    const positions p = *to; \
    if (p.stride == 0 && p.step == sizeof(T) && fs == sizeof(T)) { \
      const T *f = (const T *)(const void *)from; \
      for (int64_t begin = 0; begin < n; begin += PREFETCH_GROUP) { \
        __builtin_prefetch(p.index + begin + PREFETCH_AHEAD); \
        __builtin_prefetch(f + begin + PREFETCH_AHEAD); \
        for (int64_t k = begin; k < n && k < begin + PREFETCH_GROUP; k++) { \
          T *at = (T *)(void *)p.base + p.index[k], a = *at, b = f[k]; \
          (void)a; \
          *at = (T)(expr); \
        } \
      } \
      return; \
    } \
    for (int64_t k = 0; k < n; k++) { \
      T *at = (T *)(void *)(p.base + k * p.stride + p.index[k] * p.step), a = *at; \
      T b = *(const T *)(const void *)(from + k * fs); \
      (void)a; \
      *at = (T)(expr); \
    } \
  }
PUT(put1, uint8_t, b)
PUT(put2, uint16_t, b)
PUT(put4, uint32_t, b)
PUT(put8, uint64_t, b)
typedef struct wide {
  uint64_t half[2];
} wide;
PUT(put16, wide, b)
// Branch-free selection by bits: a if `first`, else b. A branch would be mispredicted.
#define CHOOSE(name, T, U) \
  static inline T choose_##name(bool first, T a, T b) { \
    U x, y, mask = (U) - (U)first; \
    memcpy(&x, &a, sizeof x), memcpy(&y, &b, sizeof y); \
    x = (U)((x & mask) | (y & (U)~mask)); \
    memcpy(&a, &x, sizeof a); \
    return a; \
  }
CHOOSE(u8, uint8_t, uint8_t)
CHOOSE(i8, int8_t, uint8_t)
CHOOSE(u16, uint16_t, uint16_t)
CHOOSE(i16, int16_t, uint16_t)
CHOOSE(i32, int32_t, uint32_t)
CHOOSE(i64, int64_t, uint64_t)
CHOOSE(f32, float, uint32_t)
CHOOSE(f64, double, uint64_t)
// Combinations of a value with the existing one, by dtype. NaN is both max and min. fp16 and bf16
// compute in float. 16-bit products are computed unsigned to avoid overflow.
#define NUMBERS(suffix, T, U) \
  PUT(add_##suffix, U, a + b) \
  PUT(multiply_##suffix, U, 1u * a * b) \
  PUT(max_##suffix, T, choose_##suffix((a > b) | (a != a), a, b)) \
  PUT(min_##suffix, T, choose_##suffix((a < b) | (a != a), a, b))
NUMBERS(u8, uint8_t, uint8_t)
NUMBERS(i8, int8_t, uint8_t)
NUMBERS(i16, int16_t, uint16_t)
NUMBERS(i32, int32_t, uint32_t)
NUMBERS(i64, int64_t, uint64_t)
NUMBERS(f32, float, float)
NUMBERS(f64, double, double)
#define HALVES(suffix, load, store) \
  PUT(add_##suffix, uint16_t, store(load(a) + load(b))) \
  PUT(multiply_##suffix, uint16_t, store(load(a) * load(b))) \
  PUT(max_##suffix, uint16_t, choose_u16((load(a) > load(b)) | (load(a) != load(a)), a, b)) \
  PUT(min_##suffix, uint16_t, choose_u16((load(a) < load(b)) | (load(a) != load(a)), a, b))
#if defined(__F16C__)
static inline float half_load(uint16_t h) { return _cvtsh_ss(h); }
static inline uint16_t half_store(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
#else
static inline float half_load(uint16_t h) { return px__half_load(h); }
static inline uint16_t half_store(float x) { return px__half_store(x); }
#endif
HALVES(f16, half_load, half_store)
HALVES(bf16, px__bfloat_load, px__bfloat_store)
// Contiguous lines of float16 in blocks, for vectors.
static void add_halves_line(char *to, int64_t ts, const char *from, int64_t fs, int64_t n) {
  enum { BLOCK = 64 };
  float a[BLOCK], b[BLOCK];
  uint16_t *t = (uint16_t *)(void *)to;
  const uint16_t *f = (const uint16_t *)(const void *)from;
  if (ts != sizeof *t || fs != sizeof *f) {
    add_f16_line(to, ts, from, fs, n);
    return;
  }
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t count = n - i < BLOCK ? n - i : BLOCK;
    px__half_load_many(a, t + i, count);
    px__half_load_many(b, f + i, count);
    for (int64_t k = 0; k < count; k++) a[k] += b[k];
    px__half_store_many(t + i, a, count);
  }
}
PUT(add_bool, uint8_t, a | b)
PUT(multiply_bool, uint8_t, a &b)
// Products of complex numbers. Adding works on their parts.
#define COMPLEX(name, T) \
  typedef struct name { \
    T re, im; \
  } name; \
  PUT(multiply_##name, name, ((name){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}))
COMPLEX(complex64, float)
COMPLEX(complex128, double)

#define MOVES(name) \
  { name##_line, name##_scatter }
static const moves store_moves[17] = {[1] = MOVES(put1),
                                      [2] = MOVES(put2),
                                      [4] = MOVES(put4),
                                      [8] = MOVES(put8),
                                      [16] = MOVES(put16)};
#define JOINS(name, of_bool) \
  { \
    [PX_BOOL] = MOVES(of_bool), [PX_UINT8] = MOVES(name##_u8), [PX_INT8] = MOVES(name##_i8), \
    [PX_INT16] = MOVES(name##_i16), [PX_INT32] = MOVES(name##_i32), \
    [PX_INT64] = MOVES(name##_i64), [PX_FLOAT16] = MOVES(name##_f16), \
    [PX_BFLOAT16] = MOVES(name##_bf16), [PX_FLOAT32] = MOVES(name##_f32), \
    [PX_FLOAT64] = MOVES(name##_f64) \
  }
static const moves multiply_complex64 = MOVES(multiply_complex64),
                   multiply_complex128 = MOVES(multiply_complex128);
static const moves add_f16 = {add_halves_line, add_f16_scatter};
static const moves combine_moves[][PX_DTYPE_COMPUTED] = {
    [PX_PUT_ADD] = JOINS(add, add_bool),
    [PX_PUT_MULTIPLY] = JOINS(multiply, multiply_bool),
    [PX_PUT_MAX] = JOINS(max, add_bool),
    [PX_PUT_MIN] = JOINS(min, multiply_bool)};

// Gathers n indexed elements into `to`.
typedef void (*gather_fn)(char *to, int64_t ts, const positions *from, int64_t n);
#define GATHER(name, T) \
  static void name(char *to, int64_t ts, const positions *from, int64_t n) { \
    const positions p = *from; \
    if (p.stride == 0 && p.step == sizeof(T) && ts == sizeof(T)) \
      for (int64_t k = 0; k < n; k++) \
        ((T *)(void *)to)[k] = ((const T *)(const void *)p.base)[p.index[k]]; \
    else \
      for (int64_t k = 0; k < n; k++) \
        *(T *)(void *)(to + k * ts) = \
            *(const T *)(const void *)(p.base + k * p.stride + p.index[k] * p.step); \
  }
GATHER(gather1, uint8_t)
GATHER(gather2, uint16_t)
GATHER(gather4, uint32_t)
GATHER(gather8, uint64_t)
GATHER(gather16, wide)
static const gather_fn gather_fns[17] = {
    [1] = gather1, [2] = gather2, [4] = gather4, [8] = gather8, [16] = gather16};
