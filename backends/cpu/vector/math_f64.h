// SPDX-License-Identifier: Apache-2.0
// Double-precision counterparts of the float functions in math.h. Without branches and calls, so
// that loops around them vectorize; the operations do not depend on the vector length. Polynomials
// are minimax fits of their degree. Errors are below 1 ulp, for tanh below 2 ulp.
#pragma once
#include "cpu/vector/math_f32_in_f64.h"
#include "cpu/vector/loop_hints.h"

#include <float.h>

// ln 2 in two parts; the first has few enough digits for exact products with exponents.
#define K_LN2_HIGH 0x1.62e42fefa38p-1
#define K_LN2_LOW 0x1.ef35793c7673p-45

// x = n ln 2 + r with |r| <= ln 2 / 2; the lowest bits of the result hold n + bias.
K_INLINE double k_exp_split(double x, double bias, double *r) {
  double magic = 0x1.8p52 + bias;  // adding it rounds to an integer
  double shifted = K_FMA_f64(x, 1.4426950408889634, magic), n = shifted - magic;
  *r = K_FMA_f64(n, -K_LN2_LOW, K_FMA_f64(n, -K_LN2_HIGH, x));
  return shifted;
}

// e^r - 1 for |r| <= ln 2 / 2.
K_INLINE double k_exp_rest_f64(double r) {
  double q = r * r, p = k_four_terms(r, q, 2.5112364467233426e-08, 2.7622345705237047e-07,
                                     2.7557235130156411e-06, 2.4801516069996109e-05);
  p = K_FMA_f64(p, q * q,
                k_four_terms(r, q, 0.00019841269894328053, 0.0013888888920710464,
                             0.0083333333333189662, 0.041666666666619542));
  p = K_FMA_f64(p, q, K_FMA_f64(r, 0.1666666666666668, 0.5));
  return K_FMA_f64(p, q, r);
}

// e^x from the parts of x. The power of two is applied in two halves, so that subnormal results are
// right; its exponent holds two biases. The limits come last, where gcc generates better code.
#define K_BIASES 2046
K_INLINE double k_exp_join(double x, double shifted, double r) {
  uint64_t m = k_double_bits(shifted), half = m >> 1;
  double y = (k_exp_rest_f64(r) + 1) * k_bits_double(half << 52);
  y *= k_bits_double((m - half) << 52);
  y = x < -746 ? 0 : y;
  return x > 710 ? (double)INFINITY : y;
}
K_INLINE double k_exp_f64(double x) {
  double r, shifted = k_exp_split(x, K_BIASES, &r);
  return k_exp_join(x, shifted, r);
}

// Plain arguments have a normal result.
K_INLINE double k_plain_exp_f64(double x) {
  double r, shifted = k_exp_split(x, 0, &r), y = k_exp_rest_f64(r) + 1;
  return k_bits_double(k_double_bits(y) + (k_double_bits(shifted) << 52));
}

// t / (2 - t), where t = 1 - exp(-2 |x|).
K_INLINE double k_tanh_f64(double x) {
  double a = fabs(x), r;
  a = a > 20 ? 20 : a;
  double power = k_bits_double(k_double_bits(k_exp_split(-2 * a, 1023, &r)) << 52);
  double t = K_FMA_f64(-power, k_exp_rest_f64(r), 1 - power);
  return copysign(t / (2 - t), x);
}

// e ln 2 + log(1 + f) for small f: log(1 + f) = f - f^2 / 2 + s (f^2 / 2 + z p(z)) with
// s = f / (2 + f) and z = s^2.
K_INLINE double k_log_join(double e, double f) {
  double s = f / (2 + f), z = s * s, q = z * z;
  double p = K_FMA_f64(z, 0.14797507642459734, 0.15313903252726188);
  p = K_FMA_f64(p, q, K_FMA_f64(z, 0.18183569739606009, 0.22222198475988983));
  p = K_FMA_f64(p, q, K_FMA_f64(z, 0.28571428743262672, 0.3999999999941109));
  p = K_FMA_f64(p, z, 0.66666666666667351);
  double half = 0.5 * f * f;
  double rest = K_FMA_f64(s, K_FMA_f64(p, z, half), e * K_LN2_LOW);
  return K_FMA_f64(e, K_LN2_HIGH, f - (half - rest));
}

