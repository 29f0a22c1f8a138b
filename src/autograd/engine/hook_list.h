// SPDX-License-Identifier: Apache-2.0
// Internal header: hooks of tensors and nodes, and their lists.
#pragma once
#include "phlox/autograd.h"

typedef struct px__grad_state px__grad_state;

// Lists and running calls count as users. The last one releases the context, even if other
// references to the hook exist. One global lock (hook_list.c) guards mutable fields of hooks and
// lists.
struct px_hook {
  px_object head;
  int64_t id;
  int32_t nr;  // result index of the node
  int32_t users;
  struct px__gradient_hooks *lists[2];  // the lists containing it
  int at[2];                            // its positions in them
  bool removed;
  px_grad_hook on_grad;  // exactly one callback is set
  px_status (*on_accumulated)(px_tensor *self, void *context);
  px_node_hook on_node;  // pre-hook or post-hook of a node
  bool after;
  struct px__grad_box *box;  // retain_grad: destination of the gradient
  void *context;
  void (*release)(void *context);
};
typedef struct px__gradient_hooks {
  int count, capacity,
      gaps;  // count includes gaps: removed hooks, until half of the items are gaps
  struct px__hook_item {
    px_hook *hook;  // owned; NULL: a gap
    int64_t id;
  } * items;
} px__gradient_hooks;
// Retained gradient of a non-leaf, shared by its gradient state and a hook of its node. When the
// tensor is destroyed the box is closed, and the hook stores nothing more.
typedef struct px__grad_box {
  px_object head;
  uint8_t lock;  // guards the fields below; backward may run while the tensor is destroyed
  bool closed;
  px_tensor *grad;
} px__grad_box;

// ---- hook_list.c
// Creates a hook with the caller as its first user. leave removes a user and its reference; the
// last user releases the context.
__attribute__((warn_unused_result)) px_status px__hook_new(px_hook **out);
void px__hook_leave(px_hook *hook);
static inline void px__hook_leave_slot(px_hook **slot) {
  if (*slot) px__hook_leave(*slot);
}
#define PX__USED_HOOK __attribute__((cleanup(px__hook_leave_slot))) px_hook
__attribute__((warn_unused_result)) px_status px__hooks_append(px__gradient_hooks *hooks,
                                                               px_hook *hook);
__attribute__((warn_unused_result)) px_status px__hooks_append_to_node(px_node *node,
                                                                       px_hook *hook);
void px__hooks_clear(px__gradient_hooks *hooks);
// Returns the hook with the id as a new reference, or NULL.
px_hook *px__hooks_find(const px__gradient_hooks *hooks, int64_t id);
// Removes the hook that stores into a box. Returns it with the list as a user, or NULL.
px_hook *px__hooks_take_retained(px__gradient_hooks *hooks, const px__grad_box *box);
// Returns the next hook owned only by the lists of self and of `node`, the node that produced it.
bool px__hooks_next(const px__grad_state *self, const px_node *node, int *position,
                    px_context *out);
// A run of the hooks that a list holds at its begin, by their ids: hooks may be added and removed
// meanwhile, concurrently or by a hook. next returns a hook with an added user, or NULL past the
// end.
typedef struct px__hook_run {
  int64_t id, last;  // of the current hook, and of the last one
} px__hook_run;
px__hook_run px__hook_run_begin(const px__gradient_hooks *hooks);
px_hook *px__hook_run_next(px__gradient_hooks *hooks, px__hook_run *run);

// ---- retained.c
__attribute__((warn_unused_result)) px_status px__grad_box_new(px__grad_box **out);
// Adds a hook of a node that stores the gradient of its nr-th result.
__attribute__((warn_unused_result)) px_status px__grad_box_append(px_node *node, px__grad_box *box,
                                                                  int nr);
// Moves the hook of a box between nodes. `from` may be NULL.
__attribute__((warn_unused_result)) px_status px__hooks_move_retained(const px__grad_box *box,
                                                                      px_node *from, px_node *to,
                                                                      int nr);
// Adds grad to the retained gradient, out of place. After the tensor's destruction nothing is
// stored: with create_graph the gradient's history would own the node that owns the box.
__attribute__((warn_unused_result)) px_status px__grad_box_keep(px__grad_box *box, px_tensor *grad);
// Called when the tensor is destroyed: releases the retained gradient and stores no other.
void px__grad_box_close(px__grad_box *box);

// ---- hook_run.c
// Runs the tensor hooks of a node on the gradients of its results. Hooks may replace them.
__attribute__((warn_unused_result)) px_status px__hooks_run(px_node *node, px_tensor **grads);
__attribute__((warn_unused_result)) px_status px__hooks_run_accumulated(px_tensor *leaf);
// Runs the node's own pre-hooks or post-hooks, which may replace their arguments.
typedef struct px__node_grads {
  px_tensor **in, **out;  // gradients of the results, and of the inputs
  int in_count, out_count;
} px__node_grads;
__attribute__((warn_unused_result)) px_status px__hooks_run_node(px_node *node, bool after,
                                                                 const px__node_grads *grads);
