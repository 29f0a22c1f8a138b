// SPDX-License-Identifier: Apache-2.0
// Gradients of orthogonal decompositions, composed of differentiable ops. References:
// - eigenvalues and singular values: M. Giles 2008, Collected matrix derivative results for
//   forward and reverse mode algorithmic differentiation
// - QR: S. Walter and L. Lehmann 2010, Algorithmic differentiation of linear algebra functions
// - pseudoinverse: G. Golub and V. Pereyra 1973, The differentiation of pseudo-inverses
#include <math.h>
#include <string.h>

#include "autograd/rules/matrices.h"
#include "grad_functions.h"
#include "hidden/factor.h"
#include "phlox/ops/factor.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/powers.h"
#include "phlox/ops/solve.h"

static px_status identity(px_tensor **out, int64_t rows, int64_t columns, const px_tensor *like) {
  return px_eye(out, rows, &columns, px_tensor_dtype(like), px_tensor_device(like), false, false);
}
// x y', or no result if either is NULL.
static px_status product_or_none(px_tensor **out, const px_tensor *x, const px_tensor *y) {
  return x && y ? times_adjoint(out, x, y) : PX_OK;
}
// Diagonal matrix of real numbers in the dtype of v.
static px_status diagonal_like(px_tensor **out, const px_tensor *numbers, const px_tensor *v) {
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(px_to(&wide, numbers, px_tensor_dtype(v), PX_DEVICE_NONE, false, false));
  return px_diag_embed(out, wide, 0, -2, -1);
}
static px_status difference(px_tensor **out, const px_tensor *x, const px_tensor *y) {
  if (x) return plus(out, x, y, -1);
  return y ? px_neg(out, y) : PX_OK;
}
static px_status sum(px_tensor **out, const px_tensor *x, const px_tensor *y) {
  if (x) return plus(out, x, y, 1);
  if (y) *out = px_retain(y);
  return PX_OK;
}

// ---- QR