// x = 2^e m with m near 1.
K_INLINE double k_log_f64(double x) {
  bool tiny = x < DBL_MIN;
  double m, e = k_log_split(tiny ? x * 0x1p54 : x, tiny ? K_BIAS + 54 : K_BIAS, &m);
  double y = k_log_join(e, m - 1);
  y = x > DBL_MAX ? x : y;
  y = x == 0 ? -(double)INFINITY : y;
  return x >= 0 ? y : (double)NAN;
}

// Plain arguments are positive normal numbers.
K_INLINE double k_plain_log_f64(double x) {
  double m, e = k_log_split(x, K_BIAS, &m);
  return k_log_join(e, m - 1);
}

// As k_log1p_f32.
K_INLINE double k_log1p_f64(double x) {
  bool large = x > 0x1p500;
  double scaled = large ? x * 0x1p-520 : x, one = large ? 0 : 1, m;
  double e = k_log_split(scaled + one, K_BIAS, &m);
  double power = k_bits_double((1023 - k_double_bits(e + 0x1.8p52)) << 52);  // 2^-e
  double f = K_FMA_f64(scaled, power, K_FMA_f64(one, power, -1));
  double y = k_log_join(e + (large ? 520 : 0), f);
  y = fabs(x) < DBL_MIN ? x : y;
  y = x > DBL_MAX ? x : y;
  y = x == -1 ? -(double)INFINITY : y;
  return x >= -1 ? y : (double)NAN;
}

#ifdef __FMA__
// The logarithm of a positive normal number as a sum of two doubles, with relative error 2^-61. As
// above with s in two parts, hence also the first two terms of the series: 2 s and 2/3 s^3. The low
// part holds all other terms.
K_INLINE double k_log_parts(double x, double bias, double *low) {
  double m, e = k_log_split(x, bias, &m), f = m - 1;
  double d = m + 1, d_low = m - (d - 1), r = 1 / d, s = f * r;
  double s_low = r * K_FMA_f64(-s, d_low, K_FMA_f64(-s, d, f));
  double z = s * s, z_low = K_FMA_f64(s, s, -z) + 2 * s * s_low;
  double c = s * z, c_low = K_FMA_f64(s, z, -c) + K_FMA_f64(s, z_low, s_low * z);
  const double third = 0x1.5555555555555p-1, third_low = 0x1.5555555555555p-55;
  double u = c * third, u_low = K_FMA_f64(c, third, -u) + K_FMA_f64(c, third_low, c_low * third);
  double p = K_FMA_f64(z, 0.12914661978788344, 0.13285864360346672);
  p = K_FMA_f64(p, z, 0.15385577906050266);
  p = K_FMA_f64(p, z, 0.18181808199692817);
  p = K_FMA_f64(p, z, 0.2222222227143476);
  p = K_FMA_f64(p, z, 0.28571428571337665);
  p = K_FMA_f64(p, z, 0.4000000000000003);
  double h = 2 * s + u, whole = e * K_LN2_HIGH, high = whole + h;
  double rest = K_FMA_f64(c * z, p, K_FMA_f64(2, s_low, u_low) + (u - (h - 2 * s)));
  *low = K_FMA_f64(e, K_LN2_LOW, rest + (h - (high - whole)));
  return high;
}

