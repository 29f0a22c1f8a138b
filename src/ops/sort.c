// SPDX-License-Identifier: Apache-2.0
// Run functions of sorting and choosing.
#include <math.h>
#include <string.h>

#include "batch_functions/sort.h"
#include "call/batch.h"
#include "hidden/sort.h"
#include "ops/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/sort.h"
#include "phlox/ops/view.h"
#include "run_functions/sort.h"

static int64_t length_of(const px_tensor *t, int dim) { return t->ndim ? t->sizes[dim] : 1; }
PX_RUN(argsort) {
  PX_SCOPED(px_tensor) values = NULL;
  return px_sort(&values, &call->results[0], args->self, args->dim, args->descending, args->stable);
}
static px__named_kernel sorted_kernel = {.name = "sorted"};
px_status px__sorted(px_tensor **out, const px_tensor *self, int64_t dim) {
  PX_SCOPED(px_tensor) places = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  px_device device = px__tensor_device(self);
  bool plain = !px__needs_grad(self) && !px__is_batched(self) && !(self->flags & PX_TENSOR_LAZY);
  if (!plain || self->dtype >= PX_DTYPE_COMPUTED || !self->numel ||
      !px__named_kernel_on(&sorted_kernel, (px_device_type)device.type))
    return px_sort(out, &places, self, dim, false, true);
  PX_TRY(px_tensor_empty(&values, self->ndim, self->sizes, (px_dtype)self->dtype, device));
  PX_TRY(px__run_kernel(&sorted_kernel, device, 1, &values, 1, (px_tensor *[]){(px_tensor *)self},
                        (px_value[]){PX_I(dim)}, 1));
  return *out = PX_MOVE(values), PX_OK;
}
// Where a line holds a NaN, its first one is the median: the maximum finds it.
static px_status nan_first(px_call *call, const px_tensor *t, int dim, bool keepdim) {
  PX_SCOPED(px_tensor) most = NULL;
  PX_SCOPED(px_tensor) place = NULL;
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) value = PX_MOVE(call->results[0]);
  PX_SCOPED(px_tensor) where = PX_MOVE(call->results[1]);
  PX_TRY(px_max_dim(&most, &place, t, dim, keepdim));
  PX_TRY(px_isnan(&mask, most));
  PX_TRY(px_where(&call->results[0], mask, most, value));
  return px_where(&call->results[1], mask, place, where);
}
PX_RUN(median_dim) {
  const px_tensor *t = args->self;
  int dim;
  PX_TRY(px__wrap_dim(&dim, args->dim, t->ndim));
  PX_CHECK(length_of(t, dim) > 0, PX_INDEX,
           "median(): Expected reduction dim %d to have non-zero size.", dim);
  PX_TRY(px__call_check_outs(call, (px_dtype[]){(px_dtype)t->dtype, PX_INT64}));
  PX_TRY(px_kthvalue(&call->results[0], &call->results[1], t, (length_of(t, dim) + 1) / 2, dim,
                     args->keepdim));
  if (!px_dtype_is_float((px_dtype)t->dtype) || !t->numel) return PX_OK;
  return nan_first(call, t, dim, args->keepdim);
}
px_status px__resize_reduced(px_call *call, const px_tensor *self, int64_t dim, bool keepdim) {
  int64_t kept[PX_MAX_DIMS], gone[PX_MAX_DIMS];
  int at, n = self->ndim;
  if (call->mode != PX_CALL_OUT || n == 0 || keepdim) return PX_OK;
  PX_TRY(px__call_same_device(call));
  PX_TRY(px__wrap_dim(&at, dim, n));
  px__sizes_copy(kept, self->sizes, n);
  kept[at] = 1;
  for (int d = 0; d + 1 < n; d++) gone[d] = self->sizes[d + (d >= at)];
  for (int i = 0; i < call->op->result_count; i++) {
    px_tensor *given = call->given[i];
    if (!given || given->ndim == n - 1) continue;
    PX_TRY(px__resize_output(given, n, kept));
    PX_TRY(px_tensor_resize(given, n - 1, gone));
  }
  return PX_OK;
}
PX_RUN(kthvalue_out) {
  PX_TRY(px__call_check_outs(call, (px_dtype[]){(px_dtype)args->self->dtype, PX_INT64}));
  return px__resize_reduced(call, args->self, args->dim, args->keepdim);
}

