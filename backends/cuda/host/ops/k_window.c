// SPDX-License-Identifier: Apache-2.0
// Host functions of window.cu: pooling, and convolutions without a library.
#include "cuda/host/library/cudnn.h"
#include "cuda/host/ops/kernel.h"
#include "kernel_args/conv.h"

static int64_t blocks_of(int64_t n) { return (n + K_BLOCK - 1) / K_BLOCK; }

static void windows(k_window *t, const px_value *kernel_size, const px_value *stride,
                    const px_value *padding) {
  t->kh = px__list_at(kernel_size, 0), t->kw = px__list_at(kernel_size, 1);
  t->sh = px__list_or(stride, 0, t->kh), t->sw = px__list_or(stride, 1, t->kw);
  t->ph = px__list_at(padding, 0), t->pw = px__list_at(padding, 1);
}
static void dilate(k_window *t, const px_value *dilation) {
  t->dh = px__list_at(dilation, 0), t->dw = px__list_at(dilation, 1);
}
// Planes of one channel each or, for channels_last, images of `c` channels.
static void planes(k_window *t, const px_operand *big, const px_operand *small, bool last) {
  int d = big->ndim;
  t->h = big->sizes[d - 2], t->w = big->sizes[d - 1];
  t->oh = small->sizes[d - 2], t->ow = small->sizes[d - 1];
  t->planes = 1;
  for (int i = 0; i < d - 2 - last; i++) t->planes *= big->sizes[i];
  t->c = last ? big->sizes[1] : 1;
}

// Prepares the index arithmetic for planes of h by w.
static px_status prepare_divisors(const px_launch *l, k_window *t, int64_t h, int64_t w) {
  if (t->h * t->w > INT32_MAX || t->oh * t->ow > INT32_MAX)
    PX_CUDA_FAIL(PX_RUNTIME, "%s on cuda:%d: expected planes of at most 2147483647 elements", l->op,
                 l->device);
  t->wide = t->planes * h * w > INT32_MAX;
  px__cuda_divisor(&t->by_h, h), px__cuda_divisor(&t->by_w, w);
  px__cuda_divisor(&t->by_sh, t->sh), px__cuda_divisor(&t->by_sw, t->sw);
  return PX_OK;
}
// Launches NAME or NAME_last with one thread for each output element, or vector.
static px_status pool(const px_launch *l, k_window *t, const char *name, const px_operand *out,
                      bool last) {
  char function[48];
  int64_t n = px_operand_numel(out), each = 16 / (int64_t)px__cuda_dtype_size(out->dtype);
  if (n == 0) return PX_OK;
  if (last) PX_CUDA_PASS(prepare_divisors(l, t, out->sizes[2], out->sizes[3]));
  if (last && t->c % each == 0) n /= each;
  snprintf(function, sizeof function, "%s%s", name, last ? "_last" : "");
  return px__cuda_by_dtype(l, "window", function, out->dtype, blocks_of(n), K_BLOCK, t);
}

