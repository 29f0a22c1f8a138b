// SPDX-License-Identifier: Apache-2.0
// Device type meta: tensors with a shape, a dtype and strides, but no memory.
//
// Ops on them check their arguments and create results as on any device. Their kernels and copies
// to them are no-ops. Their values cannot be read.
#include "device/memory/memory.h"

px_status px__meta_launch(const px_launch *launch) {
  (void)launch;
  return PX_OK;
}

px_status px__meta_new(px_allocation **out, size_t bytes) {
  px__allocation *allocation;
  *out = NULL;
  PX_TRY(PX_NEW(&allocation));
  allocation->pub = (px_allocation){.bytes = bytes, .device = px_meta()};
  allocation->kind = PX__META;
  *out = &allocation->pub;
  return PX_OK;
}

void px__meta_free(px_allocation *allocation) {
  px__allocation_drop_uses(px__allocation_of(allocation));
  px__free(px__allocation_of(allocation));
}

px_status px__meta_copy(const px_allocation *to) {
  PX_CHECK(to->device.type == PX_META, PX_UNIMPLEMENTED,
           "Cannot copy out of meta tensor; no data!");
  return PX_OK;
}
