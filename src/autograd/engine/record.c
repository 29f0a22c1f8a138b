// SPDX-License-Identifier: Apache-2.0
// Recording: hooks around op calls. Checks in-place calls beforehand and creates nodes afterwards.
#include <stdio.h>

#include "autograd/engine/graph.h"
#include "phlox/vmap.h"
#include "phlox/ops/copy.h"

// ---- parameters requiring a gradient

// True if t requires a gradient at the vmap level of the current calls.
static bool requires_at(const px_tensor *t, int floor) {
  return px__is_recorded(t) && (!floor || px__history_level(t) < floor);
}

bool px_tensor_is_recorded(const px_tensor *self) { return px__is_recorded(self); }

bool px__is_recorded(const px_tensor *t) {
  if (!px__has_history(t)) return false;
  bool forward = px__forward() && px__is_dual(t);
  return forward || (px_grad_enabled() && px_tensor_requires_grad(t));
}

static bool any_requires(px_tensor *const *list, int count, int floor) {
  for (int i = 0; i < count; i++)
    if (list[i] && requires_at(list[i], floor)) return true;
  return false;
}

// The ops called by formulas have edges for all their tensors. A missing formula for a second
// derivative then fails instead of returning zero.
static uint32_t differentiable(const px_op *op) {
  bool formula_op = (op->flags & PX_OP_HIDDEN) && strstr(op->name, "_backward");
  return formula_op ? (1u << op->param_count) - 1 : op->grad_mask;
}

static uint32_t needed_params(const px_op *op, const px_value *args) {
  uint32_t needs = 0;
  int floor = px__history_floor();
  for (uint32_t left = differentiable(op); left; left &= left - 1) {
    int i = __builtin_ctz(left);
    bool requires =
        args[i].kind == PX_ARG_TENSOR
            ? requires_at(args[i].v.tensor, floor)
            : args[i].kind == PX_ARG_TENSORS && any_requires(args[i].v.tensors, args[i].n, floor);
    if (requires) needs |= 1u << i;
  }
  return needs;
}

// ---- before an in-place or out= call

px_status px__check_inplace(px_tensor *t) {
  unsigned marks = px_tensor_marks(t);
  px_tensor *base = marks & PX_MARK_VIEW ? px_tensor_base(t) : NULL;
  if (base) PX_TRY(px__check_view(t, false));
  bool own = px__has_history(t);
  bool records = base && (own || px__base_records(t, base));
  PX_CHECK(!records || !px__is_origin(base), PX_RUNTIME,
           "a view of a leaf Variable that requires grad is being used in an in-place operation.");
  PX_CHECK(!own || !px__is_origin(t), PX_RUNTIME,
           "a leaf Variable that requires grad is being used in an in-place operation.");
  return PX_OK;
}

static px_status copy_of(px_tensor **out, px_tensor *t) {
  bool before = px__grad_swap(false);
  px_status status = px_clone(out, t, NULL);
  px__grad_swap(before);
  return status;
}

// Copies self before an in-place call if a formula reads its original value.
static px_status keep_original(const px_op *op, px_tensor *self, const px_value *args,
                               uint32_t needs, px_tensor **original) {
  uint32_t saved = px__saves_for(op, needs) & 0xFFFFu;
  for (int i = 0; i < op->param_count; i++)
    if ((saved >> i & 1) && args[i].kind == PX_ARG_TENSOR && args[i].v.tensor == self)
      return copy_of(original, self);
  return PX_OK;
}

static px_status before_inplace(const px_op *op, px_call_mode mode, px_tensor *self,
                                const px_value *args, px_tensor **original) {
  PX_CHECK(!px_tensor_is_inference(self) || px_inference_enabled(), PX_RUNTIME,
           "Inplace update to inference tensor outside InferenceMode is not allowed.You can make a "
           "clone to get a normal tensor before doing inplace update.See "
           "https://github.com/pytorch/rfcs/pull/17 for more details.");
  if (!px__recording()) return PX_OK;
  uint32_t needs = needed_params(op, args);
  const px_tensor *base = px_tensor_base(self);
  bool reaches = base && (px_tensor_marks(base) & PX_MARK_NEEDS_GRAD);
  if (!needs && !(reaches && px_grad_enabled()) && !px__is_recorded(self)) return PX_OK;
  PX_CHECK(mode != PX_CALL_OUT, PX_RUNTIME,
           "%s(): functions with out=... arguments don't support automatic differentiation, but "
           "one of the arguments requires grad.",
           op->name);
  PX_TRY(px__check_inplace(self));
  return needs ? keep_original(op, self, args, needs, original) : PX_OK;
}

// ---- after a call

// Node of an in-place op without a formula for self (fill_, normal_): the old value has no
// influence. The node has self's edge but returns no gradient for it.
static px_status zero_apply(px_node *node, const px__run *run) { return PX_OK; }
const px__kind px__zero_kind = {.apply = zero_apply};

static px_status record_zero(const px_op *op, px_tensor *self) {
  PX_SCOPED(px_node) node = NULL;
  PX_TRY(px__node_new(&node, &px__zero_kind, op->grad_name, sizeof(px_node), 1, 1, &self));
  PX_TRY(px__edge_of(&node->edges[0], self));
  px__node_sited(node, NULL);
  return px__rebase(self, node);
}

