// SPDX-License-Identifier: Apache-2.0
// Pooling over the last two dimensions: maxima with indices, means over fixed or adaptive windows,
// and their backward kernels. Threads share the planes.
#include "cpu/threads/buffer.h"
#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/vector/simd.h"
#include "cpu/threads/threads.h"
#include "kernel_args/conv.h"

#include <math.h>
#include <string.h>

enum { PLANE_ELEMENTS = 4096 };  // elements of a plane in L1

typedef struct pool {
  void *out;
  const void *in;
  int64_t *indices;
  const px_launch *launch;  // fault target of kernels with an indices operand
  int64_t h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw, divisor;
  int64_t channels;  // channels_last images, processed directly; else 0
  int half;          // dtype of planes that are converted one by one; else 0
  bool wide, backward, max, select, adaptive, count_pad;
} pool;
typedef struct window {
  int64_t y0, y1, x0, x1, divisor;
} window;

// One output index's window along one dimension. Returns its size including padding.
static int64_t window_extent(int64_t at, int64_t stride, int64_t pad, int64_t kernel, int64_t size,
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
    v.y0 = oy * t->h / t->oh, v.y1 = px__ceil_div((oy + 1) * t->h, t->oh);
    v.x0 = ox * t->w / t->ow, v.x1 = px__ceil_div((ox + 1) * t->w, t->ow);
    v.divisor = (v.y1 - v.y0) * (v.x1 - v.x0);
    return v;
  }
  int64_t tall = window_extent(oy, t->sh, t->ph, t->kh, t->h, &v.y0, &v.y1);
  int64_t wide = window_extent(ox, t->sw, t->pw, t->kw, t->w, &v.x0, &v.x1);
  v.divisor = t->divisor ? t->divisor : t->count_pad ? tall * wide : (v.y1 - v.y0) * (v.x1 - v.x0);
  return v;
}

// True if `index` is an index of the plane; otherwise reports a fault.
static inline bool is_index(const pool *t, int64_t index) {
  bool good = index >= 0 && index < t->h * t->w;
  if (!good) px_kernel_fault(t->launch, PX_FAULT_RANGE, index, t->h * t->w, 0);
  return good;
}

// The range [from, to) of a row's windows that do not extend past the left and right borders; empty
// if their offsets exceed 32 bits.
static void full_windows(const pool *t, int64_t *from, int64_t *to) {
  int64_t reach = (t->kw - 1) * t->dw + 1, limit = t->w + t->pw - reach;
  bool fits_int32 = (t->kh - 1) * t->dh < (INT32_MAX - reach) / (t->w + 1);
  *from = px__ceil_div(t->pw, t->sw);
  *to = limit < 0 || !fits_int32 ? 0 : limit / t->sw + 1;
  if (*to > t->ow) *to = t->ow;
}

// Vectors of windows; and even lanes of two overlapping vectors: b starts with the last lane of a.
typedef vf lanes_f32;
typedef vd lanes_f64;
typedef int32_t offset_f32;
typedef int64_t offset_f64;
typedef vfi offsets_f32;
typedef vdi offsets_f64;
enum { LANES_f32 = VF, LANES_f64 = VD };
#if PX_SIMD_BYTES == 32
static inline vf evens_f32(vf a, vf b) { return PX_SHUFFLE(a, b, 0, 2, 4, 6, 9, 11, 13, 15); }
static inline vd evens_f64(vd a, vd b) { return PX_SHUFFLE(a, b, 0, 2, 5, 7); }
#else
static inline vf evens_f32(vf a, vf b) { return PX_SHUFFLE(a, b, 0, 2, 5, 7); }
static inline vd evens_f64(vd a, vd b) { return PX_SHUFFLE(a, b, 0, 3); }
#endif

#define BOTH "cpu/nn/pool_rows.h"
#include "cpu/vector/for_f32_f64.h"

typedef void plane_kernel(const pool *, int64_t plane);

