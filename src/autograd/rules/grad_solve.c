// SPDX-License-Identifier: Apache-2.0
// Gradients of decompositions for solving, of solves, inverses and determinants, composed of
// differentiable ops. References:
// - inverse, determinant, systems: M. Giles 2008, Collected matrix derivative results for forward
//   and reverse mode algorithmic differentiation
// - Cholesky: I. Murray 2016, Differentiation of the Cholesky decomposition
#include <string.h>

#include "autograd/rules/matrices.h"
#include "grad_functions.h"
#include "hidden/solve.h"
#include "phlox/ops/factor.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/solve.h"

// ---- triangles

// L^-1 x or L'^-1 x, with L the unit lower triangle of an LU decomposition.
static px_status by_lower(px_tensor **out, const px_tensor *lu, const px_tensor *x,
                          bool transposed) {
  PX_SCOPED(px_tensor) other = NULL;
  if (!transposed) return px_linalg_solve_triangular(out, lu, x, false, true, true);
  PX_TRY(adjoint(&other, lu));
  return px_linalg_solve_triangular(out, other, x, true, true, true);
}
static px_status by_upper(px_tensor **out, const px_tensor *lu, const px_tensor *x,
                          bool transposed) {
  PX_SCOPED(px_tensor) other = NULL;
  if (!transposed) return px_linalg_solve_triangular(out, lu, x, true, true, false);
  PX_TRY(adjoint(&other, lu));
  return px_linalg_solve_triangular(out, other, x, false, true, false);
}
// x U'^-1.
static px_status right_by_upper(px_tensor **out, const px_tensor *lu, const px_tensor *x) {
  PX_SCOPED(px_tensor) other = NULL;
  PX_TRY(adjoint(&other, lu));
  return px_linalg_solve_triangular(out, other, x, false, false, false);
}
// Strict lower triangle of x plus upper triangle of y.
static px_status triangles(px_tensor **out, const px_tensor *x, const px_tensor *y) {
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) above = NULL;
  PX_TRY(px_tril(&below, x, -1));
  PX_TRY(px_triu(&above, y, 0));
  return px_add(out, below, above, px_int(1));
}

// Half of L'^-1 S L^-1, with S the Hermitian matrix of the lower triangle of L' grad.
px_status px__grad_cholesky_self(px_tensor **out, px_tensor *grad, px_tensor *L, bool upper) {
  PX_SCOPED(px_tensor) lower = NULL;
  PX_SCOPED(px_tensor) g = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) strictly = NULL;
  PX_SCOPED(px_tensor) above = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  PX_SCOPED(px_tensor) half = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) left = NULL;
  if (upper) PX_TRY(adjoint(&lower, L));
  if (upper) PX_TRY(adjoint(&g, grad));
  if (!upper) lower = px_retain(L), g = px_retain(grad);
  PX_TRY(adjoint_times(&product, lower, g));
  PX_TRY(px_tril(&below, product, 0));
  PX_TRY(px_tril(&strictly, product, -1));
  PX_TRY(adjoint(&above, strictly));
  PX_TRY(px_add(&both, below, above, px_int(1)));
  PX_TRY(px_mul_scalar(&half, both, px_float(0.5)));
  PX_TRY(adjoint(&other, lower));
  PX_TRY(px_linalg_solve_triangular(&left, other, half, true, true, false));
  return px_linalg_solve_triangular(out, lower, left, false, false, false);
}

// For A X = B: d_B = A'^-1 grad, d_A = -d_B X'. Likewise for X A = B.
static px_status matrix_gradient(px_tensor **out, const px_tensor *d_b, const px_tensor *x,
                                 bool left) {
  PX_SCOPED(px_tensor) product = NULL;
  PX_TRY(left ? times_adjoint(&product, d_b, x) : adjoint_times(&product, x, d_b));
  return px_neg(out, product);
}
PX_GRAD(triangular) {
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) d_b = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  PX_TRY(adjoint(&other, args->self));
  PX_TRY(px_linalg_solve_triangular(&d_b, other, args->grad, !args->upper, args->left,
                                    args->unitriangular));
  if (args->d_self) {
    int off = args->unitriangular;
    PX_TRY(matrix_gradient(&whole, d_b, args->result, args->left));
    PX_TRY(args->upper ? px_triu(args->d_self, whole, off) : px_tril(args->d_self, whole, -off));
  }
  if (args->d_B) *args->d_B = PX_MOVE(d_b);
  return PX_OK;
}

