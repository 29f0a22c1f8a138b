// SPDX-License-Identifier: Apache-2.0
// Runtime of the generated layer code.
#include "nn/layers/layer_code.h"

#include <math.h>

#include "layer_functions.h"
#include "phlox/ops/view.h"

const px_module_kind *px_module_kind_at(int i) {
  return i >= 0 && i < px__layer_count ? &px__layers[i] : NULL;
}

static const char *name_at(const void *names, int i) {
  return i < px__layer_count ? px__layers[i].name : NULL;
}

const px_module_kind *px_module_kind_find(const char *name) {
  for (int i = 0; i < px__layer_count; i++)
    if (!strcmp(px__layers[i].name, name)) return &px__layers[i];
  px__kind_missed(name, px_name_suggest(name, name_at, NULL));
  return NULL;
}

// ---- tensors

static px_status make_tensor(px_tensor **out, const px_module *self, int ndim, const int64_t *sizes,
                             px_dtype dtype) {
  static const int64_t none[] = {0};
  if (self->stage == PX__WAITS && ndim) ndim = 1, sizes = none;
  px_value device = px_module_attribute(self, "device"), own = px_module_attribute(self, "dtype");
  if (dtype == PX_DTYPE_NONE && own.kind == PX_ARG_DTYPE) dtype = (px_dtype)own.v.i;
  return px_tensor_empty(out, ndim, sizes, dtype,
                         device.kind == PX_ARG_DEVICE ? device.v.device : PX_DEVICE_NONE);
}

// On FILLS and STARTS: returns the tensor to initialize. An uninitialized lazy tensor gets memory.
// One already filled from a state dict is left unchanged.
static px_status existing_tensor(px_tensor **out, const px_module *self, const char *name, int ndim,
                                 const int64_t *sizes) {
  PX_SCOPED(px_tensor) made = NULL;
  px_tensor *there = px__tensor_of(self, name);
  *out = self->stage == PX__STARTS ? there : NULL;
  if (self->stage == PX__STARTS || !px__is_uninitialized(there)) return PX_OK;
  PX_TRY(px_tensor_empty(&made, ndim, sizes, px_tensor_dtype(there), px_tensor_device(there)));
  PX_TRY(px_tensor_set_data(there, made));
  *out = there;
  return PX_OK;
}

px_status px__add_parameter(px_tensor **out, px_module *self, const char *name, int ndim,
                            const int64_t *sizes) {
  PX_SCOPED(px_tensor) made = NULL;
  if (self->stage >= PX__MATERIALIZES) return existing_tensor(out, self, name, ndim, sizes);
  PX_TRY(make_tensor(&made, self, ndim, sizes, PX_DTYPE_NONE));
  PX_TRY(px_tensor_set_requires_grad(made, true));
  PX_TRY(px_module_register_parameter(self, name, made));
  *out = self->stage == PX__WAITS ? NULL : made;
  return PX_OK;
}

px_status px__add_buffer(px_tensor **out, px_module *self, const char *name, int ndim,
                         const int64_t *sizes, px_dtype dtype) {
  PX_SCOPED(px_tensor) made = NULL;
  if (self->stage >= PX__MATERIALIZES) return existing_tensor(out, self, name, ndim, sizes);
  PX_TRY(make_tensor(&made, self, ndim, sizes, dtype));
  PX_TRY(px_module_register_buffer(self, name, made, true));
  *out = self->stage == PX__WAITS && ndim ? NULL : made;
  return PX_OK;
}

px_status px__take_buffer(px_module *self, const char *name) {
  px_value value = px_module_attribute(self, name);
  PX_SCOPED(px_tensor) given = value.kind == PX_ARG_TENSOR ? px_retain(value.v.tensor) : NULL;
  PX_TRY(px_module_set_attribute(self, name, PX_NONE()));  // owned by the buffer instead
  return px_module_register_buffer(self, name, given, true);
}

