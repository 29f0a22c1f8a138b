// SPDX-License-Identifier: Apache-2.0
// The gradient of strided views, in memory that spans the view and its base. It is in C because
// formulas cannot read strides.
#include "formulas.h"
#include "vmap_rules/view.h"
#include "call/vmap.h"
#include "ops/core/run.h"
#include "phlox/extend.h"
#include "phlox/ops/arithmetic.h"
#include "run_functions/view.h"

px_status px__zeros_like_sized(px_tensor **out, const px_tensor *t, int ndim,
                               const int64_t *sizes) {
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_tensor_empty(&made, ndim, sizes, (px_dtype)t->dtype, px__tensor_device(t)));
  PX_TRY(px_zero_(made));
  *out = PX_MOVE(made);
  return PX_OK;
}

// Raises *length to the number of elements of memory spanned by a geometry.
static px_status span(int64_t *length, int ndim, const int64_t *sizes, px_value strides,
                      int64_t offset) {
  int64_t last = offset, step;
  bool empty = false, fits = offset >= 0 && offset < INT64_MAX;
  PX_CHECK(strides.n == ndim, PX_RUNTIME, "mismatch in length of strides and shape");
  for (int d = 0; d < ndim && fits; d++) {
    empty |= sizes[d] == 0;
    fits = sizes[d] >= 0 && strides.v.ints[d] >= 0 &&
           !__builtin_mul_overflow(sizes[d] ? sizes[d] - 1 : 0, strides.v.ints[d], &step) &&
           !__builtin_add_overflow(last, step, &last) && last < INT64_MAX;
  }
  PX_CHECK(fits, PX_RUNTIME,
           "expected non-negative sizes, strides and offset within 64-bit memory");
  if (!empty && last + 1 > *length) *length = last + 1;
  return PX_OK;
}

PX_RUN(as_strided_backward) {
  px_tensor *grad = args->grad_output;
  int64_t length = 0;
  PX_TRY(span(&length, args->base_size.n, args->base_size.v.ints, args->base_stride,
              args->base_offset));
  PX_TRY(span(&length, grad->ndim, grad->sizes, args->stride, args->storage_offset));
  bool overlaps = px_may_overlap(grad->ndim, grad->sizes, args->stride.v.ints);
  bool shares = px_may_overlap(args->base_size.n, args->base_size.v.ints, args->base_stride.v.ints);
  return px__formula_read_base(
      call->results, (px_value[]){PX_T(grad), args->base_size, args->base_stride,
                                  PX_I(args->base_offset), args->stride, PX_I(args->storage_offset),
                                  PX_I(length), PX_B(overlaps), PX_B(shares)});
}

// Batch entries are stored one after the other. The batch stride is the span of one entry.
PX_VMAP_RULE(as_strided_backward) {
  const px_op *op = b->call->op;
  px_tensor *grad = args->grad_output;
  int64_t length = 0, lists[4][PX_MAX_DIMS + 1];
  PX_TRY(span(&length, args->base_size.n, args->base_size.v.ints, args->base_stride,
              args->base_offset));
  PX_TRY(span(&length, grad->ndim, grad->sizes, args->stride, args->storage_offset));
  static const char *const names[] = {"base_size", "size", "base_stride", "stride"};
  px_value given[PX__MAX_PARAMS];
  void *result[1] = {NULL};
  memcpy(given, b->call->args, op->param_count * sizeof *given);
  for (int k = 0; k < 4; k++) {
    px_value *list = px__vmap_argument(op, given, names[k]);
    PX_TRY(px__check_ndim((int64_t)list->n + 1));
    lists[k][0] = k < 2 ? b->size : length;
    px__sizes_copy(lists[k] + 1, list->v.ints, list->n);
    *list = PX_IS(lists[k], list->n + 1);
  }
  *px__vmap_argument(op, given, "grad_output") = PX_T(grad->physical);
  PX_TRY(px_op_call(op, PX_CALL_NEW, given, result));
  return px__vmap_set_result(b, 0, result[0]);
}
