// SPDX-License-Identifier: Apache-2.0
// Work of other libraries, for the layer above.
#pragma once
#include "device/core/device_impl.h"

// Has `queue` give the stream work with these accesses; the lock of the stream's device is held.
px_status px__stream_queue(px_stream *stream, const char *name, const px_access *accesses,
                           int count, px_status (*queue)(void *native, void *context),
                           void *context) __attribute__((warn_unused_result));
