// SPDX-License-Identifier: Apache-2.0
// Runtime of the generated layer code (layers.c): arguments and tensors of a module, creation of
// tensors, Python's arithmetic.
#pragma once
#include "conditions.h"
#include "nn/module/nn_impl.h"

enum { PX__TEXT = 512 };

// The library's module kinds, sorted by name.
extern const px_module_kind px__layers[];
extern const int px__layer_count;

// Returns an argument of the constructor, or a tensor of the layer. `i` is its index unless entries
// were inserted after construction, which is rare.
static inline px_value px__argument(const px_module *self, int i, const char *name) {
  const px__attribute *at = px__row(&self->attributes, i);
  if (at && !strcmp(at->name, name)) return at->value;
  return px_module_attribute(self, name);
}
static inline px_tensor *px__own(const px_module *self, int i, const char *name) {
  const px__entry *entry = px__entry_row(self, i);
  if (entry && !strcmp(entry->name, name)) return entry->tensor;
  return px__tensor_of(self, name);
}

// Replaces PX_OWN_SIZE by the sizes of the last dimensions of x.
px_value px__own_sizes(int64_t out[PX_MAX_DIMS], px_value sizes, const px_tensor *x);

// True if the layer has the tensor. The condition is evaluated at construction only.
static inline bool px__has_tensor(const px_module *self, const char *name, bool condition) {
  return self->stage >= PX__MATERIALIZES ? px__tensor_of(self, name) != NULL : condition;
}
// Create an uninitialized tensor of the layer's device and dtype (or the given dtype) and register
// it. *out is borrowed. It is NULL if the tensor must not be initialized now.
px_status px__add_parameter(px_tensor **out, px_module *self, const char *name, int ndim,
                            const int64_t *sizes) __attribute__((warn_unused_result));
px_status px__add_buffer(px_tensor **out, px_module *self, const char *name, int ndim,
                         const int64_t *sizes, px_dtype dtype) __attribute__((warn_unused_result));
// Creates and registers a child module, at construction only.
px_status px__add_child(px_module *self, const char *name, const char *kind, const px_value *args)
    __attribute__((warn_unused_result));
// Init and forward of lazy layers.
px_status px__lazy_begin(px_module *self, const px_module_lazy *lazy)
    __attribute__((warn_unused_result));
px_status px__lazy_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count)
    __attribute__((warn_unused_result));
// Registers the constructor's argument as a buffer. A missing one is registered as NULL.
px_status px__take_buffer(px_module *self, const char *name) __attribute__((warn_unused_result));
// Uniform in +-1 / sqrt(fan_in of weight). No-op if fan_in is 0.
px_status px__init_fan_uniform(px_tensor *self, const px_tensor *weight)
    __attribute__((warn_unused_result));
// Repeats a single size `count` times.
px_status px__spread(px_module *self, const char *name, int count)
    __attribute__((warn_unused_result));
// Calls an op in place on its first argument and returns it.
px_status px__forward_inplace(px_tensor **out, const char *op, const px_value *args)
    __attribute__((warn_unused_result));

// Converts arguments of C constructors. PX_NO_INT and PX_NO_FLOAT are None if `maybe`, otherwise
// missing. `capacity`: length of `items`. size 0: the list ends before the first 0.
px_value px__given_int(int64_t value, bool maybe);
px_value px__given_float(double value, bool maybe);
px_value px__given_ints(const int64_t *items, int capacity, int size, bool maybe);
