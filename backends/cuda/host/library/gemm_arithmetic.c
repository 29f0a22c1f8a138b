// SPDX-License-Identifier: Apache-2.0
// Arithmetic of matrix products by cuBLAS and cuBLASLt: dtypes, reductions, workspaces.
#include "cuda/host/library/gemm.h"

// Constants of cuBLAS's headers.
enum { COMPUTE_32F = 68, COMPUTE_64F = 70, COMPUTE_TF32 = 77 };

px__cuda_arithmetic px__cuda_arithmetic_of(int dtype) {
  switch (dtype) {
    case PX_FLOAT32:
      return (px__cuda_arithmetic){
          0, px__cuda_core->setting(PX_SETTING_MATMUL_TF32) ? COMPUTE_TF32 : COMPUTE_32F};
    case PX_FLOAT64:
      return (px__cuda_arithmetic){1, COMPUTE_64F};
    case PX_FLOAT16:
      return (px__cuda_arithmetic){2, COMPUTE_32F};
    case PX_BFLOAT16:
      return (px__cuda_arithmetic){14, COMPUTE_32F};
    case PX_COMPLEX64:
      return (px__cuda_arithmetic){
          4, px__cuda_core->setting(PX_SETTING_MATMUL_TF32) ? COMPUTE_TF32 : COMPUTE_32F};
    case PX_COMPLEX128:
      return (px__cuda_arithmetic){5, COMPUTE_64F};
    default:
      return (px__cuda_arithmetic){-1, 0};
  }
}

bool px__cuda_reduced_precision(int dtype) {
  if (dtype == PX_FLOAT16) return px__cuda_core->setting(PX_SETTING_MATMUL_FP16_REDUCTION);
  return dtype != PX_BFLOAT16 || px__cuda_core->setting(PX_SETTING_MATMUL_BF16_REDUCTION);
}

size_t px__cuda_workspace_size(const px_launch *l, const px__cuda_product *p) {
  if (p->c.sizes[1] * p->c.sizes[2] * p->a.sizes[2] <= 1 << 12) return 0;
  return (size_t)(px__cuda_devices[l->device].major >= 9 ? 32 : 4) << 20;
}
