// SPDX-License-Identifier: Apache-2.0
// Host functions of window.cu: pooling, and convolution where no library does it.
#include "cuda/host/kernel.h"

static int64_t blocks_of(int64_t n) { return (n + K_BLOCK - 1) / K_BLOCK; }

// The k-th of a list where an empty list stands for another.
static int64_t number(const px_launch *l, int i, int k, int64_t otherwise) {
  const px_value *v = &l->params[i];
  return v->kind == PX_ARG_NONE || (v->kind == PX_ARG_INTS && v->n == 0) ? otherwise
                                                                         : px__cuda_at(l, i, k);
}
static void windows(k_window *t, const px_launch *l, int kernel, bool dilated) {
  t->kh = px__cuda_at(l, kernel, 0), t->kw = px__cuda_at(l, kernel, 1);
  t->sh = number(l, kernel + 1, 0, t->kh), t->sw = number(l, kernel + 1, 1, t->kw);
  t->ph = px__cuda_at(l, kernel + 2, 0), t->pw = px__cuda_at(l, kernel + 2, 1);
  t->dh = dilated ? px__cuda_at(l, kernel + 3, 0) : 1;
  t->dw = dilated ? px__cuda_at(l, kernel + 3, 1) : 1;
}
static void planes(k_window *t, const px_operand *big, const px_operand *small) {
  int d = big->ndim;
  t->h = big->sizes[d - 2], t->w = big->sizes[d - 1];
  t->oh = small->sizes[d - 2], t->ow = small->sizes[d - 1];
  t->planes = 1;
  for (int i = 0; i < d - 2; i++) t->planes *= big->sizes[i];
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
  PX_CUDA_PASS(px__cuda_by_dtype(l, "window", "max_pool", dtype, blocks_of(d[0].n), K_BLOCK, &t));
  return px__cuda_close(d, l, spec);
}
// max_pool2d_backward(grad_output, indices, input_size)
PX_CUDA_KERNEL(max_pool2d_backward) {
  static const char spec[] = "yxR";
  int dtype = px__cuda_compute(l->operands[0].dtype);
  px__cuda_dense d[3];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_window t = {.out = d[0].at, .in = d[1].at, .indices = d[2].at};
  planes(&t, &l->operands[0], &l->operands[1]);
  if (d[0].n == 0) return PX_OK;
  PX_CUDA_PASS(px__cuda_fill(l->stream, t.out, 0, (size_t)d[0].n * px__cuda_dtype_size(dtype)));
  PX_CUDA_PASS(
      px__cuda_by_dtype(l, "window", "max_pool_backward", dtype, blocks_of(d[1].n), K_BLOCK, &t));
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
    t.count_pad = px__cuda_int(l, first + 4) != 0;
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

// Geometry from the operands of the image, the weight and the output, and the parameters from
// `stride` on.
static void geometry(k_window *t, const px_launch *l, const px_operand *in,
                     const px_operand *weight, const px_operand *out, int stride) {
  t->n = in->sizes[0], t->c = in->sizes[1], t->h = in->sizes[2], t->w = in->sizes[3];
  t->oc = out->sizes[1], t->oh = out->sizes[2], t->ow = out->sizes[3];
  t->kh = weight->sizes[2], t->kw = weight->sizes[3];
  t->sh = px__cuda_at(l, stride, 0), t->sw = px__cuda_at(l, stride, 1);
  t->ph = px__cuda_at(l, stride + 1, 0), t->pw = px__cuda_at(l, stride + 1, 1);
  t->dh = px__cuda_at(l, stride + 2, 0), t->dw = px__cuda_at(l, stride + 2, 1);
  t->groups = px__cuda_int(l, stride + 3);
}
// conv2d(input, weight, bias, stride, padding, dilation, groups)
PX_CUDA_KERNEL(conv2d) {
  static const char spec[] = "wrrr";
  const px_operand *o = l->operands;
  px__cuda_dense d[4];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, o[0].dtype));
  k_window t = {.out = d[0].at, .in = d[1].at, .weight = d[2].at, .bias = d[3].at};
  geometry(&t, l, &o[1], &o[2], &o[0], 3);
  PX_CUDA_PASS(px__cuda_by_dtype(l, "window", "conv", o[0].dtype, blocks_of(d[0].n), K_BLOCK, &t));
  return px__cuda_close(d, l, spec);
}
// conv2d_backward_input(grad_output, weight, input_size, stride, padding, dilation, groups)
PX_CUDA_KERNEL(conv2d_backward_input) {
  static const char spec[] = "wrr";
  const px_operand *o = l->operands;
  px__cuda_dense d[3];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, o[0].dtype));
  k_window t = {.out = d[0].at, .in = d[1].at, .weight = d[2].at};
  geometry(&t, l, &o[0], &o[2], &o[1], 3);
  PX_CUDA_PASS(
      px__cuda_by_dtype(l, "window", "conv_input", o[0].dtype, blocks_of(d[0].n), K_BLOCK, &t));
  return px__cuda_close(d, l, spec);
}
// conv2d_backward_weight(grad_output, input, weight_size, stride, padding, dilation, groups)
PX_CUDA_KERNEL(conv2d_backward_weight) {
  static const char spec[] = "wrr";
  const px_operand *o = l->operands;
  px__cuda_dense d[3];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, o[0].dtype));
  k_window t = {.out = d[0].at, .in = d[1].at, .bias = d[2].at};
  geometry(&t, l, &o[2], &o[0], &o[1], 3);
  PX_CUDA_PASS(px__cuda_by_dtype(l, "window", "conv_weight", o[0].dtype, d[0].n, K_BLOCK, &t));
  return px__cuda_close(d, l, spec);
}
