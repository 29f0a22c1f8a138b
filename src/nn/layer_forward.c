// SPDX-License-Identifier: Apache-2.0
// What layers do: each forward is the op of the same name with the layer's attributes.
#include "nn/layers.h"
#include "phlox/ops.h"

#define FORWARD(name) \
  px_status px__##name##_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, \
                                 int count)

static px_value list_of(const px_module *self, const char *name) {
  return px_module_attribute(self, name);
}

static const char *word_of(const px_module *self, const char *name) {
  return px_module_attribute(self, name).v.text;
}

FORWARD(identity) {
  *out = px_retain(inputs[0]);
  return PX_OK;
}

FORWARD(linear) {
  return px_linear(out, inputs[0], px__tensor_of(self, "weight"), px__tensor_of(self, "bias"));
}

// ---- the general form

static px_value of_kind(px_value value, uint8_t kind) {
  if (value.kind == PX_ARG_NONE) return value;
  return kind == PX_ARG_SCALAR ? PX_S(px_value_scalar(value)) : value;
}

static px_value argument_of(px_module *self, const px_param *param) {
  px_tensor *own = px__tensor_of(self, param->name);
  if (own) return PX_T(own);
  if (!strcmp(param->name, "training")) return PX_B(self->training);
  return of_kind(px_module_attribute(self, param->name), param->kind);
}

// An op that has no form in place is computed, from a copy if there is a graph that keeps it, and
// its result copied into the input.
static px_status into_input(px_tensor **out, const px_op *op, px_value *args, px_tensor *input) {
  PX_SCOPED(px_tensor) kept = NULL;
  void *result = NULL;
  if (px_tensor_requires_grad(input)) {
    PX_TRY(px_clone(&kept, input, NULL));
    args[0] = PX_T(kept);
  }
  PX_TRY(px_op_call(op, PX_CALL_NEW, args, &result));
  PX_SCOPED(px_tensor) made = result;
  PX_TRY(px_copy_(input, made, false));
  *out = px_retain(input);
  return PX_OK;
}

FORWARD(op) {
  enum { LIMIT = 16 };
  const px_op *op = px_op_find(self->kind->detail);
  px_value args[LIMIT] = {{0}};
  void *result = NULL;
  for (int i = 0; i < op->param_count; i++)
    args[i] = i < count ? PX_T(inputs[i]) : argument_of(self, &op->params[i]);
  bool inplace = px__bool_of(self, "inplace"), own = op->flags & PX_OP_HAS_INPLACE;
  if (inplace && !own) return into_input(out, op, args, inputs[0]);
  if (inplace) result = inputs[0];
  PX_TRY(px_op_call(op, inplace ? PX_CALL_INPLACE : PX_CALL_NEW, args, &result));
  *out = result;
  return PX_OK;
}

FORWARD(conv) {
  px_value stride = list_of(self, "stride"), padding = list_of(self, "padding");
  if (padding.kind == PX_ARG_TEXT) return px__op_forward(out, self, inputs, count);
  px_value dilation = list_of(self, "dilation");
  return px_conv2d(out, inputs[0], px__tensor_of(self, "weight"), px__tensor_of(self, "bias"),
                   stride.v.ints, stride.n, padding.v.ints, padding.n, dilation.v.ints, dilation.n,
                   px__int_of(self, "groups"));
}

// Without a word for the padding: conv1d.
FORWARD(conv1d) {
  px_value stride = list_of(self, "stride"), padding = list_of(self, "padding");
  px_value dilation = list_of(self, "dilation");
  if (padding.kind == PX_ARG_TEXT) return px__op_forward(out, self, inputs, count);
  return px_conv1d(out, inputs[0], px__tensor_of(self, "weight"), px__tensor_of(self, "bias"),
                   stride.v.ints, stride.n, padding.v.ints, padding.n, dilation.v.ints, dilation.n,
                   px__int_of(self, "groups"));
}

FORWARD(max_pool) {
  px_value kernel = list_of(self, "kernel_size"), stride = list_of(self, "stride");
  px_value padding = list_of(self, "padding"), dilation = list_of(self, "dilation");
  return px_max_pool2d(out, inputs[0], kernel.v.ints, kernel.n, stride.v.ints, stride.n,
                       padding.v.ints, padding.n, dilation.v.ints, dilation.n,
                       px__bool_of(self, "ceil_mode"));
}

