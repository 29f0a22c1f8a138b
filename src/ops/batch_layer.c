// SPDX-License-Identifier: Apache-2.0
// Rules of layers for mapped dimensions: convolutions, of which mapped weights are groups; batch
// norm, whose channels are those of all places; layer_norm, whose weight follows by itself;
// nll_loss, whose examples are those of all places.
#include "batch_functions/conv.h"
#include "batch_functions/layer.h"
#include "batch_functions/loss.h"
#include "batch_functions/norm.h"
#include "batch_functions/volume.h"
#include "call/batch.h"
#include "hidden/loss.h"
#include "hidden/norm.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/norm.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"

// ---- convolutions

// (N, C, ...) of each place as (N, places * C, ...) of all; NULL stays NULL.
static px_status as_channels(px_tensor **out, const px__batching *b, px_tensor *t) {
  PX_SCOPED(px_tensor) whole = NULL;
  PX_SCOPED(px_tensor) moved = NULL;
  PX_TRY(px__batch_whole(&whole, b, t));
  PX_TRY(px_transpose(&moved, whole, 0, 1));
  return px_flatten(out, moved, 1, 2);
}
static px_status as_rows(px_tensor **out, const px__batching *b, px_tensor *t) {
  PX_SCOPED(px_tensor) whole = NULL;
  PX_TRY(px__batch_whole(&whole, b, t));
  *out = NULL;
  return whole ? px_flatten(out, whole, 0, 1) : PX_OK;
}

// A dimension of all places as the places and those of each.
static px_status apart(px_tensor **out, const px__batching *b, px_tensor *made, int dim) {
  int64_t sizes[2] = {b->size, made->sizes[dim] / b->size};
  PX_SCOPED(px_tensor) both = NULL;
  PX_TRY(px_unflatten(&both, made, dim, sizes, 2));
  return px_transpose(out, both, 0, dim);
}

// How the mapped dimension goes into a convolution, a batch norm or a gradient of one: images
// alone, with their rows; or all tensors, as groups for each place: images with their channels,
// weights and what else there is for each channel with their rows. Which dimension of the first
// result has it then; of the others it is the first one.
typedef struct convolving {
  bool groups;
  int result;
} convolving;

static bool is_image(const char *name) {
  return !strcmp(name, "input") || !strcmp(name, "grad_output");
}

// The tensors of all places, in the place of those of each; `made` has them for the call.
static px_status of_all(px_tensor **made, const px__batching *b, const convolving *how,
                        px_value *args) {
  const px_op *op = b->call->op;
  for (int i = 0; i < op->param_count; i++) {
    bool image = is_image(op->params[i].name);
    px_tensor *t = px__arg_tensor(b->call, i);
    if (!t || !(image || how->groups)) continue;
    PX_TRY((image && how->groups ? as_channels : as_rows)(&made[i], b, t));
    args[i] = PX_T(made[i]);
  }
  return PX_OK;
}

// `sizes`: the parameter that has the sizes of the result, with as many more in its dimension; or
// NULL.
static px_status call_all(px__batching *b, const convolving *how, const char *sizes) {
  const px_op *op = b->call->op;
  px_value args[PX__MAX_PARAMS];
  px_tensor *given[PX__MAX_PARAMS] = {NULL};
  int64_t all[PX_MAX_DIMS];
  void *made[PX__MAX_RESULTS] = {NULL};
  memcpy(args, b->call->args, op->param_count * sizeof *args);
  px_status status = of_all(given, b, how, args);
  px_value *list = sizes ? px__batch_argument(op, args, sizes) : NULL;
  if (list) {
    px__sizes_copy(all, list->v.ints, list->n);
    all[how->result] *= b->size;
    list->v.ints = all;
  }
  px_value *groups = px__batch_argument(op, args, "groups");  // a norm has none
  if (how->groups && groups->kind == PX_ARG_INT) groups->v.i *= b->size;
  if (status == PX_OK) status = px_op_call(op, PX_CALL_NEW, args, made);
  for (int i = 0; i < op->result_count; i++) {
    px_tensor *split = NULL;
    if (status == PX_OK) status = apart(&split, b, made[i], i ? 0 : how->result);
    if (status == PX_OK) status = px__batch_give(b, i, split);
    px_release(made[i]);
  }
  for (int i = 0; i < op->param_count; i++) px_release(given[i]);
  return status;
}

// Mapped images alone are more images; with mapped weights each place is a group of channels.
static const convolving more_images = {false, 0}, more_channels = {true, 1}, more_rows = {true, 0};

