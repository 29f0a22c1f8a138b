// SPDX-License-Identifier: Apache-2.0
// Creation, destruction and properties of nodes.
//
// A node is one allocation: its struct, its kind's data, edges, and metadata of its results.
// Destroying a node can release the last reference to the next one, through a graph of any depth.
// Nodes are therefore queued, and the outermost call destroys them in a loop.
#include "autograd/engine/graph.h"

static uint64_t sequence;  // atomic
static _Thread_local px_node *dying;
static _Thread_local bool draining;

static void node_end(px_node *node) {
  if (node->kind->drop) node->kind->drop(node);
  if (node->kind->end) node->kind->end(node);
  for (int i = 0; i < node->edge_count; i++) px_release(node->edges[i].node);
  if (node->stream) px_release(node->stream);
  if (node->hooks) {
    px__hooks_clear(node->hooks);
    px_free(node->hooks);
  }
  px_object_end(node);
  px__pool_put(node, node->bytes);
}

static void node_destroy(void *self) {
  px_node *node = self;
  if (node->kind->dies && !node->kind->dies(node)) return;
  node->next = dying;
  dying = node;
  if (draining) return;
  draining = true;
  while (dying) {
    px_node *first = dying;
    dying = first->next;
    node_end(first);
  }
  draining = false;
}

static const px_class node_class = {"node", node_destroy};

static int dims_of(int count, px_tensor *const *results) {
  int dims = 0;
  for (int i = 0; i < count; i++) dims += results[i] ? px_tensor_ndim(results[i]) : 0;
  return dims;
}

static void describe(px__meta *meta, int64_t **space, const px_tensor *t) {
  int ndim = px_tensor_ndim(t);
  *meta = (px__meta){*space, px_tensor_device(t), (int8_t)ndim, (int8_t)px_tensor_dtype(t)};
  const int64_t *sizes = px_tensor_sizes(t);
  for (int d = 0; d < ndim; d++) (*space)[d] = sizes[d];
  *space += ndim;
}

static px_status set_device(px_node *node) {
  node->device = px_cpu();
  for (int i = 0; i < node->result_count; i++) {
    if (node->results[i].device.type != PX_CUDA) continue;
    node->device = node->results[i].device;
    PX_TRY(px_stream_current(&node->stream, node->device));
    px_retain(node->stream);
    return PX_OK;
  }
  return PX_OK;
}

px_status px__node_new(px_node **out, const px__kind *kind, const char *name, size_t body,
                       int edge_count, int result_count, px_tensor *const *results) {
  body = (body + 7) / 8 * 8;
  size_t edges = (size_t)edge_count * sizeof(px__edge);
  size_t metas = (size_t)result_count * sizeof(px__meta);
  size_t dims = (size_t)dims_of(result_count, results) * sizeof(int64_t);
  size_t bytes = body + edges + metas + dims;
  PX_CHECK(bytes <= UINT32_MAX, PX_RUNTIME, "a node of %zu bytes is too large", bytes);
  px_node *node = NULL;
  PX_TRY(px__pool_get((void **)&node, bytes));
  px_object_init(node, &node_class);
  node->kind = kind;
  node->name = name;
  node->fused = px_fuse_active();
  node->bytes = (uint32_t)bytes;
  node->edge_count = edge_count;
  node->result_count = result_count;
  node->edges = (px__edge *)((char *)node + body);
  node->results = (px__meta *)((char *)node->edges + edges);
  int64_t *space = (int64_t *)((char *)node->results + metas);
  for (int i = 0; i < result_count; i++)
    if (results[i])
      describe(&node->results[i], &space, results[i]);
    else
      node->results[i].dtype = PX_DTYPE_NONE;
  node->sequence = __atomic_fetch_add(&sequence, 1, __ATOMIC_RELAXED);
  px_status status = set_device(node);
  if (px_anomaly_enabled()) px_site_get(&node->file, &node->line);
  if (status != PX_OK)
    px_release(node);
  else
    *out = node;
  return status;
}

static bool uses_device(const px_node *node) {
  bool uses = node->stream != NULL;
  for (int i = 0; i < node->edge_count && !uses; i++)
    uses = node->edges[i].node && node->edges[i].node->stream;
  return uses;
}

void px__node_sited(px_node *node, const px_tensor *launched) {
  px_site site = {0};
  if (!uses_device(node)) return;
  if (launched)
    site = px_tensor_site(launched);
  else
    px_site_get(&site.file, &site.line);
  node->file = site.file, node->line = site.line;
}

void px__dual_note(px_node *node) {
  bool reverse = px_grad_enabled(), others = false;
  for (int i = 0; i < node->edge_count; i++) {
    const px_node *next = node->edges[i].node;
    if (!next) continue;
    node->dual |= next->dual && !node->reverse_only;
    others |= !next->forward_only;
  }
  if (node->dual && !(reverse && others)) node->forward_only = true;
}

px_status px__node_enter(px_node *node) {
  px_spin_lock(&node->lock);
  bool freed = node->freed;
  if (!freed) node->users++;
  px_spin_unlock(&node->lock);
  PX_CHECK(!freed, PX_RUNTIME,
           "Trying to backward through the graph a second time (or directly access saved tensors "
           "after they have already been freed). Saved intermediate values of the graph are freed "
           "when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
           "backward through the graph a second time or if you need to access saved tensors after "
           "calling backward.");
  return PX_OK;
}

void px__node_leave(px_node *node, bool release) {
  px_spin_lock(&node->lock);
  if (release && node->kind->drop) node->freed = true;
  bool last = --node->users == 0 && node->freed;
  px_spin_unlock(&node->lock);
  if (last) node->kind->drop(node);
}

const char *px_node_name(const px_node *node) { return node->name; }
int px_node_edge_count(const px_node *node) { return node->edge_count; }
uint64_t px__node_next(void) { return __atomic_load_n(&sequence, __ATOMIC_RELAXED); }
uint64_t px_node_sequence(const px_node *node) { return node->sequence; }
void px_node_prioritize(px_node *node) { node->sequence = UINT64_MAX; }

px_node *px_node_edge(const px_node *node, int i, int *output_nr) {
  bool inside = i >= 0 && i < node->edge_count;
  if (output_nr) *output_nr = inside ? node->edges[i].nr : 0;
  return inside ? node->edges[i].node : NULL;
}

px_tensor *px_node_variable(const px_node *node) {
  return node->kind->leaf ? node->kind->leaf(node) : NULL;
}
