// SPDX-License-Identifier: Apache-2.0
// How layers make their parameters from their attributes. Numbers are drawn in PyTorch's order.
#include "nn/layers.h"
#include "phlox/ops.h"

#include <math.h>
#include <stdio.h>

static px_device place_of(const px_module *self) {
  px_value value = px_module_attribute(self, "device");
  return value.kind == PX_ARG_DEVICE ? value.v.device : PX_DEVICE_NONE;
}

static px_dtype dtype_of(const px_module *self) {
  px_value value = px_module_attribute(self, "dtype");
  return value.kind == PX_ARG_DTYPE ? (px_dtype)value.v.i : PX_DTYPE_NONE;
}

// Makes an uninitialised parameter of the module's device and dtype, and registers it; *out is
// borrowed.
static px_status add_parameter(px_tensor **out, px_module *self, const char *name, int ndim,
                               const int64_t *sizes) {
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_tensor_empty(&made, ndim, sizes, dtype_of(self), place_of(self)));
  PX_TRY(px_tensor_set_requires_grad(made, true));
  PX_TRY(px_module_register_parameter(self, name, made));
  *out = made;
  return PX_OK;
}

// Weight and bias of linear layers and convolutions: kaiming uniform with a = sqrt(5), then
// U(-1/sqrt(fan_in), 1/sqrt(fan_in)).
static px_status add_weighted(px_module *self, int ndim, const int64_t *sizes, bool bias) {
  px_tensor *weight, *offset = NULL;
  int64_t fan_in, fan_out;
  PX_TRY(add_parameter(&weight, self, "weight", ndim, sizes));
  if (bias)
    PX_TRY(add_parameter(&offset, self, "bias", 1, sizes));
  else
    PX_TRY(px_module_register_parameter(self, "bias", NULL));
  PX_TRY(px_init_kaiming_uniform(weight, sqrt(5.0), false, "leaky_relu", NULL));
  PX_TRY(px_init_fans(&fan_in, &fan_out, weight));
  if (!offset || fan_in <= 0) return PX_OK;
  double bound = 1 / sqrt((double)fan_in);
  return px_init_uniform(offset, -bound, bound, NULL);
}

px_status px__linear_init(px_module *self) {
  int64_t sizes[] = {px__int_of(self, "out_features"), px__int_of(self, "in_features")};
  return add_weighted(self, 2, sizes, px__bool_of(self, "bias"));
}

// Makes a lone size a pair.
static px_status make_pair(px_module *self, const char *name) {
  px_value value = px_module_attribute(self, name);
  if (value.kind != PX_ARG_INTS || value.n == 2) return PX_OK;
  PX_CHECK(value.n == 1, PX_VALUE, "%s takes one or two sizes, but got %d", name, value.n);
  int64_t pair[] = {value.v.ints[0], value.v.ints[0]};
  return px_module_set_attribute(self, name, PX_IS(pair, 2));
}

px_status px__conv_init(px_module *self) {
  static const char *const pairs[] = {"kernel_size", "stride", "padding", "dilation"};
  for (int i = 0; i < 4; i++) PX_TRY(make_pair(self, pairs[i]));
  int64_t in = px__int_of(self, "in_channels"), groups = px__int_of(self, "groups");
  int64_t out = px__int_of(self, "out_channels");
  PX_CHECK(groups > 0, PX_VALUE, "groups must be a positive integer");
  PX_CHECK(in % groups == 0, PX_VALUE, "in_channels must be divisible by groups");
  PX_CHECK(out % groups == 0, PX_VALUE, "out_channels must be divisible by groups");
  PX_CHECK(!strcmp(px_module_attribute(self, "padding_mode").v.text, "zeros"), PX_UNIMPLEMENTED,
           "Conv2d: padding_mode other than 'zeros' is not implemented");
  const int64_t *kernel = px_module_attribute(self, "kernel_size").v.ints;
  int64_t sizes[] = {out, in / groups, kernel[0], kernel[1]};
  return add_weighted(self, 4, sizes, px__bool_of(self, "bias"));
}

