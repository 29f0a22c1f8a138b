// SPDX-License-Identifier: Apache-2.0
// Float functions computed in double. The error is that of the final rounding, and no float needs
// scaling in double. Without branches and calls, so that loops around them vectorize. Polynomials
// are minimax fits of their degree.
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

// always_inline even for long functions: a call would prevent vectorization of the loop.
#define K_INLINE static inline __attribute__((always_inline))

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

// Splits a positive finite normal number into 2^e m with m near 1. Returns e, converted to double
// through the bits of 2^52 + e. The bias is K_BIAS, plus the scale's exponent if x was scaled.
#define K_BIAS (0x1p52 + 1023)
K_INLINE double k_log_split(double x, double bias, double *m) {
  const uint64_t root = 0x3fe6a09e667f3bcd;  // sqrt(0.5)
  uint64_t v = k_double_bits(x) + (0x3ff0000000000000 - root);
  *m = k_bits_double((v & 0x000fffffffffffff) + root);
  return k_bits_double((v >> 52) | 0x4330000000000000) - bias;
}

// Polynomials in Estrin's scheme: pairs of terms, then pairs of pairs. Horner's long dependency
// chains would stall the loop. Four terms, given x * x:
K_INLINE double k_four_terms(double x, double square, double a, double b, double c, double d) {
  return K_FMA_f64(K_FMA_f64(a, x, b), square, K_FMA_f64(c, x, d));
}

// The natural logarithm of a positive finite normal number, relative error 3e-12: f p(f) with
// f = m - 1. A division, as in the atanh series, would take longer than the terms it saves.
K_INLINE double k_narrow_log(double x) {
  double m, e = k_log_split(x, K_BIAS, &m), f = m - 1, g = f * f, h = g * g;
  double top = K_FMA_f64(f, -0.049702381586205393, 0.092924699609614192);
  double high = k_four_terms(f, g, -0.093154676457451815, 0.090017500538261303,
                             -0.098760330168819906, 0.11108207931264379);
  double middle = k_four_terms(f, g, -0.12507182875310123, 0.14286122891243819,
                               -0.16666463817321652, 0.1999998824482061);
  double low = k_four_terms(f, g, -0.25000002509017656, 0.33333333435786692, -0.49999999990854613,
                            0.99999999999870321);
  double p = K_FMA_f64(K_FMA_f64(top, h, high), h * h, K_FMA_f64(middle, h, low));
  return K_FMA_f64(e, 0.693147180559945309, f * p);
}

// 2^x for |x| <= 1000, relative error 4e-11.
K_INLINE double k_narrow_exp2(double x) {
  const double magic = 0x1.8p52;  // adding it rounds to an integer
  double shifted = x + magic, r = x - (shifted - magic), q = r * r;
  double high = k_four_terms(r, q, 1.5201972419180082e-5, 0.00015469303316565969,
                             0.0013333922385868516, 0.009618027204790244);
  double low = k_four_terms(r, q, 0.055504103535766791, 0.24022651198664991, 0.69314718072846737,
                            0.99999999996160462);
  return K_FMA_f64(high, q * q, low) * k_bits_double((k_double_bits(shifted) + 1023) << 52);
}

// a^b. The clamp yields inf and zero, since 2^200 overflows a float. Conditions on doubles are kept
// apart from those on floats, as vectorization requires.
K_INLINE float k_narrow_pow(float a, float b) {
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
  y = ((a < 0) & !whole & (size < INFINITY)) ? NAN : y;
  y = one ? 1 : y;
  return odd ? copysignf(y, a) : y;
}

// lgamma for a >= 10, by Stirling's series.
K_INLINE double k_stirling(double a) {
  double r = 1 / a, q = r * r;
  double p = K_FMA_f64(q, 0.00079633489409183405, -0.0005948481309828084);
  p = K_FMA_f64(p, q, 0.00079364941511228611);
  p = K_FMA_f64(p, q, -0.0027777777760670032);
  p = K_FMA_f64(p, q, 0.083333333333332993);
  return K_FMA_f64(a - 0.5, k_narrow_log(a), K_FMA_f64(p, r, 0.91893853320467274 - a));
}
// lgamma(1.5 + h) for |h| <= 0.5; factors out the zeros.
K_INLINE double k_lgamma_zeros(double h) {
  double p = K_FMA_f64(h, 0.0000291412405983332949, -0.0000434898756795335884);
  p = K_FMA_f64(p, h, 0.0000340882466509120152);
  p = K_FMA_f64(p, h, -0.0000569360115421017714);
  p = K_FMA_f64(p, h, 0.000108137632502778795);
  p = K_FMA_f64(p, h, -0.000171580040706797781);
  p = K_FMA_f64(p, h, 0.000270788321650790523);
  p = K_FMA_f64(p, h, -0.000437546307537114941);
  p = K_FMA_f64(p, h, 0.000711580743892418329);
  p = K_FMA_f64(p, h, -0.00116445939122736438);
  p = K_FMA_f64(p, h, 0.00192291188284897852);
  p = K_FMA_f64(p, h, -0.00321207145046051533);
  p = K_FMA_f64(p, h, 0.00544645802296377954);
  p = K_FMA_f64(p, h, -0.0094256225314008101);
  p = K_FMA_f64(p, h, 0.0167970986273728398);
  p = K_FMA_f64(p, h, -0.0313084874998234949);
  p = K_FMA_f64(p, h, 0.0629114010745967772);
  p = K_FMA_f64(p, h, -0.145959895914311062);
  p = K_FMA_f64(p, h, 0.483128950540980845);
  return (h + 0.5) * (h - 0.5) * p;
}
// |sin(pi a)|.
K_INLINE double k_sine_pi(double a) {
  double r = a - rint(a), q = r * r;
  double p = K_FMA_f64(q, -2.1133801443867397e-5, 0.0004659871681506968);
  p = K_FMA_f64(p, q, -0.0073703643789059865);
  p = K_FMA_f64(p, q, 0.082145878825239413);
  p = K_FMA_f64(p, q, -0.59926452882600543);
  p = K_FMA_f64(p, q, 2.5501640398619002);
  p = K_FMA_f64(p, q, -5.1677127800497863);
  p = K_FMA_f64(p, q, 3.1415926535897929);
  return fabs(r) * p;
}

// lgamma(a) = near + log(up / down). `near` is lgamma at a + 1 for a < 1, at a - 1 in [2, 3), and
// at a + 7 in [3, 10). Negative numbers use the reflection formula.
K_INLINE float k_narrow_lgamma(float x) {
  double y = (double)x, a = fabs(y);
  double product = a * (a + 1) * (a + 2) * (a + 3) * (a + 4) * (a + 5) * (a + 6);
  double h = a - (a < 1 ? 0.5 : a < 2 ? 1.5 : 2.5), below = k_lgamma_zeros(h);
  double above = k_stirling(a < 10 ? a + 7 : a), near = a < 3 ? below : above;
  double up = ((a >= 2) & (a < 3)) ? a - 1 : 1;
  double down = a < 10 ? product : 1;
  down = a < 3 ? 1 : down;
  down = a < 1 ? a : down;
  double sine = k_sine_pi(a), top = y < 0 ? 3.14159265358979324 * down : up;
  double bottom = y < 0 ? up * a * sine : down;
  double value = (y < 0 ? -near : near) + k_narrow_log(top / bottom);
  value = bottom > 0 ? value : (double)INFINITY;
  value = a < (double)INFINITY ? value : a;
  return (float)value;
}
