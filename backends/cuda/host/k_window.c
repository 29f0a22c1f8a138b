// SPDX-License-Identifier: Apache-2.0
// Host functions of window.cu: pooling, and convolution where no library does it.
#include "cuda/host/cudnn.h"
#include "cuda/host/kernel.h"

static int64_t blocks_of(int64_t n) { return (n + K_BLOCK - 1) / K_BLOCK; }

static void windows(k_window *t, const px_launch *l, int kernel, bool dilated) {
  t->kh = px__param_at(l, kernel, 0), t->kw = px__param_at(l, kernel, 1);
  t->sh = px__param_or(l, kernel + 1, 0, t->kh), t->sw = px__param_or(l, kernel + 1, 1, t->kw);
  t->ph = px__param_at(l, kernel + 2, 0), t->pw = px__param_at(l, kernel + 2, 1);
  t->dh = dilated ? px__param_at(l, kernel + 3, 0) : 1;
  t->dw = dilated ? px__param_at(l, kernel + 3, 1) : 1;
}
static void planes(k_window *t, const px_operand *big, const px_operand *small) {
  int d = big->ndim;
  t->h = big->sizes[d - 2], t->w = big->sizes[d - 1];
  t->oh = small->sizes[d - 2], t->ow = small->sizes[d - 1];
  t->planes = 1;
  for (int i = 0; i < d - 2; i++) t->planes *= big->sizes[i];
}

// Prepares a walk over planes of h by w.
static px_status divide(const px_launch *l, k_window *t, int64_t h, int64_t w) {
  if (t->h * t->w > INT32_MAX || t->oh * t->ow > INT32_MAX)
    PX_CUDA_FAIL(PX_RUNTIME, "%s on cuda:%d: a plane of more than 2147483647 elements", l->op,
                 l->device);
  t->wide = t->planes * h * w > INT32_MAX;
  px__cuda_divisor(&t->by_h, h), px__cuda_divisor(&t->by_w, w);
  px__cuda_divisor(&t->by_sh, t->sh), px__cuda_divisor(&t->by_sw, t->sw);
  return PX_OK;
}

// max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)
PX_CUDA_KERNEL(max_pool2d_with_indices) {
  static const char spec[] = "wWr";
  int dtype = l->operands[0].dtype;
  px__cuda_dense d[3];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_window t = {.out = d[0].at, .indices = d[1].at, .in = d[2].at};
  windows(&t, l, 1, true);
  planes(&t, &l->operands[2], &l->operands[0]);
  if (d[0].n == 0) return PX_OK;
  PX_CUDA_PASS(divide(l, &t, t.oh, t.ow));
  PX_CUDA_PASS(px__cuda_by_dtype(l, "window", "max_pool", dtype, blocks_of(d[0].n), K_BLOCK, &t));
  return px__cuda_close(d, l, spec);
}
// Gradients to places that may be any.
static px_status scatter(const px_launch *l) {
  static const char spec[] = "yxR";
  int dtype = px__compute_of(l->operands[0].dtype);
  px__cuda_dense d[3];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_window t = {.out = d[0].at, .in = d[1].at, .indices = d[2].at};
  planes(&t, &l->operands[0], &l->operands[1]);
  if (d[0].n == 0) return PX_OK;
  PX_CUDA_PASS(px__cuda_fill(l->stream, t.out, 0, (size_t)d[0].n * px__cuda_dtype_size(dtype)));
  PX_CUDA_PASS(
      px__cuda_by_dtype(l, "window", "max_pool_scatter", dtype, blocks_of(d[1].n), K_BLOCK, &t));
  return px__cuda_close(d, l, spec);
}
// max_pool2d_backward(grad_output, indices, input_size, kernel_size, stride, padding, dilation)
PX_CUDA_KERNEL(max_pool2d_backward) {
  static const char spec[] = "wrR";
  int dtype = l->operands[0].dtype;
  px__cuda_dense d[3];
  if (l->params[3].n == 0) return scatter(l);
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_window t = {.out = d[0].at, .in = d[1].at, .indices = d[2].at};
  windows(&t, l, 3, true);
  planes(&t, &l->operands[0], &l->operands[1]);
  if (d[0].n == 0) return PX_OK;
  PX_CUDA_PASS(divide(l, &t, t.h, t.w));
  PX_CUDA_PASS(
      px__cuda_by_dtype(l, "window", "max_pool_gather", dtype, blocks_of(d[0].n), K_BLOCK, &t));
  return px__cuda_close(d, l, spec);
}
// max_pool2d_pick(self, indices)
PX_CUDA_KERNEL(max_pool2d_pick) {
  static const char spec[] = "wrR";
  int dtype = l->operands[0].dtype;
  px__cuda_dense d[3];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_window t = {.out = d[0].at, .in = d[1].at, .indices = d[2].at};
  planes(&t, &l->operands[1], &l->operands[0]);
  PX_CUDA_PASS(
      px__cuda_by_dtype(l, "window", "max_pool_pick", dtype, blocks_of(d[0].n), K_BLOCK, &t));
  return px__cuda_close(d, l, spec);
}