px_status px__rebase(px_tensor *t, px_node *node) {
  px_tensor *base = px_tensor_marks(t) & PX_MARK_VIEW ? px_tensor_base(t) : NULL;
  if (!base) return px__set_history(t, node, 0);
  PX_SCOPED(px_node) slices = NULL;
  PX_TRY(px__copy_slices_new(&slices, base, t, node));
  PX_TRY(px__set_history(base, slices, 0));
  return px__view_refresh(t);
}

// True if a function returned an argument itself (contiguous, to). Such a call is not recorded.
static bool returns_argument(const px_op *op, const px_value *args, int count,
                             px_tensor *const *results) {
  if (op->kind == PX_OP_POINTWISE || op->kind == PX_OP_REDUCE) return false;
  for (int i = 0; i < op->param_count; i++)
    for (int k = 0; args[i].kind == PX_ARG_TENSOR && k < count; k++)
      if (results[k] == args[i].v.tensor) return true;
  return false;
}

static bool has_gradient(const px_tensor *t) {
  return t && px_dtype_is_differentiable(px_tensor_dtype(t));
}

static bool any_has_gradient(int count, px_tensor *const *results) {
  for (int k = 0; k < count; k++)
    if (has_gradient(results[k])) return true;
  return false;
}

static int min_level(px_tensor *const *list, int count, int min) {
  for (int i = 0; i < count; i++)
    if (list[i] && px__is_recorded(list[i]) && px__history_level(list[i]) < min)
      min = px__history_level(list[i]);
  return min;
}

// Under vmap: the outermost level among the histories of the arguments.
static uint8_t level_of(const px_op *op, const px_value *args, uint32_t needs) {
  int min = UINT8_MAX;
  for (int i = 0; i < op->param_count; i++) {
    if (!(needs >> i & 1)) continue;
    px_tensor *one = args[i].v.tensor;
    bool single = args[i].kind == PX_ARG_TENSOR;
    min = min_level(single ? &one : args[i].v.tensors, single ? 1 : args[i].n, min);
  }
  return (uint8_t)min;
}

static void mark_views(const px_op *op, int count, px_tensor *const *results) {
  if (op->kind != PX_OP_VIEW || !(op->flags & PX_OP_RETURNS_LIST)) return;
  for (int k = 0; k < count; k++) px_tensor_mark(results[k], PX_MARK_MULTI_VIEW, true);
}

static px_status attach(px_node *node, int count, px_tensor *const *results) {
  for (int k = 0; k < count; k++)
    if (count == 1 || has_gradient(results[k])) PX_TRY(px__set_history(results[k], node, k));
  return PX_OK;
}

// The in-place call itself incremented self's version. A view keeps a current history if that was
// the only change.
static void update_view_version(px_tensor *self) {
  if (!(px_tensor_marks(self) & PX_MARK_VIEW)) return;
  uint64_t now = px_tensor_version(self);
  if (px_tensor_view_version(self) + 1 == now) px_tensor_set_view_version(self, now);
}

// Recreates the history of stale views among the arguments.
static px_status refresh_views(const px_op *op, const px_value *args, uint32_t needs) {
  for (uint32_t left = needs; left; left &= left - 1) {
    const px_value *arg = &args[__builtin_ctz(left)];
    bool single = arg->kind == PX_ARG_TENSOR;
    px_tensor *const *list = single ? &arg->v.tensor : arg->v.tensors;
    for (int k = 0; k < (single ? 1 : arg->n); k++)
      if (list[k] && px__view_stale(list[k])) PX_TRY(px__view_refresh(list[k]));
  }
  return PX_OK;
}

static px_status record_call(const px_op *op, px_call_mode mode, const px_value *args,
                             int result_count, px_tensor *const *results, px_tensor *original) {
  uint32_t needs = needed_params(op, args);
  bool inplace = mode == PX_CALL_INPLACE;
  // With grad mode off, only forward-mode history is recorded.
  if (!px_grad_enabled() && !needs && !(inplace && px__is_recorded(results[0]))) return PX_OK;
  if (mode == PX_CALL_NEW) mark_views(op, result_count, results);
  if (inplace) update_view_version(results[0]);
  if (!needs) {
    bool had_history = inplace && !(op->grad_mask & 1) && px__is_recorded(results[0]);
    return had_history ? record_zero(op, results[0]) : PX_OK;
  }
  if (!any_has_gradient(result_count, results)) return PX_OK;
  // The geometry of a view changed in place: recreate its history from the base.
  bool of_base = op->kind == PX_OP_VIEW && px_tensor_marks(results[0]) & PX_MARK_VIEW;
  if (inplace && of_base) return px__view_refresh(results[0]);
  if (!inplace && returns_argument(op, args, result_count, results)) return PX_OK;
  PX_TRY(refresh_views(op, args, needs));
  PX_SCOPED(px_node) node = NULL;
  PX_TRY(px__op_node_new(&node, op, mode, args, needs, result_count, results, original));
  if (px_vmap_depth()) node->level = level_of(op, args, needs);
  if (inplace) return px__rebase(results[0], node);
  return attach(node, result_count, results);
}

static const px_op_hooks hooks = {px__recording,     px__suspend,       before_inplace,
                                  record_call,       px__print_history, px_tensor_is_leaf,
                                  px__swap_recording};

__attribute__((constructor)) static void register_hooks(void) { px_op_set_hooks(&hooks); }