// x + low = n ln 2 + r with |r| <= ln 2 / 2 and `low` small; returns the same as k_exp_split.
K_INLINE double k_exp_split_sum(double x, double low, double bias, double *r) {
  double magic = 0x1.8p52 + bias, shifted = K_FMA_f64(x + low, 1.4426950408889634, magic);
  double n = shifted - magic;
  *r = K_FMA_f64(n, -K_LN2_LOW, K_FMA_f64(n, -K_LN2_HIGH, x)) + low;
  return shifted;
}
// b times a two-part logarithm, in two parts.
K_INLINE double k_log_times(double b, double log, double low, double *t_low) {
  double t = b * log;
  *t_low = K_FMA_f64(b, low, K_FMA_f64(b, log, -t));
  return t;
}
// a^b for a positive normal a. Valid if the result is normal too: if *size is below 708.
K_INLINE double k_plain_pow_f64(double *size, double a, double b) {
  double low, r, log = k_log_parts(a, K_BIAS, &low), t = k_log_times(b, log, low, &low);
  double shifted = k_exp_split_sum(t, low, 0, &r), y = k_exp_rest_f64(r) + 1;
  *size = fabs(t);
  return k_bits_double(k_double_bits(y) + (k_double_bits(shifted) << 52));
}

// a^b by the logarithm and the exponential of a two-part argument. The limits at the end handle inf
// and zero.
K_INLINE double k_double_pow(double a, double b) {
  double x = fabs(a), low, r;
  bool tiny = x < DBL_MIN;
  double log = k_log_parts(tiny ? x * 0x1p54 : x, tiny ? K_BIAS + 54 : K_BIAS, &low);
  log = x == 0 ? -(double)INFINITY : log;
  log = x < (double)INFINITY ? log : x;
  double t = k_log_times(b, log, low, &low), shifted = k_exp_split_sum(t, low, K_BIASES, &r);
  double y = k_exp_join(t, shifted, r);
  double part = 0.5 * b;
  bool even = (rint(b) != b) | (rint(part) == part),
       one = (b == 0) | (a == 1) | ((x == 1) & (fabs(b) == (double)INFINITY));
  y = ((a < 0) & (rint(b) != b) & (x < (double)INFINITY)) ? (double)NAN : y;
  y = one ? 1 : y;
  return even ? y : copysign(y, a);
}
#endif