// Twice the Hermitian matrix with the lower triangle of x. Imaginary parts of the diagonal cancel.
static px_status twice_hermitian(px_tensor **out, const px_tensor *x) {
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) strictly = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_TRY(px_tril(&below, x, 0));
  PX_TRY(px_tril(&strictly, x, -1));
  PX_TRY(px_add(&both, below, strictly, px_int(1)));
  PX_TRY(adjoint(&other, both));
  return px_add(out, both, other, px_int(1));
}
// Square R: (grad_Q + Q S) R'^-1, with S the Hermitian matrix of the lower triangle of
// R grad_R' - grad_Q' Q.
static px_status square_qr(px_tensor **out, const px_tensor *q, const px_tensor *r,
                           const px_tensor *d_q, const px_tensor *d_r) {
  PX_SCOPED(px_tensor) by_r = NULL;
  PX_SCOPED(px_tensor) by_q = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  PX_SCOPED(px_tensor) twice = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  PX_SCOPED(px_tensor) along = NULL;
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_TRY(product_or_none(&by_r, d_r ? r : NULL, d_r));
  if (d_q) PX_TRY(adjoint_times(&by_q, d_q, q));
  PX_TRY(difference(&both, by_r, by_q));
  PX_TRY(twice_hermitian(&twice, both));
  PX_TRY(px_mul_scalar(&whole, twice, px_float(0.5)));
  PX_TRY(px_matmul(&along, q, whole));
  PX_TRY(plus(&left, along, d_q, 1));
  PX_TRY(adjoint(&other, r));
  return px_linalg_solve_triangular(out, other, left, false, false, false);
}
// More columns than rows: the trailing columns are A2 = Q R2. Their gradient is Q grad_R2, and Q
// also receives A2 grad_R2'.
static px_status wide_qr(px_tensor **out, const px_tensor *q, const px_tensor *r,
                         const px_tensor *d_q, const px_tensor *d_r) {
  int64_t m = rows_of(r), n = columns_of(r);
  PX_SCOPED(px_tensor) r1 = NULL;
  PX_SCOPED(px_tensor) r2 = NULL;
  PX_SCOPED(px_tensor) d_r1 = NULL;
  PX_SCOPED(px_tensor) d_r2 = NULL;
  PX_SCOPED(px_tensor) last = NULL;
  PX_SCOPED(px_tensor) a2 = NULL;
  PX_SCOPED(px_tensor) more = NULL;
  PX_SCOPED(px_tensor) d_whole = NULL;
  PX_SCOPED(px_tensor) first = NULL;
  PX_TRY(px_narrow(&r1, r, -1, 0, m));
  PX_TRY(px_narrow(&r2, r, -1, m, n - m));
  if (d_r) {
    PX_TRY(px_narrow(&d_r1, d_r, -1, 0, m));
    PX_TRY(px_narrow(&d_r2, d_r, -1, m, n - m));
    PX_TRY(px_matmul(&last, q, d_r2));
    PX_TRY(px_matmul(&a2, q, r2));
    PX_TRY(times_adjoint(&more, a2, d_r2));
  } else {
    PX_TRY(px_zeros_like(&d_r1, r1, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
    PX_TRY(px_zeros_like(&last, r2, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  }
  PX_TRY(sum(&d_whole, d_q, more));
  PX_TRY(square_qr(&first, q, r1, d_whole, d_r1));
  return px_cat(out, (px_tensor *[]){first, last}, 2, -1);
}
PX_GRAD(qr) {
  bool complete = !strcmp(args->mode, "complete");
  PX_CHECK(strcmp(args->mode, "r") != 0, PX_RUNTIME,
           "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please "
           "use linalg.qr(A, mode='reduced') if you are going to require gradients.");
  PX_CHECK(!complete || rows_of(args->R) <= columns_of(args->R), PX_RUNTIME,
           "The QR decomposition is not differentiable when mode='complete' and nrows > ncols");
  if (!args->d_A || (!args->grad_Q && !args->grad_R)) return PX_OK;
  if (rows_of(args->R) < columns_of(args->R))
    return wide_qr(args->d_A, args->Q, args->R, args->grad_Q, args->grad_R);
  return square_qr(args->d_A, args->Q, args->R, args->grad_Q, args->grad_R);
}

// ---- Householder reflections: X becomes X - tau v (v' X), for one column v after another

typedef struct reflections {
  px_tensor *vectors;  // unit lower trapezoidal
  const px_tensor *tau;
  int64_t count;
} reflections;
static px_status reflections_of(reflections *out, const px_tensor *input, const px_tensor *tau) {
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) ones = NULL;
  out->tau = tau, out->count = columns_of(tau);
  PX_TRY(px_narrow(&part, input, -1, 0, out->count));
  PX_TRY(px_tril(&below, part, -1));
  PX_TRY(identity(&ones, rows_of(input), out->count, input));
  return px_add(&out->vectors, below, ones, px_int(1));
}
// The k-th vector as a column, and its tau as a 1x1 matrix.
static px_status vector_of(px_tensor **v, px_tensor **tau, const reflections *r, int64_t k) {
  PX_SCOPED(px_tensor) number = NULL;
  PX_TRY(px_narrow(v, r->vectors, -1, k, 1));
  PX_TRY(px_narrow(&number, r->tau, -1, k, 1));
  return px_unsqueeze(tau, number, -1);
}
static px_status reflect(px_tensor **out, const px_tensor *x, const px_tensor *v,
                         const px_tensor *tau) {
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_TRY(adjoint_times(&row, v, x));
  PX_TRY(px_mul(&scaled, v, tau));
  PX_TRY(px_matmul(&part, scaled, row));
  return px_sub(out, x, part, px_int(1));
}
// Gradients of v and tau for one reflection of x with output gradient `grad`:
// d_v = -(conj(tau) grad x' v + tau x grad' v), d_tau = -(v' grad) (x' v).
static px_status reflect_back(px_tensor **d_v, px_tensor **d_tau, const px_tensor *x,
                              const px_tensor *v, const px_tensor *tau, const px_tensor *grad) {
  int64_t last = -1;
  PX_SCOPED(px_tensor) xv = NULL;
  PX_SCOPED(px_tensor) gv = NULL;
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  PX_SCOPED(px_tensor) conjugate = NULL;
  PX_SCOPED(px_tensor) scaled_one = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) number = NULL;
  PX_TRY(adjoint_times(&xv, x, v));
  PX_TRY(adjoint_times(&gv, grad, v));
  PX_TRY(px_matmul(&one, grad, xv));
  PX_TRY(px_matmul(&other, x, gv));
  PX_TRY(px_conj(&conjugate, tau));
  PX_TRY(px_mul(&scaled_one, one, conjugate));
  PX_TRY(px_mul(&scaled, other, tau));
  PX_TRY(px_add(&both, scaled_one, scaled, px_int(1)));
  PX_TRY(px_neg(d_v, both));
  PX_TRY(adjoint_times(&product, gv, xv));
  PX_TRY(px_neg(&number, product));
  return px_squeeze_dim(d_tau, number, &last, 1);
}
// A sequence of reflections, forward and backward.
typedef struct steps {
  reflections r;
  bool ascending;
  px_tensor **x;  // input of each reflection
  px_tensor **d_v, **d_tau;
} steps;
static int64_t step_index(const steps *s, int64_t k) {
  return s->ascending ? k : s->r.count - 1 - k;
}
static px_status run_forward(steps *s, const px_tensor *start) {
  s->x[0] = px_retain(start);
  for (int64_t k = 0; k + 1 < s->r.count; k++) {
    PX_SCOPED(px_tensor) v = NULL;
    PX_SCOPED(px_tensor) tau = NULL;
    PX_TRY(vector_of(&v, &tau, &s->r, step_index(s, k)));
    PX_TRY(reflect(&s->x[k + 1], s->x[k], v, tau));
  }
  return PX_OK;
}
static px_status run_backward(px_tensor **d_start, steps *s, const px_tensor *grad) {
  PX_SCOPED(px_tensor) g = px_retain(grad);
  for (int64_t k = s->r.count - 1; k >= 0; k--) {
    int64_t at = step_index(s, k);
    px_tensor *before = NULL;
    PX_SCOPED(px_tensor) v = NULL;
    PX_SCOPED(px_tensor) tau = NULL;
    PX_SCOPED(px_tensor) conjugate = NULL;
    PX_TRY(vector_of(&v, &tau, &s->r, at));
    PX_TRY(reflect_back(&s->d_v[at], &s->d_tau[at], s->x[k], v, tau, g));
    PX_TRY(px_conj(&conjugate, tau));
    PX_TRY(reflect(&before, g, v, conjugate));
    px_release(g);
    g = before;
  }
  *d_start = PX_MOVE(g);
  return PX_OK;
}
// Assembles the gradients of the vectors as a matrix of n columns, and of tau as a row.
static px_status gather(px_tensor **d_input, px_tensor **d_tau, const steps *s, int64_t n) {
  PX_SCOPED(px_tensor) columns = NULL;
  PX_SCOPED(px_tensor) below = NULL;
  if (d_tau) PX_TRY(px_cat(d_tau, s->d_tau, s->r.count, -1));
  if (!d_input) return PX_OK;
  PX_TRY(px_cat(&columns, s->d_v, s->r.count, -1));
  PX_TRY(px_tril(&below, columns, -1));
  return px_constant_pad_nd(d_input, below, (const int64_t[]){0, n - s->r.count}, 2, px_int(0));
}
static px_status reflections_back(px_tensor **d_input, px_tensor **d_tau, px_tensor **d_start,
                                  const px_tensor *input, const px_tensor *tau,
                                  const px_tensor *start, const px_tensor *grad, bool ascending) {
  steps s = {.ascending = ascending};
  int64_t count = columns_of(tau);
  px_tensor **scratch = NULL;
  PX_SCOPED(px_tensor) at_start = NULL;
  if (count == 0) {
    if (d_start) *d_start = px_retain(grad);
    return PX_OK;
  }
  PX_TRY(px_alloc((void **)&scratch, (size_t)(3 * count) * sizeof *scratch));
  s.x = scratch, s.d_v = scratch + count, s.d_tau = scratch + 2 * count;
  px_status status = reflections_of(&s.r, input, tau);
  if (status == PX_OK) status = run_forward(&s, start);
  if (status == PX_OK) status = run_backward(&at_start, &s, grad);
  if (status == PX_OK) status = gather(d_input, d_tau, &s, columns_of(input));
  for (int64_t k = 0; k < 3 * count; k++) px_release(scratch[k]);
  px_free(scratch);
  px_release(s.r.vectors);
  if (status == PX_OK && d_start) *d_start = PX_MOVE(at_start);
  return status;
}
PX_GRAD(householder) {
  PX_SCOPED(px_tensor) start = NULL;
  PX_TRY(identity(&start, rows_of(args->input), args->columns, args->input));
  return reflections_back(args->d_input, args->d_tau, NULL, args->input, args->tau, start,
                          args->grad, false);
}
// Q C applies the reflections last to first. Q' C applies them first to last, with conjugated tau.
// C Q is (Q' C')'.
PX_GRAD(ormqr) {
  const px_tensor *other = args->input3, *grad = args->grad;
  bool ascending = args->transpose == args->left;
  PX_SCOPED(px_tensor) tau = NULL;
  PX_SCOPED(px_tensor) d_tau = NULL;
  PX_SCOPED(px_tensor) start = NULL;
  PX_SCOPED(px_tensor) g = NULL;
  PX_SCOPED(px_tensor) d_start = NULL;
  if (!args->left) PX_TRY(adjoint(&start, other));
  if (!args->left) PX_TRY(adjoint(&g, grad));
  if (args->left) start = px_retain(other), g = px_retain(grad);
  if (ascending) PX_TRY(px_conj(&tau, args->input2));
  if (!ascending) tau = px_retain(args->input2);
  PX_TRY(reflections_back(args->d_self, args->d_input2 ? &d_tau : NULL,
                          args->d_input3 ? &d_start : NULL, args->self, tau, start, g, ascending));
  if (d_tau && ascending) PX_TRY(px_conj(args->d_input2, d_tau));
  if (d_tau && !ascending) *args->d_input2 = PX_MOVE(d_tau);
  if (!args->d_input3) return PX_OK;
  if (!args->left) return adjoint(args->d_input3, d_start);
  *args->d_input3 = PX_MOVE(d_start);
  return PX_OK;
}

// ---- eigenvalues and singular values

// Entry (i, j): values_j - values_i; `diagonal` on the diagonal.
static px_status gaps(px_tensor **out, const px_tensor *values, double diagonal) {
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) column = NULL;
  PX_SCOPED(px_tensor) differences = NULL;
  PX_SCOPED(px_tensor) ones = NULL;
  int64_t n = columns_of(values);
  PX_TRY(px_unsqueeze(&row, values, -2));
  PX_TRY(px_unsqueeze(&column, values, -1));
  PX_TRY(px_sub(&differences, row, column, px_int(1)));
  PX_TRY(px_eye(&ones, n, NULL, PX_BOOL, px_tensor_device(values), false, false));
  return px_masked_fill(out, differences, ones, px_float(diagonal));
}
// Complex eigenvectors and singular vectors are defined up to a phase. A loss independent of it has
// a real diagonal of x, up to rounding; fails otherwise.
static px_status check_phase(const px_tensor *x, const char *text) {
  bool found;
  PX_SCOPED(px_tensor) diagonal = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) sizes = NULL;
  PX_SCOPED(px_tensor) large = NULL;
  PX_TRY(px_diagonal(&diagonal, x, 0, -2, -1));
  PX_TRY(px_imag(&part, diagonal));
  PX_TRY(px_abs(&sizes, part));
  PX_TRY(px_gt_scalar(&large, sizes, px_float(1e-2)));
  PX_TRY(px__any_of_samples(&found, large));
  PX_CHECK(!found, PX_RUNTIME, "%s", text);
  return PX_OK;
}
#define EIGENVECTORS \
  "The eigenvectors in the complex case are specified up to multiplication by e^{i phi}. The " \
  "specified loss function depends on this quantity, so it is ill-defined."
