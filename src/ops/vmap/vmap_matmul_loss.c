// SPDX-License-Identifier: Apache-2.0
// vmap: batching rules that are functions. Products become batched products. Losses reduce all
// dimensions but the batch dimension.
#include "vmap_rules/linalg.h"
#include "vmap_rules/loss.h"
#include "vmap_rules/solve.h"
#include "call/vmap.h"
#include "formulas.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"

// ---- products

static px_status set_product(px__vmap_call *b, px_tensor *left, px_tensor *right) {
  px_tensor *made = NULL;
  PX_TRY(px_matmul(&made, left, right));
  return px__vmap_set_result(b, 0, made);
}

// Matrix products, or batches of them. Tensors without a batch dimension are broadcast.
static px_status product(px__vmap_call *b, px_tensor *left, px_tensor *right, int ndim) {
  PX_SCOPED(px_tensor) l = NULL;
  PX_SCOPED(px_tensor) r = NULL;
  PX_TRY(px__vmap_physical(&l, b, left, ndim));
  PX_TRY(px__vmap_physical(&r, b, right, ndim));
  return set_product(b, l, r);
}
PX_VMAP_RULE(mm) { return product(b, args->self, args->mat2, 2); }
PX_VMAP_RULE(bmm) { return product(b, args->self, args->mat2, 3); }

PX_VMAP_RULE(mv) {
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) right = NULL;
  px_tensor *made = NULL;
  PX_TRY(px__vmap_physical(&left, b, args->self, 2));
  PX_TRY(px__vmap_physical(&right, b, args->vec, 1));
  PX_TRY(px__formula_mv_of_batches(&made, (px_value[]){PX_T(left), PX_T(right)}));
  return px__vmap_set_result(b, 0, made);
}
PX_VMAP_RULE(dot) {
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) right = NULL;
  px_tensor *made = NULL;
  PX_TRY(px__vmap_physical(&left, b, args->self, 1));
  PX_TRY(px__vmap_physical(&right, b, args->tensor, 1));
  PX_TRY(px__formula_dot_of_batches(&made, (px_value[]){PX_T(left), PX_T(right)}));
  return px__vmap_set_result(b, 0, made);
}

PX_VMAP_RULE(trace) {
  px_tensor *made = NULL;
  PX_SCOPED(px_tensor) line = NULL;
  int64_t last = -1;
  PX_CHECK(args->self->ndim == 2, PX_RUNTIME,
           "trace: expected a matrix, but got tensor with dim %d", args->self->ndim);
  PX_TRY(px_diagonal(&line, args->self->physical, 0, 1, 2));
  PX_TRY(px_sum(&made, line, &last, 1, false, PX_DTYPE_NONE));
  return px__vmap_set_result(b, 0, made);
}

// beta * self + alpha * left @ right. self is ignored if beta is 0.
typedef struct sum {
  px_tensor *self, *left, *right;
  px_scalar beta, alpha;
  int ndim;
} sum;

static bool is_number(px_scalar s, double value) { return px_scalar_float(s) == value; }

static px_status add_scaled(px_tensor **out, px_tensor *product_of, px_tensor *self, px_scalar beta,
                            px_scalar alpha) {
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) term = NULL;
  if (is_number(alpha, 1))
    scaled = px_retain(product_of);
  else
    PX_TRY(px_mul_scalar(&scaled, product_of, alpha));
  if (is_number(beta, 0)) {
    *out = PX_MOVE(scaled);
    return PX_OK;
  }
  if (is_number(beta, 1))
    term = px_retain(self);
  else
    PX_TRY(px_mul_scalar(&term, self, beta));
  return px_add(out, scaled, term, px_int(1));
}

static px_status sum_of(px_tensor **out, px__vmap_call *b, const sum *s) {
  PX_SCOPED(px_tensor) self = NULL;
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) right = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  PX_TRY(px__vmap_physical(&self, b, s->self, s->ndim));
  PX_TRY(px__vmap_physical(&left, b, s->left, s->ndim));
  PX_TRY(px__vmap_physical(&right, b, s->right, s->ndim));
  PX_TRY(px_matmul(&both, left, right));
  return add_scaled(out, both, self, s->beta, s->alpha);
}

static px_status set_sum(px__vmap_call *b, const sum *s) {
  px_tensor *made = NULL, *self = s->self;
  PX_TRY(sum_of(&made, b, s));
  if (b->call->mode != PX_CALL_INPLACE) return px__vmap_set_result(b, 0, made);
  px_status status = px_copy_(self->physical, made, false);
  px_release(made);
  PX_TRY(status);
  return px__vmap_set_result(b, 0, NULL);
}

