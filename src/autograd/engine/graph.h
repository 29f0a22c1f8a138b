// SPDX-License-Identifier: Apache-2.0
// Internal header: the autograd graph. Nodes, edges, and the gradient state of a tensor.
//
// Ownership: a tensor owns its gradient state. A gradient state owns the node that produced the
// tensor. A node owns the nodes of its inputs and its saved tensors. There are no back references
// and hence no cycles: a saved result, or a saved input that can change in place, is an alias
// without history (the edges hold the history). The only weak pointer is from a gradient state to
// its AccumulateGrad node.
#pragma once
#include "autograd/engine/hook_list.h"
#include "phlox/op.h"
#include "phlox/autograd.h"
#include "phlox/extend.h"
#include "phlox/fuse.h"
#include "phlox/spin.h"

#include <pthread.h>
#include <string.h>

enum { PX__MAX_PARAMS_OF_OP = 16 };

typedef struct px__edge {
  px_node *node;  // owned; NULL: no gradient required
  int32_t nr;     // result index
} px__edge;
// Metadata of a node's result. Incoming gradients are converted to it.
typedef struct px__meta {
  const int64_t *sizes;
  px_device device;
  int8_t ndim, dtype;
} px__meta;

// Arguments of one run of a node's backward.
typedef struct px__run {
  px_tensor *const *grads;  // one per result; NULL if none arrived
  px_tensor **out;          // one per edge, NULL on entry; new references, NULL means zero
  bool *required;           // one per edge; a node may write here
} px__run;
typedef struct px__kind {
  px_status (*apply)(px_node *node, const px__run *run);
  void (*drop)(px_node *node);  // releases saved tensors; may be called repeatedly. May be NULL
  void (*end)(px_node *node);   // releases everything else, at destruction. May be NULL
  // Of accumulators, else NULL. `dies` is called when the reference count reaches zero.
  bool (*dies)(px_node *node);
  px_tensor *(*leaf)(const px_node *node);
} px__kind;

struct px_node {
  px_object head;
  const px__kind *kind;
  const char *name;  // never freed: profiler reports use it after the node's destruction
  px__edge *edges;
  px__meta *results;
  px_stream *stream;          // of the forward op; NULL on the CPU
  px_node *next;              // in the destruction queue
  px__gradient_hooks *hooks;  // atomic, set once
  const char *file;  // call site of the forward op, for device work and anomaly mode; or NULL
  uint64_t sequence;
  uint64_t claim;  // atomic hint of the engine: task number and entry index
  px_device device;
  int32_t edge_count, result_count;
  uint32_t bytes;
  int32_t line;
  int32_t users;  // runs in progress; `lock` guards it and `freed`
  uint8_t lock;
  uint8_t level;  // outermost vmap level at which its history began (phlox/vmap.h)
  bool freed;
  bool fused;  // recorded within px_fuse_begin and px_fuse_end: its backward is fused, too
  // Forward mode (dual.c).
  // dual: a variable of a level is reachable.
  // forward_only: reachable history is forward-mode only, or was recorded with grad mode off.
  //   Reverse mode ignores the node.
  // reverse_only: forward mode does not follow the node's edges.
  bool dual, forward_only, reverse_only;
};

// The hooks of a node, or NULL.
static inline px__gradient_hooks *px__hooks_of(const px_node *node) {
  return __atomic_load_n(&node->hooks, __ATOMIC_ACQUIRE);
}
static inline bool px__has_hooks(const px_node *node) {
  return __atomic_load_n(&node->hooks, __ATOMIC_RELAXED) != NULL;
}

struct px__grad_state {
  px_object head;
  px_node *fn;  // owned; NULL: a leaf
  int32_t nr;
  uint8_t lock;              // guards the fields from `fn` to `grad`
  uint8_t level;             // leaf: vmap level at which requires_grad was set
  bool hidden;               // leaf: it is a variable of forward mode
  px_node *accumulator;      // weak
  px_tensor *grad;           // of a leaf; owned
  px__grad_box *box;         // of a non-leaf that retains its gradient; owned, set once
  px__gradient_hooks hooks;  // all hooks registered through this tensor
  px__gradient_hooks accumulated;
};

// What a tensor's state says of its history, read at once.
typedef struct px__history {
  bool recorded;  // a node made the tensor
  bool dual, forward_only;
  uint8_t level;  // outermost vmap level at which it began
} px__history;
static inline px__history px__history_of(const px_tensor *t) {
  px__grad_state *state = px_tensor_slot(t);
  if (!state) return (px__history){0};
  px_spin_lock(&state->lock);
  const px_node *fn = state->fn;
  px__history history = {fn, fn && fn->dual, fn ? fn->forward_only : state->hidden,
                         fn ? fn->level : state->level};
  px_spin_unlock(&state->lock);
  return history;
}

