// SPDX-License-Identifier: Apache-2.0
// Parameters that the outputs of a forward pass do not depend on: the graph is walked from the
// outputs, and who is not met is unused.
#include "parallel/reducer_impl.h"

// Nodes that were met, in a table of addresses, and those that are still to be gone through.
typedef struct walk {
  px_node **table, **stack;
  size_t room, met, waiting;  // the stack has as much room as the table
} walk;

static px_node **place_of(px_node **table, size_t room, const px_node *node) {
  size_t at = (size_t)(((uint64_t)(uintptr_t)node >> 6) * 0x9E3779B97F4A7C15u >> 32) & (room - 1);
  while (table[at] && table[at] != node) at = (at + 1) & (room - 1);
  return &table[at];
}

static px_status grow(walk *w) {
  size_t room = w->room ? 2 * w->room : 256;
  px_node **table;
  PX_TRY(px_realloc((void **)&w->stack, room * sizeof *w->stack));
  PX_TRY(px_alloc((void **)&table, room * sizeof *table));
  for (size_t i = 0; i < w->room; i++)
    if (w->table[i]) *place_of(table, room, w->table[i]) = w->table[i];
  px_free(w->table);
  w->table = table;
  w->room = room;
  return PX_OK;
}

static px_status meet(walk *w, px_node *node) {
  if (!node) return PX_OK;
  if (2 * w->met >= w->room) PX_TRY(grow(w));
  px_node **place = place_of(w->table, w->room, node);
  if (*place) return PX_OK;
  *place = node;
  w->met++;
  w->stack[w->waiting++] = node;
  return PX_OK;
}

static px_status walk_from(walk *w, px_tensor *const *outputs, int count) {
  for (int i = 0; i < count; i++) {
    px_node *node;
    PX_TRY(px_tensor_grad_fn(&node, outputs[i]));
    PX_TRY(meet(w, node));
  }
  while (w->waiting) {
    px_node *node = w->stack[--w->waiting];
    int nr;
    for (int i = 0; i < px_node_edge_count(node); i++) PX_TRY(meet(w, px_node_edge(node, i, &nr)));
  }
  return PX_OK;
}

// An output may be a parameter itself.
static bool among(px_tensor *tensor, px_tensor *const *tensors, int count) {
  for (int i = 0; i < count; i++)
    if (tensors[i] == tensor) return true;
  return false;
}

px_status px__find_unused(px_reducer *self, px_tensor *const *outputs, int count) {
  walk w = {0};
  px_status status = grow(&w);
  if (status == PX_OK) status = walk_from(&w, outputs, count);
  bool any = false;
  for (int i = 0; i < self->count && status == PX_OK; i++) {
    px__variable *v = &self->variables[i];
    v->unused = !*place_of(w.table, w.room, v->node) && !among(v->tensor, outputs, count);
    any |= v->unused;
  }
  px_free(w.table);
  px_free(w.stack);
  PX_TRY(status);
  if (any || self->warned_unused) return PX_OK;
  self->warned_unused = true;
  return px_warn(
      PX_WARN_USER,
      "find_unused_parameters=True was specified in DDP constructor, but did not find any unused "
      "parameters in the forward pass. This flag results in an extra traversal of the autograd "
      "graph every iteration,  which can adversely affect performance. If your model indeed never "
      "has any unused parameters in the forward pass, consider turning this flag off. Note that "
      "this warning may be a false positive if your model has flow control causing later "
      "iterations to have unused parameters.");
}
