// SPDX-License-Identifier: Apache-2.0
// Triangular systems, Cholesky, LU and LDL factorizations for one element type: T: element;
// NAME(x): suffixed name (lapack_types.h).

#include "cpu/linalg/matrix_rows.h"

static void NAME(cholesky)(px__matrices *t, int64_t i, void *workspace) {
  const px__cholesky_kernel *x = t->args;
  px__int n = px__rows_of(x->L), ld = NAME(step)(x->L), info = 0;
  T *a = NAME(matrix)(x->L, i);
  px__matrix_load(a, ld, x->self, i, n, n);
  if (n) NAME(px__lapack).potrf(x->upper ? "U" : "L", &n, a, &ld, &info, 1);
  *px__number(x->info, i) = (int)info;
  for (int c = 0; c < n; c++)
    for (int r = x->upper ? c + 1 : 0; r < (x->upper ? n : c); r++) a[r + (int64_t)c * ld] = 0;
}

static void NAME(lu)(px__matrices *t, int64_t i, void *workspace) {
  const px__lu_kernel *x = t->args;
  px__int m = px__rows_of(x->LU), n = px__columns_of(x->LU), ld = NAME(step)(x->LU);
  px__int info = 0, *pivots = workspace;
  T *a = NAME(matrix)(x->LU, i);
  px__matrix_load(a, ld, x->A, i, m, n);
  if (m && n) NAME(px__lapack).getrf(&m, &n, a, &ld, pivots, &info);
  px__integers_out(x->pivots, i, pivots);
  *px__number(x->info, i) = (int)info;
}

static void NAME(lu_solve)(px__matrices *t, int64_t i, void *workspace) {
  const px__lu_solve_kernel *x = t->args;
  px__int n = px__rows_of(x->out), columns = px__columns_of(x->out), ldb = NAME(step)(x->out);
  px__int lda, info = 0, *pivots = workspace;
  const T *a = NAME(by_columns)(x->LU, i, (T *)(void *)((char *)workspace + t->work), &lda);
  T *b = NAME(matrix)(x->out, i);
  px__integers_in(pivots, x->pivots, i);
  if (!px__pivots_fit(pivots, (int)n, (int)n)) {
    px_kernel_fault(t->l, PX_FAULT_PIVOT, 0, 0, 0);
    return;
  }
  px__matrix_load(b, ldb, x->B, i, n, columns);
  if (n && columns)
    NAME(px__lapack)
        .getrs(x->adjoint ? "C" : "N", &n, &columns, a, &lda, pivots, b, &ldb, &info, 1);
}

static void NAME(inverse)(px__matrices *t, int64_t i, void *workspace) {
  const px__inverse_kernel *x = t->args;
  px__int n = px__rows_of(x->inverse), ld = NAME(step)(x->inverse), info = 0;
  T *a = NAME(matrix)(x->inverse, i), *work = workspace;
  px__int *pivots = px__integers_from(work + t->work);
  px__matrix_load(a, ld, x->A, i, n, n);
  if (n) NAME(px__lapack).getrf(&n, &n, a, &ld, pivots, &info);
  if (n && !info) NAME(px__lapack).getri(&n, a, &ld, pivots, work, &t->work, &info);
  *px__number(x->info, i) = (int)info;
}

static void NAME(triangular)(px__matrices *t, int64_t i, void *workspace) {
  const px__triangular_kernel *x = t->args;
  px__int m = px__rows_of(x->out), n = px__columns_of(x->out), lda, ldb = NAME(step)(x->out);
  const T one = 1, *a = NAME(by_columns)(x->self, i, workspace, &lda);
  T *b = NAME(matrix)(x->out, i);
  px__matrix_load(b, ldb, x->B, i, m, n);
  if (m && n)
    NAME(px__lapack)
        .trsm(x->left ? "L" : "R", x->upper ? "U" : "L", "N", x->unitriangular ? "U" : "N", &m, &n,
              &one, a, &lda, b, &ldb, 1, 1, 1, 1);
}

// The permutation matrix: column k has a 1 in the row that the pivots move to k.
static void NAME(permutation)(px__matrices *t, int64_t i, void *workspace) {
  const px__permutation_kernel *x = t->args;
  int n = px__rows_of(x->out), count = (int)x->pivots->sizes[x->pivots->ndim - 1];
  px__int *pivots = workspace;
  int *rows = (int *)(void *)(pivots + count);
  T *p = NAME(matrix)(x->out, i);
  px__integers_in(pivots, x->pivots, i);
  bool fits = px__pivots_fit(pivots, count, n) && count <= n;
  if (!fits) px_kernel_fault(t->l, PX_FAULT_PIVOT, 0, 0, 0);
  for (int k = 0; k < n; k++) rows[k] = k;
  for (int k = 0; k < count && fits; k++) {
    int with = px__int_at(pivots, k) - 1, other = rows[with];
    rows[with] = rows[k], rows[k] = other;
  }
  for (int64_t k = 0; k < (int64_t)n * n; k++) p[k] = 0;
  for (int k = 0; k < n; k++) p[(int64_t)rows[k] * n + k] = 1;
}

static void NAME(ldl)(px__matrices *t, int64_t i, void *workspace) {
  const px__ldl_kernel *x = t->args;
  px__int n = px__rows_of(x->LD), ld = NAME(step)(x->LD), info = 0;
  T *a = NAME(matrix)(x->LD, i), *work = workspace;
  px__int *pivots = px__integers_from(work + t->work);
  px__matrix_load(a, ld, x->self, i, n, n);
  if (n && x->hermitian)
    NAME(px__lapack).hetrf("L", &n, a, &ld, pivots, work, &t->work, &info, 1);
  else if (n)
    NAME(px__lapack).sytrf("L", &n, a, &ld, pivots, work, &t->work, &info, 1);
  px__integers_out(x->pivots, i, pivots);
  *px__number(x->info, i) = (int)info;
  for (int c = 1; c < n; c++)
    for (int r = 0; r < c; r++) a[r + (int64_t)c * ld] = 0;
}

// Negative pivots come in equal pairs, one per row of a 2x2 block.
static bool NAME(blocks_fit)(const px__int *pivots, int n) {
  for (int k = 0; k < n; k++) {
    int p = px__int_at(pivots, k);
    if (p > n || p < -n || p == 0) return false;
    if (p < 0 && (++k == n || px__int_at(pivots, k) != p)) return false;
  }
  return true;
}
static void NAME(ldl_solve)(px__matrices *t, int64_t i, void *workspace) {
  const px__ldl_solve_kernel *x = t->args;
  px__int n = px__rows_of(x->out), columns = px__columns_of(x->out), ldb = NAME(step)(x->out);
  px__int lda, info = 0, *pivots = workspace;
  const T *a = NAME(by_columns)(x->LD, i, (T *)(void *)((char *)workspace + t->work), &lda);
  T *b = NAME(matrix)(x->out, i);
  px__integers_in(pivots, x->pivots, i);
  if (!NAME(blocks_fit)(pivots, (int)n)) {
    px_kernel_fault(t->l, PX_FAULT_PIVOT, 0, 0, 0);
    return;
  }
  px__matrix_load(b, ldb, x->B, i, n, columns);
  if (!n || !columns) return;
  if (x->hermitian)
    NAME(px__lapack).hetrs("L", &n, &columns, a, &lda, pivots, b, &ldb, &info, 1);
  else
    NAME(px__lapack).sytrs("L", &n, &columns, a, &lda, pivots, b, &ldb, &info, 1);
}
