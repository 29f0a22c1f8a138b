// SPDX-License-Identifier: Apache-2.0
// A call of batched tensors (phlox/vmap.h), for the rules of ops: what is mapped at the deepest
// level among the arguments is called beneath, at the level above.
//
// `PX_VMAP_RULE(mm) { ... }` defines the rule that entries name by `batch mm`. It gets the call and
// its arguments by name, as run functions do, and leaves results with px__vmap_set_result.
#pragma once
#include "call/call_impl.h"

struct px__vmap_call {
  px_call *call;
  int level;
  int64_t size;         // of the mapped dimension
  struct above *above;  // while a rule runs: what it set aside
};

#define PX_VMAP_RULE(name) \
  static px_status vmap_##name(px__vmap_call *b, const px__##name##_vmap_args *args); \
  px_status px__vmap_##name(px__vmap_call *b) { \
    const px__##name##_vmap_args args = px__##name##_vmap_args_of(b->call->args); \
    return vmap_##name(b, &args); \
  } \
  static px_status vmap_##name(px__vmap_call *b, const px__##name##_vmap_args *args)

// The value of a parameter among the arguments of a call that a rule makes.
static inline px_value *px__vmap_argument(const px_op *op, px_value *args, const char *name) {
  int i = op->param_count - 1;
  while (i > 0 && strcmp(op->params[i].name, name) != 0) i--;
  return &args[i];
}
static inline bool px__is_mapped(const px__vmap_call *b, const px_tensor *t) {
  return t && px__is_batched(t) && t->level == b->level;
}
// What is beneath a mapped tensor, the mapped dimension first, with dimensions of size 1 behind
// that until there are 1 + ndim; another tensor as it is. Then the two are broadcast together. A
// new reference; NULL stays NULL.
px_status px__vmap_physical(px_tensor **out, const px__vmap_call *b, px_tensor *t, int ndim)
    __attribute__((warn_unused_result));
// The same without other dimensions, and a tensor that is not mapped is repeated.
px_status px__vmap_ensure_batch_dim(px_tensor **out, const px__vmap_call *b, px_tensor *t)
    __attribute__((warn_unused_result));
// Result i of the call is what stands for the places of `made`, whose reference it takes.
px_status px__vmap_set_result(px__vmap_call *b, int i, px_tensor *made_take)
    __attribute__((warn_unused_result));
// The rule `align`: dimensions of places are aligned as those of operands that are broadcast.
px_status px__vmap_align(px__vmap_call *b) __attribute__((warn_unused_result));
// The rule `shift`: the mapped dimension comes before the others.
px_status px__vmap_shift(px__vmap_call *b) __attribute__((warn_unused_result));
// The rule `merge`: the mapped dimension and the first one become one.
px_status px__vmap_merge(px__vmap_call *b) __attribute__((warn_unused_result));
// Runs the op's function on the batched tensors: where it composes the result of other ops.
px_status px__vmap_itself(px__vmap_call *b) __attribute__((warn_unused_result));
// The rule for each place by itself; without a word if `quiet`.
px_status px__vmap_loop(px__vmap_call *b, bool quiet) __attribute__((warn_unused_result));
