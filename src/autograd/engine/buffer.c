// SPDX-License-Identifier: Apache-2.0
// Gradients pending for their node. Several gradients of one result are summed on the stream of the
// node, after it waited for the stream of the new gradient.
#include "autograd/engine/engine.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/vmap.h"

// Makes the node's stream current if the gradient is on the node's device. The node's stream first
// waits for the thread's current stream. *before: the stream to restore, or NULL.
static px_status enter_stream(px_node *node, const px_tensor *grad, px_stream **before) {
  *before = NULL;
  px_device device = px_tensor_device(grad);
  if (device.type != PX_CUDA || !node->stream || !px_device_equal(device, node->device))
    return PX_OK;
  px_stream *current;
  PX_TRY(px_stream_current(&current, device));
  if (current == node->stream) return PX_OK;
  PX_TRY(px_stream_wait_stream(node->stream, current));
  PX_TRY(px_stream_set_current(node->stream));
  *before = px_retain(current);
  return PX_OK;
}

static px_status leave_stream(px_stream *before) {
  if (!before) return PX_OK;
  px_status status = px_stream_set_current(before);
  px_release(before);
  return status;
}

// True if a new sum may replace `slot`: fused, it needs no memory. It has the strides of `slot`,
// those of a new row-major tensor, also in dimensions of size 1.
static bool adds_apart(const px_tensor *slot, const px_tensor *grad) {
  int64_t step = 1;
  if (!px_fuse_active() || !px_tensor_is_contiguous(grad)) return false;
  for (int d = px_tensor_ndim(slot) - 1; d >= 0; d--) {
    if (px_tensor_strides(slot)[d] != step) return false;
    step *= px_tensor_sizes(slot)[d];
  }
  return true;
}

static px_status add(px_tensor **slot, px_tensor *grad) {
  bool own = px__unseen(*slot) && px_tensor_is_contiguous(*slot) && !adds_apart(*slot, grad);
  if (!px_grad_enabled() && own && !px_tensor_is_batched(grad))
    return px_add_(*slot, grad, px_int(1));
  px_tensor *sum = NULL;
  PX_TRY(px_add(&sum, *slot, grad, px_int(1)));
  px_release(*slot);
  *slot = sum;
  return PX_OK;
}

px_status px__buffer_add(px__task_entry *entry, int nr, px_tensor *grad_take) {
  PX_SCOPED(px_tensor) grad = grad_take;
  px_tensor **slot = px__entry_grads(entry) + nr;
  px_stream *before;
  PX_TRY(enter_stream(entry->node, grad, &before));
  px_status status = PX_OK;
  if (*slot)
    status = add(slot, grad);
  else
    *slot = PX_MOVE(grad);
  px_status left = leave_stream(before);
  return status != PX_OK ? status : left;
}
