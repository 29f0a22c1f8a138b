// SPDX-License-Identifier: Apache-2.0
// Tensors distributed over a mesh: redistribution between all layouts, gradients, refused layouts
// and failed allocations.
#include "phlox/phlox.h"

#include "ranks.h"

enum { ROWS = 5, COLUMNS = 6, ALL = ROWS * COLUMNS };
static const int64_t sizes[] = {ROWS, COLUMNS};
static const px_placement placements[] = {{.kind = PX_PLACEMENT_REPLICATE},
                                          {.kind = PX_PLACEMENT_SHARD, .dim = 0},
                                          {.kind = PX_PLACEMENT_SHARD, .dim = 1},
                                          {.kind = PX_PLACEMENT_PARTIAL, .reduce = PX_REDUCE_SUM}};

static px_mesh *two_by_two(px_comm *comm) {
  px_mesh *out;
  int64_t shape[] = {2, 2};
  OK(px_mesh_new(&out, &(px_mesh_options){.comm = comm, .sizes = shape, .ndim = 2}));
  return out;
}

// 0, 1, 2, ...
static px_tensor *numbers(px_device device) {
  double values[ALL];
  px_tensor *out;
  for (int i = 0; i < ALL; i++) values[i] = i;
  OK(px_tensor_from_data(&out, values, 2, sizes, PX_FLOAT64, device));
  return out;
}

// Returns this rank's part. In a partial sum, each rank has the whole tensor, except the first of
// its mesh dimension: it has the whole less the parts of the others.
static px_tensor *part_of(px_mesh *mesh, const px_placement *mesh_layout, const px_tensor *whole) {
  px_placement cut[2] = {mesh_layout[0], mesh_layout[1]};
  PX_SCOPED(px_tensor) part = NULL;
  px_tensor *out;
  int64_t factor = 1;
  for (int m = 0; m < 2; m++) {
    if (mesh_layout[m].kind != PX_PLACEMENT_PARTIAL) continue;
    cut[m].kind = PX_PLACEMENT_REPLICATE;
    if (!px_mesh_coordinate(mesh, m)) factor *= 2 - px_mesh_size(mesh, m);
  }
  OK(px_layout_extract(&part, &(px_layout){mesh, cut, 2, sizes}, whole));
  OK(px_mul_scalar(&out, part, px_int(factor)));
  return out;
}

static void check_alike(const px_tensor *a, const px_tensor *b) {
  double x[ALL], y[ALL];
  CHECK(px_tensor_has_sizes(a, 2, px_tensor_sizes(b)));
  size_t bytes = (size_t)px_tensor_numel(a) * sizeof *x;
  OK(px_tensor_read(a, x, bytes));
  OK(px_tensor_read(b, y, bytes));
  for (int64_t i = 0; i < px_tensor_numel(a); i++) CHECK_NEAR(x[i], y[i], 0);
}

static void check_move(px_mesh *mesh, const px_tensor *whole, const px_placement *from,
                       const px_placement *to) {
  PX_SCOPED(px_tensor) local = part_of(mesh, from, whole);
  PX_SCOPED(px_tensor) wanted = part_of(mesh, to, whole);
  PX_SCOPED(px_tensor) moved = NULL;
  OK(px_redistribute(&moved, local, &(px_layout){mesh, from, 2, sizes}, to));
  check_alike(moved, wanted);
  CHECK(px_tensor_is_contiguous(moved));
}

static void redistribute_all(px_comm *comm, px_device device) {
  PX_SCOPED(px_mesh) mesh = two_by_two(comm);
  PX_SCOPED(px_tensor) whole = numbers(device);
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < 9; k++)
      check_move(mesh, whole, (px_placement[]){placements[i / 4], placements[i % 4]},
                 (px_placement[]){placements[k / 3], placements[k % 3]});
}
PX_TEST(each_layout_redistributes_to_each_other) {
  run_ranks(4, ON_CPU, redistribute_all);
  run_ranks(4, IN_CLUSTER, redistribute_all);
}

static void part_is(px_mesh *mesh, px_placement first, px_placement second, const int64_t *wanted) {
  px_placement mesh_layout[] = {first, second};
  int64_t own[2], begin[2];
  OK(px_layout_part(own, begin, &(px_layout){mesh, mesh_layout, 2, sizes}));
  for (int d = 0; d < 2; d++) CHECK(begin[d] == wanted[d] && own[d] == wanted[2 + d]);
}
static void check_parts(px_comm *comm, px_device device) {
  PX_SCOPED(px_mesh) mesh = two_by_two(comm);
  static const int64_t rows[4][4] = {
      {0, 0, 2, 6}, {2, 0, 1, 6}, {3, 0, 1, 6}, {4, 0, 1, 6}};  // 3 and 2 rows, split again
  int rank = px_comm_rank(comm);
  part_is(mesh, placements[1], placements[1], rows[rank]);
  part_is(mesh, placements[2], placements[1],
          (int64_t[]){3 * (rank % 2), 3 * (rank / 2), rank % 2 ? 2 : 3, 3});
  part_is(mesh, placements[3], placements[0], (int64_t[]){0, 0, 5, 6});
}
PX_TEST(later_mesh_dimensions_split_the_parts_of_earlier_ones) {
  run_ranks(4, ON_CPU, check_parts);
}

