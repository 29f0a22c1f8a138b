// SPDX-License-Identifier: Apache-2.0
// Pooling, and convolution without a library. One thread per element of the result; for
// channels_last pooling (NAME_last), 16 bytes of adjacent channels. Other planes are row-major.
//
// Blocks of K_BLOCK threads, enough for all elements. Adjacent threads have adjacent elements of
// a row: writes are coalesced, and windows overlap in the cache. conv_weight uses one block an
// element, which loops over all output pixels of all images in order.
#include "math.cuh"

static __device__ __forceinline__ float lowest(float) { return K_min_value_f32; }
static __device__ __forceinline__ double lowest(double) { return K_min_value_f64; }

// A position in a plane, computed from the loop index.
struct position {
  int64_t plane;
  int y, x;
};
static __device__ __forceinline__ position position_of(const k_window &t, int64_t i, int64_t h,
                                                       int64_t w) {
  position s;
  if (t.wide) {
    s.x = (int)(i % w), s.y = (int)(i / w % h), s.plane = i / (w * h);
    return s;
  }
  uint32_t line = k_divide((uint32_t)i, t.by_w), plane = k_divide(line, t.by_h);
  s.x = (int)((uint32_t)i - line * (uint32_t)w), s.y = (int)(line - plane * (uint32_t)h);
  s.plane = plane;
  return s;
}

// First index of a window inside the plane along a dimension; its corner may be outside.
static __device__ __forceinline__ int first_inside(int corner, int step) {
  while (corner < 0) corner += step;
  return corner;
}
// Maximum of K by K adjacent elements, and its index. All are loaded before any is compared.
template <typename S, int K>
static __device__ __forceinline__ typename k_type<S>::number max_of(const k_window &t, const S *in,
                                                                    int y0, int x0, int *best) {
  typedef typename k_type<S>::number C;
  int h = (int)t.h, w = (int)t.w;
  C top = lowest(C()), v[K][K];
#pragma unroll
  for (int a = 0; a < K; a++)
#pragma unroll
    for (int b = 0; b < K; b++) {
      int y = y0 + a, x = x0 + b;
      v[a][b] = y >= 0 && y < h && x >= 0 && x < w ? k_get(in[y * w + x]) : top;
    }
  *best = first_inside(y0, 1) * w + first_inside(x0, 1);
#pragma unroll
  for (int a = 0; a < K; a++)
#pragma unroll
    for (int b = 0; b < K; b++)
      if (v[a][b] > top || v[a][b] != v[a][b]) top = v[a][b], *best = (y0 + a) * w + x0 + b;
  return top;
}
// The same for any window.
template <typename S>
static __device__ __forceinline__ typename k_type<S>::number max_of_any(const k_window &t,
                                                                        const S *in, int y0, int x0,
                                                                        int *best) {
  typedef typename k_type<S>::number C;
  int w = (int)t.w, dh = (int)t.dh, dw = (int)t.dw;
  int y1 = y0 + ((int)t.kh - 1) * dh, x1 = x0 + ((int)t.kw - 1) * dw;
  C top = lowest(C());
  y0 = first_inside(y0, dh), x0 = first_inside(x0, dw);
  *best = y0 * w + x0;
  for (int y = y0; y <= y1 && y < t.h; y += dh)
    for (int x = x0; x <= x1 && x < w; x += dw) {
      C v = k_get(in[y * w + x]);
      if (v > top || v != v) top = v, *best = y * w + x;
    }
  return top;
}
// Calls max(in, y0, x0, &best) for each window.
template <typename S, typename F>
static __device__ __forceinline__ void max_pool_by(const k_window &t, F max) {
  for (int64_t i = k_thread(); i < t.planes * t.oh * t.ow; i += k_threads()) {
    position at = position_of(t, i, t.oh, t.ow);
    int best;
    k_put((S *)t.out + i, max((const S *)t.in + at.plane * t.h * t.w, at.y * (int)t.sh - (int)t.ph,
                              at.x * (int)t.sw - (int)t.pw, &best));
    t.indices[i] = best;
  }
}
// Out: maxima and their indices in the plane.
template <typename S>
static __device__ __forceinline__ void max_pool_body(const k_window &t) {
  bool plain = t.kh == t.kw && t.dh == 1 && t.dw == 1;
  if (plain && t.kh == 2)
    max_pool_by<S>(t,
                   [&](const S *in, int y, int x, int *b) { return max_of<S, 2>(t, in, y, x, b); });
  else if (plain && t.kh == 3)
    max_pool_by<S>(t,
                   [&](const S *in, int y, int x, int *b) { return max_of<S, 3>(t, in, y, x, b); });
  else
    max_pool_by<S>(
        t, [&](const S *in, int y, int x, int *b) { return max_of_any<S>(t, in, y, x, b); });
}
K_FLOATS(max_pool, k_window)