px_status px__nan_of(px_tensor **out, const px_tensor *t) {
  px_dtype dtype = (px_dtype)t->dtype;
  int64_t whole = dtype == PX_INT64 ? INT64_MIN : dtype == PX_INT32 ? INT32_MIN : 0;
  px_scalar nan = px_dtype_is_float(dtype) ? px_float(NAN) : px_int(whole);
  return px_full(out, NULL, 0, nan, dtype, px__tensor_device(t), false, false);
}

PX_RUN(median) {
  const px_tensor *t = args->self;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  int64_t n = t->numel;
  if (n == 0) return px__nan_of(&call->results[0], t);
  PX_TRY(px_reshape(&flat, t, &n, 1));
  return px_median_dim(&call->results[0], &where, flat, 0, false);
}
PX_BATCH(median) {
  const px_tensor *t = args->self;
  PX_SCOPED(px_tensor) lines = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  px_tensor *made = NULL;
  if (t->numel == 0) return px__batch_loop(b, true);
  PX_TRY(px_reshape(&lines, t->physical, (const int64_t[]){b->size, t->numel}, 2));
  PX_TRY(px_median_dim(&made, &where, lines, 1, false));
  return px__batch_give(b, 0, made);
}

// ---- places in sorted lines

// Both of the dtype that they promote to, on the device of the first.
static px_status make_alike(px_tensor **a, px_tensor **b, const px_tensor *first,
                            const px_tensor *second) {
  px_dtype one = (px_dtype)first->dtype, other = (px_dtype)second->dtype;
  bool number = second->flags & PX_TENSOR_WRAPPED, fits = !px_dtype_is_float(other);
  px_dtype dtype = one;
  if (!number || (!fits && !px_dtype_is_float(one)))
    PX_TRY(px_dtype_promote_or_fail(&dtype, one, other));
  PX_TRY(px__tensor_to(a, first, dtype, PX_DEVICE_NONE));
  return px__tensor_to(b, second, dtype, px__tensor_device(first));
}
// A line for all places stays one; one that each place has is a line among others, and the place's
// values are those that it is searched for.
PX_BATCH(search_lines) {
  px_tensor *made = NULL, *boundaries = args->boundaries, *values = args->values;
  bool line = boundaries->ndim == 1;
  PX_SCOPED(px_tensor) lines = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) places = NULL;
  PX_TRY(px__batch_whole(&whole, b, values));
  if (line && !px__is_mapped(b, boundaries)) {
    PX_TRY(px_search_lines(&made, boundaries, whole, args->right));
    return px__batch_give(b, 0, made);
  }
  PX_TRY(px__batch_whole(&lines, b, boundaries));
  if (line)
    PX_TRY(px_reshape(&flat, whole, (const int64_t[]){b->size, values->numel}, 2));
  else
    flat = px_retain(whole);
  PX_TRY(px_search_lines(&places, lines, flat, args->right));
  PX_TRY(px_reshape(&made, places, whole->sizes, whole->ndim));
  return px__batch_give(b, 0, made);
}
static px_status search(px_tensor **out, const px_tensor *sorted, const px_tensor *values,
                        bool right, bool small) {
  PX_SCOPED(px_tensor) boundaries = NULL;
  PX_SCOPED(px_tensor) wanted = NULL;
  PX_SCOPED(px_tensor) places = NULL;
  PX_TRY(make_alike(&boundaries, &wanted, sorted, values));
  PX_TRY(px_search_lines(&places, boundaries, wanted, right));
  return px__tensor_to(out, places, small ? PX_INT32 : PX_INT64, PX_DEVICE_NONE);
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
  PX_SCOPED(px_tensor) picked = NULL;
  const px_tensor *sorted = args->sorted_sequence;
  bool right = args->right || (args->side && !strcmp(args->side, "right"));
  PX_TRY(check_out(call, args->out_int32));
  PX_TRY(px__call_same_device(call));
  if (args->sorter) {
    PX_TRY(px_pick_along(&picked, sorted, args->sorter, -1));
    sorted = picked;
  }
  return search(&call->results[0], sorted, args->input, right, args->out_int32);
}
PX_RUN(searchsorted_number) {
  PX_SCOPED(px_tensor) value = NULL;
  PX_TRY(px_tensor_from_scalar(&value, args->input));
  return px_searchsorted(&call->results[0], args->sorted_sequence, value, args->out_int32,
                         args->right, args->side, args->sorter);
}
PX_RUN(bucketize) {
  PX_TRY(check_out(call, args->out_int32));
  PX_TRY(px__call_same_device(call));
  return search(&call->results[0], args->boundaries, args->input, args->right, args->out_int32);
}
PX_RUN(bucketize_number) {
  PX_SCOPED(px_tensor) value = NULL;
  PX_TRY(px_tensor_from_scalar(&value, args->input));
  return search(&call->results[0], args->boundaries, value, args->right, args->out_int32);
}

