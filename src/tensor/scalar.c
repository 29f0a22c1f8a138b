// SPDX-License-Identifier: Apache-2.0
// Conversions between host numbers and elements.
#include <math.h>

#include "base/base_impl.h"
#include "phlox/dtype.h"
#include "phlox/tables/float8.h"

px_dtype px_scalar_dtype(px_scalar s) {
  return s.kind == 'b'   ? PX_BOOL
         : s.kind == 'i' ? PX_INT64
         : s.kind == 'u' ? PX_UINT64
         : s.kind == 'f' ? px_dtype_default()
                         : PX_DTYPE_NONE;
}

// Out-of-range values and NaN give INT64_MIN, like the x86 instruction; C leaves them undefined.
static int64_t integer_of(px_scalar s) {
  if (s.kind != 'f') return px_scalar_int(s);
  return s.v.f >= (double)INT64_MIN && s.v.f < -(double)INT64_MIN ? (int64_t)s.v.f : INT64_MIN;
}

static bool truth_of(px_scalar s) {
  return s.kind == 'f' ? s.v.f != 0 : px_scalar_int(s) != 0;  // NaN is true
}

// One pair of functions a dtype: number to element, and element to number.
#define INTEGER(name, type) \
  static void store_##name(px_scalar s, void *to) { *(type *)to = (type)integer_of(s); } \
  static px_scalar load_##name(const void *from) { return px_int(*(const type *)from); }
INTEGER(UINT8, uint8_t)
INTEGER(INT8, int8_t)
INTEGER(INT16, int16_t)
INTEGER(INT32, int32_t)
INTEGER(INT64, int64_t)
INTEGER(UINT16, uint16_t)
INTEGER(UINT32, uint32_t)
// Values from 2^63 on do not fit int64.
static void store_UINT64(px_scalar s, void *to) {
  bool upper = s.kind == 'f' && s.v.f >= 0x1p63 && s.v.f < 0x1p64;
  *(uint64_t *)to = upper ? (uint64_t)s.v.f : (uint64_t)integer_of(s);
}
static px_scalar load_UINT64(const void *from) { return px_uint(*(const uint64_t *)from); }
#define REAL(name, type, encode, decode) \
  static void store_##name(px_scalar s, void *to) { *(type *)to = encode(px_scalar_float(s)); } \
  static px_scalar load_##name(const void *from) { \
    return px_float((double)decode(*(const type *)from)); \
  }
#define TO_HALF(x) px_float_to_half((float)(x))
#define TO_BFLOAT(x) px_float_to_bfloat((float)(x))
REAL(FLOAT16, uint16_t, TO_HALF, px_half_to_float)
REAL(BFLOAT16, uint16_t, TO_BFLOAT, px_bfloat_to_float)
REAL(FLOAT32, float, (float), (double))
REAL(FLOAT64, double, (double), (double))
#define XX(name, suffix, cell, format, ...) \
  static void store_##name(px_scalar s, void *to) { \
    *(uint8_t *)to = px_float8_store(PX_FLOAT8 format, (float)px_scalar_float(s)); \
  } \
  static px_scalar load_##name(const void *from) { \
    return px_float((double)px_float8_load(PX_FLOAT8 format, *(const uint8_t *)from)); \
  }
PX_DTYPE_FLOAT8_MAP(XX)
#undef XX
#define XX(name, suffix, cell, part, ...) \
  static void store_##name(px_scalar s, void *to) { \
    store_##part(s, to); \
    memset((char *)to + sizeof(cell) / 2, 0, sizeof(cell) / 2); \
  } \
  static px_scalar load_##name(const void *from) { return load_##part(from); }
PX_DTYPE_COMPLEX_MAP(XX)
#undef XX
static void store_BOOL(px_scalar s, void *to) { *(uint8_t *)to = truth_of(s); }
static px_scalar load_BOOL(const void *from) { return px_bool(*(const uint8_t *)from != 0); }

static const struct {
  void (*store)(px_scalar s, void *to);
  px_scalar (*load)(const void *from);
} rows[PX_DTYPE_COUNT] = {
#define XX(name, ...) {store_##name, load_##name},
    PX_DTYPE_MAP(XX)
#undef XX
};

bool px_scalar_fits(px_scalar s, px_dtype dtype) {
  if ((unsigned)dtype >= PX_DTYPE_COUNT || dtype == PX_BOOL) return true;
  if (s.kind != 'f' && (dtype == PX_INT64 || dtype == PX_UINT64))
    return s.kind != 'u' || dtype == PX_UINT64;
  double value = px_scalar_float(s);
  if (!isfinite(value)) return px_dtype_is_float(dtype) || px_dtype_is_complex(dtype);
  const px_dtype_info *range = px_dtype_about(dtype);
  double min = range->kind == 'u' && s.kind != 'f' ? -range->max : range->min;
  return value >= min && value <= range->max;
}

void px_scalar_store(px_scalar s, px_dtype dtype, void *element) {
  if ((unsigned)dtype < PX_DTYPE_COUNT) rows[dtype].store(s, element);
}

px_scalar px_scalar_load(px_dtype dtype, const void *element) {
  return (unsigned)dtype < PX_DTYPE_COUNT ? rows[dtype].load(element) : (px_scalar){0};
}

void px_complex_store(px_complex value, px_dtype dtype, void *element) {
  px_dtype part = px_dtype_to_real(dtype);
  px_scalar_store(px_float(value.real), part, element);
  if (part != dtype)
    px_scalar_store(px_float(value.imag), part, (char *)element + px_dtype_size(part));
}

px_complex px_complex_load(px_dtype dtype, const void *element) {
  px_dtype part = px_dtype_to_real(dtype);
  px_complex value = {px_scalar_float(px_scalar_load(part, element)), 0};
  if (part != dtype)
    value.imag = px_scalar_float(px_scalar_load(part, (const char *)element + px_dtype_size(part)));
  return value;
}
