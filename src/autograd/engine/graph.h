// SPDX-License-Identifier: Apache-2.0
// The graph: nodes, their edges, and autograd's data of a tensor. For the files of this folder.
//
// Ownership: a tensor owns its gradient state, a gradient state owns the node that made the tensor,
// a node owns the nodes of its inputs and what it saved. Nothing points back, so references form no
// cycle: a saved result, and a saved input that could later change in place, are aliases without
// history (the edges have their history). The one weak pointer is gradient state -> AccumulateGrad.
#pragma once
#include "phlox/op.h"
#include "phlox/autograd.h"
#include "phlox/extend.h"

#include <pthread.h>

#include <string.h>

enum { PX__MAX_PARAMS_OF_OP = 16 };

typedef struct px__edge {
  px_node *node;  // owned; NULL: no gradient wanted
  int32_t nr;     // which of its results
} px__edge;
// The form of a result of a node; gradients are brought to this form.
typedef struct px__meta {
  const int64_t *sizes;
  px_device device;
  int8_t ndim, dtype;
} px__meta;

// One run of a node's backward.
typedef struct px__run {
  px_tensor *const *grads;  // one a result, NULL where none arrived
  px_tensor **out;          // one an edge, NULL on entry: new references, NULL means zero
  bool *wanted;             // one an edge; a node may write here
} px__run;
typedef struct px__kind {
  px_status (*apply)(px_node *node, const px__run *run);
  void (*drop)(px_node *node);  // releases what was saved; may be called again. Or NULL
  void (*end)(px_node *node);   // releases the rest when the node ends. Or NULL
} px__kind;

// Lists and runs are its users. When the last one goes, so does the context, whoever else holds the
// hook. One lock (hooks.c) guards what changes of hooks and lists.
struct px_hook {
  px_object head;
  int64_t id;
  int32_t nr;  // which result of the node
  int32_t users;
  struct px__gradient_hooks *lists[2];  // that it is in
  bool removed;
  px_grad_hook on_grad;  // one of these
  px_status (*on_accumulated)(px_tensor *self, void *context);
  px_node_hook on_node;  // of a node, before it runs or after
  bool after;
  struct px__box *box;  // retain_grad: where the gradient goes
  void *context;
  void (*release)(void *context);
};
typedef struct px__gradient_hooks {
  int count, room;
  px_hook **items;  // owned
} px__gradient_hooks;
// The retained gradient of a non-leaf. Its gradient state and a hook of its node share it; when the
// tensor ends, the box is closed and the hook keeps nothing more.
typedef struct px__box {
  px_object head;
  uint8_t lock;  // guards the rest against a backward call while the tensor ends
  bool closed;
  px_tensor *grad;
} px__box;

struct px_node {
  px_object head;
  const px__kind *kind;
  const char *name;  // lives as long as the process: reports name it when the node is gone
  px__edge *edges;
  px__meta *results;
  px_stream *stream;  // of the forward op; NULL on the CPU
  px_node *next;      // in the queue of nodes to destroy
  px__gradient_hooks *hooks;
  const char *file;  // where the forward call was, of work on devices and in anomaly mode; or NULL
  uint64_t sequence;
  uint64_t claim;  // atomic hint of the engine: task number, index of the entry
  px_device device;
  int32_t edge_count, result_count;
  uint32_t bytes;
  int32_t line;
  int32_t users;  // runs in progress; guarded by lock, as `freed`
  uint8_t lock;
  uint8_t level;  // of mapping, at which the outermost history behind it began (phlox/vmap.h)
  bool freed;
  // For forward mode (dual.c). `dual`: a variable of a level is behind it. `forward_only`: nothing
  // else is, or it was recorded while grad mode was off; reverse mode does not see it.
  // `reverse_only`: forward mode does not see what is behind it.
  bool dual, forward_only, reverse_only;
};

typedef struct px__grad_state {
  px_object head;
  px_node *fn;  // owned; NULL: a leaf
  int32_t nr;
  uint8_t lock;              // guards `accumulator`
  uint8_t level;             // of a leaf: at which level of mapping it began to require grad
  bool hidden;               // of a leaf: it is a variable of forward mode
  px_node *accumulator;      // weak
  px_tensor *grad;           // owned; of a leaf
  px__box *box;              // owned; of a non-leaf that retains its gradient
  px__gradient_hooks hooks;  // all that were registered through this tensor
  px__gradient_hooks accumulated;
} px__grad_state;

// The level of mapping at which t's history began, of several the outermost; 0: outside of all.
static inline int px__history_level(const px_tensor *t) {
  const px__grad_state *state = px_tensor_slot(t);
  return !state ? 0 : state->fn ? state->fn->level : state->level;
}

// What reverse mode does not see has a history for forward mode.
static inline bool px__is_forward_only(const px_tensor *t) {
  const px__grad_state *state = px_tensor_slot(t);
  return state && (state->fn ? state->fn->forward_only : state->hidden);
}

