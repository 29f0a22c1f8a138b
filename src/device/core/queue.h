// SPDX-License-Identifier: Apache-2.0
// Work of other libraries, such as collectives, for the layer above.
#pragma once
#include "device/core/device_impl.h"

// Issues work on the stream: calls `queue` under the lock of the stream's device.
px_status px__stream_queue(px_stream *stream, const char *name, const px_access *accesses,
                           int count, px_status (*queue)(void *native, void *context),
                           void *context) __attribute__((warn_unused_result));