static px_status conv_forward(px__batching *b, const px_tensor *input, const px_tensor *weight,
                              const px_tensor *bias) {
  if (input->ndim < weight->ndim) return px__batch_itself(b);  // without a batch: it makes one
  if (b->size == 0 || !input->sizes[1]) return px__batch_loop(b, false);
  bool weights = px__is_mapped(b, weight) || px__is_mapped(b, bias);
  return call_all(b, weights ? &more_channels : &more_images, NULL);
}
PX_BATCH(conv2d) { return conv_forward(b, args->input, args->weight, args->bias); }

PX_BATCH(conv3d_forward) { return conv_forward(b, args->input, args->weight, args->bias); }

static px_status conv_input(px__batching *b, const px_tensor *weight) {
  if (b->size == 0) return px__batch_loop(b, false);
  return call_all(b, px__is_mapped(b, weight) ? &more_channels : &more_images, "input_size");
}
PX_BATCH(conv2d_backward_input) { return conv_input(b, args->weight); }
PX_BATCH(conv3d_backward_input) { return conv_input(b, args->weight); }

static px_status conv_weight(px__batching *b) {
  return b->size ? call_all(b, &more_rows, "weight_size") : px__batch_loop(b, false);
}
PX_BATCH(conv2d_backward_weight) { return conv_weight(b); }
PX_BATCH(conv3d_backward_weight) { return conv_weight(b); }

// ---- images of patches

PX_BATCH(fold) { return args->input->ndim == 3 ? px__batch_merge(b) : px__batch_shift(b); }

// ---- batch norm: all places' channels beside each other, each with its statistics

static px_status normalise(px__batching *b) {
  return b->size ? call_all(b, &more_channels, NULL) : px__batch_loop(b, false);
}
PX_BATCH(native_batch_norm) { return normalise(b); }
PX_BATCH(batch_norm_backward) { return normalise(b); }

// ---- layer_norm

static px_status times(px_tensor **place, px_tensor *other) {
  px_tensor *made = NULL;
  PX_TRY(px_mul(&made, *place, other));
  px_release(*place);
  *place = made;
  return PX_OK;
}

// Weight and bias of each place have the last dimensions of the output, and nothing before.
static px_status scale(px_tensor **output, const px__batching *b, px_tensor *weight,
                       px_tensor *bias, int ndim) {
  PX_SCOPED(px_tensor) w = NULL;
  PX_SCOPED(px_tensor) shift = NULL;
  px_tensor *made = NULL;
  if (weight) {
    PX_TRY(px__batch_align(&w, b, weight, ndim));
    PX_TRY(times(output, w));
  }
  if (!bias) return PX_OK;
  PX_TRY(px__batch_align(&shift, b, bias, ndim));
  PX_TRY(px_add(&made, *output, shift, px_int(1)));
  px_release(*output);
  *output = made;
  return PX_OK;
}

static px_status give_three(px__batching *b, px_tensor *made[3]) {
  for (int i = 0; i < 3; i++) {
    px_tensor *one = made[i];
    made[i] = NULL;
    PX_TRY(px__batch_give(b, i, one));
  }
  return PX_OK;
}
static px_status drop_three(px_tensor *made[3], px_status status) {
  for (int i = 0; i < 3; i++) px_release(made[i]);
  return status;
}

PX_BATCH(native_layer_norm) {
  px_tensor *made[3] = {NULL, NULL, NULL};
  PX_SCOPED(px_tensor) whole = NULL;
  px_value shape = args->normalized_shape;
  bool apart = px__is_mapped(b, args->weight) || px__is_mapped(b, args->bias);
  PX_TRY(px__batch_whole(&whole, b, args->input));
  PX_TRY(px_native_layer_norm(&made[0], &made[1], &made[2], whole, shape.v.ints, shape.n,
                              apart ? NULL : args->weight, apart ? NULL : args->bias, args->eps));
  px_status status =
      apart ? scale(&made[0], b, args->weight, args->bias, args->input->ndim) : PX_OK;
  if (status == PX_OK) status = give_three(b, made);
  return drop_three(made, status);
}

// The sum over a place's dimensions before the normalised ones.
static px_status sum_rows(px_tensor **out, px_tensor *t, int normalised) {
  int64_t dims[PX_MAX_DIMS];
  int n = 0;
  for (int d = 1; d < t->ndim - normalised; d++) dims[n++] = d;
  *out = NULL;
  if (n) return px_sum(out, t, dims, n, false, PX_DTYPE_NONE);
  *out = px_retain(t);
  return PX_OK;
}