// ---- LU

// Contribution of the leading square: the lower triangle of L1' grad_L1 - grad_U2 U2' and the upper
// triangle of grad_U1 U1' - L2' grad_L2.
typedef struct blocks {
  px_tensor *square, *below, *right;  // leading k x k block, and the blocks below or right of it
} blocks;
static px_status split_blocks(blocks *out, const px_tensor *t, int64_t k) {
  PX_SCOPED(px_tensor) rows = NULL;
  PX_TRY(px_narrow(&rows, t, -2, 0, k));
  PX_TRY(px_narrow(&out->square, rows, -1, 0, k));
  if (rows_of(t) > k) PX_TRY(px_narrow(&out->below, t, -2, k, rows_of(t) - k));
  if (columns_of(t) > k) PX_TRY(px_narrow(&out->right, t, -1, k, columns_of(t) - k));
  return PX_OK;
}
static void blocks_end(blocks *b) {
  px_release(b->square);
  px_release(b->below);
  px_release(b->right);
}
static px_status lower_part(px_tensor **out, const blocks *lu, const blocks *grad) {
  PX_SCOPED(px_tensor) strict = NULL;
  PX_SCOPED(px_tensor) g = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_tril(&strict, lu->square, -1));
  PX_TRY(px_tril(&g, grad->square, -1));
  PX_TRY(adjoint_times(&product, strict, g));
  PX_TRY(px_add(&sum, product, g, px_int(1)));  // unit diagonal of L
  if (lu->right) PX_TRY(times_adjoint(&other, grad->right, lu->right));
  return plus(out, sum, other, -1);
}
static px_status upper_part(px_tensor **out, const blocks *lu, const blocks *grad) {
  PX_SCOPED(px_tensor) above = NULL;
  PX_SCOPED(px_tensor) g = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_TRY(px_triu(&above, lu->square, 0));
  PX_TRY(px_triu(&g, grad->square, 0));
  PX_TRY(times_adjoint(&product, g, above));
  if (lu->below) PX_TRY(adjoint_times(&other, lu->below, grad->below));
  return plus(out, product, other, -1);
}
static px_status unpermuted(px_tensor **out, const blocks *lu, const blocks *grad) {
  PX_SCOPED(px_tensor) lower = NULL;
  PX_SCOPED(px_tensor) upper = NULL;
  PX_SCOPED(px_tensor) inner = NULL;
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) square = NULL;
  PX_SCOPED(px_tensor) rest = NULL;
  PX_TRY(lower_part(&lower, lu, grad));
  PX_TRY(upper_part(&upper, lu, grad));
  PX_TRY(triangles(&inner, lower, upper));
  PX_TRY(by_lower(&left, lu->square, inner, true));
  PX_TRY(right_by_upper(&square, lu->square, left));
  if (lu->below) PX_TRY(right_by_upper(&rest, lu->square, grad->below));
  if (lu->right) PX_TRY(by_lower(&rest, lu->square, grad->right, true));
  if (rest) return px_cat(out, (px_tensor *[]){square, rest}, 2, lu->below ? -2 : -1);
  *out = PX_MOVE(square);
  return PX_OK;
}
px_status px__grad_lu_self(px_tensor **out, px_tensor *grad, px_tensor *LU, px_tensor *pivots,
                           bool pivot) {
  int64_t m = rows_of(LU), n = columns_of(LU), k = m < n ? m : n;
  blocks lu = {0}, g = {0};
  PX_SCOPED(px_tensor) permutation = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  px_status status = split_blocks(&lu, LU, k);
  if (status == PX_OK) status = split_blocks(&g, grad, k);
  if (status == PX_OK) status = unpermuted(&rows, &lu, &g);
  blocks_end(&lu);
  blocks_end(&g);
  if (status != PX_OK) return status;
  PX_TRY(px__linalg_permutation(&permutation, LU, pivots));
  return px_matmul(out, permutation, rows);
}

