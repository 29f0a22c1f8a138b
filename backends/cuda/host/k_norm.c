// SPDX-License-Identifier: Apache-2.0
// Host functions of softmax.cu and norm.cu.
#include "cuda/host/kernel.h"

enum { CHUNK_ROWS = 64, MOST_CHUNKS = 256 };

// Threads of a row of n elements that lie in one piece: a warp, or the block.
static int lanes_of(int64_t n) {
  int lanes = 32;
  if (n > 1024) return K_BLOCK;
  while (lanes > 1 && n < lanes) lanes /= 2;
  return lanes;
}
static int64_t blocks_of(int64_t rows, int lanes) {
  int64_t each = K_BLOCK / lanes;
  return (rows + each - 1) / each;
}

// ---- softmax

static px_status softmax(const px_launch *l, bool logs, bool backward, int64_t dim) {
  const char *spec = backward ? "wrr" : "wr";
  int dtype = l->operands[0].dtype;
  px__cuda_dense d[3];
  k_rows p = {.logs = logs};
  px__cuda_around(&l->operands[0], dim, &p.outer, &p.size, &p.inner);
  if (p.outer * p.size * p.inner == 0) return PX_OK;
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  p.out[0] = d[0].at, p.in[0] = d[1].at, p.in[1] = backward ? d[2].at : NULL;
  p.lanes = lanes_of(p.size);
  int64_t grid = blocks_of(p.outer * p.inner, p.inner == 1 ? p.lanes : 1);
  PX_CUDA_PASS(px__cuda_by_dtype(l, "softmax", backward ? "softmax_backward" : "softmax", dtype,
                                 grid, K_BLOCK, &p));
  return px__cuda_close(d, l, spec);
}
PX_CUDA_KERNEL(softmax) { return softmax(l, false, false, px__cuda_int(l, 1)); }
PX_CUDA_KERNEL(log_softmax) { return softmax(l, true, false, px__cuda_int(l, 1)); }
PX_CUDA_KERNEL(softmax_backward) { return softmax(l, false, true, px__cuda_int(l, 2)); }
PX_CUDA_KERNEL(log_softmax_backward) { return softmax(l, true, true, px__cuda_int(l, 2)); }

// ---- layers

static int64_t row_length(const px_launch *l, int param) {
  int64_t n = 1;
  for (int i = 0; i < l->params[param].n; i++) n *= l->params[param].v.ints[i];
  return n;
}
// native_layer_norm(input, normalized_shape, weight, bias, eps) -> output, mean, rstd
PX_CUDA_KERNEL(native_layer_norm) {
  static const char spec[] = "wyyrrr";
  int dtype = l->operands[3].dtype;
  px__cuda_dense d[6];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_rows p = {.out = {d[0].at, d[1].at, d[2].at},
              .in = {d[3].at, d[4].at, d[5].at},
              .size = row_length(l, 1),
              .eps = px__cuda_float(l, 4)};
  p.outer = p.size ? d[3].n / p.size : 0, p.lanes = lanes_of(p.size);
  PX_CUDA_PASS(
      px__cuda_by_dtype(l, "norm", "layer", dtype, blocks_of(p.outer, p.lanes), K_BLOCK, &p));
  return px__cuda_close(d, l, spec);
}

// Gradients of weight and bias: sums over the rows.
static px_status layer_sums(const px_launch *l, k_rows *p, int dtype) {
  size_t item = px__cuda_dtype_size(px__cuda_compute(dtype));
  p->chunks = p->outer / CHUNK_ROWS + 1;
  if (p->chunks > MOST_CHUNKS) p->chunks = MOST_CHUNKS;
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)(p->chunks * 2 * p->size + 1) * item, &p->out[3]));
  PX_CUDA_PASS(px__cuda_by_dtype(l, "norm", "layer_partial", dtype, (p->size + 31) / 32 * p->chunks,
                                 K_BLOCK, p));
  return px__cuda_by_dtype(l, "norm", "layer_sums", dtype, (p->size + K_BLOCK - 1) / K_BLOCK,
                           K_BLOCK, p);
}
// _layer_norm_backward(grad, input, normalized_shape, mean, rstd, weight) -> input, weight, bias
PX_CUDA_KERNEL(layer_norm_backward) {
  static const char spec[] = "wwwrrxxr";
  int dtype = l->operands[4].dtype;
  px__cuda_dense d[8];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_rows p = {.out = {d[0].at, d[1].at, d[2].at},
              .in = {d[3].at, d[4].at, d[7].at, d[5].at, d[6].at},
              .size = row_length(l, 2)};
  p.outer = p.size ? d[4].n / p.size : 0, p.lanes = lanes_of(p.size);
  if (p.out[0])
    PX_CUDA_PASS(px__cuda_by_dtype(l, "norm", "layer_backward", dtype, blocks_of(p.outer, p.lanes),
                                   K_BLOCK, &p));
  if (p.size) PX_CUDA_PASS(layer_sums(l, &p, dtype));
  return px__cuda_close(d, l, spec);
}

// ---- batches

// _batch_norm(input, weight, bias, running_mean, running_var, training, eps)
//   -> output, save_mean, save_invstd, variance (unbiased)
PX_CUDA_KERNEL(native_batch_norm) {
  static const char spec[] = "wyyyrrrxx";
  int dtype = l->operands[4].dtype;
  px__cuda_dense d[9];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_rows p = {.out = {d[0].at, d[1].at, d[2].at, d[3].at},
              .in = {d[4].at, d[5].at, d[6].at, d[7].at, d[8].at},
              .training = px__cuda_int(l, 5) != 0,
              .eps = px__cuda_float(l, 6)};
  px__cuda_around(&l->operands[4], 1, &p.outer, &p.size, &p.inner);
  if (p.outer > 0 && p.inner > 0)
    PX_CUDA_PASS(px__cuda_by_dtype(l, "norm", "batch", dtype, p.size, 512, &p));
  return px__cuda_close(d, l, spec);
}
// _batch_norm_backward(grad, input, weight, running_mean, running_var, save_mean, save_invstd,
//   training, eps) -> input, weight, bias
PX_CUDA_KERNEL(batch_norm_backward) {
  static const char spec[] = "wwwrrrxxxx";
  int dtype = l->operands[4].dtype;
  px__cuda_dense d[10];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_rows p = {.out = {d[0].at, d[1].at, d[2].at},
              .in = {d[3].at, d[4].at, d[5].at, d[6].at, d[7].at, d[8].at, d[9].at},
              .training = px__cuda_int(l, 7) != 0,
              .eps = px__cuda_float(l, 8)};
  px__cuda_around(&l->operands[4], 1, &p.outer, &p.size, &p.inner);
  if (p.outer > 0 && p.inner > 0 && d[3].at)
    PX_CUDA_PASS(px__cuda_by_dtype(l, "norm", "batch_backward", dtype, p.size, 512, &p));
  return px__cuda_close(d, l, spec);
}
// running_average_(self, value, weight): self = (1 - weight) * self + weight * value
PX_CUDA_KERNEL(running_average) {
  static const char spec[] = "b-r";
  px__cuda_dense d[3];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, PX_FLOAT64));
  k_rows p = {.out = {d[0].at}, .in = {d[2].at}, .size = d[0].n, .number = px__cuda_float(l, 2)};
  PX_CUDA_PASS(px__cuda_over(l, "norm", "running_average", p.size, &p));
  return px__cuda_close(d, l, spec);
}