// ---- being among others

static px_status put_in_order(px_tensor **t) {
  PX_SCOPED(px_tensor) given = *t;
  if (!px__is_unsigned((px_dtype)given->dtype)) return given = NULL, PX_OK;
  *t = NULL;
  return px__to_ordered(t, given);
}

// The element at the place where one would go is equal to it, if any is.
static px_status among(px_tensor **out, const px_tensor *given, const px_tensor *tests,
                       bool invert) {
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) sorted = NULL;
  PX_SCOPED(px_tensor) places = NULL;
  PX_SCOPED(px_tensor) last = NULL;
  PX_SCOPED(px_tensor) inside = NULL;
  PX_SCOPED(px_tensor) nearest = NULL;
  PX_SCOPED(px_tensor) elements = NULL;
  PX_SCOPED(px_tensor) others = NULL;
  PX_TRY(make_alike(&elements, &others, given, tests));
  PX_TRY(put_in_order(&elements));
  PX_TRY(put_in_order(&others));
  PX_TRY(px_reshape(&flat, others, &tests->numel, 1));
  PX_TRY(px__sorted(&sorted, flat, 0));
  PX_TRY(px_search_lines(&places, sorted, elements, false));
  PX_TRY(px_tensor_from_scalar(&last, px_int(tests->numel - 1)));
  PX_TRY(px_minimum(&inside, places, last));
  PX_TRY(px_take(&nearest, sorted, inside));
  return invert ? px_ne(out, elements, nearest) : px_eq(out, elements, nearest);
}
PX_RUN(isin) {
  const px_tensor *elements = args->elements, *tests = args->test_elements;
  PX_TRY(px__call_same_device(call));
  if (tests->numel) return among(&call->results[0], elements, tests, args->invert);
  return px_full(&call->results[0], elements->sizes, elements->ndim, px_bool(args->invert), PX_BOOL,
                 px__tensor_device(elements), false, false);
}
PX_RUN(isin_number) {
  if (args->invert) return px_ne_scalar(&call->results[0], args->elements, args->test_element);
  return px_eq_scalar(&call->results[0], args->elements, args->test_element);
}
PX_RUN(isin_of_number) {
  PX_SCOPED(px_tensor) equal = NULL;
  PX_TRY(px_eq_scalar(&equal, args->test_elements, args->element));
  if (!args->invert) return px_any(&call->results[0], equal, NULL, 0, false);
  PX_SCOPED(px_tensor) found = NULL;
  PX_TRY(px_any(&found, equal, NULL, 0, false));
  return px_logical_not(&call->results[0], found);
}