// X = U^-1 L^-1 P' B: d_U = R = -U'^-1 grad X', d_L = L'^-1 R U'.
static px_status lu_gradient(px_tensor **out, const px_tensor *lu, const px_tensor *grad,
                             const px_tensor *x) {
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) upper = NULL;
  PX_SCOPED(px_tensor) u = NULL;
  PX_SCOPED(px_tensor) right = NULL;
  PX_SCOPED(px_tensor) lower = NULL;
  PX_TRY(by_upper(&y, lu, grad, true));
  PX_TRY(times_adjoint(&product, y, x));
  PX_TRY(px_neg(&upper, product));
  PX_TRY(px_triu(&u, lu, 0));
  PX_TRY(times_adjoint(&right, upper, u));
  PX_TRY(by_lower(&lower, lu, right, true));
  return triangles(out, lower, upper);
}
// X = P L'^-1 U'^-1 B: with W = P' X and Z = L' W, d_L = -W (L^-1 P' grad)' and
// d_U = -Z (U^-1 L^-1 P' grad)'.
static px_status lu_gradient_adjoint(px_tensor **out, const px_tensor *lu, const px_tensor *p,
                                     const px_tensor *grad, const px_tensor *x) {
  PX_SCOPED(px_tensor) g = NULL;
  PX_SCOPED(px_tensor) w = NULL;
  PX_SCOPED(px_tensor) d_z = NULL;
  PX_SCOPED(px_tensor) d_b = NULL;
  PX_SCOPED(px_tensor) strict = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) z = NULL;
  PX_SCOPED(px_tensor) lower = NULL;
  PX_SCOPED(px_tensor) upper = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  PX_TRY(adjoint_times(&g, p, grad));
  PX_TRY(adjoint_times(&w, p, x));
  PX_TRY(by_lower(&d_z, lu, g, false));
  PX_TRY(by_upper(&d_b, lu, d_z, false));
  PX_TRY(px_tril(&strict, lu, -1));
  PX_TRY(adjoint_times(&part, strict, w));
  PX_TRY(px_add(&z, part, w, px_int(1)));
  PX_TRY(times_adjoint(&lower, w, d_z));
  PX_TRY(times_adjoint(&upper, z, d_b));
  PX_TRY(triangles(&both, lower, upper));
  return px_neg(out, both);
}
PX_GRAD(lu_solve) {
  PX_SCOPED(px_tensor) p = NULL;
  if (args->d_B)
    PX_TRY(px_linalg_lu_solve(args->d_B, args->LU, args->pivots, args->grad, true, !args->adjoint));
  if (!args->d_LU) return PX_OK;
  if (!args->adjoint) return lu_gradient(args->d_LU, args->LU, args->grad, args->result);
  PX_TRY(px__linalg_permutation(&p, args->LU, args->pivots));
  return lu_gradient_adjoint(args->d_LU, args->LU, p, args->grad, args->result);
}

// ---- systems, inverses, determinants

px_status px__grad_inverse_self(px_tensor **out, px_tensor *grad, px_tensor *inverse) {
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) left = NULL;
  PX_TRY(adjoint(&other, inverse));
  PX_TRY(px_matmul(&left, other, grad));
  return negative_product(out, left, other);
}

