// SPDX-License-Identifier: Apache-2.0
// Triangular systems, Cholesky, LU and LDL decompositions for one element type: T the element,
// NAME(x) the names (lapack_types.h).

#include "cpu/matrix_rows.h"

static void NAME(cholesky)(px__matrices *t, int64_t i, void *room) {
  const px__cholesky_kernel *x = t->args;
  int n = px__rows_of(x->L), ld = NAME(step)(x->L), *info = NAME(numbers)(x->info, i, 0);
  T *a = NAME(matrix)(x->L, i);
  NAME(load)(a, ld, x->self, i, n, n);
  *info = 0;
  if (n) NAME(px__lapack).potrf(x->upper ? "U" : "L", &n, a, &ld, info, 1);
  for (int c = 0; c < n; c++)
    for (int r = x->upper ? c + 1 : 0; r < (x->upper ? n : c); r++) a[r + (int64_t)c * ld] = 0;
}

static void NAME(lu)(px__matrices *t, int64_t i, void *room) {
  const px__lu_kernel *x = t->args;
  int m = px__rows_of(x->LU), n = px__columns_of(x->LU), ld = NAME(step)(x->LU);
  int *info = NAME(numbers)(x->info, i, 0);
  T *a = NAME(matrix)(x->LU, i);
  NAME(load)(a, ld, x->A, i, m, n);
  *info = 0;
  if (m && n) NAME(px__lapack).getrf(&m, &n, a, &ld, NAME(numbers)(x->pivots, i, 1), info);
}

static void NAME(lu_solve)(px__matrices *t, int64_t i, void *room) {
  const px__lu_solve_kernel *x = t->args;
  int n = px__rows_of(x->out), columns = px__columns_of(x->out), ldb = NAME(step)(x->out);
  int lda, info, *pivots = room, *from = NAME(numbers)(x->pivots, i, 1);
  const T *a = NAME(by_columns)(x->LU, i, (T *)(void *)((char *)room + t->work), &lda);
  T *b = NAME(matrix)(x->out, i);
  for (int k = 0; k < n; k++) pivots[k] = from[k * x->pivots->strides[x->pivots->ndim - 1]];
  if (!px__pivots_fit(pivots, n, n)) {
    px_kernel_fault(t->l, PX_FAULT_PIVOT, 0, 0, 0);
    return;
  }
  NAME(load)(b, ldb, x->B, i, n, columns);
  if (n && columns)
    NAME(px__lapack)
        .getrs(x->adjoint ? "C" : "N", &n, &columns, a, &lda, pivots, b, &ldb, &info, 1);
}

static void NAME(inverse)(px__matrices *t, int64_t i, void *room) {
  const px__inverse_kernel *x = t->args;
  int n = px__rows_of(x->inverse), ld = NAME(step)(x->inverse);
  int *info = NAME(numbers)(x->info, i, 0);
  T *a = NAME(matrix)(x->inverse, i), *work = room;
  int *pivots = (int *)(void *)(work + t->work);
  NAME(load)(a, ld, x->A, i, n, n);
  *info = 0;
  if (n) NAME(px__lapack).getrf(&n, &n, a, &ld, pivots, info);
  if (n && !*info) NAME(px__lapack).getri(&n, a, &ld, pivots, work, &t->work, info);
}

static void NAME(triangular)(px__matrices *t, int64_t i, void *room) {
  const px__triangular_kernel *x = t->args;
  int m = px__rows_of(x->out), n = px__columns_of(x->out), lda, ldb = NAME(step)(x->out);
  const T one = 1, *a = NAME(by_columns)(x->self, i, room, &lda);
  T *b = NAME(matrix)(x->out, i);
  NAME(load)(b, ldb, x->B, i, m, n);
  if (m && n)
    NAME(px__lapack)
        .trsm(x->left ? "L" : "R", x->upper ? "U" : "L", "N", x->unitriangular ? "U" : "N", &m, &n,
              &one, a, &lda, b, &ldb, 1, 1, 1, 1);
}

// The matrix whose column k has a 1 in the row that exchanges have brought to k.
static void NAME(permutation)(px__matrices *t, int64_t i, void *room) {
  const px__permutation_kernel *x = t->args;
  int n = px__rows_of(x->out), count = (int)x->pivots->sizes[x->pivots->ndim - 1];
  int *pivots = room, *rows = pivots + count, *from = NAME(numbers)(x->pivots, i, 1);
  T *p = NAME(matrix)(x->out, i);
  for (int k = 0; k < count; k++) pivots[k] = from[k * x->pivots->strides[x->pivots->ndim - 1]];
  bool fits = px__pivots_fit(pivots, count, n) && count <= n;
  if (!fits) px_kernel_fault(t->l, PX_FAULT_PIVOT, 0, 0, 0);
  for (int k = 0; k < n; k++) rows[k] = k;
  for (int k = 0; k < count && fits; k++) {
    int other = rows[pivots[k] - 1];
    rows[pivots[k] - 1] = rows[k], rows[k] = other;
  }
  for (int64_t k = 0; k < (int64_t)n * n; k++) p[k] = 0;
  for (int k = 0; k < n; k++) p[(int64_t)rows[k] * n + k] = 1;
}

static void NAME(ldl)(px__matrices *t, int64_t i, void *room) {
  const px__ldl_kernel *x = t->args;
  int n = px__rows_of(x->LD), ld = NAME(step)(x->LD), *info = NAME(numbers)(x->info, i, 0);
  T *a = NAME(matrix)(x->LD, i);
  NAME(load)(a, ld, x->self, i, n, n);
  *info = 0;
  int *pivots = NAME(numbers)(x->pivots, i, 1);
  if (n && x->hermitian)
    NAME(px__lapack).hetrf("L", &n, a, &ld, pivots, room, &t->work, info, 1);
  else if (n)
    NAME(px__lapack).sytrf("L", &n, a, &ld, pivots, room, &t->work, info, 1);
  for (int c = 1; c < n; c++)
    for (int r = 0; r < c; r++) a[r + (int64_t)c * ld] = 0;
}

// Pivots below 0 come in pairs, one for each row of a block of two.
static bool NAME(blocks_fit)(const int *pivots, int n) {
  for (int k = 0; k < n; k++) {
    int p = pivots[k];
    if (p > n || p < -n || p == 0) return false;
    if (p < 0 && (++k == n || pivots[k] != p)) return false;
  }
  return true;
}
static void NAME(ldl_solve)(px__matrices *t, int64_t i, void *room) {
  const px__ldl_solve_kernel *x = t->args;
  int n = px__rows_of(x->out), columns = px__columns_of(x->out), ldb = NAME(step)(x->out);
  int lda, info, *pivots = room, *from = NAME(numbers)(x->pivots, i, 1);
  const T *a = NAME(by_columns)(x->LD, i, (T *)(void *)((char *)room + t->work), &lda);
  T *b = NAME(matrix)(x->out, i);
  for (int k = 0; k < n; k++) pivots[k] = from[k * x->pivots->strides[x->pivots->ndim - 1]];
  if (!NAME(blocks_fit)(pivots, n)) {
    px_kernel_fault(t->l, PX_FAULT_PIVOT, 0, 0, 0);
    return;
  }
  NAME(load)(b, ldb, x->B, i, n, columns);
  if (!n || !columns) return;
  if (x->hermitian)
    NAME(px__lapack).hetrs("L", &n, &columns, a, &lda, pivots, b, &ldb, &info, 1);
  else
    NAME(px__lapack).sytrs("L", &n, &columns, a, &lda, pivots, b, &ldb, &info, 1);
}