// Output indices along a dimension whose windows contain the padded index `at`.
struct reach {
  int from, to;
};
static __device__ __forceinline__ reach windows_at(int at, int step, const k_divisor &by, int span,
                                                   int out) {
  reach r;
  r.to = (int)k_divide((uint32_t)at, by);
  r.from = r.to;
  while (r.from > 0 && (r.from - 1) * step + span >= at) r.from--;
  if (r.to >= out) r.to = out - 1;
  return r;
}
// Out: gradient of the input. Each element sums the gradients of the windows in which it was the
// maximum, so each is written once and in a fixed order.
template <typename S>
static __device__ __forceinline__ void max_pool_gather_body(const k_window &t) {
  typedef typename k_type<S>::number C;
  int span_y = (int)((t.kh - 1) * t.dh), span_x = (int)((t.kw - 1) * t.dw), ow = (int)t.ow;
  for (int64_t i = k_thread(); i < t.planes * t.h * t.w; i += k_threads()) {
    position at = position_of(t, i, t.h, t.w);
    reach down = windows_at(at.y + (int)t.ph, (int)t.sh, t.by_sh, span_y, (int)t.oh);
    reach across = windows_at(at.x + (int)t.pw, (int)t.sw, t.by_sw, span_x, ow);
    const int64_t *maxima = t.indices + at.plane * t.oh * t.ow;
    const S *in = (const S *)t.in + at.plane * t.oh * t.ow;
    int self = at.y * (int)t.w + at.x;
    C sum = 0;
    for (int oy = down.from; oy <= down.to; oy++)
      for (int ox = across.from; ox <= across.to; ox++)
        if (maxima[oy * ow + ox] == self) sum += k_get(in[oy * ow + ox]);
    k_put((S *)t.out + i, sum);
  }
}
K_FLOATS(max_pool_gather, k_window)

// Checks an index within a plane; reports it if invalid.
static __device__ __forceinline__ bool check_index(const k_window &t, int64_t at) {
  bool good = at >= 0 && at < t.h * t.w;
  if (!good) k_fault(&t.where, K_FAULT_RANGE, at, t.h * t.w, 0);
  return good;
}

// float and double: adds gradients at arbitrary indices. The result is cleared before.
template <typename S>
static __device__ __forceinline__ void max_pool_scatter_body(const k_window &t) {
  for (int64_t i = k_thread(); i < t.planes * t.oh * t.ow; i += k_threads())
    if (check_index(t, t.indices[i]))
      atomicAdd((S *)t.out + i / (t.oh * t.ow) * t.h * t.w + t.indices[i], ((const S *)t.in)[i]);
}
K_KERNEL(max_pool_scatter, f32, float, k_window)
K_KERNEL(max_pool_scatter, f64, double, k_window)

// The same in a fixed order: one thread per plane.
template <typename S>
static __device__ __forceinline__ void max_pool_ordered_body(const k_window &t) {
  int64_t all = t.oh * t.ow;
  for (int64_t plane = k_thread(); plane < t.planes; plane += k_threads())
    for (int64_t i = plane * all; i < (plane + 1) * all; i++)
      if (check_index(t, t.indices[i]))
        ((S *)t.out)[plane * t.h * t.w + t.indices[i]] += ((const S *)t.in)[i];
}
K_KERNEL(max_pool_ordered, f32, float, k_window)
K_KERNEL(max_pool_ordered, f64, double, k_window)

