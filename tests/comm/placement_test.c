// SPDX-License-Identifier: Apache-2.0
// Tensors that lie on the ranks of a mesh: each layout to each other one, gradients, what is
// refused, and lost memory.
#include "phlox/phlox.h"

#include "ranks.h"

enum { ROWS = 5, COLUMNS = 6, ALL = ROWS * COLUMNS };
static const int64_t sizes[] = {ROWS, COLUMNS};
static const px_placement places[] = {{.kind = PX_PLACEMENT_REPLICATE},
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

// This rank's part; what the first of a line has of a sum is the whole less what the others
// have, which is the whole each.
static px_tensor *part_of(px_mesh *mesh, const px_placement *lies, const px_tensor *whole) {
  px_placement cut[2] = {lies[0], lies[1]};
  PX_SCOPED(px_tensor) part = NULL;
  px_tensor *out;
  int64_t factor = 1;
  for (int m = 0; m < 2; m++) {
    if (lies[m].kind != PX_PLACEMENT_PARTIAL) continue;
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

static void moves(px_comm *comm, px_device device) {
  PX_SCOPED(px_mesh) mesh = two_by_two(comm);
  PX_SCOPED(px_tensor) whole = numbers(device);
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < 9; k++)
      check_move(mesh, whole, (px_placement[]){places[i / 4], places[i % 4]},
                 (px_placement[]){places[k / 3], places[k % 3]});
}
PX_TEST(what_lies_in_one_way_comes_to_lie_in_another) {
  run_ranks(4, ON_CPU, moves);
  run_ranks(4, IN_CLUSTER, moves);
}

static void part_is(px_mesh *mesh, px_placement first, px_placement second, const int64_t *wanted) {
  px_placement lies[] = {first, second};
  int64_t own[2], begin[2];
  OK(px_layout_part(own, begin, &(px_layout){mesh, lies, 2, sizes}));
  for (int d = 0; d < 2; d++) CHECK(begin[d] == wanted[d] && own[d] == wanted[2 + d]);
}
static void knows_parts(px_comm *comm, px_device device) {
  PX_SCOPED(px_mesh) mesh = two_by_two(comm);
  static const int64_t rows[4][4] = {
      {0, 0, 2, 6}, {2, 0, 1, 6}, {3, 0, 1, 6}, {4, 0, 1, 6}};  // 3 and 2, which are cut again
  int rank = px_comm_rank(comm);
  part_is(mesh, places[1], places[1], rows[rank]);
  part_is(mesh, places[2], places[1],
          (int64_t[]){3 * (rank % 2), 3 * (rank / 2), rank % 2 ? 2 : 3, 3});
  part_is(mesh, places[3], places[0], (int64_t[]){0, 0, 5, 6});
}
PX_TEST(later_dimensions_cut_the_parts_of_earlier_ones) { run_ranks(4, ON_CPU, knows_parts); }

// A sum of parts each times its numbers: the gradient is these numbers, in the first layout.
static void goes_back(px_mesh *mesh, const px_tensor *whole, const px_placement *from,
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
      goes_back(mesh, whole, (px_placement[]){places[i / 4], places[i % 4]},
                (px_placement[]){places[k / 3], places[k % 3]});
}
PX_TEST(gradients_go_back_the_same_way) { run_ranks(4, ON_CPU, gradients); }

static void refuses(px_comm *comm, px_device device) {
  int64_t shape[] = {2, 1};
  PX_SCOPED(px_mesh) mesh = NULL;
  OK(px_mesh_new(&mesh, &(px_mesh_options){.comm = comm, .sizes = shape, .ndim = 2}));
  PX_SCOPED(px_tensor) whole = numbers(device);
  px_tensor *out = NULL;
  px_placement product = {.kind = PX_PLACEMENT_PARTIAL, .reduce = PX_REDUCE_PRODUCT};
  px_placement deep = {.kind = PX_PLACEMENT_SHARD, .dim = 2};
  const px_placement lies[] = {places[0], places[0]}, mixed[] = {places[3], product},
                     beyond[] = {places[0], deep}, sums[] = {places[3], places[0]},
                     products[] = {product, places[0]}, rows[] = {places[1], places[0]};
  px_layout layout = {mesh, lies, 2, sizes};
  FAILS(px_redistribute(&out, whole, &layout, mixed), PX_VALUE, "Mixed Partial reduce types");
  FAILS(px_redistribute(&out, whole, &layout, beyond), PX_VALUE,
        "Sharding dim 2 greater than tensor ndim 2");
  FAILS(px_redistribute(&out, whole, &layout, sums), PX_RUNTIME,
        "Can not redistribute from Replicate() to Partial(sum), only Shard to Partial(sum)");
  FAILS(px_layout_extract(&out, &(px_layout){mesh, products, 2, sizes}, whole), PX_VALUE,
        "Replicate to Partial(product) conversion is not supported.");
  FAILS(px_redistribute(&out, whole, &(px_layout){mesh, rows, 2, sizes}, lies), PX_VALUE,
        "expected a local tensor with the sizes of the layout's shard");
  FAILS(px_layout_extract(&out, &(px_layout){mesh, rows, 2, (int64_t[]){6, 5}}, whole), PX_VALUE,
        "expected a tensor with the sizes of the layout");
  FAILS(px_redistribute(&out, whole, &(px_layout){NULL, rows, 2, sizes}, lies), PX_TYPE, "is NULL");
  OK(px_redistribute(&out, whole, &layout, lies));
  CHECK(out == whole);
  px_release(out);
}
PX_TEST(what_cannot_be_is_refused_before_anything_is_sent) { run_ranks(2, ON_CPU, refuses); }

static px_status there_and_back(px_mesh *mesh, px_tensor *whole) {
  const px_placement lies[] = {places[3], places[1]}, to[] = {places[2], places[0]};
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) moved = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  px_layout layout = {mesh, lies, 2, sizes};
  PX_TRY(px_layout_extract(&part, &layout, whole));
  PX_TRY(px_tensor_set_requires_grad(part, true));
  PX_TRY(px_redistribute(&moved, part, &layout, to));
  PX_TRY(px_sum(&sum, moved, NULL, 0, false, PX_DTYPE_NONE));
  return px_backward(1, &sum, NULL, false, false);
}
// Of objects, once the threads of the mesh's groups hold none.
static int64_t live(px_mesh *mesh) {
  for (int d = 0; d < px_mesh_ndim(mesh); d++) OK(px_comm_synchronize(px_mesh_comm(mesh, d)));
  return px_live_objects(NULL);
}
static void survives(px_comm *comm, px_device device) {
  PX_SCOPED(px_mesh) mesh = NULL;
  int64_t shape[] = {1, 1}, n = 1;
  PX_SCOPED(px_tensor) whole = numbers(device);
  OK(px_mesh_new(&mesh, &(px_mesh_options){.comm = comm, .sizes = shape, .ndim = 2}));
  OK(there_and_back(mesh, whole));
  int64_t before = live(mesh);
  for (px_status status = PX_NOMEM; status != PX_OK; n++) {
    OK(px_fault_arm("alloc", n, false));
    status = there_and_back(mesh, whole);
    px_fault_disarm_all();
    CHECK(status == PX_OK || status == PX_NOMEM);
    CHECK_EQ(live(mesh), before);
  }
  CHECK(n > 10);
}
PX_TEST(a_move_that_fails_leaves_nothing_behind) { run_ranks(1, ON_CPU, survives); }