// One number a row of the input, of any shape, as it is broadcast.
static px_status of_rows(px_tensor **out, const px__batching *b, px_tensor *t,
                         const px_tensor *input, int normalised) {
  int64_t sizes[PX_MAX_DIMS + 1] = {b->size};
  PX_SCOPED(px_tensor) whole = NULL;
  for (int d = 0; d < input->ndim; d++)
    sizes[1 + d] = d < input->ndim - normalised ? input->sizes[d] : 1;
  PX_TRY(px__batch_whole(&whole, b, t));
  return px_reshape(out, whole, sizes, input->ndim + 1);
}

static px_status norm_gradients(px_tensor *made[3], const px__batching *b,
                                const px__layer_norm_backward_batch_args *args) {
  px_tensor *unused[2] = {NULL, NULL};
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) input = NULL;
  PX_SCOPED(px_tensor) mean = NULL;
  PX_SCOPED(px_tensor) rstd = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) normal = NULL;
  px_value shape = args->normalized_shape;
  PX_TRY(px__batch_whole(&grad, b, args->grad_output));
  PX_TRY(px__batch_whole(&input, b, args->input));
  PX_TRY(of_rows(&mean, b, args->mean, args->input, shape.n));
  PX_TRY(of_rows(&rstd, b, args->rstd, args->input, shape.n));
  scaled = px_retain(grad);
  PX_TRY(scale(&scaled, b, args->weight, NULL, args->input->ndim));
  px_status status = px_layer_norm_backward(&made[0], &unused[0], &unused[1], scaled, input,
                                            shape.v.ints, shape.n, mean, rstd, NULL);
  px_release(unused[0]);
  px_release(unused[1]);
  PX_TRY(status);
  PX_TRY(px_sub(&normal, input, mean, px_int(1)));
  PX_TRY(times(&normal, rstd));
  PX_TRY(times(&normal, grad));
  PX_TRY(sum_rows(&made[1], normal, shape.n));
  return sum_rows(&made[2], grad, shape.n);
}
PX_BATCH(layer_norm_backward) {
  px_tensor *made[3] = {NULL, NULL, NULL};
  px_status status = norm_gradients(made, b, args);
  if (status == PX_OK) status = give_three(b, made);
  return drop_three(made, status);
}

// ---- nll_loss

// The targets of all places, as many dimensions as those of a place have beside classes.
static px_status merged_target(px_tensor **out, const px__batching *b, px_tensor *target,
                               bool rows) {
  PX_SCOPED(px_tensor) whole = NULL;
  PX_TRY(px__batch_whole(&whole, b, target));
  return rows ? px_flatten(out, whole, 0, 1) : px_reshape(out, whole, &b->size, 1);
}

// What the weight of each place has for the classes of its targets.
static px_status own_weights(px_tensor **out, const px__batching *b, px_tensor *weight,
                             px_tensor *target, int64_t ignore_index) {
  PX_SCOPED(px_tensor) targets = NULL;
  PX_SCOPED(px_tensor) lines = NULL;
  PX_SCOPED(px_tensor) ignored = NULL;
  PX_SCOPED(px_tensor) known = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(px__batch_whole(&targets, b, target));
  PX_TRY(px_reshape(&lines, targets, (const int64_t[]){b->size, target->numel}, 2));
  PX_TRY(px_eq_scalar(&ignored, lines, px_int(ignore_index)));
  PX_TRY(px_masked_fill(&known, lines, ignored, px_int(0)));
  PX_TRY(px_to(&wide, known, PX_INT64, PX_DEVICE_NONE, false, false));
  return px_gather(out, weight->physical, 1, wide, false);
}
// Numbers of the targets of all places times those; with a weight for all, none.
static px_status weigh(px_tensor **each, const px__batching *b, px_tensor *weight,
                       px_tensor *target, int64_t ignore_index) {
  if (!px__is_mapped(b, weight)) return PX_OK;
  PX_SCOPED(px_tensor) own = NULL;
  PX_SCOPED(px_tensor) shaped = NULL;
  PX_TRY(own_weights(&own, b, weight, target, ignore_index));
  PX_TRY(px_reshape(&shaped, own, (*each)->sizes, (*each)->ndim));
  return times(each, shaped);
}
static px_tensor *common_weight(const px__batching *b, px_tensor *weight) {
  return px__is_mapped(b, weight) ? NULL : weight;
}