// Outermost vmap level at which t's history began; 0: outside of vmap.
static inline int px__history_level(const px_tensor *t) { return px__history_of(t).level; }

// True if t has history for forward mode only. Reverse mode ignores it.
static inline bool px__is_forward_only(const px_tensor *t) {
  return px__history_of(t).forward_only;
}

// ---- pool.c: zeroed memory for nodes and gradient states, from per-thread free lists
__attribute__((warn_unused_result)) px_status px__pool_get(void **out, size_t bytes);
void px__pool_put(void *memory, size_t bytes);

// ---- node.c
// Creates a node. `body` is the size of its struct, which begins with px_node, and of its trailing
// arrays. `results` define the metadata. The device is that of the first result on an accelerator.
__attribute__((warn_unused_result)) px_status px__node_new(px_node **out, const px__kind *kind,
                                                           const char *name, size_t body,
                                                           int edge_count, int result_count,
                                                           px_tensor *const *results);
// Records the forward call site of a node with complete edges, if it or an input is on a device.
// `launched`: a tensor produced by a launch of the call, or NULL.
void px__node_sited(px_node *node, const px_tensor *launched);
// Brackets a run of the node. enter fails if saved tensors have been released. leave releases them
// if `release`.
__attribute__((warn_unused_result)) px_status px__node_enter(px_node *node);
void px__node_leave(px_node *node, bool release);
uint64_t px__node_next(void);  // sequence number of the next node

// ---- forward.c
__attribute__((warn_unused_result)) px_status px__check_tangent(const px_tensor *input,
                                                                const px_tensor *tangent,
                                                                int64_t i);

// ---- forward mode (dual.c; the functions are in modes.c, state.c and node.c)
// True if a forward-mode level is active on this thread; true if t has a tangent.
bool px__forward(void);
bool px__is_dual(const px_tensor *t);
// Sets the mode flags of a node with complete edges.
void px__dual_note(px_node *node);
// True if a pass of the given mode follows the i-th edge of a node.
static inline bool px__sees(const px_node *node, int i, bool forward) {
  const px_node *next = node->edges[i].node;
  return next && (forward ? !node->reverse_only : !next->forward_only);
}

// ---- state.c
// True if t is a view whose base changed after t's history was created.
bool px__view_stale(const px_tensor *t);
// True if a recorded change of the view t is one of its base. The base may require grad since the
// view was made.
static inline bool px__base_records(const px_tensor *t, const px_tensor *base) {
  return base && (px_tensor_marks(base) & PX_MARK_NEEDS_GRAD) &&
         px_dtype_is_differentiable(px_tensor_dtype(t));
}
// True if t is a variable or has history, in reverse or forward mode. Called for every argument of
// every call; the marks decide most cases.
static inline bool px__has_history(const px_tensor *t) {
  unsigned marks = px_tensor_marks(t);
  return (marks & PX_MARK_NEEDS_GRAD) || ((marks & PX_MARK_VIEW) && px__view_stale(t));
}
static inline bool px__is_origin(const px_tensor *t) {  // a leaf of either mode
  return !px__history_of(t).recorded && px_tensor_is_leaf(t);
}
enum { PX__SIZE_TEXT = 512 };
// Formats sizes as "[2, 3]" for error texts.
const char *px__size_text(const px_tensor *t, char text[PX__SIZE_TEXT]);
static inline px__grad_state *px__grad_state_of(const px_tensor *t) { return px_tensor_slot(t); }
__attribute__((warn_unused_result)) px_status px__grad_state_make(px__grad_state **out,
                                                                  px_tensor *t);
// True if the single holder of t has exclusive access to its memory. A view owns its base, which
// must then have no other owner.
static inline bool px__unseen(const px_tensor *t) {
  const px_tensor *base = px_tensor_base(t);
  int owners = base && px_refs(base) == 1 ? 2 : 1;
  return px_refs(t) == 1 && px_refs(px_tensor_storage(t)) == owners;
}
// Returns the node that made the tensor as a new reference, or NULL.
px_node *px__node_of(px__grad_state *state, int32_t *nr);
// Returns the gradient as a new reference, or NULL.
px_tensor *px__grad_of(px__grad_state *state);
void px__grad_replace(px__grad_state *state, px_tensor *grad_take);
// Returns the node before. `node_take`: NULL makes a leaf.
px_node *px__node_replace(px__grad_state *state, px_node *node_take, int nr);
// Makes t the nr-th result of a node and retains the node.
__attribute__((warn_unused_result)) px_status px__set_history(px_tensor *t, px_node *node, int nr);
// Returns an alias of t with the edge as its history.
__attribute__((warn_unused_result)) px_status px__with_history(px_tensor **out, const px_tensor *t,
                                                               px__edge edge);

