// SPDX-License-Identifier: Apache-2.0
// Copies as ops. The movement itself is the tensor layer's px__tensor_copy; here is what a program
// sees of it: when self comes back, what a result's memory is, which texts refuse.
#include "ops/run_impl.h"

px_status px__copy_copy(px_call *c) {
  px_tensor *self = px__tensor_arg(c, 0);
  PX_TRY(px__check_self_overlap(self));
  PX_TRY(px__tensor_copy(self, px__tensor_arg(c, 1), px__int_arg(c, 2)));
  c->results[0] = px_retain(self);
  return PX_OK;
}

// Strides for a copy of t: t's own order of dimensions if it fills its memory, else row-major.
static const int64_t *kept_strides(const px_tensor *t) {
  int64_t last = 0;
  if (t->contiguous || t->numel == 0) return NULL;
  for (int d = 0; d < t->ndim; d++) {
    if (t->strides[d] <= 0 && t->sizes[d] > 1) return NULL;
    last += (t->sizes[d] - 1) * t->strides[d];
  }
  return last + 1 == t->numel ? t->strides : NULL;
}

px_status px__empty_as(px_tensor **out, const px_tensor *t, px_dtype dtype, px_device device) {
  const int64_t *strides = kept_strides(t);
  if (!strides) return px_tensor_empty(out, t->ndim, t->sizes, dtype, device);
  return px_tensor_empty_strided(out, t->ndim, t->sizes, strides, dtype, device);
}

static px_status copy_to_new(px_call *c, px_tensor *made_take, bool non_blocking) {
  px_status status = px__tensor_copy(made_take, px__tensor_arg(c, 0), non_blocking);
  if (status == PX_OK)
    c->results[0] = made_take;
  else
    px_release(made_take);
  return status;
}

px_status px__copy_clone(px_call *c) {
  const px_tensor *self = px__tensor_arg(c, 0);
  px_tensor *made = NULL;
  px_device device = px__tensor_device(self);
  px_dtype dtype = (px_dtype)self->dtype;
  bool packed = px__has_arg(c, 1) && !strcmp(c->args[1].v.text, "contiguous_format");
  if (packed)
    PX_TRY(px_tensor_empty(&made, self->ndim, self->sizes, dtype, device));
  else
    PX_TRY(px__empty_as(&made, self, dtype, device));
  return copy_to_new(c, made, false);
}

px_status px__copy_contiguous(px_call *c) {
  px_tensor *self = px__tensor_arg(c, 0);
  if (!self->contiguous) return px_clone(&c->results[0], self, "contiguous_format");
  c->results[0] = px_retain(self);
  return PX_OK;
}

// From a device to the host without blocking, the target is page-locked: only then is the copy
// asynchronous. Whoever reads it first waits.
px_status px__copy_to_copy(px_call *c) {
  const px_tensor *self = px__tensor_arg(c, 0);
  px_device from = px__tensor_device(self), device = from;
  px_dtype dtype = px__has_arg(c, 1) ? (px_dtype)px__int_arg(c, 1) : (px_dtype)self->dtype;
  bool pin = px__int_arg(c, 3), non_blocking = px__int_arg(c, 4);
  px_tensor *made = NULL;
  if (px__has_arg(c, 2)) PX_TRY(px_device_resolve(&device, c->args[2].v.device));
  pin |= non_blocking && device.type == PX_CPU && from.type != PX_CPU;
  PX_CHECK(!pin || device.type == PX_CPU, PX_RUNTIME, "Only dense CPU tensors can be pinned");
  if (pin)
    PX_TRY(px_tensor_empty_pinned(&made, self->ndim, self->sizes, dtype));
  else
    PX_TRY(px__empty_as(&made, self, dtype, device));
  return copy_to_new(c, made, non_blocking);
}

static px_status move_to(px_tensor **out, px_tensor *self, px_dtype dtype, px_device device,
                         bool non_blocking, bool copy) {
  if (device.type >= 0) PX_TRY(px_device_resolve(&device, device));
  bool same_dtype = dtype == PX_DTYPE_NONE || (int)dtype == self->dtype;
  bool same_device = device.type < 0 || px_device_equal(device, px__tensor_device(self));
  if (!same_dtype || !same_device || copy)
    return px__to_copy(out, self, dtype, device, false, non_blocking);
  *out = px_retain(self);
  return PX_OK;
}

px_status px__copy_to(px_call *c) {
  px_dtype dtype = px__has_arg(c, 1) ? (px_dtype)px__int_arg(c, 1) : PX_DTYPE_NONE;
  px_device device = px__has_arg(c, 2) ? c->args[2].v.device : PX_DEVICE_NONE;
  return move_to(&c->results[0], px__tensor_arg(c, 0), dtype, device, px__int_arg(c, 3),
                 px__int_arg(c, 4));
}

px_status px__copy_type_as(px_call *c) {
  const px_tensor *other = px__tensor_arg(c, 1);
  return move_to(&c->results[0], px__tensor_arg(c, 0), (px_dtype)other->dtype,
                 px__tensor_device(other), false, false);
}

px_status px__copy_to_cpu(px_call *c) {
  return move_to(&c->results[0], px__tensor_arg(c, 0), PX_DTYPE_NONE, px_cpu(), false, false);
}

px_status px__copy_to_cuda(px_call *c) {
  px_device device = px__has_arg(c, 1) ? c->args[1].v.device : px_cuda(-1);
  PX_CHECK(device.type == PX_CUDA, PX_RUNTIME, "Invalid device, must be cuda device");
  return move_to(&c->results[0], px__tensor_arg(c, 0), PX_DTYPE_NONE, device, px__int_arg(c, 2),
                 false);
}

px_status px__copy_pin(px_call *c) {
  px_tensor *self = px__tensor_arg(c, 0);
  if (!px_tensor_is_pinned(self)) return px__pin_memory(&c->results[0], self);
  c->results[0] = px_retain(self);
  return PX_OK;
}

px_status px__copy_pin_copy(px_call *c) {
  const px_tensor *self = px__tensor_arg(c, 0);
  char text[48];
  PX_CHECK(px__tensor_device(self).type == PX_CPU, PX_RUNTIME,
           "cannot pin '%s' only dense CPU tensors can be pinned", px_tensor_type_name(self, text));
  px_tensor *made = NULL;
  PX_TRY(px_tensor_empty_pinned(&made, self->ndim, self->sizes, (px_dtype)self->dtype));
  return copy_to_new(c, made, false);
}
