// SPDX-License-Identifier: Apache-2.0
// Special functions of the kernel math library, in C and in CUDA C++. Computed in double, also for
// float: by series, continued fractions, and inverses by Newton's method. Included by scalars.h.
//
// The includer defines:
// K_MATH: prefix of functions; K_CALLED: prefix of long functions;
// K_LGAMMA(x): log(|gamma(x)|); K_BESSEL(j0): a libm function; K_FMA_f64(a, b, c): a * b + c;
// K_LOG(x), optional: log of a positive number to 2e-11; K_ERFINV_F64(y), optional: erfinv.
// backend's own.
#pragma once

#ifndef K_LOG
#define K_LOG(x) log(x)
#endif
#define K_PI 3.14159265358979323846
#define K_LOG_SQRT_2PI 0.91893853320467274178
#define K_EPS 1.1e-16  // relative size of the term that ends a sum

// Evaluates the polynomial with n coefficients, constant first, at z.
K_MATH double k_series(const double *c, int n, double z) {
  double sum = c[n - 1];
  for (int i = n - 2; i >= 0; i--) sum = sum * z + c[i];
  return sum;
}

// ---- gamma and its derivatives

// Shifts x up to `least`, from where the asymptotic series with `terms` terms is accurate; reflects
// negative numbers first.
K_MATH double k_digamma_from(double x, double least, int terms) {
  const double c[] = {1.0 / 12,  -1.0 / 120,     1.0 / 252, -1.0 / 240,
                      1.0 / 132, -691.0 / 32760, 1.0 / 12};
  double sum = 0;
  if (x == 0) return copysign(K_inf_f64, -x);
  if (x < 0) {
    if (x == floor(x)) return K_nan_f64;
    sum = -K_PI / tan(K_PI * fmod(x, 1.0));
    x = 1 - x;
  }
  double top = 0, bottom = 1;  // the sum of 1 / x as a single fraction
  for (; x < least; x++) top = top * x + bottom, bottom *= x;
  if (x == K_inf_f64) return x;
  double r = 1 / x, z = r * r;
  return sum - top / bottom + log(x) - 0.5 * r - z * k_series(c, terms, z);
}
K_CALLED double k_digamma_f64(double x) { return k_digamma_from(x, 10, 7); }
K_CALLED double k_digamma_narrow(double x) { return k_digamma_from(x, 6, 4); }  // to 2e-10

K_CALLED double k_trigamma(double x) {
  const double c[] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6};
  double sum = 0, sign = 1;
  if (x < 0.5) {
    if (x == floor(x)) return K_inf_f64;
    double s = sin(K_PI * fmod(x, 1.0));
    sum = -(K_PI * K_PI) / (s * s), sign = -1;
    x = 1 - x;
  }
  for (; x < 10; x++) sum += 1 / (x * x);
  double z = 1 / (x * x);
  return sign * (sum + 1 / x + 0.5 * z + z / x * k_series(c, 7, z));
}

// For q > 0: the Euler-Maclaurin formula from the tenth term on.
K_CALLED double k_hurwitz(double x, double q) {
  // (2k)! / B_2k, with Bernoulli numbers B
  const double c[] = {12.0,
                      -720.0,
                      30240.0,
                      -1209600.0,
                      47900160.0,
                      -1307674368000.0 / 691,
                      74724249600.0,
                      -10670622842880000.0 / 3617,
                      5109094217170944000.0 / 43867,
                      -802857662698291200000.0 / 174611};
  double sum = 0;
  for (int k = 0; k < 10; k++) {
    double term = pow(q + k, -x);
    sum += term;
    if (term <= K_EPS * sum) return sum;
  }
  double a = q + 10, power = pow(a, -x), factor = x * power / a;
  sum += power * a / (x - 1) + 0.5 * power;
  for (int k = 0; k < 10; k++) {
    sum += factor / c[k];
    factor *= (x + 2 * k + 1) * (x + 2 * k + 2) / (a * a);
  }
  return sum;
}

