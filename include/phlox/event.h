// SPDX-License-Identifier: Apache-2.0
// Events: marks in streams. Recording an event marks the work issued to a stream so far; a later
// record replaces the one before. An event belongs to the device of its first record.
//
// Example: examples/streams.c.
#pragma once
#include "phlox/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { PX_EVENT_TIMING = 1, PX_EVENT_BLOCKING = 2, PX_EVENT_INTERPROCESS = 4 };
// Makes an event; flags are a set of the bits above.
PX_CALL px_event_new(px_event **out, unsigned flags);
// Records the event: marks the work issued to the stream so far. PX_RUNTIME if the event was first
// recorded on another device.
PX_CALL px_event_record(px_event *event, px_stream *stream);
// Gives whether the latest record has been reached; true if there is none.
PX_CALL px_event_query(bool *out, px_event *event);
// Waits until the latest record has been reached; returns at once if there is none.
PX_CALL px_event_synchronize(px_event *event);
// Gives the milliseconds between the records of two events that were made with PX_EVENT_TIMING and
// have been reached. PX_VALUE or PX_RUNTIME, with PyTorch's text, otherwise.
PX_CALL px_event_elapsed(float *milliseconds, px_event *start, px_event *end);
// The device of the first record, or PX_DEVICE_NONE; whether the event was recorded; the backend's
// handle, or NULL.
PX_API px_device px_event_device(const px_event *event);
PX_API bool px_event_recorded(const px_event *event);
PX_API void *px_event_native(const px_event *event);

#ifdef __cplusplus
}
#endif
