// SPDX-License-Identifier: Apache-2.0
// Reductions on host memory: one function for each operation and dtype.
#include <math.h>
#include <string.h>

#include "comm/comm_impl.h"

// ---- fp16 and bf16, through float

static float from_bf16(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

static uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (isnan(value)) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_f16(uint16_t x) {
  int exponent = x >> 10 & 31, fraction = x & 1023;
  float size = exponent == 31  ? (fraction ? NAN : INFINITY)
               : exponent == 0 ? ldexpf((float)fraction, -24)
                               : ldexpf((float)(fraction + 1024), exponent - 25);
  return x & 0x8000 ? -size : size;
}

// Rounds to nearest, ties to even: nearbyintf rounds in units in the last place.
static uint16_t to_f16(float value) {
  uint16_t sign = signbit(value) ? 0x8000 : 0;
  float size = fabsf(value);
  int exponent;
  if (isnan(value)) return sign | 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  if (size < 0x1p-14f) return sign | (uint16_t)nearbyintf(ldexpf(size, 24));
  frexpf(size, &exponent);  // in [2^(exponent-1), 2^exponent)
  uint32_t units = (uint32_t)nearbyintf(ldexpf(size, 11 - exponent));
  return sign | (uint16_t)(((uint32_t)(exponent + 14) << 10) + units - 1024);
}

// ---- the functions

#define SAME(x) (x)
#define SUM(a, b) ((a) + (b))
#define PRODUCT(a, b) ((a) * (b))
// Propagates NaN.
#define MIN(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define MAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define BAND(a, b) ((a) & (b))
#define BOR(a, b) ((a) | (b))
#define BXOR(a, b) ((a) ^ (b))

#define FUNCTION(op, dtype, type, wide, load, store) \
  static void op##_##dtype(void *out, const void *a, const void *b, size_t n) { \
    type *to = out; \
    const type *x = a, *y = b; \
    for (size_t i = 0; i < n; i++) { \
      wide left = load(x[i]), right = load(y[i]); \
      to[i] = (type)store((wide)op(left, right)); \
    } \
  }
#define FOR_NUMBERS(dtype, type, wide, load, store) \
  FUNCTION(SUM, dtype, type, wide, load, store) \
  FUNCTION(PRODUCT, dtype, type, wide, load, store) \
  FUNCTION(MIN, dtype, type, wide, load, store) \
  FUNCTION(MAX, dtype, type, wide, load, store)
#define FOR_INTEGERS(dtype, type, wide) \
  FOR_NUMBERS(dtype, type, wide, SAME, SAME) \
  FUNCTION(BAND, dtype, type, wide, SAME, SAME) \
  FUNCTION(BOR, dtype, type, wide, SAME, SAME) \
  FUNCTION(BXOR, dtype, type, wide, SAME, SAME)

// Integer sums and products wrap around: they are computed unsigned.
FOR_INTEGERS(UINT8, uint8_t, uint8_t)
FOR_NUMBERS(FLOAT16, uint16_t, float, from_f16, to_f16)
FOR_NUMBERS(BFLOAT16, uint16_t, float, from_bf16, to_bf16)
FOR_NUMBERS(FLOAT32, float, float, SAME, SAME)
FOR_NUMBERS(FLOAT64, double, double, SAME, SAME)
#undef SUM
#undef PRODUCT
#define SUM(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define PRODUCT(a, b) ((int64_t)((uint64_t)(a) * (uint64_t)(b)))
FOR_INTEGERS(INT8, int8_t, int64_t)
FOR_INTEGERS(INT16, int16_t, int64_t)
FOR_INTEGERS(INT32, int32_t, int64_t)
FOR_INTEGERS(INT64, int64_t, int64_t)

#define NUMBERS(dtype) \
  [PX_##dtype] = {[PX_REDUCE_SUM] = SUM_##dtype,         [PX_REDUCE_AVG] = SUM_##dtype, \
                  [PX_REDUCE_PRODUCT] = PRODUCT_##dtype, [PX_REDUCE_MIN] = MIN_##dtype, \
                  [PX_REDUCE_MAX] = MAX_##dtype,         [PX_REDUCE_PREMUL_SUM] = SUM_##dtype}
#define INTEGERS(dtype) \
  [PX_##dtype] = {[PX_REDUCE_SUM] = SUM_##dtype,   [PX_REDUCE_PRODUCT] = PRODUCT_##dtype, \
                  [PX_REDUCE_MIN] = MIN_##dtype,   [PX_REDUCE_MAX] = MAX_##dtype, \
                  [PX_REDUCE_BAND] = BAND_##dtype, [PX_REDUCE_BOR] = BOR_##dtype, \
                  [PX_REDUCE_BXOR] = BXOR_##dtype}
static const px__reduce functions[][PX_REDUCE_COUNT] = {
    // Booleans are bytes of 0 and 1: a sum is a logical or.
    [PX_BOOL] = {[PX_REDUCE_SUM] = BOR_UINT8,
                 [PX_REDUCE_PRODUCT] = BAND_UINT8,
                 [PX_REDUCE_MIN] = BAND_UINT8,
                 [PX_REDUCE_MAX] = BOR_UINT8,
                 [PX_REDUCE_BAND] = BAND_UINT8,
                 [PX_REDUCE_BOR] = BOR_UINT8,
                 [PX_REDUCE_BXOR] = BXOR_UINT8},
    INTEGERS(UINT8),
    INTEGERS(INT8),
    INTEGERS(INT16),
    INTEGERS(INT32),
    INTEGERS(INT64),
    NUMBERS(FLOAT16),
    NUMBERS(BFLOAT16),
    NUMBERS(FLOAT32),
    NUMBERS(FLOAT64),
};

px__reduce px__reduce_find(px_reduce_op op, px_dtype dtype, int *per) {
  *per = 1;
  bool adds = op == PX_REDUCE_SUM || op == PX_REDUCE_AVG;
  if (adds && dtype == PX_COMPLEX64) return *per = 2, SUM_FLOAT32;
  if (adds && dtype == PX_COMPLEX128) return *per = 2, SUM_FLOAT64;
  bool known = (size_t)dtype < sizeof functions / sizeof *functions;
  return known ? functions[dtype][op] : NULL;
}

// Applies `change` to each element of a floating-point dtype.
#define EACH(type, wide, load, store, change) \
  for (int64_t i = 0; i < n; i++) { \
    wide x = load(((type *)at)[i]); \
    ((type *)at)[i] = store(change(wide)); \
  }
#define EACH_OF(dtype, change) \
  if (dtype == PX_FLOAT16) \
    EACH(uint16_t, float, from_f16, to_f16, change) \
  else if (dtype == PX_BFLOAT16) \
    EACH(uint16_t, float, from_bf16, to_bf16, change) \
  else if (dtype == PX_FLOAT32 || dtype == PX_COMPLEX64) \
    EACH(float, float, SAME, SAME, change) \
  else \
    EACH(double, double, SAME, SAME, change)
#define DIVIDED(wide) x / (wide)by
#define SCALED(wide) x *(wide)factor
void px__reduce_divide(px_dtype dtype, void *at, int64_t n, int by) { EACH_OF(dtype, DIVIDED) }
void px__reduce_scale(px_dtype dtype, void *at, int64_t n, double factor) { EACH_OF(dtype, SCALED) }
