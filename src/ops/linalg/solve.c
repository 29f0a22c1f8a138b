// SPDX-License-Identifier: Apache-2.0
// Run functions of systems of linear equations. Ops with kernels allocate column-major results. The
// others are composites of them.
#include <math.h>

#include "ops/core/matrix_checks.h"

#include "hidden/solve.h"
#include "phlox/autograd.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/solve.h"
#include "phlox/ops/special.h"
#include "phlox/ops/view.h"
#include "run_functions/solve.h"

static int64_t rows_of(const px_tensor *t) { return t->sizes[t->ndim - 2]; }
static int64_t columns_of(const px_tensor *t) { return t->sizes[t->ndim - 1]; }
static px_status transposed(px_tensor **out, const px_tensor *t) {
  return px_transpose(out, t, -2, -1);
}

// ---- kernels

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

// ---- positive-definite matrices

static px_status check_cholesky(const px_tensor *info) {
  return px__check_info(info, PX_LINALG, "linalg.cholesky",
                        "%s: %sThe factorization could not be completed because the input is not "
                        "positive-definite (the leading minor of order %d is not "
                        "positive-definite).");
}
static px_status cholesky(px_tensor **L, px_tensor **info, const px_tensor *self, bool upper,
                          bool check) {
  PX_TRY(px__check_square(self, "linalg.cholesky"));
  PX_TRY(px__check_numbers(self, "linalg.cholesky", true));
  PX_TRY(px__linalg_cholesky(L, info, self, upper));
  return check ? check_cholesky(*info) : PX_OK;
}
PX_RUN(linalg_cholesky_ex) {
  return cholesky(&call->results[0], &call->results[1], args->self, args->upper,
                  args->check_errors);
}
PX_RUN(linalg_cholesky) {
  PX_SCOPED(px_tensor) info = NULL;
  return cholesky(&call->results[0], &info, args->self, args->upper, true);
}

// ---- LU

PX_RUN(linalg_lu_factor_ex) {
  px_tensor **r = call->results;
  PX_TRY(px__linalg_lu(&r[0], &r[1], &r[2], args->A, args->pivot));
  if (!args->check_errors) return PX_OK;
  return px__check_info(r[2], PX_RUNTIME, "torch.linalg.lu_factor_ex",
                        "%s: %sU[%d,%d] is zero and using it on lu_solve would result in a "
                        "division by zero. If you still want to perform the factorization, "
                        "consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)");
}
PX_RUN(linalg_lu_factor) {
  PX_SCOPED(px_tensor) info = NULL;
  PX_TRY(px__linalg_lu(&call->results[0], &call->results[1], &info, args->A, args->pivot));
  return px__check_info(info, PX_RUNTIME, "torch.linalg.lu_factor",
                        "%s: %sU[%d,%d] is zero and using it on lu_solve would result in a "
                        "division by zero. If you still want to perform the factorization, "
                        "consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)");
}

static px_status check_fits(const px_tensor *a, const px_tensor *b, bool left, const char *name) {
  bool fits = left ? rows_of(a) == rows_of(b) : columns_of(a) == columns_of(b);
  PX_CHECK(fits, PX_RUNTIME,
           "%s: Incompatible shapes of A and B for the equation %s (%lldx%lld and %lldx%lld)", name,
           left ? "AX = B" : "XA = B", (long long)rows_of(a), (long long)columns_of(a),
           (long long)rows_of(b), (long long)columns_of(b));
  return PX_OK;
}
// Solves A X = B, or A^H X = B if `adjoint`, with broadcast batch dimensions.
static px_status lu_solve(px_tensor **out, const px_tensor *lu, const px_tensor *pivots,
                          const px_tensor *b, bool adjoint) {
  PX_SCOPED(px_tensor) wide_lu = NULL;
  PX_SCOPED(px_tensor) wide_pivots = NULL;
  PX_SCOPED(px_tensor) wide_b = NULL;
  PX_TRY(px__match_batches(&wide_lu, &wide_b, lu, b));
  PX_TRY(px__expand_batch(&wide_pivots, pivots, 1, wide_b));
  return px__linalg_lu_solve(out, wide_lu, wide_pivots, wide_b, adjoint);
}
// Also solves X A = B, by its transpose A^T X^T = B^T with A^T = (conj A)^H.
static px_status lu_solve_side(px_tensor **out, const px_tensor *lu, const px_tensor *pivots,
                               const px_tensor *b, bool left, bool adjoint) {
  if (left) return lu_solve(out, lu, pivots, b, adjoint);
  PX_SCOPED(px_tensor) rhs = NULL;
  PX_SCOPED(px_tensor) solution = NULL;
  PX_SCOPED(px_tensor) conjugate = NULL;
  PX_TRY(transposed(&rhs, b));
  PX_TRY(px_conj(&conjugate, lu));
  PX_TRY(lu_solve(&solution, conjugate, pivots, rhs, !adjoint));
  return transposed(out, solution);
}
PX_RUN(linalg_lu_solve) {
  PX_TRY(check_fits(args->LU, args->B, args->left, "linalg.lu_solve"));
  return lu_solve_side(&call->results[0], args->LU, args->pivots, args->B, args->left,
                       args->adjoint);
}

