// SPDX-License-Identifier: Apache-2.0
// How the numbers of one printed tensor look: chosen once for all of them.
#pragma once
#include "tensor/tensor_impl.h"

typedef struct px__format {
  bool real;      // a floating dtype
  bool integral;  // every finite value is a whole number: "1."
  bool sci;
  int precision, width;
} px__format;

// Chooses from the values that will be shown, which lie `step` bytes apart.
px__format px__format_choose(const px_print_options *options, px_dtype dtype, const void *values,
                             int64_t count, size_t step);
// Appends one value, right-aligned.
void px__format_add(px__text *text, const px__format *format, px_scalar value);
// Appends an imaginary part behind its real one: "+2.j".
void px__format_add_imaginary(px__text *text, const px__format *format, double value);