static px_status mean(const px_launch *l, bool adaptive, bool backward) {
  static const char spec[] = "wr";
  int dtype = l->operands[0].dtype, first = backward ? 2 : 1;
  px__cuda_dense d[2];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_window t = {.adaptive = adaptive, .out = d[0].at, .in = d[1].at};
  if (!adaptive) {
    windows(&t, l, first, false);
    t.count_pad = px__param_int(l, first + 4) != 0;
    const px_value *v = &l->params[first + 5];
    t.divisor = v->kind == PX_ARG_NONE ? 0 : px_value_int(*v);
  }
  planes(&t, &l->operands[backward ? 0 : 1], &l->operands[backward ? 1 : 0]);
  PX_CUDA_PASS(px__cuda_by_dtype(l, "window", backward ? "mean_pool_backward" : "mean_pool", dtype,
                                 blocks_of(d[0].n), K_BLOCK, &t));
  return px__cuda_close(d, l, spec);
}
PX_CUDA_KERNEL(avg_pool2d) { return mean(l, false, false); }
PX_CUDA_KERNEL(avg_pool2d_backward) { return mean(l, false, true); }
PX_CUDA_KERNEL(adaptive_avg_pool2d) { return mean(l, true, false); }
PX_CUDA_KERNEL(adaptive_avg_pool2d_backward) { return mean(l, true, true); }

// ---- convolution

// The three tensors of a convolution: operands by their places in the launch.
typedef struct conv {
  px__cudnn_problem problem;
  k_window direct;  // the same for the kernels of window.cu
  void *data[3];    // image, weight, result
} conv;

static void describe(conv *c, const px_launch *l, px__cudnn_kind kind, const px__cuda_dense *d,
                     const int places[3]) {
  px__cudnn_problem *p = &c->problem;
  memset(p, 0, sizeof *p);
  p->kind = kind, p->dtype = l->operands[0].dtype;
  for (int i = 0; i < 3; i++) {
    memcpy(p->sizes[i], l->operands[places[i]].sizes, sizeof p->sizes[i]);
    c->data[i] = d[places[i]].at;
  }
  const px_value *padding = &l->params[4];
  for (int k = 0; k < 2; k++) {
    p->stride[k] = px__param_at(l, 3, k), p->dilation[k] = px__param_at(l, 5, k);
    p->before[k] = px__param_at(l, 4, k);
    p->behind[k] = padding->n == 4 ? padding->v.ints[2 + k] : p->before[k];
  }
  const int64_t *x = p->sizes[0], *w = p->sizes[1], *y = p->sizes[2];
  c->direct = (k_window){.n = x[0],
                         .c = x[1],
                         .h = x[2],
                         .w = x[3],
                         .kh = w[2],
                         .kw = w[3],
                         .oc = y[1],
                         .oh = y[2],
                         .ow = y[3],
                         .groups = px__param_int(l, 6)};
  k_window *t = &c->direct;
  t->sh = p->stride[0], t->sw = p->stride[1], t->ph = p->before[0], t->pw = p->before[1];
  t->dh = p->dilation[0], t->dw = p->dilation[1];
}

