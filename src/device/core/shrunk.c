// SPDX-License-Identifier: Apache-2.0
// Shrunk storages: allocations shorter than the extent of their tensors, after a resize. Without
// any, launches only load the counter.
#include "device/core/state.h"

int px__shrunk_count;

void px__allocation_mark_shrunk(px_allocation *allocation) {
  __atomic_add_fetch(&px__shrunk_count, 1, __ATOMIC_RELAXED);
  allocation->irregular = true;
  __atomic_store_n(&allocation->pending, allocation->device.type == PX_CPU, __ATOMIC_RELEASE);
}
void px__allocation_unmark_shrunk(void) {
  __atomic_sub_fetch(&px__shrunk_count, 1, __ATOMIC_RELAXED);
}

px_status px__allocation_fail_bounds(const px_allocation *allocation, size_t end) {
  PX_CHECK(!allocation->unsaved, PX_RUNTIME,
           "a gradient reads the contents of a tensor that `saves` does not name");
  PX_FAIL(PX_RUNTIME,
          "a tensor reaches to byte %zu of a storage that resize_ has left with %zu: the storage "
          "must be resized before the tensor is used again",
          end, allocation->bytes);
}
