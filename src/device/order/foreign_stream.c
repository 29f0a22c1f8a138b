// SPDX-License-Identifier: Apache-2.0
// Streams of other libraries on the same device, given by their driver handle. They become streams
// of ours, with ordering in both directions. A handle of one of our streams means that stream.
// Simulated devices have no driver to share, so the host waits for unknown streams there.
#include "device/order/order.h"

// Returns a new reference. Lock held.
static px_stream *find(const px__device *d, const void *native) {
  for (int i = 0; i < d->stream_count; i++)
    if (d->streams[i]->native == native) return px_retain(d->streams[i]);
  return NULL;
}

static px_stream *find_locked(px__device *d, const void *native) {
  px__device_lock(d);
  px_stream *stream = find(d, native);
  px__device_unlock(d);
  return stream;
}

// Makes later work of `after` wait for all work of `before`; both are handles. event_new makes the
// device's context current, required by handles of default streams.
static px_status order_natives(const px__device *d, void *after, void *before) {
  const px_backend *b = px__rt.backend;
  void *event;
  PX_TRY(b->event_new(d->physical, 0, &event));
  px_status status = b->event_record(event, before);
  if (status == PX_OK) status = b->stream_wait(after, event);
  b->event_release(d->physical, event);
  return status;
}

// Finds an unheld, idle foreign stream. The next one may reuse its record and its cached memory.
static px_stream *find_reusable(px__device *d) {
  for (int i = 1; i < d->stream_count; i++) {
    px_stream *s = d->streams[i];
    if (!s->foreign || px_refs(s) > 1) continue;
    px__stream_poll(s);
    if (px__completed(s) >= s->issued) return s;
  }
  return NULL;
}

static px_status adopt(px_stream **out, px__device *d, void *native) {
  int priority;
  PX_CHECK(PX__BACKEND_HAS(px__rt.backend, stream_adopt), PX_UNIMPLEMENTED,
           "the backend %s cannot take streams of other libraries", px__rt.backend->name);
  PX_CHECK(!px__fault(PX__FAULT_STREAM), PX_ACCELERATOR, "a stream could not be taken (injected)");
  PX_TRY(px__rt.backend->stream_adopt(d->physical, native, &priority));
  return px__stream_register_foreign(out, d, find_reusable(d), native, priority);
}

// Lock held.
static px_status from_native(px_stream **out, px__device *d, void *native) {
  *out = native ? find(d, native) : px_retain(d->streams[0]);
  return *out ? PX_OK : adopt(out, d, native);
}

px_status px_stream_from_native(px_stream **out, px_device device, void *native) {
  PX_GIVEN(out);
  *out = NULL;
  px__device *d;
  PX_TRY(px_device_resolve(&device, device));
  PX_CHECK(device.type == PX_CUDA, PX_VALUE, "Expected a cuda device, but got: cpu");
  PX_TRY(px__device_get(&d, device.index));
  px__device_lock(d);
  px_status status = from_native(out, d, native);
  px__device_unlock(d);
  return status;
}

px_status px_stream_hand_over(px_stream *stream, void *native) {
  PX_GIVEN(stream);
  if (!stream->owner) return PX_OK;
  PX_TRY(px_device_init());
  PX_SCOPED(px_stream) ours = find_locked(stream->owner, native);
  if (ours) return px_stream_wait_stream(ours, stream);
  if (stream->owner->properties.simulated) return px__stream_wait_all(stream);
  return order_natives(stream->owner, native, stream->native);
}

px_status px_stream_take_over(px_stream *stream, void *native) {
  PX_GIVEN(stream);
  if (!stream->owner) return PX_OK;
  PX_TRY(px_device_init());
  PX_SCOPED(px_stream) theirs = find_locked(stream->owner, native);
  if (theirs) return px_stream_wait_stream(stream, theirs);
  if (stream->owner->properties.simulated) return PX_OK;
  px__work work;
  PX_TRY(px__work_begin(&work, stream, "wait", NULL, 0));
  px__profile_work_is(&work, PX_PROFILE_OTHER);
  px_status status = order_natives(stream->owner, stream->native, native);
  px__work_end(&work, false);
  return status;
}
