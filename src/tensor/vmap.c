// SPDX-License-Identifier: Apache-2.0
// Batched tensors (phlox/vmap.h).
//
// A batched tensor wraps a physical tensor with the batch dimension first, and has the sizes of a
// single example. Storage, strides and offset are those of batch index 0, so the geometry of a view
// applies to every batch index. Its memory is never accessed through it: the dispatcher calls ops
// on the physical tensor (src/call/vmap.c), and element accesses are rejected here.
#include "tensor/tensor_impl.h"

int px__special_calls;
px_status (*px__batched_view)(px_tensor **out, px_tensor *physical, int level, int ndim,
                              const int64_t *sizes, const int64_t *strides, int64_t offset);

void px__batched_over(px_tensor *self, px_tensor *physical, int level) {
  px_tensor *before = self->physical;
  self->physical = px_retain(physical);
  self->level = (uint8_t)level;
  self->flags |= PX_TENSOR_BATCHED;
  if (before)
    px_release(before);
  else
    __atomic_add_fetch(&px__special_calls, 1, __ATOMIC_RELAXED);
}

void px__batched_end(px_tensor *self) {
  px_tensor *physical = self->physical;
  self->physical = NULL;  // headers are reused
  __atomic_sub_fetch(&px__special_calls, 1, __ATOMIC_RELAXED);
  px_release(physical);
}

px_status px__check_not_batched(const px_tensor *t) {
  PX_CHECK(!px__is_batched(t), PX_RUNTIME,
           "Cannot access data pointer of Tensor that doesn't have storage");
  return PX_OK;
}
