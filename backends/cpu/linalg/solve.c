// SPDX-License-Identifier: Apache-2.0
// Kernels of triangular systems, of Cholesky, LU and LDL factorizations, and of solving with them,
// by LAPACK. Results are column-major, as LAPACK writes them; operands have any strides.
#include "kernel_args/solve.h"

#include "cpu/linalg/each_matrix.h"

#define EACH "cpu/linalg/solve_rows.h"
#include "cpu/linalg/lapack_types.h"

static double cube(int n) { return (double)n * n * n / 3; }
// Bytes of n pivots, padded so that elements may follow.
static int pivot_bytes(int n) { return (n * (int)sizeof(px__int) + 15) & ~15; }

PX_KERNEL(cholesky) {
  px__matrices t = {.l = l, .args = args, .one = PX__LAPACK_ONE(cholesky, args->L)};
  return px__matrices_run(&t, px__matrices_count(args->info, 0), cube(px__rows_of(args->L)));
}
PX_KERNEL(lu) {
  px__matrices t = {.l = l, .args = args, .one = PX__LAPACK_ONE(lu, args->LU)};
  t.workspace = (size_t)pivot_bytes(px__columns_of(args->pivots));
  return px__matrices_run(&t, px__matrices_count(args->info, 0), cube(px__rows_of(args->LU)));
}
PX_KERNEL(lu_solve) {
  int n = px__rows_of(args->out), pivots = pivot_bytes(n);
  px__matrices t = {
      .l = l, .args = args, .one = PX__LAPACK_ONE(lu_solve, args->out), .work = pivots};
  t.workspace = (size_t)pivots + px__matrix_bytes(args->out, (double)n * n);
  return px__matrices_run(&t, px__matrices_count(args->out, 2),
                          (double)n * n * px__columns_of(args->out));
}
PX_KERNEL(inverse) {
  int n = px__rows_of(args->inverse);
  px__matrices t = {.l = l,
                    .args = args,
                    .one = PX__LAPACK_ONE(inverse, args->inverse),
                    .work = n * PX__LAPACK_BLOCK};
  t.workspace = px__matrix_bytes(args->inverse, (double)t.work) + (size_t)pivot_bytes(n);
  return px__matrices_run(&t, px__matrices_count(args->info, 0), 3 * cube(n));
}
PX_KERNEL(triangular) {
  int n = px__rows_of(args->self);
  px__matrices t = {.l = l, .args = args, .one = PX__LAPACK_ONE(triangular, args->out)};
  t.workspace = px__matrix_bytes(args->out, (double)n * n);
  double elements = (double)px__rows_of(args->out) * px__columns_of(args->out);
  return px__matrices_run(&t, px__matrices_count(args->out, 2), elements * n / 2);
}
PX_KERNEL(permutation) {
  int n = px__rows_of(args->out), count = px__columns_of(args->pivots);
  px__matrices t = {.l = l, .args = args, .one = PX__LAPACK_ONE(permutation, args->out)};
  t.workspace = (size_t)n * sizeof(int) + (size_t)count * sizeof(px__int);
  return px__matrices_run(&t, px__matrices_count(args->out, 2), (double)n * n);
}
PX_KERNEL(ldl) {
  int n = px__rows_of(args->LD);
  px__matrices t = {
      .l = l, .args = args, .one = PX__LAPACK_ONE(ldl, args->LD), .work = n * PX__LAPACK_BLOCK + 1};
  t.workspace = px__matrix_bytes(args->LD, (double)t.work) + (size_t)pivot_bytes(n);
  return px__matrices_run(&t, px__matrices_count(args->info, 0), cube(n));
}
PX_KERNEL(ldl_solve) {
  int n = px__rows_of(args->out), pivots = pivot_bytes(n);
  px__matrices t = {
      .l = l, .args = args, .one = PX__LAPACK_ONE(ldl_solve, args->out), .work = pivots};
  t.workspace = (size_t)pivots + px__matrix_bytes(args->out, (double)n * n);
  return px__matrices_run(&t, px__matrices_count(args->out, 2),
                          (double)n * n * px__columns_of(args->out));
}