static const char eigh_phase[] = "linalg_eigh_backward: " EIGENVECTORS;
static const char eig_phase[] = "linalg_eig_backward: " EIGENVECTORS;
static const char svd_phase[] =
    "svd_backward: The singular vectors in the complex case are specified up to multiplication by "
    "e^{i phi}. The specified loss function depends on this phase term, making it ill-defined.";

// The eigenvector term of V'^-1 (diag(grad_L) + (V' grad_V - V' V diag(Re(V' grad_V))) /
// conj(gaps)) V'.
static px_status eig_inner(px_tensor **out, const px_tensor *v, const px_tensor *d_v,
                           const px_tensor *values) {
  PX_SCOPED(px_tensor) rotation = NULL;
  PX_SCOPED(px_tensor) diagonal = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) along = NULL;
  PX_SCOPED(px_tensor) across = NULL;
  PX_SCOPED(px_tensor) gap = NULL;
  PX_SCOPED(px_tensor) mirrored = NULL;
  PX_TRY(adjoint_times(&rotation, v, d_v));
  PX_TRY(check_phase(rotation, eig_phase));
  PX_TRY(px_diagonal(&diagonal, rotation, 0, -2, -1));
  PX_TRY(px_real(&part, diagonal));
  PX_TRY(px_unsqueeze(&row, part, -2));
  PX_TRY(px_mul(&scaled, v, row));
  PX_TRY(adjoint_times(&along, v, scaled));
  PX_TRY(px_sub(&across, rotation, along, px_int(1)));
  PX_TRY(gaps(&gap, values, INFINITY));
  PX_TRY(px_conj(&mirrored, gap));
  return px_div(out, across, mirrored);
}
PX_GRAD(eig) {
  const px_tensor *v = args->eigenvectors;
  PX_SCOPED(px_tensor) across = NULL;
  PX_SCOPED(px_tensor) diagonal = NULL;
  PX_SCOPED(px_tensor) inner = NULL;
  PX_SCOPED(px_tensor) right = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) info = NULL;
  if (!args->d_self || (!args->grad_eigenvalues && !args->grad_eigenvectors)) return PX_OK;
  if (args->grad_eigenvectors)
    PX_TRY(eig_inner(&across, v, args->grad_eigenvectors, args->eigenvalues));
  if (args->grad_eigenvalues) PX_TRY(px_diag_embed(&diagonal, args->grad_eigenvalues, 0, -2, -1));
  PX_TRY(sum(&inner, across, diagonal));
  PX_TRY(times_adjoint(&right, inner, v));
  PX_TRY(adjoint(&other, v));
  return px_linalg_solve_ex(args->d_self, &info, other, right, true, false);
}
// (x - x') / gaps: only the skew part of x keeps the vectors orthonormal.
static px_status skewed(px_tensor **out, const px_tensor *x, const px_tensor *gap) {
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) skew = NULL;
  PX_TRY(adjoint(&other, x));
  PX_TRY(px_sub(&skew, x, other, px_int(1)));
  return px_div(out, skew, gap);
}
// V (diag(grad_L) + (V' grad_V - grad_V' V) / gaps / 2) V'.
PX_GRAD(eigh) {
  const px_tensor *v = args->eigenvectors;
  PX_SCOPED(px_tensor) inner = NULL;
  if (!args->d_self || (!args->grad_eigenvalues && !args->grad_eigenvectors)) return PX_OK;
  if (args->grad_eigenvalues) PX_TRY(diagonal_like(&inner, args->grad_eigenvalues, v));
  if (args->grad_eigenvectors) {
    PX_SCOPED(px_tensor) gap = NULL;
    PX_SCOPED(px_tensor) rotation = NULL;
    PX_SCOPED(px_tensor) twice = NULL;
    PX_SCOPED(px_tensor) scaled = NULL;
    PX_SCOPED(px_tensor) whole = NULL;
    PX_TRY(gaps(&gap, args->eigenvalues, INFINITY));
    PX_TRY(adjoint_times(&rotation, v, args->grad_eigenvectors));
    if (px_dtype_is_complex(px_tensor_dtype(v))) PX_TRY(check_phase(rotation, eigh_phase));
    PX_TRY(skewed(&twice, rotation, gap));
    PX_TRY(px_mul_scalar(&scaled, twice, px_float(0.5)));
    PX_TRY(sum(&whole, scaled, inner));
    px_release(inner);
    inner = PX_MOVE(whole);
  }
  PX_SCOPED(px_tensor) left = NULL;
  PX_TRY(px_matmul(&left, v, inner));
  return times_adjoint(args->d_self, left, v);
}

