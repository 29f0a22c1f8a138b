// SPDX-License-Identifier: Apache-2.0
// QR, eigenvalues, singular values and least squares for one element type: T: element; R: type of
// its parts; C: complex type; NAME(x): suffixed name (lapack_types.h).

#include "cpu/linalg/matrix_rows.h"

static void NAME(geqrf)(px__matrices *t, int64_t i, void *workspace) {
  const px__geqrf_kernel *x = t->args;
  px__int m = px__rows_of(x->a), n = px__columns_of(x->a), ld = NAME(step)(x->a), info = 0;
  T *a = NAME(matrix)(x->a, i);
  px__matrix_load(a, ld, x->self, i, m, n);
  if (m && n)
    NAME(px__lapack).geqrf(&m, &n, a, &ld, NAME(line)(x->tau, i), workspace, &t->work, &info);
}

// Loads a strided line; returns its length.
static int NAME(load_line)(T *to, const px_operand *o, int64_t i) {
  const T *from = NAME(line)(o, i);
  int n = px__columns_of(o);
  for (int k = 0; k < n; k++) to[k] = from[k * o->strides[o->ndim - 1]];
  return n;
}
static void NAME(householder)(px__matrices *t, int64_t i, void *workspace) {
  const px__householder_kernel *x = t->args;
  px__int m = px__rows_of(x->out), n = px__columns_of(x->out), ld = NAME(step)(x->out), info = 0;
  px__int given = px__columns_of(x->input);
  T *q = NAME(matrix)(x->out, i), *work = workspace, *tau = work + t->work;
  px__int k = NAME(load_line)(tau, x->tau, i);
  px__matrix_load(q, ld, x->input, i, m, (int)(given < n ? given : n));
  if (m && n) NAME(px__lapack).orgqr(&m, &n, &k, q, &ld, tau, work, &t->work, &info);
}
static void NAME(ormqr)(px__matrices *t, int64_t i, void *workspace) {
  const px__ormqr_kernel *x = t->args;
  px__int m = px__rows_of(x->out), n = px__columns_of(x->out), ld = NAME(step)(x->out), info = 0;
  int rows = px__rows_of(x->self);
  px__int lda = px__at_least_1(rows);
  T *c = NAME(matrix)(x->out, i), *work = workspace, *a = work + t->work;
  T *tau = a + (int64_t)rows * px__columns_of(x->self);
  px__int k = NAME(load_line)(tau, x->input2, i);
  px__matrix_load(a, lda, x->self, i, rows, px__columns_of(x->self));
  px__matrix_load(c, ld, x->input3, i, m, n);
  if (m && n && k)
    NAME(px__lapack)
        .ormqr(x->left ? "L" : "R", x->transpose ? (IS_COMPLEX ? "C" : "T") : "N", &m, &n, &k, a,
               &lda, tau, c, &ld, work, &t->work, &info, 1, 1);
}

// Line i of a real result.
static R *NAME(real_line)(const px_operand *o, int64_t i) {
  return (R *)o->data + px__matrix_at(o, i, 1);
}
static void NAME(eigh)(px__matrices *t, int64_t i, void *workspace) {
  const px__eigh_kernel *x = t->args;
  px__int n = px__rows_of(x->self), integers_workspace = 3 + 5 * n, ld = px__at_least_1((int)n),
          info;
  T *work = workspace, *a = work + t->work;
  R *reals = (R *)(void *)(a + (x->vectors ? 0 : n * n));
  px__int *more = px__integers_from(reals + t->reals);
  if (x->vectors) a = NAME(matrix)(x->eigenvectors, i);
  px__matrix_load(a, ld, x->self, i, (int)n, (int)n);
  info = NAME(finite)(a, n * n) ? 0 : NAME(NOT_FINITE);
  if (n && !info)
    NAME(px__lapack)
        .syevd(x->vectors ? "V" : "N", x->upper ? "U" : "L", &n, a, &ld,
               NAME(real_line)(x->eigenvalues, i), work, &t->work, MORE(reals) MORE(&t->reals) more,
               &integers_workspace, &info, 1, 1);
  *px__number(x->info, i) = (int)info;
}

// The matrix and real numbers follow LAPACK's workspace. For a real matrix these are the real and
// imaginary parts of the eigenvalues, then the eigenvectors.
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
// LAPACK stores the real part of a conjugate pair of vectors in one column, the imaginary part in
// the next.
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
static void NAME(eig)(px__matrices *t, int64_t i, void *workspace) {
  const px__eig_kernel *x = t->args;
  int n = px__rows_of(x->self);
  T *work = workspace, *a = work + t->work;
  px__matrix_load(a, px__at_least_1(n), x->self, i, n, n);
  px__int info = NAME(finite)(a, (int64_t)n * n) ? 0 : NAME(NOT_FINITE);
  if (n && !info) NAME(eig_one)(x, t, a, work, i, &info);
  *px__number(x->info, i) = (int)info;
}

// ---- singular values

