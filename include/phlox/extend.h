// SPDX-License-Identifier: Apache-2.0
// For layers that extend the op path (autograd is one): what hangs on a tensor, and what happens
// around a call. Programs that only use tensors do not need it.
//
// The lower layers own the places that are named here and know nothing of who fills them.
#pragma once
#include "phlox/op.h"
#ifdef __cplusplus
extern "C" {
#endif

// ---- what hangs on a tensor

// Facts of a tensor, a set of bits.
enum {
  PX_MARK_WRAPPED = 1,      // a number
  PX_MARK_PARAMETER = 2,    // px_tensor_is_parameter
  PX_MARK_ALIASED = 4,      // has a version of its own (.data)
  PX_MARK_NEEDS_GRAD = 8,   // a leaf that requires grad, or a tensor with a history
  PX_MARK_INFERENCE = 16,   // made in inference mode
  PX_MARK_VIEW = 32,        // px_tensor_base is what it is a view of
  PX_MARK_UNRECORDED = 64,  // a view made while grad mode was off
  PX_MARK_MULTI_VIEW = 128  // a view made by an op that gives several
};
PX_API unsigned px_tensor_marks(const px_tensor *self);
PX_API void px_tensor_mark(px_tensor *self, unsigned marks, bool on);
// The marks that the calling thread's new tensors and new views get. At start 0 and PX_MARK_VIEW;
// without PX_MARK_VIEW views do not remember their base. A view of an inference tensor is one too.
PX_API void px_tensor_set_new_marks(unsigned fresh, unsigned view);
// One object of the extending layer, released with the tensor; borrowed, or NULL. It is set once:
// of several threads that set it one wins, and the others' objects are released. Returns the one
// that the tensor has now, borrowed.
PX_API void *px_tensor_slot(const px_tensor *self);
PX_API void *px_tensor_set_slot_take(px_tensor *self, void *slot);
// Of a view: the version of the storage when the view was made, or when its history was last
// brought up to date.
PX_API uint64_t px_tensor_view_version(const px_tensor *self);
PX_API void px_tensor_set_view_version(px_tensor *self, uint64_t version);

// ---- what happens around a call

typedef struct px_op_hooks {
  // Whether calls of this thread are recorded: grad mode, and not inside a function op.
  bool (*recording)(void);
  // Around the run of a view or function op: inner calls are not recorded. Nests.
  void (*suspend)(bool on);
  // Before an in-place or out= call changes self (out= : the out tensor); called when recording, or
  // when self is an inference tensor. May fail; nothing is changed then. *original, NULL on entry,
  // may receive a copy of self as it was (a new reference), which the driver hands to `record`
  // and releases.
  px_status (*before_inplace)(const px_op *op, px_call_mode mode, px_tensor *self,
                              const px_value *args, px_tensor **original);
  // After a call, when recording, and after versions were bumped: makes the node if any
  // differentiable input needs grad. `results`: op->result_count tensors, or the list's items.
  // `original`: of before_inplace, else NULL.
  px_status (*record)(const px_op *op, px_call_mode mode, const px_value *args, int result_count,
                      px_tensor *const *results, px_tensor *original);
  // Writes what a tensor's printed form says of its history, ", requires_grad=True", ",
  // grad_fn=<AddBackward0>" or "".
  void (*print_suffix)(const px_tensor *self, char *text, size_t room);
} px_op_hooks;
// Sets the hooks of the process, once, before other threads run ops. `hooks` must stay.
PX_API void px_op_set_hooks(const px_op_hooks *hooks);

#ifdef __cplusplus
}
#endif
