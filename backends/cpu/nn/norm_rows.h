// SPDX-License-Identifier: Apache-2.0
// Layer and batch normalization for one element type (T, NAME as in rows_impl.h); norm.c includes
// it twice.

// ---- layer norm: rows of n elements, normalized independently
// One loop per case: a loop with a condition inside is not vectorized.
static inline __attribute__((always_inline)) void NAME(layer_row)(T *restrict y,
                                                                  const T *restrict x, T mean,
                                                                  T rstd, const T *restrict w,
                                                                  const T *restrict b, int64_t n) {
  if (w && b)
    for (int64_t j = 0; j < n; j++) y[j] = (x[j] - mean) * rstd * w[j] + b[j];
  else if (w)
    for (int64_t j = 0; j < n; j++) y[j] = (x[j] - mean) * rstd * w[j] + 0;
  else if (b)
    for (int64_t j = 0; j < n; j++) y[j] = (x[j] - mean) * rstd + b[j];
  else
    for (int64_t j = 0; j < n; j++) y[j] = (x[j] - mean) * rstd + 0;
}
// A row longer than PX__STEP.
static __attribute__((noinline)) void NAME(layer_long_row)(T *y, const T *x, T mean, T rstd,
                                                           const T *w, const T *b, int64_t n) {
  for (px__steps s = {.n = n}; px__step(&s);) {
    int64_t at = s.begin;
    NAME(layer_row)(y + at, x + at, mean, rstd, w ? w + at : NULL, b ? b + at : NULL, s.end - at);
  }
}
static void NAME(layer)(const layer_task *t, int64_t begin, int64_t end) {
  int64_t n = t->n;
  const T *w = t->weight, *b = t->bias;
  for (int64_t i = begin; i < end; i++) {
    const T *x = (const T *)t->x + i * n;
    T *y = (T *)t->y + i * n;
    T mean = (T)(NAME(vec_sum)(x, n) / (double)n);
    T rstd = (T)(1 / sqrt(NAME(vec_sum_square)(x, mean, n, n) / (double)n + t->eps));
    ((T *)t->mean)[i] = mean, ((T *)t->rstd)[i] = rstd;
    if (n > PX__STEP)
      NAME(layer_long_row)(y, x, mean, rstd, w, b, n);
    else
      NAME(layer_row)(y, x, mean, rstd, w, b, n);
  }
}
// One chunk of rows: the input gradients, and the chunk's sums for weight and bias.
static void NAME(layer_backward)(const layer_task *t, int64_t chunk) {
  int64_t n = t->n, first = t->rows * chunk / t->chunks, last = t->rows * (chunk + 1) / t->chunks;
  const T *w = t->weight;
  T *dw = (T *)t->partial + chunk * 2 * n, *db = dw + n;
  for (int64_t i = first; i < last; i++) {
    const T *x = (const T *)t->x + i * n, *g = (const T *)t->grad + i * n;
    T *to = (T *)t->y + i * n, mean = ((T *)t->mean)[i], rstd = ((T *)t->rstd)[i];
    double s1 = 0, s2 = 0;
    for (px__steps s = {.n = n}; px__step(&s);) {
      T a1[LANES] = {0}, a2[LANES] = {0};
      int64_t j = s.begin;
      for (; j + LANES <= s.end; j += LANES)
        for (int k = 0; k < LANES; k++) {
          T h = (x[j + k] - mean) * rstd, gw = g[j + k] * (w ? w[j + k] : 1);
          a1[k] += gw, a2[k] += gw * h;
          dw[j + k] += g[j + k] * h, db[j + k] += g[j + k];
        }
      for (; j < s.end; j++) {
        T h = (x[j] - mean) * rstd, gw = g[j] * (w ? w[j] : 1);
        s1 += gw, s2 += gw * h;
        dw[j] += g[j] * h, db[j] += g[j];
      }
      for (int k = 0; k < LANES; k++) s1 += a1[k], s2 += a2[k];
    }
    T m1 = (T)(s1 / (double)n), m2 = (T)(s2 / (double)n);
    for (px__steps s = {.n = n}; px__step(&s);)
      for (int64_t j = s.begin; j < s.end; j++) {
        T h = (x[j] - mean) * rstd;
        to[j] = rstd * (g[j] * (w ? w[j] : 1) - m1 - h * m2);
      }
  }
}
static void NAME(layer_sums)(const layer_task *t, void *weight, void *bias) {
  const T *p = t->partial;
  for (px__steps s = {.n = t->n}; px__step(&s);)
    for (int64_t j = s.begin; j < s.end; j++) {
      T dw = 0, db = 0;
      for (int64_t c = 0; c < t->chunks; c++)
        dw += p[c * 2 * t->n + j], db += p[(c * 2 + 1) * t->n + j];
      if (weight) ((T *)weight)[j] = dw;
      if (bias) ((T *)bias)[j] = db;
    }
}