// erfinv(y) / y by a polynomial in w = -log(1 - y^2), w < 6.
K_INLINE double k_erfinv_near(double w) {
  double t = K_FMA_f64(w, 1.0 / 3, -1), q = t * t, r = q * q;
  double p = k_four_terms(t, q, 3.9795055220256047e-10, -3.1868752540774684e-10,
                          -4.0372191375261565e-09, 7.1077847412905201e-09);
  p = K_FMA_f64(p, r,
                k_four_terms(t, q, 1.4815482668103312e-08, -6.2952294498112615e-08,
                             3.5602757326528147e-08, 2.7284385498471599e-07));
  p = K_FMA_f64(p, r,
                k_four_terms(t, q, -7.5967200963290726e-07, 2.963488183520968e-08,
                             4.3031321386016135e-06, -9.2091091356985958e-06));
  p = K_FMA_f64(p, r,
                k_four_terms(t, q, -5.5669840732225058e-06, 6.5591481587624315e-05,
                             -0.00010761047365987123, -0.00015542173400125983));
  p = K_FMA_f64(p, r,
                k_four_terms(t, q, 0.0009841181239339128, -0.0012742935283739122,
                             -0.0030900907010808932, 0.015799967277504073));
  p = K_FMA_f64(p, r,
                k_four_terms(t, q, -0.022576907976556471, -0.051643216989053511,
                             0.72489121249847488, 1.6235420064648298));
  return p;
}
K_INLINE double k_near_erfinv_f64(double *far, double y) {
  double m, e = k_log_split((1 - y) * (1 + y), K_BIAS, &m), w = -k_log_join(e, m - 1);
  *far = ((w < 6) & (fabs(y) < 1)) ? 0 : (double)INFINITY;
  return y * k_erfinv_near(w);
}
// For w >= 6 by a polynomial in sqrt(w). The largest double below 1 has w = 36.04. Such arguments
// are rare, so a call is acceptable.
__attribute__((noinline, unused)) static double k_double_erfinv(double y) {
  double w = -k_log_f64((1 - y) * (1 + y)), near = k_erfinv_near(w);
  double s = (sqrt(w) - 4.274744871391589) * (1 / 1.8252551286084109);
  double far = K_FMA_f64(3.6452830068304447e-08, s, -2.3899450227592408e-08);
  far = K_FMA_f64(far, s, -3.0002993234115701e-07);
  far = K_FMA_f64(far, s, 3.548113580658063e-07);
  far = K_FMA_f64(far, s, 6.5448117397462114e-07);
  far = K_FMA_f64(far, s, -1.1054377306514947e-06);
  far = K_FMA_f64(far, s, 2.0198447308282904e-07);
  far = K_FMA_f64(far, s, -9.6257294585771034e-07);
  far = K_FMA_f64(far, s, 1.716326259297175e-06);
  far = K_FMA_f64(far, s, 4.9178678729946414e-06);
  far = K_FMA_f64(far, s, -1.6964922541508039e-05);
  far = K_FMA_f64(far, s, 1.9848275815097328e-05);
  far = K_FMA_f64(far, s, 6.8387735474222516e-07);
  far = K_FMA_f64(far, s, -4.751528292804225e-05);
  far = K_FMA_f64(far, s, 0.00010123679312536518);
  far = K_FMA_f64(far, s, -0.00011548405629315969);
  far = K_FMA_f64(far, s, 4.0041743976703633e-05);
  far = K_FMA_f64(far, s, 0.00013661857215493525);
  far = K_FMA_f64(far, s, -0.00036446769371432827);
  far = K_FMA_f64(far, s, 0.00055563998760072388);
  far = K_FMA_f64(far, s, -0.00064296724453055004);
  far = K_FMA_f64(far, s, 0.00063222056455947747);
  far = K_FMA_f64(far, s, -0.00061528886704142571);
  far = K_FMA_f64(far, s, 0.00075099546627282034);
  far = K_FMA_f64(far, s, -0.0012415263917821971);
  far = K_FMA_f64(far, s, 0.0022687239855659785);
  far = K_FMA_f64(far, s, -0.0035712194434535109);
  far = K_FMA_f64(far, s, 0.0022267891029534551);
  far = K_FMA_f64(far, s, 1.843530398949788);
  far = K_FMA_f64(far, s, 4.1172156335362153);
  double x = y * (w < 6 ? near : far), a = fabs(y);
  x = a == 1 ? copysign((double)INFINITY, y) : x;
  return a <= 1 ? x : (double)NAN;
}

// ---- lgamma of double for x > -2. *far is inf for the poles 0 and -1.

// log(gamma(1 + h)) / h and log(gamma(2 + h)) / h for |h| <= 0.5.
K_INLINE double k_lgamma_one(double h) {
  double q = h * h, r = q * q;
  double p = k_four_terms(h, q, -0.2130991408688264, 0.23265926157601406, 0.14717028422887625,
                          -0.17387037921440235);
  p = K_FMA_f64(p, r,
                k_four_terms(h, q, -0.13678697724460128, 0.15903629572946831, -0.01217022129649772,
                             0.0050516714220554762));
  p = K_FMA_f64(p, r,
                k_four_terms(h, q, -0.054315062519203783, 0.059358685774893012,
                             -0.051660840008062624, 0.054045345346461921));
  p = K_FMA_f64(p, r,
                k_four_terms(h, q, -0.058918791263309533, 0.062672900234238652,
                             -0.066662747658509211, 0.071419191773229499));
  p = K_FMA_f64(p, r,
                k_four_terms(h, q, -0.076932724596199305, 0.08335459945260949,
                             -0.090954015751275356, 0.10009942965178373));
  p = K_FMA_f64(p, r,
                k_four_terms(h, q, -0.11133426568432561, 0.12550967016515585, -0.14404989677599112,
                             0.16955717698909572));
  p = K_FMA_f64(p, r,
                k_four_terms(h, q, -0.20738555102857298, 0.27058080842783482, -0.40068563438653192,
                             0.82246703342411313));
  return K_FMA_f64(p, h, -0.57721566490153286);
}
K_INLINE double k_lgamma_two(double h) {
  double q = h * h, r = q * q;
  double p = K_FMA_f64(h, -1.4327643415311989e-7, 2.7849892088463711e-7);
  p = K_FMA_f64(p, r,
                k_four_terms(h, q, -4.2006271619325952e-7, 9.2031000604530991e-7,
                             -2.0497458849588724e-6, 4.3845917580604569e-6));
  p = K_FMA_f64(p, r,
                k_four_terms(h, q, -9.4372386138153545e-6, 2.0505616939682195e-5,
                             -4.4926530900870486e-5, 9.9457670090330604e-5));
  p = K_FMA_f64(p, r,
                k_four_terms(h, q, -0.00022315473518024013, 0.00050966951567231281,
                             -0.0011927539127580101, 0.0028905103310238497));
  p = K_FMA_f64(p, r,
                k_four_terms(h, q, -0.0073855510286497092, 0.020580808427780568,
                             -0.067352301053198312, 0.32246703342411323));
  return K_FMA_f64(p, h, 0.42278433509846714);
}

