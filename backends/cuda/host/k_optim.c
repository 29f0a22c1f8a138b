// SPDX-License-Identifier: Apache-2.0
// Launches the updates of optimisers, whose kernels the generator writes (kernels_cuda_optim.cu).
#include "cuda/host/kernel.h"

px_status px__cuda_update(px__cuda_dense *d, k_update *u, const char *name,
                          const px_operand *param) {
  PX_CUDA_PASS(d->status);
  u->n = px_operand_numel(param);
  // A thread takes 16 bytes of each tensor, where all are aligned to them.
  int64_t each = 16 / (int64_t)px__cuda_dtype_size(param->dtype);
  u->vector = (uintptr_t)u->grad % 16 == 0;
  for (int i = 0; i < K_UPDATED; i++) u->vector &= (uintptr_t)u->at[i] % 16 == 0;
  int64_t threads = u->vector ? u->n / each + 1 : u->n;
  PX_CUDA_PASS(px__cuda_by_dtype(d->launch, "kernels_cuda_optim", name, param->dtype,
                                 (threads + K_BLOCK - 1) / K_BLOCK, K_BLOCK, u));
  return px__cuda_dense_close(d);
}

_Static_assert((int)K_LINE == (int)PX_NUMBERS_LINE && (int)K_LEFT_OUT == (int)PX_NUMBERS_LEFT_OUT &&
                   (int)K_UPDATE_NUMBERS == (int)PX_NUMBERS &&
                   (int)K_SCALARS == (int)PX_NUMBERS_SCALARS,
               "a line of numbers is that of phlox/backend.h");
px_status px__cuda_numbers(const px_launch *l, k_numbers *p, const char *name,
                           const px_operand *out, const px_operand *rate, const px_operand *found,
                           const px_operand *scalars) {
  px__cuda_dense d = {.launch = l};
  p->lines = (int32_t)out->sizes[0];
  p->out = px__cuda_dense_out(&d, out, PX_FLOAT64);
  p->rate = px__cuda_dense_in(&d, rate, PX_FLOAT64);
  p->found = px__cuda_dense_in(&d, found, PX_FLOAT32);
  for (int64_t i = 0; i < p->lines * p->each; i++)
    p->scalars[i] = px__cuda_dense_in(&d, &scalars[i], PX_FLOAT32);
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_over(l, "kernels_cuda_optim", name, p->lines, p));
  return px__cuda_dense_close(&d);
}
