// SPDX-License-Identifier: Apache-2.0
// QR, eigenvalues, singular values and least squares for one element type: T the element, NAME(x)
// the names. factor.c includes it twice.

#include "cpu/matrix_rows.h"

static void NAME(geqrf)(px__matrices *t, int64_t i, void *room) {
  const px__geqrf_kernel *x = t->args;
  int m = px__rows_of(x->a), n = px__columns_of(x->a), ld = NAME(step)(x->a), info;
  T *a = NAME(matrix)(x->a, i);
  NAME(load)(a, ld, x->self, i, m, n);
  if (m && n) NAME(px__lapack).geqrf(&m, &n, a, &ld, NAME(line)(x->tau, i), room, &t->work, &info);
}

// The numbers of a line, which may lie apart, one by one.
static int NAME(load_line)(T *to, const px_operand *o, int64_t i) {
  const T *from = NAME(line)(o, i);
  int n = px__columns_of(o);
  for (int k = 0; k < n; k++) to[k] = from[k * o->strides[o->ndim - 1]];
  return n;
}
static void NAME(householder)(px__matrices *t, int64_t i, void *room) {
  const px__householder_kernel *x = t->args;
  int m = px__rows_of(x->out), n = px__columns_of(x->out), ld = NAME(step)(x->out), info;
  int given = px__columns_of(x->input);
  T *q = NAME(matrix)(x->out, i), *work = room, *tau = work + t->work;
  int k = NAME(load_line)(tau, x->tau, i);
  NAME(load)(q, ld, x->input, i, m, given < n ? given : n);
  if (m && n) NAME(px__lapack).orgqr(&m, &n, &k, q, &ld, tau, work, &t->work, &info);
}
static void NAME(ormqr)(px__matrices *t, int64_t i, void *room) {
  const px__ormqr_kernel *x = t->args;
  int m = px__rows_of(x->out), n = px__columns_of(x->out), ld = NAME(step)(x->out), info;
  int rows = px__rows_of(x->self), lda = px__at_least_1(rows);
  T *c = NAME(matrix)(x->out, i), *work = room, *a = work + t->work;
  T *tau = a + (int64_t)rows * px__columns_of(x->self);
  int k = NAME(load_line)(tau, x->input2, i);
  NAME(load)(a, lda, x->self, i, rows, px__columns_of(x->self));
  NAME(load)(c, ld, x->input3, i, m, n);
  if (m && n && k)
    NAME(px__lapack)
        .ormqr(x->left ? "L" : "R", x->transpose ? "T" : "N", &m, &n, &k, a, &lda, tau, c, &ld,
               work, &t->work, &info, 1, 1);
}

static void NAME(eigh)(px__matrices *t, int64_t i, void *room) {
  const px__eigh_kernel *x = t->args;
  int n = px__rows_of(x->self), places = 3 + 5 * n, *info = NAME(numbers)(x->info, i, 0);
  T *work = room, *a = work + t->work;
  int *more = (int *)(void *)(a + (x->vectors ? 0 : (int64_t)n * n));
  if (x->vectors) a = NAME(matrix)(x->eigenvectors, i);
  int ld = px__at_least_1(n);
  NAME(load)(a, ld, x->self, i, n, n);
  *info = NAME(finite)(a, (int64_t)n * n) ? 0 : NAME(NOT_FINITE);
  if (n && !*info)
    NAME(px__lapack)
        .syevd(x->vectors ? "V" : "N", x->upper ? "U" : "L", &n, a, &ld,
               NAME(line)(x->eigenvalues, i), work, &t->work, more, &places, info, 1, 1);
}

// ---- singular values

