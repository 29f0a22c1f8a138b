// SPDX-License-Identifier: Apache-2.0
// Scratch memory of a backend for one launch. Allocated while the launch is issued, under the
// device's lock, and freed right after. Stream order keeps it valid until the work is done.
#include "device/work/work.h"

_Thread_local px__scratch px__scratch_here;

void *px__scratch_take(const px_launch *launch, size_t bytes) {
  px__scratch *here = &px__scratch_here;
  px_allocation *allocation;
  if (!here->device || !bytes || px__cache_new_locked(&allocation, bytes, here->device) != PX_OK)
    return NULL;
  px__allocation_of(allocation)->uses = (px__use *)here->allocations;
  here->allocations = allocation;
  return allocation->data;
}

void px__scratch_drop(void) {
  px__scratch *here = &px__scratch_here;
  while (here->allocations) {
    px__allocation *allocation = px__allocation_of(here->allocations);
    here->allocations = (px_allocation *)allocation->uses;
    allocation->uses = NULL;
    if (allocation->shadow) px__race_forget(allocation);
    (PX_UNLIKELY(allocation->kind == PX__RAW) ? px__raw_free : px__cache_free)(&allocation->pub);
  }
}
