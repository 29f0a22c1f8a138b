// SPDX-License-Identifier: Apache-2.0
// Run functions of max_unpool: sizes of the result, and checks of the indices.
#include "formulas.h"
#include "ops/conv/conv_impl.h"
#include "phlox/ops/copy.h"
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
static px_value strides_of(const px__max_unpool_args *args) {
  return px__given(args->stride) && args->stride.n ? args->stride : args->kernel_size;
}
// The default size of dimension k.
static px_status default_size(int64_t *size, const px__max_unpool_args *args, int dims, int k) {
  int64_t step = px__int_at(strides_of(args), k), kernel = px__int_at(args->kernel_size, k);
  int64_t pad = px__int_at(args->padding, k), span;
  int64_t in = args->input->sizes[args->input->ndim - dims + k];
  PX_CHECK(!px__mul_size(in - 1, step, &span) && is_safe(span) && is_safe(step) &&
               is_safe(kernel) && is_safe(pad),
           PX_RUNTIME, "integer out of range");
  *size = span + kernel - 2 * pad;
  return PX_OK;
}
// Checks that output_size differs from the default by less than a stride.
static px_status check_size(const px__max_unpool_args *args, int k, int64_t size,
                            int64_t default_size) {
  int64_t step = px__int_at(strides_of(args), k);
  px_value requested = args->output_size;
  char text[128];
  PX_CHECK(default_size - step < size && size < default_size + step, PX_VALUE,
           "invalid output_size \"%s\" (dim %d must be between %lld and %lld)",
           tuple_text(text, requested.n, requested.v.ints), k, LL(default_size - step),
           LL(default_size + step));
  return PX_OK;
}
// The unpooled sizes.
static px_status unpool_sizes(int64_t *size, const px__max_unpool_args *args, int dims) {
  px_value requested = args->output_size;
  bool given = px__given(requested);
  int skipped = given && requested.n == dims + 2 ? 2 : 0;
  PX_CHECK(!given || requested.n == dims || skipped, PX_VALUE,
           "output_size should be a sequence containing %d or %d elements, but it has a length of "
           "'%d'",
           dims, dims + 2, requested.n);
  for (int k = 0; k < dims; k++) {
    int64_t by_default = 0;
    PX_TRY(default_size(&by_default, args, dims, k));
    size[k] = given ? requested.v.ints[skipped + k] : by_default;
    if (given) PX_TRY(check_size(args, k, size[k], by_default));
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
static px_status check_lists(const px_call *call, const px__max_unpool_args *args, int dims) {
  const px_value lists[] = {args->kernel_size, args->stride, args->padding};
  for (int i = 0; i < 3; i++)
    PX_CHECK(lists[i].kind != PX_ARG_INTS || lists[i].n == 1 || lists[i].n == dims ||
                 (i == 1 && !lists[i].n),
             PX_RUNTIME, "%s: expected kernel_size, stride and padding of 1 or %d integers",
             call->op->name, dims);
  for (int k = 0; dims == DIMS && args->stride.n && k < DIMS; k++)
    PX_CHECK(px__int_at(args->stride, k) > 0, PX_RUNTIME,
             "strides should be greater than zero, but got stride: [%lld, %lld, %lld]",
             LL(px__int_at(args->stride, 0)), LL(px__int_at(args->stride, 1)),
             LL(px__int_at(args->stride, 2)));
  return PX_OK;
}
PX_RUN(max_unpool) {
  int dims = px__op_dims(call->op);
  int64_t size[DIMS], count = 1;
  PX_TRY(check_lists(call, args, dims));
  PX_TRY(unpool_sizes(size, args, dims));
  for (int k = 0; k < dims; k++)
    PX_CHECK(!px__mul_size(count, size[k], &count), PX_RUNTIME,
             "numel: integer multiplication overflow");
  PX_TRY(check_indices(args->indices, count, size, dims));
  const px_value given[] = {PX_T(args->input), PX_T(args->indices), PX_I(dims), PX_I(count),
                            PX_IS(size, dims)};
  return px__formula_unpooled(call->results, given);
}
