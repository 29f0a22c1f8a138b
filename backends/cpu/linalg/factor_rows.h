// SPDX-License-Identifier: Apache-2.0
// QR, eigenvalues, singular values and least squares for one element type: T the element, R that of
// its parts, C the complex one, NAME(x) the names (lapack_types.h).

#include "cpu/linalg/matrix_rows.h"

static void NAME(geqrf)(px__matrices *t, int64_t i, void *room) {
  const px__geqrf_kernel *x = t->args;
  px__int m = px__rows_of(x->a), n = px__columns_of(x->a), ld = NAME(step)(x->a), info = 0;
  T *a = NAME(matrix)(x->a, i);
  px__matrix_load(a, ld, x->self, i, m, n);
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
  px__int m = px__rows_of(x->out), n = px__columns_of(x->out), ld = NAME(step)(x->out), info = 0;
  px__int given = px__columns_of(x->input);
  T *q = NAME(matrix)(x->out, i), *work = room, *tau = work + t->work;
  px__int k = NAME(load_line)(tau, x->tau, i);
  px__matrix_load(q, ld, x->input, i, m, (int)(given < n ? given : n));
  if (m && n) NAME(px__lapack).orgqr(&m, &n, &k, q, &ld, tau, work, &t->work, &info);
}
static void NAME(ormqr)(px__matrices *t, int64_t i, void *room) {
  const px__ormqr_kernel *x = t->args;
  px__int m = px__rows_of(x->out), n = px__columns_of(x->out), ld = NAME(step)(x->out), info = 0;
  int rows = px__rows_of(x->self);
  px__int lda = px__at_least_1(rows);
  T *c = NAME(matrix)(x->out, i), *work = room, *a = work + t->work;
  T *tau = a + (int64_t)rows * px__columns_of(x->self);
  px__int k = NAME(load_line)(tau, x->input2, i);
  px__matrix_load(a, lda, x->self, i, rows, px__columns_of(x->self));
  px__matrix_load(c, ld, x->input3, i, m, n);
  if (m && n && k)
    NAME(px__lapack)
        .ormqr(x->left ? "L" : "R", x->transpose ? (IS_COMPLEX ? "C" : "T") : "N", &m, &n, &k, a,
               &lda, tau, c, &ld, work, &t->work, &info, 1, 1);
}

// The real numbers of line i.
static R *NAME(real_line)(const px_operand *o, int64_t i) {
  return (R *)o->data + px__matrix_at(o, i, 1);
}
static void NAME(eigh)(px__matrices *t, int64_t i, void *room) {
  const px__eigh_kernel *x = t->args;
  px__int n = px__rows_of(x->self), places = 3 + 5 * n, ld = px__at_least_1((int)n), info;
  T *work = room, *a = work + t->work;
  R *reals = (R *)(void *)(a + (x->vectors ? 0 : n * n));
  px__int *more = px__integers_from(reals + t->reals);
  if (x->vectors) a = NAME(matrix)(x->eigenvectors, i);
  px__matrix_load(a, ld, x->self, i, (int)n, (int)n);
  info = NAME(finite)(a, n * n) ? 0 : NAME(NOT_FINITE);
  if (n && !info)
    NAME(px__lapack)
        .syevd(x->vectors ? "V" : "N", x->upper ? "U" : "L", &n, a, &ld,
               NAME(real_line)(x->eigenvalues, i), work, &t->work, MORE(reals) MORE(&t->reals) more,
               &places, &info, 1, 1);
  *px__number(x->info, i) = (int)info;
}

