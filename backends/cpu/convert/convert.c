// SPDX-License-Identifier: Apache-2.0
// Conversion of elements by pairs of dtypes (convert_pairs.c). Copies within a dtype depend on the
// item size only.
#include "cpu/threads/buffer.h"
#include "cpu/convert/convert.h"

#include "cpu/vector/load_store.h"
#include "cpu/vector/loop_hints.h"

#include <string.h>

const uint8_t px__cpu_item[PX_DTYPE_COUNT] = {
#define XX(name, suffix, cell, ...) sizeof(cell),
    PX_DTYPE_MAP(XX)
#undef XX
};

// ---- copies within a dtype

// Copies n bytes; `to` may equal `from`. For longer copies the C library uses an instruction that
// is slow if the two sides have different alignment.
static void copy_bytes(char *to, const char *from, int64_t n) {
  enum { SHORT = 1024, VECTOR = 32, STEP = 4 * VECTOR };
  typedef uint8_t vector __attribute__((vector_size(VECTOR), aligned(1), may_alias));
  bool same_alignment = ((uintptr_t)to - (uintptr_t)from) % VECTOR == 0;
  int64_t i = 0;
  if (!same_alignment && n >= SHORT && (to + n <= from || from + n <= to))
    for (; i + STEP <= n; i += STEP) {
      const vector *f = (const vector *)(const void *)(from + i);
      vector *t = (vector *)(void *)(to + i);
      vector a = f[0], b = f[1], c = f[2], d = f[3];
      t[0] = a, t[1] = b, t[2] = c, t[3] = d;
    }
  memmove(to + i, from + i, (size_t)(n - i));
}

// Short rows, for which a memcpy call each would dominate. The last vector of a row overlaps its
// predecessor.
#define MOVE_ROWS(name, T) \
  static void name(char *to, int64_t ts, const char *from, int64_t fs, int64_t rows, \
                   int64_t bytes) { \
    for (const int64_t item = sizeof(T), last = bytes - item; rows > 0; rows--) { \
      for (int64_t i = 0; i < last; i += item) *(T *)(to + i) = *(const T *)(from + i); \
      *(T *)(to + last) = *(const T *)(from + last); \
      to += ts, from += fs; \
    } \
  }
typedef uint8_t part1;
typedef uint16_t part2 __attribute__((aligned(1), may_alias));
typedef uint32_t part4 __attribute__((aligned(1), may_alias));
typedef uint64_t part8 __attribute__((aligned(1), may_alias));
typedef uint8_t part16 __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint8_t part32 __attribute__((vector_size(32), aligned(1), may_alias));
MOVE_ROWS(rows1, part1)
MOVE_ROWS(rows2, part2)
MOVE_ROWS(rows4, part4)
MOVE_ROWS(rows8, part8)
MOVE_ROWS(rows16, part16)
MOVE_ROWS(rows32, part32)
void px__cpu_move_rows(void *to, int64_t ts, const void *from, int64_t fs, int64_t rows,
                       int64_t bytes) {
  (bytes >= 32   ? rows32
   : bytes >= 16 ? rows16
   : bytes >= 8  ? rows8
   : bytes >= 4  ? rows4
   : bytes >= 2  ? rows2
                 : rows1)(to, ts, from, fs, rows, bytes);
}

// Repeats one element n times. Item sizes are powers of two up to 8.
static void fill(char *to, const char *one, int64_t item, int64_t n) {
  enum { VECTOR = 32, STEP = 4 * VECTOR };
  typedef uint8_t vector __attribute__((vector_size(VECTOR), aligned(1), may_alias));
  char many[VECTOR];
  int64_t i = 0, bytes = n * item;
  if (n == 0) return;
  for (int64_t k = 0; k < VECTOR; k += item) memcpy(many + k, one, (size_t)item);
  vector v = *(vector *)(void *)many;
  for (; i + STEP <= bytes; i += STEP) {
    vector *t = (vector *)(void *)(to + i);
    t[0] = v, t[1] = v, t[2] = v, t[3] = v;
  }
  for (; i < bytes; i += item) memcpy(to + i, many, (size_t)item);
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
      fill(to, from, item, n); \
    else if (fs == 2 * item) \
      PX__CPU_INDEPENDENT for (int64_t i = 0; i < n; i++) t[i] = f[2 * i]; \
    else if (fs == -item) \
      PX__CPU_INDEPENDENT for (int64_t i = 0; i < n; i++) t[i] = f[-i]; \
    else \
      for (int64_t i = 0; i < n; i++) t[i] = *(const T *)(const void *)(from + i * fs); \
  }
