// SPDX-License-Identifier: Apache-2.0
// Order of uint64 in int64 kernels: the upper half of uint64 would be negative. Flipping the top
// bit maps the order of uint64 to that of int64.
#include "call/call_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/view.h"

static px_status flip_top_bit(px_tensor **out, const px_tensor *t, px_dtype from, px_dtype to) {
  PX_SCOPED(px_tensor) bits = NULL;
  PX_SCOPED(px_tensor) flipped = NULL;
  PX_TRY(px_view_dtype(&bits, t, from));
  PX_TRY(px_bitwise_xor_scalar(&flipped, bits, px_int(INT64_MIN)));
  return px_view_dtype(out, flipped, to);
}
px_status px__to_ordered(px_tensor **out, const px_tensor *t) {
  if (t->dtype == PX_UINT64) return flip_top_bit(out, t, PX_INT64, PX_INT64);
  return px_to(out, t, PX_INT64, PX_DEVICE_NONE, false, false);
}
px_status px__from_ordered(px_tensor **out, const px_tensor *t, px_dtype dtype) {
  if (dtype == PX_UINT64) return flip_top_bit(out, t, PX_INT64, PX_UINT64);
  return px_to(out, t, dtype, PX_DEVICE_NONE, false, false);
}

// Negative numbers are below all uint64 values.
static int64_t flipped_number(px_scalar x) {
  int64_t value = x.kind == 'u' ? x.v.i : px_scalar_int(x);
  return value < 0 && x.kind != 'u' ? INT64_MIN : value ^ INT64_MIN;
}

typedef struct owned {
  px_tensor *of[PX__MAX_PARAMS];
  int count;
} owned;
static void owned_end(owned *o) {
  for (int i = 0; i < o->count; i++) px_release(o->of[i]);
}

// Converts tensors without dimensions to the unsigned dtype: negative numbers wrap around.
static px_status call_converted(px_call *call, px_dtype dtype) {
  px_value args[PX__MAX_PARAMS];
  void *made[PX__MAX_RESULTS];
  __attribute__((cleanup(owned_end))) owned o = {.count = 0};
  for (int i = 0; i < call->op->param_count; i++) {
    args[i] = call->args[i];
    if (args[i].kind != PX_ARG_TENSOR || args[i].v.tensor->ndim) continue;
    o.of[o.count++] = NULL;
    PX_TRY(px_to(&o.of[o.count - 1], args[i].v.tensor, dtype, PX_DEVICE_NONE, false, false));
    args[i] = PX_T(o.of[o.count - 1]);
  }
  PX_TRY(px_op_call(call->op, PX_CALL_NEW, args, made));
  call->results[0] = made[0];
  return PX_OK;
}

px_status px__call_ordered(px_call *call) {
  px_dtype dtype = px__unsigned_with_others(call->op, call->args);
  if (dtype != PX_DTYPE_NONE) return call_converted(call, dtype);
  const px_op *op = call->op;
  px_value args[PX__MAX_PARAMS];
  void *made[PX__MAX_RESULTS];
  __attribute__((cleanup(owned_end))) owned o = {.count = 0};
  for (int i = 0; i < op->param_count; i++) {
    args[i] = call->args[i];
    if (args[i].kind == PX_ARG_TENSOR) {
      o.of[o.count++] = NULL;
      PX_TRY(px__to_ordered(&o.of[o.count - 1], args[i].v.tensor));
      args[i] = PX_T(o.of[o.count - 1]);
    } else if (px__is_number(args[i])) {
      args[i] = PX_I(flipped_number(px_value_scalar(args[i])));
    }
  }
  PX_TRY(px_op_call(op, PX_CALL_NEW, args, made));
  PX_SCOPED(px_tensor) result = made[0];
  return px__from_ordered(&call->results[0], result, PX_UINT64);
}
