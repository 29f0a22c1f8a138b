// SPDX-License-Identifier: Apache-2.0
// Comparisons. Most pointwise ones pass their operands through before the launch. Devices have no
// kernel for complex equality: the ops compare both parts. `where` accepts uint8 conditions.

#include "formulas.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "run_functions/arithmetic.h"

static bool is_complex(px_value value) {
  return value.kind == PX_ARG_TENSOR && px_dtype_is_complex((px_dtype)value.v.tensor->dtype);
}
// An operand or number as a complex tensor on a device.
static px_status complex_operand(px_tensor **out, px_value value, px_dtype dtype,
                                 px_device device) {
  PX_SCOPED(px_tensor) number = NULL;
  px_device to = PX_DEVICE_NONE;
  if (value.kind != PX_ARG_TENSOR) PX_TRY(px_tensor_from_scalar(&number, px_value_scalar(value)));
  const px_tensor *t = number ? number : value.v.tensor;
  if (t->ndim == 0) to = device;
  return px__tensor_to(out, t, dtype, to);
}
static px_status complex_dtype(px_dtype *out, px_value a, px_value b) {
  if (a.kind != PX_ARG_TENSOR || b.kind != PX_ARG_TENSOR)
    return *out = (px_dtype)(a.kind == PX_ARG_TENSOR ? a : b).v.tensor->dtype, PX_OK;
  return px_dtype_promote_or_fail(out, (px_dtype)a.v.tensor->dtype, (px_dtype)b.v.tensor->dtype);
}
static px_status compare_parts(px_call *call, px_value a, px_value b, bool equal) {
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) right = NULL;
  px_dtype dtype;
  bool of_b = a.kind != PX_ARG_TENSOR || (a.v.tensor->ndim == 0 && b.kind == PX_ARG_TENSOR);
  call->device = px__tensor_device(of_b ? b.v.tensor : a.v.tensor);
  PX_TRY(complex_dtype(&dtype, a, b));
  PX_TRY(complex_operand(&left, a, dtype, call->device));
  PX_TRY(complex_operand(&right, b, dtype, call->device));
  call->skip_launch = true;
  return px__formula_equal_parts(call->results, (px_value[]){PX_T(left), PX_T(right), PX_B(equal)});
}
static bool on_device(px_value value) {
  return value.kind == PX_ARG_TENSOR && px__tensor_device(value.v.tensor).type == PX_CUDA;
}
static inline bool has_complex(const px_call *call, px_value a, px_value b) {
  return call->mode != PX_CALL_INPLACE && (is_complex(a) || is_complex(b)) &&
         (on_device(a) || on_device(b));
}
PX_RUN(equality) {
  return PX_UNLIKELY(has_complex(call, args->self, args->other))
             ? compare_parts(call, args->self, args->other, true)
             : PX_OK;
}
PX_RUN(difference) {
  return PX_UNLIKELY(has_complex(call, args->self, args->other))
             ? compare_parts(call, args->self, args->other, false)
             : PX_OK;
}

// Detaches an operand. Numbers stay wrapped numbers.
static px_status detached(px_tensor **out, px_value value) {
  if (value.kind != PX_ARG_TENSOR) return px_tensor_from_scalar(out, px_value_scalar(value));
  if (!px_tensor_is_wrapped(value.v.tensor)) return px_tensor_detach(out, value.v.tensor);
  *out = px_retain(value.v.tensor);
  return PX_OK;
}
// Warns once, as PyTorch does.
static px_status warn_of_bytes(void) {
  static bool warned;
  if (!px__warns(&warned)) return PX_OK;
  return px_warn(PX_WARN_USER,
                 "where received a uint8 condition tensor. This behavior is deprecated and will be "
                 "removed in a future version of PyTorch. Use a boolean condition instead.");
}
// The driver records this call; the nested one gets detached operands.
PX_RUN(where) {
  px_value selector = args->condition;
  if (selector.kind != PX_ARG_TENSOR || selector.v.tensor->dtype != PX_UINT8) return PX_OK;
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) self = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_TRY(warn_of_bytes());
  PX_TRY(px_to(&mask, selector.v.tensor, PX_BOOL, PX_DEVICE_NONE, false, false));
  PX_TRY(detached(&self, args->self));
  PX_TRY(detached(&other, args->other));
  PX_TRY(px_where(&call->results[0], mask, self, other));
  call->device = px__tensor_device(call->results[0]);
  call->skip_launch = true;
  return PX_OK;
}

// ---- isclose
