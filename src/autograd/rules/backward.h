// SPDX-License-Identifier: Apache-2.0
// What the gradient function of an op works on. The functions are generated from the formulas in
// ops/*.op (build/gen/ops_N.c), or written by hand in this folder and named in an entry.
#pragma once
#include "phlox/op.h"
#include "phlox/register.h"

// Tensors of `args` that were not saved are outlines.
typedef px_op_gradient px__backward;

// `PX_GRAD(layer_norm) { ... args->grad ... args->d_input ... }` defines the function that entries
// name by `grad * = layer_norm`. As `args` it gets the arguments by name, the saved results, the
// gradients that arrived (`grad`, or grad_NAME of a named result), and where those of the
// parameters go: `d_NAME`, NULL where none is wanted (build/gen/grad_functions.h).
#define PX_GRAD(name) \
  static inline px_status grad_##name(px__backward *b, const px__##name##_grad *args); \
  px_status px__grad_##name(px__backward *b) { \
    const px__##name##_grad args = px__##name##_grad_of(b); \
    return grad_##name(b, &args); \
  } \
  static inline px_status grad_##name(px__backward *b, const px__##name##_grad *args)

// A helper of formulas, which they name as @spread(grad, ...), is px__grad_spread: a C function
// with the parameters of its `helper` line, in the types that args have; *out is a new reference.
