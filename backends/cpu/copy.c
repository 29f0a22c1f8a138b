// SPDX-License-Identifier: Apache-2.0
// The kernel "copy": element-wise, between any two dtypes and any strides, negative ones included.
//
// Dimensions are put in the order of the target's memory and merged where both sides allow it. What
// is left are rows: bytes where both are dense, tiles where the source runs across, and otherwise
// one element after another.
#include "cpu_kernels.h"

#include <stdlib.h>
#include <string.h>

typedef struct plan {
  int ndim;
  int64_t sizes[PX_MAX_DIMS], to[PX_MAX_DIMS], from[PX_MAX_DIMS];  // strides in elements
} plan;

static int64_t size_of(int64_t stride) { return stride < 0 ? -stride : stride; }

// Whether dimension a belongs outside of b.
static bool is_outer(const plan *p, int a, int b) {
  int64_t x = size_of(p->to[a]), y = size_of(p->to[b]);
  return x != y ? x > y : size_of(p->from[a]) > size_of(p->from[b]);
}

static void exchange(plan *p, int a, int b) {
  int64_t n = p->sizes[a], t = p->to[a], f = p->from[a];
  p->sizes[a] = p->sizes[b], p->to[a] = p->to[b], p->from[a] = p->from[b];
  p->sizes[b] = n, p->to[b] = t, p->from[b] = f;
}

static void make_plan(plan *p, const px_launch *l) {
  const px_operand *to = &l->operands[0], *from = &l->operands[1];
  p->ndim = 0;
  for (int d = 0; d < to->ndim; d++) {
    if (to->sizes[d] == 1) continue;
    p->sizes[p->ndim] = to->sizes[d];
    p->to[p->ndim] = to->strides[d], p->from[p->ndim++] = from->strides[d];
  }
  for (int i = 1; i < p->ndim; i++)
    for (int k = i; k > 0 && is_outer(p, k, k - 1); k--) exchange(p, k, k - 1);
  int n = 0;
  for (int d = 1; d < p->ndim; d++) {
    bool joins = p->to[n] == p->to[d] * p->sizes[d] && p->from[n] == p->from[d] * p->sizes[d];
    if (!joins) n++;
    p->sizes[n] = joins ? p->sizes[n] * p->sizes[d] : p->sizes[d];
    p->to[n] = p->to[d], p->from[n] = p->from[d];
  }
  if (p->ndim == 0) p->sizes[0] = p->to[0] = p->from[0] = 1;
  p->ndim = p->ndim ? n + 1 : 1;
}

// ---- rows of one dtype

typedef void (*row_fn)(char *to, int64_t to_stride, const char *from, int64_t from_stride,
                       int64_t n);

#define SAME_ROW(name, type)                                                        \
  static void name(char *to, int64_t ts, const char *from, int64_t fs, int64_t n) { \
    type *t = (type *)(void *)to;                                                   \
    const type *f = (const type *)(const void *)from;                               \
    if (ts == 1 && fs == 1)                                                         \
      memcpy(t, f, (size_t)n * sizeof *t);                                          \
    else if (ts == 1 && fs == 0)                                                    \
      for (int64_t i = 0; i < n; i++) t[i] = *f;                                    \
    else                                                                            \
      for (int64_t i = 0; i < n; i++) t[i * ts] = f[i * fs];                        \
  }
SAME_ROW(same1, uint8_t)
SAME_ROW(same2, uint16_t)
SAME_ROW(same4, uint32_t)
SAME_ROW(same8, uint64_t)

static row_fn same_row(size_t item) {
  return item == 1 ? same1 : item == 2 ? same2 : item == 4 ? same4 : same8;
}

// ---- rows that convert

