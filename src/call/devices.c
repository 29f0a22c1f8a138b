// SPDX-License-Identifier: Apache-2.0
// Checks that the operands of a call are on one device. The texts are PyTorch's.
//
// Pointwise ops combine 0-dim CPU tensors with tensors on another device; other ops do not. Devices
// with peer access enabled in both directions count as one.
#include "call/call_impl.h"

static px_status disagree(px_device common, px_device other) {
  char a[PX_DEVICE_TEXT], b[PX_DEVICE_TEXT];
  PX_FAIL(PX_RUNTIME,
          "Expected all tensors to be on the same device, but found at least two devices, "
          "%s and %s!",
          px_device_format(common, a), px_device_format(other, b));
}

static px_status wrapper_disagrees(const px_call *call, const char *name, px_device other,
                                   px_device common) {
  const px__op_texts *texts = px__impl(call->op)->texts;
  const char *wrapper = texts                               ? texts->wrapper
                        : call->op->kind == PX_OP_POINTWISE ? NULL
                                                            : call->op->name;
  if (!wrapper) return common.type == PX_CPU ? disagree(other, common) : disagree(common, other);
  char a[PX_DEVICE_TEXT], b[PX_DEVICE_TEXT];
  PX_FAIL(PX_RUNTIME,
          "Expected all tensors to be on the same device, but got %s is on %s, different from "
          "other tensors on %s (when checking argument in method wrapper_CUDA_%s%s)",
          name, px_device_format(other, a), px_device_format(common, b), wrapper,
          call->mode == PX_CALL_OUT ? "_out_out" : "");
}

px_status px__check_value(const px_tensor *value, px_device device) {
  px_device from = px__tensor_device(value);
  if (from.type == PX_CPU || device.type == PX_CPU || px_device_equal(from, device)) return PX_OK;
  return disagree(device, from);
}

// Checks the device of masks, for ops with a text of their own.
static px_status check_mask_device(const px_call *call, px__refusal refusal) {
  const px_tensor *self = px__arg_tensor(call, PX__SELF);
  char a[PX_DEVICE_TEXT], b[PX_DEVICE_TEXT];
  for (int i = 1; i < call->op->param_count; i++) {
    const px_tensor *mask = px__arg_tensor(call, i);
    if (!(px__impl(call->op)->masks >> i & 1) || !self || !mask || mask->ndim == 0) continue;
    if (px__device_reaches(px__tensor_device(self), px__tensor_device(mask))) continue;
    px_device_format(px__tensor_device(mask), a);
    px_device_format(px__tensor_device(self), b);
    PX_FAIL_AS(refusal, a, b);
  }
  return PX_OK;
}

static px_device common_device(const px_call *call) {
  for (int i = 0; i < call->op->result_count; i++)
    if (call->given[i] && px__tensor_device(call->given[i]).type != PX_CPU)
      return px__tensor_device(call->given[i]);
  for (int i = 0; i < call->op->param_count; i++) {
    const px_tensor *t = px__arg_tensor(call, i);
    if (t && px__tensor_device(t).type != PX_CPU) return px__tensor_device(t);
  }
  return px_cpu();
}

px_status px__call_find_device(px_call *call) {
  px_device common = common_device(call);
  call->device = common;
  if (common.type == PX_CPU) return PX_OK;
  const px__op_texts *texts = px__impl(call->op)->texts;
  if (texts && texts->of_device.code) PX_TRY(check_mask_device(call, texts->of_device));
  for (int i = 0; i < call->op->result_count; i++)
    if (call->given[i] && !px__device_reaches(common, px__tensor_device(call->given[i])))
      return disagree(common, px__tensor_device(call->given[i]));
  int cpu_scalars = 0;
  for (int i = 0; i < call->op->param_count; i++) {
    const px_tensor *t = px__arg_tensor(call, i);
    if (!t) continue;
    px_device d = px__tensor_device(t);
    if (px_device_equal(common, d)) continue;
    if (d.type == PX_CPU && t->ndim == 0)
      cpu_scalars += !(px__flags(t) & PX_TENSOR_WRAPPED);
    else if (!px__device_reaches(common, d))
      return wrapper_disagrees(call, call->op->params[i].name, d, common);
  }
  PX_CHECK(cpu_scalars <= 1 || px__impl(call->op)->any_scalars, PX_RUNTIME,
           "Trying to pass too many CPU scalars to non-CPU kernel!");
  return PX_OK;
}

static px_status check_one(const px_call *call, const char *name, const px_tensor *t,
                           px_device *common, bool *found) {
  px_device d = px__tensor_device(t);
  if (!*found) {
    *common = d, *found = true;
    return PX_OK;
  }
  if (px_device_equal(d, *common) || px__device_reaches(*common, d)) return PX_OK;
  return wrapper_disagrees(call, name, d, *common);
}

// Fast path: true if every tensor is on the device of the first one, already in call->device.
static inline bool is_same_device(const px_call *call) {
  for (int i = 0; i < call->op->param_count; i++) {
    const px_value *a = &call->args[i];
    if (a->kind == PX_ARG_TENSORS) return false;
    if (a->kind == PX_ARG_TENSOR && !px_device_equal(px__tensor_device(a->v.tensor), call->device))
      return false;
  }
  return call->mode != PX_CALL_OUT;
}

px_status px__call_same_device(px_call *call) {
  if (call->one_device) return PX_OK;
  call->one_device = true;
  if (PX_LIKELY(is_same_device(call))) return PX_OK;
  px_device common = call->device;
  bool found = false;
  if (call->mode == PX_CALL_OUT && call->given[0])
    PX_TRY(check_one(call, "out", call->given[0], &common, &found));
  for (int i = 0; i < call->op->param_count; i++) {
    px_value a = call->args[i];
    const char *name = call->op->params[i].name;
    if (a.kind == PX_ARG_TENSOR && !(px__flags(a.v.tensor) & PX_TENSOR_WRAPPED))
      PX_TRY(check_one(call, name, a.v.tensor, &common, &found));
    for (int k = 0; a.kind == PX_ARG_TENSORS && k < a.n; k++)
      if (a.v.tensors[k]) PX_TRY(check_one(call, name, a.v.tensors[k], &common, &found));
  }
  if (found) call->device = common;
  return PX_OK;
}