PX_CUDA_KERNEL(max_pool2d_with_indices) {
  int dtype = args->output->dtype;
  bool last = px__cuda_wants_last(args->output, &args->self, 1);
  px__cuda_dense d = {.launch = l, .last = last};
  k_window t = {.out = px__cuda_dense_out(&d, args->output, dtype),
                .indices = px__cuda_dense_out(&d, args->indices, PX_INT64),
                .in = px__cuda_dense_in(&d, args->self, dtype)};
  PX_CUDA_PASS(d.status);
  windows(&t, &args->kernel_size, &args->stride, &args->padding);
  dilate(&t, &args->dilation);
  planes(&t, args->self, args->output, last);
  if (!last) PX_CUDA_PASS(prepare_divisors(l, &t, t.oh, t.ow));
  PX_CUDA_PASS(pool(l, &t, "max_pool", args->output, last));
  return px__cuda_dense_close(&d);
}
// Adds gradients at arbitrary indices.
static px_status scatter(const px_launch *l, const px_operand *out, const px_operand *grad,
                         const px_operand *indices) {
  int dtype = px__compute_of(out->dtype);
  int64_t n = px_operand_numel(out);
  px__cuda_dense d = {.launch = l};
  k_window t = {.where = px__cuda_where(l),
                .out = px__cuda_dense_out(&d, out, dtype),
                .in = px__cuda_dense_in(&d, grad, dtype),
                .indices = px__cuda_dense_in(&d, indices, PX_INT64)};
  PX_CUDA_PASS(d.status);
  planes(&t, out, grad, false);
  if (n == 0) return PX_OK;
  PX_CUDA_PASS(px__cuda_fill(l->stream, t.out, 0, (size_t)n * px__cuda_dtype_size(dtype)));
  bool ordered = px__cuda_core->setting(PX_SETTING_DETERMINISTIC);  // one thread per plane
  PX_CUDA_PASS(px__cuda_by_dtype(l, "window", ordered ? "max_pool_ordered" : "max_pool_scatter",
                                 dtype, blocks_of(ordered ? t.planes : px_operand_numel(grad)),
                                 K_BLOCK, &t));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(max_pool2d_backward) {
  int dtype = args->out->dtype;
  const px_operand *given[] = {args->grad_output, args->indices};
  bool last = px__cuda_wants_last(args->out, given, 2);
  px__cuda_dense d = {.launch = l, .last = last};
  if (args->kernel_size.n == 0) return scatter(l, args->out, args->grad_output, args->indices);
  k_window t = {.out = px__cuda_dense_out(&d, args->out, dtype),
                .in = px__cuda_dense_in(&d, args->grad_output, dtype),
                .indices = px__cuda_dense_in(&d, args->indices, PX_INT64)};
  PX_CUDA_PASS(d.status);
  windows(&t, &args->kernel_size, &args->stride, &args->padding);
  dilate(&t, &args->dilation);
  planes(&t, args->out, args->grad_output, last);
  if (!last) PX_CUDA_PASS(prepare_divisors(l, &t, t.h, t.w));
  PX_CUDA_PASS(pool(l, &t, "max_pool_gather", args->out, last));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(max_pool2d_pick) {
  int dtype = args->out->dtype;
  px__cuda_dense d = {.launch = l};
  k_window t = {.where = px__cuda_where(l),
                .out = px__cuda_dense_out(&d, args->out, dtype),
                .in = px__cuda_dense_in(&d, args->self, dtype),
                .indices = px__cuda_dense_in(&d, args->indices, PX_INT64)};
  PX_CUDA_PASS(d.status);
  planes(&t, args->self, args->out, false);
  PX_CUDA_PASS(px__cuda_by_dtype(l, "window", "max_pool_pick", dtype,
                                 blocks_of(px_operand_numel(args->out)), K_BLOCK, &t));
  return px__cuda_dense_close(&d);
}

// `t` describes the windows.
static px_status mean(const px_launch *l, k_window *t, const px_operand *out, const px_operand *in,
                      bool backward) {
  int dtype = out->dtype;
  bool last = px__cuda_wants_last(out, &in, 1);
  px__cuda_dense d = {.launch = l, .last = last};
  t->out = px__cuda_dense_out(&d, out, dtype), t->in = px__cuda_dense_in(&d, in, dtype);
  PX_CUDA_PASS(d.status);
  planes(t, backward ? out : in, backward ? in : out, last);
  PX_CUDA_PASS(pool(l, t, backward ? "mean_pool_backward" : "mean_pool", out, last));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(avg_pool2d) {
  k_window t = {.count_pad = args->count_include_pad,
                .divisor = px__list_or(&args->divisor_override, 0, 0)};
  windows(&t, &args->kernel_size, &args->stride, &args->padding);
  return mean(l, &t, args->out, args->self, false);
}
PX_CUDA_KERNEL(avg_pool2d_backward) {
  k_window t = {.count_pad = args->count_include_pad,
                .divisor = px__list_or(&args->divisor_override, 0, 0)};
  windows(&t, &args->kernel_size, &args->stride, &args->padding);
  return mean(l, &t, args->out, args->grad_output, true);
}
PX_CUDA_KERNEL(adaptive_avg_pool2d) {
  k_window t = {.sh = 1, .sw = 1, .adaptive = true};
  return mean(l, &t, args->out, args->self, false);
}
PX_CUDA_KERNEL(adaptive_avg_pool2d_backward) {
  k_window t = {.sh = 1, .sw = 1, .adaptive = true};
  return mean(l, &t, args->out, args->grad_output, true);
}

// ---- convolution

enum { IMAGE, WEIGHT, RESULT, TENSORS };  // cuDNN's order
typedef struct conv {
  px__cudnn_problem problem;
  const px_operand *operands[TENSORS], *bias;
  k_window direct;  // parameters for window.cu
} conv;

// For each kind: the output, the first input, and the kernel used without a library. It reads `in`
// and `weight`; the weight's gradient reads the images instead of a bias.
static const struct {
  int out, in;
  const char *direct;
} kinds[] = {[PX_CUDNN_FORWARD] = {RESULT, IMAGE, "conv"},
             [PX_CUDNN_IMAGE] = {IMAGE, RESULT, "conv_input"},
             [PX_CUDNN_WEIGHT] = {WEIGHT, RESULT, "conv_weight"}};

// Fills in sizes and geometry. Kind, dtype and operands are already set.
static void describe(conv *c, const px_value *stride, const px_value *padding,
                     const px_value *dilation, int64_t groups) {
  px__cudnn_problem *p = &c->problem;
  for (int i = 0; i < TENSORS; i++) memcpy(p->sizes[i], c->operands[i]->sizes, sizeof p->sizes[i]);
  for (int k = 0; k < 2; k++) {
    p->stride[k] = px__list_at(stride, k), p->dilation[k] = px__list_at(dilation, k);
    p->pad_before[k] = px__list_at(padding, k);
    p->pad_after[k] = padding->n == 4 ? padding->v.ints[2 + k] : p->pad_before[k];
  }
  const int64_t *x = p->sizes[IMAGE], *w = p->sizes[WEIGHT], *y = p->sizes[RESULT];
  c->direct = (k_window){.n = x[0],
                         .c = x[1],
                         .h = x[2],
                         .w = x[3],
                         .kh = w[2],
                         .kw = w[3],
                         .oc = y[1],
                         .oh = y[2],
                         .ow = y[3],
                         .groups = groups};
  k_window *t = &c->direct;
  t->sh = p->stride[0], t->sw = p->stride[1], t->ph = p->pad_before[0], t->pw = p->pad_before[1];
  t->dh = p->dilation[0], t->dw = p->dilation[1];
}

// cuDNN's result gets its bias in a separate pass.
static px_status add_bias(const px_launch *l, const conv *c, void *result, void *bias) {
  k_window t = c->direct;
  int dtype = c->problem.dtype, each = c->problem.last ? 16 / (int)px__cuda_dtype_size(dtype) : 4;
  t.out = result, t.bias = bias;
  t.planes = t.n * t.oc;
  int64_t n = t.planes * t.oh * t.ow;
  return px__cuda_by_dtype(l, "window", c->problem.last ? "bias_last" : "bias", dtype,
                           blocks_of((n + each - 1) / each), K_BLOCK, &t);
}

static px_status convolve_directly(const px_launch *l, conv *c, void *const data[TENSORS],
                                   void *bias) {
  int kind = c->problem.kind, dtype = c->problem.dtype;
  int64_t n = px_operand_numel(c->operands[kinds[kind].out]);
  c->direct.out = data[kinds[kind].out], c->direct.in = data[kinds[kind].in];
  c->direct.weight = data[WEIGHT];
  c->direct.bias = kind == PX_CUDNN_WEIGHT ? data[IMAGE] : bias;
  return px__cuda_by_dtype(l, "window", kinds[kind].direct, dtype,
                           kind == PX_CUDNN_WEIGHT ? n : blocks_of(n), K_BLOCK, &c->direct);
}

// Convolves in one memory format. Without a library, only row-major.
static px_status convolve_format(const px_launch *l, conv *c, bool last, bool *done) {
  void *data[TENSORS], *bias;
  int dtype = c->problem.dtype, out = kinds[c->problem.kind].out;
  px__cuda_dense d = {.launch = l, .last = last};
  for (int i = 0; i < TENSORS; i++)
    data[i] = i == out ? px__cuda_dense_out(&d, c->operands[i], dtype)
                       : px__cuda_dense_in(&d, c->operands[i], dtype);
  bias = px__cuda_dense_in(&d, c->bias, dtype);
  PX_CUDA_PASS(d.status);
  c->problem.last = last;
  PX_CUDA_PASS(px__cudnn_convolve(l, &c->problem, data, done));
  if (!*done && last) return PX_OK;
  if (!*done) PX_CUDA_PASS(convolve_directly(l, c, data, bias));
  if (*done && bias) PX_CUDA_PASS(add_bias(l, c, data[RESULT], bias));
  *done = true;
  return px__cuda_dense_close(&d);
}
// float64 is always row-major: cuDNN's channels_last plans are slow or absent.
static px_status convolve(const px_launch *l, conv *c) {
  bool done = false, wide = c->problem.dtype == PX_FLOAT64;
  const px_operand *out = c->operands[kinds[c->problem.kind].out];
  if (!wide && px__cudnn_ready() && px__cuda_wants_last(out, c->operands, TENSORS))
    PX_CUDA_PASS(convolve_format(l, c, true, &done));
  return done ? PX_OK : convolve_format(l, c, false, &done);
}

PX_CUDA_KERNEL(conv2d) {
  conv c = {.problem = {.kind = PX_CUDNN_FORWARD, .dtype = args->out->dtype},
            .operands = {[IMAGE] = args->input, [WEIGHT] = args->weight, [RESULT] = args->out},
            .bias = args->bias};
  describe(&c, &args->stride, &args->padding, &args->dilation, args->groups);
  return convolve(l, &c);
}
PX_CUDA_KERNEL(conv2d_backward_input) {
  conv c = {
      .problem = {.kind = PX_CUDNN_IMAGE, .dtype = args->out->dtype},
      .operands = {[IMAGE] = args->out, [WEIGHT] = args->weight, [RESULT] = args->grad_output}};
  describe(&c, &args->stride, &args->padding, &args->dilation, args->groups);
  return convolve(l, &c);
}
PX_CUDA_KERNEL(conv2d_backward_weight) {
  conv c = {
      .problem = {.kind = PX_CUDNN_WEIGHT, .dtype = args->out->dtype},
      .operands = {[IMAGE] = args->input, [WEIGHT] = args->out, [RESULT] = args->grad_output}};
  describe(&c, &args->stride, &args->padding, &args->dilation, args->groups);
  return convolve(l, &c);
}
