// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels of pivots.cu: see params.h.
#pragma once
#include "cuda/params.h"

// Pivots of `lines` matrices, `count` numbers from 1 to n each, and the output computed from them.
typedef struct k_exchanges {
  k_where where;
  int64_t lines;
  int32_t count, n, fault, parts;  // parts: reals an element; the first one is set to 1
  const int32_t *from;
  int32_t *to;
  void *out;
} k_exchanges;
// Writes the addresses of `count` matrices at a distance of `step` bytes.
typedef struct k_places {
  char *from;
  void **to;
  int64_t step, count;
} k_places;
