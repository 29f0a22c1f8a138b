// SPDX-License-Identifier: Apache-2.0
// Convolution of small float images, tap by tap, without building a column matrix.
//
// Forward and input gradient: two vectors of images are interleaved (image innermost), and every
// result pixel is a sum over the taps inside the image, a precomputed list of (source offset,
// weight offset). Weight gradient: the lanes are output channels, and each kernel tap has a list
// over output pixels.
#include "cpu/conv/conv.h"
#include "cpu/conv/conv_limits.h"
#include "cpu/gemm/gemm_tiles.h"
#include "cpu/vector/simd.h"

#include <stdlib.h>

enum {
  ROWS = 6,       // results per tile
  LANES = 2 * VF  // images, or output channels
};

typedef struct tap {
  int32_t a, b;  // offsets of the broadcast element and of the vector
} tap;
typedef struct conv_taps {
  int64_t lists;
  int64_t *starts;  // lists + 1
  tap *taps;
} conv_taps;

// acc += a[row * step + tap.a] * b[tap.b ...] over the taps, for a constant number of rows.
static inline __attribute__((always_inline)) void sum_rows(const int rows, const tap *taps,
                                                           int64_t count, const float *a,
                                                           int64_t step, const float *b,
                                                           vf acc[ROWS][2]) {
  vf c[ROWS][2];
  for (int i = 0; i < rows; i++) c[i][0] = acc[i][0], c[i][1] = acc[i][1];
  for (int64_t t = 0; t < count; t++) {
    const float *x = a + taps[t].a, *y = b + taps[t].b;
    vf y0 = vf_load(y), y1 = vf_load(y + VF);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
      vf v = vf_set(x[i * step]);
      c[i][0] = vf_fma(v, y0, c[i][0]);
      c[i][1] = vf_fma(v, y1, c[i][1]);
    }
  }
  for (int i = 0; i < rows; i++) acc[i][0] = c[i][0], acc[i][1] = c[i][1];
}
static __attribute__((noinline)) void sum_taps(int rows, const tap *taps, int64_t count,
                                               const float *a, int64_t step, const float *b,
                                               vf acc[ROWS][2]) {
  switch (rows) {
    case 1:
      sum_rows(1, taps, count, a, step, b, acc);
      break;
    case 2:
      sum_rows(2, taps, count, a, step, b, acc);
      break;
    case 3:
      sum_rows(3, taps, count, a, step, b, acc);
      break;
    case 4:
      sum_rows(4, taps, count, a, step, b, acc);
      break;
    case 5:
      sum_rows(5, taps, count, a, step, b, acc);
      break;
    default:
      sum_rows(ROWS, taps, count, a, step, b, acc);
  }
}

// ---- the lists

// The output coordinate that reads input coordinate `at` through tap k; -1 if none.
static int64_t output_reading(int64_t at, int64_t k, int64_t pad, int64_t stride, int64_t dilation,
                              int64_t size) {
  int64_t from = at + pad - k * dilation;
  return from < 0 || from % stride || from / stride >= size ? -1 : from / stride;
}
// Taps of result pixel (y, x). Forward reads the image, the input gradient the output gradient.
static tap *list_pixel(const conv *t, int64_t y, int64_t x, tap *to) {
  bool back = t->mode == 'i';
  int64_t h = back ? t->oh : t->h, w = back ? t->ow : t->w, kernel_taps = t->kh * t->kw;
  int64_t channels = back ? t->og : t->cg, step = back ? t->k : kernel_taps;
  for (int64_t k = 0; k < kernel_taps; k++) {
    int64_t ky = k / t->kw, kx = k % t->kw;
    int64_t sy =
        back ? output_reading(y, ky, t->ph, t->sh, t->dh, h) : y * t->sh - t->ph + ky * t->dh;
    int64_t sx =
        back ? output_reading(x, kx, t->pw, t->sw, t->dw, w) : x * t->sw - t->pw + kx * t->dw;
    if (sy < 0 || sy >= h || sx < 0 || sx >= w) continue;
    for (int64_t c = 0; c < channels; c++)
      *to++ = (tap){(int32_t)(c * step + k), (int32_t)(((c * h + sy) * w + sx) * LANES)};
  }
  return to;
}
static int64_t padded(int64_t channels) { return px__ceil_div(channels, LANES) * LANES; }
// Taps of kernel tap k for the weight gradient.
static tap *list_kernel_tap(const conv *t, int64_t k, tap *to) {
  for (int64_t p = 0; p < t->p; p++) {
    int64_t y = p / t->ow * t->sh - t->ph + k / t->kw * t->dh;
    int64_t x = p % t->ow * t->sw - t->pw + k % t->kw * t->dw;
    if (y < 0 || y >= t->h || x < 0 || x >= t->w) continue;
    *to++ = (tap){(int32_t)(y * t->w + x), (int32_t)(p * padded(t->og))};
  }
  return to;
}

