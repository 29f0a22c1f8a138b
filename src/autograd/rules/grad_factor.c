// SPDX-License-Identifier: Apache-2.0
// Gradients of orthogonal decompositions, composed of ops that have gradients themselves. M. Giles
// 2008, Collected matrix derivative results for forward and reverse mode algorithmic
// differentiation, has those of eigenvalues and singular values; S. Walter and L. Lehmann 2010,
// Algorithmic differentiation of linear algebra functions, that of QR; G. Golub and V. Pereyra
// 1973, The differentiation of pseudo-inverses, that.
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
// x y' where either may be NULL, for nothing.
static px_status product_or_none(px_tensor **out, const px_tensor *x, const px_tensor *y) {
  return x && y ? times_turned(out, x, y) : PX_OK;
}
// A diagonal of real numbers, as one factor of a product with matrices like v.
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

// Twice the Hermitian matrix that has the lower triangle of x; what the diagonal has of imaginary
// parts goes.
static px_status twice_hermitian(px_tensor **out, const px_tensor *x) {
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) strictly = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_TRY(px_tril(&below, x, 0));
  PX_TRY(px_tril(&strictly, x, -1));
  PX_TRY(px_add(&both, below, strictly, px_int(1)));
  PX_TRY(turned(&other, both));
  return px_add(out, both, other, px_int(1));
}
// Of a square R: (grad_Q + Q S) R'^-1, where S is Hermitian and has the lower triangle of
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
  if (d_q) PX_TRY(turned_times(&by_q, d_q, q));
  PX_TRY(difference(&both, by_r, by_q));
  PX_TRY(twice_hermitian(&twice, both));
  PX_TRY(px_mul_scalar(&whole, twice, px_float(0.5)));
  PX_TRY(px_matmul(&along, q, whole));
  PX_TRY(plus(&left, along, d_q, 1));
  PX_TRY(turned(&other, r));
  return px_linalg_solve_triangular(out, other, left, false, false, false);
}
// With more columns than rows the last ones are A2 = Q R2: they have Q grad_R2, and Q has R2's too.
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
    PX_TRY(times_turned(&more, a2, d_r2));
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

// ---- reflections: X becomes X - tau v (v' X), for one column v after another

