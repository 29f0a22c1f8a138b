// SPDX-License-Identifier: Apache-2.0
// Convolution of float images and volumes of few positions and many channels, where the weights are
// most of what is read: each is read once, where it lies. And of such that lie channels_last, which
// need not be turned for it.
//
// What each position sees is laid out as a row of numbers in the order of the weights ("views", a
// row for each position). Results are products of the rows with the weights, the gradient of the
// weights is one of the results' gradient with the rows, and the gradient of the input is a product
// with the weights, of which each position's row is added to where its numbers came from. Images
// and weights may lie channels_last, so that of kernels of one place the images are such rows.
//
// The products share the threads, by sizes alone; a number of the input's gradient is summed by the
// thread that has its channel, in the order of positions.
#include "cpu/conv.h"
#include "cpu/conv_tiles.h"
#include "cpu/gemm.h"
#include "cpu/threads.h"
#include "operands.h"

#include <stdlib.h>

// Numbers that a thread lays or adds at least.
enum { GRAIN = 16 * 1024 };
// Positions at most where images are row-major, the channels of the result for each where a kernel
// has one place; and where all lies channels_last, numbers of the views at most and channels at
// least, and positions at most where the way of pixels (conv.c) is another.
enum { FEW_POSITIONS = 256, CHANNELS_EACH = 4, MOST_VIEWS = 2 << 20, LEAST_RUN = 16 };
enum { LAST_POSITIONS = 512 };
// Numbers that a position sees at least.
enum { LEAST_TERMS = 64 };

// Of images: how far apart the next image, plane, row, column and channel are.
typedef struct image {
  float *at;
  int64_t next, plane, row, column, channel;
} image;
// A place that a position sees: of the image, without the channel, and in a row of the views.
typedef struct seen {
  int64_t at, term;
} seen;
typedef struct few {
  const conv *t;
  image source, result;
  int64_t positions, channel_term, place_term;  // of all images; distances in a row of the views
  bool same;                                    // the source is its views
  int64_t *starts;                              // of each position in `seen`, and the end
  seen *seen;
  float *views, *lines;  // lines: the result as a matrix, if it does not lie as one
} few;

static bool lies(const px_operand *o) {
  return o->dtype == PX_FLOAT32 && !o->immediate &&
         (px__operand_row_major(o) || px__operand_last(o));
}
static image image_of(const px_operand *o, int64_t c, int64_t d, int64_t h, int64_t w) {
  int64_t all = d * h * w;
  if (px__operand_row_major(o)) return (image){o->data, c * all, h * w, w, 1, all};
  return (image){o->data, c * all, h * w * c, w * c, c, 1};
}

// ---- which places positions see

// The places of position (y, x), of a plane of the source that begins at `base` and is the k-th of
// the kernel.
static seen *list_plane(const few *f, int64_t base, int64_t k, int64_t y, int64_t x, seen *to) {
  const conv *t = f->t;
  for (int64_t i = 0; i < t->kh; i++)
    for (int64_t j = 0; j < t->kw; j++) {
      int64_t row = y * t->sh - t->ph + i * t->dh, column = x * t->sw - t->pw + j * t->dw;
      if (row < 0 || row >= t->h || column < 0 || column >= t->w) continue;
      *to++ = (seen){base + row * f->source.row + column * f->source.column,
                     ((k * t->kh + i) * t->kw + j) * f->place_term};
    }
  return to;
}
// Of the position `at` of an image that begins at `base`.
static seen *list_position(const few *f, int64_t base, int64_t at, seen *to) {
  const conv *t = f->t;
  int64_t z = at / t->p, y = at % t->p / t->ow, x = at % t->ow;
  for (int64_t k = 0; k < t->kd; k++) {
    int64_t depth = z * t->sd - t->pd + k * t->dd;
    if (depth >= 0 && depth < t->d) to = list_plane(f, base + depth * f->source.plane, k, y, x, to);
  }
  return to;
}
static bool list_places(few *f) {
  const conv *t = f->t;
  size_t most = (size_t)(f->positions * t->places);
  f->starts = malloc((size_t)(f->positions + 1) * sizeof *f->starts + most * sizeof *f->seen);
  if (!f->starts) return false;
  f->seen = (seen *)(f->starts + f->positions + 1);
  seen *to = f->seen;
  for (int64_t p = 0; p < f->positions; p++) {
    f->starts[p] = to - f->seen;
    to = list_position(f, p / t->seen * f->source.next, p % t->seen, to);
  }
  f->starts[f->positions] = to - f->seen;
  return true;
}