static px_status add_affine(px_module *self, int ndim, const int64_t *sizes, bool weight,
                            bool bias) {
  px_tensor *made;
  if (!weight) PX_TRY(px_module_register_parameter(self, "weight", NULL));
  if (!bias) PX_TRY(px_module_register_parameter(self, "bias", NULL));
  if (weight) {
    PX_TRY(add_parameter(&made, self, "weight", ndim, sizes));
    PX_TRY(px_init_constant(made, 1));
  }
  if (!bias) return PX_OK;
  PX_TRY(add_parameter(&made, self, "bias", ndim, sizes));
  return px_init_constant(made, 0);
}

static px_status add_statistic(px_module *self, const char *name, int ndim, int64_t size,
                               px_dtype dtype, double value) {
  PX_SCOPED(px_tensor) made = NULL;
  if (px__bool_of(self, "track_running_stats")) {
    PX_TRY(px_tensor_empty(&made, ndim, &size, dtype, place_of(self)));
    PX_TRY(px_init_constant(made, value));
  }
  return px_module_register_buffer(self, name, made, true);
}

px_status px__batch_norm_init(px_module *self) {
  int64_t size = px__int_of(self, "num_features");
  bool affine = px__bool_of(self, "affine");
  PX_TRY(add_affine(self, 1, &size, affine, affine));
  PX_TRY(add_statistic(self, "running_mean", 1, size, dtype_of(self), 0));
  PX_TRY(add_statistic(self, "running_var", 1, size, dtype_of(self), 1));
  return add_statistic(self, "num_batches_tracked", 0, size, PX_INT64, 0);
}

px_status px__layer_norm_init(px_module *self) {
  px_value shape = px_module_attribute(self, "normalized_shape");
  int64_t sizes[4];
  memcpy(sizes, shape.v.ints, (size_t)shape.n * sizeof *sizes);
  bool affine = px__bool_of(self, "elementwise_affine");
  return add_affine(self, shape.n, sizes, affine, affine && px__bool_of(self, "bias"));
}

px_status px__embedding_init(px_module *self) {
  int64_t sizes[] = {px__int_of(self, "num_embeddings"), px__int_of(self, "embedding_dim")};
  px_value padding = px_module_attribute(self, "padding_idx");
  px_tensor *weight;
  int64_t at = padding.kind == PX_ARG_NONE ? 0 : px_value_int(padding);
  PX_CHECK(at < sizes[0] && at >= -sizes[0], PX_ASSERTION,
           "Padding_idx must be within num_embeddings");
  if (at < 0) PX_TRY(px_module_set_attribute(self, "padding_idx", PX_I(at += sizes[0])));
  PX_TRY(add_parameter(&weight, self, "weight", 2, sizes));
  PX_TRY(px_init_normal(weight, 0, 1, NULL));
  if (padding.kind == PX_ARG_NONE) return PX_OK;
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  PX_TRY(px_tensor_detach(&plain, weight));
  PX_TRY(px_select(&row, plain, 0, at));
  return px_init_constant(row, 0);
}

px_status px__dropout_init(px_module *self) {
  double p = px__float_of(self, "p");
  char text[32];
  px__value_text(px_module_attribute(self, "p"), text, sizeof text);
  PX_CHECK(p >= 0 && p <= 1, PX_VALUE, "dropout probability has to be between 0 and 1, but got %s",
           text);
  return PX_OK;
}

// The stride is the kernel's size where it was not given.
px_status px__pool_init(px_module *self) {
  if (px_module_attribute(self, "stride").kind != PX_ARG_NONE) return PX_OK;
  return px_module_set_attribute(self, "stride", px_module_attribute(self, "kernel_size"));
}

// A loss's class weights are a buffer; without them the name is kept.
static px_status own_buffer(px_module *self, const char *name) {
  px_value value = px_module_attribute(self, name);
  PX_SCOPED(px_tensor) given = value.kind == PX_ARG_TENSOR ? px_retain(value.v.tensor) : NULL;
  PX_TRY(px_module_set_attribute(self, name, PX_NONE()));  // the buffer owns it, not the attribute
  return px_module_register_buffer(self, name, given, true);
}
px_status px__weight_init(px_module *self) { return own_buffer(self, "weight"); }
px_status px__two_weights_init(px_module *self) {
  PX_TRY(own_buffer(self, "weight"));
  return own_buffer(self, "pos_weight");
}

