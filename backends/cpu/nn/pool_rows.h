// SPDX-License-Identifier: Apache-2.0
// Pooling of planes for one element type (T, NAME as in rows_impl.h); pool.c includes it twice.

// The maximum and its index of the window at (y0, x0); positions before the plane are skipped.
static inline __attribute__((always_inline)) T NAME(max_window)(const pool *t, const T *in,
                                                                int64_t y0, int64_t y1, int64_t x0,
                                                                int64_t *where) {
  int64_t x1 = x0 + (t->kw - 1) * t->dw + 1;
  if (x1 > t->w) x1 = t->w;
  while (x0 < 0) x0 += t->dw;
  int64_t best = y0 * t->w + x0;
  T top = -INFINITY;
  for (int64_t y = y0; y < y1; y += t->dh) {
    int64_t row = y * t->w;
    for (int64_t at = row + x0; at < row + x1; at += t->dw) {
      T v = in[at];
      bool better = v > top || v != v;
      best = better ? at : best;
      top = better ? v : top;
    }
  }
  *where = best;
  return top;
}
// Loads a vector of elements `step` apart; reads nothing outside of their range.
static inline __attribute__((always_inline)) NAME(lanes)
    NAME(load_strided)(const T *in, int64_t step) {
  NAME(lanes) v, last;
  memcpy(&v, in, sizeof v);
  if (step == 1) return v;
  if (step == 2) {
    memcpy(&last, in + NAME(LANES) - 1, sizeof last);
    return NAME(evens)(v, last);
  }
  for (int j = 0; j < NAME(LANES); j++) v[j] = in[j * step];
  return v;
}
// Keeps elements greater than the current maxima, and NaN, with their offsets.
static inline __attribute__((always_inline)) void NAME(keep_max)(NAME(lanes) v, NAME(offset) at,
                                                                 NAME(lanes) * top,
                                                                 NAME(offsets) * best) {
  NAME(offsets) better = (v > *top) | (v != v), here = (NAME(offsets)){0} + at;
  *best = (better & here) | (~better & *best);
  *top = (NAME(lanes))((better & (NAME(offsets))v) | (~better & (NAME(offsets)) * top));
}
// A vector of adjacent windows, none extending past the left or right border; `step` is a constant
// at each call. Offsets are relative to a window's start.
static inline __attribute__((always_inline)) void NAME(max_windows)(const pool *t, int64_t step,
                                                                    const T *in, int64_t y0,
                                                                    int64_t y1, int64_t x0, T *out,
                                                                    int64_t *where) {
  NAME(lanes) top = (NAME(lanes)){0} - INFINITY;
  NAME(offsets) best = {0};
  const T *from = in + y0 * t->w + x0;
  for (int64_t y = 0; y < y1 - y0; y += t->dh)
    for (int64_t x = 0; x < t->kw; x++) {
      int64_t at = y * t->w + x * t->dw;
      NAME(lanes) v = NAME(load_strided)(from + at, step);
      NAME(keep_max)(v, (NAME(offset))at, &top, &best);
    }
  memcpy(out, &top, sizeof top);
  for (int j = 0; j < NAME(LANES); j++) where[j] = y0 * t->w + x0 + j * step + best[j];
}
// n adjacent windows, n at least the number of lanes; the last two vectors overlap.
static void NAME(max_row)(const pool *t, const T *in, int64_t y0, int64_t y1, int64_t x0, int64_t n,
                          T *out, int64_t *where) {
  for (int64_t j = 0; j < n; j += NAME(LANES)) {
    int64_t i = j + NAME(LANES) <= n ? j : n - NAME(LANES), x = x0 + i * t->sw;
    if (t->sw == 1)
      NAME(max_windows)(t, 1, in, y0, y1, x, out + i, where + i);
    else if (t->sw == 2)
      NAME(max_windows)(t, 2, in, y0, y1, x, out + i, where + i);
    else
      NAME(max_windows)(t, t->sw, in, y0, y1, x, out + i, where + i);
  }
}
static void NAME(max_plane)(const pool *t, int64_t plane) {
  const T *in = (const T *)t->in + plane * t->h * t->w;
  T *out = (T *)t->out + plane * t->oh * t->ow;
  int64_t *where = t->indices + plane * t->oh * t->ow;
  int64_t work = 0, line = t->ow * t->kh * t->kw, from, to;
  full_windows(t, &from, &to);
  for (int64_t oy = 0; oy < t->oh && !px__work_stopped(&work, line);
       oy++, out += t->ow, where += t->ow) {
    int64_t y0 = oy * t->sh - t->ph, y1 = y0 + (t->kh - 1) * t->dh + 1;
    if (y1 > t->h) y1 = t->h;
    while (y0 < 0) y0 += t->dh;
    for (int64_t ox = 0, n; ox < t->ow; ox += n) {
      int64_t x0 = ox * t->sw - t->pw;
      n = ox == from && to - from >= NAME(LANES) ? to - from : 1;
      if (n > 1)
        NAME(max_row)(t, in, y0, y1, x0, n, out + ox, where + ox);
      else
        out[ox] = NAME(max_window)(t, in, y0, y1, x0, where + ox);
    }
  }
}
// A row of windows of a channels_last image: a vector of channels at a time; the last two overlap.
static void NAME(max_channels_last)(const pool *t, int64_t row) {
  const T *in = (const T *)t->in + row / t->oh * t->h * t->w * t->channels;
  T *out = (T *)t->out + row * t->ow * t->channels;
  int64_t *where = t->indices + row * t->ow * t->channels, work = 0;
  int64_t y0 = row % t->oh * t->sh - t->ph, y1 = y0 + (t->kh - 1) * t->dh + 1;
  if (y1 > t->h) y1 = t->h;
  while (y0 < 0) y0 += t->dh;
  for (int64_t ox = 0; ox < t->ow && !px__work_stopped(&work, t->channels * t->kh * t->kw); ox++) {
    int64_t x0 = ox * t->sw - t->pw, x1 = x0 + (t->kw - 1) * t->dw + 1;
    if (x1 > t->w) x1 = t->w;
    while (x0 < 0) x0 += t->dw;
    for (int64_t j = 0; j < t->channels; j += NAME(LANES)) {
      int64_t c = j + NAME(LANES) <= t->channels ? j : t->channels - NAME(LANES);
      NAME(lanes) top = (NAME(lanes)){0} - INFINITY, v;
      NAME(offsets) best = (NAME(offsets)){0} + (NAME(offset))(y0 * t->w + x0);
      for (int64_t y = y0; y < y1; y += t->dh)
        for (int64_t x = x0; x < x1; x += t->dw) {
          memcpy(&v, in + (y * t->w + x) * t->channels + c, sizeof v);
          NAME(keep_max)(v, (NAME(offset))(y * t->w + x), &top, &best);
        }
      memcpy(out + ox * t->channels + c, &top, sizeof top);
      for (int k = 0; k < NAME(LANES); k++) where[ox * t->channels + c + k] = best[k];
    }
  }
}
static void NAME(max_plane_backward)(const pool *t, int64_t plane) {
  T *to = (T *)t->out + plane * t->h * t->w;
  const T *g = (const T *)t->in + plane * t->oh * t->ow;
  const int64_t *where = t->indices + plane * t->oh * t->ow;
  if (!px__cpu_clear(to, (size_t)(t->h * t->w) * sizeof(T))) return;
  for (px__steps s = {.n = t->oh * t->ow}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++)
      if (is_index(t, where[i])) to[where[i]] += g[i];
}
static void NAME(select_plane)(const pool *t, int64_t plane) {
  const T *in = (const T *)t->in + plane * t->h * t->w;
  T *to = (T *)t->out + plane * t->oh * t->ow;
  const int64_t *where = t->indices + plane * t->oh * t->ow;
  for (px__steps s = {.n = t->oh * t->ow}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) to[i] = is_index(t, where[i]) ? in[where[i]] : 0;
}
// The sum of n contiguous elements, in lanes if there are many.
static inline T NAME(row_sum)(const T *at, int64_t n) {
  T l[8] = {0}, sum = 0;
  int64_t k = 0;
  for (; k + 8 <= n; k += 8)
    for (int j = 0; j < 8; j++) l[j] += at[k + j];
  if (k) sum = ((l[0] + l[1]) + (l[2] + l[3])) + ((l[4] + l[5]) + (l[6] + l[7]));
  for (; k < n; k++) sum += at[k];
  return sum;
}
static T NAME(long_sum)(const T *at, int64_t n) {
  T lane[32] = {0};
  int64_t k = 0;
  for (; k + 32 <= n; k += 32)
    for (int j = 0; j < 32; j++) lane[j] += at[k + j];
  return NAME(row_sum)(lane, 32) + NAME(row_sum)(at + k, n - k);
}
// A window over whole rows is summed as one long row.
static T NAME(window_sum)(const pool *t, const window *v, const T *in) {
  T sum = 0;
  int64_t all = (v->y1 - v->y0) * t->w;
  if (v->x1 - v->x0 == t->w)
    return all < 64 ? NAME(row_sum)(in + v->y0 * t->w, all)
                    : NAME(long_sum)(in + v->y0 * t->w, all);
  for (int64_t y = v->y0; y < v->y1; y++)
    sum += NAME(row_sum)(in + y * t->w + v->x0, v->x1 - v->x0);
  return sum;
}
static void NAME(spread_gradient)(const pool *t, const window *v, T share, T *out) {
  int64_t width = v->x1 - v->x0;
  T *row = out + v->y0 * t->w + v->x0;
  for (int64_t y = v->y0; y < v->y1; y++, row += t->w)
    for (int64_t x = 0; x < width; x++) row[x] += share;
}
// The means of a vector of adjacent windows, with a single window's order of additions; `step` is a
// constant at each call.
static inline __attribute__((always_inline)) void NAME(mean_windows)(const pool *t, int64_t step,
                                                                     const T *in, const window *v,
                                                                     T *out) {
  NAME(lanes) sum = {0};
  for (int64_t y = v->y0; y < v->y1; y++, in += t->w) {
    NAME(lanes) row = {0};
    for (int64_t x = 0; x < t->kw; x++) row += NAME(load_strided)(in + x, step);
    sum += row;
  }
  sum /= (T)v->divisor;
  memcpy(out, &sum, sizeof sum);
}
// n adjacent windows, as in max_row; v is the first.
static void NAME(mean_row)(const pool *t, const T *in, const window *v, int64_t n, T *out) {
  const T *from = in + v->y0 * t->w + v->x0;
  for (int64_t j = 0; j < n; j += NAME(LANES)) {
    int64_t i = j + NAME(LANES) <= n ? j : n - NAME(LANES), x = i * t->sw;
    if (t->sw == 1)
      NAME(mean_windows)(t, 1, from + x, v, out + i);
    else if (t->sw == 2)
      NAME(mean_windows)(t, 2, from + x, v, out + i);
    else
      NAME(mean_windows)(t, t->sw, from + x, v, out + i);
  }
}
// Means over windows; backward spreads the gradient over the window. Each window is computed once
// for several planes, and runs of full, narrow windows at a time.
static void NAME(mean_planes)(const pool *t, int64_t first, int64_t count) {
  int64_t big = t->h * t->w, small = t->oh * t->ow, from = 0, to = 0;
  const T *in = (const T *)t->in + first * (t->backward ? small : big);
  T *out = (T *)t->out + first * (t->backward ? big : small);
  if (t->backward && !px__cpu_clear(out, (size_t)(count * big) * sizeof(T))) return;
  if (!t->backward && !t->adaptive && t->kw < 8) full_windows(t, &from, &to);
  for (int64_t i = 0, n, work = 0; i < small; i += n) {
    window v = window_of(t, i / t->ow, i % t->ow);
    n = i % t->ow == from && to - from >= NAME(LANES) ? to - from : 1;
    if (px__work_stopped(&work, n * count * (v.y1 - v.y0) * (v.x1 - v.x0))) return;
    for (int64_t p = 0; p < count; p++)
      if (t->backward)
        NAME(spread_gradient)(t, &v, in[p * small + i] / (T)v.divisor, out + p * big);
      else if (n > 1)
        NAME(mean_row)(t, in + p * big, &v, n, out + p * small + i);
      else
        out[p * small + i] = NAME(window_sum)(t, &v, in + p * big) / (T)v.divisor;
  }
}
