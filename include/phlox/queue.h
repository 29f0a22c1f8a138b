// SPDX-License-Identifier: Apache-2.0
// Stream work of other libraries, such as NCCL's collectives, and a lock-free event query.
#pragma once
#include "phlox/event.h"
#include "phlox/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

// Queues another library's work on a stream, on tensors of its device. `queue` receives the
// backend's stream handle and the addresses of the tensors' first elements, in order. It returns
// once the library has queued its work, and must not call device functions. The work is ordered,
// race-checked and profiled like a launch, under `name`, and memory is not reused while the work
// uses it. The first `reads` tensors are read, the others written. Returns the error of `queue`.
PX_CALL px_stream_queue(px_stream *stream, const char *name, px_tensor *const *tensors, int count,
                        int reads,
                        px_status (*queue)(void *native, void *const *addresses, void *context),
                        void *context);
// Returns whether an event is reached, like px_event_query but without locks, for watchdogs of
// threads that may hang. The event must have been recorded once, outside of captures, and not be
// recorded concurrently. False if unknown.
PX_API bool px_event_query_nolock(const px_event *event);

#ifdef __cplusplus
}
#endif
