// SPDX-License-Identifier: Apache-2.0
// How picked elements are moved: stored by the size of an element, or added by its dtype. Strides
// and offsets are in bytes.
#pragma once
#include "cpu/half.h"
#include "cpu/vector.h"
#include "phlox/backend.h"

// n elements of `from`, along a line of `to`.
typedef void (*line_fn)(char *to, int64_t ts, const char *from, int64_t fs, int64_t n);
// n elements of `from` to places of `to`, one after the other: a later one finds what was there.
typedef void (*scatter_fn)(char *to, const int64_t *places, const char *from, int64_t fs,
                           int64_t n);
typedef struct moves {
  line_fn line;
  scatter_fn scatter;
} moves;

// Neighbours on both sides are a loop of their own, and so is one element for many.
#define PUT(name, T, expr) \
  static void name##_line(char *to_, int64_t ts, const char *from_, int64_t fs, int64_t n) { \
    const int64_t item = sizeof(T); \
    T *t = (T *)(void *)to_; \
    const T *f = (const T *)(const void *)from_; \
    if (ts == item && fs == item) { \
      PX__CPU_APART for (int64_t k = 0; k < n; k++) { \
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
  static void name##_scatter(char *to, const int64_t *places, const char *from, int64_t fs, \
                             int64_t n) { \
    for (int64_t k = 0; k < n; k++) { \
      T *at = (T *)(void *)(to + places[k]), a = *at; \
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
PUT(add_bool, uint8_t, a | b)
PUT(add_u8, uint8_t, a + b)
PUT(add_u16, uint16_t, a + b)
PUT(add_u32, uint32_t, a + b)
PUT(add_u64, uint64_t, a + b)
PUT(add_f32, float, a + b)
PUT(add_f64, double, a + b)
// The half formats add in float.
PUT(add_half, uint16_t, px__half_store(px__half_load(a) + px__half_load(b)))
PUT(add_bfloat, uint16_t, px__bfloat_store(px__bfloat_load(a) + px__bfloat_load(b)))

#define MOVES(name) \
  { name##_line, name##_scatter }
static const moves putting[17] = {[1] = MOVES(put1),
                                  [2] = MOVES(put2),
                                  [4] = MOVES(put4),
                                  [8] = MOVES(put8),
                                  [16] = MOVES(put16)};
static const moves adding[PX_DTYPE_COMPUTED] = {
    [PX_BOOL] = MOVES(add_bool),    [PX_UINT8] = MOVES(add_u8),
    [PX_INT8] = MOVES(add_u8),      [PX_INT16] = MOVES(add_u16),
    [PX_INT32] = MOVES(add_u32),    [PX_INT64] = MOVES(add_u64),
    [PX_FLOAT16] = MOVES(add_half), [PX_BFLOAT16] = MOVES(add_bfloat),
    [PX_FLOAT32] = MOVES(add_f32),  [PX_FLOAT64] = MOVES(add_f64)};

// n elements from places of `from` to neighbours (or others) of `to`.
typedef void (*gather_fn)(char *to, int64_t ts, const char *from, const int64_t *places, int64_t n);
#define GATHER(name, T) \
  static void name(char *to, int64_t ts, const char *from, const int64_t *places, int64_t n) { \
    if (ts == sizeof(T)) \
      for (int64_t k = 0; k < n; k++) \
        ((T *)(void *)to)[k] = *(const T *)(const void *)(from + places[k]); \
    else \
      for (int64_t k = 0; k < n; k++) \
        *(T *)(void *)(to + k * ts) = *(const T *)(const void *)(from + places[k]); \
  }
GATHER(gather1, uint8_t)
GATHER(gather2, uint16_t)
GATHER(gather4, uint32_t)
GATHER(gather8, uint64_t)
GATHER(gather16, wide)
static const gather_fn gathering[17] = {
    [1] = gather1, [2] = gather2, [4] = gather4, [8] = gather8, [16] = gather16};