// A bias is added to what cuDNN made in a pass of its own.
static px_status add_bias(const px_launch *l, const conv *c, void *bias) {
  k_window t = c->direct;
  t.out = c->data[2], t.bias = bias;
  t.planes = t.n * t.oc;
  int64_t n = t.planes * t.oh * t.ow;
  return px__cuda_by_dtype(l, "window", "bias", l->operands[0].dtype, blocks_of((n + 3) / 4),
                           K_BLOCK, &t);
}

// conv2d(input, weight, bias, stride, padding, dilation, groups)
PX_CUDA_KERNEL(conv2d) {
  static const char spec[] = "wrrr";
  static const int places[] = {1, 2, 0};
  px__cuda_dense d[4];
  conv c;
  bool done;
  PX_CUDA_PASS(px__cuda_open(d, l, spec, l->operands[0].dtype));
  describe(&c, l, PX_CUDNN_FORWARD, d, places);
  PX_CUDA_PASS(px__cudnn_convolve(l, &c.problem, c.data, &done));
  c.direct.out = d[0].at, c.direct.in = d[1].at, c.direct.weight = d[2].at;
  c.direct.bias = d[3].at;
  if (!done)
    PX_CUDA_PASS(px__cuda_by_dtype(l, "window", "conv", l->operands[0].dtype, blocks_of(d[0].n),
                                   K_BLOCK, &c.direct));
  else if (d[3].at)
    PX_CUDA_PASS(add_bias(l, &c, d[3].at));
  return px__cuda_close(d, l, spec);
}
// conv2d_backward_input(grad_output, weight, input_size, stride, padding, dilation, groups)
PX_CUDA_KERNEL(conv2d_backward_input) {
  static const char spec[] = "wrr";
  static const int places[] = {0, 2, 1};
  px__cuda_dense d[3];
  conv c;
  bool done;
  PX_CUDA_PASS(px__cuda_open(d, l, spec, l->operands[0].dtype));
  describe(&c, l, PX_CUDNN_IMAGE, d, places);
  PX_CUDA_PASS(px__cudnn_convolve(l, &c.problem, c.data, &done));
  c.direct.out = d[0].at, c.direct.in = d[1].at, c.direct.weight = d[2].at;
  if (!done)
    PX_CUDA_PASS(px__cuda_by_dtype(l, "window", "conv_input", l->operands[0].dtype,
                                   blocks_of(d[0].n), K_BLOCK, &c.direct));
  return px__cuda_close(d, l, spec);
}
// conv2d_backward_weight(grad_output, input, weight_size, stride, padding, dilation, groups)
PX_CUDA_KERNEL(conv2d_backward_weight) {
  static const char spec[] = "wrr";
  static const int places[] = {2, 0, 1};
  px__cuda_dense d[3];
  conv c;
  bool done;
  PX_CUDA_PASS(px__cuda_open(d, l, spec, l->operands[0].dtype));
  describe(&c, l, PX_CUDNN_WEIGHT, d, places);
  PX_CUDA_PASS(px__cudnn_convolve(l, &c.problem, c.data, &done));
  c.direct.out = d[0].at, c.direct.in = d[1].at, c.direct.bias = d[2].at;
  if (!done)
    PX_CUDA_PASS(px__cuda_by_dtype(l, "window", "conv_weight", l->operands[0].dtype, d[0].n,
                                   K_BLOCK, &c.direct));
  return px__cuda_close(d, l, spec);
}
