// SPDX-License-Identifier: Apache-2.0
// Samples of a distribution from uniform and normal samples, in C and in CUDA C++. Uses inversion,
// or rejection after Marsaglia and Tsang (2000, gamma) and Hoermann (1993, Poisson and binomial).
// Draws in the order of PyTorch's implementations.
//
// The includer provides special.h and a source, k_source: k_is_device(s); k_uniform(s), in [0, 1)
// for the CPU's generator and in (0, 1] for a device's; k_fraction(s) in [0, 1); k_normal(s) and
// k_wide_normal(s), a double of a device's.
#pragma once

// From a uniform number.
K_MATH double k_geometric(double u, double p) { return ceil(log(u) / log1p(-p)); }
K_MATH double k_cauchy(double u, double median, double sigma) {
  return median + sigma * tan(K_PI * (u - 0.5));
}

// At least `least`, a nonzero number of the result's dtype. The constant 1.0f / 3 is a float, as in
// PyTorch.
K_MATH double k_draw_gamma(k_source *s, double alpha, double least) {
  double scale = 1;
  if (alpha != alpha || alpha == 0) return alpha == 0 ? least : alpha;
  if (alpha < 1) {
    scale = pow(1 - k_uniform(s), 1 / alpha);
    alpha += 1;
  }
  double d = alpha - (double)(1.0f / 3), c = 1 / sqrt(9 * d);
  for (;;) {
    double x = k_normal(s), y = 1 + c * x;
    if (y <= 0) continue;
    double v = y * y * y, u = 1 - k_uniform(s), z = x * x;
    if (u < 1 - 0.0331 * z * z || log(u) < 0.5 * z + d * (1 - v + log(v)))
      return fmax(scale * d * v, least);
  }
}

// A device's numbers for rates below 64, by products of uniforms, and above 4000, by the normal
// distribution, are those of cuRAND.
K_MATH double k_draw_small_rate(k_source *s, double rate) {
  double k = 0, product = exp(rate) * k_uniform(s);
  for (; product > 1; k++) product *= k_uniform(s);
  return k;
}
// Products of uniforms for a small rate; NaN for a negative rate.
K_MATH double k_draw_poisson(k_source *s, double rate, double none) {
  double k = 0;
  if (!(rate > 0)) return rate == 0 ? none : K_nan_f64;
  if (k_is_device(s) && rate < 64) return k_draw_small_rate(s, rate);
  if (k_is_device(s) && rate > 4000) return floor(sqrt(rate) * k_wide_normal(s) + rate + 0.5);
  if (rate < 10) {
    double left = exp(-rate), product = k_uniform(s);
    for (; product > left; k++) product *= k_uniform(s);
    return k;
  }
  double b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;
  double inverse = 1.1239 + 1.1328 / (b - 3.4), most = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    double u = k_uniform(s) - 0.5, v = k_uniform(s), near = 0.5 - fabs(u);
    k = floor((2 * a / near + b) * u + rate + 0.43);
    if (near >= 0.07 && v <= most) return k;
    if (k < 0 || (near < 0.013 && v > near)) continue;
    if (log(v) + log(inverse) - log(a / (near * near) + b) <=
        -rate + k * log(rate) - K_LGAMMA(k + 1))
      return k;
  }
}

// chance <= 0.5. If few successes are expected, sums the waiting times between them.
K_MATH double k_draw_few(k_source *s, double count, double chance) {
  double waited = 0, k = 0;
  for (;; k++) {
    waited += ceil(log(k_fraction(s)) / log1p(-chance));
    if (!(waited <= count)) return k;
  }
}
K_MATH double k_draw_many(k_source *s, double count, double chance) {
  double wide = sqrt(count * chance * (1 - chance)), b = 1.15 + 2.53 * wide;
  double a = -0.0873 + 0.0248 * b + 0.01 * chance, most = 0.92 - 4.2 / b;
  double alpha = (2.83 + 5.1 / b) * wide, m = floor((count + 1) * chance);
  for (;;) {
    double u = k_fraction(s) - 0.5, v = k_fraction(s), near = 0.5 - fabs(u);
    double k = floor((2 * a / near + b) * u + count * chance + 0.5);
    if (near >= 0.07 && v <= most) return k;
    if (k < 0 || k > count) continue;
    double ratio = K_LGAMMA(m + 1) + K_LGAMMA(count - m + 1) - K_LGAMMA(k + 1) -
                   K_LGAMMA(count - k + 1) + (k - m) * log(chance / (1 - chance));
    if (log(v * alpha / (a / (near * near) + b)) <= ratio) return k;
  }
}
K_MATH double k_draw_binomial(k_source *s, double count, double chance) {
  if (!(count > 0) || chance <= 0) return 0;
  if (!(chance < 1)) return chance >= 1 ? count : chance;
  double least = chance <= 0.5 ? chance : 1 - chance;
  double k = count * least >= 10 ? k_draw_many(s, count, least) : k_draw_few(s, count, least);
  return chance <= 0.5 ? k : count - k;
}