// The sum of (q + k)^-x. Terms with a negative base are the difference of two sums with positive
// bases.
K_CALLED double k_zeta_f64(double x, double q) {
  if (x == 1) return K_inf_f64;
  if (!(x > 1) || q != q) return K_nan_f64;
  if (q > 0) return k_hurwitz(x, q);
  if (q == floor(q)) return K_inf_f64;
  if (x != floor(x)) return K_nan_f64;
  double near = q - rint(q), sign = fmod(x, 2.0) == 0 ? 1 : -1;
  double part = near < 0 ? 1 + near : near, rest = near < 0 ? -near : 1 - near;
  return k_hurwitz(x, part) + sign * (k_hurwitz(x, rest) - k_hurwitz(x, rest - floor(q)));
}

K_CALLED double k_polygamma_f64(double n, double x) {
  if (n == 0) return k_digamma_f64(x);
  if (n == 1) return k_trigamma(x);
  return (fmod(n, 2.0) == 0 ? -1 : 1) * exp(K_LGAMMA(n + 1)) * k_zeta_f64(n + 1, x);
}

K_CALLED double k_lgamma_f64(double x) { return K_LGAMMA(x); }

// ---- the incomplete gamma functions

// x - log(1 + x).
K_CALLED double k_excess(double x) {
  if (fabs(x) > 0.3) return x - log1p(x);
  double t = x / (2 + x), z = t * t, term = 2 * t * z, sum = 0;  // log(1 + x) = 2 artanh t
  for (int k = 3; fabs(term) > K_EPS * fabs(sum) * k; k += 2, term *= z) sum += term / k;
  return x * t - sum;
}

// The error of Stirling's formula for log(gamma(a + 1)).
K_CALLED double k_stirling_rest(double a) {
  const double c[] = {1.0 / 12,   -1.0 / 360,        1.0 / 1260, -1.0 / 1680,
                      1.0 / 1188, -691.0 / 360360.0, 1.0 / 156};
  if (a < 10) return K_LGAMMA(a + 1) - (a + 0.5) * log(a) + a - K_LOG_SQRT_2PI;
  return k_series(c, 7, 1 / (a * a)) / a;
}

// x^a e^-x / gamma(a + 1), without cancellation for large a close to x.
K_CALLED double k_gamma_weight(double a, double x) {
  if (a < 1) return exp(a * log(x) - x - K_LGAMMA(a + 1));
  return exp(-a * k_excess((x - a) / a) - k_stirling_rest(a)) / sqrt(2 * K_PI * a);
}

// Both functions relative to the weight: the lower one by its series, the upper one by Lentz's
// continued fraction.
K_CALLED double k_gamma_below(double a, double x) {
  double term = 1, sum = 1;
  for (double k = a + 1; term > K_EPS * sum; k++) sum += term *= x / k;
  return sum;
}
K_CALLED double k_gamma_above(double a, double x) {
  double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int i = 1; i < 100000; i++) {
    double n = -i * (i - a);
    b += 2;
    d = 1 / (n * d + b);
    c = b + n / c;
    h *= d * c;
    if (fabs(d * c - 1) < K_EPS * 2) break;
  }
  return a * h;
}

// The upper function for large a, close to a normal tail; the next term is below 1 / (100 a^1.5).
K_CALLED double k_gamma_wide(double a, double x) {
  double m = (x - a) / a, half = k_excess(m);
  double eta = copysign(sqrt(2 * half), m);
  double first = fabs(m) < 1e-3 ? -1.0 / 3 + eta / 12 - 2 * eta * eta / 135 : 1 / m - 1 / eta;
  return 0.5 * erfc(eta * sqrt(a / 2)) + first * exp(-a * half) / sqrt(2 * K_PI * a);
}

// The regularized lower or upper function.
K_CALLED double k_gamma_part(double a, double x, bool upper) {
  if (!(x >= 0) || !(a >= 0) || (a == K_inf_f64 && x == K_inf_f64)) return K_nan_f64;
  if (a == 0) return x > 0 ? !upper : K_nan_f64;
  if (x == 0 || a == K_inf_f64) return upper;
  if (x == K_inf_f64) return !upper;
  double part;
  bool above = a > 1e8 || x > a + 1;
  if (a > 1e8)
    part = k_gamma_wide(a, x);
  else
    part = k_gamma_weight(a, x) * (above ? k_gamma_above(a, x) : k_gamma_below(a, x));
  return above == upper ? part : 1 - part;
}
K_CALLED double k_igamma_f64(double a, double x) { return k_gamma_part(a, x, false); }
K_CALLED double k_igammac_f64(double a, double x) { return k_gamma_part(a, x, true); }

