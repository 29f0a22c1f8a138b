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

FORWARD(conv) {
  px_value stride = list_of(self, "stride"), padding = list_of(self, "padding");
  px_value dilation = list_of(self, "dilation");
  return px_conv2d(out, inputs[0], px__tensor_of(self, "weight"), px__tensor_of(self, "bias"),
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

FORWARD(adaptive_pool) {
  px_value size = list_of(self, "output_size");
  return px_adaptive_avg_pool2d(out, inputs[0], size.v.ints, size.n);
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
  int ndim = px_tensor_ndim(x);
  bool two = self->kind->name[strlen(self->kind->name) - 2] == '2';
  if (two) PX_CHECK(ndim == 4, PX_VALUE, "expected 4D input (got %dD input)", ndim);
  PX_CHECK(ndim == 2 || ndim == 3 || two, PX_VALUE, "expected 2D or 3D input (got %dD input)",
           ndim);
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
