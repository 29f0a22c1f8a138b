// SPDX-License-Identifier: Apache-2.0
// conv2d and its gradients: columns of the image times the weights, in pieces that fit a core's
// cache.
//
// Small images are taken several at a time, so that the product has enough columns; large ones in
// bands of rows. Threads share the pieces; the weight's gradient is summed per part of the batch
// and the parts in order, so that the numbers do not depend on the number of threads.
#include "cpu/conv.h"
#include "cpu/dense.h"
#include "cpu/gemm.h"
#include "cpu/threads.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 128, PIECE_ELEMENTS = 64 * 1024, MAX_PARTS = 8 };

typedef struct unit {
  int64_t first, images, group, y0, y1, ld, part;
} unit;

#define T float
#define GEMM px__gemm_f32
#define NAME(x) x##_f32
#include "cpu/conv_rows.h"
#undef T
#undef GEMM
#undef NAME
#define T double
#define GEMM px__gemm_f64
#define NAME(x) x##_f64
#include "cpu/conv_rows.h"

// Geometry from the operands of the image, the weight and the output, and the parameters from
// `stride` on.
static void conv_start(conv *t, const px_launch *l, const px_operand *in, const px_operand *weight,
                       const px_operand *out, int stride) {
  t->n = in->sizes[0], t->c = in->sizes[1], t->h = in->sizes[2], t->w = in->sizes[3];
  t->oc = out->sizes[1], t->oh = out->sizes[2], t->ow = out->sizes[3];
  t->kh = weight->sizes[2], t->kw = weight->sizes[3];
  t->sh = px__param_at(l, stride, 0), t->sw = px__param_at(l, stride, 1);
  t->ph = px__param_at(l, stride + 1, 0), t->pw = px__param_at(l, stride + 1, 1);
  t->dh = px__param_at(l, stride + 2, 0), t->dw = px__param_at(l, stride + 2, 1);
  t->groups = px__param_int(l, stride + 3);
  t->cg = t->c / t->groups, t->og = t->oc / t->groups;
  t->k = t->cg * t->kh * t->kw, t->p = t->oh * t->ow;
  t->images = t->p >= COLUMNS ? 1 : (COLUMNS + t->p - 1) / t->p;
  if (t->images > t->n) t->images = t->n;
  t->rows = t->oh;
  int64_t most = PIECE_ELEMENTS / (t->k * t->ow);
  if (t->images == 1 && most < t->rows) t->rows = most > 1 ? most : 1;
}
static int64_t blocks_of(const conv *t) { return (t->n + t->images - 1) / t->images; }

// All row bands of one block of images of one group.
static bool piece(const conv *t, int64_t block, int64_t group, int64_t part, int64_t from,
                  int64_t to, void *room) {
  unit u = {.first = block * t->images, .group = group, .part = part};
  u.images = t->n - u.first < t->images ? t->n - u.first : t->images;
  u.ld = (t->images * t->rows * t->ow + 15) / 16 * 16;
  bool done = true;
  for (int64_t y = from; done && y < to; y += t->rows) {
    u.y0 = y, u.y1 = y + t->rows < to ? y + t->rows : to;
    if (t->what == 'f')
      done = t->wide ? forward_f64(t, &u, room) : forward_f32(t, &u, room);
    else if (t->what == 'i')
      done = t->wide ? to_input_f64(t, &u, room) : to_input_f32(t, &u, room);
    else
      done = t->wide ? to_weight_f64(t, &u, room) : to_weight_f32(t, &u, room);
  }
  return done;
}
// Room for the columns, and for results or gradients of several images.
static void *room_new(const conv *t) {
  int64_t ld = (t->images * t->rows * t->ow + 15) / 16 * 16;
  return malloc((size_t)((t->k + t->og) * ld) * (t->wide ? sizeof(double) : sizeof(float)));
}

