// SPDX-License-Identifier: Apache-2.0
// User code for elementwise ops: a function in the language of PyTorch's jiterator, a subset of
// C++, applied to the corresponding elements of its argument tensors.
//
//   static const char *code =
//       "template <typename T> T soft(T x, T y, T alpha) { return x > 0 ? x : alpha * y; }";
//   px_tensor *args[] = {x, y, alpha}, *made = NULL;  // alpha from px_tensor_from_scalar
//   PX_TRY(px_jit_call(&made, 1, code, args, 3));
//
// The code is one or more functions. The last one is called, and may call the others. Each is a
// template of one type, the promoted dtype of the tensors; tensors are broadcast. A function
// returns its result by `return`; a void function returns several through its last parameters, `T&
// out`. Supported:
//   types        T, float, double, bool, int, long, int64_t and the like, auto; casts of all kinds
//   statements   declarations, assignments (= += -= ...), if and else, return, blocks
//   operators    ?: || && | ^ & == != < <= > >= << >> + - * / % ! ~ and unary + -
//   functions    of <cmath>, with std::, :: or without: sin, exp, pow, min, max, erf, lgamma, ...
//   numbers      1, 0x10, 1.5, 2e-3f, true, false, M_PI, INFINITY, NAN
// Loops, pointers, arrays and other types fail with PX_UNIMPLEMENTED, naming the construct.
//
// Each operation becomes one op call and works on any device and dtype supported by that op. Both
// branches of an `if` are computed. Integer division by 0 gives an unspecified quotient. Results
// have no gradient, as in PyTorch.
#pragma once
#include "phlox/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { PX_JIT_ARGS = 32 };

// Fails with PX_RUNTIME, and PyTorch's text, unless the code has the form of functions as above.
// Function bodies are checked when called.
PX_CALL px_jit_check(const char *code);
// Calls the code with `count` arguments, at most PX_JIT_ARGS: tensors, and numbers as tensors
// (px_tensor_from_scalar). Stores `result_count` new tensors in `results`, with the common dtype
// and the broadcast sizes, sharing no memory. PX_RUNTIME for invalid code ("soft, line 1: expected
// ';', not 'y'"), a wrong number of arguments or results, or without a tensor argument; other
// errors as for the ops.
PX_CALL px_jit_call(px_tensor **results, int result_count, const char *code, px_tensor *const *args,
                    int count);

#ifdef __cplusplus
}
#endif
