// SPDX-License-Identifier: Apache-2.0
// fp16 and bf16 rows computed in float, a few at a time in per-thread scratch. A float copy of the
// whole operand would cost another write and read of memory.
#pragma once
#include "cpu/convert/convert.h"
#include "operands.h"

enum { PX__ROW_SCRATCH = 4096 };  // floats

// True if both are row-major with the same half-precision dtype, and rows of `size` fit the
// scratch.
static inline bool px__are_half_rows(const px_operand *a, const px_operand *b, int64_t size) {
  bool half = a->dtype == PX_FLOAT16 || a->dtype == PX_BFLOAT16;
  return half && a->dtype == b->dtype && size > 0 && size <= PX__ROW_SCRATCH &&
         px__operand_row_major(a) && px__operand_row_major(b);
}
// Number of rows of `size` per scratch buffer, at most `left`.
static inline int64_t px__rows_in_scratch(int64_t size, int64_t left) {
  int64_t n = PX__ROW_SCRATCH / size;
  return n < left ? n : left;
}
// Convert n elements starting at element `first`.
static inline void px__rows_load(float *to, const void *from, int dtype, int64_t first, int64_t n) {
  px__cpu_convert(to, 4, PX_FLOAT32, (const uint16_t *)from + first, 2, dtype, n);
}
static inline void px__rows_store(void *to, int dtype, const float *from, int64_t first,
                                  int64_t n) {
  px__cpu_convert((uint16_t *)to + first, 2, dtype, from, 4, PX_FLOAT32, n);
}