// A'^-1 x, with A's decomposition. With create_graph, with A itself.
static px_status solve_adjoint(px_tensor **out, const px_tensor *a, const px_tensor *lu,
                               const px_tensor *pivots, const px_tensor *x, bool left) {
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) info = NULL;
  if (!px_grad_enabled() && lu) return px_linalg_lu_solve(out, lu, pivots, x, left, true);
  PX_TRY(adjoint(&other, a));
  return px_linalg_solve_ex(out, &info, other, x, left, false);
}
PX_GRAD(solve) {
  PX_SCOPED(px_tensor) d_b = NULL;
  if (!args->grad_result) return PX_OK;
  PX_TRY(solve_adjoint(&d_b, args->A, args->LU, args->pivots, args->grad_result, args->left));
  if (args->d_A) PX_TRY(matrix_gradient(args->d_A, d_b, args->result, args->left));
  if (args->d_B) *args->d_B = PX_MOVE(d_b);
  return PX_OK;
}

// n x n identity matrices, each scaled by one number.
static px_status scaled_identity(px_tensor **out, const px_tensor *numbers, int64_t n) {
  int64_t sizes[PX_MAX_DIMS];
  int ndim = px_tensor_ndim(numbers);
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  memcpy(sizes, px_tensor_sizes(numbers), (size_t)ndim * sizeof *sizes);
  sizes[ndim] = n;
  PX_TRY(px_unsqueeze(&wide, numbers, -1));
  PX_TRY(px_expand(&rows, wide, sizes, ndim + 1));
  return px_diag_embed(out, rows, 0, -2, -1);
}
// Replaces zeros on the diagonal of a decomposition by machine epsilon.
static px_status regular(px_tensor **out, const px_tensor *lu) {
  double tiny = px_dtype_to_real(px_tensor_dtype(lu)) == PX_FLOAT64 ? 0x1p-52 : 0x1p-23;
  PX_SCOPED(px_tensor) diagonal = NULL;
  PX_SCOPED(px_tensor) zero = NULL;
  PX_SCOPED(px_tensor) small = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(px_diagonal(&diagonal, lu, 0, -2, -1));
  PX_TRY(px_eq_scalar(&zero, diagonal, px_int(0)));
  PX_TRY(px_to(&small, zero, px_tensor_dtype(lu), PX_DEVICE_NONE, false, false));
  PX_TRY(px_diag_embed(&wide, small, 0, -2, -1));
  return px_add(out, lu, wide, px_float(tiny));
}
static px_status has_zero(bool *out, const px_tensor *t) {
  PX_SCOPED(px_tensor) zero = NULL;
  PX_TRY(px_eq_scalar(&zero, t, px_int(0)));
  return px__any_of_samples(out, zero);
}
// grad times the conjugate cofactor matrix, by singular values:
// conj(det U det V') U diag(products of the other singular values) V'. It is differentiable for
// singular matrices.
static px_status cofactors(px_tensor **out, const px_tensor *grad, const px_tensor *a) {
  int64_t sizes[PX_MAX_DIMS], n = rows_of(a);
  PX_SCOPED(px_tensor) u = NULL;
  PX_SCOPED(px_tensor) s = NULL;
  PX_SCOPED(px_tensor) vh = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) own = NULL;
  PX_SCOPED(px_tensor) others = NULL;
  PX_SCOPED(px_tensor) products = NULL;
  PX_TRY(px_linalg_svd(&u, &s, &vh, a, true, NULL));
  memcpy(sizes, px_tensor_sizes(a), (size_t)px_tensor_ndim(a) * sizeof *sizes);
  PX_TRY(px_unsqueeze(&wide, s, -2));
  PX_TRY(px_expand(&rows, wide, sizes, px_tensor_ndim(a)));
  PX_TRY(px_eye(&own, n, NULL, PX_BOOL, px_tensor_device(a), false, false));
  PX_TRY(px_masked_fill(&others, rows, own, px_int(1)));
  PX_TRY(px_prod(&products, others, -1, false, PX_DTYPE_NONE));
  PX_SCOPED(px_tensor) det_u = NULL;
  PX_SCOPED(px_tensor) det_v = NULL;
  PX_SCOPED(px_tensor) dets = NULL;
  PX_SCOPED(px_tensor) sign = NULL;
  PX_SCOPED(px_tensor) scale = NULL;
  PX_SCOPED(px_tensor) column = NULL;
  PX_SCOPED(px_tensor) factors = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_TRY(px_linalg_det(&det_u, u));
  PX_TRY(px_linalg_det(&det_v, vh));
  PX_TRY(px_mul(&dets, det_u, det_v));
  PX_TRY(px_conj(&sign, dets));
  PX_TRY(px_mul(&scale, sign, grad));
  PX_TRY(px_unsqueeze(&column, scale, -1));
  PX_TRY(px_mul(&factors, products, column));
  PX_TRY(px_unsqueeze(&row, factors, -2));
  PX_TRY(px_mul(&scaled, u, row));
  return px_matmul(out, scaled, vh);
}
// Uses the cofactor matrix det(A) A'^-1. For a singular matrix it is computed from a regularized
// decomposition.
px_status px__grad_det_self(px_tensor **out, px_tensor *grad, px_tensor *result, px_tensor *A,
                            px_tensor *LU, px_tensor *pivots) {
  PX_SCOPED(px_tensor) regular_lu = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  PX_SCOPED(px_tensor) conjugate = NULL;
  PX_SCOPED(px_tensor) scale = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  bool again = px_grad_enabled(), singular = false;
  if (again) PX_TRY(has_zero(&singular, result));
  if (singular) return cofactors(out, grad, A);
  if (!again) {
    PX_SCOPED(px_tensor) diagonal = NULL;
    PX_SCOPED(px_tensor) permutation = NULL;
    PX_SCOPED(px_tensor) product = NULL;
    PX_SCOPED(px_tensor) sign = NULL;
    PX_TRY(regular(&regular_lu, LU));
    PX_TRY(px__linalg_permutation(&permutation, LU, pivots));
    PX_TRY(px_diagonal(&diagonal, regular_lu, 0, -2, -1));
    PX_TRY(px_prod(&product, diagonal, -1, false, PX_DTYPE_NONE));
    PX_TRY(px_linalg_det(&sign, permutation));
    PX_TRY(px_mul(&whole, product, sign));
  }
  PX_TRY(px_conj(&conjugate, again ? result : whole));
  PX_TRY(px_mul(&scale, grad, conjugate));
  PX_TRY(scaled_identity(&scaled, scale, rows_of(A)));
  return solve_adjoint(out, A, regular_lu, pivots, scaled, true);
}

