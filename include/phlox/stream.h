// SPDX-License-Identifier: Apache-2.0
// Streams: queues of work on a device. Work of one stream runs in order; streams are not ordered
// with each other, except by waits.
//
// The default stream does not synchronise with other streams. Each thread has a current stream for
// each device, initially the default stream.
#pragma once
#include "phlox/device.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_stream px_stream;
typedef struct px_event px_event;

// Returns a stream on `device` (index -1: the current one) not otherwise held by the program;
// released streams are reused. A lower number is a higher priority; priorities are clamped to the
// device's range.
PX_CALL px_stream_new(px_stream **out, px_device device, int priority);
// Wraps a stream of another library (a cudaStream_t). Returns the same object for a handle while it
// is held, and the default stream for NULL. The handle must stay valid until its work is done and
// the host has waited for it. Work queued by its owner is unknown to Phlox; a wait for it
// (px_stream_wait_stream, px_stream_query ...) includes that work. PX_ACCELERATOR if the device has
// no such stream.
PX_CALL px_stream_from_native(px_stream **out, px_device device, void *native);
// Returns the stream with a number (px_stream_id). PX_VALUE if the device has no such stream.
PX_CALL px_stream_from_id(px_stream **out, px_device device, int64_t id);
// Return the default stream of a device, or the calling thread's current stream; borrowed.
PX_CALL px_stream_default(px_stream **out, px_device device);
PX_CALL px_stream_current(px_stream **out, px_device device);
// Makes a stream the calling thread's current one on its device. The current device does not
// change. No-op for NULL.
PX_CALL px_stream_set_current(px_stream *stream);
// `PX_ON_STREAM(stream);` makes a stream and its device current to the end of the C scope, which
// restores the previous ones. Returns the status from the function if that fails. No-op for NULL.
// Example:
//   PX_ON_STREAM(copies);
//   return px_to(out, host, PX_DTYPE_NONE, px_cuda(0), true, false);
typedef struct px_stream_scope {
  px_stream *stream;  // owned; NULL: nothing to restore
  int device;
} px_stream_scope;
PX_CALL px_stream_scope_begin(px_stream_scope *scope, px_stream *stream);
PX_API void px_stream_scope_end(px_stream_scope *scope);
#define PX_ON_STREAM(stream_) \
  __attribute__((cleanup(px_stream_scope_end))) px_stream_scope px_stream_scope_ = {NULL, 0}; \
  PX_TRY(px_stream_scope_begin(&px_stream_scope_, (stream_)))
// Return the device and the priority of a stream.
PX_API px_device px_stream_device(const px_stream *stream);
PX_API int px_stream_priority(const px_stream *stream);
// Returns the lowest and highest priority of streams: 0, and a negative number.
PX_CALL px_stream_priority_range(int *lowest, int *highest);
// Return a number unique in the process, 0 for default streams; and the backend's handle (a
// CUstream for the cuda backend).
PX_API int64_t px_stream_id(const px_stream *stream);
PX_API void *px_stream_native(const px_stream *stream);
// Returns whether all work issued to the stream so far is done.
PX_CALL px_stream_query(bool *out, px_stream *stream);
// Waits for all work issued to the stream so far, and raises errors reported by kernels (PX_INDEX
// ...).
PX_CALL px_stream_synchronize(px_stream *stream);
// Reaction of calls that wait for a device (blocking copies, px_tensor_item,
// px_stream_synchronize): none, a warning, or failure with PX_RUNTIME "called a synchronizing CUDA
// operation". Process-wide.
typedef enum px_sync_debug { PX_SYNC_SILENT, PX_SYNC_WARN, PX_SYNC_ERROR } px_sync_debug;
PX_CALL px_sync_debug_set(px_sync_debug mode);
PX_API px_sync_debug px_sync_debug_get(void);
// Makes later work of `stream` wait for the event's latest record. No-op without a record; the race
// checker reports it.
PX_CALL px_stream_wait_event(px_stream *stream, px_event *event);
// Makes later work of `stream` wait for all work issued to `other` so far.
PX_CALL px_stream_wait_stream(px_stream *stream, px_stream *other);
// The same with a stream of another library on the same device, by its handle (a cudaStream_t; 1 is
// CUDA's default stream, 2 the thread's default stream). hand_over: later work of `native` waits
// for all work issued to `stream` so far. take_over: the reverse.
PX_CALL px_stream_hand_over(px_stream *stream, void *native);
PX_CALL px_stream_take_over(px_stream *stream, void *native);
// Calls fn(argument) on a host thread when the stream reaches it. fn must not call Phlox.
PX_CALL px_stream_host_call(px_stream *stream, void (*fn)(void *argument), void *argument);
// Marks a device as failed: the next call waiting for the device fails with a copy of this error,
// as for a fault reported by a kernel. The first unreported error is kept; NULL clears it. May be
// called from a host call.
PX_API void px_device_fail(px_device device, const px_error *why);

#ifdef __cplusplus
}
#endif