// Behind what LAPACK works in are the matrix and real numbers; of a real matrix these are both
// parts of the eigenvalues, and vectors.
#if IS_COMPLEX
static void NAME(eig_one)(const px__eig_kernel *x, px__matrices *t, T *a, T *work, int64_t i,
                          px__int *info) {
  px__int n = px__rows_of(x->self), ld = px__at_least_1((int)n);
  T *vectors = x->vectors ? NAME(matrix)(x->eigenvectors, i) : NULL;
  R *reals = (R *)(void *)(a + n * n);
  NAME(px__lapack)
      .geev("N", x->vectors ? "V" : "N", &n, a, &ld, NAME(line)(x->eigenvalues, i), NULL, &ld,
            vectors, &ld, work, &t->work, reals, info, 1, 1);
}
#else
// LAPACK has of two conjugate vectors the real part in a column, and the imaginary one in the next.
static void NAME(join_vectors)(C *to, const T *from, const T *imaginary, int n) {
  for (int k = 0; k < n; k++)
    for (int r = 0; r < n; r++) {
      const T *v = from + (int64_t)k * n + r;
      bool first = imaginary[k] > 0, second = imaginary[k] < 0;
      T parts[2] = {second ? v[-n] : v[0], first ? v[n] : second ? -v[0] : 0};
      memcpy(to + (int64_t)k * n + r, parts, sizeof parts);
    }
}
static void NAME(eig_one)(const px__eig_kernel *x, px__matrices *t, T *a, T *work, int64_t i,
                          px__int *info) {
  px__int n = px__rows_of(x->self), ld = px__at_least_1((int)n);
  T *real = a + n * n, *imaginary = real + n, *vectors = imaginary + n;
  C *values = (C *)x->eigenvalues->data + px__matrix_at(x->eigenvalues, i, 1);
  NAME(px__lapack)
      .geev("N", x->vectors ? "V" : "N", &n, a, &ld, real, imaginary, NULL, &ld, vectors, &ld, work,
            &t->work, info, 1, 1);
  for (int k = 0; k < n; k++) memcpy(values + k, (T[]){real[k], imaginary[k]}, sizeof *values);
  if (x->vectors) NAME(join_vectors)
  ((C *)x->eigenvectors->data + px__matrix_at(x->eigenvectors, i, 2), vectors, imaginary, (int)n);
}
#endif
static void NAME(eig)(px__matrices *t, int64_t i, void *room) {
  const px__eig_kernel *x = t->args;
  int n = px__rows_of(x->self);
  T *work = room, *a = work + t->work;
  px__matrix_load(a, px__at_least_1(n), x->self, i, n, n);
  px__int info = NAME(finite)(a, (int64_t)n * n) ? 0 : NAME(NOT_FINITE);
  if (n && !info) NAME(eig_one)(x, t, a, work, i, &info);
  *px__number(x->info, i) = (int)info;
}

// ---- singular values

static const char *NAME(svd_way)(const px__svd_kernel *x) {
  return !x->vectors ? "N" : x->full_matrices ? "A" : "S";
}
// What LAPACK wants to work in it says as an element, which may have been rounded down.
static int NAME(rounded_up)(T elements) { return (int)((double)(R)elements * (1 + 0x1p-22)) + 1; }
// How many elements LAPACK wants to work in.
static int NAME(svd_work)(const px__svd_kernel *x) {
  px__int m = px__rows_of(x->A), n = px__columns_of(x->A), ask = -1, info = 0, places;
  px__int ld = px__at_least_1((int)m), ldvt = px__at_least_1((int)n);
  T room = 1, none;
  R real;
  NAME(px__lapack)
      .gesdd(NAME(svd_way)(x), &m, &n, &none, &ld, &real, &none, &ld, &none, &ldvt, &room, &ask,
             MORE(&real) & places, &info, 1);
  return NAME(rounded_up)(room);
}
static void NAME(identity)(T *a, int n) {
  for (int64_t k = 0; k < (int64_t)n * n; k++) a[k] = k % (n + 1) == 0;
}
static void NAME(svd)(px__matrices *t, int64_t i, void *room) {
  const px__svd_kernel *x = t->args;
  px__int m = px__rows_of(x->A), n = px__columns_of(x->A), info = 0;
  px__int ld = px__at_least_1((int)m), ldu = 1, ldvt = 1;
  T *work = room, *a = work + t->work, *u = NULL, *vt = NULL;
  R *reals = (R *)(void *)(a + m * n);
  px__int *places = px__integers_from(reals + t->reals);
  if (x->vectors) {
    u = NAME(matrix)(x->U, i), ldu = NAME(step)(x->U);
    vt = NAME(matrix)(x->Vh, i), ldvt = NAME(step)(x->Vh);
  }
  if (m == 0 || n == 0) {
    if (x->vectors) NAME(identity)(u, px__columns_of(x->U) ? (int)m : 0);
    if (x->vectors) NAME(identity)(vt, px__rows_of(x->Vh) ? (int)n : 0);
    *px__number(x->info, i) = 0;
    return;
  }
  px__matrix_load(a, ld, x->A, i, (int)m, (int)n);
  info = NAME(finite)(a, m * n) ? 0 : NAME(NOT_FINITE);
  if (!info)
    NAME(px__lapack)
        .gesdd(NAME(svd_way)(x), &m, &n, a, &ld, NAME(real_line)(x->S, i), u, &ldu, vt, &ldvt, work,
               &t->work, MORE(reals) places, &info, 1);
  *px__number(x->info, i) = (int)info;
}