MOVE(move1, uint8_t)
MOVE(move2, uint16_t)
MOVE(move4, uint32_t)
MOVE(move8, uint64_t)
typedef struct wide {
  uint64_t half[2];
} wide;
static void move16(char *to, int64_t ts, const char *from, int64_t fs, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    wide element;
    memcpy(&element, from + i * fs, sizeof element);
    memcpy(to + i * ts, &element, sizeof element);
  }
}

static void move(char *to, int64_t ts, const char *from, int64_t fs, int64_t n, int64_t item) {
  if (ts == item && fs == item)
    copy_bytes(to, from, n * item);
  else
    (item == 1   ? move1
     : item == 2 ? move2
     : item == 4 ? move4
     : item == 8 ? move8
                 : move16)(to, ts, from, fs, n);
}

static void move_bools(char *to, const char *from, int64_t n) {
  PX__CPU_INDEPENDENT for (int64_t i = 0; i < n; i++) to[i] = from[i] != 0;
}

// ---- contiguous bfloat16 and float: AVX-512 narrows whole vectors

#if defined(__AVX2__)
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
enum { LANES = 16 };
static inline TARGET __m512i round_bfloats(const float *from) {
  const __m512i half = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1);
  __m512 x = _mm512_loadu_ps(from);
  __m512i u = _mm512_castps_si512(x),
          out_of_range = _mm512_and_si512(_mm512_srli_epi32(u, 16), one);
  u = _mm512_add_epi32(_mm512_add_epi32(u, half), out_of_range);
  return _mm512_mask_set1_epi32(u, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), 0x7fc00000);
}
// Combines the upper halves of two vectors.
static TARGET void store_bfloats(uint16_t *to, const float *from, int64_t n) {
  uint16_t upper[2 * LANES];
  for (int i = 0; i < 2 * LANES; i++) upper[i] = (uint16_t)(2 * i + 1);
  const __m512i indices = _mm512_loadu_si512(upper);
  int64_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) {
    __m512i a = round_bfloats(from + i), b = round_bfloats(from + i + LANES);
    _mm512_storeu_si512(to + i, _mm512_permutex2var_epi16(a, indices, b));
  }
  for (; i < n; i++) to[i] = px__bfloat_store(from[i]);
}
static TARGET void load_bfloats(float *to, const uint16_t *from, int64_t n) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)(from + i));
    __m512i u = _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
    _mm512_storeu_ps(to + i, _mm512_castsi512_ps(u));
  }
  for (; i < n; i++) to[i] = px__bfloat_load(from[i]);
}
#endif
// Returns false for other dtypes and without AVX-512.
static bool convert_bfloats(void *to, int to_dtype, const void *from, int from_dtype, int64_t n) {
#if defined(__AVX2__)
  if (px_cpu_level_used() < PX_CPU_AVX512) return false;
  if (to_dtype == PX_BFLOAT16 && from_dtype == PX_FLOAT32) return store_bfloats(to, from, n), true;
  if (to_dtype == PX_FLOAT32 && from_dtype == PX_BFLOAT16) return load_bfloats(to, from, n), true;
#endif
  return false;
}

// ---- conversions through a vectorized intermediate, a block at a time

enum {
  BLOCK = 256,      // elements
  MIN_BLOCKED = 16  // min elements for which blocks pay off
};
static bool is_half(int dtype) { return dtype == PX_FLOAT16 || dtype == PX_BFLOAT16; }