// Number of tap lists: one per pixel of the result, or per kernel tap of the weight gradient.
static int64_t lists_of(const conv *t) {
  return t->mode == 'w' ? t->kh * t->kw : t->mode == 'i' ? t->h * t->w : t->p;
}
// Max taps of a list.
static int64_t list_size(const conv *t) {
  return t->mode == 'w' ? t->p : t->kh * t->kw * (t->mode == 'i' ? t->og : t->cg);
}
// Lists the taps; returns false if out of memory.
static bool list_taps(conv *t) {
  int64_t lists = lists_of(t), width = t->mode == 'i' ? t->w : t->ow;
  char *memory = malloc(sizeof(conv_taps) + (size_t)(lists + 1) * sizeof(int64_t) +
                        (size_t)(lists * list_size(t)) * sizeof(tap));
  if (!memory) return false;
  t->taps = (conv_taps *)memory;
  t->taps->lists = lists;
  t->taps->starts = (int64_t *)(memory + sizeof(conv_taps));
  t->taps->taps = (tap *)(t->taps->starts + lists + 1);
  tap *to = t->taps->taps;
  for (int64_t i = 0; i < lists; i++) {
    t->taps->starts[i] = to - t->taps->taps;
    to = t->mode == 'w' ? list_kernel_tap(t, i, to) : list_pixel(t, i / width, i % width, to);
  }
  t->taps->starts[lists] = to - t->taps->taps;
  return true;
}

// ---- forward, and the gradient of the input

// One group: elements of a source image, and channels and pixels of the result.
typedef struct shape {
  const float *source, *weight, *bias;
  float *result;
  int64_t source_each, source_all, channels, pixels, result_all, step;
} shape;
static shape shape_of(const conv *t, int64_t group) {
  int64_t kernel_taps = t->kh * t->kw;
  const float *weight = (const float *)t->weight + group * t->og * t->k;
  if (t->mode == 'i')
    return (shape){.source = (const float *)t->grad + group * t->og * t->p,
                   .weight = weight,
                   .result = (float *)t->out + group * t->cg * t->h * t->w,
                   .source_each = t->og * t->p,
                   .source_all = t->oc * t->p,
                   .channels = t->cg,
                   .pixels = t->h * t->w,
                   .result_all = t->c * t->h * t->w,
                   .step = kernel_taps};
  return (shape){.source = (const float *)t->in + group * t->cg * t->h * t->w,
                 .weight = weight,
                 .bias = t->bias ? (const float *)t->bias + group * t->og : NULL,
                 .result = (float *)t->out + group * t->og * t->p,
                 .source_each = t->cg * t->h * t->w,
                 .source_all = t->c * t->h * t->w,
                 .channels = t->og,
                 .pixels = t->p,
                 .result_all = t->oc * t->p,
                 .step = t->k};
}

// ROWS result channels at all pixels, for the images in `x`. Staged with the image innermost, then
// written image by image, since stores one image apart would share cache sets.
static void channels_of(const conv *t, const shape *s, int64_t channel, int rows, const float *x,
                        int64_t first, int64_t images, float *stage) {
  const conv_taps *l = t->taps;
  for (int64_t p = 0; p < s->pixels; p++) {
    vf acc[ROWS][2];
    for (int i = 0; i < rows; i++)
      acc[i][0] = acc[i][1] = vf_set(s->bias ? s->bias[channel + i] : 0);
    sum_taps(rows, l->taps + l->starts[p], l->starts[p + 1] - l->starts[p],
             s->weight + channel * s->step, s->step, x, acc);
    for (int i = 0; i < rows; i++) {
      float *to = stage + (i * s->pixels + p) * LANES;
      vf_store(to, acc[i][0]);
      vf_store(to + VF, acc[i][1]);
    }
  }
  int64_t count = rows * s->pixels;
  for (int64_t g = 0; g < images; g++) {
    float *to = s->result + (first + g) * s->result_all + channel * s->pixels;
    for (int64_t e = 0; e < count; e++) to[e] = stage[e * LANES + g];
  }
}
static void run_units(void *ctx, int64_t begin, int64_t end) {
  conv *t = ctx;
  shape any = shape_of(t, 0);
  size_t numbers = (size_t)((any.source_each + ROWS * any.pixels) * LANES);
  float *x = malloc(numbers * sizeof(float) + 1);
  if (!x) {
    __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
    return;
  }
  float *stage = x + any.source_each * LANES;
  for (int64_t unit = begin; unit < end; unit++) {
    shape s = shape_of(t, unit % t->groups);
    int64_t first = unit / t->groups * LANES;
    int64_t images = t->n - first < LANES ? t->n - first : LANES;
    const float *from = s.source + first * s.source_all;
    if (images < LANES) memset(x, 0, (size_t)(s.source_each * LANES) * sizeof *x);
    for (int64_t g = 0; g < images; g++)
      for (int64_t e = 0; e < s.source_each; e++) x[e * LANES + g] = from[g * s.source_all + e];
    for (int64_t c = 0; c < s.channels; c += ROWS)
      channels_of(t, &s, c, s.channels - c < ROWS ? (int)(s.channels - c) : ROWS, x, first, images,
                  stage);
  }
  free(x);
}

