// SPDX-License-Identifier: Apache-2.0
// Convolution of float images and volumes with few output pixels and many channels, where reading
// the weights dominates: each weight is read once, without packing. Also for channels_last
// operands, which then need no transposition.
//
// The input of each output pixel is unfolded into a row in the order of the weights ("views").
// Results are the product of views and weights; the weight gradient is the product of the output
// gradient and the views. The input gradient is a product with the weights, whose rows are then
// added to the input positions they came from. Images and weights may be channels_last; for 1x1
// kernels the images are the views.
//
// The products use the thread pool and depend on sizes only. An element of the input gradient is
// summed by the thread that owns its channel, in the order of output pixels.
#include "cpu/conv/conv.h"
#include "cpu/conv/conv_indirect.h"
#include "cpu/conv/conv_limits.h"
#include "cpu/gemm/gemm.h"
#include "cpu/threads/threads.h"
#include "operands.h"

#include <stdlib.h>

// An image array: strides of images, planes, rows, columns and channels.
typedef struct image {
  float *at;
  int64_t next, plane, row, column, channel;
} image;
// A tap inside the image: its offset in the image without the channel, and in a row of the views.
typedef struct tap {
  int64_t at, term;
} tap;
typedef struct few {
  const conv *t;
  image source, result;
  int64_t pixel_count, channel_term, tap_term;  // output pixels; strides in a row of the views
  bool source_is_views;                         // the source is its views
  int64_t *starts;                              // index in `taps` per pixel, and the end
  tap *taps;
  float *views, *lines;  // lines: the result as a matrix, if its layout is not one
} few;

static bool is_supported(const px_operand *o) {
  return o->dtype == PX_FLOAT32 && !o->immediate &&
         (px__operand_row_major(o) || px__operand_channels_last(o));
}
static image image_of(const px_operand *o, int64_t c, int64_t d, int64_t h, int64_t w) {
  int64_t all = d * h * w;
  if (px__operand_row_major(o)) return (image){o->data, c * all, h * w, w, 1, all};
  return (image){o->data, c * all, h * w * c, w * c, c, 1};
}

// ---- taps of output pixels

// Taps of pixel (y, x) in the source plane at `base`, for kernel depth k.
static tap *list_plane(const few *f, int64_t base, int64_t k, int64_t y, int64_t x, tap *to) {
  const conv *t = f->t;
  for (int64_t i = 0; i < t->kh; i++)
    for (int64_t j = 0; j < t->kw; j++) {
      int64_t row = y * t->sh - t->ph + i * t->dh, column = x * t->sw - t->pw + j * t->dw;
      if (row < 0 || row >= t->h || column < 0 || column >= t->w) continue;
      *to++ = (tap){base + row * f->source.row + column * f->source.column,
                    ((k * t->kh + i) * t->kw + j) * f->tap_term};
    }
  return to;
}
// Taps of output pixel `at` of the image at `base`.
static tap *list_pixel(const few *f, int64_t base, int64_t at, tap *to) {
  const conv *t = f->t;
  int64_t z = at / t->p, y = at % t->p / t->ow, x = at % t->ow;
  for (int64_t k = 0; k < t->kd; k++) {
    int64_t depth = z * t->sd - t->pd + k * t->dd;
    if (depth >= 0 && depth < t->d) to = list_plane(f, base + depth * f->source.plane, k, y, x, to);
  }
  return to;
}
static bool list_taps(few *f) {
  const conv *t = f->t;
  size_t most = (size_t)(f->pixel_count * t->kernel_taps);
  f->starts = malloc((size_t)(f->pixel_count + 1) * sizeof *f->starts + most * sizeof *f->taps);
  if (!f->starts) return false;
  f->taps = (tap *)(f->starts + f->pixel_count + 1);
  tap *to = f->taps;
  for (int64_t p = 0; p < f->pixel_count; p++) {
    f->starts[p] = to - f->taps;
    to = list_pixel(f, p / t->out_pixels * f->source.next, p % t->out_pixels, to);
  }
  f->starts[f->pixel_count] = to - f->taps;
  return true;
}

// ---- views