// ---- views

// The views of positions [begin, end).
static void lay_views(void *ctx, int64_t begin, int64_t end) {
  const few *f = ctx;
  const conv *t = f->t;
  bool runs = f->source.channel == 1 && f->channel_term == 1;
  for (int64_t p = begin, work = 0; p < end && !px__work_stopped(&work, t->k); p++) {
    const seen *places = f->seen + f->starts[p];
    int64_t count = f->starts[p + 1] - f->starts[p];
    float *to = f->views + p * t->k;
    if (count < t->places) memset(to, 0, (size_t)t->k * sizeof *to);
    for (int64_t j = 0; runs && j < count; j++)
      memcpy(to + places[j].term, f->source.at + places[j].at, (size_t)t->c * sizeof *to);
    const float *from = f->source.at;
    for (int64_t c = 0; !runs && c < t->c; c++, to += f->channel_term, from += f->source.channel)
      for (int64_t j = 0; j < count; j++) to[places[j].term] = from[places[j].at];
  }
}
// Adds the views of channels [begin, end) to where they were seen.
static void add_views(void *ctx, int64_t begin, int64_t end) {
  const few *f = ctx;
  bool runs = f->source.channel == 1 && f->channel_term == 1;
  int64_t apart = f->source.channel, step = f->channel_term;
  for (int64_t p = 0, work = 0; p < f->positions && !px__work_stopped(&work, f->t->k); p++) {
    const seen *places = f->seen + f->starts[p];
    int64_t count = f->starts[p + 1] - f->starts[p];
    const float *row = f->views + p * f->t->k;
    for (int64_t j = 0; runs && j < count; j++) {
      float *restrict to = f->source.at + places[j].at;
      const float *restrict from = row + places[j].term;
      for (int64_t c = begin; c < end; c++) to[c] += from[c];
    }
    for (int64_t c = begin; !runs && c < end; c++) {
      float *to = f->source.at + c * apart;
      for (int64_t j = 0; j < count; j++) to[places[j].at] += row[c * step + places[j].term];
    }
  }
}

// ---- results as a matrix

// Whether positions, or channels, of the result follow one another without gaps.
static bool by_channels(const few *f) { return f->result.channel == 1; }
static bool is_matrix(const few *f) { return by_channels(f) || f->t->n == 1; }
// Copies between the result and its lines, a line for each channel.
static void copy_lines(const few *f, bool out) {
  const conv *t = f->t;
  for (int64_t i = 0, work = 0; i < t->n && !px__work_stopped(&work, t->oc * t->seen); i++)
    for (int64_t o = 0; o < t->oc; o++) {
      float *there = f->result.at + i * f->result.next + o * t->seen;
      float *here = f->lines + o * f->positions + i * t->seen;
      memcpy(out ? there : here, out ? here : there, (size_t)t->seen * sizeof *here);
    }
}
static float *matrix_of(const few *f) { return is_matrix(f) ? f->result.at : f->lines; }
static int64_t position_step(const few *f) { return by_channels(f) ? f->t->oc : 1; }
static int64_t channel_step(const few *f) { return by_channels(f) ? 1 : f->positions; }

// ---- the three products

