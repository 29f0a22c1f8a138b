// SPDX-License-Identifier: Apache-2.0
// Batched tensors: what a function sees that is mapped over a dimension (phlox/vmap.h).
//
// A batched tensor has the sizes of one place, and beneath it a tensor whose first dimension is the
// mapped one. Its storage, strides and offset are those of place 0, so a view of it tells what the
// view of any other place is. Nobody reads or writes memory through it: the driver calls ops on
// what is beneath (src/call/batch.c), and what asks for elements is refused here.
#include "tensor/tensor_impl.h"

int px__calls_differ;
px_status (*px__batched_view)(px_tensor **out, px_tensor *beneath, int level, int ndim,
                              const int64_t *sizes, const int64_t *strides, int64_t offset);

void px__batched_over(px_tensor *self, px_tensor *beneath, int level) {
  px_tensor *before = self->physical;
  self->physical = px_retain(beneath);
  self->level = (uint8_t)level;
  self->flags |= PX_TENSOR_BATCHED;
  if (before)
    px_release(before);
  else
    __atomic_add_fetch(&px__calls_differ, 1, __ATOMIC_RELAXED);
}

void px__batched_end(px_tensor *self) {
  px_tensor *beneath = self->physical;
  self->physical = NULL;  // the memory may become another tensor's
  __atomic_sub_fetch(&px__calls_differ, 1, __ATOMIC_RELAXED);
  px_release(beneath);
}

px_status px__refuse_batched(const px_tensor *t) {
  PX_CHECK(!px__is_batched(t), PX_RUNTIME,
           "Cannot access data pointer of Tensor that doesn't have storage");
  return PX_OK;
}