// lgamma in [1.25, 1.7), around its minimum.
K_INLINE double k_lgamma_least(double t) {
  double d = t - 1.4616321449683622, q = d * d, r = q * q;
  double p = K_FMA_f64(d, -0.00021860102022091282, 0.00038138334259633567);
  p = K_FMA_f64(p, r,
                k_four_terms(d, q, -0.00055713178339120706, 0.00087585932437008697,
                             -0.001402000311324218, 0.002259863511028761));
  p = K_FMA_f64(p, r,
                k_four_terms(d, q, -0.003684579227248686, 0.0061005337655648822,
                             -0.010314222852960325, 0.017970675142699033));
  p = K_FMA_f64(p, r,
                k_four_terms(d, q, -0.0327885410901285, 0.064624940238755918, -0.14758772299452549,
                             0.48383612272381092));
  // Corrects the rounding of the minimum's position and value in the two constants.
  return K_FMA_f64(p, q, K_FMA_f64(d, -9.2413e-17, 3.365e-18)) - 0.12148629053584961;
}

// From 8.5 on: Stirling's series. Below, the argument is moved next to one of the zeros 1 and 2:
// lgamma(x) = lgamma(x + 3) - log(x (x + 1) (x + 2)), or lgamma(x - 6) + log((x - 1) ... (x - 6)),
// with as many factors as needed. Nothing cancels: no sum is smaller than half of its parts.
K_INLINE double k_near_lgamma_f64(double *far, double x) {
  double up = x < 0.5 ? x : 1, down = 1, t = x < 0.5 ? x + 1 : x;
  up = x < -0.5 ? x * (x + 1) : up, t = x < -0.5 ? x + 2 : t;
  up = x < -1.5 ? up * (x + 2) : up, t = x < -1.5 ? x + 3 : t;
  PX__CPU_UNROLLED for (int i = 1; i <= 6; i++) {
    bool more = x >= i + 1.5;
    down *= more ? x - i : 1;
    t = more ? x - i : t;
  }
  bool large = x >= 8.5;
  double part = fabs(large ? x : x < 0.5 ? up : down), m, e = k_log_split(part, K_BIAS, &m);
  double log = k_log_join(e, m - 1);
  double one = (t - 1) * k_lgamma_one(t - 1), two = (t - 2) * k_lgamma_two(t - 2);
  double y = t < 1.25 ? one : t < 1.7 ? k_lgamma_least(t) : two;
  y += x < 0.5 ? -log : log;
  double z = 1 / x, q = z * z, r = q * q;
  double p = K_FMA_f64(q, -0.0016801695452039825, 0.00083819939711074601);
  p = K_FMA_f64(p, r, K_FMA_f64(q, -0.00059521313481140459, 0.00079365071378498799));
  p = K_FMA_f64(p, r, K_FMA_f64(q, -0.0027777777776840401, 0.083333333333333315));
  double series = K_FMA_f64(x - 0.5, log - 1, K_FMA_f64(p, z, 0.41893853320467274));
  *far = ((x > -2) & (part >= DBL_MIN)) ? 0 : (double)INFINITY;
  return large ? series : y;
}
