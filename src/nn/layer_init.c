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
static px_status add_weighted(px_module *self, int ndim, const int64_t *sizes, int64_t out,
                              bool bias) {
  px_tensor *weight, *offset = NULL;
  int64_t fan_in, fan_out;
  PX_TRY(add_parameter(&weight, self, "weight", ndim, sizes));
  if (bias)
    PX_TRY(add_parameter(&offset, self, "bias", 1, &out));
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
  return add_weighted(self, 2, sizes, sizes[0], px__bool_of(self, "bias"));
}

// Makes a lone size one for each of `dims` dimensions.
static px_status spread_size(px_module *self, const char *name, int dims) {
  px_value value = px_module_attribute(self, name);
  int64_t each[3];
  if (value.kind != PX_ARG_INTS) return PX_OK;
  PX_CHECK(value.n == 1 || value.n == dims, PX_VALUE, "%s takes one or %d sizes, but got %d", name,
           dims, value.n);
  for (int d = 0; d < dims; d++) each[d] = value.v.ints[value.n == 1 ? 0 : d];
  return px_module_set_attribute(self, name, PX_IS(each, dims));
}

// How many dimensions signals or images have: the digit in the kind's detail ("conv1d_mode").
int px__dims_of(const px_module *self) {
  const char *digit = strpbrk(self->kind->detail, "123");
  return *digit - '0';
}

static px_status conv_sizes(px_module *self) {
  static const char *const lists[] = {"kernel_size", "stride", "padding", "output_padding",
                                      "dilation"};
  int64_t in = px__int_of(self, "in_channels"), groups = px__int_of(self, "groups");
  int64_t out = px__int_of(self, "out_channels");
  for (int i = 0; i < 5; i++) PX_TRY(spread_size(self, lists[i], px__dims_of(self)));
  PX_CHECK(groups > 0, PX_VALUE, "groups must be a positive integer");
  PX_CHECK(in % groups == 0, PX_VALUE, "in_channels must be divisible by groups");
  PX_CHECK(out % groups == 0, PX_VALUE, "out_channels must be divisible by groups");
  PX_CHECK(!strcmp(px_module_attribute(self, "padding_mode").v.text, "zeros"), PX_UNIMPLEMENTED,
           "%s: padding_mode other than 'zeros' is not implemented", self->kind->name);
  return PX_OK;
}

static px_status check_padding_word(const px_module *self) {
  px_value padding = px_module_attribute(self, "padding"), stride;
  if (padding.kind != PX_ARG_TEXT) return PX_OK;
  bool same = !strcmp(padding.v.text, "same");
  PX_CHECK(same || !strcmp(padding.v.text, "valid"), PX_VALUE,
           "Invalid padding string '%s', should be one of {'valid', 'same'}", padding.v.text);
  stride = px_module_attribute(self, "stride");
  for (int d = 0; same && d < stride.n; d++)
    PX_CHECK(stride.v.ints[d] == 1, PX_VALUE,
             "padding='same' is not supported for strided convolutions");
  return PX_OK;
}

// The weight's first two sizes, then the kernel's.
static px_status add_kernel(px_module *self, int64_t outer, int64_t inner) {
  px_value kernel = px_module_attribute(self, "kernel_size");
  int64_t sizes[5] = {outer, inner};
  for (int d = 0; d < kernel.n; d++) sizes[2 + d] = kernel.v.ints[d];
  return add_weighted(self, 2 + kernel.n, sizes, px__int_of(self, "out_channels"),
                      px__bool_of(self, "bias"));
}

px_status px__conv_init(px_module *self) {
  PX_TRY(conv_sizes(self));
  PX_TRY(check_padding_word(self));
  return add_kernel(self, px__int_of(self, "out_channels"),
                    px__int_of(self, "in_channels") / px__int_of(self, "groups"));
}

