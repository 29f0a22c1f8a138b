// SPDX-License-Identifier: Apache-2.0
// Events: markers in streams. Recording an event marks the work issued to a stream so far; a later
// record replaces the previous one. An event belongs to the device of its first record.
//
// Example: examples/streams.c.
#pragma once
#include "phlox/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { PX_EVENT_TIMING = 1, PX_EVENT_BLOCKING = 2, PX_EVENT_INTERPROCESS = 4 };
// Makes an event. `flags` is a combination of the bits above.
PX_CALL px_event_new(px_event **out, unsigned flags);
// Records the event: marks the work issued to the stream so far. PX_VALUE for a stream of the CPU,
// whose work is done when a call returns. PX_RUNTIME if the event was first recorded on another
// device.
PX_CALL px_event_record(px_event *event, px_stream *stream);
// px_event_ipc_handle returns a handle of an event made with PX_EVENT_INTERPROCESS, for other
// processes. An event without a device is bound to the current one. px_event_from_ipc_handle opens
// the event of a handle, on its device. The processes then share one event: each may record it, and
// waits refer to the latest record of all. The creating process must keep it while others use it.
// PX_UNIMPLEMENTED if the backend cannot share events; PX_ACCELERATOR 400, PX_VALUE or PX_RUNTIME
// for an event without the flag, and for a handle with a destroyed event or an exited process.
//
//   px_ipc_handle handle;                                          // in one process
//   PX_TRY(px_event_new(&event, PX_EVENT_INTERPROCESS));
//   PX_TRY(px_event_ipc_handle(&handle, event));
//   PX_TRY(px_event_from_ipc_handle(&event, px_cuda(0), &handle));  // in another
PX_CALL px_event_ipc_handle(px_ipc_handle *out, px_event *event);
PX_CALL px_event_from_ipc_handle(px_event **out, px_device device, const px_ipc_handle *handle);
// Returns whether the latest record was reached; true if there is none.
PX_CALL px_event_query(bool *out, px_event *event);
// Waits for the latest record; returns at once if there is none.
PX_CALL px_event_synchronize(px_event *event);
// Returns the milliseconds between the records of two events made with PX_EVENT_TIMING and already
// reached. PX_VALUE or PX_RUNTIME, with PyTorch's text, otherwise.
PX_CALL px_event_elapsed(float *milliseconds, px_event *start, px_event *end);
// Return the device of the first record, or PX_DEVICE_NONE; whether the event was recorded; the
// backend's handle, or NULL.
PX_API px_device px_event_device(const px_event *event);
PX_API bool px_event_recorded(const px_event *event);
PX_API void *px_event_native(const px_event *event);

#ifdef __cplusplus
}
#endif