// Fills the views of output pixels [begin, end).
static void fill_views(void *ctx, int64_t begin, int64_t end) {
  const few *f = ctx;
  const conv *t = f->t;
  bool runs = f->source.channel == 1 && f->channel_term == 1;
  for (int64_t p = begin, work = 0; p < end && !px__work_stopped(&work, t->k); p++) {
    const tap *taps = f->taps + f->starts[p];
    int64_t count = f->starts[p + 1] - f->starts[p];
    float *to = f->views + p * t->k;
    if (count < t->kernel_taps) memset(to, 0, (size_t)t->k * sizeof *to);
    for (int64_t j = 0; runs && j < count; j++)
      memcpy(to + taps[j].term, f->source.at + taps[j].at, (size_t)t->c * sizeof *to);
    const float *from = f->source.at;
    for (int64_t c = 0; !runs && c < t->c; c++, to += f->channel_term, from += f->source.channel)
      for (int64_t j = 0; j < count; j++) to[taps[j].term] = from[taps[j].at];
  }
}
// Adds the views of channels [begin, end) to their input positions.
static void add_views(void *ctx, int64_t begin, int64_t end) {
  const few *f = ctx;
  bool runs = f->source.channel == 1 && f->channel_term == 1;
  int64_t apart = f->source.channel, step = f->channel_term;
  for (int64_t p = 0, work = 0; p < f->pixel_count && !px__work_stopped(&work, f->t->k); p++) {
    const tap *taps = f->taps + f->starts[p];
    int64_t count = f->starts[p + 1] - f->starts[p];
    const float *row = f->views + p * f->t->k;
    for (int64_t j = 0; runs && j < count; j++) {
      float *restrict to = f->source.at + taps[j].at;
      const float *restrict from = row + taps[j].term;
      for (int64_t c = begin; c < end; c++) to[c] += from[c];
    }
    for (int64_t c = begin; !runs && c < end; c++) {
      float *to = f->source.at + c * apart;
      for (int64_t j = 0; j < count; j++) to[taps[j].at] += row[c * step + taps[j].term];
    }
  }
}

// ---- results as a matrix

// True if the channels of the result are contiguous.
static bool by_channels(const few *f) { return f->result.channel == 1; }
static bool is_matrix(const few *f) { return by_channels(f) || f->t->n == 1; }
// Copies between the result and `lines`, one line per channel.
static void copy_lines(const few *f, bool out) {
  const conv *t = f->t;
  for (int64_t i = 0, work = 0; i < t->n && !px__work_stopped(&work, t->oc * t->out_pixels); i++)
    for (int64_t o = 0; o < t->oc; o++) {
      float *in_result = f->result.at + i * f->result.next + o * t->out_pixels;
      float *line = f->lines + o * f->pixel_count + i * t->out_pixels;
      memcpy(out ? in_result : line, out ? line : in_result, (size_t)t->out_pixels * sizeof *line);
    }
}
static float *matrix_of(const few *f) { return is_matrix(f) ? f->result.at : f->lines; }
static int64_t pixel_step(const few *f) { return by_channels(f) ? f->t->oc : 1; }
static int64_t channel_step(const few *f) { return by_channels(f) ? 1 : f->pixel_count; }

// ---- the three products

static bool to_results(const few *f) {
  const conv *t = f->t;
  px__gemm g = {.m = f->pixel_count,
                .n = t->oc,
                .k = t->k,
                .a = f->views,
                .ar = t->k,
                .ac = 1,
                .b = t->weight,
                .br = 1,
                .bc = t->k,
                .c = matrix_of(f),
                .cr = pixel_step(f),
                .cc = channel_step(f),
                .s = t->bias,
                .sc = 1,
                .alpha = 1,
                .beta = t->bias ? 1 : 0};
  if (!px__gemm_f32(&g, true)) return false;
  if (!is_matrix(f)) copy_lines(f, true);
  return true;
}
static bool to_weight(const few *f) {
  const conv *t = f->t;
  px__gemm g = {.m = t->oc,
                .n = t->k,
                .k = f->pixel_count,
                .a = matrix_of(f),
                .ar = channel_step(f),
                .ac = pixel_step(f),
                .b = f->views,
                .br = t->k,
                .bc = 1,
                .c = t->out,
                .cr = t->k,
                .cc = 1,
                .alpha = 1};
  return px__gemm_f32(&g, true);
}
static bool to_input(const few *f) {
  const conv *t = f->t;
  px__gemm g = {.m = f->pixel_count,
                .n = t->k,
                .k = t->oc,
                .a = matrix_of(f),
                .ar = pixel_step(f),
                .ac = channel_step(f),
                .b = t->weight,
                .br = t->k,
                .bc = 1,
                .c = f->views,
                .cr = t->k,
                .cc = 1,
                .alpha = 1};
  if (!px__gemm_f32(&g, true)) return false;
  if (f->source_is_views) return true;
  if (!px__cpu_clear(f->source.at, (size_t)(t->n * f->source.next) * sizeof(float))) return true;
  px__cpu_parallel(t->c, FEW_GRAIN / (f->pixel_count * t->kernel_taps) + 1, add_views, (void *)f);
  return true;
}

