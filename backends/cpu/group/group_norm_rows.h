// SPDX-License-Identifier: Apache-2.0
// Group normalization for one element type (T, NAME as in rows_impl.h); group_norm.c includes it
// twice.

// Group i of all; its elements are contiguous.
static void NAME(group)(const group_task *t, int64_t i) {
  int64_t n = t->each * t->inner, first = i % t->groups * t->each;
  const T *x = (const T *)t->x + i * n, *w = t->weight, *b = t->bias;
  T *y = (T *)t->y + i * n;
  T mean = (T)(NAME(vec_sum)(x, n) / (double)n);
  T rstd = (T)(1 / sqrt(NAME(vec_sum_square)(x, mean, n, n) / (double)n + t->eps));
  ((T *)t->mean)[i] = mean, ((T *)t->rstd)[i] = rstd;
  for (int64_t c = 0; c < t->each; c++) {
    T scale = rstd * (w ? w[first + c] : 1), shift = (b ? b[first + c] : 0) - mean * scale;
    const T *from = x + c * t->inner;
    T *to = y + c * t->inner;
    for (px__steps s = {.n = t->inner}; px__step(&s);)
      for (int64_t j = s.begin; j < s.end; j++) to[j] = from[j] * scale + shift;
  }
}

// Sums of a channel's gradients, and of gradients times deviations from the mean.
static void NAME(group_channel)(double sums[2], const T *g, const T *x, T mean, int64_t n) {
  enum { LANES = 16 };
  for (px__steps s = {.n = n}; px__step(&s);) {
    T a[LANES] = {0}, ax[LANES] = {0};
    int64_t j = s.begin;
    for (; j + LANES <= s.end; j += LANES)
      for (int k = 0; k < LANES; k++) a[k] += g[j + k], ax[k] += g[j + k] * (x[j + k] - mean);
    for (; j < s.end; j++) a[0] += g[j], ax[0] += g[j] * (x[j] - mean);
    for (int k = 0; k < LANES; k++) sums[0] += a[k], sums[1] += ax[k];
  }
}
static void NAME(group_backward)(const group_task *t, int64_t i) {
  int64_t n = t->each * t->inner, first = i % t->groups * t->each;
  const T *x = (const T *)t->x + i * n, *g = (const T *)t->grad + i * n, *w = t->weight;
  T *y = (T *)t->y + i * n, mean = ((const T *)t->mean)[i], rstd = ((const T *)t->rstd)[i];
  double s = 0, sx = 0;
  for (int64_t c = 0; c < t->each; c++) {
    double *sums = (double *)t->sums + (i * t->each + c) * 2;
    NAME(group_channel)(sums, g + c * t->inner, x + c * t->inner, mean, t->inner);
    s += sums[0] * (double)(w ? w[first + c] : 1), sx += sums[1] * (double)(w ? w[first + c] : 1);
  }
  T each = (T)(s / (double)n), by = (T)(sx * (double)rstd * (double)rstd / (double)n);
  for (int64_t c = 0; c < t->each; c++) {
    const T scale = w ? w[first + c] : 1, *of = x + c * t->inner, *from = g + c * t->inner;
    T *to = y + c * t->inner;
    for (px__steps p = {.n = t->inner}; px__step(&p);)
      for (int64_t j = p.begin; j < p.end; j++)
        to[j] = rstd * (from[j] * scale - each - (of[j] - mean) * by);
  }
}
static void NAME(group_sums)(const group_task *t, void *weight, void *bias) {
  for (int64_t c = 0; c < t->channels; c++) {
    double s = 0, sx = 0;
    for (int64_t i = 0; i < t->outer; i++) {
      const double *sums = (const double *)t->sums + (i * t->channels + c) * 2;
      s += sums[0];
      sx += sums[1] * (double)((const T *)t->rstd)[i * t->groups + c / t->each];
    }
    if (weight) ((T *)weight)[c] = (T)sx;
    if (bias) ((T *)bias)[c] = (T)s;
  }
}
