// SPDX-License-Identifier: Apache-2.0
// Checks of pointwise ops, made before anything else: arguments that no kernel could use.
#include "ops/run.h"

// The C type of an element, as PyTorch's texts name it.
static const char *element_type(px_dtype dtype) {
  static const char *const names[PX_DTYPE_COUNT] = {
      [PX_UINT8] = "uint8_t",         [PX_INT8] = "int8_t",
      [PX_INT16] = "int16_t",         [PX_INT32] = "int",
      [PX_INT64] = "int64_t",         [PX_FLOAT16] = "at::Half",
      [PX_BFLOAT16] = "at::BFloat16", [PX_FLOAT32] = "float",
      [PX_FLOAT64] = "double"};
  return (unsigned)dtype < PX_DTYPE_COUNT && names[dtype] ? names[dtype] : "bool";
}

// A number that is written to elements of self's dtype.
static px_status check_fits(px_scalar value, px_value self) {
  px_dtype dtype = (px_dtype)self.v.tensor->dtype;
  PX_CHECK(px_scalar_fits(value, dtype), PX_RUNTIME,
           "value cannot be converted to type %s without overflow", element_type(dtype));
  return PX_OK;
}

PX_RUN(fill) { return check_fits(args->value, args->self); }
PX_RUN(masked_fill) { return check_fits(args->value, args->self); }

static bool is_bool(px_value value) {
  if (value.kind == PX_ARG_TENSOR) return value.v.tensor->dtype == PX_BOOL;
  return value.kind == PX_ARG_SCALAR && px_value_scalar(value).kind == 'b';
}

PX_RUN(sub) {
  bool left = is_bool(args->self), right = is_bool(args->other);
  PX_CHECK(!left || !right, PX_UNIMPLEMENTED,
           "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
           "`logical_xor()` operator instead.");
  PX_CHECK(!left && !right, PX_UNIMPLEMENTED,
           "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying "
           "to invert a mask, use the `~` or `logical_not()` operator instead.");
  return PX_OK;
}

PX_RUN(clamp) {
  PX_CHECK(px__given(args->min) || px__given(args->max), PX_RUNTIME,
           "torch.clamp: At least one of 'min' or 'max' must not be None");
  return PX_OK;
}

PX_RUN(div_mode) {
  const char *mode = args->rounding_mode;
  PX_CHECK(!strcmp(mode, "trunc") || !strcmp(mode, "floor"), PX_RUNTIME,
           "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '%s'",
           mode);
  return PX_OK;
}

PX_RUN(pow) {
  px_value self = args->self, exponent = args->exponent;
  if (self.kind != PX_ARG_TENSOR || px_dtype_is_float((px_dtype)self.v.tensor->dtype) ||
      exponent.kind == PX_ARG_TENSOR)
    return PX_OK;
  px_scalar number = px_value_scalar(exponent);
  PX_CHECK(number.kind == 'f' || px_scalar_int(number) >= 0, PX_RUNTIME,
           "Integers to negative integer powers are not allowed.");
  return PX_OK;
}