template <typename S>
static __device__ __forceinline__ void max_pool_pick_body(const k_window &t) {
  for (int64_t i = k_thread(); i < t.planes * t.oh * t.ow; i += k_threads())
    if (check_index(t, t.indices[i]))
      ((S *)t.out)[i] = ((const S *)t.in)[i / (t.oh * t.ow) * t.h * t.w + t.indices[i]];
}
K_FLOATS(max_pool_pick, k_window)

// ---- means

struct span {
  int64_t from, to, padded;
};
// The window of one output index along one dimension.
static __device__ __forceinline__ span span_of(const k_window &t, int64_t at, bool down) {
  int64_t size = down ? t.h : t.w, out = down ? t.oh : t.ow;
  span s;
  if (t.adaptive) {
    s.from = at * size / out, s.to = ((at + 1) * size + out - 1) / out;
    s.padded = s.to - s.from;
    return s;
  }
  int64_t pad = down ? t.ph : t.pw, first = at * (down ? t.sh : t.sw) - pad;
  int64_t last = first + (down ? t.kh : t.kw);
  s.padded = (last < size + pad ? last : size + pad) - first;
  s.from = first > 0 ? first : 0;
  s.to = last < size ? last : size;
  return s;
}
static __device__ __forceinline__ int64_t divisor_of(const k_window &t, span y, span x) {
  if (t.adaptive) return (y.to - y.from) * (x.to - x.from);
  return t.divisor     ? t.divisor
         : t.count_pad ? y.padded * x.padded
                       : (y.to - y.from) * (x.to - x.from);
}
template <typename S>
static __device__ __forceinline__ void mean_pool_body(const k_window &t) {
  typedef typename k_type<S>::number C;
  for (int64_t i = k_thread(); i < t.planes * t.oh * t.ow; i += k_threads()) {
    span y = span_of(t, i / t.ow % t.oh, true), x = span_of(t, i % t.ow, false);
    const S *in = (const S *)t.in + i / (t.ow * t.oh) * t.h * t.w;
    C sum = 0;
    for (int64_t a = y.from; a < y.to; a++)
      for (int64_t b = x.from; b < x.to; b++) sum += k_get(in[a * t.w + b]);
    k_put((S *)t.out + i, sum / (C)divisor_of(t, y, x));
  }
}
K_FLOATS(mean_pool, k_window)

// Output indices whose windows may contain input index `at`: [from, to).
static __device__ __forceinline__ span reach_of(const k_window &t, int64_t at, bool down) {
  int64_t size = down ? t.h : t.w, out = down ? t.oh : t.ow;
  span s = {0, 0, 0};
  if (t.adaptive) {
    s.from = at * out / size, s.to = ((at + 1) * out + size - 1) / size;
  } else {
    int64_t step = down ? t.sh : t.sw, q = at + (down ? t.ph : t.pw), k = down ? t.kh : t.kw;
    s.from = q < k ? 0 : (q - k) / step + 1, s.to = q / step + 1;
  }
  if (s.to > out) s.to = out;
  return s;
}
// Out: gradient of the input; in: gradient of the means.
template <typename S>
static __device__ __forceinline__ void mean_pool_backward_body(const k_window &t) {
  typedef typename k_type<S>::number C;
  for (int64_t i = k_thread(); i < t.planes * t.h * t.w; i += k_threads()) {
    int64_t x = i % t.w, y = i / t.w % t.h;
    span ys = reach_of(t, y, true), xs = reach_of(t, x, false);
    const S *g = (const S *)t.in + i / (t.w * t.h) * t.oh * t.ow;
    C sum = 0;
    for (int64_t oy = ys.from; oy < ys.to; oy++)
      for (int64_t ox = xs.from; ox < xs.to; ox++) {
        span a = span_of(t, oy, true), b = span_of(t, ox, false);
        if (y < a.from || y >= a.to || x < b.from || x >= b.to) continue;
        sum += k_get(g[oy * t.ow + ox]) / (C)divisor_of(t, a, b);
      }
    k_put((S *)t.out + i, sum);
  }
}
K_FLOATS(mean_pool_backward, k_window)

