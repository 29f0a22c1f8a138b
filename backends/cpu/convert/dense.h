// SPDX-License-Identifier: Apache-2.0
// Operands as plain row-major arrays, for the hand-written kernels.
//
// An operand that is row-major and of the requested dtype is used directly. Others are copied and
// converted into scratch, and written back on close. A kernel is thus written once for float and
// double, and supports strided tensors, fp16 and bf16.
#pragma once
#include "operands.h"

// Defines a kernel of the table: `PX_KERNEL(softmax) { ... args->self ... args->dim ... }`. Its
// parameters are the launch `l` and `args`, the operands and numbers by name
// (build/gen/kernel_args/TABLE.h).
#define PX_KERNEL(name) \
  static inline px_status kernel_##name(const px_launch *l, const px__##name##_kernel *args); \
  px_status px__cpu_##name(const px_launch *l); \
  px_status px__cpu_##name(const px_launch *l) { \
    const px__##name##_kernel args = px__##name##_kernel_of(l); \
    return kernel_##name(l, &args); \
  } \
  static inline px_status kernel_##name(const px_launch *l, const px__##name##_kernel *args)

// A kernel's operands: `px__dense d = {.launch = l};`.
typedef struct px__dense {
  const px_launch *launch;
  struct px__dense_copy *copies;  // operands copied to scratch
  bool failed;                    // out of memory; the error is already reported
} px__dense;

// Return the operand as elements of `dtype`, for reading, writing or both. NULL: the operand is
// absent (or NULL), or this or an earlier allocation failed.
void *px__dense_in(px__dense *d, const px_operand *o, int dtype);
void *px__dense_out(px__dense *d, const px_operand *o, int dtype);
void *px__dense_inout(px__dense *d, const px_operand *o, int dtype);
// Writes copies back unless an operand failed, and frees them.
void px__dense_close(px__dense *d);

// Returns a scratch array; NULL: out of memory, already reported.
void *px__scratch_new(const px_launch *l, size_t bytes);
