// SPDX-License-Identifier: Apache-2.0
// Events: a point in a stream's work, with the stream's vector clock. The first record creates the
// backend's event, and binds the event to a device.
//
// An interprocess event (PX_EVENT_INTERPROCESS) may be recorded by several processes. Only the
// backend knows if its latest record is reached. The clocks of this process's own record are
// covered by a mark of its stream.
#include "device/order/order.h"
#include "phlox/extend.h"

struct px_event {
  px_object head;
  pthread_mutex_t lock;  // guards the fields below
  unsigned flags;
  px__device *owner;  // NULL before the first record
  void *native;
  px_stream *stream;  // of the latest record
  uint64_t seq;
  uint64_t capture;  // id of the capture with the latest record, or 0
  px__clock clock;
};

static void event_destroy(void *self) {
  px_event *event = self;
  if (event->native && px__device_alive())
    px__rt.backend->event_release(event->owner->physical, event->native);
  px__free(event->clock.at);
  pthread_mutex_destroy(&event->lock);
  px__object_end(event);
  px__free(event);
}
static const px_class event_class = {"event", event_destroy};

px_status px_event_new(px_event **out, unsigned flags) {
  PX_GIVEN(out);
  px_event *event;
  PX_CHECK(!px__fault(PX__FAULT_EVENT), PX_ACCELERATOR, "an event could not be made (injected)");
  PX_TRY(PX_NEW(&event));
  pthread_mutex_init(&event->lock, NULL);
  event->flags = flags;
  px__object_init(event, &event_class);
  *out = event;
  return PX_OK;
}

static bool is_shared(const px_event *event) { return event->flags & PX_EVENT_INTERPROCESS; }

static px_status bind(px_event *event, px__device *d) {
  PX_CHECK(!event->owner || event->owner == d, PX_RUNTIME,
           "Event device %d does not match recording stream's device %d.", event->owner->index,
           d->index);
  if (event->native) return PX_OK;
  PX_TRY(px__rt.backend->event_new(d->physical, event->flags, &event->native));
  event->owner = d;
  return PX_OK;
}

// Event's lock held.
static px_status record(px_event *event, px_stream *stream) {
  PX_TRY(bind(event, stream->owner));
  px__device_lock(stream->owner);
  uint64_t capture = px__capture_of(stream);
  px_status status = px__clock_copy(&event->clock, &stream->clock);
  if (capture && is_shared(event)) status = px__capture_invalidate(capture, 900);
  if (status == PX_OK) status = px__rt.backend->event_record(event->native, stream->native);
  if (status == PX_OK)
    event->stream = stream, event->seq = stream->issued, event->capture = capture;
  // Without a mark now, a later wait includes work issued after the record.
  if (status == PX_OK && is_shared(event) && px__stream_mark(stream) != PX_OK) px_error_clear();
  px__device_unlock(stream->owner);
  return status;
}

px_status px_event_record(px_event *event, px_stream *stream) {
  PX_GIVEN(event);
  PX_GIVEN(stream);
  PX_CHECK(stream->owner, PX_VALUE, "Expected a cuda device, but got: cpu");
  if (px__rt.forked) return px__error_cuda(3);
  PX_CHECK(!px__fault(PX__FAULT_EVENT), PX_ACCELERATOR,
           "an event could not be recorded (injected)");
  PX_TRY(px__issue_recorded());
  pthread_mutex_lock(&event->lock);
  px_status status = record(event, stream);
  pthread_mutex_unlock(&event->lock);
  return status;
}

// Waits for the latest record of any process, and for this process's record, to update the clock.
static px_status wait_shared(px_stream *stream, px_event *event) {
  px__device_lock(stream->owner);
  px_status status =
      px__capture_of(stream) ? px__capture_invalidate(px__capture_of(stream), 905) : PX_OK;
  if (status == PX_OK) status = px__rt.backend->stream_wait(stream->native, event->native);
  if (status == PX_OK) __atomic_store_n(&stream->issued, stream->issued + 1, __ATOMIC_RELEASE);
  px__device_unlock(stream->owner);
  PX_TRY(status);
  if (!event->stream || event->stream == stream) return PX_OK;
  return px__stream_order_at(stream, event->stream, event->seq, &event->clock);
}

px_status px_stream_wait_event(px_stream *stream, px_event *event) {
  PX_GIVEN(stream);
  PX_GIVEN(event);
  if (!stream->owner) return px_event_synchronize(event);
  if (px__rt.forked) return px__error_cuda(3);
  pthread_mutex_lock(&event->lock);
  px_status status = PX_OK;
  if (event->native && is_shared(event))
    status = wait_shared(stream, event);
  else if (!event->stream)
    status = px__races() ? px__race_nothing(stream) : PX_OK;
  else if (event->stream != stream)
    status = px__stream_wait_mark(stream, event->native, event->stream, event->seq, &event->clock,
                                  event->capture);
  pthread_mutex_unlock(&event->lock);
  return status;
}

px_status px__device_wait_event(int device, px_event *event) {
  px__device *d;
  PX_TRY(px__device_get(&d, device));
  int count = __atomic_load_n(&d->stream_count, __ATOMIC_ACQUIRE);
  for (int i = 0; i < count; i++) PX_TRY(px_stream_wait_event(d->streams[i], event));
  return PX_OK;
}

// True if this process's record is reached, given that the latest record is.
static bool own_record_reached(const px_event *event) {
  if (!is_shared(event)) return true;
  px__device_lock(event->stream->owner);
  px__stream_poll(event->stream);
  px__device_unlock(event->stream->owner);
  return px__completed(event->stream) >= event->seq;
}