// Derivative of a gamma sample with respect to its parameter at fixed probability: -(dP/da) /
// (dP/dx). Each part is computed with its derivative.
K_CALLED double k_gamma_slope_above(double a, double x) {
  double b = x + 1 - a, c = 1e300, d = 1 / b, h = d, db = -1, dc = 0;
  double dd = -db * d * d, dh = dd;
  for (int i = 1; i < 100000; i++) {
    double n = -i * (i - a), dn = i;
    b += 2;
    double old = d;
    d = 1 / (n * d + b);
    dd = -(dn * old + n * dd + db) * d * d;
    dc = db + dn / c - n * dc / (c * c);
    c = b + n / c;
    double step = dd * c + d * dc;
    dh = dh * d * c + h * step;
    h *= d * c;
    if (fabs(d * c - 1) < K_EPS * 2 && fabs(step) < K_EPS * 2) break;
  }
  return x * (h * (log(x) - k_digamma_f64(a)) + dh);
}
K_CALLED double k_gamma_slope_below(double a, double x) {
  double term = 1 / a, sum = term, slope = -1 / (a * a), inner = 1 / a;
  for (double k = a + 1; term > K_EPS * sum; k++) {
    inner += 1 / k;
    term *= x / k;
    sum += term, slope -= term * inner;
  }
  return -x * (sum * (log(x) - k_digamma_f64(a)) + slope);
}
// For large a: from the expansion of x in powers of sqrt(a), at the normal deviate z.
K_CALLED double k_gamma_slope_wide(double a, double x) {
  double r = sqrt(a), z = (x - a) / r;
  for (int i = 0; i < 4; i++) z = (x - a - (z * z - 1) / 3 - (z * z * z - 7 * z) / (36 * r)) / r;
  return 1 + z / (2 * r) - (z * z * z - 7 * z) / (72 * a * r);
}
K_CALLED double k_gamma_slope_f64(double a, double x) {
  if (!(a > 0) || !(x >= 0)) return K_nan_f64;
  if (x == 0) return 0;
  if (a > 1e5) return k_gamma_slope_wide(a, x);
  return x > a + 1 ? k_gamma_slope_above(a, x) : k_gamma_slope_below(a, x);
}

// ---- the normal distribution and the error function

// exp(x^2) erfc(x). The square is split into two parts for an accurate exponential.
K_CALLED double k_erfcx_f64(double x) {
  const double c[] = {1, -0.5, 0.75, -1.875, 6.5625, -29.53125, 162.421875};
  if (x > 25) return k_series(c, 7, 1 / (x * x)) / (x * sqrt(K_PI));
  if (x < -27) return x == x ? K_inf_f64 : x;
  double high = (double)(float)x;
  return exp(high * high) * exp((x - high) * (x + high)) * erfc(x);
}