// ---- packed.c: saved tensor hooks (pack and unpack)
typedef struct px__packed px__packed;
// True if the thread has pack hooks and they apply to t.
bool px__packs(const px_tensor *t);
// Runs the pack hook. The caller has disabled grad mode.
__attribute__((warn_unused_result)) px_status px__pack(px__packed **out, px_tensor *t);
__attribute__((warn_unused_result)) px_status px__unpack(px_tensor **out, px__packed *packed);

// ---- save.c: the nodes of ops
// Creates the node of a call. `needs`: parameters requiring gradients. `original`: see px_op_hooks.
__attribute__((warn_unused_result)) px_status px__op_node_new(
    px_node **out, const px_op *op, px_call_mode mode, const px_value *args, uint32_t needs,
    int result_count, px_tensor *const *results, px_tensor *original);
// Returns the values saved for the gradients in `needs`: parameters in the low 16 bits, results in
// the high 16 bits.
uint32_t px__saves_for(const px_op *op, uint32_t needs);
// Fails if t has changed in place since it was saved at `version`.
__attribute__((warn_unused_result)) px_status px__check_version(const px_tensor *t,
                                                                uint64_t version,
                                                                const char *node_name, int nr);

// ---- record.c
// True if calls with t are recorded now because of its own history.
bool px__is_recorded(const px_tensor *t);
// Makes t, changed in place by the op of a node, the node's result. If t is a view, its base gets a
// CopySlices node.
__attribute__((warn_unused_result)) px_status px__rebase(px_tensor *t, px_node *node);
// Fails if t must not change in place while recording: leaves, and some views.
__attribute__((warn_unused_result)) px_status px__check_inplace(px_tensor *t);
extern const px__kind px__zero_kind;  // the gradient of its first input is zero

// ---- view.c
// px__own_edge_of, after recreating the history of a stale view.
__attribute__((warn_unused_result)) px_status px__edge_of(px__edge *out, px_tensor *t);
// Fails if a view must not change in place, or, with `base`, if its base must not have changed.
__attribute__((warn_unused_result)) px_status px__check_view(const px_tensor *t, bool base);
__attribute__((warn_unused_result)) px_status px__copy_slices_new(px_node **out, px_tensor *base,
                                                                  px_tensor *view, px_node *inner);
// Recreates the history of a stale view.
__attribute__((warn_unused_result)) px_status px__view_refresh(px_tensor *t);

// ---- accumulate.c
extern const px__kind px__accumulate_kind;
static inline bool px__is_accumulator(const px_node *node) {
  return node && node->kind == &px__accumulate_kind;
}
// Returns the edge for t's gradient: its node, or the accumulator of a leaf. The node is NULL if t
// does not require grad. Requires that t is no stale view.
__attribute__((warn_unused_result)) px_status px__own_edge_of(px__edge *out, px_tensor *t);

// ---- alias.c
// Returns an alias with self's history of one mode. Requires that self is no stale view.
__attribute__((warn_unused_result)) px_status px__alias_for(px_tensor **out, px_tensor *self,
                                                            bool reverse);

// ---- tensor.c
void px__print_history(const px_tensor *self, char *text, size_t size);

// ---- backward.c
// px_grad, in reverse mode or in forward mode.
__attribute__((warn_unused_result)) px_status px__grad_by(
    bool forward, px_tensor **results, int64_t count, px_tensor *const *outputs,
    px_tensor *const *gradients, int64_t input_count, px_tensor *const *inputs, bool retain_graph,
    bool create_graph, bool allow_unused);

// ---- modes.c
void px__forward_count(int change);  // adds to the number of forward-mode levels
// True if the thread runs a node for forward mode. The swap returns the previous value.
bool px__run_forward(void);
bool px__run_forward_swap(bool forward);
bool px__recording(void);
bool px__check_nan(void);
// Sets grad mode and returns the previous value.
bool px__grad_swap(bool enabled);
void px__suspend(bool on);
// See px_op_hooks.descend. px__history_floor returns the current floor.
px_recording_state px__swap_recording(px_recording_state to);
int px__history_floor(void);

// ---- function.c
// The node whose backward is running on this thread.
extern _Thread_local px_node *px__running;

// True if a call may have operands on both devices.
static inline bool px__are_peers(int a, int b) {
  return px_device_peer_enabled(a, b) && px_device_peer_enabled(b, a);
}

// ---- validate.c
// Converts *grad to the metadata: sums it to the shape and casts it. For error texts: `function`
// produced it (NULL: the user) and `index` is its position.
__attribute__((warn_unused_result)) px_status px__fit_grad(px_tensor **grad, const px__meta *meta,
                                                           const char *function, int index);
// Fails with "Function 'X' returned nan values in its 0th output."
__attribute__((warn_unused_result)) px_status px__find_nan(const char *name, int count,
                                                           px_tensor *const *grads);
