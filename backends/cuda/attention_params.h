// SPDX-License-Identifier: Apache-2.0
// What the host hands to the kernels of attention.cu: see params.h.
#pragma once
#include "cuda/params.h"

// The block of a tile kernel; rows of its tile by width of heads, and those that pass by at a time.
enum { K_ATTENTION_BLOCK = 128, K_PASSING = 32 };
#define K_FORWARD_ROWS(width) ((width) > 64 ? 64 : 128)
enum { K_BACKWARD_ROWS = 64 };
// Up to as many queries of a head have a block each, of so many threads.
enum { K_FEW = 15, K_FEW_BLOCK = 256 };

// Attention: rows of heads, whose elements are next to each other (strides of batch, head and row,
// in elements), and what else a pass reads and writes; `at` is NULL where there is none. The key
// and the offset of random numbers are kept in `seed`.
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
  const uint64_t *state;  // of a graph: see k_random
  uint64_t drawn_seed, drawn_offset;
  int32_t batch, heads, groups, length, places, width, value_width;
  int32_t causal, dtype, mask_dtype;  // of the mask: bool, or of what is added
  float scale, chance, factor;        // of dropout: the chance, and what is kept is multiplied with
} k_attention;
// Which weights dropout keeps: rows of n.
typedef struct k_kept {
  void *out;
  int64_t rows, n;
  const int64_t *seed;
  float chance;
} k_kept;
