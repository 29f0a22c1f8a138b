// SPDX-License-Identifier: Apache-2.0
// Lazy layers: modules that infer a size from their first input. Until then the size attribute is 0
// and dependent tensors are uninitialized: one dimension, no elements.
#include "nn/layers/layer_code.h"

px_status px__lazy_begin(px_module *self, const px_module_lazy *lazy) {
  const px_module_kind *base = px_module_kind_find(lazy->becomes);
  PX_TRY(px_module_set_attribute(self, lazy->size, PX_I(0)));
  self->stage = PX__WAITS;
  px_status status = base->init(self);
  self->stage = PX__MADE;
  return status;
}

// Reads the size from the input.
static px_status measure(int64_t *out, const px_module *self, const px_module_lazy *lazy,
                         const px_tensor *input) {
  int ndim = px_tensor_ndim(input), at = lazy->dim < 0 ? lazy->dim + ndim : lazy->dim;
  PX_CHECK(!lazy->min_dims || (lazy->min_dims <= ndim && ndim <= lazy->max_dims), PX_RUNTIME,
           "Expected %dD (unbatched) or %dD (batched) input to %s, but got input of size: "
           "torch.Size([%s])",
           lazy->min_dims, lazy->max_dims, self->kind->name,
           px__comma_text((char[160]){0}, 160, ndim, px_tensor_sizes(input)));
  PX_CHECK(at >= 0 && at < ndim, PX_INDEX, "tuple index out of range");
  *out = px_tensor_size(input, at);
  return PX_OK;
}

// After a failure, makes materialized tensors uninitialized again.
static void make_uninitialized(px_module *self, const bool *uninitialized, int count) {
  for (int i = 0; i < count; i++) {
    PX_SCOPED(px_tensor) none = NULL;
    const px__entry *entry = px__entry_row(self, i);
    px_tensor *t = entry ? entry->tensor : NULL;
    if (t && uninitialized[i] &&
        px_tensor_empty(&none, 1, (int64_t[]){0}, px_tensor_dtype(t), px_tensor_device(t)) == PX_OK)
      (void)!px_tensor_set_data(t, none);
  }
}

px_status px_module_infer(px_module *self, px_tensor *input) {
  enum { MAX_ENTRIES = 16 };
  PX_GIVEN(self);
  PX_GIVEN(input);
  PX__READS(self);
  const px_module_lazy *lazy = self->kind->lazy;
  int64_t size = 0;
  bool uninitialized[MAX_ENTRIES];
  if (!lazy || px_value_int(px_module_attribute(self, lazy->size))) return PX_OK;
  PX_TRY(measure(&size, self, lazy, input));
  const px__entry *entry;
  int count = 0;
  for (; count < MAX_ENTRIES && (entry = px__entry_row(self, count)); count++)
    uninitialized[count] = px__is_uninitialized(entry->tensor);
  PX_TRY(px_module_set_attribute(self, lazy->size, PX_I(size)));
  self->stage = PX__MATERIALIZES;
  px_status status = px_module_kind_find(lazy->becomes)->init(self);
  self->stage = PX__MADE;
  if (status == PX_OK) return PX_OK;
  make_uninitialized(self, uninitialized, count);
  PX_TRY(px_module_set_attribute(self, lazy->size, PX_I(0)));
  return px_error_add_frame(status, __FILE__, __LINE__, __func__);
}

px_status px__lazy_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count) {
  const px_module_lazy *lazy = self->kind->lazy;
  PX_TRY(px_module_infer(self, *inputs));
  const px_module_kind *base = px_module_kind_find(lazy->becomes);
  if (!self->user)
    PX_PUBLISH(self->kind, base);  // a binding changes the class of its object itself
  return base->forward(out, self, inputs, count);
}
