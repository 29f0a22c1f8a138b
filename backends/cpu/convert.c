// SPDX-License-Identifier: Apache-2.0
// Conversion of elements: one function per pair of dtypes, stamped from the list of dtypes, with
// contiguous arrays as a case of their own. Floats become integers by way of int64, as C's do.
// Elements that stay what they are move by their size.
#include "cpu/convert.h"

#include "cpu/half.h"
#include "cpu/vector.h"

#include <string.h>

const uint8_t px__cpu_item[PX_DTYPE_COUNT] = {
#define XX(name, ctype, bytes, category, cls, text) bytes,
    PX_DTYPE_MAP(XX)
#undef XX
};

// What an element is while it is between dtypes.
#define VALUE_BOOL bool
#define VALUE_UINT8 uint8_t
#define VALUE_INT8 int8_t
#define VALUE_INT16 int16_t
#define VALUE_INT32 int32_t
#define VALUE_INT64 int64_t
#define VALUE_FLOAT16 float
#define VALUE_BFLOAT16 float
#define VALUE_FLOAT32 float
#define VALUE_FLOAT64 double

#define LOAD_BOOL(x) ((x) != 0)
#define LOAD_UINT8(x) (x)
#define LOAD_INT8(x) (x)
#define LOAD_INT16(x) (x)
#define LOAD_INT32(x) (x)
#define LOAD_INT64(x) (x)
#define LOAD_FLOAT16(x) px__half_load(x)
#define LOAD_BFLOAT16(x) px__bfloat_load(x)
#define LOAD_FLOAT32(x) (x)
#define LOAD_FLOAT64(x) (x)

#define STORE_BOOL(x) ((x) != 0)
#define STORE_UINT8(x) ((uint8_t)(int64_t)(x))
#define STORE_INT8(x) ((int8_t)(int64_t)(x))
#define STORE_INT16(x) ((int16_t)(int64_t)(x))
#define STORE_INT32(x) ((int32_t)(int64_t)(x))
#define STORE_INT64(x) ((int64_t)(x))
#define STORE_FLOAT16(x) px__half_store((float)(x))
#define STORE_BFLOAT16(x) px__bfloat_store((float)(x))
#define STORE_FLOAT32(x) ((float)(x))
#define STORE_FLOAT64(x) ((double)(x))

// The bool of memory is read as a byte: any byte is a truth.
#define CELL_BOOL uint8_t
#define CELL_UINT8 uint8_t
#define CELL_INT8 int8_t
#define CELL_INT16 int16_t
#define CELL_INT32 int32_t
#define CELL_INT64 int64_t
#define CELL_FLOAT16 uint16_t
#define CELL_BFLOAT16 uint16_t
#define CELL_FLOAT32 float
#define CELL_FLOAT64 double

