// SPDX-License-Identifier: Apache-2.0
// Numbers of the host, as elements and back.
#include <math.h>

#include "base/base_impl.h"
#include "phlox/dtype.h"

px_dtype px_scalar_dtype(px_scalar s) {
  return s.kind == 'b'   ? PX_BOOL
         : s.kind == 'i' ? PX_INT64
         : s.kind == 'f' ? px_dtype_default()
                         : PX_DTYPE_NONE;
}

// Out of range and NaN give the smallest integer, as the x86 instruction does: the language leaves
// it undefined.
static int64_t integer_of(px_scalar s) {
  if (s.kind != 'f') return px_scalar_int(s);
  return s.v.f >= (double)INT64_MIN && s.v.f < -(double)INT64_MIN ? (int64_t)s.v.f : INT64_MIN;
}

static bool truth_of(px_scalar s) {
  return s.kind == 'f' ? s.v.f != 0 : px_scalar_int(s) != 0;  // NaN is true
}

// One function a dtype: how a number becomes an element, and an element a number.
#define INTEGER(name, type) \
  static void store_##name(px_scalar s, void *to) { *(type *)to = (type)integer_of(s); } \
  static px_scalar load_##name(const void *from) { return px_int(*(const type *)from); }
INTEGER(UINT8, uint8_t)
INTEGER(INT8, int8_t)
INTEGER(INT16, int16_t)
INTEGER(INT32, int32_t)
INTEGER(INT64, int64_t)
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
  if (s.kind != 'f' && dtype == PX_INT64) return true;
  double value = px_scalar_float(s);
  if (!isfinite(value)) return px_dtype_is_float(dtype);
  const px_dtype_info *range = px_dtype_about(dtype);
  double least = range->kind == 'u' ? -range->greatest : range->least;
  return value >= least && value <= range->greatest;
}

void px_scalar_store(px_scalar s, px_dtype dtype, void *element) {
  if ((unsigned)dtype < PX_DTYPE_COUNT) rows[dtype].store(s, element);
}

px_scalar px_scalar_load(px_dtype dtype, const void *element) {
  return (unsigned)dtype < PX_DTYPE_COUNT ? rows[dtype].load(element) : (px_scalar){0};
}
