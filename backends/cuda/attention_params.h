// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels of attention.cu: see params.h.
#pragma once
#include "cuda/params.h"

// Threads of a tile kernel's block, and rows of the operand streamed past its tile at a time.
// Rows of the tile depend on the head width.
enum { K_ATTENTION_BLOCK = 128, K_STREAMED = 32 };
#define K_FORWARD_ROWS(width) ((width) > 64 ? 64 : 128)
enum { K_BACKWARD_ROWS = 64 };
// The maximum number of queries of a head that get one block each, and its threads.
enum { K_FEW = 15, K_FEW_BLOCK = 256 };

// Attention. Rows of heads have contiguous elements; strides of batch, head and row are in
// elements, and `at` is NULL for absent operands. `seed` keeps the key and offset of the random
// numbers.
typedef struct k_heads {
  void *at;
  int64_t strides[3];
} k_heads;
typedef struct k_attention {
  k_heads query, key, value, output, grad, grad_query, grad_key, grad_value;
  const void *mask;
  int64_t mask_strides[4];
  float *logsumexp, *sums;
  int64_t *seed;
  const uint64_t *state;  // graphs: see k_random
  uint64_t drawn_seed, drawn_offset;
  int32_t batch, heads, groups, length, key_length, width, value_width;
  int32_t causal, dtype, mask_dtype;  // the mask is bool, or has the dtype of a bias
  float scale, chance, factor;        // dropout: probability, and scale of kept weights
} k_attention;
// Dropout mask of attention weights: rows of n.
typedef struct k_kept {
  void *out;
  int64_t rows, n;
  const int64_t *seed;
  float chance;
} k_kept;
