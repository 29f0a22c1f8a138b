// SPDX-License-Identifier: Apache-2.0
// Functions of float that are computed in double: the error is the last rounding's, and a float has
// no value that a double would have to scale first. Nothing branches and nothing is called, so that
// the loops around them are vectorised. The polynomials are the best ones of their degree.
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __FMA__
#define K_FMA_f32(a, b, c) __builtin_fmaf(a, b, c)
#define K_FMA_f64(a, b, c) __builtin_fma(a, b, c)
#else
#define K_FMA_f32(a, b, c) ((a) * (b) + (c))
#define K_FMA_f64(a, b, c) ((a) * (b) + (c))
#endif

static inline uint64_t k_double_bits(double x) {
  uint64_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
static inline double k_bits_double(uint64_t u) {
  double x;
  memcpy(&x, &u, sizeof x);
  return x;
}

// The natural logarithm of a positive number that is normal and finite: x = 2^e m with m near 1,
// and the series of the inverse hyperbolic tangent. The exponent becomes a double by the bits of
// 2^52 + e.
static inline double k_narrow_log(double x) {
  const uint64_t root = 0x3fe6a09e667f3bcd;  // the square root of one half
  uint64_t v = k_double_bits(x) + (0x3ff0000000000000 - root);
  double e = k_bits_double((v >> 52) | 0x4330000000000000) - (0x1p52 + 1023);
  double f = k_bits_double((v & 0x000fffffffffffff) + root) - 1, s = f / (2 + f), z = s * s;
  double p = K_FMA_f64(z, 0.16820597872873828, 0.1812358999987843);
  p = K_FMA_f64(p, z, 0.22223372857289696);
  p = K_FMA_f64(p, z, 0.28571417121382519);
  p = K_FMA_f64(p, z, 0.40000000052257685);
  p = K_FMA_f64(p, z, 0.6666666666658745);
  return K_FMA_f64(e, 0.693147180559945309, K_FMA_f64(s * z, p, 2 * s));
}

// 2^x for x between -1000 and 1000, to 4e-11.
static inline double k_narrow_exp2(double x) {
  const double magic = 0x1.8p52;  // adding it rounds to a whole number
  double shifted = x + magic, r = x - (shifted - magic);
  double p = K_FMA_f64(r, 1.5201924248838622e-5, 0.00015469291407534769);
  p = K_FMA_f64(p, r, 0.001333392255491749);
  p = K_FMA_f64(p, r, 0.009618027252690619);
  p = K_FMA_f64(p, r, 0.055504103534569272);
  p = K_FMA_f64(p, r, 0.24022651198167253);
  p = K_FMA_f64(p, r, 0.69314718072843843);
  p = K_FMA_f64(p, r, 0.99999999996167934);
  return p * k_bits_double((k_double_bits(shifted) + 1023) << 52);
}

// a^b. What is infinite or zero comes from the clamp: a float has no 2^200. Conditions of double
// are apart from those of float, which vectors of both need.
static inline float k_narrow_pow(float a, float b) {
  float size = fabsf(a), half = 0.5f * b;
  double x = (double)size, log = k_narrow_log(x);
  log = x == 0 ? -(double)INFINITY : log;
  log = x < (double)INFINITY ? log : x;
  double t = log * (double)b * 1.44269504088896341;
  t = t < -200 ? -200 : t;
  t = t > 200 ? 200 : t;
  float y = (float)k_narrow_exp2(t);
  bool whole = rintf(b) == b, odd = whole & (rintf(half) != half);
  bool one = (b == 0) | (a == 1) | ((size == 1) & (fabsf(b) == INFINITY));
  y = (a < 0) & !whole & (size < INFINITY) ? NAN : y;
  y = one ? 1 : y;
  return odd ? copysignf(y, a) : y;
}
