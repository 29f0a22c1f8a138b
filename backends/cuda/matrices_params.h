// SPDX-License-Identifier: Apache-2.0
// What the host hands to the kernels of matrices.cu: see params.h.
#pragma once
#include "cuda/params.h"

// Exchanges of rows: `count` numbers from 1 to n for each of `lines` matrices, and what is made of
// them.
typedef struct k_exchanges {
  k_where where;
  int64_t lines;
  int32_t count, n, fault, parts;  // parts: numbers of an element, the first of which is 1
  const int32_t *from;
  int32_t *to;
  void *out;
} k_exchanges;
// Where each of `count` matrices begins, which lie `step` bytes apart.
typedef struct k_places {
  char *from;
  void **to;
  int64_t step, count;
} k_places;
