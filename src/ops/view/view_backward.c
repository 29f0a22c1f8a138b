// SPDX-License-Identifier: Apache-2.0
// Run functions of the gradients of views: zeros with the gradient written to the viewed elements.
// Gradients of overlapping views (windows, strided views) are summed. Formulas cannot write into a
// part of a tensor.
#include "formulas.h"
#include "vmap_rules/view.h"
#include "call/vmap.h"
#include "ops/core/run.h"
#include "phlox/extend.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"
#include "run_functions/view.h"

px_status px__zeros_like_sized(px_tensor **out, const px_tensor *t, int ndim,
                               const int64_t *sizes) {
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_tensor_empty(&made, ndim, sizes, (px_dtype)t->dtype, px__tensor_device(t)));
  PX_TRY(px_zero_(made));
  *out = PX_MOVE(made);
  return PX_OK;
}

PX_RUN(select_backward) {
  PX_SCOPED(px_tensor) part = NULL;
  int dim;
  PX_TRY(px__zeros_of(&call->results[0], args->grad_output, args->input_sizes));
  PX_CHECK(args->input_sizes.n > 0, PX_INDEX, "select() cannot be applied to a 0-dim tensor.");
  PX_TRY(px__wrap_dim(&dim, args->dim, args->input_sizes.n));
  PX_TRY(px__part_select(&part, call->results[0], dim, args->index));
  return px__tensor_copy(part, args->grad_output, false);
}

PX_RUN(slice_backward) {
  PX_SCOPED(px_tensor) part = NULL;
  int dim;
  int64_t first, count, step = args->step;
  PX_TRY(px__zeros_of(&call->results[0], args->grad_output, args->input_sizes));
  PX_TRY(px__wrap_dim(&dim, args->dim, args->input_sizes.n));
  PX_TRY(px__slice_range(call->results[0], args->start, args->end, step, dim, &first, &count));
  PX_TRY(px__part_slice(&part, call->results[0], dim, first, count, step));
  return px__tensor_copy(part, args->grad_output, false);
}

PX_RUN(diagonal_backward) {
  PX_SCOPED(px_tensor) part = NULL;
  PX_TRY(px__zeros_of(&call->results[0], args->grad_output, args->input_sizes));
  PX_TRY(px_diagonal(&part, call->results[0], args->offset, args->dim1, args->dim2));
  return px__tensor_copy(part, args->grad_output, false);
}

// Element k of all windows is a slice of the input.
PX_RUN(unfold_backward) {
  px_tensor *grad = args->grad_in;
  int64_t size = args->size, step = args->step;
  int dim;
  PX_TRY(px__zeros_of(&call->results[0], args->grad_in, args->input_sizes));
  px_tensor *sum = call->results[0];
  if (sum->ndim == 0) {
    PX_SCOPED(px_tensor) one = NULL;
    if (!size) return PX_OK;
    PX_TRY(px__part_select(&one, grad, 0, 0));
    return px__tensor_copy(sum, one, false);
  }
  PX_TRY(px__wrap_dim(&dim, args->dim, sum->ndim));
  int64_t windows = grad->sizes[dim];
  for (int64_t k = 0; k < size; k++) {
    PX_SCOPED(px_tensor) part = NULL;
    PX_SCOPED(px_tensor) element = NULL;
    PX_TRY(px__part_slice(&part, sum, dim, k, windows, step));
    PX_TRY(px__part_select(&element, grad, grad->ndim - 1, k));
    PX_TRY(px_add_(part, element, px_int(1)));
  }
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
  px_value base = args->base_size, base_stride = args->base_stride, stride = args->stride;
  int64_t base_offset = args->base_offset, offset = args->storage_offset;
  int64_t length = 0;
  PX_TRY(span(&length, base.n, base.v.ints, base_stride, base_offset));
  PX_TRY(span(&length, grad->ndim, grad->sizes, stride, offset));
  PX_SCOPED(px_tensor) memory = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_tensor) shared = NULL;
  PX_TRY(px__zeros_like_sized(&memory, grad, 1, &length));
  if (px_may_overlap(grad->ndim, grad->sizes, stride.v.ints)) {
    PX_TRY(px__formula_add_strided(&made,
                                   (px_value[]){PX_T(memory), PX_T(grad), stride, PX_I(offset)}));
  } else {
    PX_TRY(px_tensor_as_strided(&part, memory, grad->ndim, grad->sizes, stride.v.ints, offset));
    PX_TRY(px__tensor_copy(part, grad, false));
  }
  if (px_may_overlap(base.n, base.v.ints, base_stride.v.ints))
    PX_TRY(px__formula_share_evenly(
        &shared, (px_value[]){PX_T(memory), base, base_stride, PX_I(base_offset)}));
  PX_SCOPED(px_tensor) base_view = NULL;
  PX_TRY(px_tensor_as_strided(&base_view, memory, base.n, base.v.ints, base_stride.v.ints,
                              base_offset));
  return px_clone(&call->results[0], base_view, "contiguous_format");
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