// Strided operands are gathered into contiguous blocks, and results scattered.
static void convert_strided(char *to, int64_t ts, int to_dtype, const char *from, int64_t fs,
                            int from_dtype, int64_t n) {
  PX__BUFFER(int64_t, given, BLOCK);
  PX__BUFFER(int64_t, made, BLOCK);
  int64_t a = px__cpu_item[to_dtype], b = px__cpu_item[from_dtype];
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t count = n - i < BLOCK ? n - i : BLOCK;
    const char *f = fs == b ? from + i * fs : (char *)given;
    char *t = ts == a ? to + i * ts : (char *)made;
    if (fs != b) move((char *)given, b, from + i * fs, fs, count, b);
    px__cpu_convert(t, a, to_dtype, f, b, from_dtype, count);
    if (ts != a) move(to + i * ts, ts, t, a, count, a);
  }
}
static void through_floats(char *to, int to_dtype, const char *from, int from_dtype, int64_t n) {
  float floats[BLOCK];
  int64_t a = px__cpu_item[to_dtype], b = px__cpu_item[from_dtype];
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t count = n - i < BLOCK ? n - i : BLOCK;
    px__cpu_convert(floats, 4, PX_FLOAT32, from + i * b, b, from_dtype, count);
    px__cpu_convert(to + i * a, a, to_dtype, floats, 4, PX_FLOAT32, count);
  }
}
static void from_bools(char *to, int to_dtype, const char *from, int64_t n) {
  char bytes[BLOCK];
  int64_t a = px__cpu_item[to_dtype];
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t count = n - i < BLOCK ? n - i : BLOCK;
    move_bools(bytes, from + i, count);
    px__cpu_convert(to + i * a, a, to_dtype, bytes, 1, PX_UINT8, count);
  }
}

// Floats convert to integers through int64, which takes several times as long as through int32.
// Values within int32 take the latter; the low bits are equal.
#define TO_INT(D, T) \
  case PX_##D: \
    for (int64_t i = 0; i < n; i++) ((T *)(void *)to)[i] = (T)(int32_t)f[i]; \
    return true;
#define BY_INT32(S, F) \
  static bool by_int32_##S(char *to, int to_dtype, const F *f, int64_t n) { \
    int out_of_range = 0; \
    for (int64_t i = 0; i < n; i++) out_of_range |= !(f[i] >= (F)-0x1p31 && f[i] < (F)0x1p31); \
    if (out_of_range) return false; \
    switch (to_dtype) { \
      TO_INT(UINT8, uint8_t) \
      TO_INT(INT8, int8_t) TO_INT(INT16, int16_t) TO_INT(INT32, int32_t) \
    } \
    return false; \
  }
BY_INT32(f32, float)
BY_INT32(f64, double)
static void floats_to_ints(char *to, int to_dtype, const char *from, int from_dtype, int64_t n) {
  int64_t a = px__cpu_item[to_dtype], b = px__cpu_item[from_dtype];
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t count = n - i < BLOCK ? n - i : BLOCK;
    const void *f = from + i * b;
    bool done = from_dtype == PX_FLOAT32 ? by_int32_f32(to + i * a, to_dtype, f, count)
                                         : by_int32_f64(to + i * a, to_dtype, f, count);
    if (!done) px__cpu_pairs[to_dtype][from_dtype](to + i * a, a, f, b, count);
  }
}

// True for pairs with slow plain loops.
static inline bool has_blocks(int to, int from, bool dense) {
  bool half = is_half(to) || is_half(from), single = to == PX_FLOAT32 || from == PX_FLOAT32;
  bool to_int = to >= PX_UINT8 && to <= PX_INT32, floats = from == PX_FLOAT32 || from == PX_FLOAT64;
  return from == PX_BOOL || (half && !(dense && single)) || (dense && to_int && floats);
}
static void convert_by_blocks(char *to, int64_t ts, int to_dtype, const char *from, int64_t fs,
                              int from_dtype, int64_t n) {
  if (ts != px__cpu_item[to_dtype] || fs != px__cpu_item[from_dtype])
    convert_strided(to, ts, to_dtype, from, fs, from_dtype, n);
  else if (from_dtype == PX_BOOL)
    from_bools(to, to_dtype, from, n);
  else if (is_half(to_dtype) || is_half(from_dtype))
    through_floats(to, to_dtype, from, from_dtype, n);
  else
    floats_to_ints(to, to_dtype, from, from_dtype, n);
}