// The loss is a sum of parts times constants. Its gradient is the constants in the first layout.
static void check_gradient(px_mesh *mesh, const px_tensor *whole, const px_placement *from,
                           const px_placement *to) {
  PX_SCOPED(px_tensor) local = part_of(mesh, from, whole);
  PX_SCOPED(px_tensor) moved = NULL;
  PX_SCOPED(px_tensor) factors = part_of(mesh, to, whole);
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  px_placement back[] = {from[0], from[1]};
  for (int m = 0; m < 2; m++)
    if (back[m].kind == PX_PLACEMENT_PARTIAL) back[m].kind = PX_PLACEMENT_REPLICATE;
  PX_SCOPED(px_tensor) wanted = part_of(mesh, back, whole);
  OK(px_tensor_set_requires_grad(local, true));
  OK(px_redistribute(&moved, local, &(px_layout){mesh, from, 2, sizes}, to));
  OK(px_mul(&product, moved, factors));
  OK(px_sum(&sum, product, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_backward(1, &sum, NULL, false, false));
  check_alike(px_tensor_grad(local), wanted);
}
static void gradients(px_comm *comm, px_device device) {
  PX_SCOPED(px_mesh) mesh = two_by_two(comm);
  PX_SCOPED(px_tensor) whole = numbers(device);
  for (int i = 0; i < 16; i += 3)
    for (int k = 0; k < 9; k += 2)
      check_gradient(mesh, whole, (px_placement[]){placements[i / 4], placements[i % 4]},
                     (px_placement[]){placements[k / 3], placements[k % 3]});
}
PX_TEST(gradients_redistribute_in_reverse) { run_ranks(4, ON_CPU, gradients); }

static void refuses(px_comm *comm, px_device device) {
  int64_t shape[] = {2, 1};
  PX_SCOPED(px_mesh) mesh = NULL;
  OK(px_mesh_new(&mesh, &(px_mesh_options){.comm = comm, .sizes = shape, .ndim = 2}));
  PX_SCOPED(px_tensor) whole = numbers(device);
  px_tensor *out = NULL;
  px_placement product = {.kind = PX_PLACEMENT_PARTIAL, .reduce = PX_REDUCE_PRODUCT};
  px_placement deep = {.kind = PX_PLACEMENT_SHARD, .dim = 2};
  const px_placement mesh_layout[] = {placements[0], placements[0]},
                     mixed[] = {placements[3], product}, beyond[] = {placements[0], deep},
                     sums[] = {placements[3], placements[0]}, products[] = {product, placements[0]},
                     rows[] = {placements[1], placements[0]};
  px_layout layout = {mesh, mesh_layout, 2, sizes};
  FAILS(px_redistribute(&out, whole, &layout, mixed), PX_VALUE, "Mixed Partial reduce types");
  FAILS(px_redistribute(&out, whole, &layout, beyond), PX_VALUE,
        "Sharding dim 2 greater than tensor ndim 2");
  FAILS(px_redistribute(&out, whole, &layout, sums), PX_RUNTIME,
        "Can not redistribute from Replicate() to Partial(sum), only Shard to Partial(sum)");
  FAILS(px_layout_extract(&out, &(px_layout){mesh, products, 2, sizes}, whole), PX_VALUE,
        "Replicate to Partial(product) conversion is not supported.");
  FAILS(px_redistribute(&out, whole, &(px_layout){mesh, rows, 2, sizes}, mesh_layout), PX_VALUE,
        "expected a local tensor with the sizes of the layout's shard");
  FAILS(px_layout_extract(&out, &(px_layout){mesh, rows, 2, (int64_t[]){6, 5}}, whole), PX_VALUE,
        "expected a tensor with the sizes of the layout");
  FAILS(px_redistribute(&out, whole, &(px_layout){NULL, rows, 2, sizes}, mesh_layout), PX_TYPE,
        "is NULL");
  OK(px_redistribute(&out, whole, &layout, mesh_layout));
  CHECK(out == whole);
  px_release(out);
}
PX_TEST(invalid_layouts_are_refused_before_communication) { run_ranks(2, ON_CPU, refuses); }

static px_status redistribute_twice(px_mesh *mesh, px_tensor *whole) {
  const px_placement mesh_layout[] = {placements[3], placements[1]},
                     to[] = {placements[2], placements[0]};
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) moved = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  px_layout layout = {mesh, mesh_layout, 2, sizes};
  PX_TRY(px_layout_extract(&part, &layout, whole));
  PX_TRY(px_tensor_set_requires_grad(part, true));
  PX_TRY(px_redistribute(&moved, part, &layout, to));
  PX_TRY(px_sum(&sum, moved, NULL, 0, false, PX_DTYPE_NONE));
  return px_backward(1, &sum, NULL, false, false);
}
// Live objects, after the threads of the mesh's groups have released theirs.
static int64_t live_objects(px_mesh *mesh) {
  for (int d = 0; d < px_mesh_ndim(mesh); d++) OK(px_comm_synchronize(px_mesh_comm(mesh, d)));
  return px_live_objects(NULL);
}
static void survives(px_comm *comm, px_device device) {
  PX_SCOPED(px_mesh) mesh = NULL;
  int64_t shape[] = {1, 1}, n = 1;
  PX_SCOPED(px_tensor) whole = numbers(device);
  OK(px_mesh_new(&mesh, &(px_mesh_options){.comm = comm, .sizes = shape, .ndim = 2}));
  OK(redistribute_twice(mesh, whole));
  int64_t before = live_objects(mesh);
  for (px_status status = PX_NOMEM; status != PX_OK; n++) {
    OK(px_fault_arm("alloc", n, false));
    status = redistribute_twice(mesh, whole);
    px_fault_disarm_all();
    CHECK(status == PX_OK || status == PX_NOMEM);
    CHECK_EQ(live_objects(mesh), before);
  }
  CHECK(n > 10);
}
PX_TEST(a_failed_redistribution_leaks_nothing) { run_ranks(1, ON_CPU, survives); }