// ---- pool.c: zeroed memory of nodes and gradient states, from a list of the thread
__attribute__((warn_unused_result)) px_status px__pool_get(void **out, size_t bytes);
void px__pool_put(void *memory, size_t bytes);

// ---- node.c
static inline void px__spin_lock(uint8_t *lock) {
  while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE)) {
  }
}
static inline void px__spin_unlock(uint8_t *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }
// Makes a node. `body` is the size of its struct, which begins with px_node, and of its trailing
// arrays. `results` give the forms; the device is that of the first result on an accelerator.
__attribute__((warn_unused_result)) px_status px__node_new(px_node **out, const px__kind *kind,
                                                           const char *name, size_t body,
                                                           int edge_count, int result_count,
                                                           px_tensor *const *results);
// Notes where the call was that made the node, whose edges are filled in, if it or an input is on a
// device. `launched`: a tensor that the call has made by a launch, or NULL.
void px__node_sited(px_node *node, const px_tensor *launched);
// Called before and after a run. enter fails if what was saved has been released; leave releases it
// if `release`.
__attribute__((warn_unused_result)) px_status px__node_enter(px_node *node);
void px__node_leave(px_node *node, bool release);

// ---- forward.c
__attribute__((warn_unused_result)) px_status px__check_tangent(const px_tensor *input,
                                                                const px_tensor *tangent,
                                                                int64_t i);

// ---- forward mode (dual.c; the functions are in modes.c, tensor.c and node.c)
// Whether it is under way on this thread; whether the change of t is known to it.
bool px__forward(void);
bool px__is_dual(const px_tensor *t);
// Notes in a node, whose edges are filled in, which modes see it.
void px__dual_note(px_node *node);
// Whether a pass of one of the modes goes from a node to the i-th of its inputs.
static inline bool px__sees(const px_node *node, int i, bool forward) {
  const px_node *next = node->edges[i].node;
  return next && (forward ? !node->reverse_only : !next->forward_only);
}

// ---- tensor.c
// Whether t is a view whose base changed since t's history was made (view.c).
bool px__view_stale(const px_tensor *t);
// Whether t is a variable or has a history, of reverse mode or of forward mode. Each call asks it
// of each argument, and the marks answer for most.
static inline bool px__has_history(const px_tensor *t) {
  unsigned marks = px_tensor_marks(t);
  return (marks & PX_MARK_NEEDS_GRAD) || ((marks & PX_MARK_VIEW) && px__view_stale(t));
}
static inline bool px__is_origin(const px_tensor *t) {  // a leaf of either mode
  const px__grad_state *state = px_tensor_slot(t);
  return !(state && state->fn) && px_tensor_is_leaf(t);
}
enum { PX__SIZE_TEXT = 512 };
// The sizes as text, "[2, 3]", for messages.
const char *px__size_text(const px_tensor *t, char text[PX__SIZE_TEXT]);
static inline px__grad_state *px__grad_state_of(const px_tensor *t) { return px_tensor_slot(t); }
__attribute__((warn_unused_result)) px_status px__grad_state_make(px__grad_state **out,
                                                                  px_tensor *t);
// Whether nobody but the holder of one reference can see t or its memory. A view keeps its base,
// which then has no other owner.
static inline bool px__unseen(const px_tensor *t) {
  const px_tensor *base = px_tensor_base(t);
  int owners = base && px_refs(base) == 1 ? 2 : 1;
  return px_refs(t) == 1 && px_refs(px_tensor_storage(t)) == owners;
}
// Makes t the nr-th result of a node, to which it keeps a reference.
__attribute__((warn_unused_result)) px_status px__set_history(px_tensor *t, px_node *node, int nr);
// Gives the edge for t's gradient: to its node, or to the accumulator of a leaf; node NULL if t
// does not require grad.
__attribute__((warn_unused_result)) px_status px__edge_of(px__edge *out, px_tensor *t);
// A new tensor over t's memory whose history is the edge.
__attribute__((warn_unused_result)) px_status px__with_history(px_tensor **out, const px_tensor *t,
                                                               px__edge edge);

// ---- hooks.c
uint64_t px__node_next(void);  // the number that the next node gets
void px__hooks_clear(px__gradient_hooks *hooks);
// Gives the i-th hook that only the lists of self, and of the node that made it, have.
bool px__hooks_at(const px__grad_state *self, int i, px_context *out);
// Releases the retained gradient and keeps no other: the tensor ends.
void px__box_close(px__box *box);
// Runs node's hooks over the gradients of its results, replacing them.
__attribute__((warn_unused_result)) px_status px__hooks_run(px_node *node, px_tensor **grads);
__attribute__((warn_unused_result)) px_status px__hooks_run_accumulated(px_tensor *leaf);
// Runs the node's own hooks, those before it or those after, which may replace what they get.
typedef struct px__node_grads {
  px_tensor **in, **out;  // of the results, and of the inputs
  int in_count, out_count;
} px__node_grads;
__attribute__((warn_unused_result)) px_status px__hooks_run_node(px_node *node, bool after,
                                                                 const px__node_grads *grads);
