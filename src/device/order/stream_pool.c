// SPDX-License-Identifier: Apache-2.0
// The streams of a device, and the calling thread's current ones.
//
// A device creates up to 32 streams per priority. After that it hands out unheld ones round-robin,
// and creates new ones only if all are held. A program asking for thousands thus gets 32. Streams
// held by a program are distinct, up to 960 on a device. Beyond, it hands out held ones
// round-robin, as PyTorch does beyond 32. Streams live until the process ends.
#include "device/order/order.h"

#include <stdio.h>

static int stream_count;     // atomic; slots of px__streams in use
static int64_t next_id = 1;  // atomic

static void never(void *self) {}
static const px_class stream_class = {"stream", never};
px_stream px__cpu_stream = {.head = {1, &stream_class}, .device = {PX_CPU, -1}, .index = -1};

static px_status wrap(px_stream **out, px__device *d, int priority, int64_t id, void *native) {
  px_stream *stream;
  PX_TRY(PX_NEW(&stream));
  *stream = (px_stream){.head = {1, &stream_class},
                        .device = px_cuda(d->index),
                        .priority = priority,
                        .id = id,
                        .owner = d,
                        .native = native};
  stream->index = __atomic_fetch_add(&stream_count, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&px__streams[stream->index], stream, __ATOMIC_RELEASE);
  *out = stream;
  return PX_OK;
}

px_status px__stream_create(px_stream **out, px__device *d, int priority, int64_t id) {
  void *native;
  PX_TRY(px__rt.backend->stream_new(d->physical, priority, &native));
  px_status status = wrap(out, d, priority, id, native);
  if (status != PX_OK) px__rt.backend->stream_release(d->physical, native);
  return status;
}

// Returns the next stream of the priority, after the one handed out last: an unheld one, or any if
// the device has too many. NULL while there are fewer than 32. Lock held.
static px_stream *find_next(px__device *d, int priority, int *last) {
  int count = 0, found = 0;
  bool shares = d->stream_count > PX__DISTINCT_STREAMS;
  for (int i = 1; i < d->stream_count; i++) {
    const px_stream *s = d->streams[(*last + i - 1) % (d->stream_count - 1) + 1];
    if (s->priority != priority || s->foreign) continue;
    count++;
    if (!found && (shares || px_refs(s) == 1)) found = (*last + i - 1) % (d->stream_count - 1) + 1;
  }
  if ((count < PX__STREAM_POOL && !shares) || !found) return NULL;
  *last = found;
  return d->streams[found];
}

static px_status check_limit(const px__device *d) {
  PX_CHECK(d->stream_count < PX__DEVICE_STREAMS, PX_RUNTIME,
           "cuda:%d has %d streams of this and of other libraries, the maximum", d->index,
           d->stream_count);
  return PX_OK;
}
static void append(px__device *d, px_stream *stream) {
  d->streams[d->stream_count] = stream;
  __atomic_store_n(&d->stream_count, d->stream_count + 1, __ATOMIC_RELEASE);
}
static int64_t new_id(void) { return __atomic_fetch_add(&next_id, 1, __ATOMIC_RELAXED); }

px_status px__stream_acquire(px_stream **out, px__device *d, int priority) {
  int level = px__rt.lowest_priority - priority;
  int *last = &d->last_acquired[level < PX__PRIORITIES ? level : PX__PRIORITIES - 1];
  px_stream *stream = find_next(d, priority, last);
  if (!stream) {
    PX_TRY(check_limit(d));
    PX_TRY(px__stream_create(&stream, d, priority, new_id()));
    *last = d->stream_count;
    append(d, stream);
  }
  *out = px_retain(stream);
  return PX_OK;
}

px_status px__stream_register_foreign(px_stream **out, px__device *d, px_stream *reused,
                                      void *native, int priority) {
  px_stream *stream = reused;
  if (reused) {
    reused->native = native, reused->priority = priority, reused->id = new_id();
  } else {
    PX_TRY(check_limit(d));
    PX_TRY(wrap(&stream, d, priority, new_id(), native));
    stream->foreign = true;
    append(d, stream);
  }
  *out = px_retain(stream);
  return PX_OK;
}

const char *px__stream_text(const px_stream *stream, char text[64]) {
  if (stream->id == 0)
    snprintf(text, 64, "the default stream of cuda:%d", stream->device.index);
  else
    snprintf(text, 64, "stream %lld of cuda:%d", (long long)stream->id, stream->device.index);
  return text;
}

// ---- current
_Thread_local px_stream **px__streams_now;  // references

// Releases a thread's current streams at its end.
static pthread_key_t thread_end;
static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;
static bool thread_end_made;
static void streams_release(void *streams) {
  px__streams_now = NULL;
  for (int i = 0; i < PX__DEVICES; i++) px_release(((px_stream **)streams)[i]);
  px__free(streams);
}
static void thread_end_make(void) {
  thread_end_made = pthread_key_create(&thread_end, streams_release) == 0;
}

px_status px__stream_set_now(px_stream *stream) {
  if (px__stream_now(stream->owner) == stream) return PX_OK;
  if (!px__streams_now) {
    PX_TRY(px__alloc((void **)&px__streams_now, PX__DEVICES * sizeof *px__streams_now));
    pthread_once(&thread_end_once, thread_end_make);
    if (thread_end_made) pthread_setspecific(thread_end, px__streams_now);
  }
  px_stream **slot = &px__streams_now[stream->owner->index], *before = *slot;
  *slot = px_retain(stream);
  px_release(before);
  return PX_OK;
}