// Solves erfc(x) = z for 0 < z <= 0.5, given log(z): Newton's method on log(erfc).
K_CALLED double k_erfc_root(double log_z) {
  double l = log_z + log(2 - exp(log_z)), h = 4.3307 + 0.5 * l;
  double x = sqrt(sqrt(h * h - l / 0.147) - h);
  for (int i = 0; i < 4; i++) {
    double e = k_erfcx_f64(x);
    x += (log(e) - x * x - log_z) * e * (sqrt(K_PI) / 2);
  }
  return x;
}
// Solves erf(x) = y for |y| <= 0.5: Halley's method.
K_CALLED double k_erf_root(double y) {
  double x = y * (sqrt(K_PI) / 2);
  for (int i = 0; i < 3; i++) {
    double step = (erf(x) - y) * (sqrt(K_PI) / 2) * exp(x * x);
    x -= step / (1 + x * step);
  }
  return x;
}
// erfinv with relative error 8e-9: polynomials in w = -log(1 - y * y) or its root, after M. Giles
// (Approximating the erfinv function, 2011). The largest double below 1 has w = 36.04. Branch-free,
// for vectorized loops.
K_MATH double k_erfinv_narrow(double y) {
  double w = -K_LOG((1 - y) * (1 + y)), t = w * 0.4 - 1, s = (sqrt(w) - 4.16) * (1 / 1.93);
  double near = K_FMA_f64(4.455502041854e-06, t, -3.333668023235e-05);
  near = K_FMA_f64(near, t, 2.439011556076e-05);
  near = K_FMA_f64(near, t, 0.0002840682437148);
  near = K_FMA_f64(near, t, -0.0008357945005425);
  near = K_FMA_f64(near, t, -0.0004843449017789);
  near = K_FMA_f64(near, t, 0.008525692342337);
  near = K_FMA_f64(near, t, -0.0195741953569);
  near = K_FMA_f64(near, t, -0.02610825025338);
  near = K_FMA_f64(near, t, 0.6166007235686);
  near = K_FMA_f64(near, t, 1.501409351111);
  double far = K_FMA_f64(0.0003516442709233, s, -0.001025595818852);
  far = K_FMA_f64(far, s, 1.712595058576e-5);
  far = K_FMA_f64(far, s, 0.0025177996714);
  far = K_FMA_f64(far, s, -0.002771881651166);
  far = K_FMA_f64(far, s, 0.001195247556491);
  far = K_FMA_f64(far, s, -0.001029083929614);
  far = K_FMA_f64(far, s, 0.001704578545491);
  far = K_FMA_f64(far, s, -0.002223370320139);
  far = K_FMA_f64(far, s, 0.003363189326148);
  far = K_FMA_f64(far, s, -0.004945947136182);
  far = K_FMA_f64(far, s, 0.003308049775463);
  far = K_FMA_f64(far, s, 1.948980322276);
  far = K_FMA_f64(far, s, 4.00133159276);
  double x = y * (w < 5 ? near : far), a = fabs(y);
  x = a == 1 ? copysign(K_inf_f64, y) : x;
  return a <= 1 ? x : K_nan_f64;
}
#ifdef K_ERFINV_F64
K_MATH double k_erfinv_f64(double y) { return K_ERFINV_F64(y); }
#else
// A step of Halley's method on erf, or on erfc if 1 - y is exact.
K_MATH double k_erfinv_f64(double y) {
  double a = fabs(y), x = k_erfinv_narrow(a), small = a <= 0.5;
  double miss = small * (erf(x) - a) + (1 - small) * (1 - a - erfc(x));
  double step = miss * (sqrt(K_PI) / 2) * exp(x * x);
  double better = x - step / (1 + x * step);
  return copysign(a < 1 ? better : x, y);
}
#endif
K_CALLED double k_ndtri_f64(double p) {
  if (!(p >= 0 && p <= 1)) return K_nan_f64;
  if (p == 0 || p == 1) return p == 0 ? -K_inf_f64 : K_inf_f64;
  if (fabs(p - 0.5) <= 0.25) return sqrt(2.0) * k_erf_root(2 * p - 1);
  double x = sqrt(2.0) * k_erfc_root(p < 0.5 ? log(p) + log(2.0) : log(2 * (1 - p)));
  return p < 0.5 ? -x : x;
}
K_MATH double k_ndtr_f64(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
K_CALLED double k_log_ndtr_f64(double x) {
  double t = x * sqrt(0.5);
  return x < -1 ? log(0.5 * k_erfcx_f64(-t)) - 0.5 * x * x : log1p(-0.5 * erfc(t));
}

// ---- Bessel functions of order 0 and 1

// e^-|x| times the modified Bessel function of order v: by its series with positive terms; from 30
// on by Hankel's expansion.
K_CALLED double k_bessel_ie(int v, double x) {
  double sum = 1, term = 1;
  if (x < 30) {
    for (int k = 1; term > K_EPS * sum; k++) sum += term *= x * x / 4 / ((double)k * (k + v));
    return (v ? x / 2 : 1) * sum * exp(-x);
  }
  for (int k = 1; k < 30 && fabs(term) > K_EPS; k++) {
    double odd = 2 * k - 1;
    sum += term *= (odd * odd - 4 * v) / (8 * k * x);
  }
  return sum / sqrt(2 * K_PI * x);
}
// The exponential is applied in two halves, since it may overflow.
K_CALLED double k_bessel_i(int v, double x) {
  if (x == K_inf_f64) return x;
  double half = exp(x / 2);
  return k_bessel_ie(v, x) * half * half;
}
// The scaled function to float accuracy (6e-9), by polynomials interpolating at Chebyshev points:
// in x / 4 - 1 below 8; from 8 on times sqrt(x), in 16 / x - 1.
#define K_I_NEAR0 \
  0.207001921224, -0.1130043361086, 0.09451563189402, -0.08904288918699, 0.08734321532557, \
      -0.08497304959011, 0.0792787441867, -0.06946451493109, 0.05674911084395, -0.04331379367909, \
      0.03029740853238, -0.01886512598839, 0.01166163406361, -0.008009849606674, \
      0.004062653646672, -0.0007596967284124, 0.0004696248731186, -0.0008508526976662, \
      0.0003359461388227
#define K_I_NEAR1 \
  0.04468770987561, -0.06112433922221, 0.06805760032014, -0.0684825347892, 0.06376737911929, \
      -0.05528129039883, 0.04467500363541, -0.0336614238908, 0.02368259371734, -0.01561382963762, \
      0.00959863076442, -0.005428314655395, 0.002969059017748, -0.001697630371324, \
      0.0007994663836925, -0.0002031783551235, 0.0001004799214795, -0.0001235527779828, \
      4.598305152779e-05
#define K_I_FAR0 \
  0.402176509445, 0.003360555851925, 0.0001362168431153, 1.111152545665e-05, 1.476792109943e-06, \
      3.631710305277e-07, 1.082989825926e-07
#define K_I_FAR1 \
  0.3893984590259, -0.009749581526548, -0.0002192366694286, -1.500332306615e-05, \
      -1.826714504664e-06, -4.215554372982e-07, -1.221249846594e-07
#ifndef K_BESSEL_IE  // backends may override it
K_CALLED double k_bessel_ie_narrow(int v, double x) {
  const double near0[] = {K_I_NEAR0}, near1[] = {K_I_NEAR1};
  const double far0[] = {K_I_FAR0}, far1[] = {K_I_FAR1};
  double u = x / 4 - 1;
  if (x < 8) return v ? x * k_series(near1, 19, u) : k_series(near0, 19, u);
  u = 16 / x - 1;
  return (v ? k_series(far1, 7, u) : k_series(far0, 7, u)) / sqrt(x);
}
K_CALLED double k_bessel_i_narrow(int v, double x) {
  return x == K_inf_f64 ? x : k_bessel_ie_narrow(v, x) * exp(x);
}
#else
K_BESSEL_IE
#endif
K_CALLED double k_i0_f64(double x) { return k_bessel_i(0, fabs(x)); }
K_CALLED double k_i0e_f64(double x) { return k_bessel_ie(0, fabs(x)); }
K_CALLED double k_i1_f64(double x) { return copysign(k_bessel_i(1, fabs(x)), x); }
K_CALLED double k_i1e_f64(double x) { return copysign(k_bessel_ie(1, fabs(x)), x); }

// Functions of the second kind are undefined for x < 0.
K_CALLED double k_bessel_j0_f64(double x) { return K_BESSEL(j0)(x); }
K_CALLED double k_bessel_j1_f64(double x) { return K_BESSEL(j1)(x); }
K_CALLED double k_bessel_y0_f64(double x) {
  return x > 0 ? K_BESSEL(y0)(x) : x == 0 ? -K_inf_f64 : K_nan_f64;
}
K_CALLED double k_bessel_y1_f64(double x) {
  return x > 0 ? K_BESSEL(y1)(x) : x == 0 ? -K_inf_f64 : K_nan_f64;
}
K_CALLED double k_spherical_j0_f64(double x) {
  if (fabs(x) == K_inf_f64) return 0;
  return x == 0 ? 1 : sin(x) / x;
}

// e^x times the modified function of the second kind, order v: the integral of
// exp(x (1 - cosh t)) cosh(v t) over t > 0 (DLMF 10.32.9) by the trapezoidal rule. Its error falls
// faster than any power of the step. The sum ends once the exponential is below 1e-17.
K_CALLED double k_bessel_ke(double v, double x) {
  const int steps = 40;
  double step = 2 * asinh(sqrt(20 / x)) / steps, sum = 0.5;
  for (int i = 1; i <= steps; i++) {
    double s = sinh(0.5 * step * i);
    sum += exp(-2 * x * s * s) * cosh(v * step * i);
  }
  return sum * step;
}
// Order 0 or 1 and small x: the series around 0 (DLMF 10.31.1, 10.31.2).
K_CALLED double k_bessel_k_series(int v, double x) {
  double z = x * x / 4, lead = log(0.5 * x) + 0.57721566490153286061, harmonic = 0, term = 1,
         sum = 0;
  for (int k = 0; k < 14; k++) {
    sum += term * (v ? lead - harmonic - 0.5 / (k + 1) : harmonic - lead);
    harmonic += 1.0 / (k + 1);
    term *= z / ((k + 1.0) * (k + 1 + v));
  }
  return v ? 1 / x + 0.5 * x * sum : sum;
}
K_CALLED double k_bessel_k(int v, double x, bool scaled) {
  if (!(x > 0)) return x == 0 ? K_inf_f64 : K_nan_f64;
  if (x == K_inf_f64) return 0;
  if (x < 1.5) return k_bessel_k_series(v, x) * (scaled ? exp(x) : 1);
  return k_bessel_ke(v, x) * (scaled ? 1 : exp(-x));
}
K_CALLED double k_k0_f64(double x) { return k_bessel_k(0, x, false); }
K_CALLED double k_k1_f64(double x) { return k_bessel_k(1, x, false); }
K_CALLED double k_k0e_f64(double x) { return k_bessel_k(0, x, true); }
K_CALLED double k_k1e_f64(double x) { return k_bessel_k(1, x, true); }

// Airy's function in [-9, 3]: Taylor series around the nearest of four points, with terms from y''
// = x y.
K_CALLED double k_airy_near(double x) {
  const double value[] = {0.321775716380647875, 0.292152781055959467, 0.464256577748869406,
                          0.0717494970081054097};
  const double slope[] = {0.318809506698554596, -0.523362532315747701, 0.30918696720241042,
                          -0.0973820128423013192};
  int i = x < -6 ? 0 : x < -3 ? 1 : x < 0 ? 2 : 3;
  double at = 3 * i - 7.5, h = x - at;
  double before = 0, a = value[i], b = slope[i], power = 1, sum = 0;
  for (int n = 0; n < 50; n++) {
    sum += a * power;
    power *= h;
    double next = (at * a + before) / ((n + 1) * (n + 2));
    before = a, a = b, b = next;
  }
  return sum;
}
// Below -9 as a wave (DLMF 9.7.9). Above 3 as a modified Bessel function (DLMF 9.6.2).
K_CALLED double k_airy_wave(double x) {
  double root = sqrt(x), zeta = x * root / 1.5, term = 1, part[2] = {1, 0};
  for (int k = 1; k < 20; k++) {
    term *= (6 * k - 5) * (6 * k - 3) * (6 * k - 1.0) / (216 * k * (2 * k - 1) * zeta);
    part[k & 1] += k & 2 ? -term : term;
  }
  double turn = zeta - K_PI / 4;
  return (cos(turn) * part[0] + sin(turn) * part[1]) / sqrt(K_PI * root);
}
K_CALLED double k_airy_ai_f64(double x) {
  if (x < -1e10) return x == -K_inf_f64 ? 0 : k_airy_wave(-x);
  if (x < -9) return k_airy_wave(-x);
  if (!(x > 3)) return x == x ? k_airy_near(x) : x;
  double zeta = x * sqrt(x) / 1.5;
  return zeta > 800 ? 0 : sqrt(x / 3) / K_PI * k_bessel_ke(1.0 / 3, zeta) * exp(-zeta);
}

// ---- orthogonal polynomials, of degree n

// The solution of p(k + 1) = 2 x p(k) - p(k - 1) with p(0) = 1 and p(1) = first, by cosines for
// large n. For -x the sign flips at odd degrees.
K_CALLED double k_chebyshev(double x, double n, double first) {
  n = trunc(n);
  if (!(n > 0)) return n == 0 ? 1 : n < 0 ? 0 : K_nan_f64;
  if (n == 1) return first;
  if (n <= 64) {
    double before = 1, p = first;
    for (int k = 1; k < n; k++) {
      double next = 2 * x * p - before;
      before = p, p = next;
    }
    return p;
  }
  double y = fabs(x), rest = copysign(first, first * x) - y, p;
  if (y < 1)
    p = cos(n * acos(y)) + rest * sin(n * acos(y)) / sin(acos(y));
  else if (y == 1)
    p = 1 + n * rest;
  else
    p = cosh(n * acosh(y)) + (rest == 0 ? 0 : rest * sinh(n * acosh(y)) / sinh(acosh(y)));
  return x < 0 && fmod(n, 2.0) == 1 ? -p : p;
}
K_CALLED double k_chebyshev_t_f64(double x, double n) { return k_chebyshev(x, n, x); }
K_CALLED double k_chebyshev_u_f64(double x, double n) { return k_chebyshev(x, n, 2 * x); }
K_CALLED double k_chebyshev_v_f64(double x, double n) { return k_chebyshev(x, n, 2 * x - 1); }
K_CALLED double k_chebyshev_w_f64(double x, double n) { return k_chebyshev(x, n, 2 * x + 1); }

// The other families by their recurrences (DLMF 18.9.1): p(k + 1) = ((a x + b) p(k) - c p(k - 1)) /
// d. Degrees from 1e6 on return NaN, since they would take too long.
K_CALLED double k_recurrence(int which, double x, double n) {
  n = trunc(n);
  if (n < 0 || n == 0) return n == 0;
  if (!(n < 1e6) || x != x) return K_nan_f64;
  double before = 1, p = which == 0 ? 2 * x : which == 2 ? 1 - x : x;
  for (int k = 1; k < n && p == p; k++) {
    double next;
    if (which < 2)
      next = which == 0 ? 2 * x * p - 2.0 * k * before : x * p - k * before;
    else
      next = ((which == 2 ? 2.0 * k + 1 - x : (2.0 * k + 1) * x) * p - k * before) / (k + 1.0);
    before = p, p = next;
  }
  return p;
}
K_CALLED double k_hermite_h_f64(double x, double n) { return k_recurrence(0, x, n); }
K_CALLED double k_hermite_he_f64(double x, double n) { return k_recurrence(1, x, n); }
K_CALLED double k_laguerre_f64(double x, double n) { return k_recurrence(2, x, n); }
K_CALLED double k_legendre_f64(double x, double n) { return k_recurrence(3, x, n); }

// ---- float, computed in double

#define K_NARROW1(name) \
  K_MATH float k_##name##_f32(float x) { return (float)k_##name##_f64((double)x); }
#define K_NARROW2(name) \
  K_MATH float k_##name##_f32(float x, float y) { \
    return (float)k_##name##_f64((double)x, (double)y); \
  }
