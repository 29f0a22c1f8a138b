// SPDX-License-Identifier: Apache-2.0
// For layers that extend op calls, as autograd does: data attached to tensors, and hooks around
// calls. Programs that only use tensors do not need it.
//
// The lower layers provide fields and hooks and do not depend on their users.
#pragma once
#include "phlox/memory.h"
#include "phlox/op.h"
#include "phlox/event.h"
#ifdef __cplusplus
extern "C" {
#endif

// ---- data attached to a tensor

// Flags of a tensor, a bit set.
enum {
  PX_MARK_WRAPPED = 1,          // made from a number (px_tensor_is_wrapped)
  PX_MARK_PARAMETER = 2,        // px_tensor_is_parameter
  PX_MARK_ALIASED = 4,          // has its own version counter (.data)
  PX_MARK_NEEDS_GRAD = 8,       // a leaf that requires grad, or a tensor with a history
  PX_MARK_INFERENCE = 16,       // made in inference mode
  PX_MARK_VIEW = 32,            // a view; px_tensor_base is its base
  PX_MARK_UNRECORDED = 64,      // a view made while grad mode was off
  PX_MARK_MULTI_VIEW = 128,     // a view made by an op with several results
  PX_MARK_FUNCTION_VIEW = 256,  // a view made by a user-defined function
  PX_MARK_CONJ = 1024,          // lazily conjugated: values are the conjugates of those in memory
  PX_MARK_NEG = 2048            // lazily negated: values are the negatives of those in memory
};
PX_API unsigned px_tensor_marks(const px_tensor *self);
PX_API void px_tensor_mark(px_tensor *self, unsigned marks, bool on);
// Sets the marks of the calling thread's new tensors and new views; defaults 0 and PX_MARK_VIEW.
// Without PX_MARK_VIEW, views do not store their base. Views of an inference tensor are inference
// tensors, too.
PX_API void px_tensor_set_new_marks(unsigned fresh, unsigned view);
// An object of the extending layer, released with the tensor; borrowed, or NULL. It can be set
// once. If several threads set it, one wins and the other objects are released. Setting returns the
// tensor's object, borrowed.
PX_API void *px_tensor_slot(const px_tensor *self);
PX_API void *px_tensor_set_slot_take(px_tensor *self, void *slot);
// px_tensor_detach, except that the physical tensor of a batched tensor keeps its history.
PX_CALL px_tensor_share(px_tensor **out, const px_tensor *self);
// Declares that the caller holds an alias (px_tensor_share) for a gradient only. The contents of a
// fused result that nothing else holds are computed when the gradient reads them (phlox/fuse.h).
PX_API void px_tensor_mark_saved(px_tensor *alias);
// Removes the history of the physical tensor of a batched tensor, at all levels.
PX_CALL px_tensor_detach_physical(px_tensor *self);
// Makes launches and reads of an outline's contents fail (px_tensor_outline).
PX_API void px_tensor_guard_outline(px_tensor *outline);
// True if two indices of a geometry may be the same element of memory.
PX_API bool px_may_overlap(int ndim, const int64_t *sizes, const int64_t *strides);
// Exchanges the memory, the geometry, the marks and the objects of two tensors, but not their
// users. PX_RUNTIME under vmap. Programs call px_tensor_swap.
PX_CALL px_tensor_exchange(px_tensor *self, px_tensor *other);
// For views: the storage version at the creation of the view or the last update of its history.
PX_API uint64_t px_tensor_view_version(const px_tensor *self);
PX_API void px_tensor_set_view_version(px_tensor *self, uint64_t version);

// ---- threads simulating processes

// Makes `host` (borrowed; NULL: the process's again) the calling thread's default CPU generator.
// px_manual_seed on this thread then seeds only `host` and the generator of `device`. This call
// does so at once.
PX_API void px_random_isolate(px_generator *host, int device);
// Sets functions called around each wait of the host for a device, on the waiting thread. `end`
// receives the result of `begin`. An embedding language releases its global lock there, since other
// threads may need it to make progress. NULL: none.
PX_API void px_wait_set_hooks(void *(*begin)(void), void (*end)(void *held));

// ---- hooks around a call

// Recording state saved during the inner calls of vmap (phlox/vmap.h), on physical tensors: the
// depth of `suspend`, 0 inside, and the lowest vmap level with hidden histories (0: none).
typedef struct px_recording_state {
  int suspended, floor;
} px_recording_state;
typedef struct px_op_hooks {
  // True if calls of this thread are recorded: grad mode is on, and the thread is not inside a
  // function op.
  bool (*recording)(void);
  // Called before (true) and after (false) the run function of a view or function op,
  // whose inner calls are not recorded. Nests.
  void (*suspend)(bool on);
  // Called before an in-place or out= call changes self (for out=: the out tensor), if calls are
  // recorded or self is an inference tensor. On failure nothing is changed. *original, NULL on
  // entry, may be set to a copy of the old self (a new reference); the caller passes it to `record`
  // and then releases it.
  px_status (*before_inplace)(const px_op *op, px_call_mode mode, px_tensor *self,
                              const px_value *args, px_tensor **original);
  // Called after a recorded call, after the versions were incremented. Makes the node if a
  // differentiable input needs a gradient. `results`: op->result_count tensors, or the items of the
  // list. `original`: from before_inplace, else NULL.
  px_status (*record)(const px_op *op, px_call_mode mode, const px_value *args, int result_count,
                      px_tensor *const *results, px_tensor *original);
  // Writes the history suffix of a printed tensor: ", requires_grad=True", ",
  // grad_fn=<AddBackward0>" or "". At most `capacity` bytes.
  void (*print_suffix)(const px_tensor *self, char *text, size_t capacity);
  // True if a tensor that requires grad has no history; autocast may then cache its casts. NULL: no
  // caching.
  bool (*is_leaf)(const px_tensor *self);
  // Replaces the recording state and returns the previous one. NULL: not needed.
  px_recording_state (*swap_recording)(px_recording_state to);
} px_op_hooks;
// For `record`: the source line of the call, as found by the launch that made the tensor. For other
// tensors, the current line.
PX_API px_site px_tensor_site(const px_tensor *made);
// Calls `seen` before each call of this thread that writes the caller's memory, once for each
// tensor written; NULL disables it. If `seen` fails, nothing is written. `watch` must stay valid.
typedef struct px_write_watch {
  px_status (*seen)(px_tensor *written, void *context);
  void *context;
} px_write_watch;
PX_CALL px_op_watch_writes(const px_write_watch *watch);
// For memory written by other means than ops: calls this thread's write watch.
PX_CALL px_op_before_write(px_tensor *written);
// A dispatch hook of a thread, called around its ops that compute or view. Composites, which call
// other ops, and the inner calls of ops are not included. It is disabled while its functions run.
typedef struct px_dispatch_hook {
  // Called before a call with new results. With *recalled set, the hook has stored the results (new
  // references) and the op does not run; the call is recorded as usual. NULL: no recall.
  px_status (*recall)(const px_op *op, const px_value *args, px_tensor **results, bool *recalled,
                      void *context);
  // Called after a call, with its results (borrowed). `whole`: the results are new, so a recall is
  // possible. Failure makes the call fail. NULL: not called.
  px_status (*made)(const px_op *op, px_call_mode mode, const px_value *args, int count,
                    px_tensor *const *results, bool whole, void *context);
  void *context;
} px_dispatch_hook;
// Sets the calling thread's dispatch hook, which must stay valid; NULL: none. *before, if not NULL,
// receives the previous one.
PX_CALL px_op_set_dispatch_hook(const px_dispatch_hook *hook, const px_dispatch_hook **before);
// Sets a process-wide callback for operation counts, called for each launch of an op with a
// `counts` entry: with the names in the entry ("convolution, backward convolution_backward") and
// the number of operations. NULL: none.
typedef void (*px_op_flop_callback)(const char *names, int64_t operations, px_device_type type);
PX_API void px_op_set_flop_callback(px_op_flop_callback counted);
// Sets the hooks of the process, once, before other threads call ops. `hooks` must stay valid.
PX_API void px_op_set_hooks(const px_op_hooks *hooks);

// ---- work of other libraries
// Queues another library's work on a stream, on tensors of its device. `queue` receives the
// backend's stream handle and the addresses of the tensors' first elements, in order. It returns
// once the library has queued its work, and must not call device functions. The work is ordered,
// race-checked and profiled like a launch, under `name`, and memory is not reused while the work
// uses it. The first `reads` tensors are read, the others written. Returns the error of `queue`.
PX_CALL px_stream_queue(px_stream *stream, const char *name, px_tensor *const *tensors, int count,
                        int reads,
                        px_status (*queue)(void *native, void *const *addresses, void *context),
                        void *context);
// Returns whether an event is reached, like px_event_query but without locks, for watchdogs of
// threads that may hang. The event must have been recorded once, outside of captures, and not be
// recorded concurrently. False if unknown.
PX_API bool px_event_query_nolock(const px_event *event);

#ifdef __cplusplus
}
#endif
