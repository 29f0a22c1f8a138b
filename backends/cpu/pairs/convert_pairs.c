// SPDX-License-Identifier: Apache-2.0
// One function per pair of dtypes, instantiated by tools/opgen, with a separate loop for contiguous
// arrays. Floats convert to integers through int64, as in C.
#include "cpu/vector/load_store.h"
#include "cpu/convert/convert.h"

#define PAIR(A, CELL_A, B, CELL_B, VALUE_B) \
  static void A##_from_##B(char *to, int64_t ts, const char *from, int64_t fs, int64_t n) { \
    if (ts == sizeof(CELL_A) && fs == sizeof(CELL_B)) { \
      CELL_A *restrict t = (CELL_A *)(void *)to; \
      const CELL_B *restrict f = (const CELL_B *)(const void *)from; \
      for (int64_t i = 0; i < n; i++) { \
        VALUE_B x = PX__LOAD_##B(f[i]); \
        t[i] = PX__STORE_##A(x); \
      } \
      return; \
    } \
    for (int64_t i = 0; i < n; i++) { \
      VALUE_B x = PX__LOAD_##B(*(const CELL_B *)(const void *)(from + i * fs)); \
      *(CELL_A *)(void *)(to + i * ts) = PX__STORE_##A(x); \
    } \
  }
#include "convert_pairs.inc"