// Contribution of the sign's phase: i * imag(grad conj(sign)).
static px_status sign_gradient(px_tensor **out, const px_tensor *grad, const px_tensor *sign) {
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) mirrored = NULL;
  PX_SCOPED(px_tensor) twice = NULL;
  PX_TRY(px_conj(&other, sign));
  PX_TRY(px_mul(&product, grad, other));
  PX_TRY(px_conj(&mirrored, product));
  PX_TRY(px_sub(&twice, product, mirrored, px_int(1)));
  return px_mul_scalar(out, twice, px_float(0.5));
}
PX_GRAD(slogdet) {
  bool has_sign = args->grad_sign && px_dtype_is_complex(px_tensor_dtype(args->A));
  PX_SCOPED(px_tensor) logs = NULL;
  PX_SCOPED(px_tensor) angle = NULL;
  PX_SCOPED(px_tensor) numbers = NULL;
  PX_SCOPED(px_tensor) diagonal = NULL;
  if ((!args->grad_logabsdet && !has_sign) || !args->d_A) return PX_OK;
  if (has_sign) PX_TRY(sign_gradient(&angle, args->grad_sign, args->sign));
  if (args->grad_logabsdet)
    PX_TRY(
        px_to(&logs, args->grad_logabsdet, px_tensor_dtype(args->A), PX_DEVICE_NONE, false, false));
  if (logs)
    PX_TRY(plus(&numbers, logs, angle, 1));
  else
    numbers = PX_MOVE(angle);
  PX_TRY(scaled_identity(&diagonal, numbers, rows_of(args->A)));
  return solve_adjoint(args->d_A, args->A, NULL, NULL, diagonal, true);
}
