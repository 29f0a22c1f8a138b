// SPDX-License-Identifier: Apache-2.0
// Batches of matrices: what the kernels share that hand each matrix to LAPACK.
#pragma once
#include "cpu/convert/dense.h"
#include "cpu/linalg/lapack.h"
#include "cpu/threads/threads.h"

enum { PX__LAPACK_BLOCK = 64 };  // columns that it works on at a time, for room to work in

// The work of a launch: `one` for each matrix i, in a room of its own for what LAPACK works in.
typedef struct px__matrices {
  const px_launch *l;
  const void *args;  // the kernel's
  void (*one)(struct px__matrices *t, int64_t i, void *room);
  size_t room;    // bytes, but those of an integer, by which others may have to be moved
  px__int work;   // elements that LAPACK asks for to work in
  px__int reals;  // and real numbers, where elements are complex
  bool failed;    // a piece got no memory
} px__matrices;

// Runs it over `count` matrices of about `cost` multiplications each, on several threads if there
// is more than one. The program can end the call between two.
px_status px__matrices_run(px__matrices *t, int64_t count, double cost);

// Which of the element types of lapack_types.h, in their order, an operand has.
static inline int px__lapack_type(const px_operand *o) {
  bool wide = o->dtype == PX_FLOAT64 || o->dtype == PX_COMPLEX128;
  bool complex = o->dtype == PX_COMPLEX64 || o->dtype == PX_COMPLEX128;
  return wide + 2 * complex;
}
static inline bool px__is_complex_matrix(const px_operand *o) { return px__lapack_type(o) >= 2; }
static inline size_t px__matrix_bytes(const px_operand *o, double elements) {
  return (size_t)elements << (int[]){2, 3, 3, 4}[px__lapack_type(o)];
}
// The function `name` of an operand's element type.
#define PX__LAPACK_ONE(name, o) \
  (px__lapack_type(o) == 0   ? name##_f32 \
   : px__lapack_type(o) == 1 ? name##_f64 \
   : px__lapack_type(o) == 2 ? name##_c64 \
                             : name##_c128)

// How many matrices (or, with last 1, vectors; 0: numbers) an operand has; of those without
// elements none, whatever the batch: there may be more of them than can be counted.
static inline int64_t px__matrices_count(const px_operand *o, int last) {
  int64_t n = 1;
  for (int d = 0; d < o->ndim; d++)
    if (!o->sizes[d]) return 0;
  for (int d = 0; d < o->ndim - last; d++) n *= o->sizes[d];
  return n;
}
// Where the i-th begins, in elements.
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
// Copies rows m and columns n of matrix i, which lies anyhow, to `to`, whose columns are ld apart.
void px__matrix_load(void *to, int64_t ld, const px_operand *o, int64_t i, int m, int n);
// Where integers can begin, at `at` or behind it.
static inline px__int *px__integers_from(void *at) {
  return (px__int *)(((uintptr_t)at + sizeof(px__int) - 1) & -sizeof(px__int));
}
static inline int px__at_least_1(int n) { return n > 1 ? n : 1; }
// Number i of a result of integers; those of line i, as LAPACK has them, and what becomes line i.
static inline int *px__number(const px_operand *o, int64_t i) {
  return (int *)o->data + px__matrix_at(o, i, 0);
}
void px__integers_in(px__int *to, const px_operand *o, int64_t i);
void px__integers_out(const px_operand *o, int64_t i, const px__int *from);
// Whether the numbers of rows to exchange are such, of a matrix of n rows.
static inline bool px__pivots_fit(const px__int *pivots, int count, int n) {
  for (int k = 0; k < count; k++) {
    int pivot = px__int_at(pivots, k);
    if (pivot < 1 || pivot > n) return false;
  }
  return true;
}