// ---- pooling with channels_last: `planes` images of c channels. One thread per 16-byte vector of
// a position's channels, or one channel if they are not whole vectors.

template <typename S, int N>
struct k_channels {
  typedef typename k_type<S>::number C;
  // Calls f(position, offset, first channel) for each position of h by w and each vector of
  // channels.
  template <typename F>
  static __device__ __forceinline__ void each(const k_window &t, int64_t h, int64_t w, F f) {
    int64_t vectors = t.c / N;
#pragma unroll 1
    for (int64_t i = k_thread(); i < t.planes * h * w * vectors; i += k_threads()) {
      int64_t pixel = k_quotient(i, vectors);
      f(position_of(t, pixel, h, w), pixel * t.c + (i - pixel * vectors) * N,
        (i - pixel * vectors) * N);
    }
  }
  static __device__ __forceinline__ k_loaded<S, N> load(const void *from, int64_t at) {
    return *(const k_loaded<S, N> *)((const S *)from + at);
  }
  static __device__ __forceinline__ void store(void *to, int64_t at, const C *x) {
    k_vector<S, N> v;
#pragma unroll
    for (int k = 0; k < N; k++) k_put(&v.v[k], x[k]);
    *(k_vector<S, N> *)((S *)to + at) = v;
  }
};
// True if channels consist of whole, aligned 16-byte vectors.
template <typename S>
static __device__ __forceinline__ bool is_even(const k_window &t) {
  uintptr_t all = (uintptr_t)t.out | (uintptr_t)t.in | (uintptr_t)t.indices;
  return t.c % (16 / sizeof(S)) == 0 && all % 16 == 0;
}
#define K_BY_CHANNELS(name) \
  template <typename S> \
  static __device__ __forceinline__ void name##_body(const k_window &t) { \
    if (is_even<S>(t)) \
      name##_of<S, 16 / sizeof(S)>(t); \
    else \
      name##_of<S, 1>(t); \
  } \
  K_FLOATS(name, k_window)

// Maximum over a row of K adjacent positions, all loaded before any is compared. Positions
// outside the image repeat its edge, which changes no maximum.
template <typename S, int N, int K>
static __device__ __forceinline__ void max_along(const k_window &t, int64_t image, int y, int x0,
                                                 typename k_type<S>::number *top, int *best) {
  k_loaded<S, N> v[K];
  int x[K], w = (int)t.w;
#pragma unroll
  for (int b = 0; b < K; b++) {
    x[b] = x0 + b < 0 ? 0 : x0 + b < w ? x0 + b : w - 1;
    v[b] = k_channels<S, N>::load(t.in, image + (int64_t)(y * w + x[b]) * t.c);
  }
#pragma unroll
  for (int b = 0; b < K; b++)
#pragma unroll
    for (int k = 0; k < N; k++) {
      auto one = k_get(v[b][k]);
      if (one > top[k] || one != one) top[k] = one, best[k] = y * w + x[b];
    }
}
template <typename S, int N, int K>
static __device__ __forceinline__ void max_pool_last_by(const k_window &t) {
  typedef k_channels<S, N> channels;
  typedef typename channels::C C;
  int h = (int)t.h, w = (int)t.w, dh = (int)t.dh, dw = (int)t.dw;
  channels::each(t, t.oh, t.ow, [&](position at, int64_t to, int64_t channel) {
    int y0 = at.y * (int)t.sh - (int)t.ph, x0 = at.x * (int)t.sw - (int)t.pw;
    int y1 = y0 + ((int)t.kh - 1) * dh, x1 = x0 + ((int)t.kw - 1) * dw, best[N];
    int64_t image = at.plane * t.h * t.w * t.c + channel;
    C top[N];
    y0 = first_inside(y0, dh);
#pragma unroll
    for (int k = 0; k < N; k++) top[k] = lowest(C()), best[k] = y0 * w + first_inside(x0, dw);
#pragma unroll(K > 1 ? K : 1)
    for (int y = y0; y <= y1 && y < h; y += dh)
      if (K > 1)
        max_along<S, N, K>(t, image, y, x0, top, best);
      else
        for (int x = first_inside(x0, dw); x <= x1 && x < w; x += dw)
          max_along<S, N, 1>(t, image, y, x, top, best);
    channels::store(t.out, to, top);
#pragma unroll
    for (int k = 0; k < N; k += 2) {
      if (N > 1)
        *(k_vector<int64_t, 2> *)(t.indices + to + k) = {{best[k], best[k + 1 < N ? k + 1 : 0]}};
      else
        t.indices[to] = best[0];
    }
  });
}
template <typename S, int N>
static __device__ __forceinline__ void max_pool_last_of(const k_window &t) {
  bool plain = t.kh == t.kw && t.dh == 1 && t.dw == 1;
  if (plain && t.kh == 2)
    max_pool_last_by<S, N, 2>(t);
  else if (plain && t.kh == 3)
    max_pool_last_by<S, N, 3>(t);
  else
    max_pool_last_by<S, N, 1>(t);
}
K_BY_CHANNELS(max_pool_last)

