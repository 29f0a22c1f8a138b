// SPDX-License-Identifier: Apache-2.0
// Bitwise conversions of the 8-bit floating-point formats: one pair of functions for all formats,
// in C or, with PX_FLOAT8_MATH defined, in CUDA C++. Rounds to nearest even. Overflow gives
// PyTorch's results.
#pragma once
#include <stdint.h>
#include <string.h>

#ifndef PX_FLOAT8_MATH
#define PX_FLOAT8_MATH static inline
#endif

// Mantissa bits; exponent bias; codes of the maximum, of overflow, and of NaN. A format without
// mantissa bits has no sign either. A format with the code of -0 as NaN has no -0.
typedef struct px_float8_format {
  uint8_t digits, bias, max, over, nan;
} px_float8_format;
#ifdef __cplusplus
#define PX_FLOAT8(digits, bias, max, over, nan) \
  px_float8_format { digits, bias, max, over, nan }
#else
#define PX_FLOAT8(digits, bias, max, over, nan) ((px_float8_format){digits, bias, max, over, nan})
#endif

PX_FLOAT8_MATH float px_float8_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
PX_FLOAT8_MATH uint32_t px_float8_bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

PX_FLOAT8_MATH float px_float8_load(px_float8_format f, uint8_t x) {
  if (!f.digits)
    return px_float8_of_bits(x == f.nan ? 0x7fc00000u : x ? (uint32_t)x << 23 : 0x400000u);
  uint32_t sign = (uint32_t)(x & 0x80) << 24, rest = x & 0x7f;
  if (x == f.nan || rest > f.max)
    return px_float8_of_bits(sign |
                             (rest == f.over && f.over != f.nan ? 0x7f800000u : 0x7fc00000u));
  float unit = px_float8_of_bits((uint32_t)(128 - f.bias - f.digits) << 23);  // smallest subnormal
  if (rest >> f.digits == 0) return px_float8_of_bits(sign | px_float8_bits_of((float)rest * unit));
  return px_float8_of_bits(sign | ((rest << (23 - f.digits)) + ((uint32_t)(127 - f.bias) << 23)));
}

// For exponent-only formats: ties round up, and the sign is dropped.
PX_FLOAT8_MATH uint8_t px_float8_exponent(uint32_t u) {
  return (uint8_t)(u >= 0x7f800000u ? 0xffu : (u + 0x400000u - (u >> 23 == 0)) >> 23);
}

PX_FLOAT8_MATH uint8_t px_float8_store(px_float8_format f, float x) {
  uint32_t u = px_float8_bits_of(x), sign = u >> 24 & 0x80u;
  u &= 0x7fffffffu;
  if (!f.digits) return px_float8_exponent(u);
  if (u > 0x7f800000u) return (uint8_t)(sign | f.nan);
  uint32_t shift = 23u - f.digits, min_normal = (uint32_t)(128 - f.bias) << 23, code;
  if (u < min_normal) {
    // Adding a number with the ulp of a float8 subnormal rounds to that precision.
    uint32_t large = (uint32_t)(128 - f.bias - f.digits + 23) << 23;
    code = px_float8_bits_of(px_float8_of_bits(u) + px_float8_of_bits(large)) - large;
  } else {
    code = (u - ((uint32_t)(127 - f.bias) << 23) + (1u << (shift - 1)) - 1 + (u >> shift & 1)) >>
           shift;
  }
  if (code > f.max) code = f.over;
  return (uint8_t)(code == 0 && f.nan == 0x80 ? 0 : sign | code);
}