// ---- triangular systems

PX_RUN(linalg_solve_triangular) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_TRY(check_fits(args->self, args->B, args->left, "linalg.solve_triangular"));
  PX_CHECK(args->self->dtype == args->B->dtype, PX_RUNTIME,
           "linalg.solve_triangular: Expected A and B to have the same dtype, but found A of type "
           "%s and B of type %s instead",
           px_dtype_class((px_dtype)args->self->dtype), px_dtype_class((px_dtype)args->B->dtype));
  PX_TRY(px__match_batches(&a, &b, args->self, args->B));
  return px__linalg_triangular(&call->results[0], a, b, args->upper, args->left,
                               args->unitriangular);
}
PX_RUN(triangular_solve) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) packed = NULL;
  PX_TRY(px__match_batches(&a, &b, args->A, args->self));
  PX_TRY(transposed(&other, a));
  PX_TRY(px__linalg_triangular(&call->results[0], args->transpose ? other : a, b,
                               args->upper != args->transpose, true, args->unitriangular));
  PX_TRY(px_clone(&packed, other, "contiguous_format"));
  return transposed(&call->results[1], packed);
}

// ---- systems and inverses

// True if B has one vector for each matrix of A.
static bool is_vector(const px_tensor *a, const px_tensor *b) {
  return b->ndim == 1 || (a->ndim - 1 == b->ndim && px__has_sizes(b, a->ndim - 1, a->sizes));
}
PX_RUN(_linalg_solve) {
  px_tensor **r = call->results;
  PX_TRY(px__check_square(args->A, "linalg.solve"));
  PX_TRY(px__check_matrices(args->B, "linalg.solve", "B"));
  PX_TRY(check_fits(args->A, args->B, args->left, "linalg.solve"));
  PX_TRY(px__linalg_lu(&r[1], &r[2], &r[3], args->A, true));
  return lu_solve_side(&r[0], r[1], r[2], args->B, args->left, false);
}
// Removes the column dimension. PyTorch returns batches of vectors as column-major matrices.
static px_status vectors_of(px_tensor **out, const px_tensor *columns) {
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) packed = NULL;
  if (columns->ndim == 2) return px_squeeze_dim(out, columns, (const int64_t[]){-1}, 1);
  PX_TRY(px_squeeze_dim(&rows, columns, (const int64_t[]){-1}, 1));
  PX_TRY(transposed(&other, rows));
  PX_TRY(px_contiguous(&packed, other));
  return transposed(out, packed);
}
static px_status solve(px_tensor **out, px_tensor **info, const px_tensor *a, const px_tensor *b,
                       bool left, bool check) {
  PX_SCOPED(px_tensor) column = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  PX_SCOPED(px_tensor) lu = NULL;
  PX_SCOPED(px_tensor) pivots = NULL;
  PX_TRY(px__check_numbers(a, "linalg.solve", false));
  PX_CHECK(a->dtype == b->dtype, PX_RUNTIME,
           "linalg.solve: Expected A and B to have the same dtype, but found A of type %s and B of "
           "type %s instead",
           px_dtype_class((px_dtype)a->dtype), px_dtype_class((px_dtype)b->dtype));
  bool vector = a->ndim >= 2 && is_vector(a, b);
  if (vector) PX_TRY(px_unsqueeze(&column, b, -1));
  const px_tensor *rhs = vector ? column : b;
  PX_TRY(px__check_square(a, "linalg.solve"));
  PX_TRY(px__check_matrices(rhs, "linalg.solve", "B"));
  PX_TRY(check_fits(a, rhs, left, "linalg.solve"));
  PX_CHECK(left || !vector, PX_RUNTIME,
           "linalg.solve: Vector broadcasting of the left hand side is not supported for "
           "left=False. In this case linalg.solve is equivalent to B / A.squeeze(-1)");
  PX_TRY(px__linalg_solve(&result, &lu, &pivots, info, a, rhs, left));
  if (check)
    PX_TRY(px__check_info(*info, PX_LINALG, "torch.linalg.solve",
                          "%s: %sThe solver failed because the input matrix is singular."));
  if (vector) return vectors_of(out, result);
  *out = PX_MOVE(result);
  return PX_OK;
}
PX_RUN(linalg_solve_ex) {
  return solve(&call->results[0], &call->results[1], args->A, args->B, args->left,
               args->check_errors);
}
PX_RUN(linalg_solve) {
  PX_SCOPED(px_tensor) info = NULL;
  return solve(&call->results[0], &info, args->A, args->B, args->left, true);
}

