// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels of dots.cu: see params.h.
#pragma once
#include "cuda/params.h"

// Threads and warps of a block; `split` warps share a row.
enum { K_DOTS_BLOCK = 128, K_DOTS_WARPS = K_DOTS_BLOCK / 32 };

// out = alpha * (rows . vector) + beta * added, for `rows` rows of n elements in each matrix of
// a batch. `batch` and `step` are the strides of the batch and of rows or results.
typedef struct k_dotted {
  void *at;
  int64_t batch, step;
} k_dotted;
typedef struct k_dots {
  k_dotted matrix, vector, added, out;
  int64_t count, rows, n, blocks;  // blocks: for each matrix
  int32_t split;
  double alpha, beta;  // beta 0: no addition
} k_dots;
