// SPDX-License-Identifier: Apache-2.0
// vmap: batching rules of layers. Convolutions turn batched weights into groups. Batch norm treats
// the channels of all samples as channels.
#include "vmap_rules/conv.h"
#include "vmap_rules/layer.h"
#include "vmap_rules/loss.h"
#include "vmap_rules/norm.h"
#include "call/vmap.h"
#include "conditions.h"
#include "formulas.h"
#include "phlox/ops/view.h"

// ---- convolutions

// Merges the batch dimension with the channels: (N, C, ...) becomes (N, B * C, ...). NULL stays
// NULL.
static px_status as_channels(px_tensor **out, const px__vmap_call *b, px_tensor *t) {
  PX_SCOPED(px_tensor) batched = NULL;
  PX_TRY(px__vmap_ensure_batch_dim(&batched, b, t));
  return px__formula_batch_as_channels(out, (px_value[]){PX_T(batched)});
}
static px_status as_rows(px_tensor **out, const px__vmap_call *b, px_tensor *t) {
  PX_SCOPED(px_tensor) batched = NULL;
  PX_TRY(px__vmap_ensure_batch_dim(&batched, b, t));
  *out = NULL;
  return batched ? px_flatten(out, batched, 0, 1) : PX_OK;
}

// Layout of the batch dimension in a convolution, a batch norm or one of their gradients. Without
// `groups` only images are batched, and their rows are merged. With `groups` each sample is a
// group: images merge channels, weights and per-channel tensors merge rows. `result`: the merged
// dimension of the first result; other results merge dimension 0.
typedef struct merge_layout {
  bool groups;
  int result;
} merge_layout;

static bool is_image(const char *name) {
  return !strcmp(name, "input") || !strcmp(name, "grad_output");
}

// Merges the batch dimension of all tensor arguments. `made` owns the merged tensors.
static px_status merge_args(px_tensor **made, const px__vmap_call *b, const merge_layout *layout,
                            px_value *args) {
  const px_op *op = b->call->op;
  for (int i = 0; i < op->param_count; i++) {
    bool image = is_image(op->params[i].name);
    px_tensor *t = px__arg_tensor(b->call, i);
    if (!t || !(image || layout->groups)) continue;
    PX_TRY((image && layout->groups ? as_channels : as_rows)(&made[i], b, t));
    args[i] = PX_T(made[i]);
  }
  return PX_OK;
}

// `sizes`: name of the parameter with the result's sizes, whose merged dimension is scaled by the
// batch size; or NULL.
static px_status call_merged(px__vmap_call *b, const merge_layout *layout, const char *sizes) {
  const px_op *op = b->call->op;
  px_value args[PX__MAX_PARAMS];
  px_tensor *given[PX__MAX_PARAMS] = {NULL};
  int64_t merged[PX_MAX_DIMS];
  void *made[PX__MAX_RESULTS] = {NULL};
  memcpy(args, b->call->args, op->param_count * sizeof *args);
  px_status status = merge_args(given, b, layout, args);
  if (sizes && status == PX_OK)
    status =
        px__vmap_scale_size(px__vmap_argument(op, args, sizes), merged, layout->result, b->size);
  px_value *groups = px__vmap_argument(op, args, "groups");  // absent in norms
  if (layout->groups && groups->kind == PX_ARG_INT) groups->v.i = px__product(groups->v.i, b->size);
  if (status == PX_OK) status = px_op_call(op, PX_CALL_NEW, args, made);
  for (int i = 0; i < op->result_count; i++) {
    px_tensor *split = NULL;
    int dim = i ? 0 : layout->result;
    if (status == PX_OK)
      status =
          px__formula_batch_split(&split, (px_value[]){PX_T(made[i]), PX_I(dim), PX_I(b->size)});
    if (status == PX_OK) status = px__vmap_set_result(b, i, split);
    px_release(made[i]);
  }
  for (int i = 0; i < op->param_count; i++) px_release(given[i]);
  return status;
}

// Batched images alone merge into N. With batched weights each sample is a group of channels.
static const merge_layout merge_images = {false, 0}, merge_channels = {true, 1},
                          merge_rows = {true, 0};

PX_VMAP_RULE(conv) {
  const px_tensor *input = args->input, *weight = args->weight;
  // The op adds N to an input without it, and refuses other numbers of dimensions.
  if (input->ndim != weight->ndim || weight->ndim < 4) return px__vmap_itself(b);
  if (b->size == 0 || !input->sizes[1]) return px__vmap_loop(b, false);
  bool weights = px__is_mapped(b, weight) || px__is_mapped(b, args->bias);
  return call_merged(b, weights ? &merge_channels : &merge_images, NULL);
}
PX_VMAP_RULE(conv_input) {
  bool weights = px__is_mapped(b, args->weight);
  if (b->size == 0) return px__vmap_loop(b, false);
  return call_merged(b, weights ? &merge_channels : &merge_images, "input_size");
}
PX_VMAP_RULE(conv_weight) {
  return b->size ? call_merged(b, &merge_rows, "weight_size") : px__vmap_loop(b, false);
}

// ---- fold

PX_VMAP_RULE(fold) { return args->input->ndim == 3 ? px__vmap_merge(b) : px__vmap_shift(b); }

// ---- batch norm: the channels of all samples side by side, each with its own statistics

static px_status normalise(px__vmap_call *b) {
  return b->size ? call_merged(b, &merge_channels, NULL) : px__vmap_loop(b, false);
}
PX_VMAP_RULE(native_batch_norm) { return normalise(b); }
PX_VMAP_RULE(batch_norm_backward) { return normalise(b); }
