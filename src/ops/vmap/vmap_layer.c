// SPDX-License-Identifier: Apache-2.0
// vmap: batching rules of layers. Convolutions turn batched weights into groups. Batch norm treats
// the channels of all samples as channels. layer_norm applies weight and bias itself. nll_loss
// merges the examples of all samples.
#include "vmap_rules/conv.h"
#include "vmap_rules/layer.h"
#include "vmap_rules/loss.h"
#include "vmap_rules/norm.h"
#include "call/vmap.h"
#include "conditions.h"
#include "formulas.h"
#include "hidden/loss.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/factory.h"
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

// ---- nll_loss

static px_status release_results(px_tensor *made[3], px_status status) {
  for (int i = 0; i < 3; i++) px_release(made[i]);
  return status;
}

// Merges the targets of all samples. `rows`: self has rows of classes.
static px_status merged_target(px_tensor **out, const px__vmap_call *b, px_tensor *target,
                               bool rows) {
  PX_SCOPED(px_tensor) batched = NULL;
  PX_TRY(px__vmap_ensure_batch_dim(&batched, b, target));
  return rows ? px_flatten(out, batched, 0, 1) : px_reshape(out, batched, &b->size, 1);
}

// Multiplies by the weights of each sample. No effect if the weight is shared.
static px_status weigh(px_tensor **each, const px__vmap_call *b, px_tensor *weight,
                       px_tensor *target, int64_t ignore_index) {
  if (!px__is_mapped(b, weight)) return PX_OK;
  PX_SCOPED(px_tensor) before = PX_MOVE(*each);
  PX_SCOPED(px_tensor) targets = NULL;
  PX_SCOPED(px_tensor) own = NULL;
  PX_SCOPED(px_tensor) shaped = NULL;
  PX_TRY(px__vmap_ensure_batch_dim(&targets, b, target));
  PX_TRY(px__formula_weights_of_targets(&own, (px_value[]){PX_T(weight->physical), PX_T(targets),
                                                           PX_I(ignore_index), PX_I(b->size)}));
  PX_TRY(px_reshape(&shaped, own, before->sizes, before->ndim));
  return px_mul(each, before, shaped);
}
static px_tensor *common_weight(const px__vmap_call *b, px_tensor *weight) {
  return px__is_mapped(b, weight) ? NULL : weight;
}

// Loss of each example. With self = -1 it is the weight of each example, whose sum is total_weight.
static px_status each_loss(px_tensor **out, const px__vmap_call *b, px_tensor *self,
                           px_tensor *target, const px__nll_loss_forward_vmap_args *args) {
  px_tensor *none = NULL;
  PX_SCOPED(px_tensor) flat = NULL;
  int64_t sizes[PX_MAX_DIMS + 1] = {b->size};
  int ndim = args->self->ndim > 1 ? args->target->ndim : 0;
  PX_TRY(px_nll_loss_forward(&flat, &none, self, target, common_weight(b, args->weight), "none",
                             args->ignore_index));
  px_release(none);
  px__sizes_copy(sizes + 1, args->target->sizes, ndim);
  PX_TRY(px_reshape(out, flat, sizes, 1 + ndim));
  return weigh(out, b, args->weight, args->target, args->ignore_index);
}

static px_status sum_samples(px_tensor **out, px_tensor *each) {
  return px__formula_sum_of_samples(out, (px_value[]){PX_T(each)});
}

static px_status losses(px_tensor *made[3], const px__vmap_call *b,
                        const px__nll_loss_forward_vmap_args *args) {
  bool rows = args->self->ndim > 1;
  PX_SCOPED(px_tensor) self = NULL;
  PX_SCOPED(px_tensor) target = NULL;
  PX_SCOPED(px_tensor) ones = NULL;
  PX_SCOPED(px_tensor) each = NULL;
  PX_SCOPED(px_tensor) counts = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  PX_TRY((rows ? as_rows : px__vmap_ensure_batch_dim)(&self, b, args->self));
  PX_TRY(merged_target(&target, b, args->target, rows));
  PX_TRY(px_full(&ones, self->sizes, self->ndim, px_int(-1), (px_dtype)self->dtype,
                 px__tensor_device(self), false, false));
  PX_TRY(each_loss(&each, b, self, target, args));
  PX_TRY(each_loss(&counts, b, ones, target, args));
  PX_TRY(sum_samples(&made[1], counts));
  if (rows && !strcmp(args->reduction, "none")) {
    made[0] = px_retain(each);
    return PX_OK;
  }
  PX_TRY(sum_samples(&total, each));
  if (!strcmp(args->reduction, "mean")) return px_div(&made[0], total, made[1]);
  made[0] = px_retain(total);
  return PX_OK;
}
PX_VMAP_RULE(nll_loss_forward) {
  if (b->size == 0 || args->self->numel == 0) return px__vmap_loop(b, false);
  px_tensor *made[3] = {NULL, NULL, NULL};
  px_status status = losses(made, b, args);
  for (int i = 0; status == PX_OK && i < 2; i++) {
    px_tensor *one = made[i];
    made[i] = NULL;
    status = px__vmap_set_result(b, i, one);
  }
  return release_results(made, status);
}

// Gradient of each example, in the shape of `like`.
static px_status each_gradient(px_tensor **out, const px__vmap_call *b,
                               const px__nll_loss_backward_vmap_args *args, const px_tensor *like) {
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  PX_SCOPED(px_tensor) each = NULL;
  PX_TRY(px__vmap_ensure_batch_dim(&grad, b, args->grad_output));
  PX_TRY(px__vmap_ensure_batch_dim(&total, b, args->total_weight));
  PX_TRY(px__formula_gradient_of_examples(
      &each, (px_value[]){PX_T(grad), PX_T(total), PX_TX(args->reduction), PX_I(b->size),
                          PX_I(args->target->numel)}));
  PX_TRY(weigh(&each, b, args->weight, args->target, args->ignore_index));
  return px_reshape(out, each, like->sizes, like->ndim);
}

static px_status loss_gradients(px_tensor **out, const px__vmap_call *b,
                                const px__nll_loss_backward_vmap_args *args) {
  px_value input = args->input_size;
  bool rows = input.n > 1;
  int64_t sizes[PX_MAX_DIMS], buffer[PX_MAX_DIMS];
  PX_TRY(px__vmap_sizes(sizes, b, input));
  px_value merged = rows ? input : PX_IS(sizes, input.n + 1);
  if (rows) PX_TRY(px__vmap_scale_size(&merged, buffer, 0, b->size));
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) target = NULL;
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(merged_target(&target, b, args->target, rows));
  PX_TRY(each_gradient(&grad, b, args, target));
  PX_TRY(px_ones(&one, NULL, 0, (px_dtype)grad->dtype, px__tensor_device(grad), false, false));
  PX_TRY(px_nll_loss_backward(&made, grad, target, common_weight(b, args->weight), one,
                              merged.v.ints, merged.n, "none", args->ignore_index));
  return px_reshape(out, made, sizes, input.n + 1);
}
PX_VMAP_RULE(nll_loss_backward) {
  if (b->size == 0) return px__vmap_loop(b, false);
  px_tensor *made = NULL;
  PX_TRY(loss_gradients(&made, b, args));
  return px__vmap_set_result(b, 0, made);
}