typedef struct svd {
  px_tensor *u, *s, *vh, *d_u, *d_s, *d_vh;  // leading columns; gradients may be NULL
  px_tensor *row, *column;                   // s as a row and a column, for scaling
} svd;
static void svd_end(svd *x) {
  px_tensor *all[] = {x->u, x->s, x->vh, x->d_u, x->d_s, x->d_vh, x->row, x->column};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) px_release(all[i]);
}
// Adds the phase term of U. A common phase of a pair of vectors has no effect. A phase of one alone
// contributes i * imag(diagonal) / S.
static px_status with_phases(px_tensor **out, const px_tensor *inner, const svd *x,
                             const px_tensor *u_rotation) {
  PX_SCOPED(px_tensor) diagonal = NULL;
  PX_SCOPED(px_tensor) mirrored = NULL;
  PX_SCOPED(px_tensor) twice = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  if (!px_dtype_is_complex(px_tensor_dtype(u_rotation))) return plus(out, inner, NULL, 1);
  PX_TRY(px_diagonal(&diagonal, u_rotation, 0, -2, -1));
  PX_TRY(px_conj(&mirrored, diagonal));
  PX_TRY(px_sub(&twice, diagonal, mirrored, px_int(1)));
  PX_TRY(px_div(&scaled, twice, x->s));
  PX_TRY(px_diag_embed(&wide, scaled, 0, -2, -1));
  return px_add(out, inner, wide, px_float(0.5));
}
// The factor between U and Vh: U's rotation times S, S times V's
// rotation, and grad_S on the diagonal.
static px_status svd_inner(px_tensor **out, const svd *x, const px_tensor *u_rotation,
                           const px_tensor *v_rotation) {
  PX_SCOPED(px_tensor) squares = NULL;
  PX_SCOPED(px_tensor) gap = NULL;
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  PX_SCOPED(px_tensor) diagonal = NULL;
  PX_TRY(px_mul(&squares, x->s, x->s));
  PX_TRY(gaps(&gap, squares, INFINITY));
  if (u_rotation) {
    PX_SCOPED(px_tensor) rotation = NULL;
    PX_SCOPED(px_tensor) scaled = NULL;
    PX_TRY(skewed(&rotation, u_rotation, gap));
    PX_TRY(px_mul(&scaled, rotation, x->row));
    PX_TRY(with_phases(&one, scaled, x, u_rotation));
  }
  if (v_rotation) {
    PX_SCOPED(px_tensor) rotation = NULL;
    PX_TRY(skewed(&rotation, v_rotation, gap));
    PX_TRY(px_mul(&other, rotation, x->column));
  }
  PX_TRY(sum(&both, one, other));
  if (x->d_s) PX_TRY(diagonal_like(&diagonal, x->d_s, x->u));
  return sum(out, both, diagonal);
}
// Adds the components outside the spaces of U and V: (grad_U - U U'
// grad_U) / S Vh, and likewise for Vh.
static px_status svd_outer(px_tensor **out, const svd *x, const px_tensor *u_rotation,
                           const px_tensor *v_rotation, const px_tensor *inner) {
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  PX_TRY(px_matmul(&left, x->u, inner));
  PX_TRY(px_matmul(&whole, left, x->vh));
  if (u_rotation && rows_of(x->u) > columns_of(x->u)) {
    PX_SCOPED(px_tensor) inside = NULL;
    PX_SCOPED(px_tensor) outside = NULL;
    PX_SCOPED(px_tensor) scaled = NULL;
    PX_SCOPED(px_tensor) part = NULL;
    px_tensor *more = NULL;
    PX_TRY(px_matmul(&inside, x->u, u_rotation));
    PX_TRY(px_sub(&outside, x->d_u, inside, px_int(1)));
    PX_TRY(px_div(&scaled, outside, x->row));
    PX_TRY(px_matmul(&part, scaled, x->vh));
    PX_TRY(px_add(&more, whole, part, px_int(1)));
    px_release(whole);
    whole = more;
  }
  if (v_rotation && columns_of(x->vh) > rows_of(x->vh)) {
    PX_SCOPED(px_tensor) inside = NULL;
    PX_SCOPED(px_tensor) outside = NULL;
    PX_SCOPED(px_tensor) scaled = NULL;
    PX_SCOPED(px_tensor) part = NULL;
    px_tensor *more = NULL;
    PX_TRY(adjoint_times(&inside, v_rotation, x->vh));
    PX_TRY(px_sub(&outside, x->d_vh, inside, px_int(1)));
    PX_TRY(px_div(&scaled, outside, x->column));
    PX_TRY(px_matmul(&part, x->u, scaled));
    PX_TRY(px_add(&more, whole, part, px_int(1)));
    px_release(whole);
    whole = more;
  }
  *out = PX_MOVE(whole);
  return PX_OK;
}
// Fails if the loss depends on the common phase of pairs of singular
// vectors.
static px_status check_phases(const px_tensor *u_rotation, const px_tensor *v_rotation) {
  PX_SCOPED(px_tensor) both = NULL;
  const px_tensor *some = u_rotation ? u_rotation : v_rotation;
  if (!some || !px_dtype_is_complex(px_tensor_dtype(some))) return PX_OK;
  PX_TRY(sum(&both, u_rotation, v_rotation));
  return check_phase(both, svd_phase);
}
static px_status svd_back(px_tensor **out, const svd *x) {
  PX_SCOPED(px_tensor) u_rotation = NULL;
  PX_SCOPED(px_tensor) v_rotation = NULL;
  PX_SCOPED(px_tensor) inner = NULL;
  if (x->d_u) PX_TRY(adjoint_times(&u_rotation, x->u, x->d_u));
  if (x->d_vh) PX_TRY(times_adjoint(&v_rotation, x->vh, x->d_vh));
  PX_TRY(check_phases(u_rotation, v_rotation));
  PX_TRY(svd_inner(&inner, x, u_rotation, v_rotation));
  return svd_outer(out, x, u_rotation, v_rotation, inner);
}
static px_status first_of(px_tensor **out, const px_tensor *t, int dim, int64_t k) {
  return t ? px_narrow(out, t, dim, 0, k) : PX_OK;
}
static px_status svd_parts(svd *x, const px__svd_grad *args) {
  int64_t k = columns_of(args->S);
  PX_TRY(first_of(&x->u, args->U, -1, k));
  PX_TRY(first_of(&x->vh, args->Vh, -2, k));
  PX_TRY(first_of(&x->d_u, args->grad_U, -1, k));
  PX_TRY(first_of(&x->d_vh, args->grad_Vh, -2, k));
  x->s = px_retain(args->S), x->d_s = args->grad_S ? px_retain(args->grad_S) : NULL;
  PX_TRY(px_unsqueeze(&x->row, args->S, -2));
  return px_unsqueeze(&x->column, args->S, -1);
}
PX_GRAD(svd) {
  svd x = {0};
  if (!args->d_A || (!args->grad_U && !args->grad_S && !args->grad_Vh)) return PX_OK;
  px_status status = svd_parts(&x, args);
  if (status == PX_OK) status = svd_back(args->d_A, &x);
  svd_end(&x);
  return status;
}

