// SPDX-License-Identifier: Apache-2.0
// Ops over masks, triangles and diagonals. The number of elements selected by a mask is read back
// from the device, so these ops wait for it. They are in C because they call kernels, or depend on
// the form of their call.
#include "call/checks.h"
#include "formulas.h"
#include "hidden/view.h"
#include "ops/index/index_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/view.h"
#include "run_functions/index.h"

#include <stdlib.h>

static px__named_kernel index_max = {.name = "index_max"}, selected = {.name = "selected"};

px_status px__index_max(px_tensor **out, const px_tensor *self) {
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) max = NULL;
  px_device device = px__tensor_device(self);
  PX_TRY(px__tensor_to(&wide, self, PX_INT64, PX_DEVICE_NONE));
  PX_TRY(px_tensor_empty(&max, 0, NULL, PX_INT64, device));
  PX_TRY(px__run_kernel(&index_max, device, 1, &max, 1, &wide, NULL, 0));
  *out = PX_MOVE(max);
  return PX_OK;
}

// masked_select by its own kernel, if the backend has one.
static px_status select_masked(px_tensor **out, px_tensor *wide, const px_tensor *mask) {
  px_device device = px__tensor_device(wide);
  PX_SCOPED(px_tensor) mask_wide = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  int64_t n;
  PX_TRY(px_expand(&mask_wide, mask, wide->sizes, wide->ndim));
  PX_TRY(px__count_nonzero(&n, mask_wide));
  PX_TRY(px_tensor_empty(&made, 1, &n, (px_dtype)wide->dtype, device));
  if (n)
    PX_TRY(
        px__run_kernel(&selected, device, 1, &made, 2, (px_tensor *[]){wide, mask_wide}, NULL, 0));
  *out = PX_MOVE(made);
  return PX_OK;
}

PX_RUN(masked_select) {
  px_tensor *self = args->self, *mask = args->mask;
  int ndim;
  int64_t sizes[PX_MAX_DIMS];
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(px__call_same_device(call));
  px_device a = px__tensor_device(self), b = px__tensor_device(mask);
  // No exception for 0-dim CPU tensors here.
  PX_CHECK(px__device_reaches(a, b) && px__device_reaches(b, a), PX_RUNTIME,
           "expected self and mask to be on the same device");
  PX_TRY(px__broadcast(&ndim, sizes, mask->ndim, mask->sizes, self->ndim, self->sizes));
  PX_TRY(px_expand(&wide, self, sizes, ndim));
  if (px__named_kernel_on(&selected, (px_device_type)a.type))
    return select_masked(&call->results[0], wide, mask);
  return px__formula_masked_by_indices(call->results, (px_value[]){PX_T(wide), PX_T(mask)});
}

// Copies self, expanded to the mask's sizes. In place the mask must not be larger.
static px_status expand_to_mask(px_tensor **out, const px_call *call, const px_tensor *self,
                                const px_tensor *mask) {
  int ndim;
  int64_t sizes[PX_MAX_DIMS];
  char have[256], want[256];
  if (call->mode == PX_CALL_INPLACE) {
    PX_CHECK(mask->ndim <= self->ndim, PX_RUNTIME,
             "expand(%sBoolType{%s}, size=%s): the number of sizes provided (%d) must be greater "
             "or equal to the number of dimensions in the tensor (%d)",
             px__tensor_device(mask).type == PX_CUDA ? "CUDA" : "CPU",
             px__sizes_text(have, sizeof have, mask->ndim, mask->sizes),
             px__sizes_text(want, sizeof want, self->ndim, self->sizes), self->ndim, mask->ndim);
    return px_clone(out, self, "contiguous_format");
  }
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(px__broadcast(&ndim, sizes, mask->ndim, mask->sizes, self->ndim, self->sizes));
  PX_TRY(px_expand(&wide, self, sizes, ndim));
  return px_clone(out, wide, "contiguous_format");
}
PX_RUN(masked_scatter) {
  px_tensor *self = args->self;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px__call_same_device(call));
  PX_TRY(expand_to_mask(&made, call, self, args->mask));
  PX_SCOPED(px_tensor) written = NULL;
  if (px__is_meta(args->mask))
    PX_TRY(px_expand(&written, args->mask, made->sizes, made->ndim));
  else
    PX_TRY(px__formula_write_masked(
        &written, (px_value[]){PX_T(made), PX_T(args->mask), PX_T(args->source)}));
  if (call->mode != PX_CALL_INPLACE) return px_contiguous(&call->results[0], made);
  PX_TRY(px__tensor_copy(self, made, false));
  call->results[0] = px_retain(self);
  return PX_OK;
}

