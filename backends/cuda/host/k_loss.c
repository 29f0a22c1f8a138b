// SPDX-License-Identifier: Apache-2.0
// Host functions of loss.cu.
#include "cuda/host/kernel.h"

enum { MOST_BLOCKS = 1024 };

static int how_of(const px_launch *l, int i) {
  const char *text = l->params[i].v.text;
  return !strcmp(text, "none") ? K_EACH : !strcmp(text, "sum") ? K_SUM : K_MEAN;
}
static int64_t blocks_of(int64_t n) {
  int64_t blocks = (n + K_BLOCK - 1) / K_BLOCK;
  return blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
}

// ---- nll: the input is [C] or [N, C, positions...]
static void classes_of(k_rows *p, const px_operand *o) {
  p->outer = p->inner = 1;
  p->size = o->sizes[o->ndim == 1 ? 0 : 1];
  if (o->ndim > 1) p->outer = o->sizes[0];
  for (int i = 2; i < o->ndim; i++) p->inner *= o->sizes[i];
}
// nll_loss_forward(self, target, weight, reduction, ignore_index) -> output, total_weight
PX_CUDA_KERNEL(nll_loss_forward) {
  static const char spec[] = "wwrRr";
  const px_operand *o = l->operands;
  px__cuda_dense d[5];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, o[2].dtype));
  k_rows p = {.where = px__cuda_where(l),
              .out = {d[0].at, d[1].at},
              .in = {d[2].at, d[3].at, d[4].at},
              .how = how_of(l, 3),
              .ignore = px__param_int(l, 4),
              .dtype = o[3].dtype};
  classes_of(&p, &o[2]);
  p.chunks = blocks_of(p.outer * p.inner);
  if (p.chunks == 0) p.chunks = 1;
  if (p.how != K_EACH)
    PX_CUDA_PASS(px__cuda_scratch(l, (size_t)p.chunks * 2 * sizeof(double), &p.out[2]));
  PX_CUDA_PASS(px__cuda_by_dtype(l, "loss", "nll", o[2].dtype, p.chunks, K_BLOCK, &p));
  if (p.how != K_EACH)
    PX_CUDA_PASS(px__cuda_by_dtype(l, "loss", "nll_join", o[2].dtype, 1, K_BLOCK, &p));
  return px__cuda_close(d, l, spec);
}
// nll_loss_backward(grad_output, target, weight, total_weight, input_size, reduction, ignore_index)
PX_CUDA_KERNEL(nll_loss_backward) {
  static const char spec[] = "wrRrr";
  const px_operand *o = l->operands;
  px__cuda_dense d[5];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, o[0].dtype));
  k_rows p = {.where = px__cuda_where(l),
              .out = {d[0].at},
              .in = {d[1].at, d[2].at, d[3].at, d[4].at},
              .how = how_of(l, 5),
              .ignore = px__param_int(l, 6),
              .dtype = o[2].dtype};
  classes_of(&p, &o[0]);
  if (d[0].n == 0) return PX_OK;
  PX_CUDA_PASS(
      px__cuda_fill(l->stream, p.out[0], 0, (size_t)d[0].n * px__cuda_dtype_size(o[0].dtype)));
  PX_CUDA_PASS(px__cuda_by_dtype(l, "loss", "nll_backward", o[0].dtype,
                                 blocks_of(p.outer * p.inner), K_BLOCK, &p));
  return px__cuda_close(d, l, spec);
}

// ---- element-wise losses

static px_status forward(const px_launch *l, int what) {
  static const char spec[] = "wrr";
  int dtype = l->operands[0].dtype;
  px__cuda_dense d[3];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_rows p = {.out = {d[0].at},
              .in = {d[1].at, d[2].at},
              .size = d[1].n,
              .logs = what,
              .how = how_of(l, 2),
              .number = l->param_count > 3 ? px__param_float(l, 3) : 0};
  p.chunks = blocks_of(p.size);
  if (p.how != K_EACH)
    PX_CUDA_PASS(px__cuda_scratch(l, (size_t)(p.chunks + 1) * sizeof(double), &p.out[1]));
  PX_CUDA_PASS(px__cuda_by_dtype(l, "loss", "element", dtype, p.chunks, K_BLOCK, &p));
  if (p.how != K_EACH)
    PX_CUDA_PASS(px__cuda_by_dtype(l, "loss", "element_join", dtype, 1, K_BLOCK, &p));
  return px__cuda_close(d, l, spec);
}
static px_status backward(const px_launch *l, int what) {
  static const char spec[] = "wrrr";
  int dtype = l->operands[0].dtype;
  px__cuda_dense d[4];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_rows p = {.out = {d[0].at},
              .in = {d[1].at, d[2].at, d[3].at},
              .size = d[0].n,
              .outer = d[1].n,
              .logs = what,
              .how = how_of(l, 3),
              .number = l->param_count > 4 ? px__param_float(l, 4) : 0};
  PX_CUDA_PASS(
      px__cuda_by_dtype(l, "loss", "element_backward", dtype, blocks_of(p.size), K_BLOCK, &p));
  return px__cuda_close(d, l, spec);
}
PX_CUDA_KERNEL(mse_loss_forward) { return forward(l, K_MSE); }
PX_CUDA_KERNEL(mse_loss_backward) { return backward(l, K_MSE); }
PX_CUDA_KERNEL(smooth_l1_loss_forward) { return forward(l, K_SMOOTH); }
PX_CUDA_KERNEL(smooth_l1_loss_backward) { return backward(l, K_SMOOTH); }
PX_CUDA_KERNEL(huber_loss_forward) { return forward(l, K_HUBER); }
PX_CUDA_KERNEL(huber_loss_backward) { return backward(l, K_HUBER); }
PX_CUDA_KERNEL(binary_cross_entropy_forward) { return forward(l, K_BCE); }
PX_CUDA_KERNEL(binary_cross_entropy_backward) { return backward(l, K_BCE); }
PX_CUDA_KERNEL(bce_with_logits_forward) { return forward(l, K_LOGITS); }
PX_CUDA_KERNEL(bce_with_logits_backward) { return backward(l, K_LOGITS); }
