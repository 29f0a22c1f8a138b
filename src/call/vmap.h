// SPDX-License-Identifier: Apache-2.0
// vmap: a call of batched tensors (phlox/vmap.h), for the batching rules of ops. Tensors batched at
// the deepest level among the arguments are replaced by their physical tensors. Rules run at the
// next outer level.
//
// `PX_VMAP_RULE(mm) { ... }` defines the rule named by `vmap mm` in an entry. It receives the call
// and its arguments by name, as run functions do, and sets results with px__vmap_set_result.
#pragma once
#include "call/call_impl.h"

struct px__vmap_call {
  px_call *call;
  int level;
  int64_t size;               // of the batch dimension
  struct saved_level *saved;  // thread state to restore; set while a rule runs
};

#define PX_VMAP_RULE(name) \
  static px_status vmap_##name(px__vmap_call *b, const px__##name##_vmap_args *args); \
  px_status px__vmap_##name(px__vmap_call *b) { \
    const px__##name##_vmap_args args = px__##name##_vmap_args_of(b->call->args); \
    return vmap_##name(b, &args); \
  } \
  static px_status vmap_##name(px__vmap_call *b, const px__##name##_vmap_args *args)

// Returns the argument of a named parameter, for a call made by a rule.
static inline px_value *px__vmap_argument(const px_op *op, px_value *args, const char *name) {
  int i = op->param_count - 1;
  while (i > 0 && strcmp(op->params[i].name, name) != 0) i--;
  return &args[i];
}
static inline bool px__is_mapped(const px__vmap_call *b, const px_tensor *t) {
  return t && px__is_batched(t) && t->level == b->level;
}
#define PX__MAPPED(value) px__is_mapped(b, (value).v.tensor)
// Returns the physical tensor of a batched tensor, the batch dimension first. Inserts dimensions of
// size 1 after it up to 1 + ndim dimensions, so that results of several calls broadcast. Returns
// other tensors unchanged. A new reference; NULL stays NULL.
px_status px__vmap_physical(px_tensor **out, const px__vmap_call *b, px_tensor *t, int ndim)
    __attribute__((warn_unused_result));
// Returns the physical tensor, without inserted dimensions. Tensors not batched are repeated.
px_status px__vmap_ensure_batch_dim(px_tensor **out, const px__vmap_call *b, px_tensor *t)
    __attribute__((warn_unused_result));
// Sets result i of the call to the batched tensor over `made`. Takes the reference.
px_status px__vmap_set_result(px__vmap_call *b, int i, px_tensor *made_take)
    __attribute__((warn_unused_result));
// Writes the batch size and a list of sizes to `buffer`, of PX_MAX_DIMS elements. PX_RUNTIME for
// too many.
px_status px__vmap_sizes(int64_t *buffer, const px__vmap_call *b, px_value sizes)
    __attribute__((warn_unused_result));
// Multiplies one of the sizes of a list argument; the list moves to `buffer`, of PX_MAX_DIMS
// elements. PX_RUNTIME for too few or too many sizes.
px_status px__vmap_scale_size(px_value *sizes, int64_t *buffer, int dim, int64_t by)
    __attribute__((warn_unused_result));
// The largest number of dimensions of the arguments' samples.
int px__vmap_rank(const px__vmap_call *b);
// Rule `align`: aligns the dimensions of samples as broadcasting does.
px_status px__vmap_align(px__vmap_call *b) __attribute__((warn_unused_result));
// Rule `shift`: puts the batch dimension before the others.
px_status px__vmap_shift(px__vmap_call *b) __attribute__((warn_unused_result));
// Rule `merge`: merges the batch dimension with the first one.
px_status px__vmap_merge(px__vmap_call *b) __attribute__((warn_unused_result));
// Runs the op's function on the batched tensors; for ops composed of other ops.
px_status px__vmap_itself(px__vmap_call *b) __attribute__((warn_unused_result));
// Rule `indices`: calls a composite for each sample of its integer tensors, whose elements it
// reads. Other tensors stay batched, with one sample: the ops of the composite are recorded at all
// levels. px__vmap_indices in op_impl.h runs it.
// Runs the op's own rule for tensors that need not be batched at the level. PX_VALUE unless the
// level is active.
px_status px__vmap_run_at(px_call *call, int64_t level, int64_t size)
    __attribute__((warn_unused_result));
// Calls the op for one sample, with its tensors replaced by those of `make`. The results of result
// i start at made[i * size]. px__vmap_select makes the sample of a mapped tensor, and returns
// others unchanged.
typedef px_status (*px__vmap_transform)(px_tensor **out, const px__vmap_call *b, px_tensor *t,
                                        int64_t number);
px_status px__vmap_call_sample(px__vmap_call *b, px__vmap_transform make, px_tensor **made,
                               int64_t index) __attribute__((warn_unused_result));
px_status px__vmap_select(px_tensor **out, const px__vmap_call *b, px_tensor *t, int64_t index)
    __attribute__((warn_unused_result));
// Rule `loop`: calls the op for each sample. `quiet`: without PyTorch's warning.
px_status px__vmap_loop(px__vmap_call *b, bool quiet) __attribute__((warn_unused_result));
