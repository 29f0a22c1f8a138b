// SPDX-License-Identifier: Apache-2.0
// Names that the texts of checks have.
#include "call/checks.h"

#include <stdio.h>
#include <stdlib.h>

// The C type of an element, as PyTorch's texts name it.
const char *px__ctype_of(px_value self) {
  static const char *const names[PX_DTYPE_COUNT] = {
      [PX_UINT8] = "uint8_t",         [PX_INT8] = "int8_t",
      [PX_INT16] = "int16_t",         [PX_INT32] = "int",
      [PX_INT64] = "int64_t",         [PX_FLOAT16] = "at::Half",
      [PX_BFLOAT16] = "at::BFloat16", [PX_FLOAT32] = "float",
      [PX_FLOAT64] = "double"};
  px_dtype dtype = px__dtype_of(self);
  return (unsigned)dtype < PX_DTYPE_COUNT && names[dtype] ? names[dtype] : "bool";
}

const char *px__numbers_text(char text[128], px__sizes sizes) {
  px__sizes_text(text, 128, sizes.n, sizes.at);
  size_t length = strlen(text);
  if (length && text[length - 1] == ']') text[length - 1] = '\0';
  return text + 1;
}

const char *px__exact_text(char text[32], double x) {
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, 32, "%.*g", digits, x);
    if (strtod(text, NULL) == x) break;
  }
  return text;
}