px_status px__conv_transpose_init(px_module *self) {
  PX_TRY(conv_sizes(self));
  return add_kernel(self, px__int_of(self, "in_channels"),
                    px__int_of(self, "out_channels") / px__int_of(self, "groups"));
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

// The shape, copied into sizes; a lone number becomes a list of one.
static px_status normalized_shape(px_module *self, int64_t *sizes, int *count) {
  px_value shape = px_module_attribute(self, "normalized_shape");
  *count = shape.n;
  memcpy(sizes, shape.v.ints, (size_t)shape.n * sizeof *sizes);
  return px_module_set_attribute(self, "normalized_shape", PX_IS(sizes, shape.n));
}

px_status px__layer_norm_init(px_module *self) {
  int64_t sizes[4];
  int count;
  PX_TRY(normalized_shape(self, sizes, &count));
  bool affine = px__bool_of(self, "elementwise_affine");
  return add_affine(self, count, sizes, affine, affine && px__bool_of(self, "bias"));
}

px_status px__rms_norm_init(px_module *self) {
  int64_t sizes[4];
  int count;
  px_tensor *made;
  PX_TRY(normalized_shape(self, sizes, &count));
  if (!px__bool_of(self, "elementwise_affine"))
    return px_module_register_parameter(self, "weight", NULL);
  PX_TRY(add_parameter(&made, self, "weight", count, sizes));
  return px_init_constant(made, 1);
}

px_status px__group_norm_init(px_module *self) {
  int64_t channels = px__int_of(self, "num_channels"), groups = px__int_of(self, "num_groups");
  bool affine = px__bool_of(self, "affine");
  PX_CHECK(groups > 0 && channels % groups == 0, PX_VALUE,
           "num_channels (%lld) must be divisible by num_groups (%lld)", (long long)channels,
           (long long)groups);
  bool bias = affine && px__bool_of(self, "bias");
  PX_TRY(px_module_set_attribute(self, "bias", PX_B(bias)));
  return add_affine(self, 1, &channels, affine, bias);
}

px_status px__prelu_init(px_module *self) {
  int64_t count = px__int_of(self, "num_parameters");
  px_tensor *made;
  PX_TRY(add_parameter(&made, self, "weight", 1, &count));
  return px_init_constant(made, px__float_of(self, "init"));
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

// A size that was given as a number stays one, and prints so.
static px_status keep_number(px_module *self, const char *name) {
  px_value value = px_module_attribute(self, name);
  if (value.kind != PX_ARG_INTS || value.n != 1) return PX_OK;
  value.category = 'i';
  return px_module_set_attribute(self, name, value);
}

// The stride is the kernel's size where it was not given.
px_status px__pool_init(px_module *self) {
  static const char *const lists[] = {"kernel_size", "stride", "padding", "dilation"};
  PX_CHECK(!px__bool_of(self, "return_indices"), PX_UNIMPLEMENTED,
           "%s: return_indices=True is not implemented; max_pool2d_with_indices gives them",
           self->kind->name);
  if (px_module_attribute(self, "stride").kind == PX_ARG_NONE)
    PX_TRY(px_module_set_attribute(self, "stride", px_module_attribute(self, "kernel_size")));
  for (int i = 0; i < 4; i++) PX_TRY(keep_number(self, lists[i]));
  return PX_OK;
}

// Of signals: lists of one number.
px_status px__avg_pool1d_init(px_module *self) {
  PX_TRY(px__pool_init(self));
  PX_TRY(spread_size(self, "kernel_size", 1));
  PX_TRY(spread_size(self, "stride", 1));
  return spread_size(self, "padding", 1);
}

px_status px__adaptive_init(px_module *self) { return keep_number(self, "output_size"); }
px_status px__upsample_init(px_module *self) { return keep_number(self, "size"); }

// Two sizes for each dimension, the last one first, as the op pad takes them.
px_status px__pad_init(px_module *self) {
  px_value padding = px_module_attribute(self, "padding");
  int64_t each[4];
  int count = 2 * px__dims_of(self);
  PX_CHECK(padding.n == 1 || padding.n == count, PX_VALUE, "padding takes one or %d sizes, got %d",
           count, padding.n);
  for (int i = 0; i < count; i++) each[i] = padding.v.ints[padding.n == 1 ? 0 : i];
  return px_module_set_attribute(self, "padding", PX_IS(each, count));
}

// The arguments that came before `reduction` are not taken for nothing.
px_status px__reduction_init(px_module *self) {
  bool given = px_module_attribute(self, "size_average").kind != PX_ARG_NONE ||
               px_module_attribute(self, "reduce").kind != PX_ARG_NONE;
  PX_CHECK(!given, PX_UNIMPLEMENTED,
           "%s: size_average and reduce are not implemented: say reduction='sum' or 'mean'",
           self->kind->name);
  return PX_OK;
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

// Appends ", name=value" where not all of a list's numbers are the usual one.
static void unusual_list(const px_module *self, const char *name, int64_t usual, char *text,
                         size_t room) {
  px_value value = px_module_attribute(self, name);
  bool plain = value.kind != PX_ARG_TEXT;
  for (int i = 0; value.kind == PX_ARG_INTS && i < value.n; i++) plain &= value.v.ints[i] == usual;
  if (plain) return;
  char list[64];
  pair_text(self, name, list, sizeof list);
  size_t used = strlen(text);
  snprintf(text + used, room - used, ", %s=%s", name, list);
}

void px__conv_repr(const px_module *self, char *text, size_t room) {
  char kernel[64], stride[64];
  pair_text(self, "kernel_size", kernel, sizeof kernel);
  pair_text(self, "stride", stride, sizeof stride);
  snprintf(text, room, "%lld, %lld, kernel_size=%s, stride=%s",
           (long long)px__int_of(self, "in_channels"), (long long)px__int_of(self, "out_channels"),
           kernel, stride);
  unusual_list(self, "padding", 0, text, room);
  unusual_list(self, "dilation", 1, text, room);
  unusual_list(self, "output_padding", 0, text, room);
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

void px__hardtanh_repr(const px_module *self, char *text, size_t room) {
  char low[32], high[32];
  px__value_text(px_module_attribute(self, "min_val"), low, sizeof low);
  px__value_text(px_module_attribute(self, "max_val"), high, sizeof high);
  snprintf(text, room, "min_val=%s, max_val=%s%s", low, high,
           px__bool_of(self, "inplace") ? ", inplace=True" : "");
}

void px__threshold_repr(const px_module *self, char *text, size_t room) {
  char least[32], value[32];
  px__value_text(px_module_attribute(self, "threshold"), least, sizeof least);
  px__value_text(px_module_attribute(self, "value"), value, sizeof value);
  snprintf(text, room, "threshold=%s, value=%s%s", least, value,
           px__bool_of(self, "inplace") ? ", inplace=True" : "");
}

void px__upsample_repr(const px_module *self, char *text, size_t room) {
  px_value scale = px_module_attribute(self, "scale_factor");
  const char *name = scale.kind == PX_ARG_NONE ? "size" : "scale_factor";
  char value[64];
  px__value_text(px_module_attribute(self, name), value, sizeof value);
  snprintf(text, room, "%s=%s, mode='%s'", name, value, px_module_attribute(self, "mode").v.text);
}
