// SPDX-License-Identifier: Apache-2.0
// vmap: the rule `indices`, and its ops: single samples of a level as batches of one sample. Their
// tensors may be batched at the level, at inner levels, outer ones, or not at all.
#include "vmap_rules/index.h"
#include "call/vmap.h"
#include "hidden/index.h"
#include "hidden/view.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"
#include "ops/core/run.h"
#include "run_functions/index.h"

// Sets the results of a rule that is a formula. Takes the references. In place, the result is
// copied to self.
px_status px__vmap_set_results(px__vmap_call *b, px_tensor **made_take);
px_status px__vmap_set_results(px__vmap_call *b, px_tensor **made_take) {
  px_status status = PX_OK;
  if (b->call->mode == PX_CALL_INPLACE)
    status = px_copy_(b->call->given[0]->physical, *made_take, false);
  for (int i = 0; i < b->call->op->result_count; i++) {
    px_tensor *one = PX_MOVE(made_take[i]);
    if (status == PX_OK)
      status = px__vmap_set_result(b, i, one);
    else
      px_release(one);
  }
  return status;
}

// Runs an op on the physical tensor of an inner level.
typedef px_status (*sample_op)(px_tensor **out, const px_tensor *self, int64_t index, int64_t level,
                               int64_t size);
static px_status inside(px__vmap_call *b, sample_op op, px_tensor *self, int64_t index,
                        int64_t level, int64_t size) {
  px_tensor *made = NULL;
  PX_TRY(op(&made, self->physical, index, level, size));
  return px__vmap_set_result(b, 0, made);
}

// `parts`: the samples that self has if it is batched at the level.
static px_status check(const px__vmap_call *b, const px_tensor *self, int64_t index, int64_t size,
                       int64_t parts) {
  PX_CHECK(index >= 0 && index < size, PX_INDEX, "sample %lld is out of range for %lld samples",
           (long long)index, (long long)size);
  PX_CHECK(!px__is_mapped(b, self) || self->physical->sizes[0] == parts, PX_RUNTIME,
           "expected %lld samples, got %lld", (long long)parts,
           (long long)self->physical->sizes[0]);
  return PX_OK;
}

PX_RUN(_vmap_sample) { return px__vmap_run_at(call, args->level, args->size); }
PX_VMAP_RULE(vmap_sample) {
  px_tensor *self = args->self, *made = NULL;
  if (b->level > args->level)
    return inside(b, px__vmap_sample, self, args->index, args->level, args->size);
  if (b->level < args->level) return px__vmap_run_at(b->call, args->level, args->size);
  PX_TRY(check(b, self, args->index, args->size, args->size));
  PX_TRY(px__is_mapped(b, self) ? px_narrow(&made, self->physical, 0, args->index, 1)
                                : px_unsqueeze(&made, self, 0));
  return px__vmap_set_result(b, 0, made);
}

PX_RUN(_vmap_place) { return px__vmap_run_at(call, args->level, args->size); }
PX_VMAP_RULE(vmap_place) {
  px_tensor *self = args->self, *made = NULL;
  int64_t sizes[PX_MAX_DIMS + 1] = {args->size};
  PX_SCOPED(px_tensor) row = NULL;
  if (b->level > args->level)
    return inside(b, px__vmap_place, self, args->index, args->level, args->size);
  if (b->level < args->level) return px__vmap_run_at(b->call, args->level, args->size);
  PX_TRY(check(b, self, args->index, args->size, 1));
  PX_TRY(px__check_ndim((int64_t)self->ndim + 1));
  px__sizes_copy(sizes + 1, self->sizes, self->ndim);
  if (px__is_mapped(b, self))
    row = px_retain(self->physical);
  else
    PX_TRY(px_unsqueeze(&row, self, 0));
  const int64_t end = args->index + 1;
  PX_TRY(px_slice_backward(&made, row, sizes, self->ndim + 1, 0, &args->index, &end, 1));
  return px__vmap_set_result(b, 0, made);
}

PX_RUN(_vmap_join) { return px__vmap_run_at(call, args->level, 1); }
PX_VMAP_RULE(vmap_join) {
  if (b->level < args->level) return px__vmap_run_at(b->call, args->level, 1);
  int n = args->samples.n;
  px_tensor **each, *made = NULL;
  px_status status = PX_OK;
  PX_TRY(px__alloc((void **)&each, (size_t)n * sizeof *each));
  for (int i = 0; i < n && status == PX_OK; i++)
    status = px__vmap_ensure_batch_dim(&each[i], b, args->samples.v.tensors[i]);
  if (status == PX_OK)
    status = b->level > args->level ? px__vmap_join(&made, each, n, args->level)
                                    : px_cat(&made, each, n, 0);
  for (int i = 0; i < n; i++) px_release(each[i]);
  px__free(each);
  PX_TRY(status);
  return px__vmap_set_result(b, 0, made);
}

// ---- the rule

static px_status sample_of(px_tensor **out, const px__vmap_call *b, px_tensor *t, int64_t index) {
  return px_dtype_is_differentiable((px_dtype)t->dtype)
             ? px__vmap_sample(out, t, index, b->level, b->size)
             : px__vmap_select(out, b, t, index);
}
px_status px__vmap_indices(px__vmap_call *b) {
  px_tensor **made;
  PX_CHECK(b->size > 0, PX_UNIMPLEMENTED, "vmap: %s of indices of no samples is not implemented",
           b->call->op->name);
  PX_TRY(px__alloc((void **)&made, (size_t)b->size * sizeof *made));
  px_status status = PX_OK;
  for (int64_t i = 0; i < b->size && status == PX_OK; i++)
    status = px__vmap_call_sample(b, sample_of, made, i);
  if (status == PX_OK) status = px__vmap_join(&b->call->results[0], made, b->size, b->level);
  for (int64_t i = 0; i < b->size; i++) px_release(made[i]);
  px__free(made);
  return status;
}
