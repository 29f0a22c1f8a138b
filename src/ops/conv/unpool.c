// SPDX-License-Identifier: Apache-2.0
// Run functions of max_unpool: sizes of the result, and checks of the indices.
#include "ops/conv/conv_impl.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"
#include "run_functions/volume.h"

#include <stdio.h>

#define LL(x) ((long long)(x))
enum { DIMS = 3 };

static const char *tuple_text(char text[128], int n, const int64_t *items) {
  px__sizes_text(text, 128, n, items);
  if (n != 1) *text = '(', text[strlen(text) - 1] = ')';
  if (n == 1) snprintf(text, 128, "(%lld,)", LL(items[0]));
  return text;
}
// True if sums of a few such numbers cannot overflow.
static bool is_safe(int64_t n) { return -INT64_MAX / 8 <= n && n <= INT64_MAX / 8; }
// The default unpooled sizes, or output_size if it differs by less than a stride.
static px_status unpool_sizes(int64_t *size, const px__max_unpool_args *args, int dims) {
  px_value requested = args->output_size,
           strides = px__given(args->stride) && args->stride.n ? args->stride : args->kernel_size;
  const int64_t *s = args->input->sizes + args->input->ndim - dims;
  char text[128];
  bool given = px__given(requested);
  int skipped = given && requested.n == dims + 2 ? 2 : 0;
  PX_CHECK(!given || requested.n == dims || skipped, PX_VALUE,
           "output_size should be a sequence containing %d or %d elements, but it has a length of "
           "'%d'",
           dims, dims + 2, requested.n);
  for (int k = 0; k < dims; k++) {
    int64_t step = px__int_at(strides, k), kernel = px__int_at(args->kernel_size, k);
    int64_t pad = px__int_at(args->padding, k), span;
    PX_CHECK(!px__mul_size(s[k] - 1, step, &span) && is_safe(span) && is_safe(step) &&
                 is_safe(kernel) && is_safe(pad),
             PX_RUNTIME, "integer out of range");
    int64_t default_size = span + kernel - 2 * pad;
    size[k] = given ? requested.v.ints[skipped + k] : default_size;
    PX_CHECK(!given || (default_size - step < size[k] && size[k] < default_size + step), PX_VALUE,
             "invalid output_size \"%s\" (dim %d must be between %lld and %lld)",
             tuple_text(text, requested.n, requested.v.ints), k, LL(default_size - step),
             LL(default_size + step));
    PX_CHECK(size[k] >= 0 && size[k] <= INT32_MAX, PX_RUNTIME,
             "max_unpool: output size %lld is out of range", LL(size[k]));
  }
  return PX_OK;
}
// Checks indices on the CPU. On devices the kernel reports errors.
static px_status check_indices(const px_tensor *indices, int64_t count, const int64_t *size,
                               int dims) {
  char text[128] = "";
  if (px__tensor_device(indices).type != PX_CPU) return PX_OK;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_TRY(px_contiguous(&flat, px__innermost_physical(indices)));
  const int64_t *at;
  PX_TRY(px__tensor_read(&at, flat));
  for (int k = 0; k < dims; k++)
    snprintf(text + strlen(text), sizeof text - strlen(text), k ? "x%lld" : "%lld", LL(size[k]));
  for (int64_t i = 0; i < flat->numel; i++)
    PX_CHECK(at[i] >= 0 && at[i] < count, PX_RUNTIME,
             "Found an invalid max index: %lld (output volumes are of size %s)", LL(at[i]), text);
  return PX_OK;
}
PX_RUN(max_unpool) {
  px_tensor *x = args->input;
  int dims = px__op_dims(call->op), lead = x->ndim - dims;
  int64_t size[DIMS], count = 1, sizes[PX_MAX_DIMS];
  PX_SCOPED(px_tensor) none = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) outputs = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  for (int i = 2; i < 5; i++) {
    px_value list = i == 2 ? args->kernel_size : i == 3 ? args->stride : args->padding;
    PX_CHECK(list.kind != PX_ARG_INTS || list.n == 1 || list.n == dims || (i == 3 && !list.n),
             PX_RUNTIME, "%s: expected kernel_size, stride and padding of 1 or %d integers",
             call->op->name, dims);
  }
  for (int k = 0; dims == DIMS && args->stride.n && k < DIMS; k++)
    PX_CHECK(px__int_at(args->stride, k) > 0, PX_RUNTIME,
             "strides should be greater than zero, but got stride: [%lld, %lld, %lld]",
             LL(px__int_at(args->stride, 0)), LL(px__int_at(args->stride, 1)),
             LL(px__int_at(args->stride, 2)));
  PX_TRY(unpool_sizes(size, args, dims));
  for (int k = 0; k < dims; k++)
    PX_CHECK(!px__mul_size(count, size[k], &count), PX_RUNTIME,
             "numel: integer multiplication overflow");
  memcpy(sizes, x->sizes, (size_t)lead * sizeof *sizes);
  sizes[lead] = count;
  PX_TRY(check_indices(args->indices, count, size, dims));
  PX_TRY(px__zeros_like_sized(&none, x, lead + 1, sizes));
  PX_TRY(px_flatten(&values, x, lead, -1));
  PX_TRY(px_flatten(&outputs, args->indices, lead, -1));
  PX_TRY(px_scatter(&result, none, -1, outputs, values));
  memcpy(sizes + lead, size, (size_t)dims * sizeof *sizes);
  return px_reshape(&call->results[0], result, sizes, x->ndim);
}
