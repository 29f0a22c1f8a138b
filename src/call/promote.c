// SPDX-License-Identifier: Apache-2.0
// PyTorch's type promotion: compute dtype and result dtype of pointwise ops.
//
// The highest category (bool < integer < float < complex) wins. Within a category, tensors with
// dimensions take precedence over 0-dim tensors, and these over numbers.
#include "call/call_impl.h"

typedef struct ranks {
  px_dtype dimensioned, zero_dim, number;
} ranks;

static px_status join(px_dtype *to, px_dtype a, px_dtype b) {
  *to = a == PX_DTYPE_NONE ? b : a;
  if (PX_LIKELY(a == b || a == PX_DTYPE_NONE || b == PX_DTYPE_NONE)) return PX_OK;
  return px_dtype_promote_or_fail(to, a, b);
}

// 0: bool, 1: integer, 2: floating-point, 3: complex.
static int category(px_dtype d) {
  return px_dtype_is_complex(d) ? 3 : px_dtype_is_float(d) ? 2 : d != PX_BOOL;
}

// The complex dtype of a floating-point one: complex32 for float16, none for bfloat16.
static px_status combine_complex(px_dtype *to, px_dtype higher, px_dtype lower) {
  *to = category(higher) == 2 ? px_dtype_to_complex(higher) : lower;
  PX_CHECK(*to != PX_DTYPE_NONE, PX_RUNTIME, "Unknown Complex ScalarType for %s",
           px_dtype_class(higher));
  return PX_OK;
}

static px_status combine(px_dtype *to, px_dtype higher, px_dtype lower) {
  bool lower_wins =
      higher != PX_DTYPE_NONE && lower != PX_DTYPE_NONE && category(lower) > category(higher);
  if (lower_wins && category(lower) == 3) return combine_complex(to, higher, lower);
  if (higher == PX_DTYPE_NONE || lower_wins) return join(to, higher, lower);
  *to = higher;
  return PX_OK;
}

// Dtype of a wrapped number. Its storage is float64 or complex128.
static px_dtype number_dtype(px_dtype d) {
  if (px_dtype_is_complex(d)) return px_dtype_to_complex(px_dtype_default());
  return px_dtype_is_float(d) ? px_dtype_default() : d;
}

static px_status rank_tensor(ranks *r, const px_tensor *t) {
  px_dtype d = (px_dtype)t->dtype;
  if (px__flags(t) & PX_TENSOR_WRAPPED) return join(&r->number, r->number, number_dtype(d));
  px_dtype *rank = t->ndim > 0 ? &r->dimensioned : &r->zero_dim;
  return join(rank, *rank, d);
}

static px_status rank_arguments(ranks *r, const px_call *call) {
  for (int i = 0; i < call->op->param_count; i++) {
    const px_param *p = &call->op->params[i];
    px_value a = call->args[i];
    if (px__impl(call->op)->masks >> i & 1) continue;
    if (a.kind == PX_ARG_TENSOR)
      PX_TRY(rank_tensor(r, a.v.tensor));
    else if (px__is_number(a) &&
             (p->kind == PX_ARG_TENSOR || (p->kind == PX_ARG_SCALAR && p->optional)))
      PX_TRY(join(&r->number, r->number, px_scalar_dtype(px_value_scalar(a))));
  }
  return PX_OK;
}

static px_dtype first_dtype(const px_call *call) {
  for (int i = 0; i < call->op->param_count; i++)
    if (call->args[i].kind == PX_ARG_TENSOR && !(px__impl(call->op)->masks >> i & 1))
      return (px_dtype)call->args[i].v.tensor->dtype;
  return px_dtype_default();
}

static px_status combine_all(px_dtype *to, const ranks *r) {
  PX_TRY(combine(to, r->zero_dim, r->number));
  PX_TRY(combine(to, r->dimensioned, *to));
  if (*to == PX_DTYPE_NONE) *to = px_dtype_default();
  return PX_OK;
}
static px_status promoted(px_dtype *to, const px_call *call) {
  ranks r = {PX_DTYPE_NONE, PX_DTYPE_NONE, PX_DTYPE_NONE};
  PX_TRY(rank_arguments(&r, call));
  return combine_all(to, &r);
}
px_status px__promote_tensors(px_dtype *to, px_tensor *const *tensors, int count) {
  ranks r = {PX_DTYPE_NONE, PX_DTYPE_NONE, PX_DTYPE_NONE};
  for (int i = 0; i < count; i++)
    if (!px_tensor_is_wrapped(tensors[i])) PX_TRY(rank_tensor(&r, tensors[i]));
  return combine_all(to, &r);
}

// Compute dtype for a dtype without kernels. It can represent all its values.
static px_dtype compute_dtype(px_dtype d) {
  if (PX_LIKELY(d < PX_DTYPE_COMPUTED)) return d;
  if (px_dtype_is_complex(d)) return d == PX_COMPLEX32 ? PX_COMPLEX64 : d;
  return px_dtype_is_float(d) ? PX_FLOAT32 : PX_INT64;
}

// Fails if a mask is not bool. Masks take no part in promotion.
static px_status check_masks(const px_call *call) {
  for (int i = 0; i < call->op->param_count; i++) {
    const px_tensor *t = px__arg_tensor(call, i);
    if (!(px__impl(call->op)->masks >> i & 1) || !t || t->dtype == PX_BOOL) continue;
    PX_FAIL(PX_RUNTIME, "%s only supports boolean masks, but got mask with dtype %s",
            call->op->name, px_dtype_name((px_dtype)t->dtype));
  }
  return PX_OK;
}

px_status px__call_promote(px_call *call) {
  if (px__impl(call->op)->masks) PX_TRY(check_masks(call));
  px__promotion rule = (px__promotion)px__impl(call->op)->promotion;
  px_dtype d;
  if (rule == PX__PROMOTE_FIRST)
    d = first_dtype(call);
  else
    PX_TRY(promoted(&d, call));
  if (rule == PX__PROMOTE_FLOAT && category(d) < 2) d = px_dtype_default();
  if (rule == PX__PROMOTE_INTEGER && d == PX_BOOL) d = PX_INT64;
  if (rule == PX__PROMOTE_SUM && category(d) < 2) d = PX_INT64;
  bool parts = (int)px__impl(call->op)->result_dtypes[0] == PX__DTYPE_REAL;
  PX_CHECK(!parts || call->mode != PX_CALL_INPLACE || !px_dtype_is_complex(d), PX_RUNTIME,
           "In-place %s is not supported for complex tensors.", call->op->name);
  call->compute = compute_dtype(d);
  // Ops that write a real number to any dtype (fill, zero) compute in float64 on devices:
  // their kernels do not support complex numbers.
  bool takes_any = px__impl(call->op)->dtypes >> PX_FLOAT8_E4M3FN & 1;
  if (PX_UNLIKELY(px_dtype_is_complex(d)) && takes_any && rule == PX__PROMOTE_FIRST &&
      call->device.type == PX_CUDA)
    call->compute = PX_FLOAT64;
  call->dtype = px__result_dtype(call->op, 0, d);
  return px__check_dtype(call->op, d, call->device);
}

px_status px__check_cast(px_dtype from, px_dtype to) {
  PX_CHECK(px_dtype_can_cast(from, to), PX_RUNTIME,
           "result type %s can't be cast to the desired output type %s", px_dtype_class(from),
           px_dtype_class(to));
  return PX_OK;
}