template <typename S, int N>
static __device__ __forceinline__ void max_pool_gather_last_of(const k_window &t) {
  typedef k_channels<S, N> channels;
  typedef typename channels::C C;
  int span_y = (int)((t.kh - 1) * t.dh), span_x = (int)((t.kw - 1) * t.dw), ow = (int)t.ow;
  channels::each(t, t.h, t.w, [&](position at, int64_t to, int64_t channel) {
    reach down = windows_at(at.y + (int)t.ph, (int)t.sh, t.by_sh, span_y, (int)t.oh);
    reach across = windows_at(at.x + (int)t.pw, (int)t.sw, t.by_sw, span_x, ow);
    int64_t image = at.plane * t.oh * t.ow * t.c + channel;
    int self = at.y * (int)t.w + at.x;
    C sum[N];
#pragma unroll
    for (int k = 0; k < N; k++) sum[k] = 0;
    for (int oy = down.from; oy <= down.to; oy++)
#pragma unroll 2
      for (int ox = across.from; ox <= across.to; ox++) {
        int64_t from = image + (int64_t)(oy * ow + ox) * t.c;
        k_loaded<S, N> g = channels::load(t.in, from);
        k_vector<int64_t, N % 2 ? 1 : 2> maxima[(N + 1) / 2];
#pragma unroll
        for (int k = 0; k < (N + 1) / 2; k++)
          maxima[k] = ((const k_vector<int64_t, N % 2 ? 1 : 2> *)(t.indices + from))[k];
#pragma unroll
        for (int k = 0; k < N; k++)
          if (maxima[k / 2].v[N > 1 ? k % 2 : 0] == self) sum[k] += k_get(g[k]);
      }
    channels::store(t.out, to, sum);
  });
}
K_BY_CHANNELS(max_pool_gather_last)

template <typename S, int N>
static __device__ __forceinline__ void mean_pool_last_of(const k_window &t) {
  typedef k_channels<S, N> channels;
  typedef typename channels::C C;
  channels::each(t, t.oh, t.ow, [&](position at, int64_t to, int64_t channel) {
    span y = span_of(t, at.y, true), x = span_of(t, at.x, false);
    int64_t image = at.plane * t.h * t.w * t.c + channel;
    C sum[N];
#pragma unroll
    for (int k = 0; k < N; k++) sum[k] = 0;
    for (int64_t a = y.from; a < y.to; a++)
#pragma unroll 4
      for (int64_t b = x.from; b < x.to; b++) {
        k_loaded<S, N> v = channels::load(t.in, image + (a * t.w + b) * t.c);
#pragma unroll
        for (int k = 0; k < N; k++) sum[k] += k_get(v[k]);
      }
    C by = (C)divisor_of(t, y, x);
#pragma unroll
    for (int k = 0; k < N; k++) sum[k] /= by;
    channels::store(t.out, to, sum);
  });
}
K_BY_CHANNELS(mean_pool_last)