static bool to_results(const few *f) {
  const conv *t = f->t;
  px__gemm g = {.m = f->positions,
                .n = t->oc,
                .k = t->k,
                .a = f->views,
                .ar = t->k,
                .ac = 1,
                .b = t->weight,
                .br = 1,
                .bc = t->k,
                .c = matrix_of(f),
                .cr = position_step(f),
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
                .k = f->positions,
                .a = matrix_of(f),
                .ar = channel_step(f),
                .ac = position_step(f),
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
  px__gemm g = {.m = f->positions,
                .n = t->k,
                .k = t->oc,
                .a = matrix_of(f),
                .ar = position_step(f),
                .ac = channel_step(f),
                .b = t->weight,
                .br = t->k,
                .bc = 1,
                .c = f->views,
                .cr = t->k,
                .cc = 1,
                .alpha = 1};
  if (!px__gemm_f32(&g, true)) return false;
  if (f->same) return true;
  if (!px__cpu_clear(f->source.at, (size_t)(t->n * f->source.next) * sizeof(float))) return true;
  px__cpu_parallel(t->c, GRAIN / (f->positions * t->places) + 1, add_views, (void *)f);
  return true;
}

static bool run(few *f) {
  const conv *t = f->t;
  size_t views = f->same ? 0 : (size_t)(f->positions * t->k);
  size_t lines = is_matrix(f) ? 0 : (size_t)(f->positions * t->oc);
  float *room = malloc((views + lines) * sizeof *room + 1);
  bool done = room && (f->same || list_places(f));
  f->views = f->same ? f->source.at : room;
  f->lines = room + views;
  if (done && t->what != 'f' && lines) copy_lines(f, false);
  if (done && t->what != 'i' && !f->same)
    px__cpu_parallel(f->positions, GRAIN / t->k + 1, lay_views, f);
  if (done) done = t->what == 'f' ? to_results(f) : t->what == 'w' ? to_weight(f) : to_input(f);
  free(f->starts);
  free(room);
  return done;
}

// ---- which convolutions

static bool one_to_one(const conv *t) {
  bool dense = t->sd == 1 && t->sh == 1 && t->sw == 1;
  bool inside = t->pd == 0 && t->ph == 0 && t->pw == 0 && t->seen == t->d * t->h * t->w;
  return t->places == 1 && dense && inside;
}
// Where weights are read for few positions, or else nothing needs to be turned. One image that
// fills tiles as it lies (conv_tiles.h) needs none of this.
static bool pays(const conv *t, bool last) {
  int64_t positions = t->n * t->seen, each = t->places == 1 ? CHANNELS_EACH : 1;
  if (t->groups != 1 || t->k < LEAST_TERMS) return false;
  bool pixels = px__conv_fills_lanes(t->what == 'i' ? t->c : t->oc);
  if (last && t->c >= LEAST_RUN)
    return positions * t->k <= MOST_VIEWS && (!pixels || positions <= LAST_POSITIONS);
  bool tiled = t->what == 'f' && t->n == 1 && one_to_one(t) && t->p >= PX__CONV_ALONE;
  if (tiled && px__conv_has_tiles()) return false;
  return positions <= FEW_POSITIONS && positions * each <= t->oc;
}
static bool all_last(const px_operand *source, const px_operand *weight, const px_operand *result) {
  return px__operand_last(source) && px__operand_last(weight) && px__operand_last(result);
}

bool px__conv_few(conv *t, const px_operand *source, const px_operand *weight,
                  const px_operand *bias, const px_operand *result) {
  bool biased = bias && px__operand_given(bias);
  bool plain =
      !biased || (bias->dtype == PX_FLOAT32 && !bias->immediate && px__operand_row_major(bias));
  if (!lies(source) || !lies(weight) || !lies(result) || !plain) return false;
  if (!pays(t, all_last(source, weight, result)) || px__conv_winograd_pays(t)) return false;
  bool last = !px__operand_row_major(weight);
  few f = {.t = t,
           .source = image_of(source, t->c, t->d, t->h, t->w),
           .result = image_of(result, t->oc, t->od, t->oh, t->ow),
           .positions = t->n * t->seen,
           .channel_term = last ? 1 : t->places,
           .place_term = last ? t->c : 1};
  f.same = f.source.channel == 1 && one_to_one(t);
  t->bias = biased ? bias->data : NULL;
  t->weight = t->out = weight->data;
  t->failed = !run(&f);
  return true;
}
