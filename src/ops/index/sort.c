// SPDX-License-Identifier: Apache-2.0
// Run functions of sorting, binary search and membership, which promote dtypes as PyTorch does.
#include <string.h>

#include "formulas.h"
#include "hidden/sort.h"
#include "ops/core/run.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/sort.h"
#include "run_functions/sort.h"

static px__named_kernel sorted_kernel = {.name = "sorted"};
px_status px__sorted_values(px_tensor **out, const px_tensor *self, int64_t dim) {
  PX_SCOPED(px_tensor) indices = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  px_device device = px__tensor_device(self);
  int at;
  PX_TRY(px__wrap_dim(&at, dim, self->ndim));
  bool plain =
      !px__needs_grad(self) && !px__is_batched(self) && !(px__flags(self) & PX_TENSOR_CONJ_NEG);
  if (!plain || self->dtype >= PX_DTYPE_COMPUTED || !self->numel ||
      !px__named_kernel_on(&sorted_kernel, (px_device_type)device.type))
    return px_sort(out, &indices, self, dim, false, true);
  PX_TRY(px__empty_as(&values, self, (px_dtype)self->dtype, device));
  PX_TRY(px__run_kernel(&sorted_kernel, device, 1, &values, 1, (px_tensor *[]){(px_tensor *)self},
                        (px_value[]){PX_I(at)}, 1));
  return *out = PX_MOVE(values), PX_OK;
}
px_status px__resize_reduced(px_call *call, const px_tensor *self, int64_t dim, bool keepdim) {
  int64_t kept[PX_MAX_DIMS], reduced[PX_MAX_DIMS];
  int at, n = self->ndim;
  if (call->mode != PX_CALL_OUT || n == 0 || keepdim) return PX_OK;
  PX_TRY(px__call_same_device(call));
  PX_TRY(px__check_not_batched(self));
  PX_TRY(px__wrap_dim(&at, dim, n));
  px__sizes_copy(kept, self->sizes, n);
  kept[at] = 1;
  for (int d = 0; d + 1 < n; d++) reduced[d] = self->sizes[d + (d >= at)];
  for (int i = 0; i < call->op->result_count; i++) {
    px_tensor *given = call->given[i];
    if (!given || given->ndim == n - 1) continue;
    PX_TRY(px__resize_output(given, n, kept));
    PX_TRY(px_tensor_resize(given, n - 1, reduced));
  }
  return PX_OK;
}
PX_RUN(kthvalue_out) {
  px_dtype dtype = (px_dtype)args->self->dtype;
  PX_TRY(px__check_dtype(call->op, dtype, px__tensor_device(args->self)));
  PX_TRY(px__call_check_outs(call, (px_dtype[]){dtype, PX_INT64}));
  return px__resize_reduced(call, args->self, args->dim, args->keepdim);
}

// ---- binary search

// Converts both tensors to the promoted dtype, on the device of the first.
static px_status promote_both(px_tensor **a, px_tensor **b, const px_tensor *first,
                              const px_tensor *second) {
  px_dtype one = (px_dtype)first->dtype, other = (px_dtype)second->dtype;
  bool number = px__flags(second) & PX_TENSOR_WRAPPED, fits = !px_dtype_is_float(other);
  px_dtype dtype = one;
  if (!number || (!fits && !px_dtype_is_float(one)))
    PX_TRY(px_dtype_promote_or_fail(&dtype, one, other));
  PX_TRY(px__tensor_to(a, first, dtype, PX_DEVICE_NONE));
  return px__tensor_to(b, second, dtype, px__tensor_device(first));
}
static px_status search(px_tensor **out, const px_tensor *sorted, const px_tensor *values,
                        bool right, bool small) {
  PX_SCOPED(px_tensor) boundaries = NULL;
  PX_SCOPED(px_tensor) targets = NULL;
  PX_TRY(promote_both(&boundaries, &targets, sorted, values));
  return px__formula_searched(
      out, (px_value[]){PX_T(boundaries), PX_T(targets), PX_B(right), PX_B(small)});
}
static px_status check_out(const px_call *call, bool small) {
  if (call->mode != PX_CALL_OUT || call->given[0]->dtype == (small ? PX_INT32 : PX_INT64))
    return PX_OK;
  PX_FAIL(PX_RUNTIME,
          "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or "
          "Long(int64) depending on whether out_int32 flag is True, but we got output tensor's "
          "dtype %s and out_int32 flag is %s",
          px_dtype_class((px_dtype)call->given[0]->dtype), small ? "True" : "False");
}
PX_RUN(searchsorted) {
  PX_SCOPED(px_tensor) ordered = NULL;
  const px_tensor *sorted = args->sorted_sequence;
  bool right = args->right || (args->side && !strcmp(args->side, "right"));
  PX_TRY(check_out(call, args->out_int32));
  PX_TRY(px__call_same_device(call));
  if (args->sorter) {
    PX_TRY(px_pick_along(&ordered, sorted, args->sorter, -1));
    sorted = ordered;
  }
  return search(&call->results[0], sorted, args->input, right, args->out_int32);
}
PX_RUN(bucketize) {
  PX_TRY(check_out(call, args->out_int32));
  PX_TRY(px__call_same_device(call));
  return search(&call->results[0], args->boundaries, args->input, args->right, args->out_int32);
}
// ---- membership

static px_status map_unsigned(px_tensor **t) {
  PX_SCOPED(px_tensor) given = *t;
  if (!px__is_unsigned((px_dtype)given->dtype)) return given = NULL, PX_OK;
  *t = NULL;
  return px__to_ordered(t, given);
}

static px_status is_member(px_tensor **out, const px_tensor *given, const px_tensor *tests,
                           bool invert) {
  PX_SCOPED(px_tensor) elements = NULL;
  PX_SCOPED(px_tensor) others = NULL;
  PX_TRY(promote_both(&elements, &others, given, tests));
  PX_TRY(map_unsigned(&elements));
  PX_TRY(map_unsigned(&others));
  return px__formula_members_of(out, (px_value[]){PX_T(elements), PX_T(others), PX_B(invert)});
}
PX_RUN(isin) {
  const px_tensor *elements = args->elements, *tests = args->test_elements;
  PX_TRY(px__call_same_device(call));
  if (tests->numel) return is_member(&call->results[0], elements, tests, args->invert);
  return px_full(&call->results[0], elements->sizes, elements->ndim, px_bool(args->invert), PX_BOOL,
                 px__tensor_device(elements), false, false);
}
