// SPDX-License-Identifier: Apache-2.0
// Events: marks in streams. An event belongs to the device of its first record; a record replaces
// the one before.
#pragma once
#include "phlox/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { PX_EVENT_TIMING = 1, PX_EVENT_BLOCKING = 2, PX_EVENT_INTERPROCESS = 4 };
PX_CALL px_event_new(px_event **out, unsigned flags);
// Marks the work issued to the stream so far. PX_RUNTIME on a stream of another device than the
// first record's.
PX_CALL px_event_record(px_event *event, px_stream *stream);
// Whether the latest record has been reached; true before any record.
PX_CALL px_event_query(bool *out, px_event *event);
// Waits for it; returns at once before any record.
PX_CALL px_event_synchronize(px_event *event);
// Milliseconds between two completed events that were made with PX_EVENT_TIMING; PyTorch's texts
// otherwise.
PX_CALL px_event_elapsed(float *milliseconds, px_event *start, px_event *end);
// The device of the first record; PX_DEVICE_NONE before. Whether it was recorded; the backend's
// handle or NULL.
PX_API px_device px_event_device(const px_event *event);
PX_API bool px_event_recorded(const px_event *event);
PX_API void *px_event_native(const px_event *event);

#ifdef __cplusplus
}
#endif
