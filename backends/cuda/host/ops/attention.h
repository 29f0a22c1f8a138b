// SPDX-License-Identifier: Apache-2.0
// Attention by the backend's own kernels (kernels/attention.cu), for calls unsupported by cuDNN.
#pragma once
#include "cuda/host/ops/kernel.h"
#include "kernel_args/attention.h"

// Returns the reason for not supporting the operands, as px_backend.attention_refusal does; NULL if
// supported.
const char *px__cuda_tiles_refusal(int device, const px_attention_call *c);
// Kernels tiled_attention and tiled_attention_backward; PX_UNIMPLEMENTED if unsupported.
px_status px__cuda_tiles_forward(const px_launch *l, const px__tiled_attention_kernel *args);
px_status px__cuda_tiles_backward(const px_launch *l,
                                  const px__tiled_attention_backward_kernel *args);
