// SPDX-License-Identifier: Apache-2.0
// Host functions of loss.cu.
#include "cuda/host/ops/kernel.h"
#include "kernel_args/loss.h"

enum { MAX_BLOCKS = 1024 };

static int how_of(const char *reduction) {
  return !strcmp(reduction, "none") ? K_EACH : !strcmp(reduction, "sum") ? K_SUM : K_MEAN;
}
static int64_t blocks_of(int64_t n) {
  int64_t blocks = (n + K_BLOCK - 1) / K_BLOCK;
  return blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS;
}

// ---- nll: the input is [C] or [N, C, positions...]
static void classes_of(k_rows *p, const px_operand *o) {
  p->outer = p->inner = 1;
  p->size = o->sizes[o->ndim == 1 ? 0 : 1];
  if (o->ndim > 1) p->outer = o->sizes[0];
  for (int i = 2; i < o->ndim; i++) p->inner *= o->sizes[i];
}
PX_CUDA_KERNEL(nll_loss_forward) {
  int dtype = args->self->dtype;
  px__cuda_dense d = {.launch = l};
  k_rows p = {.where = px__cuda_where(l),
              .result = px__cuda_dense_out(&d, args->output, dtype),
              .total_weight = px__cuda_dense_out(&d, args->total_weight, dtype),
              .input = px__cuda_dense_in(&d, args->self, dtype),
              .target = px__cuda_dense_in(&d, args->target, args->target->dtype),
              .weight = px__cuda_dense_in(&d, args->weight, dtype),
              .how = how_of(args->reduction),
              .ignore = args->ignore_index,
              .dtype = args->target->dtype};
  PX_CUDA_PASS(d.status);
  classes_of(&p, args->self);
  p.chunks = blocks_of(p.outer * p.inner);
  if (p.chunks == 0) p.chunks = 1;
  if (p.how != K_EACH)
    PX_CUDA_PASS(px__cuda_scratch(l, (size_t)p.chunks * 2 * sizeof(double), &p.partial));
  PX_CUDA_PASS(px__cuda_by_dtype(l, "loss", "nll", dtype, p.chunks, K_BLOCK, &p));
  if (p.how != K_EACH)
    PX_CUDA_PASS(px__cuda_by_dtype(l, "loss", "nll_join", dtype, 1, K_BLOCK, &p));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(nll_loss_backward) {
  int dtype = args->out->dtype;
  int64_t n = px_operand_numel(args->out);
  px__cuda_dense d = {.launch = l};
  k_rows p = {.where = px__cuda_where(l),
              .result = px__cuda_dense_out(&d, args->out, dtype),
              .grad = px__cuda_dense_in(&d, args->grad_output, dtype),
              .target = px__cuda_dense_in(&d, args->target, args->target->dtype),
              .weight = px__cuda_dense_in(&d, args->weight, dtype),
              .total_weight = px__cuda_dense_in(&d, args->total_weight, dtype),
              .how = how_of(args->reduction),
              .ignore = args->ignore_index,
              .dtype = args->target->dtype};
  PX_CUDA_PASS(d.status);
  classes_of(&p, args->out);
  if (n == 0) return PX_OK;
  PX_CUDA_PASS(px__cuda_fill(l->stream, p.result, 0, (size_t)n * px__cuda_dtype_size(dtype)));
  PX_CUDA_PASS(px__cuda_by_dtype(l, "loss", "nll_backward", dtype, blocks_of(p.outer * p.inner),
                                 K_BLOCK, &p));
  return px__cuda_dense_close(&d);
}

// ---- rows of classes (softmax.cu)

// One block per row; its size grows with the row, so that each thread has several elements. Vector
// loads require equal alignment of both tensors.
static px_status class_rows(const px_launch *l, k_rows *p, const char *name,
                            const px_operand *input) {
  p->outer = input->sizes[0], p->size = input->sizes[1];
  if (p->outer * p->size == 0) return PX_OK;
  p->vector = ((uintptr_t)p->input - (uintptr_t)p->result) % 16 == 0 || !p->grad;
  unsigned block = p->size >= 8192 ? 1024 : p->size >= 1024 ? 256 : 64;
  return px__cuda_by_dtype(l, "softmax", name, input->dtype, p->outer, block, p);
}
PX_CUDA_KERNEL(class_losses) {
  int dtype = args->input->dtype, compute = px__compute_of(dtype);
  px__cuda_dense d = {.launch = l};
  k_rows p = {.where = px__cuda_where(l),
              .result = px__cuda_dense_out(&d, args->losses, compute),
              .logsumexp = px__cuda_dense_out(&d, args->logsumexp, compute),
              .input = px__cuda_dense_in(&d, args->input, dtype),
              .target = px__cuda_dense_in(&d, args->target, PX_INT64),
              .ignore = args->ignore_index};
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(class_rows(l, &p, "class_losses", args->input));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(class_losses_backward) {
  int dtype = args->input->dtype, compute = px__compute_of(dtype);
  px__cuda_dense d = {.launch = l};
  k_rows p = {.where = px__cuda_where(l),
              .result = px__cuda_dense_out(&d, args->out, dtype),
              .grad = px__cuda_dense_in(&d, args->grad_losses, compute),
              .input = px__cuda_dense_in(&d, args->input, dtype),
              .target = px__cuda_dense_in(&d, args->target, PX_INT64),
              .logsumexp = px__cuda_dense_in(&d, args->logsumexp, compute),
              .ignore = args->ignore_index};
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(class_rows(l, &p, "class_losses_backward", args->input));
  return px__cuda_dense_close(&d);
}

// ---- element-wise losses

// `number` is the loss's parameter, if any.
static px_status forward(const px_launch *l, int what, const px_operand *out,
                         const px_operand *self, const px_operand *target, int how, double number) {
  int dtype = out->dtype;
  px__cuda_dense d = {.launch = l};
  k_rows p = {.where = px__cuda_where(l),
              .result = px__cuda_dense_out(&d, out, dtype),
              .input = px__cuda_dense_in(&d, self, dtype),
              .target = px__cuda_dense_in(&d, target, dtype),
              .size = px_operand_numel(self),
              .logs = what,
              .how = how,
              .number = number};
  PX_CUDA_PASS(d.status);
  p.chunks = blocks_of(p.size);
  if (p.how != K_EACH)
    PX_CUDA_PASS(px__cuda_scratch(l, (size_t)(p.chunks + 1) * sizeof(double), &p.partial));
  PX_CUDA_PASS(px__cuda_by_dtype(l, "loss", "element", dtype, p.chunks, K_BLOCK, &p));
  if (p.how != K_EACH)
    PX_CUDA_PASS(px__cuda_by_dtype(l, "loss", "element_join", dtype, 1, K_BLOCK, &p));
  return px__cuda_dense_close(&d);
}
static px_status backward(const px_launch *l, int what, const px_operand *out,
                          const px_operand *grad, const px_operand *self, const px_operand *target,
                          int how, double number) {
  int dtype = out->dtype;
  px__cuda_dense d = {.launch = l};
  k_rows p = {.result = px__cuda_dense_out(&d, out, dtype),
              .grad = px__cuda_dense_in(&d, grad, dtype),
              .input = px__cuda_dense_in(&d, self, dtype),
              .target = px__cuda_dense_in(&d, target, dtype),
              .size = px_operand_numel(out),
              .outer = px_operand_numel(grad),
              .logs = what,
              .how = how,
              .number = number};
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(
      px__cuda_by_dtype(l, "loss", "element_backward", dtype, blocks_of(p.size), K_BLOCK, &p));
  return px__cuda_dense_close(&d);
}
#define LOSS(name, what, number) \
  PX_CUDA_KERNEL(name##_forward) { \
    return forward(l, what, args->out, args->self, args->target, how_of(args->reduction), number); \
  } \
  PX_CUDA_KERNEL(name##_backward) { \
    return backward(l, what, args->out, args->grad_output, args->self, args->target, \
                    how_of(args->reduction), number); \
  }
LOSS(mse_loss, K_MSE, 0)
LOSS(smooth_l1_loss, K_SMOOTH, args->beta)
LOSS(huber_loss, K_HUBER, args->delta)
LOSS(binary_cross_entropy, K_BCE, 0)
LOSS(bce_with_logits, K_LOGITS, 0)
