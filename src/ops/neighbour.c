// SPDX-License-Identifier: Apache-2.0
// The neighbour of a number of 16 bits. Kernels compute with such numbers in float32, whose
// neighbours are others; so it is found among whole numbers, which have the bits' order: those of
// negative numbers run backwards.
#include "ops/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/view.h"
#include "run_functions/special.h"

static px_status operand(px_tensor **out, px_value value, px_dtype dtype) {
  PX_SCOPED(px_tensor) number = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  if (value.kind != PX_ARG_TENSOR) PX_TRY(px_tensor_from_scalar(&number, px_value_scalar(value)));
  PX_TRY(px__tensor_to(&made, number ? number : value.v.tensor, dtype, PX_DEVICE_NONE));
  return px_tensor_detach(out, made);
}
// Its place in the order of numbers.
static px_status place_of(px_tensor **out, const px_tensor *t) {
  PX_SCOPED(px_tensor) bits = NULL;
  PX_SCOPED(px_tensor) size = NULL;
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) negative = NULL;
  PX_TRY(px_view_dtype(&bits, t, PX_INT16));
  PX_TRY(px_bitwise_and_scalar(&size, bits, px_int(INT16_MAX)));
  PX_TRY(px_neg(&below, size));
  PX_TRY(px_lt_scalar(&negative, bits, px_int(0)));
  return px_where(out, negative, below, bits);
}
// The number at a place. The zero beside negative numbers, which `from` is, is negative.
static px_status number_at(px_tensor **out, const px_tensor *place, const px_tensor *from) {
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) zero = NULL;
  PX_SCOPED(px_tensor) beside = NULL;
  PX_SCOPED(px_tensor) size = NULL;
  PX_SCOPED(px_tensor) negative = NULL;
  PX_SCOPED(px_tensor) bits = NULL;
  PX_TRY(px_lt_scalar(&below, from, px_int(0)));
  PX_TRY(px_eq_scalar(&zero, place, px_int(0)));
  PX_TRY(px_logical_and(&beside, zero, below));
  PX_TRY(px_lt_scalar(&negative, place, px_int(0)));
  PX_TRY(px_logical_or_(negative, beside));
  PX_TRY(px_neg(&size, place));
  PX_TRY(px_bitwise_or_scalar_(size, px_int(INT16_MIN)));
  PX_TRY(px_where(&bits, negative, size, place));
  return px_view_dtype(out, bits, (px_dtype)from->dtype);
}
// Where the numbers differ, whose neighbours `next` has, and else: `to` of equal ones, and NaN.
static px_status unless_equal(px_tensor **out, const px_tensor *next, const px_tensor *differ,
                              const px_tensor *from, const px_tensor *to) {
  PX_SCOPED(px_tensor) equal = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_TRY(px_eq(&equal, from, to));
  PX_TRY(px_add(&sum, from, to, px_int(1)));
  PX_TRY(px_where(&other, equal, to, sum));
  return px_where(out, differ, next, other);
}
static px_status neighbour(px_tensor **out, const px_tensor *from, const px_tensor *to) {
  PX_SCOPED(px_tensor) up = NULL;
  PX_SCOPED(px_tensor) down = NULL;
  PX_SCOPED(px_tensor) differ = NULL;
  PX_SCOPED(px_tensor) place = NULL;
  PX_SCOPED(px_tensor) higher = NULL;
  PX_SCOPED(px_tensor) there = NULL;
  PX_SCOPED(px_tensor) next = NULL;
  PX_TRY(px_lt(&up, from, to));
  PX_TRY(px_gt(&down, from, to));
  PX_TRY(px_logical_or(&differ, up, down));
  PX_TRY(place_of(&place, from));
  PX_TRY(px_add(&higher, place, up, px_int(1)));
  PX_TRY(px_add(&there, higher, down, px_int(-1)));
  PX_TRY(number_at(&next, there, from));
  return unless_equal(out, next, differ, from, to);
}

PX_RUN(nextafter) {
  PX_SCOPED(px_tensor) from = NULL;
  PX_SCOPED(px_tensor) to = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px__call_promote(call));
  px_dtype dtype = call->dtype;
  if (dtype != PX_FLOAT16 && dtype != PX_BFLOAT16) return PX_OK;
  PX_TRY(operand(&from, args->self, dtype));
  PX_TRY(operand(&to, args->other, dtype));
  PX_TRY(neighbour(&made, from, to));
  call->skip_launch = true;
  call->device = px__tensor_device(made);
  if (call->mode != PX_CALL_INPLACE) return call->results[0] = PX_MOVE(made), PX_OK;
  px_tensor *self = call->given[0];
  PX_TRY(px__check_fits_self(call->op, self, made->ndim, made->sizes, dtype));
  PX_TRY(px__tensor_copy(self, made, false));
  call->results[0] = px_retain(self);
  return PX_OK;
}
