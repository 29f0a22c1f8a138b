// SPDX-License-Identifier: Apache-2.0
// Kernels of QR, of eigenvalues and singular values and of least squares, by LAPACK. Results lie by
// columns, as LAPACK writes them; operands lie anyhow.
#include "kernel_args/factor.h"

#include "cpu/matrices.h"

#define BOTH "cpu/factor_rows.h"
#include "cpu/both.h"

static bool is_double(const px_operand *o) { return o->dtype == PX_FLOAT64; }
static size_t bytes_of(const px_operand *o, double elements) {
  return (size_t)elements * (is_double(o) ? sizeof(double) : sizeof(float));
}
static int most(int a, int b) { return a > b ? a : b; }
static int least(int a, int b) { return a < b ? a : b; }
static double cost_of(const px_operand *o) {
  double m = px__rows_of(o), n = px__columns_of(o);
  return m * n * (m < n ? m : n);
}
#define ONE(name, o) (is_double(o) ? name##_f64 : name##_f32)

PX_KERNEL(geqrf) {
  px__matrices t = {.l = l, .args = args, .one = ONE(geqrf, args->a)};
  t.work = px__columns_of(args->a) * PX__LAPACK_BLOCK + 1;
  t.room = bytes_of(args->a, t.work);
  return px__matrices_run(&t, px__matrices_count(args->a, 2), cost_of(args->a));
}
PX_KERNEL(householder) {
  px__matrices t = {.l = l, .args = args, .one = ONE(householder, args->out)};
  t.work = px__columns_of(args->out) * PX__LAPACK_BLOCK + 1;
  t.room = bytes_of(args->out, (double)t.work + px__columns_of(args->tau));
  return px__matrices_run(&t, px__matrices_count(args->out, 2), cost_of(args->out));
}
PX_KERNEL(ormqr) {
  const px_operand *a = args->self, *out = args->out;
  px__matrices t = {.l = l, .args = args, .one = ONE(ormqr, out)};
  t.work = (most(px__rows_of(out), px__columns_of(out)) + PX__LAPACK_BLOCK + 1) * PX__LAPACK_BLOCK;
  t.room = bytes_of(out, (double)t.work + (double)px__rows_of(a) * px__columns_of(a) +
                             px__columns_of(args->input2));
  return px__matrices_run(&t, px__matrices_count(out, 2), cost_of(a) + 2.0 * cost_of(out));
}
PX_KERNEL(eigh) {
  const px_operand *a = args->self;
  double n = px__rows_of(a);
  double work = args->vectors ? 1 + 6 * n + 2 * n * n : 2 * n + 1 + n * PX__LAPACK_BLOCK;
  px__matrices t = {.l = l, .args = args, .one = ONE(eigh, a)};
  if (work > INT32_MAX) {
    px_kernel_fault(l, PX_FAULT_NOMEM, (int64_t)bytes_of(a, work), 0, 0);
    return PX_OK;
  }
  t.work = (int)work;
  t.room = bytes_of(a, work + (args->vectors ? 0 : n * n)) + (size_t)(3 + 5 * n) * sizeof(int);
  return px__matrices_run(&t, px__matrices_count(args->info, 0), 9 * cost_of(a));
}
// Whether the room that LAPACK works in is more than it can count; then there is no memory for it.
static bool is_beyond(const px_launch *l, const px_operand *a, int m, int n) {
  double k = least(m, n), elements = 5 * k * k + PX__LAPACK_BLOCK * ((double)m + n);
  if (elements > INT32_MAX)
    px_kernel_fault(l, PX_FAULT_NOMEM, (int64_t)bytes_of(a, elements), 0, 0);
  return elements > INT32_MAX;
}
PX_KERNEL(svd) {
  const px_operand *a = args->A;
  int m = px__rows_of(a), n = px__columns_of(a);
  if (is_beyond(l, a, m, n)) return PX_OK;
  px__matrices t = {.l = l, .args = args, .one = ONE(svd, a)};
  if (m && n) t.work = is_double(a) ? svd_work_f64(args) : svd_work_f32(args);
  t.room = bytes_of(a, (double)t.work + (double)m * n) + (size_t)least(m, n) * 8 * sizeof(int);
  return px__matrices_run(&t, px__matrices_count(args->info, 0), 20 * cost_of(a));
}
PX_KERNEL(lstsq) {
  const px_operand *a = args->A;
  int m = px__rows_of(a), n = px__columns_of(a), integers;
  if (is_beyond(l, a, m, n)) return PX_OK;
  px__matrices t = {.l = l, .args = args, .one = ONE(lstsq, a)};
  t.work = is_double(a) ? lstsq_work_f64(args, &integers) : lstsq_work_f32(args, &integers);
  t.room =
      bytes_of(a, (double)t.work + (double)m * n + least(m, n)) + (size_t)integers * sizeof(int);
  return px__matrices_run(&t, px__matrices_count(args->info, 0), 4 * cost_of(a));
}