static bool run_product(few *f) {
  const conv *t = f->t;
  size_t views = f->source_is_views ? 0 : (size_t)(f->pixel_count * t->k);
  size_t lines = is_matrix(f) ? 0 : (size_t)(f->pixel_count * t->oc);
  float *scratch = malloc((views + lines) * sizeof *scratch + 1);
  bool done = scratch && (f->source_is_views || list_taps(f));
  f->views = f->source_is_views ? f->source.at : scratch;
  f->lines = scratch + views;
  if (done && t->mode != 'f' && lines) copy_lines(f, false);
  if (done && t->mode != 'i' && !f->source_is_views)
    px__cpu_parallel(f->pixel_count, FEW_GRAIN / t->k + 1, fill_views, f);
  if (done) done = t->mode == 'f' ? to_results(f) : t->mode == 'w' ? to_weight(f) : to_input(f);
  free(f->starts);
  free(scratch);
  return done;
}

// ---- the method

static bool one_to_one(const conv *t) {
  bool dense = t->sd == 1 && t->sh == 1 && t->sw == 1;
  bool inside = t->pd == 0 && t->ph == 0 && t->pw == 0 && t->out_pixels == t->d * t->h * t->w;
  return t->kernel_taps == 1 && dense && inside;
}
static bool has_bias(const conv *t) {
  return t->operands.bias && px__operand_present(t->operands.bias);
}
static bool accepts(const conv *t) {
  const conv_operands *o = &t->operands;
  const px_operand *bias = o->bias;
  if (has_bias(t) && (bias->dtype != PX_FLOAT32 || bias->immediate || !px__operand_row_major(bias)))
    return false;
  return t->groups == 1 && is_supported(o->in) && is_supported(o->weight) && is_supported(o->out) &&
         px_operand_numel(o->in) && px_operand_numel(o->weight);
}
static bool all_channels_last(const conv_operands *o) {
  return px__operand_channels_last(o->in) && px__operand_channels_last(o->weight) &&
         px__operand_channels_last(o->out);
}
// True if reading weights for few pixels dominates, or transposition is avoided. A single image
// that fills the tiles of conv_indirect.h directly needs none of this.
static bool is_faster(const conv *t) {
  int64_t pixel_count = t->n * t->out_pixels,
          each = t->kernel_taps == 1 ? FEW_MIN_CHANNELS_PER_PIXEL : 1;
  if (t->k < FEW_MIN_TERMS) return false;
  bool pixels = px__conv_fills_lanes(t->mode == 'i' ? t->c : t->oc);
  if (all_channels_last(&t->operands) && t->c >= FEW_MIN_CHANNELS_LAST)
    return pixel_count * t->k <= FEW_MAX_VIEW_ELEMENTS &&
           (!pixels || pixel_count <= FEW_MAX_PIXELS_LAST);
  bool tiled = t->mode == 'f' && t->n == 1 && one_to_one(t) && t->p >= TILED_MIN_IMAGE_PIXELS;
  if (tiled && px__conv_has_tiles()) return false;
  return pixel_count <= FEW_MAX_PIXELS && pixel_count * each <= t->oc;
}
static int cost(const conv *t) { return is_faster(t) ? FEW_COST : EXCLUDED; }
static bool run(conv *t) {
  const conv_operands *o = &t->operands;
  bool last = !px__operand_row_major(o->weight);
  few f = {.t = t,
           .source = image_of(o->in, t->c, t->d, t->h, t->w),
           .result = image_of(o->out, t->oc, t->od, t->oh, t->ow),
           .pixel_count = t->n * t->out_pixels,
           .channel_term = last ? 1 : t->kernel_taps,
           .tap_term = last ? t->c : 1};
  f.source_is_views = f.source.channel == 1 && one_to_one(t);
  t->bias = has_bias(t) ? o->bias->data : NULL;
  t->weight = t->out = o->weight->data;
  t->failed = !run_product(&f);
  return true;
}
const conv_method px__method_few_pixels = {accepts, cost, run, .reads_stored = true};
