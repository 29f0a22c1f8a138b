// SPDX-License-Identifier: Apache-2.0
// Copies as ops. px__tensor_copy of the tensor layer copies; this file decides when self is
// returned instead, what memory a result has, and what is refused.
#include "hidden/copy.h"
#include "ops/run.h"
#include "phlox/ops/copy.h"
#include "run_functions/copy.h"

PX_RUN(copy) {
  px_tensor *self = args->self;
  PX_TRY(px__tensor_copy(self, args->src, args->non_blocking));
  call->results[0] = px_retain(self);
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

static px_status copy_to_new(px_call *call, px_tensor *made_take, const px_tensor *from,
                             bool non_blocking) {
  px_status status = px__tensor_copy(made_take, from, non_blocking);
  if (status == PX_OK)
    call->results[0] = made_take;
  else
    px_release(made_take);
  return status;
}

PX_RUN(clone) {
  const px_tensor *self = args->self;
  px_tensor *made = NULL;
  px_device device = px__tensor_device(self);
  px_dtype dtype = (px_dtype)self->dtype;
  bool packed = args->memory_format != NULL && !strcmp(args->memory_format, "contiguous_format");
  if (packed)
    PX_TRY(px_tensor_empty(&made, self->ndim, self->sizes, dtype, device));
  else
    PX_TRY(px__empty_as(&made, self, dtype, device));
  return copy_to_new(call, made, self, false);
}

PX_RUN(contiguous) {
  px_tensor *self = args->self;
  if (!self->contiguous) return px_clone(&call->results[0], self, "contiguous_format");
  call->results[0] = px_retain(self);
  return PX_OK;
}

// From a device to the host without blocking, the target is page-locked: only then is the copy
// asynchronous. Whoever reads it first waits.
PX_RUN(_to_copy) {
  const px_tensor *self = args->self;
  px_device from = px__tensor_device(self), device = from;
  px_dtype dtype = args->dtype != PX_DTYPE_NONE ? args->dtype : (px_dtype)self->dtype;
  bool pin = args->pin_memory, non_blocking = args->non_blocking;
  px_tensor *made = NULL;
  if (args->device.type >= 0) PX_TRY(px_device_resolve(&device, args->device));
  pin |= non_blocking && device.type == PX_CPU && from.type != PX_CPU;
  PX_CHECK(!pin || device.type == PX_CPU, PX_RUNTIME, "Only dense CPU tensors can be pinned");
  if (pin)
    PX_TRY(px_tensor_empty_pinned(&made, self->ndim, self->sizes, dtype));
  else
    PX_TRY(px__empty_as(&made, self, dtype, device));
  return copy_to_new(call, made, self, non_blocking);
}

static px_status move_to(px_tensor **out, const px_tensor *self, px_dtype dtype, px_device device,
                         bool non_blocking, bool copy) {
  if (device.type >= 0) PX_TRY(px_device_resolve(&device, device));
  bool same_dtype = dtype == PX_DTYPE_NONE || (int)dtype == self->dtype;
  bool same_device = device.type < 0 || px_device_equal(device, px__tensor_device(self));
  if (!same_dtype || !same_device || copy)
    return px__to_copy(out, self, dtype, device, false, non_blocking);
  *out = px_retain((px_tensor *)self);
  return PX_OK;
}

px_status px__tensor_to(px_tensor **out, const px_tensor *t, px_dtype dtype, px_device device) {
  return move_to(out, t, dtype, device, false, false);
}

PX_RUN(to) {
  return move_to(&call->results[0], args->self, args->dtype, args->device, args->non_blocking,
                 args->copy);
}

PX_RUN(type_as) {
  const px_tensor *other = args->other;
  return move_to(&call->results[0], args->self, (px_dtype)other->dtype, px__tensor_device(other),
                 false, false);
}

PX_RUN(to_cpu) {
  return move_to(&call->results[0], args->self, PX_DTYPE_NONE, px_cpu(), false, false);
}

PX_RUN(to_cuda) {
  px_device device = args->device.type >= 0 ? args->device : px_cuda(-1);
  PX_CHECK(device.type == PX_CUDA, PX_RUNTIME, "Invalid device, must be cuda device");
  return move_to(&call->results[0], args->self, PX_DTYPE_NONE, device, args->non_blocking, false);
}

PX_RUN(pin_memory) {
  px_tensor *self = args->self;
  if (!px_tensor_is_pinned(self)) return px__pin_memory(&call->results[0], self);
  call->results[0] = px_retain(self);
  return PX_OK;
}

PX_RUN(_pin_memory) {
  const px_tensor *self = args->self;
  char text[48];
  PX_CHECK(px__tensor_device(self).type == PX_CPU, PX_RUNTIME,
           "cannot pin '%s' only dense CPU tensors can be pinned", px_tensor_type_name(self, text));
  px_tensor *made = NULL;
  PX_TRY(px_tensor_empty_pinned(&made, self->ndim, self->sizes, (px_dtype)self->dtype));
  return copy_to_new(call, made, self, false);
}
