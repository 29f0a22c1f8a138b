// SPDX-License-Identifier: Apache-2.0
// What is current in the calling thread: device, streams, default device. The default device of
// threads that have not chosen one is the process's.
#include "device/state.h"

static _Thread_local px_device preferred = {-1, -1};
// Read and written whole.
typedef union whole {
  px_device device;
  uint32_t bits;
} whole;
static whole home = {{PX_CPU, -1}};

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
           "a device is needed, but none was given");
  if (device.type != PX_CUDA) return *out = (px_device){device.type, -1}, PX_OK;
  PX_TRY(px_device_init());
  int index = device.index < 0 ? px__current_device : device.index;
  if (index >= px__rt.count) return px__error_cuda(101);
  *out = px_cuda(index);
  return PX_OK;
}

px_device px_device_home(void) {
  whole now = {.bits = __atomic_load_n(&home.bits, __ATOMIC_RELAXED)};
  return now.device;
}

px_device px_device_preferred(void) { return preferred; }

px_device px_device_default(void) { return preferred.type < 0 ? px_device_home() : preferred; }

static px_status check_type(px_device device) {
  PX_CHECK(device.type < PX_DEVICE_TYPES, PX_VALUE, "there is no device type %d", device.type);
  return PX_OK;
}

px_status px_device_set_default(px_device device) {
  PX_TRY(check_type(device));
  preferred = device;
  return PX_OK;
}

px_status px_device_set_home(px_device device) {
  PX_TRY(check_type(device));
  if (device.type < 0) device = px_cpu();
  __atomic_store_n(&home.bits, (whole){device}.bits, __ATOMIC_RELAXED);
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
