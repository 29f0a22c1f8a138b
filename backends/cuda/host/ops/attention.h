// SPDX-License-Identifier: Apache-2.0
// Attention by kernels of the backend's own (kernels/attention.cu), for what cuDNN does not take.
#pragma once
#include "cuda/host/ops/kernel.h"
#include "kernel_args/attention.h"

// Why they do not take the operands, as px_backend.attention_refusal says it; NULL: they do.
const char *px__cuda_tiles_refusal(int device, const px_attention_call *c);
// The kernels tiled_attention and tiled_attention_backward; PX_UNIMPLEMENTED for what is refused.
px_status px__cuda_tiles_forward(const px_launch *l, const px__tiled_attention_kernel *args);
px_status px__cuda_tiles_backward(const px_launch *l,
                                  const px__tiled_attention_backward_kernel *args);
