// SPDX-License-Identifier: Apache-2.0
// Operands as plain row-major arrays: what the hand-written kernels work on.
//
// `px__dense_open` looks at every operand of a launch. One that is row-major and of the wanted type
// is used where it lies; others are copied, and converted, into scratch, and written back on
// closing. So a kernel is written once, for float and double, and is right for strided tensors and
// for half formats.
#pragma once
#include "kernel_args.h"
#include "operands.h"

// Defines a kernel of the table: `PX_KERNEL(softmax) { ... args->self ... args->dim ... }`. It gets
// the launch `l` and, as `args`, its operands and numbers by name (build/gen/kernel_args.h).
#define PX_KERNEL(name) \
  static inline px_status kernel_##name(const px_launch *l, const px__##name##_kernel *args); \
  px_status px__cpu_##name(const px_launch *l); \
  px_status px__cpu_##name(const px_launch *l) { \
    const px__##name##_kernel args = px__##name##_kernel_of(l); \
    return kernel_##name(l, &args); \
  } \
  static inline px_status kernel_##name(const px_launch *l, const px__##name##_kernel *args)

typedef struct px__dense {
  void *at;   // NULL if the operand is absent
  int64_t n;  // elements
  const px_operand *operand;
  int dtype;
  bool owned, write;
} px__dense;

// One letter an operand: 'r' read, 'w' written, 'b' both, as elements of `compute`; 'R' 'W' 'B' the
// same in the operand's own dtype; '-' not opened. False, with the fault reported, if there was no
// memory; nothing is open then.
bool px__dense_open(px__dense *d, const px_launch *l, const char *spec, int compute);
void px__dense_close(px__dense *d, const char *spec);

// A scratch array, or NULL with the fault reported.
void *px__scratch_new(const px_launch *l, size_t bytes);
