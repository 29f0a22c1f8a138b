// SPDX-License-Identifier: Apache-2.0
// Operands as plain row-major arrays: what the hand-written kernels work on.
//
// `px__dense_open` looks at every operand of a launch. One that is row-major and of the wanted type
// is used where it lies; others are copied, and converted, into scratch, and written back on
// closing. So a kernel is written once, for float and double, and is right for strided tensors and
// for half formats.
#pragma once
#include "phlox/backend.h"

// Defines a kernel of the table: `PX_KERNEL(softmax) { ... l->operands ... }`.
#define PX_KERNEL(name) \
  px_status px__cpu_##name(const px_launch *l); \
  px_status px__cpu_##name(const px_launch *l)

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

int64_t px__operand_numel(const px_operand *o);
bool px__operand_row_major(const px_operand *o);
static inline bool px__operand_given(const px_operand *o) { return o->dtype != PX_DTYPE_NONE; }
// double for float64, float for all others.
static inline int px__compute_of(int dtype) {
  return dtype == PX_FLOAT64 ? PX_FLOAT64 : PX_FLOAT32;
}
// Splits the sizes around a dimension (negative counts from the end): outer, size, inner.
static inline void px__around(const px_operand *o, int64_t dim, int64_t *outer, int64_t *size,
                              int64_t *inner) {
  if (dim < 0) dim += o->ndim;
  *outer = *size = *inner = 1;
  for (int i = 0; i < o->ndim; i++) *(i < dim ? outer : i == dim ? size : inner) *= o->sizes[i];
}
// A scratch array, or NULL with the fault reported.
void *px__scratch_new(const px_launch *l, size_t bytes);
// The i-th parameter.
static inline double px__param_float(const px_launch *l, int i) {
  return px_value_float(l->params[i]);
}
static inline int64_t px__param_int(const px_launch *l, int i) {
  return px_value_int(l->params[i]);
}
// The k-th number of a list; a list of one stands for any length.
static inline int64_t px__param_at(const px_launch *l, int i, int k) {
  const px_value *v = &l->params[i];
  if (v->kind != PX_ARG_INTS) return px_value_int(*v);
  return v->v.ints[v->n == 1 ? 0 : k];
}