// Fails if a capture forbids to query the event or to wait for it.
static px_status check_capture(uint64_t capture) {
  return capture ? px__capture_invalidate(capture, 907) : px__capture_check(NULL);
}

px_status px_event_query(bool *out, px_event *event) {
  PX_GIVEN(out);
  PX_GIVEN(event);
  *out = true;
  if (px__rt.forked) return px__error_cuda(3);
  pthread_mutex_lock(&event->lock);
  px_status status = event->native ? check_capture(event->capture) : PX_OK;
  if (status == PX_OK && event->native) status = px__rt.backend->event_query(event->native, out);
  if (status == PX_OK && *out && event->stream && own_record_reached(event))
    px__stream_synced(event->stream, event->seq, &event->clock);
  pthread_mutex_unlock(&event->lock);
  return status;
}

bool px_event_query_nolock(const px_event *event) {
  bool reached = false;
  if (!event->native || px__rt.forked) return !event->native;
  if (px__rt.backend->event_query(event->native, &reached) == PX_OK) return reached;
  px_error_clear();
  return false;
}

// Copy of the latest record, for a wait without the lock.
typedef struct snapshot {
  bool shared;
  px_stream *stream;
  void *native;
  uint64_t seq, capture;
  px__clock clock;
} snapshot;

static px_status copy_record(snapshot *s, px_event *event) {
  *s = (snapshot){.shared = is_shared(event)};
  pthread_mutex_lock(&event->lock);
  s->stream = event->stream, s->native = event->native, s->seq = event->seq;
  s->capture = event->capture;
  px_status status = px__clock_copy(&s->clock, &event->clock);
  pthread_mutex_unlock(&event->lock);
  return status;
}

px_status px_event_synchronize(px_event *event) {
  PX_GIVEN(event);
  snapshot s;
  if (px__rt.forked) return px__error_cuda(3);
  PX_TRY(copy_record(&s, event));
  px_status status = check_capture(s.capture);
  px__waiting now = px__wait_begin();
  if (status == PX_OK && s.native) status = px__rt.backend->event_synchronize(s.native);
  px__wait_end(now);
  if (status == PX_OK && s.stream && s.shared) status = px__stream_wait_seq(s.stream, s.seq);
  if (status == PX_OK && s.stream) px__stream_synced(s.stream, s.seq, &s.clock);
  px__free(s.clock.at);
  PX_TRY(status);
  return s.stream ? px__fault_raise(s.stream->owner) : PX_OK;
}

// ---- IPC
static px_status share_event(px_ipc_handle *out, px_event *event, px__device *here) {
  PX_TRY(bind(event, event->owner ? event->owner : here));
  return px__rt.backend->event_share(event->native, out);
}

static px_status can_share(void) {
  PX_CHECK(PX__BACKEND_HAS(px__rt.backend, event_share), PX_UNIMPLEMENTED,
           "the backend %s cannot share events with other processes", px__rt.backend->name);
  return PX_OK;
}

px_status px_event_ipc_handle(px_ipc_handle *out, px_event *event) {
  PX_GIVEN(out);
  PX_GIVEN(event);
  px__device *here;
  px_device device = px_event_device(event);
  *out = (px_ipc_handle){{0}};
  PX_TRY(px_device_init());
  PX_TRY(px__device_get(&here, device.type == PX_CUDA ? device.index : px_device_peek()));
  PX_TRY(can_share());
  pthread_mutex_lock(&event->lock);
  px_status status = share_event(out, event, here);
  pthread_mutex_unlock(&event->lock);
  return status;
}

px_status px_event_from_ipc_handle(px_event **out, px_device device, const px_ipc_handle *handle) {
  PX_GIVEN(out);
  PX_GIVEN(handle);
  *out = NULL;
  px__device *d;
  PX_TRY(px_device_resolve(&device, device));
  PX_CHECK(device.type == PX_CUDA, PX_VALUE, "Expected a cuda device, but got: cpu");
  PX_TRY(px__device_get(&d, device.index));
  PX_TRY(can_share());
  PX_SCOPED(px_event) event = NULL;
  PX_TRY(px_event_new(&event, PX_EVENT_INTERPROCESS));
  PX_TRY(px__rt.backend->event_open(d->physical, handle, &event->native));
  event->owner = d;
  *out = PX_MOVE(event);
  return PX_OK;
}

px_status px_event_elapsed(float *milliseconds, px_event *start, px_event *end) {
  PX_GIVEN(milliseconds);
  PX_GIVEN(start);
  PX_GIVEN(end);
  PX_CHECK(start->flags & end->flags & PX_EVENT_TIMING, PX_VALUE,
           "Both events must be created with argument 'enable_timing=True'.");
  PX_CHECK(px_event_recorded(start) && px_event_recorded(end), PX_VALUE,
           "Both events must be recorded before calculating elapsed time.");
  bool started, ended;
  PX_TRY(px_event_query(&started, start));
  PX_TRY(px_event_query(&ended, end));
  PX_CHECK(started && ended, PX_RUNTIME,
           "Both events must be completed before calculating elapsed time.");
  return px__rt.backend->event_elapsed(start->native, end->native, milliseconds);
}

px_device px_event_device(const px_event *event) {
  return event->owner ? px_cuda(event->owner->index) : PX_DEVICE_NONE;
}
bool px_event_recorded(const px_event *event) { return event->stream != NULL; }
void *px_event_native(const px_event *event) { return event->native; }
