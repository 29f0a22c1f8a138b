// SPDX-License-Identifier: Apache-2.0
// Host functions of optim.cu.
#include "cuda/host/kernel.h"

#include <math.h>

// A thread takes 16 bytes of each tensor, where all are aligned to them.
static px_status step(const px_launch *l, const char *name, int dtype, k_step *t) {
  const void *all[] = {t->param, t->grad, t->a, t->b, t->top};
  int64_t each = 16 / (int64_t)px__cuda_dtype_size(dtype);
  t->vector = 1;
  for (int i = 0; i < 5; i++) t->vector &= (uintptr_t)all[i] % 16 == 0;
  int64_t threads = t->vector ? t->n / each + 1 : t->n;
  return px__cuda_by_dtype(l, "optim", name, dtype, (threads + K_BLOCK - 1) / K_BLOCK, K_BLOCK, t);
}

PX_CUDA_KERNEL(sgd_step) {
  int dtype = args->new_param->dtype;
  px__cuda_dense d = {.launch = l};
  k_step t = {.param = px__cuda_dense_inout(&d, args->new_param, dtype),
              .a = px__cuda_dense_inout(&d, args->new_buffer, dtype),
              .grad = px__cuda_dense_in(&d, args->grad, dtype),
              .n = px__operand_numel(args->new_param),
              .lr = args->lr,
              .momentum = args->momentum,
              .fresh = 1 - args->dampening,
              .decay = args->weight_decay,
              .nesterov = args->nesterov,
              .maximize = args->maximize,
              .first = args->first};
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(step(l, "sgd", dtype, &t));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(adam_step) {
  int dtype = args->new_param->dtype;
  px__cuda_dense d = {.launch = l};
  k_step t = {.param = px__cuda_dense_inout(&d, args->new_param, dtype),
              .a = px__cuda_dense_inout(&d, args->new_avg, dtype),
              .b = px__cuda_dense_inout(&d, args->new_avg_sq, dtype),
              .top = px__cuda_dense_inout(&d, args->new_max, dtype),
              .grad = px__cuda_dense_in(&d, args->grad, dtype),
              .n = px__operand_numel(args->new_param),
              .lr = args->lr,
              .beta1 = args->beta1,
              .beta2 = args->beta2,
              .eps = args->eps,
              .decay = args->weight_decay,
              .decoupled = args->decoupled,
              .maximize = args->maximize};
  PX_CUDA_PASS(d.status);
  t.size = t.lr / (1 - pow(t.beta1, (double)args->step));
  t.root = sqrt(1 - pow(t.beta2, (double)args->step));
  t.keep = t.decoupled ? 1 - t.lr * t.decay : 1;
  PX_CUDA_PASS(step(l, "adam", dtype, &t));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(adadelta_step) {
  int dtype = args->new_param->dtype;
  px__cuda_dense d = {.launch = l};
  k_step t = {.param = px__cuda_dense_inout(&d, args->new_param, dtype),
              .a = px__cuda_dense_inout(&d, args->new_square_avg, dtype),
              .b = px__cuda_dense_inout(&d, args->new_acc_delta, dtype),
              .grad = px__cuda_dense_in(&d, args->grad, dtype),
              .n = px__operand_numel(args->new_param),
              .lr = args->lr,
              .beta1 = args->rho,
              .eps = args->eps,
              .decay = args->weight_decay,
              .maximize = args->maximize};
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(
      px__cuda_by_dtype(l, "optim", "adadelta", dtype, (t.n + K_BLOCK - 1) / K_BLOCK, K_BLOCK, &t));
  return px__cuda_dense_close(&d);
}
