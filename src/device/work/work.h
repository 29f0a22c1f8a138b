// SPDX-License-Identifier: Apache-2.0
// Launches and their arguments.
#pragma once
#include "device/cache/cache.h"

// ---- scratch memory
// Memory allocated by a backend while a launch is issued, under the device's lock.
typedef struct px__scratch {
  px__device *device;          // of the launch being issued by this thread, or NULL
  px_allocation *allocations;  // linked by `uses`, otherwise empty in scratch memory
} px__scratch;
extern _Thread_local PX__HIDDEN_THREAD px__scratch px__scratch_here;
void *px__scratch_take(const px_launch *launch, size_t bytes);
void px__scratch_drop(void);  // no lock held

// ---- launches
static inline void px__launch_bind(px_launch *launch, const px__device *d,
                                   const px_stream *stream) {
  launch->fault = d->slot;
  launch->device = d->physical;
  launch->stream = stream->native;
}
// Adds the broken launch to an error, and frees scratch memory. No lock held.
static inline px_status px__launch_finish(px__device *d, px_status status) {
  if (PX_UNLIKELY(status != PX_OK)) status = px__broken_note(d, status);
  if (PX_UNLIKELY(px__scratch_here.allocations != NULL)) px__scratch_drop();
  return status;
}

// ---- misaligned operands
// Runs a CPU kernel on aligned copies of its misaligned operands.
px_status px__launch_aligned(const px_launch *launch, const px_access *accesses, int count)
    __attribute__((warn_unused_result));

// ---- CPU kernels
const px_kernel_row *px__host_kernels(int *count);
px_kernel px__host_kernel(const char *name);
