// SPDX-License-Identifier: Apache-2.0
// What the hand-written run functions of the op tables share: `PX_RUN(mm) { ... call->args ... }`
// defines px__run_mm, which an entry names; readers for arguments that may be absent.
#pragma once
#include "call/op_impl.h"
#include "phlox/ops.h"

#define PX_RUN(name) \
  px_status px__run_##name(px_call *call); \
  px_status px__run_##name(px_call *call)

// The k-th number of a list argument, where a list of one stands for any length.
static inline int64_t px__int_at(px_value list, int k) { return list.v.ints[list.n == 1 ? 0 : k]; }
static inline bool px__arg_bool(const px_call *call, int i) { return call->args[i].v.i != 0; }
static inline const char *px__size_text(char *room, size_t bytes, const px_tensor *t) {
  return px__sizes_text(room, bytes, t->ndim, t->sizes);
}