// Converts a half-precision plane to a float plane in L1.
static void run_half(const pool *t, int64_t i, plane_kernel *plane) {
  PX__BUFFER(float, in, PLANE_ELEMENTS);
  PX__BUFFER(float, out, PLANE_ELEMENTS);
  int64_t big = t->h * t->w, small = t->oh * t->ow;
  int64_t from = t->backward ? small : big, to = t->backward ? big : small;
  const uint16_t *source = (const uint16_t *)t->in + i * from;
  pool one = *t;
  one.in = in, one.out = out, one.indices += i * small;
  px__cpu_convert(in, sizeof *in, PX_FLOAT32, source, sizeof *source, t->half, from);
  plane(&one, 0);
  px__cpu_convert((uint16_t *)t->out + i * to, sizeof *source, t->half, out, sizeof *out,
                  PX_FLOAT32, to);
}
static void run(void *ctx, int64_t begin, int64_t end) {
  const pool *t = ctx;
  plane_kernel *plane = t->select     ? (t->wide ? select_plane_f64 : select_plane_f32)
                        : t->backward ? (t->wide ? max_plane_backward_f64 : max_plane_backward_f32)
                                      : (t->wide ? max_plane_f64 : max_plane_f32);
  for (int64_t i = begin; i < end; i++)
    if (t->half)
      run_half(t, i, plane);
    else
      plane(t, i);
}
static void run_channels_last(void *ctx, int64_t begin, int64_t end) {
  const pool *t = ctx;
  for (int64_t i = begin; i < end; i++)
    (t->wide ? max_channels_last_f64 : max_channels_last_f32)(t, i);
}
// As many planes at a time as fit in L1.
static void mean_run(void *ctx, int64_t begin, int64_t end) {
  const pool *t = ctx;
  int64_t most = PLANE_ELEMENTS / (t->h * t->w + 1) + 1;
  for (int64_t i = begin; i < end; i += most)
    (t->wide ? mean_planes_f64 : mean_planes_f32)(t, i, end - i < most ? end - i : most);
}
static void windows(pool *t, const px_value *kernel_size, const px_value *stride,
                    const px_value *padding) {
  t->kh = px__list_at(kernel_size, 0), t->kw = px__list_at(kernel_size, 1);
  t->sh = px__list_or(stride, 0, t->kh), t->sw = px__list_or(stride, 1, t->kw);
  t->ph = px__list_at(padding, 0), t->pw = px__list_at(padding, 1);
}
// Returns early if the result is empty: other sizes may then be huge.
static void planes(pool *t, const px_operand *big, const px_operand *small) {
  int d = big->ndim;
  if (!px_operand_numel(t->backward ? big : small)) return;
  t->h = big->sizes[d - 2], t->w = big->sizes[d - 1];
  t->oh = small->sizes[d - 2], t->ow = small->sizes[d - 1];
  int64_t count = 1, each = t->h * t->w + 1, row = t->ow * t->kh * t->kw * t->channels;
  if (t->channels) {
    px__cpu_parallel(big->sizes[0] * t->oh, 16384 / (row + 1) + 1, run_channels_last, t);
    return;
  }
  for (int i = 0; i < d - 2; i++) count *= big->sizes[i];
  bool mean = !t->max && !t->select;
  px__cpu_parallel(count, 16384 / each + 1, mean ? mean_run : run, t);
}

