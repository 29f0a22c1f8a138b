// SPDX-License-Identifier: Apache-2.0
// What run functions share: reading arguments, and ops that the library calls itself.
#pragma once
#include "call/call_impl.h"
#include "phlox/ops.h"
#include "run_functions.h"

// Argument i, of the kind that the schema says.
static inline px_tensor *px__tensor_arg(const px_call *c, int i) { return c->args[i].v.tensor; }
static inline int64_t px__int_arg(const px_call *c, int i) { return c->args[i].v.i; }
static inline bool px__has_arg(const px_call *c, int i) { return c->args[i].kind != PX_ARG_NONE; }

// A view of the call's first tensor as the first result.
px_status px__give_view(px_call *c, int ndim, const int64_t *sizes, const int64_t *strides,
                        int64_t offset) __attribute__((warn_unused_result));
// Uninitialised, with the sizes of t and, if t fills its memory, its order of dimensions.
px_status px__empty_as(px_tensor **out, const px_tensor *t, px_dtype dtype, px_device device)
    __attribute__((warn_unused_result));
// Zeros of the sizes given, like t in dtype and device.
px_status px__zeros_like_sized(px_tensor **out, const px_tensor *t, int ndim, const int64_t *sizes)
    __attribute__((warn_unused_result));
// A dimension, its slice's first place and number of places, clamped as Python's slices are.
px_status px__slice_range(const px_tensor *self, px_value start, px_value end, int64_t step,
                          int dim, int64_t *first, int64_t *count)
    __attribute__((warn_unused_result));
// Unrecorded views for run functions: one place, or a range of places, of a dimension.
px_status px__part_select(px_tensor **out, const px_tensor *self, int dim, int64_t index)
    __attribute__((warn_unused_result));
px_status px__part_slice(px_tensor **out, const px_tensor *self, int dim, int64_t first,
                         int64_t count, int64_t step) __attribute__((warn_unused_result));
