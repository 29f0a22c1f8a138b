// SPDX-License-Identifier: Apache-2.0
// Streams: made when asked for, up to 32 for each priority and device; then those that nobody holds
// any more are handed out in turn, and more are made if all are held. So no two that a program
// holds are one, and a program that makes them by the thousand has 32. They live as long as the
// process.
#include "device/state.h"

#include <stdio.h>

px_stream *px__streams[PX__STREAM_LIMIT];
static int stream_count;     // atomic; slots of px__streams in use
static int64_t next_id = 1;  // atomic

static void never(void *self) {}
static const px_class stream_class = {"stream", never};
px_stream px__cpu_stream = {.head = {1, &stream_class}, .device = {PX_CPU, -1}, .index = -1};

px_status px__stream_create(px_stream **out, px__device *d, int priority, int64_t id) {
  px_stream *stream;
  PX_TRY(PX_NEW(&stream));
  *stream = (px_stream){.head = {1, &stream_class},
                        .device = px_cuda(d->index),
                        .priority = priority,
                        .id = id,
                        .owner = d};
  px_status status = px__rt.backend->stream_new(d->physical, priority, &stream->native);
  if (status != PX_OK) {
    px__free(stream);
    return px_error_pass(status, __FILE__, __LINE__, __func__);
  }
  stream->index = __atomic_fetch_add(&stream_count, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&px__streams[stream->index], stream, __ATOMIC_RELEASE);
  *out = stream;
  return PX_OK;
}

// The first stream of the priority, after the latest that was handed out, which nobody holds; NULL
// while there are fewer than 32. Lock held.
static px_stream *unheld(px__device *d, int priority, int *last) {
  int count = 0, found = 0;
  for (int i = 1; i < d->stream_count; i++) {
    const px_stream *s = d->streams[(*last + i - 1) % (d->stream_count - 1) + 1];
    if (s->priority != priority) continue;
    count++;
    if (!found && px_refs(s) == 1) found = (*last + i - 1) % (d->stream_count - 1) + 1;
  }
  if (count < PX__STREAM_POOL || !found) return NULL;
  *last = found;
  return d->streams[found];
}

// Lock held.
static px_status from_pool(px_stream **out, px__device *d, int priority) {
  int level = px__rt.least - priority;
  int *last = &d->last[level < PX__PRIORITIES ? level : PX__PRIORITIES - 1];
  px_stream *stream = unheld(d, priority, last);
  if (!stream) {
    PX_CHECK(d->stream_count < PX__DEVICE_STREAMS, PX_RUNTIME,
             "the program holds %d streams of cuda:%d, as many as there may be", d->stream_count,
             d->index);
    int64_t id = __atomic_fetch_add(&next_id, 1, __ATOMIC_RELAXED);
    PX_TRY(px__stream_create(&stream, d, priority, id));
    *last = d->stream_count;
    d->streams[d->stream_count] = stream;
    __atomic_store_n(&d->stream_count, d->stream_count + 1, __ATOMIC_RELEASE);
  }
  *out = px_retain(stream);
  return PX_OK;
}

px_status px_stream_new(px_stream **out, px_device device, int priority) {
  *out = NULL;
  if (device.type == PX_CPU) return *out = px_retain(&px__cpu_stream), PX_OK;
  px__device *d;
  PX_TRY(px_device_resolve(&device, device));
  PX_TRY(px__device_get(&d, device.index));
  PX_CHECK(!px__fault(PX__FAULT_STREAM), PX_ACCELERATOR, "a stream could not be made (injected)");
  if (priority > px__rt.least) priority = px__rt.least;
  if (priority < px__rt.greatest) priority = px__rt.greatest;
  px__device_lock(d);
  px_status status = from_pool(out, d, priority);
  px__device_unlock(d);
  return status;
}

px_status px_stream_default(px_stream **out, px_device device) {
  if (device.type == PX_CPU) return *out = &px__cpu_stream, PX_OK;
  px__device *d;
  PX_TRY(px_device_resolve(&device, device));
  PX_TRY(px__device_get(&d, device.index));
  *out = d->streams[0];
  return PX_OK;
}