FORWARD(avg_pool) {
  px_value kernel = list_of(self, "kernel_size"), stride = list_of(self, "stride");
  px_value padding = list_of(self, "padding"), divisor = list_of(self, "divisor_override");
  return px_avg_pool2d(out, inputs[0], kernel.v.ints, kernel.n, stride.v.ints, stride.n,
                       padding.v.ints, padding.n, px__bool_of(self, "ceil_mode"),
                       px__bool_of(self, "count_include_pad"),
                       divisor.kind == PX_ARG_NONE ? NULL : &divisor.v.i);
}

FORWARD(flatten) {
  return px_flatten(out, inputs[0], px__int_of(self, "start_dim"), px__int_of(self, "end_dim"));
}

FORWARD(sequential) {
  PX_SCOPED(px_tensor) x = px_retain(inputs[0]);
  for (int i = 0; i < self->entry_count; i++) {
    px_tensor *next;
    PX_TRY(px_module_call(&next, self->entries[i].module, x));
    px_release(x);
    x = next;
  }
  *out = PX_MOVE(x);
  return PX_OK;
}

FORWARD(pad) {
  px_value padding = list_of(self, "padding"), value = list_of(self, "value");
  return px_pad(out, inputs[0], padding.v.ints, padding.n, self->kind->detail + 2,
                value.kind == PX_ARG_NONE ? (px_scalar){0} : px_value_scalar(value));
}

FORWARD(upsample) {
  px_value size = list_of(self, "size"), scale = list_of(self, "scale_factor");
  double by = scale.kind == PX_ARG_NONE ? 0 : px_value_float(scale);
  const double *given = scale.kind == PX_ARG_NONE ? NULL : &by;
  return px_resize_images(out, inputs[0], size.kind == PX_ARG_NONE ? NULL : size.v.ints, size.n,
                          given, given, word_of(self, "mode"), px__bool_of(self, "align_corners"));
}

FORWARD(unflatten) {
  px_value sizes = list_of(self, "unflattened_size");
  return px_unflatten(out, inputs[0], px__int_of(self, "dim"), sizes.v.ints, sizes.n);
}

// ---- activations

FORWARD(relu) {
  if (!px__bool_of(self, "inplace")) return px_relu(out, inputs[0]);
  PX_TRY(px_relu_(inputs[0]));
  *out = px_retain(inputs[0]);
  return PX_OK;
}

FORWARD(silu) { return px_silu(out, inputs[0]); }
FORWARD(gelu) { return px_gelu(out, inputs[0], word_of(self, "approximate")); }
FORWARD(tanh) { return px_tanh(out, inputs[0]); }
FORWARD(sigmoid) { return px_sigmoid(out, inputs[0]); }

FORWARD(leaky_relu) {
  return px_leaky_relu(out, inputs[0], px_float(px__float_of(self, "negative_slope")));
}

FORWARD(elu) {
  px_scalar alpha = px_float(px__float_of(self, "alpha")), one = px_int(1);
  if (!px__bool_of(self, "inplace")) return px_elu(out, inputs[0], alpha, one, one);
  PX_TRY(px_elu_(inputs[0], alpha, one, one));
  *out = px_retain(inputs[0]);
  return PX_OK;
}

FORWARD(softplus) {
  return px_softplus(out, inputs[0], px_float(px__float_of(self, "beta")),
                     px_float(px__float_of(self, "threshold")));
}

// Without a dim: 0 for 0, 1 and 3 dimensions, otherwise 1, as PyTorch chooses (and warns).
static int64_t softmax_dim(const px_module *self, const px_tensor *x) {
  px_value dim = px_module_attribute(self, "dim");
  int ndim = px_tensor_ndim(x);
  return dim.kind != PX_ARG_NONE ? px_value_int(dim) : ndim == 2 || ndim > 3;
}

FORWARD(softmax) { return px_softmax(out, inputs[0], softmax_dim(self, inputs[0]), PX_DTYPE_NONE); }
FORWARD(softmin) { return px_softmin(out, inputs[0], softmax_dim(self, inputs[0]), PX_DTYPE_NONE); }
FORWARD(log_softmax) {
  return px_log_softmax(out, inputs[0], softmax_dim(self, inputs[0]), PX_DTYPE_NONE);
}

FORWARD(dropout) { return px_dropout(out, inputs[0], px__float_of(self, "p"), self->training); }

// ---- normalisation and embedding

FORWARD(layer_norm) {
  px_value shape = list_of(self, "normalized_shape");
  return px_layer_norm(out, inputs[0], shape.v.ints, shape.n, px__tensor_of(self, "weight"),
                       px__tensor_of(self, "bias"), px__float_of(self, "eps"));
}

