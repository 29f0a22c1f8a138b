// SPDX-License-Identifier: Apache-2.0
// Runtime of generated formulas: op calls, and arithmetic on numbers in px_values.
//
// Uses public headers only, so that bodies of composite ops (build/gen/ops_N.c) can include it as
// well as backward functions.
#pragma once
#include <math.h>

#include "phlox/op.h"

// The tensors of a formula's function, released at its end.
typedef struct px__f_owned {
  px_tensor **t;
  int n;
} px__f_owned;
void px__f_end(const px__f_owned *owned);
#define PX_F_TENSORS(count) \
  px_tensor *t[count] = {NULL}; \
  __attribute__((cleanup(px__f_end))) const px__f_owned owned = {t, count}

// Returns a failure from a formula. The called op has told of it.
#define PX_F_TRY(call) \
  do { \
    px_status status_ = (call); \
    if (__builtin_expect(status_ != PX_OK, 0)) return status_; \
  } while (0)
// Numbers of known types. (A function that returns one takes more code.)
#define PX_F_INT(number) ((px_value){PX_ARG_SCALAR, 'i', 0, {.i = (number)}})
#define PX_F_FLOAT(number) ((px_value){PX_ARG_SCALAR, 'f', 0, {.f = (number)}})

// Calls an op and returns its first result.
px_status px__f_call(px_tensor **out, const px_op *op, const px_value *args)
    __attribute__((warn_unused_result));

// ... all its results.
px_status px__f_call_all(px_tensor **out, int count, const px_op *op, const px_value *args)
    __attribute__((warn_unused_result));

// Calls an op in place on its first argument, and returns it.
px_status px__f_call_in_place(px_tensor **out, const px_op *op, const px_value *args)
    __attribute__((warn_unused_result));

// The same for a pointwise op in a gradient, which computes in float64 if all its tensors are
// numbers: their dtype is not that of the gradient.
px_status px__f_call_wide(px_tensor **out, const px_op *op, const px_value *args)
    __attribute__((warn_unused_result));

// Returns a new reference to a tensor, NULL for none.
static inline px_tensor *px__f_tensor(px_value v) {
  return v.kind == PX_ARG_TENSOR ? (px_tensor *)px_retain(v.v.tensor) : NULL;
}
void px__f_release(px_tensor **t);
static inline bool px__f_is_number(px_value v) {
  return v.kind == PX_ARG_SCALAR || v.kind == PX_ARG_INT || v.kind == PX_ARG_FLOAT ||
         v.kind == PX_ARG_BOOL;
}
// Converts a number to a scalar parameter; other values (none, a tensor) are unchanged.
static inline px_value px__f_scalar(px_value v) {
  return px__f_is_number(v) ? PX_S(px_value_scalar(v)) : v;
}
static inline px_value px__f_int(px_value v) {
  return px__f_is_number(v) ? PX_I(px_value_int(v)) : v;
}
static inline px_value px__f_float(px_value v) {
  return px__f_is_number(v) ? PX_F(px_value_float(v)) : v;
}
static inline px_value px__f_bool(px_value v) {
  return px__f_is_number(v) ? PX_B(px_value_float(v) != 0) : v;
}
// Python's arithmetic: integers stay integers, except for `/`.
px_value px__f_arith(char op, px_value a, px_value b);

// tensor * number, with the op `mul`.
px_status px__f_scale(px_tensor **out, const px_op *mul, px_value t, px_value number)
    __attribute__((warn_unused_result));

// Sizes of an argument. A number has no dimensions.
static inline px_value px__f_sizes(px_value v) {
  return v.kind == PX_ARG_TENSOR ? PX_IS(px_tensor_sizes(v.v.tensor), px_tensor_ndim(v.v.tensor))
                                 : PX_IS(NULL, 0);
}
// A product of sizes beyond int64 is its largest number, which no tensor has.
static inline px_value px__f_numel(px_value v) {
  int64_t n = v.kind == PX_ARG_TENSOR ? px_tensor_numel(v.v.tensor) : 1;
  for (int d = 0; d < (v.kind == PX_ARG_INTS ? v.n : 0); d++)
    if (__builtin_mul_overflow(n, v.v.ints[d], &n)) return PX_I(INT64_MAX);
  return PX_I(n);
}
static inline px_value px__f_ndim(px_value v) {
  return PX_I(v.kind == PX_ARG_TENSOR ? px_tensor_ndim(v.v.tensor) : 0);
}
static inline px_value px__f_dtype(px_value v) {
  return v.kind == PX_ARG_TENSOR ? PX_DT(px_tensor_dtype(v.v.tensor)) : PX_NONE();
}
static inline px_value px__f_device(px_value v) {
  return v.kind == PX_ARG_TENSOR ? PX_DV(px_tensor_device(v.v.tensor)) : PX_NONE();
}
// True if the argument is not a tensor: a number, or none.
static inline px_value px__f_number(px_value v) { return PX_I(v.kind != PX_ARG_TENSOR); }
// Limits of a dtype, infinite if it has infinities; 0 for complex numbers.
px_value px__f_least(px_value v);
px_value px__f_greatest(px_value v);
// Name of the tensor's suggested memory format.
static inline px_value px__f_format(px_value v) {
  return PX_TX(px_memory_format_name(px_tensor_suggest_format(v.v.tensor)));
}
// True if a matrix is the transpose of a row-major one. Its gradient should be, too.
static inline px_value px__f_is_transposed(px_value v) {
  const int64_t *sizes = px_tensor_sizes(v.v.tensor), *strides = px_tensor_strides(v.v.tensor);
  return PX_I(strides[0] == 1 && sizes[1] > 1 && strides[1] == sizes[0]);
}
