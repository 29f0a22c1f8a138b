// SPDX-License-Identifier: Apache-2.0
// Gradients of products of Householder reflections. The inputs of all reflections are kept in a
// list, which formulas cannot build.
#include "formulas.h"
#include "grad_functions.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"

// Adjoint (conjugate transpose), written A' in comments.
static px_status adjoint(px_tensor **out, const px_tensor *t) {
  return px__formula_H(out, (px_value[]){PX_T(t)});
}
static int64_t rows_of(const px_tensor *t) { return px_tensor_size(t, -2); }
static int64_t columns_of(const px_tensor *t) { return px_tensor_size(t, -1); }
static px_status identity(px_tensor **out, int64_t rows, int64_t columns, const px_tensor *like) {
  return px_eye(out, rows, &columns, px_tensor_dtype(like), px_tensor_device(like), false, false);
}

// X becomes X - tau v (v' X), for one column v after another.
typedef struct reflections {
  px_tensor *vectors;  // unit lower trapezoidal
  const px_tensor *tau;
  int64_t count;
} reflections;
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
  for (int64_t k = 0; k + 1 < s->r.count; k++)
    PX_TRY(px__formula_reflected_by(
        &s->x[k + 1],
        (px_value[]){PX_T(s->x[k]), PX_T(s->r.vectors), PX_T(s->r.tau), PX_I(step_index(s, k))}));
  return PX_OK;
}
static px_status run_backward(px_tensor **d_start, steps *s, const px_tensor *grad) {
  PX_SCOPED(px_tensor) g = px_retain(grad);
  for (int64_t k = s->r.count - 1; k >= 0; k--) {
    int64_t at = step_index(s, k);
    px_tensor *made[3] = {NULL};
    PX_TRY(px__formula_reflection_gradient(
        made, (px_value[]){PX_T(s->x[k]), PX_T(s->r.vectors), PX_T(s->r.tau), PX_I(at), PX_T(g)}));
    s->d_v[at] = made[0], s->d_tau[at] = made[1];
    px_release(g);
    g = made[2];
  }
  *d_start = PX_MOVE(g);
  return PX_OK;
}
// Assembles the gradients of the vectors as a matrix of n columns, and of tau as a row.
static px_status gather(px_tensor **d_input, px_tensor **d_tau, const steps *s, int64_t n) {
  if (d_tau) PX_TRY(px_cat(d_tau, s->d_tau, s->r.count, -1));
  if (!d_input) return PX_OK;
  return px__formula_below_diagonal(d_input, (px_value[]){PX_TS(s->d_v, (int)s->r.count), PX_I(n)});
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
  s.r.tau = tau, s.r.count = count;
  px_status status =
      px__formula_reflection_vectors(&s.r.vectors, (px_value[]){PX_T(input), PX_I(count)});
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
