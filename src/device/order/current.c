// SPDX-License-Identifier: Apache-2.0
// The calling thread's current device and streams, and its default device. Threads without a
// default device use the process's.
#include "device/order/order.h"

static _Thread_local px_device thread_default = {-1, -1};
// Loaded and stored atomically.
typedef union packed {
  px_device device;
  uint32_t bits;
} packed;
static packed process_default = {{PX_CPU, -1}};

px_status px_device_current(int *index) {
  PX_GIVEN(index);
  PX_TRY(px_device_init());
  *index = px__current_device;
  return PX_OK;
}

int px_device_peek(void) { return px__current_device; }
px_status px__device_resolve(px__device **out, int index) {
  PX_TRY(px_device_init());
  return px__device_get(out, index < 0 ? px__current_device : index);
}

px_status px_device_set(int index) {
  if (index < 0) return PX_OK;
  PX_TRY(px_device_init());
  if (index >= px__rt.count) return px__error_cuda(101);
  px__current_device = index;
  return PX_OK;
}

px_status px_device_resolve(px_device *out, px_device device) {
  PX_GIVEN(out);
  if (PX_LIKELY(device.type == PX_CUDA && px__device_alive() && device.index >= 0 &&
                device.index < px__rt.count))
    return *out = device, PX_OK;
  PX_CHECK(device.type >= 0 && device.type < PX_DEVICE_TYPES, PX_RUNTIME,
           "expected a device, got none");
  if (device.type != PX_CUDA) return *out = (px_device){device.type, -1}, PX_OK;
  PX_TRY(px_device_init());
  int index = device.index < 0 ? px__current_device : device.index;
  if (index >= px__rt.count) return px__error_cuda(101);
  *out = px_cuda(index);
  return PX_OK;
}

px_device px_device_home(void) {
  packed now = {.bits = __atomic_load_n(&process_default.bits, __ATOMIC_RELAXED)};
  return now.device;
}

px_device px_device_preferred(void) { return thread_default; }

px_device px_device_default(void) {
  return thread_default.type < 0 ? px_device_home() : thread_default;
}

static px_status check_type(px_device device) {
  PX_CHECK(device.type < PX_DEVICE_TYPES, PX_VALUE, "there is no device type %d", device.type);
  return PX_OK;
}

px_status px_device_set_default(px_device device) {
  PX_TRY(check_type(device));
  thread_default = device;
  return PX_OK;
}

px_status px_device_set_home(px_device device) {
  PX_TRY(check_type(device));
  if (device.type < 0) device = px_cpu();
  __atomic_store_n(&process_default.bits, (packed){device}.bits, __ATOMIC_RELAXED);
  return PX_OK;
}

px_status px_stream_current(px_stream **out, px_device device) {
  PX_GIVEN(out);
  if (device.type == PX_CPU || device.type == PX_META) return *out = &px__cpu_stream, PX_OK;
  px__device *d;
  if (device.type != PX_CUDA || device.index < 0) PX_TRY(px_device_resolve(&device, device));
  PX_TRY(px__device_get(&d, device.index));
  *out = px__stream_now(d);
  return PX_OK;
}

px_status px_stream_set_current(px_stream *stream) {
  if (!stream || !stream->owner) return PX_OK;
  PX_TRY(px_device_init());
  return px__stream_set_now(stream);
}

px_status px_stream_scope_begin(px_stream_scope *scope, px_stream *stream) {
  px_stream *before;
  PX_GIVEN(scope);
  *scope = (px_stream_scope){NULL, px_device_peek()};
  if (!stream || !stream->owner) return PX_OK;
  PX_TRY(px_stream_current(&before, stream->device));
  px_retain(before);
  px_status status = px_device_set(stream->owner->index);
  if (status == PX_OK) status = px_stream_set_current(stream);
  if (status == PX_OK)
    scope->stream = before;
  else
    px_release(before);
  return status;
}

// Cannot fail: the device and the stream were current before.
void px_stream_scope_end(px_stream_scope *scope) {
  if (!scope->stream) return;
  (void)!px_stream_set_current(scope->stream);
  (void)!px_device_set(scope->device);
  px_release(scope->stream);
  scope->stream = NULL;
}
