// SPDX-License-Identifier: Apache-2.0
// The number format of a printed tensor, chosen once for all its elements.
#pragma once
#include "tensor/tensor_impl.h"

typedef struct px__format {
  bool real;      // a floating dtype
  bool integral;  // every finite value is an integer: "1."
  bool sci;
  int precision, width;
} px__format;

// Chooses the format from the visible values, with a stride of `step` bytes.
px__format px__format_choose(const px_print_options *options, px_dtype dtype, const void *values,
                             int64_t count, size_t step);
// Appends one value, right-aligned.
void px__format_add(px__text *text, const px__format *format, px_scalar value);
// Appends an imaginary part after its real part: "+2.j".
void px__format_add_imaginary(px__text *text, const px__format *format, double value);
