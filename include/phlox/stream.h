// SPDX-License-Identifier: Apache-2.0
// Streams: queues of work on a device. Work of one stream runs in order; streams are not ordered
// with each other, except by waits.
//
// The default stream and those made with px_stream_new do not wait for each other either. Each
// thread has a current stream for each device, at first the default stream.
#pragma once
#include "phlox/device.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_stream px_stream;
typedef struct px_event px_event;

// Gives a stream on `device` (index -1: the current one) that the program does not hold; streams
// that it released may be given out again. A lower number is a higher priority; priorities are
// clamped to the device's range.
PX_CALL px_stream_new(px_stream **out, px_device device, int priority);
// Gives the stream of another library (a cudaStream_t) as one of ours: the same one for a handle as
// long as somebody holds it; the default stream for NULL. It must live until the work that was
// given to it is done and the host has waited for it. What its owner does with it is not known: a
// wait for it (px_stream_wait_stream, px_stream_query ...) is for the owner's work too. Fails with
// PX_ACCELERATOR if the device has no such stream.
PX_CALL px_stream_from_native(px_stream **out, px_device device, void *native);
// Gives the default stream of a device, or the calling thread's current stream; borrowed.
PX_CALL px_stream_default(px_stream **out, px_device device);
PX_CALL px_stream_current(px_stream **out, px_device device);
// Makes a stream the calling thread's current one on its device. The current device does not
// change. NULL does nothing.
PX_CALL px_stream_set_current(px_stream *stream);
PX_API px_device px_stream_device(const px_stream *stream);
PX_API int px_stream_priority(const px_stream *stream);
// Gives the lowest and the highest priority of the devices' streams: 0, and a number below it.
PX_CALL px_stream_priority_range(int *least, int *greatest);
// A number that is unique in the process, 0 for default streams; and the backend's handle (a
// CUstream of the cuda backend).
PX_API int64_t px_stream_id(const px_stream *stream);
PX_API void *px_stream_native(const px_stream *stream);
// Gives whether all work issued to the stream so far is done.
PX_CALL px_stream_query(bool *out, px_stream *stream);
// Waits for all work issued to the stream so far, and raises what kernels reported (PX_INDEX ...).
PX_CALL px_stream_synchronize(px_stream *stream);
// What calls that wait for a device (blocking copies, px_tensor_item, px_stream_synchronize) do
// besides: nothing, warn, or fail with PX_RUNTIME "called a synchronizing CUDA operation". For the
// whole process.
typedef enum px_sync_debug { PX_SYNC_SILENT, PX_SYNC_WARN, PX_SYNC_ERROR } px_sync_debug;
PX_CALL px_sync_debug_set(px_sync_debug mode);
PX_API px_sync_debug px_sync_debug_get(void);
// Makes later work of `stream` wait for the event's latest record. If there is none, nothing
// happens, and the race checker says so.
PX_CALL px_stream_wait_event(px_stream *stream, px_event *event);
// Makes later work of `stream` wait for all work issued to `other` so far.
PX_CALL px_stream_wait_stream(px_stream *stream, px_stream *other);
// The same with a stream of another library on the same device, given by its handle (a
// cudaStream_t; 1 is CUDA's default stream, 2 the thread's default stream). hand_over: later work
// of `native` waits for all work issued to `stream` so far; take_over: the other way round.
PX_CALL px_stream_hand_over(px_stream *stream, void *native);
PX_CALL px_stream_take_over(px_stream *stream, void *native);
// Calls fn(argument) on a host thread when the stream reaches it. fn must not call Phlox.
PX_CALL px_stream_host_call(px_stream *stream, void (*fn)(void *argument), void *argument);
// Says that work of a device has failed: the next call that waits for the device fails with a copy
// of this error, as it does when a kernel reports a fault. The first that nobody was told of stays;
// NULL forgets it. A host call may call this.
PX_API void px_device_fail(px_device device, const px_error *why);

#ifdef __cplusplus
}
#endif
