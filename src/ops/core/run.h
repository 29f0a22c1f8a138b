// SPDX-License-Identifier: Apache-2.0
// Helpers of the run functions of the op tables.
//
// `PX_RUN(flip) { ... }` defines the function named by an entry's line `run flip`, or by the op
// flip without such a line. Its parameters are the call and `args`, the arguments by name in the C
// types of the schema (build/gen/run_functions/TABLE.h): tensors, numbers and strings. Lists and
// optional arguments without a pointer type are px_values. The function checks the arguments and
// creates results with px__call_result or stores them in call->results. For entries with `result`
// lines it only checks. It is inlined into the function called by the driver, so unused arguments
// are not copied.
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

// `PX_CONJ_NEG(copy) { ... }` defines the function named by an entry's line `lazy copy`: it may
// replace a call with conjugate or negative views (src/call/resolve.c). It sets `done` if it made
// the call.
#define PX_CONJ_NEG(name) \
  static px_status conj_neg_##name(const px__##name##_args *args, void **results, bool *done); \
  px_status px__conj_neg_##name(const px_value *values, void **results, bool *done); \
  px_status px__conj_neg_##name(const px_value *values, void **results, bool *done) { \
    const px__##name##_args args = px__##name##_args_of(values); \
    return conj_neg_##name(&args, results, done); \
  } \
  static px_status conj_neg_##name(const px__##name##_args *args, void **results, bool *done)

// Resizes out= of an op that reduces dim, like PyTorch: the error about a wrong size names the
// sizes with the dimension kept (sort.c).
px_status px__resize_reduced(px_call *call, const px_tensor *self, int64_t dim, bool keepdim)
    __attribute__((warn_unused_result));
// The values of px_sort along dim. Indices are computed only if the gradient needs them.
px_status px__sorted_values(px_tensor **out, const px_tensor *self, int64_t dim)
    __attribute__((warn_unused_result));
// Gives a range the shape of an out= of as many elements, like PyTorch (factory.c).
px_status px__shape_like_out(px_call *call) __attribute__((warn_unused_result));
// True if t is on meta and has no data. Checks of values are then skipped.
static inline bool px__is_meta(const px_tensor *t) { return px__tensor_device(t).type == PX_META; }
// True if the argument was given.
static inline bool px__given(px_value value) { return value.kind != PX_ARG_NONE; }
// Element k of a list argument. A list of one element is broadcast to any length.
static inline int64_t px__int_at(px_value list, int k) { return list.v.ints[list.n == 1 ? 0 : k]; }
static inline const char *px__size_text(char *buffer, size_t bytes, const px_tensor *t) {
  return px__sizes_text(buffer, bytes, t->ndim, t->sizes);
}

// The last four parameters of every factory: the options of the new tensor.
typedef struct px__options {
  px_dtype dtype;    // PX_DTYPE_NONE: not given
  px_device device;  // PX_DEVICE_NONE: not given
  bool pin_memory, requires_grad;
} px__options;
#define PX_OPTIONS(args) \
  ((px__options){(args)->dtype, (args)->device, (args)->pin_memory, (args)->requires_grad})

// An uninitialised tensor (strides NULL: row-major), in page-locked memory if `pin`.
px_status px__empty_strided(px_tensor **out, int ndim, const int64_t *sizes, const int64_t *strides,
                            px_dtype dtype, px_device device, bool pin)
    __attribute__((warn_unused_result));
// An uninitialised tensor of the sizes of t in a memory format (NULL: t's dimension order).
px_status px__empty_in(px_tensor **out, const px_tensor *t, const char *memory_format,
                       px_dtype dtype, px_device device, bool pin)
    __attribute__((warn_unused_result));
static inline px_status px__empty_as(px_tensor **out, const px_tensor *t, px_dtype dtype,
                                     px_device device) {
  return px__empty_in(out, t, NULL, dtype, device, false);
}
// t converted to a dtype and a device (NONE: unchanged). Returns a new reference to t if no
// conversion is needed.
px_status px__tensor_to(px_tensor **out, const px_tensor *t, px_dtype dtype, px_device device)
    __attribute__((warn_unused_result));
// Zeros of the given sizes, with the dtype and device of t.
px_status px__zeros_like_sized(px_tensor **out, const px_tensor *t, int ndim, const int64_t *sizes)
    __attribute__((warn_unused_result));
static inline px_status px__zeros_of(px_tensor **out, const px_tensor *t, px_value sizes) {
  return px__zeros_like_sized(out, t, sizes.n, sizes.v.ints);
}
// Views without autograd for run functions: select and slice.
px_status px__part_select(px_tensor **out, const px_tensor *self, int dim, int64_t index)
    __attribute__((warn_unused_result));
px_status px__part_slice(px_tensor **out, const px_tensor *self, int dim, int64_t first,
                         int64_t count, int64_t step) __attribute__((warn_unused_result));