// ---- pseudoinverses and least squares

// Gradient for A with at least as many columns as rows. With P the pseudoinverse and G its
// gradient:
// G' P P' - (P G' P)' - A P G' P P' + P' P (G' - G' P A).
static px_status pinv_wide(px_tensor **out, const px_tensor *g, const px_tensor *p,
                           const px_tensor *a) {
  PX_SCOPED(px_tensor) gp = NULL;  // G' P
  PX_SCOPED(px_tensor) gt = NULL;
  PX_SCOPED(px_tensor) pt = NULL;
  PX_SCOPED(px_tensor) gpp = NULL;  // G' P P'
  PX_SCOPED(px_tensor) pgp = NULL;  // P G' P
  PX_SCOPED(px_tensor) first = NULL;
  PX_SCOPED(px_tensor) ap = NULL;
  PX_SCOPED(px_tensor) second = NULL;
  PX_SCOPED(px_tensor) ga = NULL;
  PX_SCOPED(px_tensor) rest = NULL;
  PX_SCOPED(px_tensor) ptp = NULL;
  PX_SCOPED(px_tensor) third = NULL;
  PX_SCOPED(px_tensor) sum1 = NULL;
  PX_SCOPED(px_tensor) sum2 = NULL;
  PX_TRY(adjoint(&gt, g));
  PX_TRY(adjoint(&pt, p));
  PX_TRY(px_matmul(&gp, gt, p));
  PX_TRY(px_matmul(&gpp, gp, pt));
  PX_TRY(px_matmul(&pgp, p, gp));
  PX_TRY(adjoint(&first, pgp));
  PX_TRY(px_matmul(&ap, a, p));
  PX_TRY(px_matmul(&second, ap, gpp));
  PX_TRY(px_matmul(&ga, gp, a));
  PX_TRY(px_sub(&rest, gt, ga, px_int(1)));
  PX_TRY(px_matmul(&ptp, pt, p));
  PX_TRY(px_matmul(&third, ptp, rest));
  PX_TRY(px_sub(&sum1, gpp, first, px_int(1)));
  PX_TRY(px_sub(&sum2, sum1, second, px_int(1)));
  return px_add(out, sum2, third, px_int(1));
}
px_status px__grad_pinv_self(px_tensor **out, px_tensor *grad, px_tensor *result, px_tensor *self) {
  if (rows_of(self) <= columns_of(self)) return pinv_wide(out, grad, result, self);
  PX_SCOPED(px_tensor) g = NULL;  // of the transpose, a wide matrix
  PX_SCOPED(px_tensor) p = NULL;
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) d = NULL;
  PX_TRY(adjoint(&g, grad));
  PX_TRY(adjoint(&p, result));
  PX_TRY(adjoint(&a, self));
  PX_TRY(pinv_wide(&d, g, p, a));
  return adjoint(out, d);
}
// X = P B: the gradient of P is grad B', that of B is P' grad.
PX_GRAD(lstsq) {
  PX_SCOPED(px_tensor) g = NULL;
  PX_SCOPED(px_tensor) p = NULL;
  PX_SCOPED(px_tensor) d_p = NULL;
  if (!args->grad_solution) return PX_OK;
  PX_TRY(px_narrow(&g, args->grad_solution, -2, 0, columns_of(args->A)));
  PX_TRY(px_linalg_pinv(&p, args->A, NULL, NULL, false));
  if (args->d_B) PX_TRY(adjoint_times(args->d_B, p, g));
  if (!args->d_A) return PX_OK;
  PX_TRY(times_adjoint(&d_p, g, args->B));
  return px__grad_pinv_self(args->d_A, d_p, p, args->A);
}

// ---- exponentials

// The gradient is the upper right block of exp([A' G; 0 A']).
PX_GRAD(matrix_exp) {
  int64_t n = rows_of(args->self);
  PX_SCOPED(px_tensor) at = NULL;
  PX_SCOPED(px_tensor) zeros = NULL;
  PX_SCOPED(px_tensor) above = NULL;
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_TRY(adjoint(&at, args->self));
  PX_TRY(px_zeros_like(&zeros, at, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  PX_TRY(px_cat(&above, (px_tensor *[]){at, args->grad}, 2, -1));
  PX_TRY(px_cat(&below, (px_tensor *[]){zeros, at}, 2, -1));
  PX_TRY(px_cat(&whole, (px_tensor *[]){above, below}, 2, -2));
  PX_TRY(px_linalg_matrix_exp(&result, whole));
  PX_TRY(px_narrow(&rows, result, -2, 0, n));
  return px_narrow(args->d_self, rows, -1, n, n);
}
