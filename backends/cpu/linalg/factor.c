// SPDX-License-Identifier: Apache-2.0
// Kernels of QR, eigenvalues, singular values and least squares by LAPACK. Results are
// column-major, as LAPACK writes them; operands have any strides.
#include "kernel_args/factor.h"

#include "cpu/linalg/each_matrix.h"

#define EACH "cpu/linalg/factor_rows.h"
#include "cpu/linalg/lapack_types.h"

// Bytes of the real workspace of complex types.
static size_t real_bytes(const px_operand *o, double reals) {
  return px__matrix_bytes(o, reals) >> px__is_complex_matrix(o);
}
static int max_int(int a, int b) { return a > b ? a : b; }
static int min_int(int a, int b) { return a < b ? a : b; }
static double cost_of(const px_operand *o) {
  double m = px__rows_of(o), n = px__columns_of(o);
  return m * n * (m < n ? m : n);
}

PX_KERNEL(geqrf) {
  px__matrices t = {.l = l, .args = args, .one = PX__LAPACK_ONE(geqrf, args->a)};
  t.work = px__columns_of(args->a) * PX__LAPACK_BLOCK + 1;
  t.workspace = px__matrix_bytes(args->a, (double)t.work);
  return px__matrices_run(&t, px__matrices_count(args->a, 2), cost_of(args->a));
}
PX_KERNEL(householder) {
  px__matrices t = {.l = l, .args = args, .one = PX__LAPACK_ONE(householder, args->out)};
  t.work = px__columns_of(args->out) * PX__LAPACK_BLOCK + 1;
  t.workspace = px__matrix_bytes(args->out, (double)t.work + px__columns_of(args->tau));
  return px__matrices_run(&t, px__matrices_count(args->out, 2), cost_of(args->out));
}
PX_KERNEL(ormqr) {
  const px_operand *a = args->self, *out = args->out;
  px__matrices t = {.l = l, .args = args, .one = PX__LAPACK_ONE(ormqr, out)};
  t.work =
      (max_int(px__rows_of(out), px__columns_of(out)) + PX__LAPACK_BLOCK + 1) * PX__LAPACK_BLOCK;
  t.workspace = px__matrix_bytes(out, (double)t.work + (double)px__rows_of(a) * px__columns_of(a) +
                                          px__columns_of(args->input2));
  return px__matrices_run(&t, px__matrices_count(out, 2), cost_of(a) + 2.0 * cost_of(out));
}
// True, after reporting out of memory, if the workspace exceeds LAPACK's 32-bit sizes.
static bool exceeds_lapack(const px_launch *l, const px_operand *a, double elements) {
  if (elements > INT32_MAX)
    px_kernel_fault(l, PX_FAULT_NOMEM, (int64_t)px__matrix_bytes(a, elements), 0, 0);
  return elements > INT32_MAX;
}
PX_KERNEL(eigh) {
  const px_operand *a = args->self;
  double n = px__rows_of(a);
  double work = args->vectors ? 1 + 6 * n + 2 * n * n : 2 * n + 1 + n * PX__LAPACK_BLOCK;
  px__matrices t = {.l = l, .args = args, .one = PX__LAPACK_ONE(eigh, a)};
  if (exceeds_lapack(l, a, work)) return PX_OK;
  t.work = (int)work;
  if (px__is_complex_matrix(a)) t.reals = (int)(args->vectors ? 1 + 5 * n + 2 * n * n : n + 1);
  t.workspace = px__matrix_bytes(a, work + (args->vectors ? 0 : n * n)) + real_bytes(a, t.reals) +
                (size_t)(3 + 5 * n) * sizeof(px__int);
  return px__matrices_run(&t, px__matrices_count(args->info, 0), 9 * cost_of(a));
}
PX_KERNEL(eig) {
  const px_operand *a = args->self;
  double n = px__rows_of(a), work = 1 + (4 + PX__LAPACK_BLOCK) * n;
  px__matrices t = {.l = l, .args = args, .one = PX__LAPACK_ONE(eig, a)};
  if (exceeds_lapack(l, a, 2 * n * n + work)) return PX_OK;
  t.work = (int)work;
  t.workspace = px__matrix_bytes(a, work + 2 * n * n + 2 * n);
  return px__matrices_run(&t, px__matrices_count(args->info, 0), 25 * cost_of(a));
}
static bool svd_exceeds_lapack(const px_launch *l, const px_operand *a, int m, int n) {
  double k = min_int(m, n), reals = px__is_complex_matrix(a) ? 2 * k * max_int(m, n) : 0;
  return exceeds_lapack(l, a, 5 * k * k + reals + PX__LAPACK_BLOCK * ((double)m + n));
}
PX_KERNEL(svd) {
  const px_operand *a = args->A;
  int m = px__rows_of(a), n = px__columns_of(a), k = min_int(m, n);
  if (svd_exceeds_lapack(l, a, m, n)) return PX_OK;
  px__matrices t = {.l = l, .args = args, .one = PX__LAPACK_ONE(svd, a)};
  if (m && n) t.work = PX__LAPACK_ONE(svd_work, a)(args);
  if (px__is_complex_matrix(a)) t.reals = 5 * k * k + 2 * k * max_int(m, n) + 7 * k;
  t.workspace = px__matrix_bytes(a, (double)t.work + (double)m * n) + real_bytes(a, t.reals) +
                (size_t)k * 8 * sizeof(px__int);
  return px__matrices_run(&t, px__matrices_count(args->info, 0), 20 * cost_of(a));
}
PX_KERNEL(lstsq) {
  const px_operand *a = args->A;
  int m = px__rows_of(a), n = px__columns_of(a), integers;
  if (svd_exceeds_lapack(l, a, m, n)) return PX_OK;
  px__matrices t = {.l = l, .args = args, .one = PX__LAPACK_ONE(lstsq, a)};
  PX__LAPACK_ONE(lstsq_work, a)(&t, args, &integers);
  t.workspace = px__matrix_bytes(a, (double)t.work + (double)m * n) +
                real_bytes(a, (double)t.reals + min_int(m, n)) + (size_t)integers * sizeof(px__int);
  return px__matrices_run(&t, px__matrices_count(args->info, 0), 4 * cost_of(a));
}