typedef struct reflections {
  px_tensor *vectors;  // with ones on their diagonal, and zeros above
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
// The k-th vector, as a column, and its number, as a matrix of one element.
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
  PX_TRY(turned_times(&row, v, x));
  PX_TRY(px_mul(&scaled, v, tau));
  PX_TRY(px_matmul(&part, scaled, row));
  return px_sub(out, x, part, px_int(1));
}
// The gradients of v and tau in one reflection of x, whose result has `grad`: that of v is
// -(conj(tau) grad x' v + tau x grad' v), and that of tau -(v' grad) (x' v).
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
  PX_TRY(turned_times(&xv, x, v));
  PX_TRY(turned_times(&gv, grad, v));
  PX_TRY(px_matmul(&one, grad, xv));
  PX_TRY(px_matmul(&other, x, gv));
  PX_TRY(px_conj(&conjugate, tau));
  PX_TRY(px_mul(&scaled_one, one, conjugate));
  PX_TRY(px_mul(&scaled, other, tau));
  PX_TRY(px_add(&both, scaled_one, scaled, px_int(1)));
  PX_TRY(px_neg(d_v, both));
  PX_TRY(turned_times(&product, gv, xv));
  PX_TRY(px_neg(&number, product));
  return px_squeeze_dim(d_tau, number, &last, 1);
}
// Goes along the reflections of `start`, in ascending order or in descending one, and back.
typedef struct steps {
  reflections r;
  bool ascending;
  px_tensor **x;  // what each reflection is given
  px_tensor **d_v, **d_tau;
} steps;
static int64_t place_of(const steps *s, int64_t k) { return s->ascending ? k : s->r.count - 1 - k; }
static px_status go(steps *s, const px_tensor *start) {
  s->x[0] = px_retain(start);
  for (int64_t k = 0; k + 1 < s->r.count; k++) {
    PX_SCOPED(px_tensor) v = NULL;
    PX_SCOPED(px_tensor) tau = NULL;
    PX_TRY(vector_of(&v, &tau, &s->r, place_of(s, k)));
    PX_TRY(reflect(&s->x[k + 1], s->x[k], v, tau));
  }
  return PX_OK;
}
static px_status go_back(px_tensor **d_start, steps *s, const px_tensor *grad) {
  PX_SCOPED(px_tensor) g = px_retain(grad);
  for (int64_t k = s->r.count - 1; k >= 0; k--) {
    int64_t at = place_of(s, k);
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
// The gradients of the vectors as a matrix of n columns, and of tau as a line.
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
  px_tensor **room = NULL;
  PX_SCOPED(px_tensor) at_start = NULL;
  if (count == 0) {
    if (d_start) *d_start = px_retain(grad);
    return PX_OK;
  }
  PX_TRY(px_alloc((void **)&room, (size_t)(3 * count) * sizeof *room));
  s.x = room, s.d_v = room + count, s.d_tau = room + 2 * count;
  px_status status = reflections_of(&s.r, input, tau);
  if (status == PX_OK) status = go(&s, start);
  if (status == PX_OK) status = go_back(&at_start, &s, grad);
  if (status == PX_OK) status = gather(d_input, d_tau, &s, columns_of(input));
  for (int64_t k = 0; k < 3 * count; k++) px_release(room[k]);
  px_free(room);
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
// Q C goes from the last reflection to the first; Q' C the other way, and with the conjugates of
// tau; C Q is (Q' C')'.
PX_GRAD(ormqr) {
  const px_tensor *other = args->input3, *grad = args->grad;
  bool ascending = args->transpose == args->left;
  PX_SCOPED(px_tensor) tau = NULL;
  PX_SCOPED(px_tensor) d_tau = NULL;
  PX_SCOPED(px_tensor) start = NULL;
  PX_SCOPED(px_tensor) g = NULL;
  PX_SCOPED(px_tensor) d_start = NULL;
  if (!args->left) PX_TRY(turned(&start, other));
  if (!args->left) PX_TRY(turned(&g, grad));
  if (args->left) start = px_retain(other), g = px_retain(grad);
  if (ascending) PX_TRY(px_conj(&tau, args->input2));
  if (!ascending) tau = px_retain(args->input2);
  PX_TRY(reflections_back(args->d_self, args->d_input2 ? &d_tau : NULL,
                          args->d_input3 ? &d_start : NULL, args->self, tau, start, g, ascending));
  if (d_tau && ascending) PX_TRY(px_conj(args->d_input2, d_tau));
  if (d_tau && !ascending) *args->d_input2 = PX_MOVE(d_tau);
  if (!args->d_input3) return PX_OK;
  if (!args->left) return turned(args->d_input3, d_start);
  *args->d_input3 = PX_MOVE(d_start);
  return PX_OK;
}

// ---- eigenvalues and singular values

// values_j - values_i at row i and column j, and `diagonal` where these are the same place.
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
// A vector is one of many, where it is complex, which differ by a factor of length 1. What would
// turn them all is the imaginary part of x's diagonal, so it must be 0, but for rounding.
static px_status check_turns(const px_tensor *x, const char *text) {
  px_scalar greatest;
  PX_SCOPED(px_tensor) diagonal = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) sizes = NULL;
  PX_SCOPED(px_tensor) most = NULL;
  if (px_tensor_device(x).type == PX_META || !px_tensor_numel(x)) return PX_OK;
  PX_TRY(px_diagonal(&diagonal, x, 0, -2, -1));
  PX_TRY(px_imag(&part, diagonal));
  PX_TRY(px_abs(&sizes, part));
  PX_TRY(px_amax(&most, sizes, NULL, 0, false));
  PX_TRY(px_tensor_item(&greatest, most));
  PX_CHECK(px_scalar_float(greatest) <= 1e-2, PX_RUNTIME, "%s", text);
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

// V'^-1 (diag(grad_L) + (V' grad_V - V' V diag(real part of V' grad_V)) / conj(gaps)) V'.
static px_status eig_inner(px_tensor **out, const px_tensor *v, const px_tensor *d_v,
                           const px_tensor *values) {
  PX_SCOPED(px_tensor) turns = NULL;
  PX_SCOPED(px_tensor) diagonal = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) along = NULL;
  PX_SCOPED(px_tensor) across = NULL;
  PX_SCOPED(px_tensor) apart = NULL;
  PX_SCOPED(px_tensor) mirrored = NULL;
  PX_TRY(turned_times(&turns, v, d_v));
  PX_TRY(check_turns(turns, eig_phase));
  PX_TRY(px_diagonal(&diagonal, turns, 0, -2, -1));
  PX_TRY(px_real(&part, diagonal));
  PX_TRY(px_unsqueeze(&row, part, -2));
  PX_TRY(px_mul(&scaled, v, row));
  PX_TRY(turned_times(&along, v, scaled));
  PX_TRY(px_sub(&across, turns, along, px_int(1)));
  PX_TRY(gaps(&apart, values, INFINITY));
  PX_TRY(px_conj(&mirrored, apart));
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
  PX_TRY(times_turned(&right, inner, v));
  PX_TRY(turned(&other, v));
  return px_linalg_solve_ex(args->d_self, &info, other, right, true, false);
}
// (x - x') / gaps: x is what turns vectors, of which only what keeps them orthonormal counts.
static px_status skewed(px_tensor **out, const px_tensor *x, const px_tensor *apart) {
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) skew = NULL;
  PX_TRY(turned(&other, x));
  PX_TRY(px_sub(&skew, x, other, px_int(1)));
  return px_div(out, skew, apart);
}
// V (diag(grad_L) + (V' grad_V - grad_V' V) / gaps / 2) V'.
PX_GRAD(eigh) {
  const px_tensor *v = args->eigenvectors;
  PX_SCOPED(px_tensor) inner = NULL;
  if (!args->d_self || (!args->grad_eigenvalues && !args->grad_eigenvectors)) return PX_OK;
  if (args->grad_eigenvalues) PX_TRY(diagonal_like(&inner, args->grad_eigenvalues, v));
  if (args->grad_eigenvectors) {
    PX_SCOPED(px_tensor) apart = NULL;
    PX_SCOPED(px_tensor) turns = NULL;
    PX_SCOPED(px_tensor) twice = NULL;
    PX_SCOPED(px_tensor) scaled = NULL;
    PX_SCOPED(px_tensor) whole = NULL;
    PX_TRY(gaps(&apart, args->eigenvalues, INFINITY));
    PX_TRY(turned_times(&turns, v, args->grad_eigenvectors));
    if (px_dtype_is_complex(px_tensor_dtype(v))) PX_TRY(check_turns(turns, eigh_phase));
    PX_TRY(skewed(&twice, turns, apart));
    PX_TRY(px_mul_scalar(&scaled, twice, px_float(0.5)));
    PX_TRY(sum(&whole, scaled, inner));
    px_release(inner);
    inner = PX_MOVE(whole);
  }
  PX_SCOPED(px_tensor) left = NULL;
  PX_TRY(px_matmul(&left, v, inner));
  return times_turned(args->d_self, left, v);
}

