// SPDX-License-Identifier: Apache-2.0
// Run functions of copies and conversions. px__tensor_copy in the tensor layer copies the data.
// These functions reject invalid calls, allocate the result, or return self if no copy is needed.
#include "call/fusion/fusion.h"
#include "hidden/copy.h"
#include "ops/core/run.h"
#include "phlox/ops/copy.h"
#include "run_functions/copy.h"

PX_RUN(copy) {
  px_tensor *self = args->self;
  PX_TRY(px__tensor_copy(self, args->src, args->non_blocking));
  call->results[0] = px_retain(self);
  return PX_OK;
}

// Copies to a conjugate or negative view.
PX_CONJ_NEG(copy) {
  *done = px__has_conj_neg(args->self);
  if (!*done) return PX_OK;
  PX_TRY(px__copy_to_conj_neg(args->self, args->src, args->non_blocking));
  results[0] = px_retain(args->self);
  return PX_OK;
}

static px_status format_of(px_memory_format *out, const char *name) {
  *out = PX_FORMAT_PRESERVE;
  return name ? px_memory_format_parse(out, name) : PX_OK;
}

px_status px__empty_strided(px_tensor **out, int ndim, const int64_t *sizes, const int64_t *strides,
                            px_dtype dtype, px_device device, bool pin) {
  if (!pin && !strides) return px_tensor_empty(out, ndim, sizes, dtype, device);
  if (!pin) return px_tensor_empty_strided(out, ndim, sizes, strides, dtype, device);
  if (!strides) return px_tensor_empty_pinned(out, ndim, sizes, dtype);
  size_t bytes;
  PX_SCOPED(px_tensor) flat = NULL;
  if (dtype == PX_DTYPE_NONE) dtype = px_dtype_default();
  PX_TRY(px__check_sizes(ndim, sizes));
  PX_TRY(px__extent_bytes(&bytes, ndim, sizes, strides, 0, dtype));
  int64_t count = (int64_t)(bytes / px_dtype_size(dtype));
  PX_TRY(px_tensor_empty_pinned(&flat, 1, &count, dtype));
  return px__tensor_over(out, px_retain(flat->storage), ndim, sizes, strides, dtype);
}

px_status px__empty_in(px_tensor **out, const px_tensor *t, const char *memory_format,
                       px_dtype dtype, px_device device, bool pin) {
  int64_t buffer[PX_MAX_DIMS];
  const int64_t *strides = buffer;
  px_memory_format format;
  PX_TRY(format_of(&format, memory_format));
  if (px__is_batched(t)) {
    PX_SCOPED(px_tensor) all = NULL;
    PX_TRY(px__empty_in(&all, t->physical, NULL, dtype, device, pin));
    return px__batched_new(out, all, t->level);
  }
  if (format == PX_FORMAT_PRESERVE)
    strides = px__preserved_strides(buffer, t);
  else
    PX_TRY(px__format_strides(buffer, t->ndim, t->sizes, format));
  return px__empty_strided(out, t->ndim, t->sizes, strides, dtype, device, pin);
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
  PX_TRY(px__empty_in(&made, self, args->memory_format, (px_dtype)self->dtype,
                      px__tensor_device(self), false));
  return copy_to_new(call, made, self, false);
}

PX_RUN(contiguous) {
  px_tensor *self = args->self;
  if (!self->contiguous) return px_clone(&call->results[0], self, "contiguous_format");
  call->results[0] = px_retain(self);
  return PX_OK;
}

PX_RUN(contiguous_in) {
  px_tensor *self = args->self;
  px_memory_format format;
  PX_TRY(px_memory_format_parse(&format, args->memory_format));
  if (px_tensor_has_format(self, format)) {
    call->results[0] = px_retain(self);
    return PX_OK;
  }
  PX_CHECK(format != PX_FORMAT_PRESERVE, PX_RUNTIME,
           "preserve memory format is unsupported by the contiguous operator");
  return px_clone(&call->results[0], self, args->memory_format);
}

