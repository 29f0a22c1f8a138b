// SPDX-License-Identifier: Apache-2.0
// Rows of half formats that are worked on as floats, a few at a time in room of a thread's own: a
// float copy of the whole operand would be written and read once more.
#pragma once
#include "cpu/convert/convert.h"
#include "operands.h"

enum { PX__ROW_ROOM = 4096 };  // floats

// Whether both are of one half format and row-major, and rows of `size` fit the room.
static inline bool px__are_half_rows(const px_operand *a, const px_operand *b, int64_t size) {
  bool half = a->dtype == PX_FLOAT16 || a->dtype == PX_BFLOAT16;
  return half && a->dtype == b->dtype && size > 0 && size <= PX__ROW_ROOM &&
         px__operand_row_major(a) && px__operand_row_major(b);
}
// How many rows of `size` go at once.
static inline int64_t px__rows_in_room(int64_t size, int64_t left) {
  int64_t n = PX__ROW_ROOM / size;
  return n < left ? n : left;
}
// n elements from element `first` on.
static inline void px__rows_load(float *to, const void *from, int dtype, int64_t first, int64_t n) {
  px__cpu_convert(to, 4, PX_FLOAT32, (const uint16_t *)from + first, 2, dtype, n);
}
static inline void px__rows_store(void *to, int dtype, const float *from, int64_t first,
                                  int64_t n) {
  px__cpu_convert((uint16_t *)to + first, 2, dtype, from, 4, PX_FLOAT32, n);
}
