// SPDX-License-Identifier: Apache-2.0
// Tensors distributed over a mesh: local shards, and conversion between layouts. Each step handles
// one mesh dimension. First, changed dimensions are gathered or reduced, last dimension first,
// because later dimensions subdivide the shards of earlier ones. Then new shards are cut.
#include "phlox/placement.h"

#include <stdio.h>
#include <string.h>

#include "formulas.h"
#include "parallel/placed.h"
#include "phlox/autograd.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/view.h"
#include "phlox/shard.h"

// ---- collectives along one mesh dimension

// Returns the tensor, or a copy on a GPU if the communicator rejects CPU tensors.
px_status px__placed_for(px_tensor **out, px_comm *comm, px_tensor *tensor) {
  bool moves = px_comm_queues(comm) && px_tensor_device(tensor).type == PX_CPU;
  if (!moves) return *out = px_retain(tensor), PX_OK;
  return px_to(out, tensor, PX_DTYPE_NONE, px_cuda(-1), false, false);
}

static px_status run(px_comm *comm, px_collective_op op, px_reduce_op reduce, px_tensor *in,
                     px_tensor *out) {
  PX_SCOPED(px_work) work = NULL;
  px_collective collective = {
      .op = op, .reduce = reduce, .inputs = &in, .outputs = &out, .output_count = 1};
  collective.input_count = in ? 1 : 0;
  PX_TRY(px_comm_run(&work, comm, &collective));
  return px_work_wait(work, 0);
}

// Sizes of a tensor as outer x size x inner around `dim`.
static void sizes_around(int64_t out[3], const px_tensor *t, int dim) {
  out[0] = out[2] = 1, out[1] = px_tensor_size(t, dim);
  for (int d = 0; d < px_tensor_ndim(t); d++)
    if (d != dim) out[d < dim ? 0 : 2] *= px_tensor_size(t, d);
}

px_status px__placed_gather(px_tensor **out, px_comm *comm, const px_tensor *local, int dim,
                            int64_t size) {
  PX_SCOPED(px_tensor) piece = NULL;
  PX_SCOPED(px_tensor) mine = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  int64_t sizes[4], ranks = px_comm_size(comm), share = (size + ranks - 1) / ranks;
  sizes_around(sizes + 1, local, dim);
  sizes[0] = ranks, sizes[2] = share;
  PX_TRY(px__formula_padded_rows(&piece, (px_value[]){PX_T(local), PX_I(dim), PX_I(share)}));
  PX_TRY(px__placed_for(&mine, comm, piece));
  PX_TRY(px_tensor_empty(&all, 4, sizes, px_tensor_dtype(local), px_tensor_device(mine)));
  PX_TRY(run(comm, PX_ALL_GATHER, PX_REDUCE_SUM, mine, all));
  return px__formula_joined_rows(out, (px_value[]){PX_T(all), PX_T(local), PX_I(dim), PX_I(size)});
}

// Reduce-scatters unsharded tensors along `dim`.
static px_status reduce_scatter(px_tensor **out, px_comm *comm, px_reduce_op reduce,
                                const px_tensor *t, int dim) {
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  PX_SCOPED(px_tensor) mine = NULL;
  int64_t sizes[4], first, count, ranks = px_comm_size(comm), size = px_tensor_size(t, dim);
  int64_t share = (size + ranks - 1) / ranks;
  sizes_around(sizes, t, dim);
  PX_TRY(
      px__formula_rows_of_ranks(&rows, (px_value[]){PX_T(t), PX_I(dim), PX_I(ranks), PX_I(share)}));
  PX_TRY(px__placed_for(&all, comm, rows));
  sizes[1] = share;
  PX_TRY(px_tensor_empty(&mine, 3, sizes, px_tensor_dtype(t), px_tensor_device(all)));
  PX_TRY(run(comm, PX_REDUCE_SCATTER, reduce, all, mine));
  px_shard_rows(&first, &count, size, px_comm_rank(comm), (int)ranks);
  return px__formula_used_rows(out, (px_value[]){PX_T(mine), PX_T(t), PX_I(dim), PX_I(count)});
}

static px_status reduce_all(px_tensor **out, px_comm *comm, px_reduce_op reduce,
                            const px_tensor *t) {
  PX_SCOPED(px_tensor) copy = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_clone(&copy, t, "contiguous_format"));
  PX_TRY(px__placed_for(&sum, comm, copy));
  PX_TRY(run(comm, PX_ALL_REDUCE, reduce, NULL, sum));
  return px_to(out, sum, PX_DTYPE_NONE, px_tensor_device(t), false, false);
}

// ---- local shards

