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

// ---- codes of decompositions: int32 numbers of which those of failures are not 0

// Finds the first code of all samples that is not 0; *at is its index, -1 without a batch.
static px_status first_code(int64_t *at, int64_t *code, const px_tensor *info) {
  int32_t *copied = NULL;
  info = px__innermost_physical(info);
  *at = -1, *code = 0;
  px_device_type type = (px_device_type)px__tensor_device(info).type;
  if (type == PX_META || !info->numel) return PX_OK;
  bool on_cpu = type == PX_CPU;
  size_t bytes = (size_t)info->numel * sizeof *copied;
  if (!on_cpu) PX_TRY(px__alloc((void **)&copied, bytes));
  px_status status = on_cpu ? PX_OK : px_tensor_read(info, copied, bytes);
  const int32_t *codes = on_cpu ? px_tensor_data(info) : copied;
  for (int64_t i = 0; status == PX_OK && i < info->numel && !*code; i++)
    if (codes[i]) *code = codes[i], *at = info->ndim ? i : -1;
  px__free(copied);
  return status;
}
px_status px__code_of(int64_t *out, const px_tensor *info) {
  int64_t at;
  return first_code(&at, out, info);
}
const char *px__batch_text(char text[48], px_value info) {
  int64_t at, code;
  if (first_code(&at, &code, info.v.tensor) == PX_OK && at >= 0)
    snprintf(text, 48, "(Batch element %lld): ", (long long)at);
  return text;
}
