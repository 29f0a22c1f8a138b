// SPDX-License-Identifier: Apache-2.0
// Streams: queues of work on a device, each in order, unordered among each other unless a wait says
// so.
//
// The default stream and those made with px_stream_new do not wait for each other. The current
// stream is per thread and device, and starts as the default stream.
#pragma once
#include "phlox/device.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_stream px_stream;
typedef struct px_event px_event;

// Makes a stream on `device` (index -1: the current one): one that the program does not hold yet.
// Streams that it gave back are used again. Lower numbers are more urgent; priorities clamp to the
// device's range.
PX_CALL px_stream_new(px_stream **out, px_device device, int priority);
// The device's default stream, and the calling thread's current one; borrowed.
PX_CALL px_stream_default(px_stream **out, px_device device);
PX_CALL px_stream_current(px_stream **out, px_device device);
// Makes the stream current on its device, for this thread. Does not change the current device. NULL
// does nothing.
PX_CALL px_stream_set_current(px_stream *stream);
PX_API px_device px_stream_device(const px_stream *stream);
PX_API int px_stream_priority(const px_stream *stream);
// A number unique in the process; 0 for default streams. And the backend's handle.
PX_API int64_t px_stream_id(const px_stream *stream);
PX_API void *px_stream_native(const px_stream *stream);
// Whether all work issued so far is done.
PX_CALL px_stream_query(bool *out, px_stream *stream);
// Waits for it; raises what its kernels reported.
PX_CALL px_stream_synchronize(px_stream *stream);
// Whether calls that wait for a device (blocking copies, px_tensor_item, px_stream_synchronize)
// warn, or fail with PX_RUNTIME "called a synchronizing CUDA operation". Of the process.
typedef enum px_sync_debug { PX_SYNC_SILENT, PX_SYNC_WARN, PX_SYNC_ERROR } px_sync_debug;
PX_CALL px_sync_debug_set(px_sync_debug mode);
PX_API px_sync_debug px_sync_debug_get(void);
// Work issued to `stream` from now on waits for the event's latest record (none: nothing happens;
// the race checker says so).
PX_CALL px_stream_wait_event(px_stream *stream, px_event *event);
// ... for all work issued so far to `other`.
PX_CALL px_stream_wait_stream(px_stream *stream, px_stream *other);
// The same towards a stream of another library on the stream's device, by its handle (a
// cudaStream_t; 1 is CUDA's default stream, 2 that of the thread). hand_over: its later work waits
// for all issued so far to `stream`; take_over: later work of `stream` waits for it.
PX_CALL px_stream_hand_over(px_stream *stream, void *native);
PX_CALL px_stream_take_over(px_stream *stream, void *native);
// Runs fn(argument) on a host thread when the stream gets there. fn must not call Phlox.
PX_CALL px_stream_host_call(px_stream *stream, void (*fn)(void *argument), void *argument);

#ifdef __cplusplus
}
#endif