static const char *name_of(const px_placement *p, char text[40]) {
  static const char *const names[PX_REDUCE_COUNT] = {
      [PX_REDUCE_SUM] = "sum", [PX_REDUCE_AVG] = "avg",         [PX_REDUCE_MIN] = "min",
      [PX_REDUCE_MAX] = "max", [PX_REDUCE_PRODUCT] = "product", [PX_REDUCE_BAND] = "band",
      [PX_REDUCE_BOR] = "bor", [PX_REDUCE_BXOR] = "bxor",       [PX_REDUCE_PREMUL_SUM] = "premul"};
  if (p->kind == PX_PLACEMENT_REPLICATE)
    snprintf(text, 40, "Replicate()");
  else if (p->kind == PX_PLACEMENT_SHARD)
    snprintf(text, 40, "Shard(dim=%d)", p->dim);
  else
    snprintf(text, 40, "Partial(%s)", names[p->reduce]);
  return text;
}

static bool adds(px_reduce_op reduce) { return reduce == PX_REDUCE_SUM || reduce == PX_REDUCE_AVG; }

static px_status check(const px_layout *layout, const px_placement *placements) {
  const px_placement *partial = NULL;
  PX_CHECK(px_mesh_coordinate(layout->mesh, 0) >= 0, PX_RUNTIME, "rank is not part of mesh");
  for (int m = 0; m < px_mesh_ndim(layout->mesh); m++) {
    const px_placement *p = &placements[m];
    PX_CHECK(px_mesh_comm(layout->mesh, m), PX_RUNTIME, "the mesh has no process groups");
    PX_CHECK(p->kind != PX_PLACEMENT_SHARD || (p->dim >= 0 && p->dim < layout->ndim), PX_VALUE,
             "Sharding dim %d greater than tensor ndim %d", p->dim, layout->ndim);
    if (p->kind != PX_PLACEMENT_PARTIAL) continue;
    PX_CHECK((unsigned)p->reduce < PX_REDUCE_PREMUL_SUM, PX_VALUE,
             "the reduction %d is not supported in a Partial placement", (int)p->reduce);
    bool mixed =
        partial && partial->reduce != p->reduce && !(adds(partial->reduce) && adds(p->reduce));
    PX_CHECK(!mixed, PX_VALUE,
             "Mixed Partial reduce types are not supported in the same placement list. Please "
             "ensure all Partial placements use the same reduce operation.");
    partial = p;
  }
  return PX_OK;
}

// Sizes and offset of the local shard after the first `until` mesh dimensions.
static void part_of(int64_t *sizes, int64_t *first, const px_layout *layout,
                    const px_placement *placements, int until) {
  for (int d = 0; d < layout->ndim; d++) sizes[d] = layout->sizes[d], first[d] = 0;
  for (int m = 0; m < until; m++) {
    int d = placements[m].dim;
    int64_t begin, count;
    if (placements[m].kind != PX_PLACEMENT_SHARD) continue;
    px_shard_rows(&begin, &count, sizes[d], (int)px_mesh_coordinate(layout->mesh, m),
                  (int)px_mesh_size(layout->mesh, m));
    first[d] += begin, sizes[d] = count;
  }
}

static px_status check_layout(const px_layout *layout) {
  PX_GIVEN(layout->mesh);
  PX_GIVEN(layout->placements);
  PX_GIVEN_N(layout->sizes, layout->ndim);
  return check(layout, layout->placements);
}

px_status px_layout_part(int64_t *sizes, int64_t *first, const px_layout *layout) {
  PX_GIVEN(sizes);
  PX_GIVEN(first);
  PX_GIVEN(layout);
  PX_TRY(check_layout(layout));
  part_of(sizes, first, layout, layout->placements, px_mesh_ndim(layout->mesh));
  return PX_OK;
}

// Converts a replicated value into this rank's contribution to a Partial.
static px_status split_partial(px_tensor **value, const px_layout *layout, int m) {
  const px_placement *p = &layout->placements[m];
  PX_SCOPED(px_tensor) less = NULL;
  char text[40];
  bool same =
      p->reduce == PX_REDUCE_AVG || p->reduce == PX_REDUCE_MIN || p->reduce == PX_REDUCE_MAX;
  if (p->kind != PX_PLACEMENT_PARTIAL || same) return PX_OK;
  PX_CHECK(p->reduce == PX_REDUCE_SUM, PX_VALUE, "Replicate to %s conversion is not supported.",
           name_of(p, text));
  PX_TRY(px_div_scalar(&less, *value, px_int(px_mesh_size(layout->mesh, m))));
  px_release(*value);
  *value = PX_MOVE(less);
  return PX_OK;
}

