// SPDX-License-Identifier: Apache-2.0
// Public functions of streams: creation, queries, and waits of the host or of another stream.
#include "device/core/queue.h"
#include "device/work/work.h"

// Completes the device.
static px_status find_device(px__device **out, px_device *device) {
  PX_TRY(px_device_resolve(device, *device));
  return px__device_get(out, device->index);
}

px_status px_stream_new(px_stream **out, px_device device, int priority) {
  PX_GIVEN(out);
  *out = NULL;
  if (device.type == PX_CPU) return *out = px_retain(&px__cpu_stream), PX_OK;
  px__device *d;
  PX_TRY(find_device(&d, &device));
  PX_CHECK(!px__fault(PX__FAULT_STREAM), PX_ACCELERATOR, "a stream could not be made (injected)");
  if (priority > px__rt.lowest_priority) priority = px__rt.lowest_priority;
  if (priority < px__rt.highest_priority) priority = px__rt.highest_priority;
  px__device_lock(d);
  px_status status = px__stream_acquire(out, d, priority);
  px__device_unlock(d);
  return status;
}

px_status px_stream_default(px_stream **out, px_device device) {
  PX_GIVEN(out);
  if (device.type == PX_CPU) return *out = &px__cpu_stream, PX_OK;
  px__device *d;
  PX_TRY(find_device(&d, &device));
  *out = d->streams[0];
  return PX_OK;
}

px_status px_stream_from_id(px_stream **out, px_device device, int64_t id) {
  PX_GIVEN(out);
  *out = NULL;
  if (device.type == PX_CPU) return *out = px_retain(&px__cpu_stream), PX_OK;
  px__device *d;
  PX_TRY(find_device(&d, &device));
  px__device_lock(d);
  for (int i = 0; i < d->stream_count && !*out; i++)
    if (d->streams[i]->id == id) *out = px_retain(d->streams[i]);
  px__device_unlock(d);
  PX_CHECK(*out, PX_VALUE, "cuda:%d has no stream with the id %lld", device.index, (long long)id);
  return PX_OK;
}

px_device px_stream_device(const px_stream *stream) { return stream->device; }
int px_stream_priority(const px_stream *stream) { return stream->priority; }
px_status px_stream_priority_range(int *lowest, int *highest) {
  PX_GIVEN(lowest);
  PX_GIVEN(highest);
  *lowest = *highest = 0;
  PX_TRY(px_device_init());
  *lowest = px__rt.lowest_priority;
  *highest = px__rt.highest_priority;
  return PX_OK;
}
int64_t px_stream_id(const px_stream *stream) { return stream->id; }
void *px_stream_native(const px_stream *stream) { return stream->native; }

static px_status check_alive(void) { return px__rt.forked ? px__error_cuda(3) : PX_OK; }

px_status px_stream_query(bool *out, px_stream *stream) {
  PX_GIVEN(out);
  PX_GIVEN(stream);
  *out = true;
  if (!stream->owner) return PX_OK;
  PX_TRY(check_alive());
  PX_TRY(px__capture_check(stream));
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
  PX_TRY(px__issue_recorded());
  PX_TRY(px__capture_check(stream));
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
  PX_TRY(px__issue_recorded());
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
  PX_TRY(px__issue_recorded());
  px__work work;
  PX_TRY(px__work_begin(&work, stream, "host_call", NULL, 0));
  px__profile_work_is(&work, PX_PROFILE_OTHER);
  px_status status = px__rt.backend->host_call(stream->native, fn, argument);
  px__work_end(&work, false);
  return status;
}

px_status px__stream_queue(px_stream *stream, const char *name, const px_access *accesses,
                           int count, px_status (*queue)(void *native, void *context),
                           void *context) {
  px__work work;
  PX_TRY(check_alive());
  for (int i = 0; i < count; i++)
    if (accesses[i].write) PX_TRY(px__allocation_before_write(accesses[i].allocation));
  PX_TRY(px__work_begin(&work, stream, name, accesses, count));
  px__profile_work_is(&work, PX_PROFILE_COLLECTIVE);
  px_status status = queue(stream->native, context);
  px__work_end(&work, true);
  return px__broken_note(stream->owner, status);
}

void px_device_fail(px_device device, const px_error *why) {
  px_error *copy = NULL;
  px__device *d;
  if (device.type != PX_CUDA || px__device_get(&d, device.index) != PX_OK) return px_error_clear();
  if (why && px__alloc((void **)&copy, sizeof *copy) != PX_OK) return px_error_clear();
  if (why) *copy = *why;
  // The first error is kept.
  px_error *before = why ? NULL : __atomic_load_n(&d->callback_error, __ATOMIC_ACQUIRE);
  bool done = __atomic_compare_exchange_n(&d->callback_error, &before, copy, false,
                                          __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  px__free(why ? (done ? NULL : copy) : (done ? before : NULL));
}

// Joins the clocks of the device's streams. Skips some without memory.
static void join_clocks(px__device *d, int count, px__clock *clock) {
  px__device_lock(d);
  for (int i = 0; i < count; i++) {
    px__clock *other = &d->streams[i]->clock;
    if (px__clock_reserve(clock, other->count) == PX_OK)
      px__clock_join(clock, other);
    else
      px_error_clear();
  }
  px__device_unlock(d);
}

// Waits for the streams one by one, interruptibly. The wait for the device is then short.
static px_status wait_interruptibly(const px__device *d, int count, const uint64_t *seqs) {
  for (int i = 0; i < count && px_interrupt_wanted(); i++)
    if (px__synced(d->streams[i]) < seqs[i])
      PX_TRY(px__rt.backend->stream_synchronize(d->streams[i]->native));
  return PX_OK;
}

px_status px_device_synchronize(int index) {
  px__device *d;
  px__clock clock = {0};
  PX__INTS(issued);
  PX_TRY(px_device_init());
  PX_TRY(px__issue_recorded());
  PX_TRY(px__device_get(&d, index < 0 ? px_device_peek() : index));
  PX_TRY(px__capture_check_device(d));
  int count = __atomic_load_n(&d->stream_count, __ATOMIC_ACQUIRE);
  PX_TRY(px__ints_reserve(&issued, count));
  uint64_t *seqs = (uint64_t *)issued.at;
  for (int i = 0; i < count; i++) seqs[i] = px__issued(d->streams[i]);
  join_clocks(d, count, &clock);
  px_status status = wait_interruptibly(d, count, seqs);
  if (status == PX_OK) status = px__broken_note(d, px__rt.backend->synchronize(d->physical));
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