// ---- the gradient of the weight

// The output gradient of a part's images, one group, with the output channels innermost.
static void transpose_gradient(const conv *t, int64_t group, int64_t first, int64_t images,
                               float *to) {
  int64_t wide = padded(t->og);
  memset(to, 0, (size_t)(images * t->p * wide) * sizeof *to);
  for (int64_t i = 0; i < images; i++) {
    const float *g = (const float *)t->grad + ((first + i) * t->oc + group * t->og) * t->p;
    for (int64_t o = 0; o < t->og; o++)
      for (int64_t p = 0; p < t->p; p++) to[(i * t->p + p) * wide + o] = g[o * t->p + p];
  }
}
// Sums of one kernel tap for ROWS input channels and LANES output channels.
static void weight_tile(const conv *t, int64_t kernel_tap, int64_t channel, int rows, int64_t out,
                        const float *image, int64_t images, const float *grad, float *sums) {
  const conv_taps *l = t->taps;
  int64_t from = l->starts[kernel_tap], count = l->starts[kernel_tap + 1] - from,
          wide = padded(t->og);
  vf acc[ROWS][2];
  for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = vf_set(0);
  for (int64_t i = 0; i < images; i++)
    sum_taps(rows, l->taps + from, count, image + (i * t->c + channel) * t->h * t->w, t->h * t->w,
             grad + i * t->p * wide + out, acc);
  int64_t cols = t->og - out < LANES ? t->og - out : LANES;
  for (int i = 0; i < rows; i++) {
    float line[LANES];
    vf_store(line, acc[i][0]);
    vf_store(line + VF, acc[i][1]);
    float *to = sums + out * t->k + (channel + i) * t->kh * t->kw + kernel_tap;
    for (int64_t j = 0; j < cols; j++) to[j * t->k] = line[j];
  }
}
static void sum_parts(void *ctx, int64_t begin, int64_t end) {
  conv *t = ctx;
  int64_t most = t->n / t->parts + 1;
  float *grad = malloc((size_t)(most * t->p * padded(t->og)) * sizeof(float) + 1);
  if (!grad) __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
  for (int64_t part = begin; grad && part < end; part++)
    for (int64_t group = 0; group < t->groups; group++) {
      int64_t first = t->n * part / t->parts, images = t->n * (part + 1) / t->parts - first;
      const float *image = (const float *)t->in + (first * t->c + group * t->cg) * t->h * t->w;
      float *sums = (float *)t->sums + (part * t->groups + group) * t->k * t->og;
      transpose_gradient(t, group, first, images, grad);
      for (int64_t kernel_tap = 0; kernel_tap < t->kh * t->kw; kernel_tap++)
        for (int64_t c = 0; c < t->cg; c += ROWS)
          for (int64_t o = 0; o < t->og; o += LANES)
            weight_tile(t, kernel_tap, c, t->cg - c < ROWS ? (int)(t->cg - c) : ROWS, o, image,
                        images, grad, sums);
    }
  free(grad);
}

// ---- the method

static bool accepts(const conv *t) {
  return !t->channels_last && t->dtype == PX_FLOAT32 && px__conv_is_flat(t) &&
         lists_of(t) * list_size(t) <= DIRECT_MAX_TAPS;
}
// True if this method is faster than a matrix product; for one channel that would be a vector
// product.
static bool is_faster(const conv *t) {
  int64_t images = px__conv_is_depthwise(t) ? LANES / 2 : LANES;
  int64_t pixels = t->mode == 'i' ? t->h * t->w : t->p;
  if (t->n < images || t->kernel_taps == 1) return false;
  if (pixels > DIRECT_MAX_PIXELS || t->p > DIRECT_MAX_PIXELS || t->h * t->w > 4 * DIRECT_MAX_PIXELS)
    return false;
  if (t->mode == 'w') return t->cg > 1 && t->cg <= DIRECT_MAX_WEIGHT_CHANNELS && t->og >= LANES / 4;
  return px__tiles_f32()->rows <= ROWS || pixels <= DIRECT_MAX_PIXELS_WITH_TILES;
}
static int cost(const conv *t) { return is_faster(t) ? DIRECT_COST : EXCLUDED; }
static bool run(conv *t) {
  if (!list_taps(t)) return false;
  if (t->mode == 'w') {
    t->parts = px__conv_parts(t, t->n);
    px__conv_sum_parts(t, t->parts == 1, t->parts, sum_parts);
  } else {
    px__conv_run_units(t, px__ceil_div(t->n, LANES) * t->groups, run_units);
  }
  free(t->taps);
  return true;
}
const conv_method px__method_direct = {accepts, cost, run, .reads_stored = false};