// ---- batch norm: one mean per channel c of [outer, channels, inner]
static inline T NAME(mean_of)(const batch_task *t, int64_t c, double sum) {
  return t->training ? (T)(sum / (double)(t->outer * t->inner)) : ((const T *)t->running_mean)[c];
}
// The scale of a channel with sum of squared deviations `square`; in training stores the
// statistics.
static T NAME(scale_of)(const batch_task *t, int64_t c, T mean, double square) {
  const T *w = t->weight;
  double n = (double)(t->outer * t->inner);
  double variance = t->training ? square / n : (double)((const T *)t->running_var)[c];
  T invstd = (T)(1 / sqrt(variance + t->eps));
  if (t->training) {
    ((T *)t->mean)[c] = mean, ((T *)t->invstd)[c] = invstd;
    ((T *)t->variance)[c] = (T)(variance * n / (n - 1));
  }
  return invstd * (w ? w[c] : 1);
}
static inline T NAME(shift_of)(const batch_task *t, int64_t c, T mean, T scale) {
  const T *b = t->bias;
  return (b ? b[c] : 0) - mean * scale;
}
// Backward coefficients of a channel. s: sum of its gradients; sx: sum of gradient times deviation.
typedef struct NAME(slopes) {
  T scale, each, by;  // (gradient - each - deviation * by) * scale
} NAME(slopes);
static NAME(slopes) NAME(slopes_of)(const batch_task *t, int64_t c, double s, double sx) {
  const T *w = t->weight;
  double n = (double)(t->outer * t->inner);
  T invstd = t->training ? ((const T *)t->invstd)[c]
                         : (T)(1 / sqrt((double)((const T *)t->running_var)[c] + t->eps));
  if (t->grad_weight) ((T *)t->grad_weight)[c] = (T)(sx * invstd);
  if (t->grad_bias) ((T *)t->grad_bias)[c] = (T)s;
  T scale = invstd * (w ? w[c] : 1);
  if (!t->training) return (NAME(slopes)){scale, 0, 0};
  return (NAME(slopes)){scale, (T)(s / n), (T)(sx * invstd * invstd / n)};
}
static inline T NAME(kept_mean)(const batch_task *t, int64_t c) {
  return ((const T *)(t->training ? t->mean : t->running_mean))[c];
}

