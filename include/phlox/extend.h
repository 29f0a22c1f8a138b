// SPDX-License-Identifier: Apache-2.0
// For layers that extend calls of ops, as autograd does: data attached to a tensor, and hooks
// around a call. Programs that only use tensors do not need it.
//
// The lower layers have the fields and hooks, and do not know who uses them.
#pragma once
#include "phlox/memory.h"
#include "phlox/op.h"
#include "phlox/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

// ---- data attached to a tensor

// Facts of a tensor, a set of bits.
enum {
  PX_MARK_WRAPPED = 1,          // a number
  PX_MARK_PARAMETER = 2,        // px_tensor_is_parameter
  PX_MARK_ALIASED = 4,          // has a version of its own (.data)
  PX_MARK_NEEDS_GRAD = 8,       // a leaf that requires grad, or a tensor with a history
  PX_MARK_INFERENCE = 16,       // made in inference mode
  PX_MARK_VIEW = 32,            // px_tensor_base is what it is a view of
  PX_MARK_UNRECORDED = 64,      // a view made while grad mode was off
  PX_MARK_MULTI_VIEW = 128,     // a view made by an op that gives several
  PX_MARK_FUNCTION_VIEW = 256,  // a view made by a program's function
  PX_MARK_CONJ = 1024,          // its numbers are the conjugates of those in memory
  PX_MARK_NEG = 2048            // ... the negatives
};
PX_API unsigned px_tensor_marks(const px_tensor *self);
PX_API void px_tensor_mark(px_tensor *self, unsigned marks, bool on);
// Sets the marks of the calling thread's new tensors and new views, at first 0 and PX_MARK_VIEW.
// Without PX_MARK_VIEW a view does not remember its base. A view of an inference tensor is one too.
PX_API void px_tensor_set_new_marks(unsigned fresh, unsigned view);
// An object of the extending layer, which is released with the tensor; borrowed, or NULL. It can be
// set once: if several threads set it, one wins and the others' objects are released. Setting
// returns the object that the tensor now has, borrowed.
PX_API void *px_tensor_slot(const px_tensor *self);
PX_API void *px_tensor_set_slot_take(px_tensor *self, void *slot);
// Of a view: the version that the storage had when the view was made, or when its history was last
// updated.
PX_API uint64_t px_tensor_view_version(const px_tensor *self);
PX_API void px_tensor_set_view_version(px_tensor *self, uint64_t version);

// ---- threads that stand for processes

// From now on the default generator of the CPU is this one for the calling thread (borrowed; NULL:
// the process's again), and px_manual_seed seeds it and that device's alone, as it does here at
// once.
PX_API void px_random_isolate(px_generator *host, int device);
// Sets functions that are called around each wait of the host for a device, in the thread that
// waits: `end` gets what `begin` gave. An embedding language lets go of a lock there that other
// ranks need to come to what is waited for. NULL: none.
PX_API void px_wait_set_hooks(void *(*begin)(void), void (*end)(void *held));

// ---- hooks around a call

// What a thread's recording sets aside while the calls are made that a call of batched tensors
// (phlox/vmap.h) makes on the tensors beneath them: functions around the call suspend nothing
// there, and histories that began at a level of mapping from `floor` on (0: none) are not theirs.
typedef struct px_descent {
  int suspended, floor;
} px_descent;
typedef struct px_op_hooks {
  // Whether calls of this thread are recorded: grad mode, and not inside a function op.
  bool (*recording)(void);
  // Called before (true) and after (false) the run function of a view or function op, whose inner
  // calls are not recorded. Nests.
  void (*suspend)(bool on);
  // Called before an in-place or out= call changes self (for out=: the out tensor), when calls are
  // recorded or self is an inference tensor. If it fails, nothing is changed. *original, NULL on
  // entry, may get a copy of self as it was (a new reference), which the driver gives to `record`
  // and then releases.
  px_status (*before_inplace)(const px_op *op, px_call_mode mode, px_tensor *self,
                              const px_value *args, px_tensor **original);
  // Called after a call that is recorded, when versions have been increased: makes the node if a
  // differentiable input needs a gradient. `results`: op->result_count tensors, or the items of the
  // list. `original`: from before_inplace, else NULL.
  px_status (*record)(const px_op *op, px_call_mode mode, const px_value *args, int result_count,
                      px_tensor *const *results, px_tensor *original);
  // Writes what the printed form of a tensor says of its history: ", requires_grad=True", ",
  // grad_fn=<AddBackward0>" or "".
  void (*print_suffix)(const px_tensor *self, char *text, size_t room);
  // Whether a tensor that requires grad has no history: casts of such ones may be kept. NULL: none.
  bool (*is_leaf)(const px_tensor *self);
  // Sets what is set aside, and returns what was. NULL: none.
  px_descent (*descend)(px_descent to);
} px_op_hooks;
// For `record`, of a tensor that a launch of the call has made: the line of the call, which the
// launch has found already. Of other tensors it is the line that runs.
PX_API px_site px_tensor_site(const px_tensor *made);
// Has `seen` called before each call of this thread that writes memory of the caller's, with each
// tensor that it writes; NULL: no more. If it fails, nothing is written. `watch` must stay valid.
typedef struct px_write_watch {
  px_status (*seen)(px_tensor *written, void *context);
  void *context;
} px_write_watch;
PX_CALL px_op_watch_writes(const px_write_watch *watch);
// For what writes memory by other means than ops: has it seen by this thread's watch.
PX_CALL px_op_before_write(px_tensor *written);
// What a thread does around its calls of ops that compute, or view: not composites, which call
// others, and not what an op calls within. While it is asked, the thread's own calls are its own
// affair.
typedef struct px_call_keeper {
  // Before a call that makes new results: *recalled: it gives them, new references, instead of the
  // op, which does not run; the call is recorded like any. NULL: it gives none.
  px_status (*recall)(const px_op *op, const px_value *args, px_tensor **results, bool *recalled,
                      void *context);
  // After a call, with its results (borrowed). `whole`: they are new, and could be recalled. If it
  // fails, so does the call. NULL: it is not told.
  px_status (*made)(const px_op *op, px_call_mode mode, const px_value *args, int count,
                    px_tensor *const *results, bool whole, void *context);
  void *context;
} px_call_keeper;
// Sets the calling thread's keeper, which must stay valid; NULL: none. *before, if it is not NULL,
// gets the one that it had.
PX_CALL px_op_keep_calls(const px_call_keeper *keeper, const px_call_keeper **before);
// Has `counted` told, from here on and by all threads, of each launch whose op says what it counts
// as: the names, as its entry has them ("convolution, backward convolution_backward"), and how many
// operations. NULL: nobody is told.
typedef void (*px_op_counted)(const char *names, int64_t operations, px_device_type type);
PX_API void px_op_tell_operations(px_op_counted counted);
// Sets the hooks of the process, once, before other threads call ops. `hooks` must stay valid.
PX_API void px_op_set_hooks(const px_op_hooks *hooks);

#ifdef __cplusplus
}
#endif