// A non-blocking copy to the host needs a page-locked destination to be asynchronous. The first
// reader waits for it.
PX_RUN(_to_copy) {
  const px_tensor *self = args->self;
  px_device from = px__tensor_device(self), device = from;
  px_dtype dtype = args->dtype != PX_DTYPE_NONE ? args->dtype : (px_dtype)self->dtype;
  bool pin = args->pin_memory, non_blocking = args->non_blocking;
  px_tensor *made = NULL;
  if (args->device.type >= 0) PX_TRY(px_device_resolve(&device, args->device));
  pin |= non_blocking && device.type == PX_CPU && from.type != PX_CPU;
  PX_CHECK(!pin || device.type == PX_CPU, PX_RUNTIME, "Only dense CPU tensors can be pinned");
  PX_TRY(px__empty_in(&made, self, args->memory_format, dtype, device, pin));
  return copy_to_new(call, made, self, non_blocking);
}

static bool converts(const px_call *call, px_dtype *to) {
  extern const px_op px__op__to_copy;
  if (call->op != &px__op__to_copy) return false;
  const px___to_copy_args args = px___to_copy_args_of(call->args);
  bool here = args.device.type < 0 || px_device_equal(args.device, px__tensor_device(args.self));
  *to = args.dtype;
  return here && args.dtype != PX_DTYPE_NONE && !args.pin_memory && !args.memory_format;
}
static __attribute__((constructor)) void set_converts(void) { px__fusion_converts = converts; }

// True if self already has the requested memory format.
static px_status is_formatted(bool *out, const px_tensor *self, const char *memory_format) {
  px_memory_format format;
  PX_TRY(format_of(&format, memory_format));
  *out = format == PX_FORMAT_PRESERVE || format == px_tensor_suggest_format(self);
  return PX_OK;
}

static px_status move_to(px_tensor **out, const px_tensor *self, px_dtype dtype, px_device device,
                         bool non_blocking, bool copy, const char *memory_format) {
  if (device.type >= 0) PX_TRY(px_device_resolve(&device, device));
  bool same_dtype = dtype == PX_DTYPE_NONE || (int)dtype == self->dtype;
  bool same_device = device.type < 0 || px_device_equal(device, px__tensor_device(self));
  bool same_format = true;
  if (PX_UNLIKELY(memory_format != NULL)) PX_TRY(is_formatted(&same_format, self, memory_format));
  if (!same_dtype || !same_device || !same_format || copy)
    return px__to_copy(out, self, dtype, device, false, non_blocking, memory_format);
  *out = px_retain((px_tensor *)self);
  return PX_OK;
}

px_status px__tensor_to(px_tensor **out, const px_tensor *t, px_dtype dtype, px_device device) {
  return move_to(out, t, dtype, device, false, false, NULL);
}

PX_RUN(to) {
  return move_to(&call->results[0], args->self, args->dtype, args->device, args->non_blocking,
                 args->copy, NULL);
}

PX_RUN(to_format) {
  return move_to(&call->results[0], args->self, args->dtype, args->device, args->non_blocking,
                 args->copy, args->memory_format);
}

PX_RUN(type_as) {
  const px_tensor *other = args->other;
  return move_to(&call->results[0], args->self, (px_dtype)other->dtype, px__tensor_device(other),
                 false, false, NULL);
}

PX_RUN(to_cpu) {
  return move_to(&call->results[0], args->self, PX_DTYPE_NONE, px_cpu(), false, false, NULL);
}

PX_RUN(to_cuda) {
  px_device device = args->device.type >= 0 ? args->device : px_cuda(-1);
  PX_CHECK(device.type == PX_CUDA, PX_RUNTIME, "Invalid device, must be cuda device");
  return move_to(&call->results[0], args->self, PX_DTYPE_NONE, device, args->non_blocking, false,
                 NULL);
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
  PX_TRY(px__empty_in(&made, self, NULL, (px_dtype)self->dtype, px_cpu(), true));
  return copy_to_new(call, made, self, false);
}