// Sums over one channel, accumulated in double.
static double NAME(channel_sum)(const batch_task *t, int64_t c) {
  const T *x = t->x;
  double s = 0;
  int64_t work = 0;
  for (int64_t o = 0; o < t->outer && !px__work_stopped(&work, t->inner); o++)
    s += NAME(vec_sum)(x + (o * t->channels + c) * t->inner, t->inner);
  return s;
}
static double NAME(channel_square)(const batch_task *t, int64_t c, T mean) {
  const T *x = t->x;
  double s = 0;
  int64_t work = 0;
  for (int64_t o = 0; o < t->outer && !px__work_stopped(&work, t->inner); o++)
    s += NAME(vec_sum_square)(x + (o * t->channels + c) * t->inner, mean, t->inner, 0);
  return s;
}
static void NAME(channel)(const batch_task *t, int64_t c) {
  int64_t stride = t->channels * t->inner, work = 0;
  const T *x = (const T *)t->x + c * t->inner;
  T *y = (T *)t->y + c * t->inner;
  T mean = NAME(mean_of)(t, c, t->training ? NAME(channel_sum)(t, c) : 0);
  T scale = NAME(scale_of)(t, c, mean, t->training ? NAME(channel_square)(t, c, mean) : 0);
  T shift = NAME(shift_of)(t, c, mean, scale);
  for (int64_t o = 0; o < t->outer && !px__work_stopped(&work, t->inner);
       o++, x += stride, y += stride)
    for (px__steps at = {.n = t->inner}; px__step(&at);)
      for (int64_t i = at.begin; i < at.end; i++) y[i] = x[i] * scale + shift;
}
// Sums of g and of g * (x - mean) over one channel.
static void NAME(channel_products)(const batch_task *t, int64_t c, T mean, double *s, double *sx) {
  int64_t stride = t->channels * t->inner, work = 0;
  const T *x = (const T *)t->x + c * t->inner, *g = (const T *)t->grad + c * t->inner;
  *s = *sx = 0;
  for (int64_t o = 0; o < t->outer && !px__work_stopped(&work, t->inner);
       o++, x += stride, g += stride) {
    double part = NAME(vec_sum)(g, t->inner);
    *s += part, *sx += NAME(vec_dot)(g, x, t->inner) - part * mean;
  }
}
static void NAME(channel_backward)(const batch_task *t, int64_t c) {
  int64_t work = 0;
  double s, sx;
  T mean = NAME(kept_mean)(t, c);
  NAME(channel_products)(t, c, mean, &s, &sx);
  NAME(slopes) f = NAME(slopes_of)(t, c, s, sx);
  for (int64_t o = 0; o < t->outer && !px__work_stopped(&work, t->inner); o++) {
    int64_t at = (o * t->channels + c) * t->inner;
    const T *x = (const T *)t->x + at, *g = (const T *)t->grad + at;
    T *to = (T *)t->y + at;
    for (px__steps p = {.n = t->inner}; px__step(&p);)
      for (int64_t i = p.begin; i < p.end; i++)
        to[i] = t->training ? (g[i] - f.each - (x[i] - mean) * f.by) * f.scale : g[i] * f.scale;
  }
}
static void NAME(batch)(const batch_task *t, int64_t begin, int64_t end) {
  for (int64_t c = begin; c < end; c++) NAME(channel)(t, c);
}
static void NAME(batch_backward)(const batch_task *t, int64_t begin, int64_t end) {
  for (int64_t c = begin; c < end; c++) NAME(channel_backward)(t, c);
}

