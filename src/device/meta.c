// SPDX-License-Identifier: Apache-2.0
// Type meta: tensors that have a shape, a dtype and strides, but no memory.
//
// An op on them is checked and makes its results, as on any device; its kernel does nothing, and
// neither does a copy to them. What they hold cannot be read.
#include "device/state.h"

px_status px__meta_launch(const px_launch *launch) {
  (void)launch;
  return PX_OK;
}

px_status px__meta_new(px_allocation **out, size_t bytes) {
  px__allocation *block;
  *out = NULL;
  PX_TRY(PX_NEW(&block));
  block->pub = (px_allocation){.bytes = bytes, .device = px_meta()};
  block->kind = PX__META;
  *out = &block->pub;
  return PX_OK;
}

void px__meta_free(px_allocation *block) { px__free(px__allocation_of(block)); }

px_status px__meta_copy(const px_allocation *to) {
  PX_CHECK(to->device.type == PX_META, PX_UNIMPLEMENTED,
           "Cannot copy out of meta tensor; no data!");
  return PX_OK;
}
