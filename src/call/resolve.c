// SPDX-License-Identifier: Apache-2.0
// Calls with conjugate and negative views (from conj and _neg_view). Kernels read memory as it is
// stored, so such arguments are first copied by a recorded op. Outputs are computed in a copy and
// written back.
#include "call/call_impl.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/view.h"

// From ops/view.op. px__resolve copies the values of a view.
px_status px__resolve(px_tensor **out, const px_tensor *self);
px_status px__neg_view(px_tensor **out, const px_tensor *self);

bool px__call_has_conj_neg(const px_op *op, px_call_mode mode, const px_value *args,
                           void **results) {
  if (op->kind == PX_OP_VIEW || op->kind == PX_OP_COMPOSITE || px__impl(op)->takes_conj_neg)
    return false;
  bool any = false;
  for (int i = 0; i < op->param_count; i++) {
    if (args[i].kind == PX_ARG_TENSOR) any |= px__has_conj_neg(args[i].v.tensor);
    for (int k = 0; args[i].kind == PX_ARG_TENSORS && k < args[i].n; k++)
      any |= px__has_conj_neg(args[i].v.tensors[k]);
  }
  // Without an out form `results` is not valid. The call is refused later.
  bool has_out = mode == PX_CALL_OUT && (op->flags & PX_OP_HAS_OUT);
  for (int k = 0; has_out && k < op->result_count; k++) any |= px__has_conj_neg(results[k]);
  return any;
}

static px_status resolve_one(px__resolved *r, px_tensor *t, px_tensor **slot) {
  *slot = t;
  if (!px__has_conj_neg(t)) return PX_OK;
  PX_TRY(px__resolve(&r->made[r->count], t));
  *slot = r->made[r->count++];
  return PX_OK;
}

px_status px__resolve_begin(px__resolved *r, const px_op *op, const px_value *args) {
  size_t count = 0, listed = 0;
  *r = (px__resolved){.made = NULL};
  for (int i = 0; i < op->param_count; i++) {
    count += args[i].kind == PX_ARG_TENSORS ? (size_t)args[i].n : 1;
    if (args[i].kind == PX_ARG_TENSORS) listed += (size_t)args[i].n;
  }
  PX_TRY(px__alloc((void **)&r->made, (count + listed) * sizeof(px_tensor *)));
  px_tensor **next = r->made + count;
  for (int i = 0; i < op->param_count; i++) {
    r->args[i] = args[i];
    if (args[i].kind == PX_ARG_TENSOR)
      PX_TRY(resolve_one(r, args[i].v.tensor, &r->args[i].v.tensor));
    if (args[i].kind != PX_ARG_TENSORS) continue;
    r->args[i].v.tensors = next;
    for (int k = 0; k < args[i].n; k++) PX_TRY(resolve_one(r, args[i].v.tensors[k], next++));
  }
  return PX_OK;
}

void px__resolve_end(px__resolved *r) {
  for (int i = 0; i < r->count; i++) px_release(r->made[i]);
  px__free(r->made);
}

static px_status replace(px_tensor **t, px_status (*view)(px_tensor **out, const px_tensor *self)) {
  px_tensor *made = NULL;
  PX_TRY(view(&made, *t));
  px_release(*t);
  *t = made;
  return PX_OK;
}

// Negates in the dtype of the destination: bool has no negatives, and unsigned integers wrap.
static px_status convert_to(px_tensor **t, px_dtype dtype) {
  px_tensor *made = NULL;
  PX_TRY(px_to(&made, *t, dtype, PX_DEVICE_NONE, false, false));
  px_release(*t);
  *t = made;
  return PX_OK;
}

// Writes through a conjugate view by storing conjugates.
px_status px__copy_to_conj_neg(px_tensor *self, const px_tensor *from, bool non_blocking) {
  PX_SCOPED(px_tensor) memory = px_retain(self);
  PX_SCOPED(px_tensor) value = px_retain((px_tensor *)from);
  if (px__flags(self) & PX_TENSOR_CONJ) {
    PX_TRY(replace(&memory, px_conj));
    PX_TRY(replace(&value, px_conj));
  }
  if (px__flags(self) & PX_TENSOR_NEG) {
    if (value->dtype != self->dtype) PX_TRY(convert_to(&value, (px_dtype)self->dtype));
    PX_TRY(replace(&memory, px__neg_view));
    PX_TRY(replace(&value, px__neg_view));
  }
  return px_copy_(memory, value, non_blocking);
}
