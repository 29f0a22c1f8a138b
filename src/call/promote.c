// SPDX-License-Identifier: Apache-2.0
// The dtypes in which a pointwise op computes and gives its result: PyTorch's promotion.
//
// The highest category (bool < integer < float) wins. Within a category, tensors with dimensions
// take precedence over 0-dim tensors, and these over numbers.
#include "call/call_impl.h"

typedef struct ranks {
  px_dtype dimensioned, zero_dim, number;
} ranks;

static px_dtype join(px_dtype a, px_dtype b) {
  if (a == PX_DTYPE_NONE || a == b) return b;
  return b == PX_DTYPE_NONE ? a : px_dtype_promote(a, b);
}

static px_dtype combine(px_dtype higher, px_dtype lower) {
  if (higher == PX_DTYPE_NONE) return lower;
  if (px_dtype_is_float(higher)) return higher;
  if (higher == PX_BOOL || (lower != PX_DTYPE_NONE && px_dtype_is_float(lower)))
    return join(higher, lower);
  return higher;
}

static void rank_tensor(ranks *r, const px_tensor *t) {
  px_dtype d = (px_dtype)t->dtype;
  if (t->flags & PX_TENSOR_WRAPPED)
    r->number = join(r->number, px_dtype_is_float(d) ? px_dtype_default() : d);
  else if (t->ndim > 0)
    r->dimensioned = join(r->dimensioned, d);
  else
    r->zero_dim = join(r->zero_dim, d);
}

static void rank_arguments(ranks *r, const px_call *call) {
  for (int i = 0; i < call->op->param_count; i++) {
    const px_param *p = &call->op->params[i];
    px_value a = call->args[i];
    if (px__impl(call->op)->masks >> i & 1) continue;
    if (a.kind == PX_ARG_TENSOR)
      rank_tensor(r, a.v.tensor);
    else if (px__is_number(a) &&
             (p->kind == PX_ARG_TENSOR || (p->kind == PX_ARG_SCALAR && p->optional)))
      r->number = join(r->number, px_scalar_dtype(px_value_scalar(a)));
  }
}

static px_dtype first_dtype(const px_call *call) {
  for (int i = 0; i < call->op->param_count; i++)
    if (call->args[i].kind == PX_ARG_TENSOR && !(px__impl(call->op)->masks >> i & 1))
      return (px_dtype)call->args[i].v.tensor->dtype;
  return px_dtype_default();
}

static px_dtype promoted(const px_call *call) {
  ranks r = {PX_DTYPE_NONE, PX_DTYPE_NONE, PX_DTYPE_NONE};
  rank_arguments(&r, call);
  px_dtype d = combine(r.dimensioned, combine(r.zero_dim, r.number));
  return d == PX_DTYPE_NONE ? px_dtype_default() : d;
}

// Masks select and are not computed with: another dtype than bool is a mistake.
static px_status check_masks(const px_call *call) {
  for (int i = 0; i < call->op->param_count; i++) {
    const px_tensor *t = px__arg_tensor(call, i);
    if (!(px__impl(call->op)->masks >> i & 1) || !t || t->dtype == PX_BOOL) continue;
    const px__op_texts *texts = px__impl(call->op)->texts;
    if (texts && texts->of_mask.code)
      PX_FAIL_AS(texts->of_mask, px_dtype_class((px_dtype)t->dtype));
    PX_FAIL(PX_RUNTIME, "%s only supports boolean masks, but got mask with dtype %s",
            call->op->name, px_dtype_name((px_dtype)t->dtype));
  }
  return PX_OK;
}

px_status px__call_promote(px_call *call) {
  if (px__impl(call->op)->masks) PX_TRY(check_masks(call));
  px__promotion rule = (px__promotion)px__impl(call->op)->promotion;
  px_dtype d = rule == PX__PROMOTE_FIRST ? first_dtype(call) : promoted(call);
  if (rule == PX__PROMOTE_FLOAT && !px_dtype_is_float(d)) d = px_dtype_default();
  if (rule == PX__PROMOTE_WHOLE && d == PX_BOOL) d = PX_INT64;
  if (rule == PX__PROMOTE_SUM && !px_dtype_is_float(d)) d = PX_INT64;
  call->compute = d;
  call->dtype = px__result_dtype(call->op, 0, d);
  return px__check_dtype(call->op, d, call->device);
}

px_status px__check_dtype(const px_op *op, px_dtype dtype, px_device device) {
  uint32_t dtypes = px__impl(op)->dtypes;
  if (PX_LIKELY(!dtypes || dtypes >> dtype & 1)) return PX_OK;
  return px__refuse_dtype(op, dtype, device);
}

px_status px__check_cast(px_dtype from, px_dtype to) {
  PX_CHECK(px_dtype_can_cast(from, to), PX_RUNTIME,
           "result type %s can't be cast to the desired output type %s", px_dtype_class(from),
           px_dtype_class(to));
  return PX_OK;
}
