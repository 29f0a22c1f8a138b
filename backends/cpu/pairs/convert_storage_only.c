// SPDX-License-Identifier: Apache-2.0
// Conversion of storage-only dtypes. Each goes through a compute dtype, its carrier, a block at a
// time: elements are unpacked to the carrier, converted to the other side or its carrier, and
// packed there. Complex to complex converts part by part; complex to real uses the real part.
#include "cpu/threads/buffer.h"
#include "cpu/convert/convert.h"

#include "cpu/vector/load_store.h"
#include "phlox/tables/float8.h"

// The carrier of a dtype in a conversion from or to `other`. int64 cannot hold all of uint64, so
// uint64 uses floating point as carrier if `other` is floating point.
static int carrier_of(int dtype, int other, bool unpacking) {
  const px_dtype_info *d = px_dtype_about((px_dtype)dtype), *o = px_dtype_about((px_dtype)other);
  if (dtype < PX_DTYPE_COMPUTED) return dtype;
  if (d->kind == 'f') return PX_FLOAT32;
  if (d->kind == 'c') return dtype == PX_COMPLEX128 ? PX_FLOAT64 : PX_FLOAT32;
  if (dtype != PX_UINT64 || (o->kind != 'f' && o->kind != 'c')) return PX_INT64;
  bool wide = other == PX_FLOAT64 || other == PX_COMPLEX128;
  return unpacking && !wide ? PX_FLOAT32 : PX_FLOAT64;
}

static uint64_t uint64_of(double x) {
  if (x >= 0x1p63 && x < 0x1p64) return (uint64_t)x;
  return x >= -0x1p63 && x < 0x1p63 ? (uint64_t)(int64_t)x : (uint64_t)INT64_MIN;
}

#define CELL_FLOAT16 uint16_t
#define CELL_FLOAT32 float
#define CELL_FLOAT64 double
#define CARRIER_FLOAT16 float
#define CARRIER_FLOAT32 float
#define CARRIER_FLOAT64 double

// Unpacks strided elements (stride in bytes) to a contiguous array of the carrier.
static void unpack(void *to, int carrier, const char *from, int64_t stride, int dtype, int n) {
  switch (dtype) {
#define XX(name, suffix, cell, ...) \
  case PX_##name: \
    for (int i = 0; i < n; i++) { \
      cell x = *(const cell *)(const void *)(from + i * stride); \
      if (carrier == PX_INT64) \
        ((int64_t *)to)[i] = (int64_t)x; \
      else if (carrier == PX_FLOAT32) \
        ((float *)to)[i] = (float)x; \
      else \
        ((double *)to)[i] = (double)x; \
    } \
    break;
    PX_DTYPE_UNSIGNED_MAP(XX)
#undef XX
#define XX(name, suffix, cell, format, ...) \
  case PX_##name: \
    for (int i = 0; i < n; i++) \
      ((float *)to)[i] = px_float8_load(PX_FLOAT8 format, *(const uint8_t *)(from + i * stride)); \
    break;
    PX_DTYPE_FLOAT8_MAP(XX)
#undef XX
#define XX(name, suffix, cell, part, ...) \
  case PX_##name: \
    for (int i = 0; i < n; i++) \
      ((CARRIER_##part *)to)[i] = \
          PX__LOAD_##part(*(const CELL_##part *)(const void *)(from + i * stride)); \
    break;
    PX_DTYPE_COMPLEX_MAP(XX)
#undef XX
  }
}

static void pack(char *to, int64_t stride, int dtype, const void *from, int carrier, int n) {
  switch (dtype) {
#define XX(name, suffix, cell, ...) \
  case PX_##name: \
    for (int i = 0; i < n; i++) \
      *(cell *)(void *)(to + i * stride) = \
          (cell)(carrier == PX_INT64 ? (uint64_t)((const int64_t *)from)[i] \
                                     : uint64_of(((const double *)from)[i])); \
    break;
    PX_DTYPE_UNSIGNED_MAP(XX)
#undef XX
#define XX(name, suffix, cell, format, ...) \
  case PX_##name: \
    for (int i = 0; i < n; i++) \
      *(uint8_t *)(to + i * stride) = px_float8_store(PX_FLOAT8 format, ((const float *)from)[i]); \
    break;
    PX_DTYPE_FLOAT8_MAP(XX)
#undef XX
#define XX(name, suffix, cell, part, ...) \
  case PX_##name: \
    for (int i = 0; i < n; i++) { \
      CELL_##part *element = (CELL_##part *)(void *)(to + i * stride); \
      element[0] = PX__STORE_##part(((const CARRIER_##part *)from)[i]), element[1] = 0; \
    } \
    break;
    PX_DTYPE_COMPLEX_MAP(XX)
#undef XX
  }
}

// Converts the real parts, then the imaginary parts at the same stride.
static void convert_complex(px__cpu_converter *computed, char *to, int64_t ts, int to_dtype,
                            const char *from, int64_t fs, int from_dtype, int64_t n) {
  px_dtype a = px_dtype_to_real((px_dtype)to_dtype), b = px_dtype_to_real((px_dtype)from_dtype);
  computed(to, ts, a, from, fs, b, n);
  computed(to + px_dtype_size(a), ts, a, from + px_dtype_size(b), fs, b, n);
}

// A complex number is true if either part is nonzero.
static void bool_of_complex(char *to, int64_t ts, const char *from, int64_t fs, int from_dtype,
                            int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    px_complex x = px_complex_load((px_dtype)from_dtype, from + i * fs);
    to[i * ts] = x.real != 0 || x.imag != 0;
  }
}

static bool is_complex(int dtype) { return px_dtype_is_complex((px_dtype)dtype); }

void px__cpu_convert_stored(px__cpu_converter *computed, void *to, int64_t to_stride, int to_dtype,
                            const void *from, int64_t from_stride, int from_dtype, int64_t n) {
  enum { BLOCK = 256 };
  PX__BUFFER(double, in, BLOCK);
  PX__BUFFER(double, out, BLOCK);
  if (is_complex(to_dtype) && is_complex(from_dtype)) {
    convert_complex(computed, to, to_stride, to_dtype, from, from_stride, from_dtype, n);
    return;
  }
  if (to_dtype == PX_BOOL && is_complex(from_dtype)) {
    bool_of_complex(to, to_stride, from, from_stride, from_dtype, n);
    return;
  }
  int a = carrier_of(to_dtype, from_dtype, false), b = carrier_of(from_dtype, to_dtype, true);
  bool packs = a != to_dtype, unpacks = b != from_dtype;
  for (int64_t i = 0; i < n; i += BLOCK) {
    int count = n - i < BLOCK ? (int)(n - i) : BLOCK;
    char *t = (char *)to + i * to_stride;
    const char *f = (const char *)from + i * from_stride;
    if (unpacks) unpack(in, b, f, from_stride, from_dtype, count);
    computed(packs ? (void *)out : t, packs ? (int64_t)px_dtype_size((px_dtype)a) : to_stride, a,
             unpacks ? (const void *)in : f,
             unpacks ? (int64_t)px_dtype_size((px_dtype)b) : from_stride, b, count);
    if (packs) pack(t, to_stride, to_dtype, out, a, count);
  }
}
