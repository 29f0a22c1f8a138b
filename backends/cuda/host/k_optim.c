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
