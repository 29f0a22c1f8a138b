// SPDX-License-Identifier: Apache-2.0
// What the run functions of the op tables share.
//
// `PX_RUN(flip) { ... }` defines the function that entries name by `run flip`, or that the op flip
// has by its own name. It gets the call and, as `args`, the arguments by name, each in the C type
// of its schema (build/gen/run_functions/TABLE.h): a tensor, a number, a text. What may be absent
// and is no pointer, and lists, are px_values. It checks, makes results with px__call_result, or
// leaves them in call->results. Where the entry has `result` lines, it only checks. It is part of
// the function that the driver calls, so that arguments that it does not read are not copied.
#pragma once
#include "call/call_impl.h"
#include "conditions.h"

#define PX_RUN(name) \
  static px_status run_##name(px_call *call, const px__##name##_args *args); \
  px_status px__run_##name(px_call *call) { \
    const px__##name##_args args = px__##name##_args_of(call->args); \
    return run_##name(call, &args); \
  } \
  __attribute__((always_inline)) static inline px_status run_##name(px_call *call, \
                                                                    const px__##name##_args *args)

// `PX_CONJ_NEG(copy) { ... }` defines what an entry names by `lazy copy`: a call in place of
// conjugate and negative views (src/call/lazy.c). `done` says that it is made.
#define PX_CONJ_NEG(name) \
  static px_status conj_neg_##name(const px__##name##_args *args, void **results, bool *done); \
  px_status px__conj_neg_##name(const px_value *values, void **results, bool *done); \
  px_status px__conj_neg_##name(const px_value *values, void **results, bool *done) { \
    const px__##name##_args args = px__##name##_args_of(values); \
    return conj_neg_##name(&args, results, done); \
  } \
  static px_status conj_neg_##name(const px__##name##_args *args, void **results, bool *done)

// Fails unless a tensor can have n dimensions.
static inline px_status px__check_ndim(int64_t n) {
  PX_CHECK(n <= PX_MAX_DIMS, PX_RUNTIME, "only tensors with up to %d dims are supported",
           PX_MAX_DIMS);
  return PX_OK;
}
// Resizes what out= gives for a dimension that is reduced, as PyTorch does: it speaks of sizes that
// have the dimension (sort.c).
px_status px__resize_reduced(px_call *call, const px_tensor *self, int64_t dim, bool keepdim)
    __attribute__((warn_unused_result));
// NaN without dimensions, or what it is as a whole number of t's dtype: what nothing has for a
// median (sort.c).
px_status px__nan_of(px_tensor **out, const px_tensor *t) __attribute__((warn_unused_result));
// The values that px_sort gives along dim, without finding their places where nobody needs those.
px_status px__sorted(px_tensor **out, const px_tensor *self, int64_t dim)
    __attribute__((warn_unused_result));
// Whether t is on meta, with sizes alone: what is only checked of values is not, then.
static inline bool px__lacks_values(const px_tensor *t) {
  return px__tensor_device(t).type == PX_META;
}
// Whether an argument was given.
static inline bool px__given(px_value value) { return value.kind != PX_ARG_NONE; }
// The k-th number of a list argument, where a list of one stands for any length.
static inline int64_t px__int_at(px_value list, int k) { return list.v.ints[list.n == 1 ? 0 : k]; }
static inline const char *px__size_text(char *room, size_t bytes, const px_tensor *t) {
  return px__sizes_text(room, bytes, t->ndim, t->sizes);
}

// The last four parameters of every factory: what a new tensor is, beside its shape.
typedef struct px__options {
  px_dtype dtype;    // PX_DTYPE_NONE: not given
  px_device device;  // PX_DEVICE_NONE: not given
  bool pin_memory, requires_grad;
} px__options;
#define PX_OPTIONS(args) \
  ((px__options){(args)->dtype, (args)->device, (args)->pin_memory, (args)->requires_grad})

// Uninitialised, with strides that leave no gaps (NULL: row-major), perhaps in page-locked memory.
px_status px__empty_dense(px_tensor **out, int ndim, const int64_t *sizes, const int64_t *strides,
                          px_dtype dtype, px_device device, bool pin)
    __attribute__((warn_unused_result));
// With the sizes of t, in a memory format, by its name (NULL: t's order of dimensions).
px_status px__empty_in(px_tensor **out, const px_tensor *t, const char *memory_format,
                       px_dtype dtype, px_device device, bool pin)
    __attribute__((warn_unused_result));
static inline px_status px__empty_as(px_tensor **out, const px_tensor *t, px_dtype dtype,
                                     px_device device) {
  return px__empty_in(out, t, NULL, dtype, device, false);
}
// As another dtype, on another device (NONE: its own): the tensor itself if it is so already.
px_status px__tensor_to(px_tensor **out, const px_tensor *t, px_dtype dtype, px_device device)
    __attribute__((warn_unused_result));
// Zeros of the sizes given, like t in dtype and device.
px_status px__zeros_like_sized(px_tensor **out, const px_tensor *t, int ndim, const int64_t *sizes)
    __attribute__((warn_unused_result));
// Fails, of an op that was given a complex number, where its tensors cannot hold one.
px_status px__check_complex_scalar(const px_tensor *self) __attribute__((warn_unused_result));
static inline px_status px__zeros_of(px_tensor **out, const px_tensor *t, px_value sizes) {
  return px__zeros_like_sized(out, t, sizes.n, sizes.v.ints);
}
// A dimension, its slice's first place and number of places, clamped as Python's slices are.
px_status px__slice_range(const px_tensor *self, px_value start, px_value end, int64_t step,
                          int dim, int64_t *first, int64_t *count)
    __attribute__((warn_unused_result));
// Unrecorded views for run functions: one place, or a range of places, of a dimension.
px_status px__part_select(px_tensor **out, const px_tensor *self, int dim, int64_t index)
    __attribute__((warn_unused_result));
px_status px__part_slice(px_tensor **out, const px_tensor *self, int dim, int64_t first,
                         int64_t count, int64_t step) __attribute__((warn_unused_result));