static const char *NAME(svd_job)(const px__svd_kernel *x) {
  return !x->vectors ? "N" : x->full_matrices ? "A" : "S";
}
// LAPACK returns the workspace size as an element, which may have been rounded down.
static int NAME(round_up_size)(T elements) {
  return (int)((double)(R)elements * (1 + 0x1p-22)) + 1;
}
// Workspace query: elements.
static int NAME(svd_work)(const px__svd_kernel *x) {
  px__int m = px__rows_of(x->A), n = px__columns_of(x->A), ask = -1, info = 0, integers_workspace;
  px__int ld = px__at_least_1((int)m), ldvt = px__at_least_1((int)n);
  T workspace = 1, none;
  R real;
  NAME(px__lapack)
      .gesdd(NAME(svd_job)(x), &m, &n, &none, &ld, &real, &none, &ld, &none, &ldvt, &workspace,
             &ask, MORE(&real) & integers_workspace, &info, 1);
  return NAME(round_up_size)(workspace);
}
static void NAME(identity)(T *a, int n) {
  for (int64_t k = 0; k < (int64_t)n * n; k++) a[k] = k % (n + 1) == 0;
}
static void NAME(svd)(px__matrices *t, int64_t i, void *workspace) {
  const px__svd_kernel *x = t->args;
  px__int m = px__rows_of(x->A), n = px__columns_of(x->A), info = 0;
  px__int ld = px__at_least_1((int)m), ldu = 1, ldvt = 1;
  T *work = workspace, *a = work + t->work, *u = NULL, *vt = NULL;
  R *reals = (R *)(void *)(a + m * n);
  px__int *integers_workspace = px__integers_from(reals + t->reals);
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
        .gesdd(NAME(svd_job)(x), &m, &n, a, &ld, NAME(real_line)(x->S, i), u, &ldu, vt, &ldvt, work,
               &t->work, MORE(reals) integers_workspace, &info, 1);
  *px__number(x->info, i) = (int)info;
}

// ---- least squares

// Workspace of a driver call.
typedef struct NAME(lstsq_workspace) {
  T *a, *b, *work;
  R *s, *reals;
  px__int *integers_workspace;
} NAME(lstsq_workspace);
// With *most == -1: a workspace query; writes the size to work[0].
static void NAME(call_driver)(const px__lstsq_kernel *x, const NAME(lstsq_workspace) * r,
                              const px__int *most, px__int *rank, px__int *info) {
  px__int m = px__rows_of(x->A), n = px__columns_of(x->A), columns = px__columns_of(x->solution);
  px__int lda = px__at_least_1((int)m), ldb = NAME(step)(x->solution);
  R limit = (R)x->rcond;
  switch (x->driver[4]) {  // gels, gelsy, gelsd, gelss
    case 0:
      NAME(px__lapack).gels("N", &m, &n, &columns, r->a, &lda, r->b, &ldb, r->work, most, info, 1);
      break;
    case 'y':
      NAME(px__lapack)
          .gelsy(&m, &n, &columns, r->a, &lda, r->b, &ldb, r->integers_workspace, &limit, rank,
                 r->work, most, MORE(r->reals) info);
      break;
    case 'd':
      NAME(px__lapack)
          .gelsd(&m, &n, &columns, r->a, &lda, r->b, &ldb, r->s, &limit, rank, r->work, most,
                 MORE(r->reals) r->integers_workspace, info);
      break;
    default:
      NAME(px__lapack)
          .gelss(&m, &n, &columns, r->a, &lda, r->b, &ldb, r->s, &limit, rank, r->work, most,
                 MORE(r->reals) info);
  }
}
// Workspace query: elements, real numbers and, for gelsd and gelsy, integers.
static void NAME(lstsq_work)(px__matrices *t, const px__lstsq_kernel *x, int *integers) {
  int m = px__rows_of(x->A), n = px__columns_of(x->A), rank_max = m < n ? m : n;
  px__int ask = -1, rank, info = 0, integers_workspace[64] = {0};
  T workspace[1] = {1}, none[1];
  R real[1] = {0}, reals[1] = {0};
  NAME(lstsq_workspace) r = {none, none, workspace, real, reals, integers_workspace};
  *integers = x->driver[4] == 'y' ? n : 0;
  if (m && n) NAME(call_driver)(x, &r, &ask, &rank, &info);
  if (x->driver[4] == 'd')
    *integers = px__int_at(integers_workspace, 0) + 11 * rank_max + 3 * rank_max * 32;
  t->work = NAME(round_up_size)(workspace[0]);
  if (IS_COMPLEX) t->reals = (int)reals[0] + 2 * n + 5 * rank_max;
}
static void NAME(lstsq)(px__matrices *t, int64_t i, void *workspace) {
  const px__lstsq_kernel *x = t->args;
  int m = px__rows_of(x->A), n = px__columns_of(x->A), columns = px__columns_of(x->solution);
  int rank_max = m < n ? m : n;
  px__int rank = 0, info = 0;
  int ldb = NAME(step)(x->solution);
  NAME(lstsq_workspace) r = {.work = workspace, .b = NAME(matrix)(x->solution, i)};
  r.a = r.work + t->work, r.s = (R *)(void *)(r.a + (int64_t)m * n), r.reals = r.s + rank_max;
  r.integers_workspace = px__integers_from(r.reals + t->reals);
  for (int64_t k = 0; k < (int64_t)px__rows_of(x->solution) * columns; k++) r.b[k] = 0;
  for (int k = 0; k < n && x->driver[4] == 'y'; k++) px__int_put(r.integers_workspace, k, 0);
  px__matrix_load(r.a, px__at_least_1(m), x->A, i, m, n);
  px__matrix_load(r.b, ldb, x->B, i, m, columns);
  bool iterates = x->driver[4] == 'd' || x->driver[4] == 's';
  info = iterates && !NAME(finite)(r.a, (int64_t)m * n) ? NAME(NOT_FINITE) : 0;
  if (m && n && !info) NAME(call_driver)(x, &r, &t->work, &rank, &info);
  *px__number(x->info, i) = (int)info;
  ((int64_t *)x->rank->data)[px__matrix_at(x->rank, i, 0)] = rank;
  R *values = NAME(real_line)(x->singular_values, i);
  for (int k = 0; k < rank_max && x->driver[4] && x->driver[4] != 'y'; k++) values[k] = r.s[k];
}
