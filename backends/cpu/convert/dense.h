// SPDX-License-Identifier: Apache-2.0
// Operands as plain row-major arrays: what the hand-written kernels work on.
//
// An operand that is row-major and of the wanted dtype is used where it lies; others are copied,
// and converted, into scratch, and written back on closing. So a kernel is written once, for float
// and double, and is right for strided tensors and for half formats.
#pragma once
#include "operands.h"

// Defines a kernel of the table: `PX_KERNEL(softmax) { ... args->self ... args->dim ... }`. It gets
// the launch `l` and, as `args`, its operands and numbers by name (build/gen/kernel_args/TABLE.h).
#define PX_KERNEL(name) \
  static inline px_status kernel_##name(const px_launch *l, const px__##name##_kernel *args); \
  px_status px__cpu_##name(const px_launch *l); \
  px_status px__cpu_##name(const px_launch *l) { \
    const px__##name##_kernel args = px__##name##_kernel_of(l); \
    return kernel_##name(l, &args); \
  } \
  static inline px_status kernel_##name(const px_launch *l, const px__##name##_kernel *args)

// The operands that a kernel works on: `px__dense d = {.launch = l};`.
typedef struct px__dense {
  const px_launch *launch;
  struct px__dense_copy *copies;  // what lies in scratch
  bool failed;                    // there was no memory: the fault is reported
} px__dense;

// The operand as elements of `dtype`, to be read, written, or both; NULL if it is absent (or NULL),
// or if there was no memory for this one or one before.
void *px__dense_in(px__dense *d, const px_operand *o, int dtype);
void *px__dense_out(px__dense *d, const px_operand *o, int dtype);
void *px__dense_inout(px__dense *d, const px_operand *o, int dtype);
// Writes copies back, unless an operand failed, and frees them.
void px__dense_close(px__dense *d);

// A scratch array, or NULL with the fault reported.
void *px__scratch_new(const px_launch *l, size_t bytes);