static px_status dims_check(const px_module *self, const px_tensor *x) {
  int ndim = px_tensor_ndim(x), dims = px__dims_of(self);
  if (dims == 1)
    PX_CHECK(ndim == 2 || ndim == 3, PX_VALUE, "expected 2D or 3D input (got %dD input)", ndim);
  else
    PX_CHECK(ndim == dims + 2, PX_VALUE, "expected %dD input (got %dD input)", dims + 2, ndim);
  return PX_OK;
}

// Counts the batch and gives the weight of its statistics in the running ones.
static px_status batch_weight(double *out, px_module *self) {
  px_tensor *seen = px__tensor_of(self, "num_batches_tracked");
  px_value momentum = px_module_attribute(self, "momentum");
  *out = momentum.kind == PX_ARG_NONE ? 0 : px_value_float(momentum);
  if (!self->training || !seen) return PX_OK;
  void *same = NULL;
  PX_TRY(px_op_call(px_op_find("add"), PX_CALL_INPLACE,
                    (px_value[]){PX_T(seen), PX_S(px_int(1)), PX_NONE()}, &same));
  px_release(same);
  if (momentum.kind != PX_ARG_NONE) return PX_OK;
  px_scalar count;
  PX_TRY(px_tensor_item(&count, seen));
  *out = 1 / px_scalar_float(count);
  return PX_OK;
}

FORWARD(batch_norm) {
  double weight;
  px_tensor *mean = px__tensor_of(self, "running_mean"), *var = px__tensor_of(self, "running_var");
  PX_TRY(dims_check(self, inputs[0]));
  PX_TRY(batch_weight(&weight, self));
  return px_batch_norm(out, inputs[0], mean, var, px__tensor_of(self, "weight"),
                       px__tensor_of(self, "bias"), self->training || !mean, weight,
                       px__float_of(self, "eps"));
}

FORWARD(instance_norm) {
  px_tensor *mean = px__tensor_of(self, "running_mean"), *var = px__tensor_of(self, "running_var");
  int ndim = px_tensor_ndim(inputs[0]), alone = 1 + px__dims_of(self);
  PX_CHECK(ndim == alone || ndim == alone + 1, PX_VALUE,
           "expected %dD or %dD input (got %dD input)", alone, alone + 1, ndim);
  PX_SCOPED(px_tensor) batch = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  if (ndim == alone)
    PX_TRY(px_unsqueeze(&batch, inputs[0], 0));
  else
    batch = px_retain(inputs[0]);
  PX_TRY(px_instance_norm(&result, batch, mean, var, px__tensor_of(self, "weight"),
                          px__tensor_of(self, "bias"), self->training || !mean,
                          px__float_of(self, "momentum"), px__float_of(self, "eps")));
  if (ndim == alone) return px_squeeze_dim(out, result, (int64_t[]){0}, 1);
  *out = PX_MOVE(result);
  return PX_OK;
}

FORWARD(embedding) {
  px_value padding = px_module_attribute(self, "padding_idx");
  return px_embedding(out, inputs[0], px__tensor_of(self, "weight"),
                      padding.kind == PX_ARG_NONE ? NULL : &padding.v.i);
}

// ---- losses

FORWARD(mse) { return px_mse_loss(out, inputs[0], inputs[1], word_of(self, "reduction")); }
FORWARD(l1) { return px_l1_loss(out, inputs[0], inputs[1], word_of(self, "reduction")); }

FORWARD(smooth_l1) {
  return px_smooth_l1_loss(out, inputs[0], inputs[1], word_of(self, "reduction"),
                           px__float_of(self, "beta"));
}
FORWARD(huber) {
  return px_huber_loss(out, inputs[0], inputs[1], word_of(self, "reduction"),
                       px__float_of(self, "delta"));
}
FORWARD(bce) {
  return px_binary_cross_entropy(out, inputs[0], inputs[1], px__tensor_of(self, "weight"),
                                 word_of(self, "reduction"));
}
FORWARD(bce_logits) {
  return px_binary_cross_entropy_with_logits(
      out, inputs[0], inputs[1], px__tensor_of(self, "weight"), word_of(self, "reduction"),
      px__tensor_of(self, "pos_weight"));
}

FORWARD(nll) {
  return px_nll_loss(out, inputs[0], inputs[1], px__tensor_of(self, "weight"),
                     px__int_of(self, "ignore_index"), word_of(self, "reduction"));
}

FORWARD(cross_entropy) {
  return px_cross_entropy(out, inputs[0], inputs[1], px__tensor_of(self, "weight"),
                          px__int_of(self, "ignore_index"), word_of(self, "reduction"),
                          px__float_of(self, "label_smoothing"));
}