static px_status inverse(px_tensor **out, px_tensor **info, const px_tensor *a, bool check) {
  PX_TRY(px__check_square(a, "linalg.inv"));
  PX_TRY(px__check_numbers(a, "linalg.inv", false));
  PX_TRY(px__linalg_inverse(out, info, a));
  if (!check) return PX_OK;
  return px__check_info(*info, PX_LINALG, "linalg.inv",
                        "%s: %sThe diagonal element %d is zero, the inversion could not be "
                        "completed because the input matrix is singular.");
}
PX_RUN(linalg_inv_ex) {
  return inverse(&call->results[0], &call->results[1], args->A, args->check_errors);
}
PX_RUN(linalg_inv) {
  PX_SCOPED(px_tensor) info = NULL;
  return inverse(&call->results[0], &info, args->A, true);
}

// ---- symmetric matrices

static const char not_factored[] =
    "%s: %sD[%d,%d] is zero and using it on ldl_solve would result in a division by zero. If you "
    "still want to perform the factorization, consider calling linalg.ldl_factor_ex";
static px_status ldl(px_tensor **results, px_tensor **info, const px_tensor *self, bool hermitian,
                     bool check) {
  PX_TRY(px__check_square(self, "torch.linalg.ldl_factor_ex"));
  PX_TRY(px__check_numbers(self, "torch.linalg.ldl_factor_ex", true));
  PX_TRY(px__linalg_ldl_factor_ex(&results[0], &results[1], info, self, hermitian));
  return check ? px__check_info(*info, PX_LINALG, "torch.linalg.ldl_factor", not_factored) : PX_OK;
}
PX_RUN(linalg_ldl_factor_ex) {
  return ldl(call->results, &call->results[2], args->self, args->hermitian, args->check_errors);
}
PX_RUN(linalg_ldl_factor) {
  PX_SCOPED(px_tensor) info = NULL;
  return ldl(call->results, &info, args->self, args->hermitian, true);
}
PX_RUN(linalg_ldl_solve) {
  const px_tensor *pivots = args->pivots;
  PX_SCOPED(px_tensor) ld = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) narrow = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_CHECK(pivots->dtype == PX_INT32 || pivots->dtype == PX_INT64, PX_RUNTIME,
           "torch.linalg.ldl_solve: Expected pivots to be integers. Got %s",
           px_dtype_class((px_dtype)pivots->dtype));
  PX_TRY(px__match_batches(&ld, &b, args->LD, args->B));
  PX_TRY(px__tensor_to(&narrow, pivots, PX_INT32, px__tensor_device(pivots)));
  PX_TRY(px__expand_batch(&wide, narrow, 1, b));
  return px__linalg_ldl_solve(&call->results[0], ld, wide, b, args->hermitian);
}
