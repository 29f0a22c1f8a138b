// SPDX-License-Identifier: Apache-2.0
// Pooling over the last two dimensions: maxima with their places, means over fixed or adaptive
// windows, and the backward kernels. Threads share the planes.
#include "cpu/dense.h"
#include "cpu/threads.h"

#include <math.h>
#include <string.h>

enum { NEAR_ELEMENTS = 4096 };

typedef struct pool {
  void *out;
  const void *in;
  int64_t *indices;
  int64_t h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw, divisor;
  bool wide, backward, max, pick, adaptive, count_pad;
} pool;
typedef struct window {
  int64_t y0, y1, x0, x1, divisor;
} window;

// One output position's window along one dimension.
static int64_t extent(int64_t at, int64_t stride, int64_t pad, int64_t kernel, int64_t size,
                      int64_t *from, int64_t *to) {
  int64_t first = at * stride - pad, last = first + kernel;
  int64_t padded = (last < size + pad ? last : size + pad) - first;
  *from = first > 0 ? first : 0;
  *to = last < size ? last : size;
  return padded;
}
static window window_of(const pool *t, int64_t oy, int64_t ox) {
  window v;
  if (t->adaptive) {
    v.y0 = oy * t->h / t->oh, v.y1 = ((oy + 1) * t->h + t->oh - 1) / t->oh;
    v.x0 = ox * t->w / t->ow, v.x1 = ((ox + 1) * t->w + t->ow - 1) / t->ow;
    v.divisor = (v.y1 - v.y0) * (v.x1 - v.x0);
    return v;
  }
  int64_t tall = extent(oy, t->sh, t->ph, t->kh, t->h, &v.y0, &v.y1);
  int64_t wide = extent(ox, t->sw, t->pw, t->kw, t->w, &v.x0, &v.x1);
  v.divisor = t->divisor ? t->divisor : t->count_pad ? tall * wide : (v.y1 - v.y0) * (v.x1 - v.x0);
  return v;
}

#define BOTH "cpu/pool_rows.h"
#include "cpu/both.h"

static void run(void *ctx, int64_t begin, int64_t end) {
  const pool *t = ctx;
  void (*plane)(const pool *, int64_t) =
      t->pick       ? (t->wide ? pick_plane_f64 : pick_plane_f32)
      : t->backward ? (t->wide ? max_plane_backward_f64 : max_plane_backward_f32)
                    : (t->wide ? max_plane_f64 : max_plane_f32);
  for (int64_t i = begin; i < end; i++) plane(t, i);
}
// So many planes at a time as the nearest cache holds.
static void mean_run(void *ctx, int64_t begin, int64_t end) {
  const pool *t = ctx;
  int64_t most = NEAR_ELEMENTS / (t->h * t->w + 1) + 1;
  for (int64_t i = begin; i < end; i += most)
    (t->wide ? mean_planes_f64 : mean_planes_f32)(t, i, end - i < most ? end - i : most);
}
static void windows(pool *t, const px_launch *l, int kernel, bool dilated) {
  t->kh = px__param_at(l, kernel, 0), t->kw = px__param_at(l, kernel, 1);
  t->sh = px__param_or(l, kernel + 1, 0, t->kh), t->sw = px__param_or(l, kernel + 1, 1, t->kw);
  t->ph = px__param_at(l, kernel + 2, 0), t->pw = px__param_at(l, kernel + 2, 1);
  t->dh = dilated ? px__param_at(l, kernel + 3, 0) : 1;
  t->dw = dilated ? px__param_at(l, kernel + 3, 1) : 1;
}
static void planes(pool *t, const px_operand *big, const px_operand *small) {
  int d = big->ndim;
  t->h = big->sizes[d - 2], t->w = big->sizes[d - 1];
  t->oh = small->sizes[d - 2], t->ow = small->sizes[d - 1];
  int64_t count = 1, each = t->h * t->w + 1;
  for (int i = 0; i < d - 2; i++) count *= big->sizes[i];
  bool mean = !t->max && !t->pick;
  if (t->oh * t->ow > 0 || t->backward)
    px__cpu_parallel(count, 16384 / each + 1, mean ? mean_run : run, t);
}

// max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)
PX_KERNEL(max_pool2d_with_indices) {
  static const char spec[] = "wWr";
  int compute = px__compute_of(l->operands[0].dtype);
  px__dense d[3];
  if (!px__dense_open(d, l, spec, compute)) return PX_OK;
  pool t = {.max = true,
            .wide = compute == PX_FLOAT64,
            .out = d[0].at,
            .indices = d[1].at,
            .in = d[2].at};
  windows(&t, l, 1, true);
  planes(&t, &l->operands[2], &l->operands[0]);
  px__dense_close(d, spec);
  return PX_OK;
}
// max_pool2d_backward(grad_output, indices, input_size, kernel_size, stride, padding, dilation)
PX_KERNEL(max_pool2d_backward) {
  static const char spec[] = "wrR";
  int compute = px__compute_of(l->operands[0].dtype);
  px__dense d[3];
  if (!px__dense_open(d, l, spec, compute)) return PX_OK;
  pool t = {.max = true,
            .backward = true,
            .wide = compute == PX_FLOAT64,
            .out = d[0].at,
            .in = d[1].at,
            .indices = d[2].at};
  planes(&t, &l->operands[0], &l->operands[1]);
  px__dense_close(d, spec);
  return PX_OK;
}

// max_pool2d_pick(self, indices)
PX_KERNEL(max_pool2d_pick) {
  static const char spec[] = "wrR";
  int compute = px__compute_of(l->operands[0].dtype);
  px__dense d[3];
  if (!px__dense_open(d, l, spec, compute)) return PX_OK;
  pool t = {.pick = true,
            .wide = compute == PX_FLOAT64,
            .out = d[0].at,
            .in = d[1].at,
            .indices = d[2].at};
  planes(&t, &l->operands[1], &l->operands[0]);
  px__dense_close(d, spec);
  return PX_OK;
}

static px_status mean(const px_launch *l, bool adaptive, bool backward) {
  static const char spec[] = "wr";
  int compute = px__compute_of(l->operands[0].dtype), first = backward ? 2 : 1;
  px__dense d[2];
  if (!px__dense_open(d, l, spec, compute)) return PX_OK;
  pool t = {.adaptive = adaptive,
            .backward = backward,
            .wide = compute == PX_FLOAT64,
            .out = d[0].at,
            .in = d[1].at};
  if (!adaptive) {
    windows(&t, l, first, false);
    t.count_pad = px__param_int(l, first + 4) != 0;
    const px_value *v = &l->params[first + 5];
    t.divisor = v->kind == PX_ARG_NONE ? 0 : px_value_int(*v);
  }
  planes(&t, &l->operands[backward ? 0 : 1], &l->operands[backward ? 1 : 0]);
  px__dense_close(d, spec);
  return PX_OK;
}
// avg_pool2d(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
PX_KERNEL(avg_pool2d) { return mean(l, false, false); }
// avg_pool2d_backward(grad_output, input_size, kernel_size, ...)
PX_KERNEL(avg_pool2d_backward) { return mean(l, false, true); }
// adaptive_avg_pool2d(self, output_size) and its backward(grad_output, input_size)
PX_KERNEL(adaptive_avg_pool2d) { return mean(l, true, false); }
PX_KERNEL(adaptive_avg_pool2d_backward) { return mean(l, true, true); }
