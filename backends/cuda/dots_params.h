// SPDX-License-Identifier: Apache-2.0
// What the host hands to the kernels of dots.cu: see params.h.
#pragma once
#include "cuda/params.h"

// Threads of a block, and its warps, `split` of which share a row.
enum { K_DOTS_BLOCK = 128, K_DOTS_WARPS = K_DOTS_BLOCK / 32 };

// out = alpha * (rows . vector) + beta * added, for `rows` rows of n elements in each of a batch:
// where each is, the strides of the batch, and from a row or result to the next.
typedef struct k_dotted {
  void *at;
  int64_t batch, step;
} k_dotted;
typedef struct k_dots {
  k_dotted matrix, vector, added, out;
  int64_t count, rows, n, blocks;  // blocks: of each of the batch
  int32_t split;
  double alpha, beta;  // 0: nothing is added
} k_dots;
