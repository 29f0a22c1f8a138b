// SPDX-License-Identifier: Apache-2.0
// Work that other libraries give to streams, such as the collectives of NCCL, and a question that a
// thread can ask which must not wait for any other.
#pragma once
#include "phlox/event.h"
#include "phlox/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

// Gives a stream what another library does with tensors of its device. `queue` gets the backend's
// handle of the stream and the addresses of the tensors' first elements, in their order, and
// returns when the library has queued its work there; it may not call functions of devices. So the
// work is ordered, checked and told of as launches are, by `name`, and memory is not reused while
// the work uses it. The first `reads` tensors are read, the others written. Fails as `queue` does.
PX_CALL px_stream_queue(px_stream *stream, const char *name, px_tensor *const *tensors, int count,
                        int reads,
                        px_status (*queue)(void *native, void *const *addresses, void *context),
                        void *context);
// Whether an event is reached, as px_event_query, but without a lock: for who watches over threads
// that may never go on. The event has been recorded once, not in a capture, and is not recorded
// meanwhile. What cannot be told is false.
PX_API bool px_event_reached(const px_event *event);

#ifdef __cplusplus
}
#endif
