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

// sgd_step(param, grad, momentum_buffer, lr, momentum, dampening, weight_decay, nesterov, maximize,
//   first) -> param, buffer
PX_CUDA_KERNEL(sgd_step) {
  static const char spec[] = "bb-r-";
  int dtype = l->operands[0].dtype;
  px__cuda_dense d[5];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_step t = {.param = d[0].at,
              .a = d[1].at,
              .grad = d[3].at,
              .n = d[0].n,
              .lr = px__param_float(l, 3),
              .momentum = px__param_float(l, 4),
              .fresh = 1 - px__param_float(l, 5),
              .decay = px__param_float(l, 6),
              .nesterov = px__param_int(l, 7) != 0,
              .maximize = px__param_int(l, 8) != 0,
              .first = px__param_int(l, 9) != 0};
  PX_CUDA_PASS(step(l, "sgd", dtype, &t));
  return px__cuda_close(d, l, spec);
}
// adam_step(param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, lr, beta1, beta2, eps, weight_decay,
//   step, decoupled, maximize) -> param, exp_avg, exp_avg_sq, max_exp_avg_sq
PX_CUDA_KERNEL(adam_step) {
  static const char spec[] = "bbbb-r---";
  int dtype = l->operands[0].dtype;
  px__cuda_dense d[9];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_step t = {.param = d[0].at,
              .a = d[1].at,
              .b = d[2].at,
              .top = d[3].at,
              .grad = d[5].at,
              .n = d[0].n,
              .lr = px__param_float(l, 5),
              .beta1 = px__param_float(l, 6),
              .beta2 = px__param_float(l, 7),
              .eps = px__param_float(l, 8),
              .decay = px__param_float(l, 9),
              .decoupled = px__param_int(l, 11) != 0,
              .maximize = px__param_int(l, 12) != 0};
  double steps = (double)px__param_int(l, 10);
  t.size = t.lr / (1 - pow(t.beta1, steps));
  t.root = sqrt(1 - pow(t.beta2, steps));
  t.keep = t.decoupled ? 1 - t.lr * t.decay : 1;
  PX_CUDA_PASS(step(l, "adam", dtype, &t));
  return px__cuda_close(d, l, spec);
}
// adadelta_step(param, grad, square_avg, acc_delta, lr, rho, eps, weight_decay, maximize)
//   -> param, square_avg, acc_delta
PX_CUDA_KERNEL(adadelta_step) {
  static const char spec[] = "bbb-r--";
  int dtype = l->operands[0].dtype;
  px__cuda_dense d[7];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_step t = {.param = d[0].at,
              .a = d[1].at,
              .b = d[2].at,
              .grad = d[4].at,
              .n = d[0].n,
              .lr = px__param_float(l, 4),
              .beta1 = px__param_float(l, 5),
              .eps = px__param_float(l, 6),
              .decay = px__param_float(l, 7),
              .maximize = px__param_int(l, 8) != 0};
  PX_CUDA_PASS(
      px__cuda_by_dtype(l, "optim", "adadelta", dtype, (t.n + K_BLOCK - 1) / K_BLOCK, K_BLOCK, &t));
  return px__cuda_close(d, l, spec);
}