px_status px_layout_extract(px_tensor **out, const px_layout *layout, const px_tensor *whole) {
  PX_SCOPED(px_tensor) part = NULL;
  int64_t sizes[PX_MAX_DIMS], first[PX_MAX_DIMS];
  PX_GIVEN(out);
  PX_GIVEN(layout);
  PX_GIVEN(whole);
  PX_TRY(check_layout(layout));
  PX_CHECK(px_tensor_has_sizes(whole, layout->ndim, layout->sizes), PX_VALUE,
           "expected a tensor with the sizes of the layout");
  part_of(sizes, first, layout, layout->placements, px_mesh_ndim(layout->mesh));
  PX_TRY(px_tensor_detach(&part, whole));
  for (int d = 0; d < layout->ndim; d++) {
    PX_SCOPED(px_tensor) less = NULL;
    PX_TRY(px_narrow(&less, part, d, first[d], sizes[d]));
    px_release(part);
    part = PX_MOVE(less);
  }
  for (int m = 0; m < px_mesh_ndim(layout->mesh); m++) PX_TRY(split_partial(&part, layout, m));
  return px_clone(out, part, "contiguous_format");
}

// ---- redistribution

static bool same(const px_placement *a, const px_placement *b) {
  if (a->kind != b->kind) return false;
  return a->kind == PX_PLACEMENT_SHARD
             ? a->dim == b->dim
             : a->kind == PX_PLACEMENT_REPLICATE || a->reduce == b->reduce;
}

typedef struct transition {
  const px_layout *from;
  const px_placement *to;
  px_tensor *now;  // owned
  bool done[PX_MESH_DIMS];
} transition;

static void replace_local(transition *c, px_tensor *take) {
  px_release(c->now);
  c->now = take;
}

// True if another mesh dimension shards tensor dimension `dim`, before or after.
static bool shared_dim(const transition *c, int m, int dim) {
  for (int k = 0; k < px_mesh_ndim(c->from->mesh); k++) {
    const px_placement *pair[] = {&c->from->placements[k], &c->to[k]};
    for (int i = 0; i < 2 && k != m; i++)
      if (pair[i]->kind == PX_PLACEMENT_SHARD && pair[i]->dim == dim) return true;
  }
  return false;
}

// Marks unchanged mesh dimensions as done. A sharded one qualifies only if no earlier mesh
// dimension sharding the same tensor dimension changes.
static void find_unchanged(transition *c) {
  for (int m = 0; m < px_mesh_ndim(c->from->mesh); m++) {
    const px_placement *p = &c->from->placements[m];
    c->done[m] = same(p, &c->to[m]);
    for (int k = 0; k < m && p->kind == PX_PLACEMENT_SHARD; k++) {
      const px_placement *pair[] = {&c->from->placements[k], &c->to[k]};
      for (int i = 0; i < 2; i++)
        c->done[m] &= c->done[k] || pair[i]->kind != PX_PLACEMENT_SHARD || pair[i]->dim != p->dim;
    }
  }
}

static px_status unshard_or_reduce(transition *c, int m) {
  const px_placement *p = &c->from->placements[m], *next = &c->to[m];
  px_comm *comm = px_mesh_comm(c->from->mesh, m);
  int64_t sizes[PX_MAX_DIMS], first[PX_MAX_DIMS], begin, count;
  px_tensor *made = NULL;
  part_of(sizes, first, c->from, c->from->placements, m);
  if (p->kind == PX_PLACEMENT_PARTIAL) {
    bool at_once = next->kind == PX_PLACEMENT_SHARD && !shared_dim(c, m, next->dim);
    PX_TRY(at_once ? reduce_scatter(&made, comm, p->reduce, c->now, next->dim)
                   : reduce_all(&made, comm, p->reduce, c->now));
    c->done[m] = at_once;
  } else if (p->kind == PX_PLACEMENT_SHARD && next->kind == PX_PLACEMENT_PARTIAL) {
    px_shard_rows(&begin, &count, sizes[p->dim], px_comm_rank(comm), px_comm_size(comm));
    PX_TRY(px__formula_part_in_zeros(
        &made, (px_value[]){PX_T(c->now), PX_I(p->dim), PX_I(sizes[p->dim]), PX_I(begin)}));
  } else if (p->kind == PX_PLACEMENT_SHARD) {
    PX_TRY(px__placed_gather(&made, comm, c->now, p->dim, sizes[p->dim]));
  }
  if (made) replace_local(c, made);
  return PX_OK;
}

static px_status shard_local(transition *c, int m) {
  const px_placement *p = &c->to[m];
  PX_SCOPED(px_tensor) rows = NULL;
  int64_t first, count;
  px_tensor *made;
  if (p->kind != PX_PLACEMENT_SHARD) return PX_OK;
  px_shard_rows(&first, &count, px_tensor_size(c->now, p->dim),
                (int)px_mesh_coordinate(c->from->mesh, m), (int)px_mesh_size(c->from->mesh, m));
  PX_TRY(px_narrow(&rows, c->now, p->dim, first, count));
  PX_TRY(px_clone(&made, rows, "contiguous_format"));
  replace_local(c, made);
  return PX_OK;
}

