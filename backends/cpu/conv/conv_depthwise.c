// SPDX-License-Identifier: Apache-2.0
// Depthwise convolutions of float images with square kernels of 3, 5 or 7 taps per side and stride
// 1: forward, and the input gradient, which uses the flipped kernel. conv_depthwise_planes.c
// handles other shapes and the weight gradient.
//
// A strip of one or two vectors of columns moves down the image. The result rows that read a source
// row stay in registers; each register set passes to the next row when its row is complete. A
// source vector is thus loaded once per kernel column, not per tap. A result is one chain of FMAs
// in the order of the weights.
//
// Requires vectors of 8 or more lanes; shorter ones are loaded for too few sums.
#include "cpu/conv/conv.h"
#include "cpu/conv/conv_limits.h"
#include "cpu/vector/simd_avx512.h"
#include "cpu/threads/threads.h"

#include <stdlib.h>

#if defined(__AVX2__)
enum { MAX_KERNEL = 7 };  // max taps per kernel side

// Rows [y0, y1) of a result plane; the source starts `top` rows and `left` columns before.
typedef struct depth_plane {
  const float *source, *weight;
  float *result, bias;
  int64_t height, width, columns;  // of the source; of the result
  int64_t top, left, y0, y1;
} depth_plane;

#include "cpu/conv/conv_depthwise_rows.h"
#define WIDE_NAMES
#include "cpu/conv/conv_depthwise_rows.h"
typedef void plane_function(const depth_plane *p);
static plane_function *function_of(int64_t size, int64_t columns) {
  static plane_function *const all[][2] = {
      {plane_3_vf, plane_3_wf}, {plane_5_vf, plane_5_wf}, {plane_7_vf, plane_7_wf}};
  return all[(size - 3) / 2][columns > VF && px_cpu_level_used() >= PX_CPU_AVX512];
}

// Shared by the planes of one convolution; each plane is cut into bands.
typedef struct depth {
  const conv *t;
  plane_function *run;
  const float *source, *weight;
  float *result;
  int64_t height, width, rows, columns, top, left, band, bands;
} depth;

static depth depth_of(const conv *t, const float *weight) {
  bool back = t->mode == 'i';
  depth d = {.t = t,
             .run = function_of(t->kh, back ? t->w : t->ow),
             .source = back ? t->grad : t->in,
             .weight = weight,
             .result = t->out,
             .height = back ? t->oh : t->h,
             .width = back ? t->ow : t->w,
             .rows = back ? t->h : t->oh,
             .columns = back ? t->w : t->ow,
             .top = back ? t->kh - 1 - t->ph : t->ph,
             .left = back ? t->kw - 1 - t->pw : t->pw};
  int64_t rows = DEPTHWISE_MIN_BAND_ELEMENTS / (d.columns + 1) + 1;
  d.band = rows < DEPTHWISE_MIN_BAND_ROWS ? DEPTHWISE_MIN_BAND_ROWS : rows;
  d.bands = px__ceil_div(d.rows, d.band);
  return d;
}
static void run_planes(void *ctx, int64_t begin, int64_t end) {
  const depth *d = ctx;
  int64_t work = 0;
  for (int64_t i = begin; i < end && !px__work_stopped(&work, d->band * d->columns); i++) {
    int64_t plane = i / d->bands, y0 = i % d->bands * d->band, channel = plane % d->t->c;
    depth_plane p = {.source = d->source + plane * d->height * d->width,
                     .weight = d->weight + channel * d->t->kernel_taps,
                     .result = d->result + plane * d->rows * d->columns,
                     .bias = d->t->bias ? ((const float *)d->t->bias)[channel] : 0,
                     .height = d->height,
                     .width = d->width,
                     .columns = d->columns,
                     .top = d->top,
                     .left = d->left,
                     .y0 = y0,
                     .y1 = y0 + d->band < d->rows ? y0 + d->band : d->rows};
    d->run(&p);
  }
}
static bool accepts(const conv *t) {
  int64_t columns = t->mode == 'i' ? t->w : t->ow;
  bool steps = t->sh == 1 && t->sw == 1 && t->dh == 1 && t->dw == 1;
  bool square = t->kh == t->kw && (t->kh == 5 || t->kh == 7 || (t->kh == 3 && columns >= VF));
  return t->mode != 'w' && !t->channels_last && t->dtype == PX_FLOAT32 &&
         px__conv_is_depthwise(t) && px__conv_is_flat(t) && steps && square && t->ph < t->kh &&
         t->pw < t->kw;
}
static int cost(const conv *t) {
  int64_t results = t->mode == 'i' ? t->h * t->w : t->p;
  return results >= DEPTHWISE_MIN_RESULTS ? DEPTHWISE_COST : EXCLUDED;
}
// The weights with each kernel flipped in both dimensions.
static float *flipped(const conv *t) {
  int64_t n = t->c * t->kernel_taps;
  float *to = malloc((size_t)n * sizeof *to + 1);
  for (int64_t i = 0; to && i < n; i++)
    to[i] = ((const float *)t->weight)[i / t->kernel_taps * t->kernel_taps + t->kernel_taps - 1 -
                                       i % t->kernel_taps];
  return to;
}
static bool run(conv *t) {
  float *weight = t->mode == 'i' ? flipped(t) : NULL;
  if (t->mode == 'i' && !weight) t->failed = true;
  depth d = depth_of(t, weight ? weight : t->weight);
  int64_t each = d.band * d.columns * t->kernel_taps;
  if (!t->failed)
    px__cpu_parallel(t->n * t->c * d.bands, DEPTHWISE_GRAIN / each + 1, run_planes, &d);
  free(weight);
  return true;
}
const conv_method px__method_depthwise = {accepts, cost, run, .reads_stored = false};
#else
static bool accepts(const conv *t) { return (void)t, false; }
const conv_method px__method_depthwise = {.accepts = accepts};
#endif
