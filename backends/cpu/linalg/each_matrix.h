// SPDX-License-Identifier: Apache-2.0
// Batches of matrices, shared by the kernels that call LAPACK per matrix.
#pragma once
#include "cpu/convert/dense.h"
#include "cpu/linalg/lapack.h"
#include "cpu/threads/threads.h"

enum { PX__LAPACK_BLOCK = 64 };  // LAPACK's block size in columns, for workspace sizes

// A launch: calls `one` for each matrix i, with a workspace per thread.
typedef struct px__matrices {
  const px_launch *l;
  const void *args;  // the kernel's
  void (*one)(struct px__matrices *t, int64_t i, void *workspace);
  size_t workspace;  // workspace in bytes, without alignment padding for integers
  px__int work;      // elements of LAPACK's workspace
  px__int reals;     // real elements of the workspace, for complex types
  bool failed;       // a workspace could not be allocated
} px__matrices;

// Runs `count` matrices of about `cost` multiplications each, on several threads if count > 1.
// Polls for interrupts between matrices.
px_status px__matrices_run(px__matrices *t, int64_t count, double cost);

// Index of the operand's element type in the order of lapack_types.h.
static inline int px__lapack_type(const px_operand *o) {
  bool wide = o->dtype == PX_FLOAT64 || o->dtype == PX_COMPLEX128;
  bool complex = o->dtype == PX_COMPLEX64 || o->dtype == PX_COMPLEX128;
  return wide + 2 * complex;
}
static inline bool px__is_complex_matrix(const px_operand *o) { return px__lapack_type(o) >= 2; }
static inline size_t px__matrix_bytes(const px_operand *o, double elements) {
  return (size_t)elements << (int[]){2, 3, 3, 4}[px__lapack_type(o)];
}
// The function `name` for an operand's element type.
#define PX__LAPACK_ONE(name, o) \
  (px__lapack_type(o) == 0   ? name##_f32 \
   : px__lapack_type(o) == 1 ? name##_f64 \
   : px__lapack_type(o) == 2 ? name##_c64 \
                             : name##_c128)

// Number of matrices of an operand (last = 2), vectors (1) or scalars (0). 0 if the operand is
// empty: its batch may exceed the integer range.
static inline int64_t px__matrices_count(const px_operand *o, int last) {
  int64_t n = 1;
  for (int d = 0; d < o->ndim; d++)
    if (!o->sizes[d]) return 0;
  for (int d = 0; d < o->ndim - last; d++) n *= o->sizes[d];
  return n;
}
// Offset of the i-th, in elements.
static inline int64_t px__matrix_at(const px_operand *o, int64_t i, int last) {
  int64_t at = 0;
  for (int d = o->ndim - last - 1; d >= 0; d--) {
    at += i % o->sizes[d] * o->strides[d];
    i /= o->sizes[d];
  }
  return at;
}
static inline int px__rows_of(const px_operand *o) { return (int)o->sizes[o->ndim - 2]; }
static inline int px__columns_of(const px_operand *o) { return (int)o->sizes[o->ndim - 1]; }
// Copies m x n elements of matrix i, with any strides, to column-major `to` with leading dimension
// ld.
void px__matrix_load(void *to, int64_t ld, const px_operand *o, int64_t i, int m, int n);
// The first address at or after `at` that is aligned for integers.
static inline px__int *px__integers_from(void *at) {
  return (px__int *)(((uintptr_t)at + sizeof(px__int) - 1) & -sizeof(px__int));
}
static inline int px__at_least_1(int n) { return n > 1 ? n : 1; }
// Integer i of a result; loads and stores line i of integers in LAPACK's width.
static inline int *px__number(const px_operand *o, int64_t i) {
  return (int *)o->data + px__matrix_at(o, i, 0);
}
void px__integers_in(px__int *to, const px_operand *o, int64_t i);
void px__integers_out(const px_operand *o, int64_t i, const px__int *from);
// True if all pivots are in [1, n].
static inline bool px__pivots_fit(const px__int *pivots, int count, int n) {
  for (int k = 0; k < count; k++) {
    int pivot = px__int_at(pivots, k);
    if (pivot < 1 || pivot > n) return false;
  }
  return true;
}