static px_status run_transition(transition *c) {
  int n = px_mesh_ndim(c->from->mesh);
  find_unchanged(c);
  for (int m = n; m-- > 0;)
    if (!c->done[m]) PX_TRY(unshard_or_reduce(c, m));
  for (int m = 0; m < n; m++)
    if (!c->done[m]) PX_TRY(shard_local(c, m));
  return PX_OK;
}

static px_status redistribute(px_tensor **out, px_tensor *local, const px_layout *from,
                              const px_placement *to) {
  transition c = {.from = from, .to = to};
  PX_TRY(px_tensor_detach(&c.now, local));
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = run_transition(&c);
  px_grad_set_enabled(was);
  PX_SCOPED(px_tensor) now = c.now;
  PX_TRY(status);
  *out = PX_MOVE(now);
  return PX_OK;
}

// ---- gradients

// State saved for backward. Partial placements have replicated gradients.
typedef struct backward_state {
  px_mesh *mesh;  // owned
  px_placement from[PX_MESH_DIMS], to[PX_MESH_DIMS];
  int ndim;
  int64_t sizes[PX_MAX_DIMS];
} backward_state;

static void backward_state_end(void *context) {
  backward_state *w = context;
  px_release(w->mesh);
  px_free(w);
}

static px_status redistribute_backward(px_tensor **grad_inputs, int input_count,
                                       px_tensor *const *grad_outputs, int output_count,
                                       void *context) {
  const backward_state *w = context;
  px_layout layout = {w->mesh, w->to, w->ndim, w->sizes};
  return grad_outputs[0] ? px_redistribute(&grad_inputs[0], grad_outputs[0], &layout, w->from)
                         : PX_OK;
}

static px_status record(px_tensor *local, px_tensor *made, const px_layout *from,
                        const px_placement *to) {
  static const px_function function = {"Redistribute", redistribute_backward, backward_state_end,
                                       NULL};
  backward_state *w;
  if (!px_grad_enabled() || !px_tensor_requires_grad(local)) return PX_OK;
  PX_TRY(px_alloc((void **)&w, sizeof *w));
  w->mesh = px_retain(from->mesh);
  w->ndim = from->ndim;
  for (int m = 0; m < px_mesh_ndim(from->mesh); m++) {
    w->from[m] = from->placements[m], w->to[m] = to[m];
    if (w->from[m].kind == PX_PLACEMENT_PARTIAL) w->from[m].kind = PX_PLACEMENT_REPLICATE;
    if (w->to[m].kind == PX_PLACEMENT_PARTIAL) w->to[m].kind = PX_PLACEMENT_REPLICATE;
  }
  for (int d = 0; d < from->ndim; d++) w->sizes[d] = from->sizes[d];
  return px_function_record(&function, w, 1, &local, 1, &made);
}

static px_status check_change(const px_layout *from, const px_placement *to) {
  char before[40], after[40];
  PX_TRY(check(from, to));
  for (int m = 0; m < px_mesh_ndim(from->mesh); m++) {
    const px_placement *p = &from->placements[m];
    bool can = to[m].kind != PX_PLACEMENT_PARTIAL || same(p, &to[m]) ||
               (p->kind == PX_PLACEMENT_SHARD && to[m].reduce == PX_REDUCE_SUM);
    PX_CHECK(can, PX_RUNTIME,
             "Can not redistribute from %s to %s, only Shard to Partial(sum) redistribution is "
             "supported!",
             name_of(p, before), name_of(&to[m], after));
  }
  return PX_OK;
}

px_status px_redistribute(px_tensor **out, px_tensor *local, const px_layout *from,
                          const px_placement *to) {
  PX_SCOPED(px_tensor) made = NULL;
  int64_t sizes[PX_MAX_DIMS], first[PX_MAX_DIMS];
  bool unchanged = true;
  PX_GIVEN(out);
  PX_GIVEN(local);
  PX_GIVEN(from);
  PX_GIVEN(to);
  PX_TRY(px_layout_part(sizes, first, from));
  PX_TRY(check_change(from, to));
  PX_CHECK(px_tensor_has_sizes(local, from->ndim, sizes), PX_VALUE,
           "expected a local tensor with the sizes of the layout's shard");
  for (int m = 0; m < px_mesh_ndim(from->mesh); m++)
    unchanged &= same(&from->placements[m], &to[m]);
  if (unchanged) return *out = px_retain(local), PX_OK;
  PX_TRY(redistribute(&made, local, from, to));
  PX_TRY(record(local, made, from, to));
  *out = PX_MOVE(made);
  return PX_OK;
}