// ---- printed forms that a template cannot say

static void pair_text(const px_module *self, const char *name, char *text, size_t room) {
  px__value_text(px_module_attribute(self, name), text, room);
}

// Appends ", name=value" where the pair is not (usual, usual).
static void unusual_pair(const px_module *self, const char *name, int64_t usual, char *text,
                         size_t room) {
  px_value value = px_module_attribute(self, name);
  if (value.kind != PX_ARG_INTS || (value.v.ints[0] == usual && value.v.ints[1] == usual)) return;
  char pair[64];
  pair_text(self, name, pair, sizeof pair);
  size_t used = strlen(text);
  snprintf(text + used, room - used, ", %s=%s", name, pair);
}

void px__conv_repr(const px_module *self, char *text, size_t room) {
  char kernel[64], stride[64];
  pair_text(self, "kernel_size", kernel, sizeof kernel);
  pair_text(self, "stride", stride, sizeof stride);
  snprintf(text, room, "%lld, %lld, kernel_size=%s, stride=%s",
           (long long)px__int_of(self, "in_channels"), (long long)px__int_of(self, "out_channels"),
           kernel, stride);
  unusual_pair(self, "padding", 0, text, room);
  unusual_pair(self, "dilation", 1, text, room);
  size_t used = strlen(text);
  if (px__int_of(self, "groups") != 1)
    snprintf(text + used, room - used, ", groups=%lld", (long long)px__int_of(self, "groups"));
  used = strlen(text);
  if (!px__tensor_of(self, "bias")) snprintf(text + used, room - used, ", bias=False");
}

void px__embedding_repr(const px_module *self, char *text, size_t room) {
  px_value padding = px_module_attribute(self, "padding_idx");
  snprintf(text, room, "%lld, %lld", (long long)px__int_of(self, "num_embeddings"),
           (long long)px__int_of(self, "embedding_dim"));
  size_t used = strlen(text);
  if (padding.kind != PX_ARG_NONE)
    snprintf(text + used, room - used, ", padding_idx=%lld", (long long)px_value_int(padding));
}

void px__gelu_repr(const px_module *self, char *text, size_t room) {
  snprintf(text, room, "approximate='%s'", px_module_attribute(self, "approximate").v.text);
}

void px__inplace_repr(const px_module *self, char *text, size_t room) {
  snprintf(text, room, px__bool_of(self, "inplace") ? "inplace=True" : "");
}

void px__slope_repr(const px_module *self, char *text, size_t room) {
  char slope[32];
  const char *name = self->kind->params[0].name;
  px__value_text(px_module_attribute(self, name), slope, sizeof slope);
  snprintf(text, room, "%s=%s%s", name, slope,
           px__bool_of(self, "inplace") ? ", inplace=True" : "");
}

// Pooling prints sizes as they were given: a number for a lone one.
static void pool_repr(const px_module *self, const char *const *names, int count, char *text,
                      size_t room) {
  size_t used = 0;
  for (int i = 0; i < count && used < room; i++) {
    char value[64];
    px_value at = px_module_attribute(self, names[i]);
    if (at.kind == PX_ARG_INTS && at.n == 1) at = PX_I(at.v.ints[0]);
    px__value_text(at, value, sizeof value);
    used += (size_t)snprintf(text + used, room - used, "%s%s=%s", i ? ", " : "", names[i], value);
  }
}

void px__max_pool_repr(const px_module *self, char *text, size_t room) {
  static const char *const names[] = {"kernel_size", "stride", "padding", "dilation", "ceil_mode"};
  pool_repr(self, names, 5, text, room);
}

void px__avg_pool_repr(const px_module *self, char *text, size_t room) {
  static const char *const names[] = {"kernel_size", "stride", "padding"};
  pool_repr(self, names, 3, text, room);
}

void px__adaptive_pool_repr(const px_module *self, char *text, size_t room) {
  static const char *const names[] = {"output_size"};
  pool_repr(self, names, 1, text, room);
}
