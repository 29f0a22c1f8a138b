// SPDX-License-Identifier: Apache-2.0
// What is current in the calling thread: device, streams, default device.
#include "device/state.h"

static _Thread_local int current_device;
static _Thread_local px_stream *current_streams[PX__DEVICES];  // held; NULL: the default stream
static _Thread_local px_device default_device = {PX_CPU, -1};
static _Thread_local px_device home = {PX_CPU, -1};

px_status px_device_current(int *index) {
  PX_TRY(px_device_init());
  *index = current_device;
  return PX_OK;
}

int px_device_peek(void) { return current_device; }

px_status px_device_set(int index) {
  if (index < 0) return PX_OK;
  PX_TRY(px_device_init());
  if (index >= px__rt.count) return px__error_cuda(101);
  current_device = index;
  return PX_OK;
}

px_status px_device_resolve(px_device *out, px_device device) {
  PX_CHECK(device.type >= 0 && device.type < PX_DEVICE_TYPES, PX_RUNTIME,
           "a device is needed, but none was given");
  if (device.type == PX_CPU) return *out = px_cpu(), PX_OK;
  PX_TRY(px_device_init());
  int index = device.index < 0 ? current_device : device.index;
  if (index >= px__rt.count) return px__error_cuda(101);
  *out = px_cuda(index);
  return PX_OK;
}

px_device px_device_default(void) { return default_device; }

px_status px_device_set_default(px_device device) {
  if (device.type < 0) device = px_cpu();
  PX_CHECK(device.type < PX_DEVICE_TYPES, PX_VALUE, "there is no device type %d", device.type);
  default_device = device;
  return PX_OK;
}

px_device px_device_home(void) { return home; }

px_status px_device_set_home(px_device device) {
  PX_TRY(px_device_set_default(device));
  home = default_device;
  return PX_OK;
}

px_stream *px__stream_now(px__device *d) {
  px_stream *stream = current_streams[d->index];
  return stream ? stream : d->streams[0];
}

px_status px_stream_current(px_stream **out, px_device device) {
  if (device.type == PX_CPU) return *out = &px__cpu_stream, PX_OK;
  px__device *d;
  if (device.type != PX_CUDA || device.index < 0) PX_TRY(px_device_resolve(&device, device));
  PX_TRY(px__device_get(&d, device.index));
  *out = px__stream_now(d);
  return PX_OK;
}

// A thread that ends gives its current streams back.
static pthread_key_t thread_end;
static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;
static bool thread_end_made;
static void streams_give_back(void *streams) {
  for (int i = 0; i < PX__DEVICES; i++) px_release(((px_stream **)streams)[i]);
}
static void thread_end_make(void) {
  thread_end_made = pthread_key_create(&thread_end, streams_give_back) == 0;
}

px_status px_stream_set_current(px_stream *stream) {
  if (!stream || !stream->owner) return PX_OK;
  PX_TRY(px_device_init());
  px_stream **place = &current_streams[stream->owner->index], *before = *place;
  if (before == stream) return PX_OK;
  pthread_once(&thread_end_once, thread_end_make);
  if (thread_end_made) pthread_setspecific(thread_end, current_streams);
  *place = px_retain(stream);
  px_release(before);
  return PX_OK;
}