// ---- batch norm of [outer, channels]: parts of the rows, COLUMNS columns at a time
static void NAME(part_sums)(const batch_task *t, const row_part *p) {
  const T *x = (const T *)t->x + p->row * t->channels + p->c;
  int64_t next = t->channels;
  double sum[COLUMNS] = {0};
  for (px__steps at = {.n = p->rows}; px__step(&at);) {
    int64_t o = at.begin;
    for (; o + 4 <= at.end; o += 4, x += 4 * next)
      for (int64_t k = 0; k < p->n; k++)
        sum[k] += ((double)x[k] + x[next + k]) + ((double)x[2 * next + k] + x[3 * next + k]);
    for (; o < at.end; o++, x += next)
      for (int64_t k = 0; k < p->n; k++) sum[k] += x[k];
  }
  memcpy(p->sums, sum, (size_t)p->n * sizeof *sum);
}
static void NAME(part_squares)(const batch_task *t, const row_part *p) {
  const T *x = (const T *)t->x + p->row * t->channels + p->c;
  const T *mean = (const T *)t->channel_values + p->c;
  int64_t next = t->channels;
  double square[COLUMNS] = {0};
  for (px__steps at = {.n = p->rows}; px__step(&at);) {
    int64_t o = at.begin;
    for (; o + 2 <= at.end; o += 2, x += 2 * next)
      for (int64_t k = 0; k < p->n; k++) {
        double a = (double)x[k] - mean[k], b = (double)x[next + k] - mean[k];
        square[k] += a * a + b * b;
      }
    for (; o < at.end; o++, x += next)
      for (int64_t k = 0; k < p->n; k++) {
        double a = (double)x[k] - mean[k];
        square[k] += a * a;
      }
  }
  memcpy(p->sums, square, (size_t)p->n * sizeof *square);
}
static void NAME(part_results)(const batch_task *t, const row_part *p) {
  const T *scale = (const T *)t->channel_values + t->channels + p->c, *shift = scale + t->channels;
  int64_t first = p->row * t->channels + p->c;
  const T *restrict x = (const T *)t->x + first;
  T *restrict y = (T *)t->y + first;
  for (px__steps at = {.n = p->rows}; px__step(&at);)
    for (int64_t o = at.begin; o < at.end; o++, x += t->channels, y += t->channels)
      for (int64_t k = 0; k < p->n; k++) y[k] = x[k] * scale[k] + shift[k];
}
// In training, computes the statistics first; otherwise uses the running ones.
static void NAME(batch_columns)(batch_task *t) {
  T *mean = t->channel_values, *scale = mean + t->channels, *shift = scale + t->channels;
  if (t->training) run_stage(t, NAME(part_sums));
  for (int64_t c = 0; c < t->channels; c++) mean[c] = NAME(mean_of)(t, c, sum_of_parts(t, 0, c));
  if (t->training) run_stage(t, NAME(part_squares));
  for (int64_t c = 0; c < t->channels; c++) {
    scale[c] = NAME(scale_of)(t, c, mean[c], sum_of_parts(t, 0, c));
    shift[c] = NAME(shift_of)(t, c, mean[c], scale[c]);
  }
  run_stage(t, NAME(part_results));
}

static void NAME(part_products)(const batch_task *t, const row_part *p) {
  int64_t first = p->row * t->channels + p->c;
  const T *x = (const T *)t->x + first, *g = (const T *)t->grad + first;
  const T *mean = (const T *)t->channel_values + p->c;
  double s[COLUMNS] = {0}, sx[COLUMNS] = {0};
  for (px__steps at = {.n = p->rows}; px__step(&at);)
    for (int64_t o = at.begin; o < at.end; o++, x += t->channels, g += t->channels)
      for (int64_t k = 0; k < p->n; k++) s[k] += g[k], sx[k] += (double)g[k] * (x[k] - mean[k]);
  memcpy(p->sums, s, (size_t)p->n * sizeof *s);
  memcpy(p->sums + t->parts * t->channels, sx, (size_t)p->n * sizeof *sx);
}
static void NAME(part_gradients)(const batch_task *t, const row_part *p) {
  const T *mean = (const T *)t->channel_values + p->c, *scale = mean + t->channels;
  const T *each = scale + t->channels, *by = each + t->channels;
  int64_t first = p->row * t->channels + p->c;
  const T *restrict x = (const T *)t->x + first, *restrict g = (const T *)t->grad + first;
  T *restrict to = (T *)t->y + first;
  for (px__steps at = {.n = p->rows}; px__step(&at);)
    for (int64_t o = at.begin; o < at.end; o++) {
      for (int64_t k = 0; t->training && k < p->n; k++)
        to[k] = (g[k] - each[k] - (x[k] - mean[k]) * by[k]) * scale[k];
      for (int64_t k = 0; !t->training && k < p->n; k++) to[k] = g[k] * scale[k];
      x += t->channels, g += t->channels, to += t->channels;
    }
}
static void NAME(batch_columns_backward)(batch_task *t) {
  T *mean = t->channel_values, *scale = mean + t->channels, *each = scale + t->channels;
  T *by = each + t->channels;
  for (int64_t c = 0; c < t->channels; c++) mean[c] = NAME(kept_mean)(t, c);
  run_stage(t, NAME(part_products));
  for (int64_t c = 0; c < t->channels; c++) {
    NAME(slopes) f = NAME(slopes_of)(t, c, sum_of_parts(t, 0, c), sum_of_parts(t, 1, c));
    scale[c] = f.scale, each[c] = f.each, by[c] = f.by;
  }
  run_stage(t, NAME(part_gradients));
}