template <typename S, int N>
static __device__ __forceinline__ void mean_pool_backward_last_of(const k_window &t) {
  typedef k_channels<S, N> channels;
  typedef typename channels::C C;
  channels::each(t, t.h, t.w, [&](position at, int64_t to, int64_t channel) {
    span ys = reach_of(t, at.y, true), xs = reach_of(t, at.x, false);
    int64_t image = at.plane * t.oh * t.ow * t.c + channel;
    C sum[N];
#pragma unroll
    for (int k = 0; k < N; k++) sum[k] = 0;
#pragma unroll 1
    for (int64_t oy = ys.from; oy < ys.to; oy++)
#pragma unroll 1
      for (int64_t ox = xs.from; ox < xs.to; ox++) {
        span a = span_of(t, oy, true), b = span_of(t, ox, false);
        if (at.y < a.from || at.y >= a.to || at.x < b.from || at.x >= b.to) continue;
        k_loaded<S, N> g = channels::load(t.in, image + (oy * t.ow + ox) * t.c);
        C by = (C)divisor_of(t, a, b);
#pragma unroll
        for (int k = 0; k < N; k++) sum[k] += k_get(g[k]) / by;
      }
    channels::store(t.out, to, sum);
  });
}
K_BY_CHANNELS(mean_pool_backward_last)

// ---- convolution: n images of c channels and oc channels of the result, in groups

template <typename S>
static __device__ __forceinline__ void conv_body(const k_window &t) {
  typedef typename k_type<S>::number C;
  int64_t cg = t.c / t.groups, og = t.oc / t.groups;
  for (int64_t i = k_thread(); i < t.n * t.oc * t.oh * t.ow; i += k_threads()) {
    int64_t ox = i % t.ow, oy = i / t.ow % t.oh, o = i / (t.ow * t.oh) % t.oc;
    int64_t image = i / (t.ow * t.oh * t.oc), c0 = o / og * cg;
    C sum = t.bias ? k_get(((const S *)t.bias)[o]) : (C)0;
    for (int64_t c = 0; c < cg; c++) {
      const S *in = (const S *)t.in + (image * t.c + c0 + c) * t.h * t.w;
      const S *w = (const S *)t.weight + (o * cg + c) * t.kh * t.kw;
      for (int64_t ky = 0; ky < t.kh; ky++) {
        int64_t y = oy * t.sh - t.ph + ky * t.dh;
        if (y < 0 || y >= t.h) continue;
        for (int64_t kx = 0; kx < t.kw; kx++) {
          int64_t x = ox * t.sw - t.pw + kx * t.dw;
          if (x >= 0 && x < t.w) sum += k_get(in[y * t.w + x]) * k_get(w[ky * t.kw + kx]);
        }
      }
    }
    k_put((S *)t.out + i, sum);
  }
}
K_FLOATS(conv, k_window)

// Out: gradient of the images; in: gradient of the result; weight.
template <typename S>
static __device__ __forceinline__ void conv_input_body(const k_window &t) {
  typedef typename k_type<S>::number C;
  int64_t cg = t.c / t.groups, og = t.oc / t.groups;
  for (int64_t i = k_thread(); i < t.n * t.c * t.h * t.w; i += k_threads()) {
    int64_t x = i % t.w, y = i / t.w % t.h, c = i / (t.w * t.h) % t.c,
            image = i / (t.w * t.h * t.c);
    C sum = 0;
    for (int64_t o = c / cg * og; o < (c / cg + 1) * og; o++) {
      const S *g = (const S *)t.in + (image * t.oc + o) * t.oh * t.ow;
      const S *w = (const S *)t.weight + (o * cg + c % cg) * t.kh * t.kw;
      for (int64_t ky = 0; ky < t.kh; ky++) {
        int64_t oy = y + t.ph - ky * t.dh;
        if (oy < 0 || oy % t.sh || oy / t.sh >= t.oh) continue;
        for (int64_t kx = 0; kx < t.kw; kx++) {
          int64_t ox = x + t.pw - kx * t.dw;
          if (ox < 0 || ox % t.sw || ox / t.sw >= t.ow) continue;
          sum += k_get(g[oy / t.sh * t.ow + ox / t.sw]) * k_get(w[ky * t.kw + kx]);
        }
      }
    }
    k_put((S *)t.out + i, sum);
  }
}
K_FLOATS(conv_input, k_window)

