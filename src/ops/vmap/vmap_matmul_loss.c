// SPDX-License-Identifier: Apache-2.0
// vmap: batching rules of losses, which reduce all dimensions but the batch dimension.
#include "vmap_rules/loss.h"
#include "vmap_rules/solve.h"
#include "call/vmap.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"

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
