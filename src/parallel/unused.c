// SPDX-License-Identifier: Apache-2.0
// Detection of unused parameters: walks the graph from the outputs. Parameters not visited are
// unused.
#include "parallel/reducer_impl.h"

// Visited nodes in an open-addressing hash table, and the stack of nodes to expand.
typedef struct walk {
  px_node **table, **stack;
  size_t capacity, visited, pending;  // `capacity` of both the table and the stack
} walk;

static px_node **find_slot(px_node **table, size_t capacity, const px_node *node) {
  size_t at =
      (size_t)(((uint64_t)(uintptr_t)node >> 6) * 0x9E3779B97F4A7C15u >> 32) & (capacity - 1);
  while (table[at] && table[at] != node) at = (at + 1) & (capacity - 1);
  return &table[at];
}

static px_status grow(walk *w) {
  size_t capacity = w->capacity ? 2 * w->capacity : 256;
  px_node **table;
  PX_TRY(px_realloc((void **)&w->stack, capacity * sizeof *w->stack));
  PX_TRY(px_alloc((void **)&table, capacity * sizeof *table));
  for (size_t i = 0; i < w->capacity; i++)
    if (w->table[i]) *find_slot(table, capacity, w->table[i]) = w->table[i];
  px_free(w->table);
  w->table = table;
  w->capacity = capacity;
  return PX_OK;
}

static px_status visit(walk *w, px_node *node) {
  if (!node) return PX_OK;
  if (2 * w->visited >= w->capacity) PX_TRY(grow(w));
  px_node **slot = find_slot(w->table, w->capacity, node);
  if (*slot) return PX_OK;
  *slot = node;
  w->visited++;
  w->stack[w->pending++] = node;
  return PX_OK;
}

static px_status walk_from(walk *w, px_tensor *output) {
  PX_SCOPED(px_node) start = NULL;  // it keeps all nodes
  PX_TRY(px_tensor_get_grad_fn(&start, output));
  PX_TRY(visit(w, start));
  while (w->pending) {
    px_node *node = w->stack[--w->pending];
    int nr;
    for (int i = 0; i < px_node_edge_count(node); i++) PX_TRY(visit(w, px_node_edge(node, i, &nr)));
  }
  return PX_OK;
}

// An output may itself be a parameter.
static bool among(px_tensor *tensor, px_tensor *const *tensors, int count) {
  for (int i = 0; i < count; i++)
    if (tensors[i] == tensor) return true;
  return false;
}

px_status px__find_unused(px_reducer *self, px_tensor *const *outputs, int count) {
  walk w = {0};
  px_status status = grow(&w);
  for (int i = 0; i < count && status == PX_OK; i++) status = walk_from(&w, outputs[i]);
  bool any = false;
  for (int i = 0; i < self->count && status == PX_OK; i++) {
    px__variable *v = &self->variables[i];
    v->unused = !*find_slot(w.table, w.capacity, v->node) && !among(v->tensor, outputs, count);
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