static void forward_run(void *ctx, int64_t begin, int64_t end) {
  conv *t = ctx;
  void *room = room_new(t);
  bool done = room != NULL;
  int64_t bands = (t->oh + t->rows - 1) / t->rows;
  for (int64_t i = begin; done && i < end; i++) {
    int64_t y = i % bands * t->rows, rest = i / bands;
    int64_t to = y + t->rows < t->oh ? y + t->rows : t->oh;
    done = piece(t, rest / t->groups, rest % t->groups, 0, y, to, room);
  }
  if (!done) __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
  free(room);
}
static void input_run(void *ctx, int64_t begin, int64_t end) {
  conv *t = ctx;
  void *room = room_new(t);
  bool done = room != NULL;
  for (int64_t i = begin; done && i < end; i++)
    done = piece(t, i / t->groups, i % t->groups, 0, 0, t->oh, room);
  if (!done) __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
  free(room);
}
static void weight_run(void *ctx, int64_t begin, int64_t end) {
  conv *t = ctx;
  void *room = room_new(t);
  bool done = room != NULL;
  int64_t blocks = blocks_of(t);
  for (int64_t part = begin; part < end; part++)
    for (int64_t b = blocks * part / t->parts; done && b < blocks * (part + 1) / t->parts; b++)
      for (int64_t g = 0; done && g < t->groups; g++) done = piece(t, b, g, part, 0, t->oh, room);
  if (!done) __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
  free(room);
}
static void share(conv *t, const px_launch *l, int64_t units,
                  void (*run)(void *, int64_t, int64_t)) {
  double work = (double)t->n * (double)t->p * (double)t->k * (double)t->oc;
  t->inner = units == 1;
  int64_t grain = work < 1e5 ? units : 1;
  px__cpu_parallel(units, grain, run, t);
  if (t->failed) px_kernel_fault(l, PX_FAULT_NOMEM, (int64_t)1 << 20, 0, 0);
}

// conv2d(input, weight, bias, stride, padding, dilation, groups)
PX_KERNEL(conv2d) {
  static const char spec[] = "wrrr";
  const px_operand *o = l->operands;
  int compute = px__compute_of(o[0].dtype);
  px__dense d[4];
  if (!px__dense_open(d, l, spec, compute)) return PX_OK;
  if (d[0].n) {
    conv t = {.what = 'f',
              .wide = compute == PX_FLOAT64,
              .out = d[0].at,
              .in = d[1].at,
              .weight = d[2].at,
              .bias = d[3].at};
    conv_start(&t, l, &o[1], &o[2], &o[0], 3);
    int64_t bands = (t.oh + t.rows - 1) / t.rows;
    if (px__conv_small(&t))
      share(&t, l, px__conv_small_units(&t), px__conv_small_forward);
    else
      share(&t, l, blocks_of(&t) * t.groups * bands, forward_run);
    px__conv_small_end(&t);
  }
  px__dense_close(d, spec);
  return PX_OK;
}
// conv2d_backward_input(grad_output, weight, input_size, stride, padding, dilation, groups)
PX_KERNEL(conv2d_backward_input) {
  static const char spec[] = "wrr";
  const px_operand *o = l->operands;
  int compute = px__compute_of(o[0].dtype);
  px__dense d[3];
  if (!px__dense_open(d, l, spec, compute)) return PX_OK;
  memset(d[0].at, 0, (size_t)d[0].n * px_dtype_size((px_dtype)compute));
  if (d[0].n && d[1].n) {
    conv t = {.what = 'i',
              .wide = compute == PX_FLOAT64,
              .out = d[0].at,
              .grad = d[1].at,
              .weight = d[2].at};
    conv_start(&t, l, &o[0], &o[2], &o[1], 3);
    if (px__conv_small(&t))
      share(&t, l, px__conv_small_units(&t), px__conv_small_forward);
    else
      share(&t, l, blocks_of(&t) * t.groups, input_run);
    px__conv_small_end(&t);
  }
  px__dense_close(d, spec);
  return PX_OK;
}
// conv2d_backward_weight(grad_output, input, weight_size, stride, padding, dilation, groups)
PX_KERNEL(conv2d_backward_weight) {
  static const char spec[] = "wrr";
  const px_operand *o = l->operands;
  int compute = px__compute_of(o[0].dtype);
  px__dense d[3];
  if (!px__dense_open(d, l, spec, compute)) return PX_OK;
  size_t item = px_dtype_size((px_dtype)compute);
  memset(d[0].at, 0, (size_t)d[0].n * item);
  if (d[0].n && d[1].n) {
    conv t = {
        .what = 'w', .wide = compute == PX_FLOAT64, .out = d[0].at, .grad = d[1].at, .in = d[2].at};
    conv_start(&t, l, &o[2], &o[0], &o[1], 3);
    int64_t blocks = blocks_of(&t);
    bool small = px__conv_small(&t);
    if (small) blocks = t.n;
    t.parts = blocks < MAX_PARTS ? blocks : MAX_PARTS;
    t.sums = px__scratch_new(l, (size_t)(t.parts * d[0].n) * item);
    if (t.sums) {
      memset(t.sums, 0, (size_t)(t.parts * d[0].n) * item);
      share(&t, l, t.parts, small ? px__conv_small_weight : weight_run);
      (t.wide ? add_parts_f64 : add_parts_f32)(&t);
      free(t.sums);
    }
    px__conv_small_end(&t);
  }
  px__dense_close(d, spec);
  return PX_OK;
}