// ---- least squares

// Where one call of the driver works.
typedef struct NAME(lstsq_room) {
  T *a, *b, *work;
  R *s, *reals;
  px__int *places;
} NAME(lstsq_room);
// With *most -1 it only writes to work[0] how much room it wants.
static void NAME(drive)(const px__lstsq_kernel *x, const NAME(lstsq_room) * r, const px__int *most,
                        px__int *rank, px__int *info) {
  px__int m = px__rows_of(x->A), n = px__columns_of(x->A), columns = px__columns_of(x->solution);
  px__int lda = px__at_least_1((int)m), ldb = NAME(step)(x->solution);
  R limit = (R)x->rcond;
  switch (x->driver[4]) {  // gels, gelsy, gelsd, gelss
    case 0:
      NAME(px__lapack).gels("N", &m, &n, &columns, r->a, &lda, r->b, &ldb, r->work, most, info, 1);
      break;
    case 'y':
      NAME(px__lapack)
          .gelsy(&m, &n, &columns, r->a, &lda, r->b, &ldb, r->places, &limit, rank, r->work, most,
                 MORE(r->reals) info);
      break;
    case 'd':
      NAME(px__lapack)
          .gelsd(&m, &n, &columns, r->a, &lda, r->b, &ldb, r->s, &limit, rank, r->work, most,
                 MORE(r->reals) r->places, info);
      break;
    default:
      NAME(px__lapack)
          .gelss(&m, &n, &columns, r->a, &lda, r->b, &ldb, r->s, &limit, rank, r->work, most,
                 MORE(r->reals) info);
  }
}
// How many elements, real numbers and, for gelsd and gelsy, integers it works in.
static void NAME(lstsq_work)(px__matrices *t, const px__lstsq_kernel *x, int *integers) {
  int m = px__rows_of(x->A), n = px__columns_of(x->A), few = m < n ? m : n;
  px__int ask = -1, rank, info = 0, places[64] = {0};
  T room[1] = {1}, none[1];
  R real[1] = {0}, reals[1] = {0};
  NAME(lstsq_room) r = {none, none, room, real, reals, places};
  *integers = x->driver[4] == 'y' ? n : 0;
  if (m && n) NAME(drive)(x, &r, &ask, &rank, &info);
  if (x->driver[4] == 'd') *integers = px__int_at(places, 0) + 11 * few + 3 * few * 32;
  t->work = NAME(rounded_up)(room[0]);
  if (IS_COMPLEX) t->reals = (int)reals[0] + 2 * n + 5 * few;
}
static void NAME(lstsq)(px__matrices *t, int64_t i, void *room) {
  const px__lstsq_kernel *x = t->args;
  int m = px__rows_of(x->A), n = px__columns_of(x->A), columns = px__columns_of(x->solution);
  int few = m < n ? m : n;
  px__int rank = 0, info = 0;
  int ldb = NAME(step)(x->solution);
  NAME(lstsq_room) r = {.work = room, .b = NAME(matrix)(x->solution, i)};
  r.a = r.work + t->work, r.s = (R *)(void *)(r.a + (int64_t)m * n), r.reals = r.s + few;
  r.places = px__integers_from(r.reals + t->reals);
  for (int64_t k = 0; k < (int64_t)px__rows_of(x->solution) * columns; k++) r.b[k] = 0;
  for (int k = 0; k < n && x->driver[4] == 'y'; k++) px__int_put(r.places, k, 0);
  px__matrix_load(r.a, px__at_least_1(m), x->A, i, m, n);
  px__matrix_load(r.b, ldb, x->B, i, m, columns);
  bool iterates = x->driver[4] == 'd' || x->driver[4] == 's';
  info = iterates && !NAME(finite)(r.a, (int64_t)m * n) ? NAME(NOT_FINITE) : 0;
  if (m && n && !info) NAME(drive)(x, &r, &t->work, &rank, &info);
  *px__number(x->info, i) = (int)info;
  ((int64_t *)x->rank->data)[px__matrix_at(x->rank, i, 0)] = rank;
  R *values = NAME(real_line)(x->singular_values, i);
  for (int k = 0; k < few && x->driver[4] && x->driver[4] != 'y'; k++) values[k] = r.s[k];
}
