// SPDX-License-Identifier: Apache-2.0
// Run functions of the kernels of systems of linear equations. They allocate column-major results.
// The other ops are formulas of ops/solve.op.
#include "ops/core/matrix_checks.h"
#include "run_functions/solve.h"

static int64_t rows_of(const px_tensor *t) { return t->sizes[t->ndim - 2]; }
static int64_t columns_of(const px_tensor *t) { return t->sizes[t->ndim - 1]; }

PX_RUN(_linalg_cholesky) {
  const px_tensor *a = args->self;
  PX_TRY(px__check_kernel(call, a, true));
  PX_TRY(px__matrices_result(call, 0, a, rows_of(a), rows_of(a)));
  return px__lines_result(call, 1, a, -1, PX_INT32);
}
PX_RUN(_linalg_lu) {
  const px_tensor *a = args->A;
  PX_CHECK(args->pivot, PX_RUNTIME,
           "linalg.lu_factor: LU without pivoting is not implemented on the CPU");
  PX_TRY(px__check_kernel(call, a, false));
  PX_TRY(px__matrices_result(call, 0, a, rows_of(a), columns_of(a)));
  PX_TRY(px__lines_result(call, 1, a, px__min(rows_of(a), columns_of(a)), PX_INT32));
  return px__lines_result(call, 2, a, -1, PX_INT32);
}
// Checks that b and pivots match the square decompositions a. The result has the sizes of b.
static px_status solve_result(px_call *call, const px_tensor *a, const px_tensor *pivots,
                              const px_tensor *b) {
  PX_TRY(px__check_kernel(call, a, true));
  PX_TRY(px__check_batch_like(call, a, b, 2, (px_dtype)a->dtype));
  PX_TRY(px__check_batch_like(call, a, pivots, 1, PX_INT32));
  PX_TRY(px__check_fits(call, rows_of(b) == rows_of(a) && columns_of(pivots) == rows_of(a)));
  return px__matrices_result(call, 0, b, rows_of(b), columns_of(b));
}
PX_RUN(_linalg_lu_solve) { return solve_result(call, args->LU, args->pivots, args->B); }
PX_RUN(_linalg_inverse) {
  const px_tensor *a = args->A;
  PX_TRY(px__check_kernel(call, a, true));
  PX_TRY(px__matrices_result(call, 0, a, rows_of(a), rows_of(a)));
  return px__lines_result(call, 1, a, -1, PX_INT32);
}
PX_RUN(_linalg_triangular) {
  const px_tensor *a = args->self, *b = args->B;
  PX_TRY(px__check_kernel(call, a, true));
  PX_TRY(px__check_batch_like(call, a, b, 2, (px_dtype)a->dtype));
  PX_TRY(px__check_fits(call, rows_of(a) == (args->left ? rows_of(b) : columns_of(b))));
  return px__matrices_result(call, 0, b, rows_of(b), columns_of(b));
}
PX_RUN(_linalg_permutation) {
  const px_tensor *lu = args->LU;
  int64_t sizes[PX_MAX_DIMS];
  PX_TRY(px__check_kernel(call, lu, false));
  PX_TRY(px__check_batch_like(call, lu, args->pivots, 1, PX_INT32));
  PX_TRY(px__check_fits(call, columns_of(args->pivots) <= rows_of(lu)));
  px__sizes_copy(sizes, lu->sizes, lu->ndim);
  sizes[lu->ndim - 1] = rows_of(lu);
  return px__call_result(call, 0, lu->ndim, sizes, (px_dtype)lu->dtype);
}
PX_RUN(_linalg_ldl_factor_ex) {
  const px_tensor *a = args->self;
  PX_TRY(px__check_kernel(call, a, true));
  PX_TRY(px__matrices_result(call, 0, a, rows_of(a), rows_of(a)));
  PX_TRY(px__lines_result(call, 1, a, rows_of(a), PX_INT32));
  return px__lines_result(call, 2, a, -1, PX_INT32);
}
PX_RUN(_linalg_ldl_solve) { return solve_result(call, args->LD, args->pivots, args->B); }