static const char *NAME(svd_way)(const px__svd_kernel *x) {
  return !x->vectors ? "N" : x->full_matrices ? "A" : "S";
}
// What LAPACK wants to work in it says as an element, which may have been rounded down.
static int NAME(rounded_up)(T elements) { return (int)((double)elements * (1 + 0x1p-22)) + 1; }
// How many elements LAPACK wants to work in.
static int NAME(svd_work)(const px__svd_kernel *x) {
  int m = px__rows_of(x->A), n = px__columns_of(x->A), ask = -1, info = 0, places;
  int ld = px__at_least_1(m), ldvt = px__at_least_1(n);
  T room = 1, none;
  NAME(px__lapack)
      .gesdd(NAME(svd_way)(x), &m, &n, &none, &ld, &none, &none, &ld, &none, &ldvt, &room, &ask,
             &places, &info, 1);
  return NAME(rounded_up)(room);
}
static void NAME(identity)(T *a, int n) {
  for (int64_t k = 0; k < (int64_t)n * n; k++) a[k] = k % (n + 1) == 0;
}
static void NAME(svd)(px__matrices *t, int64_t i, void *room) {
  const px__svd_kernel *x = t->args;
  int m = px__rows_of(x->A), n = px__columns_of(x->A), *info = NAME(numbers)(x->info, i, 0);
  int ld = px__at_least_1(m), ldu = 1, ldvt = 1;
  T *work = room, *a = work + t->work, *u = NULL, *vt = NULL;
  int *places = (int *)(void *)(a + (int64_t)m * n);
  if (x->vectors) {
    u = NAME(matrix)(x->U, i), ldu = NAME(step)(x->U);
    vt = NAME(matrix)(x->Vh, i), ldvt = NAME(step)(x->Vh);
  }
  *info = 0;
  if (m == 0 || n == 0) {
    if (x->vectors) NAME(identity)(u, px__columns_of(x->U) ? m : 0);
    if (x->vectors) NAME(identity)(vt, px__rows_of(x->Vh) ? n : 0);
    return;
  }
  NAME(load)(a, ld, x->A, i, m, n);
  *info = NAME(finite)(a, (int64_t)m * n) ? 0 : NAME(NOT_FINITE);
  if (*info) return;
  NAME(px__lapack)
      .gesdd(NAME(svd_way)(x), &m, &n, a, &ld, NAME(line)(x->S, i), u, &ldu, vt, &ldvt, work,
             &t->work, places, info, 1);
}

// ---- least squares

// One call of the driver; with *most -1 it only writes to work[0] how much room it wants.
static void NAME(drive)(const px__lstsq_kernel *x, T *a, T *b, T *s, T *work, const int *most,
                        int *places, int *rank, int *info) {
  int m = px__rows_of(x->A), n = px__columns_of(x->A), columns = px__columns_of(x->solution);
  int lda = px__at_least_1(m), ldb = NAME(step)(x->solution);
  T limit = (T)x->rcond;
  switch (x->driver[4]) {  // gels, gelsy, gelsd, gelss
    case 0:
      NAME(px__lapack).gels("N", &m, &n, &columns, a, &lda, b, &ldb, work, most, info, 1);
      break;
    case 'y':
      NAME(px__lapack)
          .gelsy(&m, &n, &columns, a, &lda, b, &ldb, places, &limit, rank, work, most, info);
      break;
    case 'd':
      NAME(px__lapack)
          .gelsd(&m, &n, &columns, a, &lda, b, &ldb, s, &limit, rank, work, most, places, info);
      break;
    default:
      NAME(px__lapack).gelss(&m, &n, &columns, a, &lda, b, &ldb, s, &limit, rank, work, most, info);
  }
}
// How many elements and, for gelsd and gelsy, integers it works in.
static int NAME(lstsq_work)(const px__lstsq_kernel *x, int *integers) {
  int m = px__rows_of(x->A), n = px__columns_of(x->A), ask = -1, rank, info = 0;
  int few = m < n ? m : n, places[64] = {0};
  T room[1] = {1}, none[1];
  *integers = x->driver[4] == 'y' ? n : 0;
  if (m && n) NAME(drive)(x, none, none, none, room, &ask, places, &rank, &info);
  if (x->driver[4] == 'd') *integers = places[0] + 11 * few + 3 * few * 32;
  return NAME(rounded_up)(room[0]);
}
static void NAME(lstsq)(px__matrices *t, int64_t i, void *room) {
  const px__lstsq_kernel *x = t->args;
  int m = px__rows_of(x->A), n = px__columns_of(x->A), columns = px__columns_of(x->solution);
  int few = m < n ? m : n, rank = 0, *info = NAME(numbers)(x->info, i, 0);
  int ldb = NAME(step)(x->solution);
  T *work = room, *a = work + t->work, *s = a + (int64_t)m * n, *b = NAME(matrix)(x->solution, i);
  int *places = (int *)(void *)(s + few);
  for (int64_t k = 0; k < (int64_t)px__rows_of(x->solution) * columns; k++) b[k] = 0;
  for (int k = 0; k < n && x->driver[4] == 'y'; k++) places[k] = 0;
  NAME(load)(a, px__at_least_1(m), x->A, i, m, n);
  NAME(load)(b, ldb, x->B, i, m, columns);
  bool iterates = x->driver[4] == 'd' || x->driver[4] == 's';
  *info = iterates && !NAME(finite)(a, (int64_t)m * n) ? NAME(NOT_FINITE) : 0;
  if (m && n && !*info) NAME(drive)(x, a, b, s, work, &t->work, places, &rank, info);
  ((int64_t *)x->rank->data)[px__matrix_at(x->rank, i, 0)] = rank;
  T *values = NAME(line)(x->singular_values, i);
  for (int k = 0; k < few && x->driver[4] && x->driver[4] != 'y'; k++) values[k] = s[k];
}