static inline float half_value(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16, rest = bits & 0x7fff, out;
  if (rest >= 0x7c00)
    out = sign | 0x7f800000 | (rest & 0x3ff) << 13;
  else if (rest >= 0x400)
    out = sign | ((rest << 13) + 0x38000000);
  else {
    float f = (float)rest * 0x1p-24f;
    memcpy(&out, &f, 4);
    out |= sign;
  }
  float f;
  memcpy(&f, &out, 4);
  return f;
}
static inline uint16_t half_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits >= 0x7f800000) return (uint16_t)(sign | 0x7c00 | (bits > 0x7f800000 ? 0x200 : 0));
  if (bits >= 0x477ff000) return sign | 0x7c00;
  if (bits < 0x38800000) {  // subnormal: the addition rounds to nearest even
    float f;
    memcpy(&f, &bits, 4);
    f += 0.5f;
    memcpy(&bits, &f, 4);
    return (uint16_t)(sign | (bits - 0x3f000000));
  }
  bits += 0xfff + (bits >> 13 & 1);
  return (uint16_t)(sign | (bits - 0x38000000) >> 13);
}
static inline float bfloat_value(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float f;
  memcpy(&f, &wide, 4);
  return f;
}
static inline uint16_t bfloat_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// How an element of each dtype is read as a C number, and how a C number becomes one.
#define READ_BOOL(x) ((x) != 0)
#define READ_UINT8(x) (x)
#define READ_INT8(x) (x)
#define READ_INT16(x) (x)
#define READ_INT32(x) (x)
#define READ_INT64(x) (x)
#define READ_FLOAT16(x) half_value(x)
#define READ_BFLOAT16(x) bfloat_value(x)
#define READ_FLOAT32(x) (x)
#define READ_FLOAT64(x) (x)
#define MAKE_BOOL(x) ((x) != 0)
// A float outside of the narrow type goes through int64, so that it wraps the same way everywhere.
#define MAKE_UINT8(x) ((uint8_t)(int64_t)(x))
#define MAKE_INT8(x) ((int8_t)(int64_t)(x))
#define MAKE_INT16(x) ((int16_t)(int64_t)(x))
#define MAKE_INT32(x) ((int32_t)(int64_t)(x))
#define MAKE_INT64(x) ((int64_t)(x))
#define MAKE_FLOAT16(x) half_bits((float)(x))
#define MAKE_BFLOAT16(x) bfloat_bits((float)(x))
#define MAKE_FLOAT32(x) ((float)(x))
#define MAKE_FLOAT64(x) ((double)(x))

#define ROW(F, ftype, T, ttype)                                                              \
  static void row_##F##_##T(char *to, int64_t ts, const char *from, int64_t fs, int64_t n) { \
    ttype *restrict t = (ttype *)(void *)to;                                                 \
    const ftype *restrict f = (const ftype *)(const void *)from;                             \
    if (ts == 1 && fs == 1)                                                                  \
      for (int64_t i = 0; i < n; i++) t[i] = MAKE_##T(READ_##F(f[i]));                       \
    else                                                                                     \
      for (int64_t i = 0; i < n; i++) t[i * ts] = MAKE_##T(READ_##F(f[i * fs]));             \
  }
#define TYPES(XX, F, ftype)        \
  XX(F, ftype, BOOL, uint8_t)      \
  XX(F, ftype, UINT8, uint8_t)     \
  XX(F, ftype, INT8, int8_t)       \
  XX(F, ftype, INT16, int16_t)     \
  XX(F, ftype, INT32, int32_t)     \
  XX(F, ftype, INT64, int64_t)     \
  XX(F, ftype, FLOAT16, uint16_t)  \
  XX(F, ftype, BFLOAT16, uint16_t) \
  XX(F, ftype, FLOAT32, float)     \
  XX(F, ftype, FLOAT64, double)
#define ROWS(XX)                \
  TYPES(XX, BOOL, uint8_t)      \
  TYPES(XX, UINT8, uint8_t)     \
  TYPES(XX, INT8, int8_t)       \
  TYPES(XX, INT16, int16_t)     \
  TYPES(XX, INT32, int32_t)     \
  TYPES(XX, INT64, int64_t)     \
  TYPES(XX, FLOAT16, uint16_t)  \
  TYPES(XX, BFLOAT16, uint16_t) \
  TYPES(XX, FLOAT32, float)     \
  TYPES(XX, FLOAT64, double)