PX_VMAP_RULE(addmm) {
  return set_sum(b, &(sum){args->self, args->mat1, args->mat2, args->beta, args->alpha, 2});
}
PX_VMAP_RULE(baddbmm) {
  return set_sum(b, &(sum){args->self, args->batch1, args->batch2, args->beta, args->alpha, 3});
}
// The second matrix is transposed.
PX_VMAP_RULE(_linear) {
  PX_SCOPED(px_tensor) transposed = NULL;
  PX_TRY(px_transpose(&transposed, args->mat2, 0, 1));
  return set_sum(b, &(sum){args->self, args->mat1, transposed, args->beta, args->alpha, 2});
}

// ---- systems of equations

// With one more dimension, vectors and batches of matrices would be ambiguous.
PX_VMAP_RULE(_linalg_solve) {
  const px_tensor *A = args->A, *B = args->B;
  bool vector = A->ndim == B->ndim + 1 && px__has_sizes(B, B->ndim, A->sizes);
  return A->ndim == B->ndim || vector ? px__vmap_shift(b) : px__vmap_loop(b, false);
}

// ---- pointwise losses: computed without reduction, then reduced per sample

static void drop_reduction(const px_call *call, px_value *args) {
  for (int i = 0; i < call->op->param_count; i++) {
    args[i] = call->args[i];
    if (!strcmp(call->op->params[i].name, "reduction")) args[i] = PX_TX("none");
  }
}

static void set_argument(const px__vmap_call *b, px_value *args, const char *name, px_tensor *t) {
  *px__vmap_argument(b->call->op, args, name) = PX_T(t);
}

static px_status aligned_pair(px_tensor *pair[2], const px__vmap_call *b, px_tensor *self,
                              px_tensor *target) {
  int ndim = self->ndim > target->ndim ? self->ndim : target->ndim;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  if (px__is_mapped(b, self) || px__is_mapped(b, target))
    PX_TRY(px__vmap_physical(&x, b, self, ndim));
  else
    PX_TRY(px__vmap_ensure_batch_dim(&x, b, self));
  PX_TRY(px__vmap_physical(&y, b, target, ndim));
  int64_t sizes[PX_MAX_DIMS];
  PX_TRY(px__broadcast(&ndim, sizes, x->ndim, x->sizes, y->ndim, y->sizes));
  PX_TRY(px_expand(&pair[0], x, sizes, ndim));
  return px_expand(&pair[1], y, sizes, ndim);
}

static px_status reduced(px_tensor **out, px_tensor *each, const char *reduction) {
  int64_t dims[PX_MAX_DIMS];
  int n = each->ndim - 1;
  for (int d = 0; d < n; d++) dims[d] = d + 1;
  bool mean = !strcmp(reduction, "mean");
  if (!strcmp(reduction, "none") || n == 0) {
    *out = px_retain(each);
    return PX_OK;
  }
  return mean ? px_mean(out, each, dims, n, false, PX_DTYPE_NONE)
              : px_sum(out, each, dims, n, false, PX_DTYPE_NONE);
}

PX_VMAP_RULE(loss) {
  px_value given[PX__MAX_PARAMS];
  px_tensor *pair[2] = {NULL, NULL}, *made = NULL;
  void *each = NULL;
  drop_reduction(b->call, given);
  px_status status = aligned_pair(pair, b, args->self, args->target);
  set_argument(b, given, "self", pair[0]);
  set_argument(b, given, "target", pair[1]);
  if (status == PX_OK) status = px_op_call(b->call->op, PX_CALL_NEW, given, &each);
  if (status == PX_OK) status = reduced(&made, each, args->reduction);
  px_release(each);
  px_release(pair[0]);
  px_release(pair[1]);
  PX_TRY(status);
  return px__vmap_set_result(b, 0, made);
}

// Gradient of each element. For 'mean' it is divided by the number of elements.
static px_status expand_gradient(px_tensor **out, const px__vmap_call *b, px_tensor *grad,
                                 const px_tensor *self, const px_tensor *like,
                                 const char *reduction) {
  PX_SCOPED(px_tensor) aligned = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_TRY(px__vmap_physical(&aligned, b, grad, self->ndim));
  if (strcmp(reduction, "mean") != 0)
    part = px_retain(aligned);
  else
    PX_TRY(px_div_scalar(&part, aligned, px_int(self->numel)));
  return px_expand(out, part, like->sizes, like->ndim);
}

PX_VMAP_RULE(loss_backward) {
  px_value given[PX__MAX_PARAMS];
  px_tensor *pair[2] = {NULL, NULL};
  PX_SCOPED(px_tensor) grad = NULL;
  void *made = NULL;
  drop_reduction(b->call, given);
  px_status status = aligned_pair(pair, b, args->self, args->target);
  if (status == PX_OK)
    status = expand_gradient(&grad, b, args->grad_output, args->self, pair[0], args->reduction);
  set_argument(b, given, "grad_output", grad);
  set_argument(b, given, "self", pair[0]);
  set_argument(b, given, "target", pair[1]);
  if (status == PX_OK) status = px_op_call(b->call->op, PX_CALL_NEW, given, &made);
  px_release(pair[0]);
  px_release(pair[1]);
  PX_TRY(status);
  return px__vmap_set_result(b, 0, made);
}