// Opens the operands. Small fp16 and bf16 planes keep their dtype.
static void open_operands(pool *t, px__dense *d, const px_operand *out, const px_operand *in) {
  const px_operand *big = t->backward ? out : in;
  int64_t each = big->sizes[big->ndim - 2] * big->sizes[big->ndim - 1];
  bool half = out->dtype == PX_FLOAT16 || out->dtype == PX_BFLOAT16, wide = t->wide;
  bool small = each <= PLANE_ELEMENTS && each * px_operand_numel(t->backward ? in : out) <=
                                             px_operand_numel(big) * PLANE_ELEMENTS;
  int compute = wide ? PX_FLOAT64 : PX_FLOAT32;
  t->half = half && small && in->dtype == out->dtype ? out->dtype : 0;
  if (t->half) compute = t->half;
  t->out = px__dense_out(d, out, compute), t->in = px__dense_in(d, in, compute);
}
// Uses the operands directly if all are channels_last.
static bool use_channels_last(pool *t, const px__max_pool2d_with_indices_kernel *args) {
  const px_operand *in = args->self, *out = args->output, *where = args->indices;
  int dtype = t->wide ? PX_FLOAT64 : PX_FLOAT32, lanes = t->wide ? LANES_f64 : LANES_f32;
  if (in->ndim != 4 || in->dtype != dtype || out->dtype != dtype || where->dtype != PX_INT64)
    return false;
  if (in->sizes[1] < lanes || in->sizes[2] > INT32_MAX / (in->sizes[3] + 1)) return false;
  if (!px__operand_channels_last(in) || !px__operand_channels_last(out) ||
      !px__operand_channels_last(where))
    return false;
  t->in = in->data, t->out = out->data, t->indices = where->data;
  t->channels = in->sizes[1];
  return true;
}
PX_KERNEL(max_pool2d_with_indices) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->output->dtype);
  pool t = {.max = true,
            .wide = compute == PX_FLOAT64,
            .dh = px__list_at(&args->dilation, 0),
            .dw = px__list_at(&args->dilation, 1)};
  if (!use_channels_last(&t, args)) {
    open_operands(&t, &d, args->output, args->self);
    t.indices = px__dense_out(&d, args->indices, args->indices->dtype);
  }
  windows(&t, &args->kernel_size, &args->stride, &args->padding);
  if (!d.failed) planes(&t, args->self, args->output);
  px__dense_close(&d);
  return PX_OK;
}
PX_KERNEL(max_pool2d_backward) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->out->dtype);
  pool t = {.launch = l,
            .max = true,
            .backward = true,
            .wide = compute == PX_FLOAT64,
            .indices = px__dense_in(&d, args->indices, args->indices->dtype)};
  open_operands(&t, &d, args->out, args->grad_output);
  if (!d.failed) planes(&t, args->out, args->grad_output);
  px__dense_close(&d);
  return PX_OK;
}
PX_KERNEL(max_pool2d_pick) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->out->dtype);
  pool t = {.launch = l,
            .select = true,
            .wide = compute == PX_FLOAT64,
            .out = px__dense_out(&d, args->out, compute),
            .in = px__dense_in(&d, args->self, compute),
            .indices = px__dense_in(&d, args->indices, args->indices->dtype)};
  if (!d.failed) planes(&t, args->self, args->out);
  px__dense_close(&d);
  return PX_OK;
}

// `t` holds the window parameters.
static px_status mean(const px_launch *l, pool *t, const px_operand *out, const px_operand *in) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(out->dtype);
  t->wide = compute == PX_FLOAT64;
  t->out = px__dense_out(&d, out, compute), t->in = px__dense_in(&d, in, compute);
  if (!d.failed) planes(t, t->backward ? out : in, t->backward ? in : out);
  px__dense_close(&d);
  return PX_OK;
}
PX_KERNEL(avg_pool2d) {
  pool t = {.dh = 1,
            .dw = 1,
            .count_pad = args->count_include_pad,
            .divisor = px__list_or(&args->divisor_override, 0, 0)};
  windows(&t, &args->kernel_size, &args->stride, &args->padding);
  return mean(l, &t, args->out, args->self);
}
PX_KERNEL(avg_pool2d_backward) {
  pool t = {.backward = true,
            .count_pad = args->count_include_pad,
            .divisor = px__list_or(&args->divisor_override, 0, 0)};
  windows(&t, &args->kernel_size, &args->stride, &args->padding);
  return mean(l, &t, args->out, args->grad_output);
}
PX_KERNEL(adaptive_avg_pool2d) {
  pool t = {.adaptive = true};
  return mean(l, &t, args->out, args->self);
}
PX_KERNEL(adaptive_avg_pool2d_backward) {
  pool t = {.adaptive = true, .backward = true};
  return mean(l, &t, args->out, args->grad_output);
}
