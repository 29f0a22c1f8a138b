// SPDX-License-Identifier: Apache-2.0
// Host functions of amp.cu: gradient scaling in mixed precision.
#include "cuda/host/ops/kernel.h"
#include "kernel_args/amp.h"

PX_CUDA_KERNEL(_amp_unscale) {
  px__cuda_dense d = {.launch = l, .last = px__cuda_wants_last(args->scaled, NULL, 0)};
  k_amp p = {.grad = px__cuda_dense_inout(&d, args->scaled, args->scaled->dtype),
             .found = px__cuda_dense_inout(&d, args->found, PX_FLOAT32),
             .by = px__cuda_dense_in(&d, args->inv_scale, PX_FLOAT32),
             .n = px_operand_numel(args->grad)};
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_by_dtype(l, "amp", "unscale", args->scaled->dtype,
                                 (p.n + K_BLOCK - 1) / K_BLOCK, K_BLOCK, &p));
  return px__cuda_dense_close(&d);
}

PX_CUDA_KERNEL(_amp_update_scale) {
  px__cuda_dense d = {.launch = l};
  k_amp_scale p = {.scale = px__cuda_dense_inout(&d, args->scale, PX_FLOAT32),
                   .tracker = px__cuda_dense_inout(&d, args->tracker, PX_INT32),
                   .found = px__cuda_dense_in(&d, args->found_inf, PX_FLOAT32),
                   .growth = args->scale_growth_factor,
                   .backoff = args->scale_backoff_factor,
                   .interval = args->growth_interval};
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_over(l, "amp", "update_scale", 1, &p));
  return px__cuda_dense_close(&d);
}
