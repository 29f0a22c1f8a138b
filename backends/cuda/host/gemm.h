// SPDX-License-Identifier: Apache-2.0
// Products of batches of matrices by cuBLAS, which is loaded at the first of them.
#pragma once
#include "cuda/host/cuda.h"

// A batch of matrices: `sizes` and `strides` (in elements) are those of batch, row and column.
typedef struct px__cuda_matrices {
  void *at;
  int64_t sizes[3], strides[3];
} px__cuda_matrices;

// c = alpha * a b + beta * s. Any strides will do: what cuBLAS cannot read or write as it lies goes
// through scratch memory. `s` has the sizes of c, with strides of 0 where it is broadcast; it is
// not looked at where beta is 0, may be c itself, and its `at` is NULL where there is none.
typedef struct px__cuda_product {
  px__cuda_matrices c, a, b, s;
  int dtype;
  double alpha, beta;
} px__cuda_product;
px_status px__cuda_multiply(const px_launch *l, px__cuda_product product);