typedef struct svd {
  px_tensor *u, *s, *vh, *d_u, *d_s, *d_vh;  // the first columns; gradients may be NULL
  px_tensor *row, *column;                   // s, to scale columns and rows
} svd;
static void svd_end(svd *x) {
  px_tensor *all[] = {x->u, x->s, x->vh, x->d_u, x->d_s, x->d_vh, x->row, x->column};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) px_release(all[i]);
}
// Vectors of a pair may turn together, which changes nothing; what turns one of them alone is a
// change of U's, i times the imaginary part of its diagonal over S.
static px_status with_phases(px_tensor **out, const px_tensor *inner, const svd *x,
                             const px_tensor *u_turns) {
  PX_SCOPED(px_tensor) diagonal = NULL;
  PX_SCOPED(px_tensor) mirrored = NULL;
  PX_SCOPED(px_tensor) twice = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  if (!px_dtype_is_complex(px_tensor_dtype(u_turns))) return plus(out, inner, NULL, 1);
  PX_TRY(px_diagonal(&diagonal, u_turns, 0, -2, -1));
  PX_TRY(px_conj(&mirrored, diagonal));
  PX_TRY(px_sub(&twice, diagonal, mirrored, px_int(1)));
  PX_TRY(px_div(&scaled, twice, x->s));
  PX_TRY(px_diag_embed(&wide, scaled, 0, -2, -1));
  return px_add(out, inner, wide, px_float(0.5));
}
// Between U and Vh: the turns of U times S, S times those of V, and grad_S on the diagonal.
static px_status svd_inner(px_tensor **out, const svd *x, const px_tensor *u_turns,
                           const px_tensor *v_turns) {
  PX_SCOPED(px_tensor) squares = NULL;
  PX_SCOPED(px_tensor) apart = NULL;
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  PX_SCOPED(px_tensor) diagonal = NULL;
  PX_TRY(px_mul(&squares, x->s, x->s));
  PX_TRY(gaps(&apart, squares, INFINITY));
  if (u_turns) {
    PX_SCOPED(px_tensor) turns = NULL;
    PX_SCOPED(px_tensor) scaled = NULL;
    PX_TRY(skewed(&turns, u_turns, apart));
    PX_TRY(px_mul(&scaled, turns, x->row));
    PX_TRY(with_phases(&one, scaled, x, u_turns));
  }
  if (v_turns) {
    PX_SCOPED(px_tensor) turns = NULL;
    PX_TRY(skewed(&turns, v_turns, apart));
    PX_TRY(px_mul(&other, turns, x->column));
  }
  PX_TRY(sum(&both, one, other));
  if (x->d_s) PX_TRY(diagonal_like(&diagonal, x->d_s, x->u));
  return sum(out, both, diagonal);
}
// What leaves the space of U, or of V: (grad_U - U U' grad_U) / S Vh, U (grad_Vh - ...) / S.
static px_status svd_outer(px_tensor **out, const svd *x, const px_tensor *u_turns,
                           const px_tensor *v_turns, const px_tensor *inner) {
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  PX_TRY(px_matmul(&left, x->u, inner));
  PX_TRY(px_matmul(&whole, left, x->vh));
  if (u_turns && rows_of(x->u) > columns_of(x->u)) {
    PX_SCOPED(px_tensor) inside = NULL;
    PX_SCOPED(px_tensor) outside = NULL;
    PX_SCOPED(px_tensor) scaled = NULL;
    PX_SCOPED(px_tensor) part = NULL;
    px_tensor *more = NULL;
    PX_TRY(px_matmul(&inside, x->u, u_turns));
    PX_TRY(px_sub(&outside, x->d_u, inside, px_int(1)));
    PX_TRY(px_div(&scaled, outside, x->row));
    PX_TRY(px_matmul(&part, scaled, x->vh));
    PX_TRY(px_add(&more, whole, part, px_int(1)));
    px_release(whole);
    whole = more;
  }
  if (v_turns && columns_of(x->vh) > rows_of(x->vh)) {
    PX_SCOPED(px_tensor) inside = NULL;
    PX_SCOPED(px_tensor) outside = NULL;
    PX_SCOPED(px_tensor) scaled = NULL;
    PX_SCOPED(px_tensor) part = NULL;
    px_tensor *more = NULL;
    PX_TRY(turned_times(&inside, v_turns, x->vh));
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
// Whether the loss stays as it is where the vectors of a pair turn together.
static px_status check_phases(const px_tensor *u_turns, const px_tensor *v_turns) {
  PX_SCOPED(px_tensor) both = NULL;
  const px_tensor *some = u_turns ? u_turns : v_turns;
  if (!some || !px_dtype_is_complex(px_tensor_dtype(some))) return PX_OK;
  PX_TRY(sum(&both, u_turns, v_turns));
  return check_turns(both, svd_phase);
}
static px_status svd_back(px_tensor **out, const svd *x) {
  PX_SCOPED(px_tensor) u_turns = NULL;
  PX_SCOPED(px_tensor) v_turns = NULL;
  PX_SCOPED(px_tensor) inner = NULL;
  if (x->d_u) PX_TRY(turned_times(&u_turns, x->u, x->d_u));
  if (x->d_vh) PX_TRY(times_turned(&v_turns, x->vh, x->d_vh));
  PX_TRY(check_phases(u_turns, v_turns));
  PX_TRY(svd_inner(&inner, x, u_turns, v_turns));
  return svd_outer(out, x, u_turns, v_turns, inner);
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

// With P the pseudoinverse and G its gradient: -(P G P)' + (1 - A P) (P G P')' ... by the
// smaller of the two products A P and P A.
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
  PX_TRY(turned(&gt, g));
  PX_TRY(turned(&pt, p));
  PX_TRY(px_matmul(&gp, gt, p));
  PX_TRY(px_matmul(&gpp, gp, pt));
  PX_TRY(px_matmul(&pgp, p, gp));
  PX_TRY(turned(&first, pgp));
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
  PX_SCOPED(px_tensor) g = NULL;  // of the transpose, which is wide
  PX_SCOPED(px_tensor) p = NULL;
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) d = NULL;
  PX_TRY(turned(&g, grad));
  PX_TRY(turned(&p, result));
  PX_TRY(turned(&a, self));
  PX_TRY(pinv_wide(&d, g, p, a));
  return turned(out, d);
}
// X = P B: grad B' is P's gradient, and P' grad B's.
PX_GRAD(lstsq) {
  PX_SCOPED(px_tensor) g = NULL;
  PX_SCOPED(px_tensor) p = NULL;
  PX_SCOPED(px_tensor) d_p = NULL;
  if (!args->grad_solution) return PX_OK;
  PX_TRY(px_narrow(&g, args->grad_solution, -2, 0, columns_of(args->A)));
  PX_TRY(px_linalg_pinv(&p, args->A, NULL, NULL, false));
  if (args->d_B) PX_TRY(turned_times(args->d_B, p, g));
  if (!args->d_A) return PX_OK;
  PX_TRY(times_turned(&d_p, g, args->B));
  return px__grad_pinv_self(args->d_A, d_p, p, args->A);
}

// ---- exponentials

// The exponential of [A' G; 0 A'] has the gradient in its upper right.
PX_GRAD(matrix_exp) {
  int64_t n = rows_of(args->self);
  PX_SCOPED(px_tensor) at = NULL;
  PX_SCOPED(px_tensor) zeros = NULL;
  PX_SCOPED(px_tensor) above = NULL;
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_TRY(turned(&at, args->self));
  PX_TRY(px_zeros_like(&zeros, at, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  PX_TRY(px_cat(&above, (px_tensor *[]){at, args->grad}, 2, -1));
  PX_TRY(px_cat(&below, (px_tensor *[]){zeros, at}, 2, -1));
  PX_TRY(px_cat(&whole, (px_tensor *[]){above, below}, 2, -2));
  PX_TRY(px_linalg_matrix_exp(&result, whole));
  PX_TRY(px_narrow(&rows, result, -2, 0, n));
  return px_narrow(args->d_self, rows, -1, n, n);
}
