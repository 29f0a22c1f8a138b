// SPDX-License-Identifier: Apache-2.0
// Names in the error texts of checks.
#include "call/checks.h"

#include <stdio.h>
#include <stdlib.h>

// C type of an element in PyTorch's texts.
const char *px__ctype_of(px_value self) {
  const px_dtype_info *about = px_dtype_about(px__dtype_of(self));
  return about ? about->c_name : "bool";
}
// C type of an element in compilers' texts.
const char *px__cname_of(px_value self) {
  const px_dtype_info *about = px_dtype_about(px__dtype_of(self));
  return about ? about->type_name : "bool";
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
const char *px__python_text(char text[40], double x) {
  px__exact_text(text, x);
  bool integer = text[strspn(text, "-0123456789")] == '\0';
  size_t used = strlen(text);
  if (integer) snprintf(text + used, 40 - used, ".0");
  return text;
}
const char *px__braced_text(char text[136], px__sizes sizes) {
  int used = snprintf(text, 136, "{");
  for (int64_t i = 0; i < sizes.n && used < 100; i++)
    used += snprintf(text + used, (size_t)(136 - used), "%s%lld",
                     i == 1 ? ", "
                     : i    ? ","
                            : "",
                     (long long)sizes.at[i]);
  snprintf(text + used, (size_t)(136 - used), "}");
  return text;
}
const char *px__max_text(char text[32], px_dtype dtype) {
  snprintf(text, 32, "%g", px_dtype_about(dtype)->max);
  return text;
}
