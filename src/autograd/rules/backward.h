// SPDX-License-Identifier: Apache-2.0
// Gradient functions of ops. They are generated from the formulas in ops/*.op (build/gen/ops_N.c),
// or written by hand in this folder and named in an op's entry.
#pragma once
#include "phlox/op.h"
#include "phlox/register.h"

// Unsaved tensors of `args` are outlines.
typedef px_op_gradient px__backward;

// `PX_GRAD(layer_norm) { ... args->grad ... args->d_input ... }` defines the function named by
// `grad * = layer_norm` in an entry. `args` holds the arguments by name, the saved results, the
// arrived gradients (`grad`, or grad_NAME of a named result), and the output gradients `d_NAME`,
// NULL if not required (build/gen/grad_functions.h).
#define PX_GRAD(name) \
  static inline px_status grad_##name(px__backward *b, const px__##name##_grad *args); \
  px_status px__grad_##name(px__backward *b) { \
    const px__##name##_grad args = px__##name##_grad_of(b); \
    return grad_##name(b, &args); \
  } \
  static inline px_status grad_##name(px__backward *b, const px__##name##_grad *args)

// Reads of formulas, which wait for the device: true if an element, or all elements of a boolean
// tensor are true, in all samples of a map; the integer of one element.
px_status px__any_of_samples(bool *out, const px_tensor *truths)
    __attribute__((warn_unused_result));
px_status px__all_of_samples(bool *out, const px_tensor *truths)
    __attribute__((warn_unused_result));
px_status px__item_of(int64_t *out, const px_tensor *t) __attribute__((warn_unused_result));

// A formula helper @spread(grad, ...) is the C function px__grad_spread, with the parameters of its
// `helper` line in the types of args. *out is a new reference.
