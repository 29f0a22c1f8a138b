// SPDX-License-Identifier: Apache-2.0
// Calls with conjugate and negative views (from conj and _neg_view). Kernels read memory as it is
// stored, so such tensors are first copied by a recorded op. Copies changed by the call are written
// back: self, out= tensors, and arguments of ops like optimizer steps.
#include "call/call_impl.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/view.h"

// From ops/view.op. px__resolve copies the values of a view.
px_status px__resolve(px_tensor **out, const px_tensor *self);
px_status px__neg_view(px_tensor **out, const px_tensor *self);

// Views and composites read conjugate and negative views.
static bool reads_views(const px_op *op) {
  return op->kind == PX_OP_VIEW || op->kind == PX_OP_COMPOSITE || px__impl(op)->takes_conj_neg;
}
// The number of out= tensors. Without an out form `results` is not valid and the call is refused
// later.
static int count_outs(const px_op *op, px_call_mode mode) {
  return mode == PX_CALL_OUT && (op->flags & PX_OP_HAS_OUT) ? op->result_count : 0;
}

bool px__call_has_conj_neg(const px_op *op, px_call_mode mode, const px_value *args,
                           void **results) {
  bool any = false;
  for (int i = 0; i < op->param_count && !reads_views(op); i++) {
    if (args[i].kind == PX_ARG_TENSOR) any |= px__has_conj_neg(args[i].v.tensor);
    for (int k = 0; args[i].kind == PX_ARG_TENSORS && k < args[i].n; k++)
      any |= px__has_conj_neg(args[i].v.tensors[k]);
  }
  for (int k = 0; k < count_outs(op, mode); k++) any |= px__has_conj_neg(results[k]);
  return any;
}

static px_status resolve_one(px__resolved *r, px_tensor *t, px_tensor **slot) {
  *slot = t;
  if (!px__has_conj_neg(t)) return PX_OK;
  PX_TRY(px__resolve(slot, t));
  r->made[r->count++] = (px__view_copy){t, *slot, px_tensor_version(*slot)};
  return PX_OK;
}

static px_status resolve_args(px__resolved *r, const px_op *op, const px_value *args) {
  px_tensor **next = r->lists;
  memcpy(r->args, args, op->param_count * sizeof *args);
  for (int i = 0; i < op->param_count && !reads_views(op); i++) {
    if (args[i].kind == PX_ARG_TENSOR)
      PX_TRY(resolve_one(r, args[i].v.tensor, &r->args[i].v.tensor));
    if (args[i].kind != PX_ARG_TENSORS) continue;
    r->args[i].v.tensors = next;
    for (int k = 0; k < args[i].n; k++) PX_TRY(resolve_one(r, args[i].v.tensors[k], next++));
  }
  return PX_OK;
}

px_status px__resolve_begin(px__resolved *r, const px_op *op, px_call_mode mode,
                            const px_value *args, void **results) {
  size_t singles = op->param_count + (size_t)count_outs(op, mode), listed = 0;
  for (int i = 0; i < op->param_count; i++)
    if (args[i].kind == PX_ARG_TENSORS) listed += (size_t)args[i].n;
  PX_TRY(px__alloc((void **)&r->made,
                   (singles + listed) * sizeof *r->made + listed * sizeof *r->lists));
  r->lists = (px_tensor **)(r->made + singles + listed);
  PX_TRY(resolve_args(r, op, args));
  r->outs = r->count;
  for (int k = 0; k < count_outs(op, mode); k++) {
    px_tensor *copy;
    PX_TRY(resolve_one(r, results[k], &copy));
    r->results[k] = copy;
  }
  r->outs = r->count - r->outs;
  return PX_OK;
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

// Writes a changed copy back, and returns the view in place of the copy. out= tensors were resized
// like their copies.
static px_status write_back(const px__view_copy *one, bool is_out, int count, void **results) {
  if (is_out && !px__has_sizes(one->view, one->copy->ndim, one->copy->sizes))
    PX_TRY(px_tensor_resize(one->view, one->copy->ndim, one->copy->sizes));
  PX_TRY(px__copy_to_conj_neg(one->view, one->copy, false));
  for (int k = 0; k < count; k++) {
    if (results[k] != one->copy) continue;
    px_release(results[k]);
    results[k] = px_retain(one->view);
  }
  return PX_OK;
}

px_status px__resolve_finish(const px__resolved *r, px_call_mode mode, int count, void **results) {
  for (int i = 0; i < r->count; i++) {
    const px__view_copy *one = &r->made[i];
    bool is_out = i >= r->count - r->outs;
    bool is_self = mode == PX_CALL_INPLACE && one->copy == r->args[PX__SELF].v.tensor;
    if (is_out || is_self || px_tensor_version(one->copy) != one->version)
      PX_TRY(write_back(one, is_out, count, results));
  }
  return PX_OK;
}

void px__resolve_end(px__resolved *r) {
  for (int i = 0; i < r->count; i++) px_release(r->made[i].copy);
  px__free(r->made);
}
