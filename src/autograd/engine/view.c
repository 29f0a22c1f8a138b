// SPDX-License-Identifier: Apache-2.0
// In-place changes of views. A change of a view changes its base: the base gets a CopySlices node,
// which passes the gradient of the changed part through the op's node. Other views of the base
// become stale. Their history is recreated on demand as a strided view of the changed base.
#include <stdio.h>

#include "autograd/engine/graph.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/view.h"
#include "phlox/vmap.h"

// Describes a view for error texts: "Output 0 of UnbindBackward0 is a view and is being modified
// inplace. This view".
static const char *described(const px_tensor *t, bool base, char *text, size_t size) {
  int32_t nr;
  PX_SCOPED(px_node) node = px__node_of(px__grad_state_of(t), &nr);
  if (!node) return "This view";
  (void)snprintf(text, size, "Output %d of %.100s is a view and %s modified inplace. This view", nr,
                 px_node_name(node),
                 base ? "its base or another view of its base has been" : "is being");
  return text;
}

px_status px__check_view(const px_tensor *t, bool base) {
  char source[256];
  unsigned marks = px_tensor_marks(t);
  PX_CHECK(!(marks & PX_MARK_MULTI_VIEW), PX_RUNTIME,
           "%s is the output of a function that returns multiple views. Such functions do not "
           "allow the output views to be modified inplace. You should replace the inplace "
           "operation by an out-of-place one.",
           described(t, base, source, sizeof source));
  PX_CHECK(!(marks & PX_MARK_FUNCTION_VIEW), PX_RUNTIME,
           "%s was created inside a custom Function (or because an input was returned as-is) and "
           "the autograd logic to handle view+inplace would override the custom backward "
           "associated with the custom Function, leading to incorrect gradients. This behavior is "
           "forbidden. You can fix this by cloning the output of the custom Function.",
           described(t, base, source, sizeof source));
  PX_CHECK(!(marks & PX_MARK_UNRECORDED), PX_RUNTIME,
           "A view was created in no_grad mode and is being modified inplace with grad mode "
           "enabled. Given that this use case is ambiguous and error-prone, it is forbidden. You "
           "can clarify your code by moving both the view and the inplace either both inside the "
           "no_grad block (if you don't want the inplace to be tracked) or both outside (if you "
           "want the inplace to be tracked).");
  return PX_OK;
}

px_status px__view_refresh(px_tensor *t) {
  PX_TRY(px__check_view(t, true));
  px_tensor *base = px_tensor_base(t);
  const px_op *op = px_op_find("_as_strided");
  int ndim = px_tensor_ndim(t);
  px_value args[PX__MAX_PARAMS_OF_OP] = {PX_T(base),
                                         PX_IS(px_tensor_sizes(t), ndim),
                                         PX_IS(px_tensor_strides(t), ndim),
                                         PX_I(px_tensor_offset(t)),
                                         PX_IS(px_tensor_strides(base), px_tensor_ndim(base)),
                                         PX_I(px_tensor_offset(base))};
  PX_SCOPED(px_node) node = NULL;
  PX_TRY(px__op_node_new(&node, op, PX_CALL_NEW, args, 1, 1, &t, NULL));
  PX_TRY(px__set_history(t, node, 0));
  px_tensor_set_view_version(t, px_tensor_version(t));
  return PX_OK;
}

px_status px__edge_of(px__edge *out, px_tensor *t) {
  if (px__view_stale(t)) PX_TRY(px__view_refresh(t));
  return px__own_edge_of(out, t);
}

// ---- CopySlices: edge 0 is the base before the change; the others are those of the inner node

typedef struct px__geometry {
  int ndim;
  int64_t offset;
  const int64_t *sizes, *strides;
} px__geometry;
typedef struct px__copy_slices {
  px_node node;
  px_node *inner;  // owned
  px__geometry base, view;
  int64_t dims[];  // sizes and strides
} px__copy_slices;

static void drop(px_node *node) {
  px__copy_slices *self = (px__copy_slices *)node;
  px_node *inner = self->inner;
  self->inner = NULL;
  px_release(inner);
}

static px__geometry geometry_of(const px_tensor *t, int64_t **dims) {
  int ndim = px_tensor_ndim(t);
  px__geometry g = {ndim, px_tensor_offset(t), *dims, *dims + ndim};
  for (int d = 0; d < ndim; d++) {
    (*dims)[d] = px_tensor_sizes(t)[d];
    (*dims)[ndim + d] = px_tensor_strides(t)[d];
  }
  *dims += 2 * ndim;
  return g;
}

