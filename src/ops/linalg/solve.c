// SPDX-License-Identifier: Apache-2.0
// Run functions of systems of linear equations. Ops with kernels allocate column-major results. The
// others are composites of them.
#include <math.h>

#include "ops/core/matrices.h"

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

static px_status adjoint(px_tensor **out, const px_tensor *t) {
  PX_SCOPED(px_tensor) other = NULL;
  PX_TRY(transposed(&other, t));
  return px_conj(out, other);
}
// Solves A x = b by the two triangular systems of its Cholesky factor: L y = b, then L^H x = y.
static px_status solve_cholesky(px_tensor **out, const px_tensor *b, const px_tensor *triangle,
                                bool upper) {
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) partial = NULL;
  PX_TRY(adjoint(&other, triangle));
  PX_TRY(px_linalg_solve_triangular(&partial, upper ? other : triangle, b, false, true, false));
  return px_linalg_solve_triangular(out, upper ? triangle : other, partial, true, true, false);
}
PX_RUN(cholesky_solve) {
  return solve_cholesky(&call->results[0], args->self, args->input2, args->upper);
}
static px_status identity_like(px_tensor **out, const px_tensor *t) {
  return px_eye(out, rows_of(t), NULL, (px_dtype)t->dtype, px__tensor_device(t), false, false);
}
PX_RUN(cholesky_inverse) {
  const px_tensor *self = args->self;
  PX_SCOPED(px_tensor) identity = NULL;
  PX_TRY(px__check_square(self, "cholesky_inverse"));
  if (!px__is_lapacks(self))
    PX_FAIL(PX_UNIMPLEMENTED, "\"cholesky_inverse_out_cpu\" not implemented for '%s'",
            px_dtype_class((px_dtype)self->dtype));
  PX_TRY(identity_like(&identity, self));
  return solve_cholesky(&call->results[0], identity, self, args->upper);
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

// The unit lower triangular and the upper triangular factor of an LU decomposition.
static px_status lower_of(px_tensor **out, const px_tensor *lu) {
  int64_t m = rows_of(lu), k = px__min(m, columns_of(lu));
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) ones = NULL;
  PX_TRY(px_narrow(&part, lu, -1, 0, k));
  PX_TRY(px_tril(&below, part, -1));
  PX_TRY(px_eye(&ones, m, &k, (px_dtype)lu->dtype, px__tensor_device(lu), false, false));
  return px_add(out, below, ones, px_int(1));
}
static px_status upper_of(px_tensor **out, const px_tensor *lu) {
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) above = NULL;
  PX_TRY(px_narrow(&part, lu, -2, 0, px__min(rows_of(lu), columns_of(lu))));
  PX_TRY(px_triu(&above, part, 0));
  return px_contiguous(out, above);
}
static px_status unpack(px_tensor **results, const px_tensor *lu, const px_tensor *pivots) {
  PX_TRY(px__linalg_permutation(&results[0], lu, pivots));
  PX_TRY(lower_of(&results[1], lu));
  return upper_of(&results[2], lu);
}
PX_RUN(linalg_lu) {
  PX_SCOPED(px_tensor) lu = NULL;
  PX_SCOPED(px_tensor) pivots = NULL;
  PX_SCOPED(px_tensor) info = NULL;
  PX_TRY(px__linalg_lu(&lu, &pivots, &info, args->A, args->pivot));
  return unpack(call->results, lu, pivots);
}
static px_status nothing_like(px_tensor **out, const px_tensor *t) {
  int64_t none = 0;
  return px_tensor_empty(out, 1, &none, (px_dtype)t->dtype, px__tensor_device(t));
}
PX_RUN(lu_unpack) {
  const px_tensor *lu = args->LU_data;
  px_tensor **r = call->results;
  if (args->unpack_data && args->unpack_pivots) return unpack(r, lu, args->LU_pivots);
  PX_TRY(args->unpack_pivots ? px__linalg_permutation(&r[0], lu, args->LU_pivots)
                             : nothing_like(&r[0], lu));
  PX_TRY(args->unpack_data ? lower_of(&r[1], lu) : nothing_like(&r[1], lu));
  return args->unpack_data ? upper_of(&r[2], lu) : nothing_like(&r[2], lu);
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

// ---- determinants

// The sign of each row permutation: -1 after an odd number of exchanges, otherwise 1.
static px_status parity(px_tensor **out, const px_tensor *pivots, px_dtype dtype) {
  int64_t last = -1, n = pivots->sizes[pivots->ndim - 1];
  px_device device = px__tensor_device(pivots);
  PX_SCOPED(px_tensor) expected = NULL;
  PX_SCOPED(px_tensor) moved = NULL;
  PX_SCOPED(px_tensor) count = NULL;
  PX_SCOPED(px_tensor) odd = NULL;
  PX_SCOPED(px_tensor) twice = NULL;
  PX_SCOPED(px_tensor) sign = NULL;
  PX_TRY(px_arange(&expected, px_int(1), px_int(n + 1), px_int(1), PX_INT32, device, false, false));
  PX_TRY(px_ne(&moved, pivots, expected));
  PX_TRY(px_sum(&count, moved, &last, 1, false, PX_INT64));
  PX_TRY(px_remainder_scalar(&odd, count, px_int(2)));
  PX_TRY(px_mul_scalar(&twice, odd, px_int(-2)));
  PX_TRY(px_add_scalar(&sign, twice, px_int(1), px_int(1)));
  return px__tensor_to(out, sign, dtype, device);
}
PX_RUN(_linalg_det) {
  px_tensor **r = call->results;
  PX_SCOPED(px_tensor) info = NULL;
  PX_SCOPED(px_tensor) diagonal = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) sign = NULL;
  PX_TRY(px__check_square(args->A, "linalg.det"));
  PX_TRY(px__linalg_lu(&r[1], &r[2], &info, args->A, true));
  PX_TRY(px_diagonal(&diagonal, r[1], 0, -2, -1));
  PX_TRY(px_prod(&product, diagonal, -1, false, PX_DTYPE_NONE));
  PX_TRY(parity(&sign, r[2], (px_dtype)args->A->dtype));
  return px_mul(&r[0], product, sign);
}
PX_RUN(linalg_det) {
  PX_SCOPED(px_tensor) lu = NULL;
  PX_SCOPED(px_tensor) pivots = NULL;
  PX_TRY(px__check_square(args->A, "linalg.det"));
  PX_TRY(px__check_numbers(args->A, "linalg.det", true));
  return px__linalg_det(&call->results[0], &lu, &pivots, args->A);
}
PX_RUN(_linalg_slogdet) {
  int64_t last = -1;
  px_tensor **r = call->results;
  PX_SCOPED(px_tensor) lu = NULL;
  PX_SCOPED(px_tensor) pivots = NULL;
  PX_SCOPED(px_tensor) info = NULL;
  PX_SCOPED(px_tensor) diagonal = NULL;
  PX_SCOPED(px_tensor) signs = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) sign = NULL;
  PX_SCOPED(px_tensor) sizes = NULL;
  PX_SCOPED(px_tensor) logs = NULL;
  PX_TRY(px__check_square(args->A, "linalg.slogdet"));
  PX_TRY(px__linalg_lu(&lu, &pivots, &info, args->A, true));
  PX_TRY(px_diagonal(&diagonal, lu, 0, -2, -1));
  PX_TRY(px_sgn(&signs, diagonal));
  PX_TRY(px_prod(&product, signs, -1, false, PX_DTYPE_NONE));
  PX_TRY(parity(&sign, pivots, (px_dtype)args->A->dtype));
  PX_TRY(px_mul(&r[0], product, sign));
  PX_TRY(px_abs(&sizes, diagonal));
  PX_TRY(px_log(&logs, sizes));
  return px_sum(&r[1], logs, &last, 1, false, PX_DTYPE_NONE);
}
static px_status slogdet(px_tensor **results, const px_tensor *a, const char *name) {
  PX_TRY(px__check_square(a, name));
  PX_TRY(px__check_numbers(a, name, false));
  return px__linalg_slogdet(&results[0], &results[1], a);
}
PX_RUN(linalg_slogdet) { return slogdet(call->results, args->A, "linalg.slogdet"); }
PX_RUN(slogdet) { return slogdet(call->results, args->self, "linalg.slogdet"); }
PX_RUN(logdet) {
  px_tensor *both[2] = {NULL, NULL};
  PX_TRY(slogdet(both, args->self, "logdet"));
  PX_SCOPED(px_tensor) sign = both[0];
  PX_SCOPED(px_tensor) logs = both[1];
  PX_SCOPED(px_tensor) negative = NULL;
  PX_SCOPED(px_tensor) none = NULL;
  if (px_dtype_is_complex((px_dtype)sign->dtype)) {
    PX_TRY(px_log(&none, sign));
    return px_add(&call->results[0], none, logs, px_int(1));
  }
  PX_TRY(px_eq_scalar(&negative, sign, px_int(-1)));
  PX_TRY(px_tensor_from_scalar(&none, px_float(NAN)));
  return px_where(&call->results[0], negative, none, logs);
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