// One block per element of the weight's gradient. In: gradient of the result; bias: the images.
template <typename S>
static __device__ __forceinline__ void conv_weight_body(const k_window &t) {
  typedef typename k_type<S>::number C;
  int64_t cg = t.c / t.groups, og = t.oc / t.groups, each = t.oh * t.ow;
  for (int64_t i = blockIdx.x; i < t.oc * cg * t.kh * t.kw; i += gridDim.x) {
    int64_t kx = i % t.kw, ky = i / t.kw % t.kh, c = i / (t.kw * t.kh) % cg;
    int64_t o = i / (t.kw * t.kh * cg), channel = o / og * cg + c;
    C sum = 0;
    for (int64_t e = threadIdx.x; e < t.n * each; e += blockDim.x) {
      int64_t image = e / each, at = e % each;
      int64_t y = at / t.ow * t.sh - t.ph + ky * t.dh, x = at % t.ow * t.sw - t.pw + kx * t.dw;
      if (y < 0 || y >= t.h || x < 0 || x >= t.w) continue;
      sum += k_get(((const S *)t.in)[(image * t.oc + o) * each + at]) *
             k_get(((const S *)t.bias)[((image * t.c + channel) * t.h + y) * t.w + x]);
    }
    sum = k_join(sum, blockDim.x, k_add());
    if (threadIdx.x == 0) k_put((S *)t.out + i, sum);
  }
}
K_FLOATS(conv_weight, k_window)

// Adds each channel's bias; four elements per thread.
template <typename S>
static __device__ __forceinline__ void bias_body(const k_window &t) {
  struct alignas(4 * sizeof(S)) four {
    S at[4];
  };
  int64_t plane = t.oh * t.ow, n = t.planes * plane;
  bool even = plane % 4 == 0 && (uintptr_t)t.out % sizeof(four) == 0;
  for (int64_t i = k_thread() * 4; i < n; i += k_threads() * 4) {
    int64_t o = n < INT32_MAX ? (uint32_t)i / (uint32_t)plane % (uint32_t)t.oc : i / plane % t.oc;
    if (even) {
      four *at = (four *)((S *)t.out + i), v = *at;
      for (int k = 0; k < 4; k++) k_put(&v.at[k], k_get(v.at[k]) + k_get(((const S *)t.bias)[o]));
      *at = v;
      continue;
    }
    for (int64_t k = i; k < i + 4 && k < n; k++) {
      S *at = (S *)t.out + k;
      k_put(at, k_get(*at) + k_get(((const S *)t.bias)[k / plane % t.oc]));
    }
  }
}
K_FLOATS(bias, k_window)

// The same for channels_last; 16 bytes per thread.
template <typename S>
static __device__ __forceinline__ void bias_last_body(const k_window &t) {
  enum { N = 16 / sizeof(S) };
  int64_t n = t.planes * t.oh * t.ow;
  bool even = t.oc % N == 0 && ((uintptr_t)t.out | (uintptr_t)t.bias) % 16 == 0;
  for (int64_t i = k_thread() * N; i < n; i += k_threads() * N) {
    int64_t o = i - k_quotient(i, t.oc) * t.oc;
    if (even) {
      k_vector<S, N> *at = (k_vector<S, N> *)((S *)t.out + i), v = *at;
      k_vector<S, N> b = *(const k_vector<S, N> *)((const S *)t.bias + o);
#pragma unroll
      for (int k = 0; k < N; k++) k_put(&v.v[k], k_get(v.v[k]) + k_get(b.v[k]));
      *at = v;
      continue;
    }
    for (int64_t k = i; k < i + N && k < n; k++) {
      S *at = (S *)t.out + k;
      k_put(at, k_get(*at) + k_get(((const S *)t.bias)[k % t.oc]));
    }
  }
}
K_FLOATS(bias_last, k_window)