// Moves the hook that retains t's gradient to the node that now made t.
__attribute__((warn_unused_result)) px_status px__hooks_move_retained(px_tensor *t, px_node *from);

// ---- packed.c: what hooks keep in the place of saved tensors
typedef struct px__packed px__packed;
// Whether the thread has hooks for a tensor that is being saved.
bool px__packs(const px_tensor *t);
// The hook records nothing: who calls it has switched the grad mode off.
__attribute__((warn_unused_result)) px_status px__pack(px__packed **out, px_tensor *t);
__attribute__((warn_unused_result)) px_status px__unpack(px_tensor **out, px__packed *packed);

// ---- save.c: the nodes of ops
// The node of a call whose parameters in `needs` want gradients. `original`: see px_op_hooks.
__attribute__((warn_unused_result)) px_status px__op_node_new(
    px_node **out, const px_op *op, px_call_mode mode, const px_value *args, uint32_t needs,
    int result_count, px_tensor *const *results, px_tensor *original);
// Returns what is saved for the gradients in `needs`: parameters in the low 16 bits, results in the
// high ones.
uint32_t px__saves_for(const px_op *op, uint32_t needs);
// Fails if t, which was saved at `version`, has been changed in place since.
__attribute__((warn_unused_result)) px_status px__check_version(const px_tensor *t,
                                                                uint64_t version,
                                                                const char *node_name, int nr);

// ---- record.c
// Whether calls with t are recorded now, by its own history.
bool px__is_wanted(const px_tensor *t);
// Makes t, which the op of a node changed in place, the node's result. If t is a view, its base
// gets a node too.
__attribute__((warn_unused_result)) px_status px__rebase(px_tensor *t, px_node *node);
// Fails if t may not be changed in place while calls are recorded: leaves, and some views.
__attribute__((warn_unused_result)) px_status px__check_inplace(px_tensor *t);
// Fails for a view that may not change in place, or (`base`) whose base may not have changed.
__attribute__((warn_unused_result)) px_status px__check_view(const px_tensor *t, bool base);
extern const px__kind px__zero_kind;  // its first input's gradient is zero, in place

// ---- view.c
__attribute__((warn_unused_result)) px_status px__copy_slices_new(px_node **out, px_tensor *base,
                                                                  px_tensor *view, px_node *inner);
// Brings up to date a view of which px__view_stale is true.
__attribute__((warn_unused_result)) px_status px__view_refresh(px_tensor *t);

// ---- accumulate.c
extern const px__kind px__accumulate_kind;
static inline bool px__is_accumulator(const px_node *node) {
  return node && node->kind == &px__accumulate_kind;
}
__attribute__((warn_unused_result)) px_status px__accumulator(px_node **out, px_tensor *leaf);
// Called when the count of an accumulator reached its end; false if it found a new owner.
bool px__accumulator_dies(px_node *node);
px_tensor *px__accumulator_leaf(const px_node *node);

// ---- backward.c
// px_grad, in reverse mode or in forward mode.
__attribute__((warn_unused_result)) px_status px__grad_by(
    bool forward, px_tensor **results, int64_t count, px_tensor *const *outputs,
    px_tensor *const *gradients, int64_t input_count, px_tensor *const *inputs, bool retain_graph,
    bool create_graph, bool allow_unused);

// ---- modes.c
void px__forward_count(int change);  // of levels of forward mode
// Whether the thread runs a node for forward mode; set by who runs it, which gets what was before.
bool px__run_forward(void);
bool px__run_forward_swap(bool forward);
bool px__recording(void);
bool px__check_nan(void);
// Sets the grad mode; returns the one before.
bool px__grad_swap(bool enabled);

// ---- function.c
// The node whose backward runs on this thread.
extern _Thread_local px_node *px__running;

// Whether a call may have operands on both devices.
static inline bool px__are_peers(int a, int b) {
  return px_device_peer_enabled(a, b) && px_device_peer_enabled(b, a);
}

// ---- validate.c
// Brings *grad to the form of `meta`: summed to its shape, of its dtype. `function` made it, or
// NULL for the user; `index` is for the message.
__attribute__((warn_unused_result)) px_status px__fit_grad(px_tensor **grad, const px__meta *meta,
                                                           const char *function, int index);
// Fails with 'Function 'X' returned nan values in its 0th output.'
__attribute__((warn_unused_result)) px_status px__find_nan(const char *name, int count,
                                                           px_tensor *const *grads);