ROWS(ROW)
#define ENTRY(F, ftype, T, ttype) [PX_##F][PX_##T] = row_##F##_##T,
static const row_fn convert_rows[PX_DTYPE_COUNT][PX_DTYPE_COUNT] = {ROWS(ENTRY)};

#define ITEM(name, ctype, bytes, category, cls, text) bytes,
static const size_t items[] = {PX_DTYPE_MAP(ITEM)};

// ---- tiles: the source is dense along rows of the target that lie apart

enum { TILE = 32 };
#define TRANSPOSE(name, type)                                                                  \
  static void name(char *to, int64_t ts, const char *from, int64_t fs, int64_t m, int64_t n) { \
    type *t = (type *)(void *)to;                                                              \
    const type *f = (const type *)(const void *)from;                                          \
    for (int64_t i0 = 0; i0 < m; i0 += TILE)                                                   \
      for (int64_t k0 = 0; k0 < n; k0 += TILE) {                                               \
        int64_t i1 = i0 + TILE < m ? i0 + TILE : m, k1 = k0 + TILE < n ? k0 + TILE : n;        \
        for (int64_t i = i0; i < i1; i++)                                                      \
          for (int64_t k = k0; k < k1; k++) t[i * ts + k] = f[k * fs + i];                     \
      }                                                                                        \
  }
TRANSPOSE(transpose1, uint8_t)
TRANSPOSE(transpose2, uint16_t)
TRANSPOSE(transpose4, uint32_t)
TRANSPOSE(transpose8, uint64_t)

static void transpose(size_t item, char *to, int64_t ts, const char *from, int64_t fs, int64_t m,
                      int64_t n) {
  (item == 1   ? transpose1
   : item == 2 ? transpose2
   : item == 4 ? transpose4
               : transpose8)(to, ts, from, fs, m, n);
}

static bool runs_across(const plan *p) {
  int n = p->ndim;
  return n >= 2 && p->to[n - 1] == 1 && p->from[n - 2] == 1 && p->from[n - 1] != 1;
}

// ---- all rows

typedef struct odometer {
  int64_t at[PX_MAX_DIMS];
} odometer;
// Moves both pointers to the next row of the outer `n` dimensions; false at the end.
static bool step(odometer *o, const plan *p, int n, char **to, size_t to_item, const char **from,
                 size_t from_item) {
  for (int d = n - 1; d >= 0; d--) {
    *to += p->to[d] * (int64_t)to_item;
    *from += p->from[d] * (int64_t)from_item;
    if (++o->at[d] < p->sizes[d]) return true;
    *to -= p->to[d] * (int64_t)to_item * p->sizes[d];
    *from -= p->from[d] * (int64_t)from_item * p->sizes[d];
    o->at[d] = 0;
  }
  return false;
}

px_status px__cpu_copy(const px_launch *l) {
  plan p;
  make_plan(&p, l);
  int td = l->operands[0].dtype, fd = l->operands[1].dtype, last = p.ndim - 1;
  char *to = l->operands[0].data;
  const char *from = l->operands[1].data;
  odometer o = {{0}};
  if (td == fd && runs_across(&p)) {
    do
      transpose(items[td], to, p.to[last - 1], from, p.from[last], p.sizes[last - 1],
                p.sizes[last]);
    while (step(&o, &p, last - 1, &to, items[td], &from, items[fd]));
    return PX_OK;
  }
  row_fn row = td == fd ? same_row(items[td]) : convert_rows[fd][td];
  do row(to, p.to[last], from, p.from[last], p.sizes[last]);
  while (step(&o, &p, last, &to, items[td], &from, items[fd]));
  return PX_OK;
}