// In-place masked_fill. Writes only masked elements, because elements of self may share memory.
static px_status fill_masked(px_call *call, px_tensor *self, const px_tensor *mask,
                             const px_tensor *value) {
  px_scalar number;
  PX_TRY(px_tensor_item(&number, value));
  PX_TRY(px_masked_fill_(self, mask, number));
  call->results[0] = px_retain(self);
  return PX_OK;
}

// Fails if a value with an imaginary part is written to a real tensor.
static px_status check_real(const px_tensor *self, const px_tensor *value) {
  px_complex number = {0};
  if (px_dtype_is_complex((px_dtype)self->dtype) || !px_dtype_is_complex((px_dtype)value->dtype) ||
      px__is_meta(value))
    return PX_OK;
  PX_TRY(px_tensor_item_complex(&number, value));
  PX_CHECK(number.imag == 0 || self->dtype == PX_BOOL, PX_RUNTIME,
           "value cannot be converted to type %s without overflow",
           px__ctype_of(PX_T((px_tensor *)self)));
  return PX_OK;
}

PX_RUN(masked_fill_tensor) {
  px_tensor *self = args->self, *mask = args->mask;
  const px_tensor *value = args->value;
  PX_SCOPED(px_tensor) converted = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px__check_value(value, px__tensor_device(self)));
  PX_TRY(check_real(self, value));
  if (call->mode == PX_CALL_INPLACE && !self->contiguous)
    return fill_masked(call, self, mask, value);
  PX_TRY(px__tensor_to(&converted, value, (px_dtype)self->dtype, px__tensor_device(self)));
  PX_TRY(px_where(&made, mask, converted, self));
  if (call->mode != PX_CALL_INPLACE) {
    call->results[0] = PX_MOVE(made);
    return PX_OK;
  }
  call->results[0] = px_retain(self);
  return px__tensor_copy(self, made, false);
}

// ---- triangles and diagonals

PX_RUN(diag_embed) {
  px_tensor *self = args->self;
  int64_t offset = args->offset, sizes[PX_MAX_DIMS];
  int a, b, n = self->ndim + 1;
  PX_CHECK(self->ndim > 0 && n <= PX_MAX_DIMS, PX_RUNTIME,
           "diag_embed: expected a tensor with 1 to %d dimensions", PX_MAX_DIMS - 1);
  PX_TRY(px__wrap_dim(&a, args->dim1, n));
  PX_TRY(px__wrap_dim(&b, args->dim2, n));
  PX_CHECK(a != b, PX_RUNTIME, "diagonal dimensions cannot be identical %lld, %lld",
           (long long)args->dim1, (long long)args->dim2);
  int64_t length;
  bool over = offset < -INT64_MAX ||
              __builtin_add_overflow(self->sizes[self->ndim - 1], llabs(offset), &length);
  PX_CHECK(!over, PX_RUNTIME, "diag_embed: offset %lld is out of range", (long long)offset);
  for (int d = 0, from = 0; d < n; d++) sizes[d] = d == a || d == b ? length : self->sizes[from++];
  return px_diagonal_backward(&call->results[0], self, sizes, n, offset, a, b);
}

PX_RUN(diag) {
  const px_tensor *self = args->self;
  // PyTorch's text for impossible casts; other dtypes get the general one.
  const px_tensor *out = call->mode == PX_CALL_OUT ? call->given[0] : NULL;
  PX_CHECK(!out || px_dtype_can_cast((px_dtype)self->dtype, (px_dtype)out->dtype), PX_RUNTIME,
           "diag: result type %s can't be cast to the desired out= type %s",
           px_dtype_class((px_dtype)self->dtype), px_dtype_class((px_dtype)out->dtype));
  return PX_OK;
}