// What each example counts, by what the loss of an example with -1 everywhere is; then the sum of
// a place.
static px_status each_loss(px_tensor **out, const px__batching *b, px_tensor *self,
                           px_tensor *target, const px__nll_loss_forward_batch_args *args) {
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

static px_status sum_places(px_tensor **out, px_tensor *each) {
  PX_SCOPED(px_tensor) lines = NULL;
  int64_t last = -1;
  *out = NULL;
  if (each->ndim > 1) {
    PX_TRY(px_flatten(&lines, each, 1, -1));
    return px_sum(out, lines, &last, 1, false, PX_DTYPE_NONE);
  }
  *out = px_retain(each);
  return PX_OK;
}

static px_status losses(px_tensor *made[3], const px__batching *b,
                        const px__nll_loss_forward_batch_args *args) {
  bool rows = args->self->ndim > 1;
  PX_SCOPED(px_tensor) self = NULL;
  PX_SCOPED(px_tensor) target = NULL;
  PX_SCOPED(px_tensor) ones = NULL;
  PX_SCOPED(px_tensor) each = NULL;
  PX_SCOPED(px_tensor) counts = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  PX_TRY((rows ? as_rows : px__batch_whole)(&self, b, args->self));
  PX_TRY(merged_target(&target, b, args->target, rows));
  PX_TRY(px_full(&ones, self->sizes, self->ndim, px_int(-1), (px_dtype)self->dtype,
                 px__tensor_device(self), false, false));
  PX_TRY(each_loss(&each, b, self, target, args));
  PX_TRY(each_loss(&counts, b, ones, target, args));
  PX_TRY(sum_places(&made[1], counts));
  if (rows && !strcmp(args->reduction, "none")) {
    made[0] = px_retain(each);
    return PX_OK;
  }
  PX_TRY(sum_places(&total, each));
  if (!strcmp(args->reduction, "mean")) return px_div(&made[0], total, made[1]);
  made[0] = px_retain(total);
  return PX_OK;
}
PX_BATCH(nll_loss_forward) {
  if (b->size == 0 || args->self->numel == 0) return px__batch_loop(b, false);
  px_tensor *made[3] = {NULL, NULL, NULL};
  px_status status = losses(made, b, args);
  for (int i = 0; status == PX_OK && i < 2; i++) {
    px_tensor *one = made[i];
    made[i] = NULL;
    status = px__batch_give(b, i, one);
  }
  return drop_three(made, status);
}

// The gradient of each example, as `like` is shaped.
static px_status each_gradient(px_tensor **out, const px__batching *b,
                               const px__nll_loss_backward_batch_args *args,
                               const px_tensor *like) {
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) lines = NULL;
  PX_SCOPED(px_tensor) each = NULL;
  int64_t sizes[2] = {b->size, args->target->numel};
  PX_TRY(px__batch_whole(&grad, b, args->grad_output));
  PX_TRY(px__batch_whole(&total, b, args->total_weight));
  if (strcmp(args->reduction, "mean") != 0)
    part = px_retain(grad);
  else
    PX_TRY(px_div(&part, grad, total));
  PX_TRY(px_reshape(&lines, part, (const int64_t[]){b->size, args->grad_output->numel}, 2));
  PX_TRY(px_expand(&each, lines, sizes, 2));
  PX_TRY(weigh(&each, b, args->weight, args->target, args->ignore_index));
  return px_reshape(out, each, like->sizes, like->ndim);
}

static px_status loss_gradients(px_tensor **out, const px__batching *b,
                                const px__nll_loss_backward_batch_args *args) {
  px_value input = args->input_size;
  bool rows = input.n > 1;
  int64_t sizes[PX_MAX_DIMS + 1] = {b->size};
  px__sizes_copy(sizes + 1, input.v.ints, input.n);
  int64_t merged_sizes[PX_MAX_DIMS] = {b->size, input.v.ints[0]};
  if (rows) {
    px__sizes_copy(merged_sizes, input.v.ints, input.n);
    merged_sizes[0] *= b->size;
  }
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) target = NULL;
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(merged_target(&target, b, args->target, rows));
  PX_TRY(each_gradient(&grad, b, args, target));
  PX_TRY(px_ones(&one, NULL, 0, (px_dtype)grad->dtype, px__tensor_device(grad), false, false));
  PX_TRY(px_nll_loss_backward(&made, grad, target, common_weight(b, args->weight), one,
                              merged_sizes, rows ? input.n : 2, "none", args->ignore_index));
  return px_reshape(out, made, sizes, input.n + 1);
}
PX_BATCH(nll_loss_backward) {
  if (b->size == 0) return px__batch_loop(b, false);
  px_tensor *made = NULL;
  PX_TRY(loss_gradients(&made, b, args));
  return px__batch_give(b, 0, made);
}
