// SPDX-License-Identifier: Apache-2.0
// Whether the operands of a call are on one device, and what to say if they are not.
//
// Element-wise ops let a 0-dim CPU tensor go anywhere; other ops let nothing. Devices that address
// each other's memory (peer access enabled both ways by the program) count as one.
#include "call/call_impl.h"

static px_status disagree(px_device common, px_device other) {
  char a[PX_DEVICE_TEXT], b[PX_DEVICE_TEXT];
  PX_FAIL(PX_RUNTIME,
          "Expected all tensors to be on the same device, but found at least two devices, "
          "%s and %s!",
          px_device_format(common, a), px_device_format(other, b));
}

// PyTorch's generated wrappers, where they are not called like the op; NULL: it checks
// element-wise.
static const struct {
  const char *op, *wrapper;
} wrappers[] = {
    {"dot", "_dot"},
    {"equal", "_equal"},
    {"index_select", "_index_select"},
    {"embedding", "_index_select"},
    {"masked_select", "_masked_select"},
    {"bincount", "_bincount"},
    {"batch_norm", "_native_batch_norm"},
    {"native_batch_norm", "_native_batch_norm"},
    {"native_layer_norm", "_native_layer_norm"},
    {"nll_loss", "nll_loss_forward"},
    {"scatter", "scatter_src"},
    {"stack", "cat"},
    {"take", "_take"},
    {"clamp", "clamp_Tensor"},
    {"_linear", "addmm"},
    {"conv2d", "__slow_conv2d_forward"},
    {"huber_loss_forward", "_huber_loss"},
    {"mse_loss_forward", NULL},
    {"smooth_l1_loss_forward", NULL},
    {"binary_cross_entropy_forward", NULL},
    {"bce_with_logits_forward", NULL},
    {"index_fill", NULL},
    {"sgd_step", NULL},
    {"adam_step", NULL},
    {"adadelta_step", NULL},
};

static px_status wrapper_disagrees(const px_call *call, const char *name, px_device other,
                                   px_device common) {
  const char *wrapper = call->op->name;
  for (int i = 0; i < PX_COUNT_OF(wrappers); i++)
    if (!strcmp(call->op->name, wrappers[i].op)) wrapper = wrappers[i].wrapper;
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

// masked_fill has a text of its own.
static px_status mask_elsewhere(const px_call *call) {
  const px_tensor *self = px__arg_tensor(call, 0), *mask = px__arg_tensor(call, 1);
  char a[PX_DEVICE_TEXT], b[PX_DEVICE_TEXT];
  if (strcmp(call->op->name, "masked_fill") || !self || !mask) return PX_OK;
  PX_CHECK(px__device_reaches(px__tensor_device(self), px__tensor_device(mask)) || mask->ndim == 0,
           PX_RUNTIME,
           "expected self and mask to be on the same device, but got mask on %s and self on %s",
           px_device_format(px__tensor_device(mask), a),
           px_device_format(px__tensor_device(self), b));
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

px_status px__call_agree(px_call *call) {
  px_device common = common_device(call);
  call->device = common;
  if (common.type == PX_CPU) return PX_OK;
  if (px__impl(call->op)->masks) PX_TRY(mask_elsewhere(call));
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
      cpu_scalars += !(t->flags & PX_TENSOR_WRAPPED);
    else if (!px__device_reaches(common, d))
      return strcmp(call->op->name, "clamp")
                 ? disagree(common, d)
                 : wrapper_disagrees(call, call->op->params[i].name, d, common);
  }
  // where() takes its branches to the device of the condition.
  PX_CHECK(cpu_scalars <= 1 || !strcmp(call->op->name, "where"), PX_RUNTIME,
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

// Whether every tensor is where the first one is, which the driver has noted.
static inline bool all_here(const px_call *call) {
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
  if (PX_LIKELY(all_here(call))) return PX_OK;
  px_device common = call->device;
  bool found = false;
  if (call->mode == PX_CALL_OUT && call->given[0])
    PX_TRY(check_one(call, "out", call->given[0], &common, &found));
  for (int i = 0; i < call->op->param_count; i++) {
    px_value a = call->args[i];
    const char *name = call->op->params[i].name;
    if (a.kind == PX_ARG_TENSOR && !(a.v.tensor->flags & PX_TENSOR_WRAPPED))
      PX_TRY(check_one(call, name, a.v.tensor, &common, &found));
    for (int k = 0; a.kind == PX_ARG_TENSORS && k < a.n; k++)
      if (a.v.tensors[k]) PX_TRY(check_one(call, name, a.v.tensors[k], &common, &found));
  }
  if (found) call->device = common;
  return PX_OK;
}