#define PAIR(A, B) \
  static void A##_from_##B(char *to, int64_t ts, const char *from, int64_t fs, int64_t n) { \
    if (ts == sizeof(CELL_##A) && fs == sizeof(CELL_##B)) { \
      CELL_##A *restrict t = (CELL_##A *)(void *)to; \
      const CELL_##B *restrict f = (const CELL_##B *)(const void *)from; \
      for (int64_t i = 0; i < n; i++) { \
        VALUE_##B x = LOAD_##B(f[i]); \
        t[i] = STORE_##A(x); \
      } \
      return; \
    } \
    for (int64_t i = 0; i < n; i++) { \
      VALUE_##B x = LOAD_##B(*(const CELL_##B *)(const void *)(from + i * fs)); \
      *(CELL_##A *)(void *)(to + i * ts) = STORE_##A(x); \
    } \
  }
#define COLUMN(A) \
  PAIR(A, BOOL) \
  PAIR(A, UINT8) \
  PAIR(A, INT8) \
  PAIR(A, INT16) \
  PAIR(A, INT32) PAIR(A, INT64) PAIR(A, FLOAT16) PAIR(A, BFLOAT16) PAIR(A, FLOAT32) PAIR(A, FLOAT64)
#define XX(name, ctype, bytes, category, cls, text) COLUMN(name)
PX_DTYPE_MAP(XX)
#undef XX

typedef void (*pair)(char *to, int64_t ts, const char *from, int64_t fs, int64_t n);
#define ROW(A) \
  {A##_from_BOOL,  A##_from_UINT8,   A##_from_INT8,     A##_from_INT16,   A##_from_INT32, \
   A##_from_INT64, A##_from_FLOAT16, A##_from_BFLOAT16, A##_from_FLOAT32, A##_from_FLOAT64},
static const pair pairs[PX_DTYPE_COUNT][PX_DTYPE_COUNT] = {
#define XX(name, ctype, bytes, category, cls, text) ROW(name)
    PX_DTYPE_MAP(XX)
#undef XX
};

// ---- of one dtype

// The C library copies longer runs by an instruction that is slow where the two sides are not
// aligned alike. Exactly the same memory is allowed.
static void copy_bytes(char *to, const char *from, int64_t n) {
  enum { SHORT = 1024, VECTOR = 32, STEP = 4 * VECTOR };
  typedef uint8_t vector __attribute__((vector_size(VECTOR)));
  bool alike = ((uintptr_t)to - (uintptr_t)from) % VECTOR == 0;
  int64_t i = 0;
  if (!alike && n >= SHORT && (to + n <= from || from + n <= to))
    for (; i + STEP <= n; i += STEP) {
      vector v[4];
      memcpy(v, from + i, sizeof v);
      memcpy(to + i, v, sizeof v);
    }
  memmove(to + i, from + i, (size_t)(n - i));
}

#define MOVE(name, T) \
  static void name(char *to, int64_t ts, const char *from, int64_t fs, int64_t n) { \
    const int64_t item = sizeof(T); \
    T *t = (T *)(void *)to; \
    const T *f = (const T *)(const void *)from; \
    if (ts != item) \
      for (int64_t i = 0; i < n; i++) \
        *(T *)(void *)(to + i * ts) = *(const T *)(const void *)(from + i * fs); \
    else if (fs == 0) \
      for (T one = n ? *f : 0, *end = t + n; t < end; t++) *t = one; \
    else if (fs == -item) \
      PX__CPU_APART for (int64_t i = 0; i < n; i++) t[i] = f[-i]; \
    else \
      for (int64_t i = 0; i < n; i++) t[i] = *(const T *)(const void *)(from + i * fs); \
  }
MOVE(move1, uint8_t)
MOVE(move2, uint16_t)
MOVE(move4, uint32_t)
MOVE(move8, uint64_t)

static void move(char *to, int64_t ts, const char *from, int64_t fs, int64_t n, int64_t item) {
  if (ts == item && fs == item)
    copy_bytes(to, from, n * item);
  else
    (item == 1 ? move1 : item == 2 ? move2 : item == 4 ? move4 : move8)(to, ts, from, fs, n);
}

void px__cpu_convert(void *to, int64_t to_stride, int to_dtype, const void *from,
                     int64_t from_stride, int from_dtype, int64_t n) {
  int64_t a = px__cpu_item[to_dtype], b = px__cpu_item[from_dtype];
  bool dense = to_stride == a && from_stride == b;
  if (to_dtype == from_dtype && to_dtype != PX_BOOL)
    move(to, to_stride, from, from_stride, n, a);
  else if (dense && to_dtype == PX_FLOAT32 && from_dtype == PX_FLOAT16)
    px__half_load_many(to, from, n);
  else if (dense && to_dtype == PX_FLOAT16 && from_dtype == PX_FLOAT32)
    px__half_store_many(to, from, n);
  else
    pairs[to_dtype][from_dtype](to, to_stride, from, from_stride, n);
}
