// SPDX-License-Identifier: Apache-2.0
// Code for one element: a function in the language that PyTorch's jiterator takes, a part of C++,
// is called with tensors, and computes each element of its results from those at its place.
//
//   static const char *code =
//       "template <typename T> T soft(T x, T y, T alpha) { return x > 0 ? x : alpha * y; }";
//   px_tensor *args[] = {x, y, alpha}, *made = NULL;  // alpha from px_tensor_from_scalar
//   PX_TRY(px_jit_call(&made, 1, code, args, 3));
//
// The code is one or more functions; the last one is called, and may call the others. Each is a
// template of one type. That is the dtype to which the tensors promote; they are broadcast.
// It gives its result by `return`, or is void and gives several through its last parameters, `T&
// out`. There are:
//   types        T, float, double, bool, int, long, int64_t and the like, auto; casts of all kinds
//   statements   declarations, assignments (= += -= ...), if and else, return, blocks
//   operators    ?: || && | ^ & == != < <= > >= << >> + - * / % ! ~ and unary + -
//   functions    of <cmath>, with std::, :: or without: sin, exp, pow, min, max, erf, lgamma, ...
//   numbers      1, 0x10, 1.5, 2e-3f, true, false, M_PI, INFINITY, NAN
// Loops, pointers, arrays and other types fail with PX_UNIMPLEMENTED and their name.
//
// Each operation is an op of its own, on any device and of any dtype that the op has: both branches
// of an `if` are computed, and where a whole number is divided by 0, the quotient is not said.
// Results have no gradient, as in PyTorch.
#pragma once
#include "phlox/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { PX_JIT_ARGS = 32 };

// Fails with PX_RUNTIME, and PyTorch's text, unless the code looks like functions as above. What
// they say is looked at when they are called.
PX_CALL px_jit_check(const char *code);
// Calls the code with `count` arguments, at most PX_JIT_ARGS: tensors, and numbers in their place
// (px_tensor_from_scalar). `results` gets `result_count` new tensors of the common dtype and the
// broadcast sizes, which share no memory. PX_RUNTIME if the code is wrong ("soft, line 1: expected
// ';', not 'y'"), if it takes or gives other numbers of values, or if no argument is a tensor;
// other errors as of the ops.
PX_CALL px_jit_call(px_tensor **results, int result_count, const char *code, px_tensor *const *args,
                    int count);

#ifdef __cplusplus
}
#endif