static const px__kind copy_slices_kind;

px_status px__copy_slices_new(px_node **out, px_tensor *base, px_tensor *view, px_node *inner) {
  size_t count = 2 * (size_t)(px_tensor_ndim(base) + px_tensor_ndim(view));
  PX_SCOPED(px_node) node = NULL;
  PX_TRY(px__node_new(&node, &copy_slices_kind, "CopySlices",
                      sizeof(px__copy_slices) + count * sizeof(int64_t), inner->edge_count, 1,
                      &base));
  px__copy_slices *self = (px__copy_slices *)node;
  int64_t *dims = self->dims;
  self->base = geometry_of(base, &dims);
  self->view = geometry_of(view, &dims);
  self->inner = px_retain(inner);
  PX_TRY(px__own_edge_of(&node->edges[0], base));
  for (int i = 1; i < inner->edge_count; i++) {
    node->edges[i] = inner->edges[i];
    px_retain(node->edges[i].node);
  }
  node->file = inner->file, node->line = inner->line;
  *out = PX_MOVE(node);
  return PX_OK;
}

// Allocates the base's geometry for each batch index of a gradient under vmap.
static px_status alloc_batched(px_tensor **out, const px__geometry *base, px_tensor *grad) {
  PX_SCOPED(px_tensor) memory = NULL;
  int64_t length = 1, offset = 0;
  for (int d = 0; d < base->ndim; d++) length += (base->sizes[d] - 1) * base->strides[d];
  if (px_tensor_numel(grad) == 0) length = 0;
  PX_TRY(px_new_empty(&memory, grad, &length, 1, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false));
  return px_as_strided(out, memory, base->sizes, base->ndim, base->strides, base->ndim, &offset);
}

// Copies a gradient into the base's strides, so that the view's geometry applies to it.
static px_status copy_to_base_strides(px_tensor **out, const px__copy_slices *self,
                                      px_tensor *grad) {
  const px__meta *meta = &self->node.results[0];
  PX_SCOPED(px_tensor) whole = NULL;
  if (px_tensor_is_batched(grad))
    PX_TRY(alloc_batched(&whole, &self->base, grad));
  else
    PX_TRY(px_tensor_empty_strided(&whole, self->base.ndim, self->base.sizes, self->base.strides,
                                   px_tensor_dtype(grad), meta->device));
  PX_TRY(px_copy_(whole, grad, false));
  *out = PX_MOVE(whole);
  return PX_OK;
}

static px_status slice(px_tensor **out, const px__copy_slices *self, px_tensor *whole) {
  const px__geometry *v = &self->view;
  int64_t offset = v->offset - self->base.offset + px_tensor_offset(whole);
  return px_as_strided(out, whole, v->sizes, v->ndim, v->strides, v->ndim, &offset);
}

static px_status run_inner(px__copy_slices *self, px_tensor *part, const px__run *run) {
  PX_SCOPED(px_tensor) copy = NULL;
  PX_TRY(px_clone(&copy, part, NULL));
  px_tensor *grads[1] = {copy};
  px__run inner = {grads, run->out, run->required};
  px_node *node = self->inner;
  PX_TRY(px__node_enter(node));
  bool required = run->required[0];
  run->required[0] = required && node->edges[0].node;
  px_status status = node->kind->apply(node, &inner);
  run->required[0] = required;
  px__node_leave(node, false);
  return status;
}

static px_status apply(px_node *node, const px__run *run) {
  px__copy_slices *self = (px__copy_slices *)node;
  PX_SCOPED(px_tensor) whole = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) inner_grad = NULL;
  PX_TRY(copy_to_base_strides(&whole, self, run->grads[0]));
  PX_TRY(slice(&part, self, whole));
  PX_TRY(run_inner(self, part, run));
  inner_grad = run->out[0];
  run->out[0] = NULL;
  if (!run->required[0]) return PX_OK;
  if (inner_grad)
    PX_TRY(px_copy_(part, inner_grad, false));
  else
    PX_TRY(px_zero_(part));
  run->out[0] = PX_MOVE(whole);
  return PX_OK;
}

static const px__kind copy_slices_kind = {.apply = apply, .drop = drop};