K_MATH float k_digamma_f32(float x) { return (float)k_digamma_narrow((double)x); }
#ifdef K_LGAMMA_F32  // a backend override
K_MATH float k_lgamma_f32(float x) { return K_LGAMMA_F32(x); }
#else
K_NARROW1(lgamma)
#endif
K_NARROW1(erfcx)
#ifdef K_ERFINV_F32
K_MATH float k_erfinv_f32(float x) { return K_ERFINV_F32(x); }
#else
K_MATH float k_erfinv_f32(float x) { return (float)k_erfinv_narrow((double)x); }
#endif
K_NARROW1(ndtri)
K_NARROW1(ndtr)
K_NARROW1(log_ndtr)
K_MATH float k_i0_f32(float x) { return (float)k_bessel_i_narrow(0, fabs((double)x)); }
K_MATH float k_i0e_f32(float x) { return (float)k_bessel_ie_narrow(0, fabs((double)x)); }
K_MATH float k_i1_f32(float x) {
  return (float)copysign(k_bessel_i_narrow(1, fabs((double)x)), (double)x);
}
K_MATH float k_i1e_f32(float x) {
  return (float)copysign(k_bessel_ie_narrow(1, fabs((double)x)), (double)x);
}
K_NARROW2(zeta)
K_NARROW2(polygamma)
K_NARROW2(igamma)
K_NARROW2(igammac)
K_NARROW2(gamma_slope)
K_NARROW1(bessel_j0)
K_NARROW1(bessel_j1)
K_NARROW1(bessel_y0)
K_NARROW1(bessel_y1)
K_NARROW1(spherical_j0)
K_NARROW1(k0)
K_NARROW1(k1)
K_NARROW1(k0e)
K_NARROW1(k1e)
K_NARROW1(airy_ai)
K_NARROW2(chebyshev_t)
K_NARROW2(chebyshev_u)
K_NARROW2(chebyshev_v)
K_NARROW2(chebyshev_w)
K_NARROW2(hermite_h)
K_NARROW2(hermite_he)
K_NARROW2(laguerre)
K_NARROW2(legendre)
