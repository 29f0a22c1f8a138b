// SPDX-License-Identifier: Apache-2.0
// Matrices of one element type (T, NAME as in solve_rows.h): addresses and column-major copies.

static inline T *NAME(matrix)(const px_operand *o, int64_t i) {
  return (T *)o->data + px__matrix_at(o, i, 2);
}
static inline T *NAME(line)(const px_operand *o, int64_t i) {
  return (T *)o->data + px__matrix_at(o, i, 1);
}
// Matrix i in column-major order: in place if it has that layout, else copied into `workspace`.
static inline const T *NAME(by_columns)(const px_operand *o, int64_t i, T *workspace, px__int *ld) {
  int m = px__rows_of(o), n = px__columns_of(o);
  int64_t down = o->strides[o->ndim - 2], across = o->strides[o->ndim - 1];
  bool fits = (down == 1 || m <= 1) && across >= m && across <= INT32_MAX;
  *ld = fits ? px__at_least_1((int)across) : px__at_least_1(m);
  if (fits) return NAME(matrix)(o, i);
  px__matrix_load(workspace, *ld, o, i, m, n);
  return workspace;
}
// Leading dimension of a result; the driver allocates it column-major.
static inline int NAME(step)(const px_operand *o) {
  return px__at_least_1((int)o->strides[o->ndim - 1]);
}
// True if no element is inf or NaN. Iterative algorithms may not terminate otherwise.
static inline bool NAME(finite)(const T *a, int64_t n) {
  T sum = 0;
  for (int64_t k = 0; k < n; k++) sum += a[k] - a[k];
  return sum == 0;
}
enum { NAME(NOT_FINITE) = -4 };  // info: LAPACK's code for an invalid fourth argument
