// SPDX-License-Identifier: Apache-2.0
// What the generated code of layers (layers.c) stands on: arguments and tensors of a module,
// tensors that are made, Python's arithmetic.
#pragma once
#include "conditions.h"
#include "nn/module/nn_impl.h"

enum { PX__TEXT = 512 };

// The table of the library's kinds, in the order of their names.
extern const px_module_kind px__layers[];
extern const int px__layer_count;

// An argument of the constructor, and a tensor of the layer. `i` is where it stands if nothing was
// put before it since the module was made, which is nearly always.
static inline px_value px__argument(const px_module *self, int i, const char *name) {
  if (i < self->attribute_count && !strcmp(self->attributes[i].name, name))
    return self->attributes[i].value;
  return px_module_attribute(self, name);
}
static inline px_tensor *px__own(const px_module *self, int i, const char *name) {
  if (i < self->entry_count && !strcmp(self->entries[i].name, name)) return self->entries[i].tensor;
  return px__tensor_of(self, name);
}

// The sizes, with those of the last dimensions of x in the place of PX_OWN_SIZE.
px_value px__own_sizes(int64_t room[PX_MAX_DIMS], px_value sizes, const px_tensor *x);

// Whether there is to be a tensor: it was decided when the layer was made.
static inline bool px__wanted(const px_module *self, const char *name, bool condition) {
  return self->stage >= PX__FILLS ? px__tensor_of(self, name) != NULL : condition;
}
// Make a tensor of the layer's device and dtype (or the given one), uninitialised, and register it;
// *out is borrowed, and NULL where the tensor is not to be started: it waits for a size.
px_status px__add_parameter(px_tensor **out, px_module *self, const char *name, int ndim,
                            const int64_t *sizes) __attribute__((warn_unused_result));
px_status px__add_buffer(px_tensor **out, px_module *self, const char *name, int ndim,
                         const int64_t *sizes, px_dtype dtype) __attribute__((warn_unused_result));
// Makes a module of the layer, and registers it; once, when the layer is made.
px_status px__add_child(px_module *self, const char *name, const char *kind, const px_value *args)
    __attribute__((warn_unused_result));
// Init and forward of lazy layers.
px_status px__lazy_begin(px_module *self, const px_module_lazy *lazy)
    __attribute__((warn_unused_result));
px_status px__lazy_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count)
    __attribute__((warn_unused_result));
// Makes the constructor's argument of that name a buffer; without one the name keeps its place.
px_status px__take_buffer(px_module *self, const char *name) __attribute__((warn_unused_result));
// Uniform between plus and minus 1 / sqrt(fan_in of weight); nothing where that is 0.
px_status px__init_fan_uniform(px_tensor *self, const px_tensor *weight)
    __attribute__((warn_unused_result));
// Makes a lone size `count` of them.
px_status px__spread(px_module *self, const char *name, int count)
    __attribute__((warn_unused_result));
// Calls an op in place on its first argument, the input, which it gives.
px_status px__forward_inplace(px_tensor **out, const char *op, const px_value *args)
    __attribute__((warn_unused_result));

// Arguments of the C constructors as values: PX_NO_INT and PX_NO_FLOAT are None of what may be, and
// otherwise not given. Of a list `room` numbers are there; size 0: as many as it has before a 0.
px_value px__given_int(int64_t value, bool maybe);
px_value px__given_float(double value, bool maybe);
px_value px__given_ints(const int64_t *items, int room, int size, bool maybe);
