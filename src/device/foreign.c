// SPDX-License-Identifier: Apache-2.0
// Ordering our streams with streams of other libraries on the same device, given by their driver
// handle. A handle of one of our streams means that stream. Simulated devices have no driver that
// another library could share, so there the host waits.
#include "device/state.h"

static px_stream *known(const px__device *d, const void *native) {
  int count = __atomic_load_n(&d->stream_count, __ATOMIC_ACQUIRE);
  for (int i = 0; i < count; i++)
    if (d->streams[i]->native == native) return d->streams[i];
  return NULL;
}

// Later work of `after` waits for all work of `before`; both are handles. Making the event makes
// the device's context current, which handles of default streams refer to.
static px_status order(const px__device *d, void *after, void *before) {
  const px_backend *b = px__rt.backend;
  void *event;
  PX_TRY(b->event_new(d->physical, 0, &event));
  px_status status = b->event_record(event, before);
  if (status == PX_OK) status = b->stream_wait(after, event);
  b->event_release(d->physical, event);
  return status;
}

px_status px_stream_hand_over(px_stream *stream, void *native) {
  PX_GIVEN(stream);
  if (!stream->owner) return PX_OK;
  PX_TRY(px_device_init());
  px_stream *ours = known(stream->owner, native);
  if (ours) return px_stream_wait_stream(ours, stream);
  if (stream->owner->properties.simulated) return px__stream_wait_all(stream);
  return order(stream->owner, native, stream->native);
}

px_status px_stream_take_over(px_stream *stream, void *native) {
  PX_GIVEN(stream);
  if (!stream->owner) return PX_OK;
  PX_TRY(px_device_init());
  px_stream *theirs = known(stream->owner, native);
  if (theirs) return px_stream_wait_stream(stream, theirs);
  if (stream->owner->properties.simulated) return PX_OK;
  px__work work;
  PX_TRY(px__work_begin(&work, stream, "wait", NULL, 0));
  px_status status = order(stream->owner, stream->native, native);
  px__work_end(&work, false);
  return status;
}