px_status px__add_child(px_module *self, const char *name, const char *kind, const px_value *args) {
  PX_SCOPED(px_module) made = NULL;
  if (self->stage != PX__MADE) return PX_OK;
  PX_TRY(px_module_new(&made, px_module_kind_find(kind), args, NULL));
  return px_module_register_module(self, name, made);
}

px_status px__init_fan_uniform(px_tensor *self, const px_tensor *weight) {
  int64_t fan_in, fan_out;
  PX_TRY(px_init_fans(&fan_in, &fan_out, weight));
  if (fan_in <= 0) return PX_OK;
  double bound = 1 / sqrt((double)fan_in);
  return px_init_uniform(self, -bound, bound, NULL);
}

// The padding row is zero.
px_status px__embedding_init(px_module *self) {
  px_value padding = px_module_attribute(self, "padding_idx");
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  if (padding.kind == PX_ARG_NONE) return PX_OK;
  PX_TRY(px_tensor_detach(&plain, px__tensor_of(self, "weight")));
  PX_TRY(px_select(&row, plain, 0, px_value_int(padding)));
  return px_init_constant(row, 0);
}

px_status px_module_reset(px_module *self) {
  PX_GIVEN(self);
  if (!self->kind->starts || self->kind->lazy) return PX_OK;
  PX__READS(self);
  self->stage = PX__STARTS;
  px_status status = self->kind->init(self);
  self->stage = PX__MADE;
  return status;
}

// ---- arguments

px_status px__older_reduction(px_module *self) {
  px_value averages = px_module_attribute(self, "size_average"),
           reduces = px_module_attribute(self, "reduce");
  if (averages.kind == PX_ARG_NONE && reduces.kind == PX_ARG_NONE) return PX_OK;
  const char *word = reduces.kind != PX_ARG_NONE && !reduces.v.i     ? "none"
                     : averages.kind != PX_ARG_NONE && !averages.v.i ? "sum"
                                                                     : "mean";
  PX_TRY(px_warn(PX_WARN_USER,
                 "size_average and reduce args will be deprecated, please use reduction='%s' "
                 "instead.",
                 word));
  return px_module_set_attribute(self, "reduction", PX_TX(word));
}

px_status px__spread(px_module *self, const char *name, int count) {
  px_value value = px_module_attribute(self, name);
  int64_t each[PX__ATTRIBUTE_INTS];
  if (value.kind != PX_ARG_INTS) return PX_OK;
  PX_CHECK(value.n == 1 || value.n == count, PX_VALUE, "%s: expected 1 or %d sizes, got %d", name,
           count, value.n);
  for (int d = 0; d < count; d++) each[d] = value.v.ints[value.n == 1 ? 0 : d];
  return px_module_set_attribute(self, name, PX_IS(each, count));
}

px_value px__given_int(int64_t value, bool maybe) {
  if (value != PX_NO_INT) return PX_I(value);
  return maybe ? PX_GIVEN_NONE() : PX_NONE();
}

px_value px__given_float(double value, bool maybe) {
  if (!isnan(value)) return PX_F(value);
  return maybe ? PX_GIVEN_NONE() : PX_NONE();
}

px_value px__given_ints(const int64_t *items, int capacity, int size, bool maybe) {
  int count = 0;
  if (items[0] == PX_NO_INT) return maybe ? PX_GIVEN_NONE() : PX_NONE();
  while (count < capacity && items[count] != PX_NO_INT && (size || items[count] || !count)) count++;
  px_value list = PX_IS(items, count);
  if (count < capacity && items[count] == PX_NO_INT) list.category = 'i';  // one number for all
  return list;
}

// ---- forward

px_status px__forward_inplace(px_tensor **out, const char *op, const px_value *args) {
  void *result = NULL;
  PX_TRY(px_op_call(px_op_find(op), PX_CALL_INPLACE, args, &result));
  *out = result;
  return PX_OK;
}
