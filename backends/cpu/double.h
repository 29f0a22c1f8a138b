// SPDX-License-Identifier: Apache-2.0
// Functions of double as those of float in math.h: no branches and no calls, so that the loops
// around them are vectorised, with the same operations whatever the vectors' length is. The
// polynomials are the best ones of their degree; errors are below 1 unit in the last place, and of
// tanh below 2.
#pragma once
#include "cpu/narrow.h"

#include <float.h>

// ln 2 in two parts; the first has so few digits that its products with exponents are exact.
#define K_LN2_HIGH 0x1.62e42fefa38p-1
#define K_LN2_LOW 0x1.ef35793c7673p-45

// x = n ln 2 + r, where |r| is up to half of ln 2; n + `bias` is in the lowest bits of the result.
K_INLINE double k_exp_split(double x, double bias, double *r) {
  double magic = 0x1.8p52 + bias;  // adding it rounds to a whole number
  double shifted = K_FMA_f64(x, 1.4426950408889634, magic), n = shifted - magic;
  *r = K_FMA_f64(n, -K_LN2_LOW, K_FMA_f64(n, -K_LN2_HIGH, x));
  return shifted;
}

// e^r - 1 for such an r.
K_INLINE double k_exp_rest_f64(double r) {
  double p = K_FMA_f64(r, 2.5112364467233426e-08, 2.7622345705237047e-07);
  p = K_FMA_f64(p, r, 2.7557235130156411e-06);
  p = K_FMA_f64(p, r, 2.4801516069996109e-05);
  p = K_FMA_f64(p, r, 0.00019841269894328053);
  p = K_FMA_f64(p, r, 0.0013888888920710464);
  p = K_FMA_f64(p, r, 0.0083333333333189662);
  p = K_FMA_f64(p, r, 0.041666666666619542);
  p = K_FMA_f64(p, r, 0.1666666666666668);
  p = K_FMA_f64(p, r, 0.5);
  return K_FMA_f64(p, r * r, r);
}

// The power of two is applied in halves, so that subnormal results are right; its exponent has two
// biases. Limits are set at the end, as gcc makes more of those before.
K_INLINE double k_exp_f64(double x) {
  double r;
  uint64_t m = k_double_bits(k_exp_split(x, 2046, &r)), half = m >> 1;
  double y = (k_exp_rest_f64(r) + 1) * k_bits_double(half << 52);
  y *= k_bits_double((m - half) << 52);
  y = x < -746 ? 0 : y;
  return x > 710 ? (double)INFINITY : y;
}

// t / (2 - t), where t = 1 - exp(-2 |x|).
K_INLINE double k_tanh_f64(double x) {
  double a = fabs(x), r;
  a = a > 20 ? 20 : a;
  double power = k_bits_double(k_double_bits(k_exp_split(-2 * a, 1023, &r)) << 52);
  double t = K_FMA_f64(-power, k_exp_rest_f64(r), 1 - power);
  return copysign(t / (2 - t), x);
}

// x = 2^e m with m near 1; log m = f - f^2 / 2 + s (f^2 / 2 + z p(z)), where f = m - 1,
// s = f / (2 + f) and z = s^2.
K_INLINE double k_log_f64(double x) {
  const uint64_t root = 0x3fe6a09e667f3bcd;  // the square root of one half
  bool tiny = x < DBL_MIN;
  uint64_t v = k_double_bits(tiny ? x * 0x1p54 : x) + (0x3ff0000000000000 - root);
  double bias = tiny ? 0x1p52 + 1023 + 54 : 0x1p52 + 1023;
  double e = k_bits_double((v >> 52) | 0x4330000000000000) - bias;
  double f = k_bits_double((v & 0x000fffffffffffff) + root) - 1, s = f / (2 + f), z = s * s;
  double p = K_FMA_f64(z, 0.14797507642459734, 0.15313903252726188);
  p = K_FMA_f64(p, z, 0.18183569739606009);
  p = K_FMA_f64(p, z, 0.22222198475988983);
  p = K_FMA_f64(p, z, 0.28571428743262672);
  p = K_FMA_f64(p, z, 0.3999999999941109);
  p = K_FMA_f64(p, z, 0.66666666666667351);
  double half = 0.5 * f * f;
  double rest = K_FMA_f64(s, K_FMA_f64(p, z, half), e * K_LN2_LOW);
  double y = K_FMA_f64(e, K_LN2_HIGH, f - (half - rest));
  y = x > DBL_MAX ? x : y;
  y = x == 0 ? -(double)INFINITY : y;
  return x >= 0 ? y : (double)NAN;
}