void px__cpu_convert(void *to, int64_t to_stride, int to_dtype, const void *from,
                     int64_t from_stride, int from_dtype, int64_t n) {
  int64_t a = px__cpu_item[to_dtype], b = px__cpu_item[from_dtype];
  bool dense = to_stride == a && from_stride == b;
  if (to_dtype == from_dtype && to_dtype != PX_BOOL)
    move(to, to_stride, from, from_stride, n, a);
  else if (dense && to_dtype == PX_BOOL && from_dtype == PX_BOOL)
    move_bools(to, from, n);
  else if (dense && to_dtype == PX_FLOAT32 && from_dtype == PX_FLOAT16)
    px__half_load_many(to, from, n);
  else if (dense && to_dtype == PX_FLOAT16 && from_dtype == PX_FLOAT32)
    px__half_store_many(to, from, n);
  else if (dense && convert_bfloats(to, to_dtype, from, from_dtype, n))
    return;
  else if (to_dtype >= PX_DTYPE_COMPUTED || from_dtype >= PX_DTYPE_COMPUTED)
    px__cpu_convert_stored(px__cpu_convert, to, to_stride, to_dtype, from, from_stride, from_dtype,
                           n);
  else if (n >= MIN_BLOCKED && has_blocks(to_dtype, from_dtype, dense))
    convert_by_blocks(to, to_stride, to_dtype, from, from_stride, from_dtype, n);
  else
    px__cpu_pairs[to_dtype][from_dtype](to, to_stride, from, from_stride, n);
}

// ---- conversions of devices

static int64_t clamped(double x, double min, double max, int64_t none) {
  if (x != x) return none;
  return x < min ? (int64_t)min : x > max ? (int64_t)max : (int64_t)x;
}
// A float or double (`from_double`) as an integer whose low bits are the element of the dtype.
static int64_t device_integer(double x, int dtype, bool from_double) {
  switch (dtype) {
    case PX_INT8:
    case PX_INT16:
    case PX_INT32:
      return clamped(x, INT32_MIN, INT32_MAX, from_double ? INT32_MIN : 0);
    case PX_UINT16:
    case PX_UINT32:
      return clamped(x, 0, UINT32_MAX, from_double ? INT32_MIN : 0);
    case PX_UINT64:
      if (x >= 0x1p63) return (int64_t)(x < 0x1p64 ? (uint64_t)x : UINT64_MAX);
      return clamped(x, 0, 0x1p63, INT64_MIN);
    default:
      return x >= 0x1p63 ? INT64_MAX : clamped(x, (double)INT64_MIN, 0x1p63, INT64_MIN);
  }
}
void px__device_convert(void *to, int64_t to_stride, int to_dtype, const void *from,
                        int64_t from_stride, int from_dtype, int64_t n) {
  const px_dtype_info *a = px_dtype_about((px_dtype)to_dtype);
  const px_dtype_info *b = px_dtype_about((px_dtype)from_dtype);
  if ((b->kind != 'f' && b->kind != 'c') || (a->kind != 'i' && a->kind != 'u')) {
    px__cpu_convert(to, to_stride, to_dtype, from, from_stride, from_dtype, n);
    return;
  }
  PX__BUFFER(double, floats, BLOCK);
  PX__BUFFER(int64_t, integers, BLOCK);
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t count = n - i < BLOCK ? n - i : BLOCK;
    px__cpu_convert(floats, 8, PX_FLOAT64, (const char *)from + i * from_stride, from_stride,
                    from_dtype, count);
    for (int64_t k = 0; k < count; k++)
      integers[k] = device_integer(floats[k], to_dtype,
                                   from_dtype == PX_FLOAT64 || from_dtype == PX_COMPLEX128);
    px__cpu_convert((char *)to + i * to_stride, to_stride, to_dtype, integers, 8, PX_INT64, count);
  }
}