px_device px_stream_device(const px_stream *stream) { return stream->device; }
int px_stream_priority(const px_stream *stream) { return stream->priority; }
int64_t px_stream_id(const px_stream *stream) { return stream->id; }
void *px_stream_native(const px_stream *stream) { return stream->native; }

const char *px__stream_text(const px_stream *stream, char text[64]) {
  if (stream->id == 0)
    snprintf(text, 64, "the default stream of cuda:%d", stream->device.index);
  else
    snprintf(text, 64, "stream %lld of cuda:%d", (long long)stream->id, stream->device.index);
  return text;
}

static px_status check_alive(void) { return px__rt.forked ? px__error_cuda(3) : PX_OK; }

px_status px_stream_query(bool *out, px_stream *stream) {
  PX_GIVEN(stream);
  *out = true;
  if (!stream->owner) return PX_OK;
  PX_TRY(check_alive());
  px__device_lock(stream->owner);
  uint64_t seq = stream->issued;
  px_status status = px__rt.backend->stream_query(stream->native, out);
  if (status == PX_OK && *out) px__stream_synced(stream, seq, &stream->clock);
  px__device_unlock(stream->owner);
  return status;
}

px_status px_stream_synchronize(px_stream *stream) {
  PX_GIVEN(stream);
  if (!stream->owner) return PX_OK;
  PX_TRY(check_alive());
  PX_TRY(px__sync_point());
  return px__stream_finish(stream);
}

px_status px__stream_finish(px_stream *stream) {
  PX_TRY(px__stream_wait_all(stream));
  px__wrapped_sweep();
  return px__fault_raise(stream->owner);
}

px_status px_stream_wait_stream(px_stream *stream, px_stream *other) {
  PX_GIVEN(stream);
  PX_GIVEN(other);
  if (!stream->owner || !other->owner || stream == other) return PX_OK;
  PX_TRY(check_alive());
  return px__stream_order(stream, other);
}

px_status px_stream_host_call(px_stream *stream, void (*fn)(void *argument), void *argument) {
  PX_GIVEN(stream);
  PX_CHECK(fn, PX_TYPE, "a host call needs a function");
  if (!stream->owner) {
    fn(argument);
    return PX_OK;
  }
  PX_TRY(check_alive());
  px__work work;
  PX_TRY(px__work_begin(&work, stream, "host_call", NULL, 0));
  px_status status = px__rt.backend->host_call(stream->native, fn, argument);
  px__work_end(&work, false);
  return status;
}

// All that the device's streams have waited for; on no memory less of it.
static void join_clocks(px__device *d, int count, px__clock *clock) {
  px__device_lock(d);
  for (int i = 0; i < count; i++) {
    px__clock *one = &d->streams[i]->clock;
    if (px__clock_room(clock, one->count) == PX_OK)
      px__clock_join(clock, one);
    else
      px_error_clear();
  }
  px__device_unlock(d);
}

px_status px_device_synchronize(int index) {
  px__device *d;
  px__clock clock = {0};
  uint64_t seqs[PX__DEVICE_STREAMS];
  PX_TRY(px_device_init());
  PX_TRY(px__device_get(&d, index < 0 ? px_device_peek() : index));
  int count = __atomic_load_n(&d->stream_count, __ATOMIC_ACQUIRE);
  for (int i = 0; i < count; i++) seqs[i] = px__issued(d->streams[i]);
  join_clocks(d, count, &clock);
  px_status status = px__rt.backend->synchronize(d->physical);
  px__device_lock(d);
  for (int i = 0; i < count && status == PX_OK; i++) {
    px__stream_synced(d->streams[i], seqs[i], &clock);
    px__stream_poll(d->streams[i]);
  }
  px__device_unlock(d);
  px__free(clock.at);
  PX_TRY(status);
  px__wrapped_sweep();
  return px__fault_raise(d);
}
