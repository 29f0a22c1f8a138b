// SPDX-License-Identifier: Apache-2.0
// Meshes of ranks: shapes, submeshes and flattened meshes, and the communicators along dimensions.
#include "phlox/mesh.h"
#include "phlox/phlox.h"

#include "ranks.h"

static void sum_is(px_comm *comm, float mine, float wanted) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_work) work = NULL;
  int64_t one = 1;
  OK(px_tensor_empty(&x, 1, &one, PX_FLOAT32, px_cpu()));
  *(float *)px_tensor_data(x) = mine;
  OK(px_comm_run(&work, comm, &(px_collective){PX_ALL_REDUCE, .outputs = &x, .output_count = 1}));
  OK(px_work_wait(work, 0));
  CHECK_NEAR(*(float *)px_tensor_data(x), wanted, 0);
}

static void check_ranks(const px_mesh *mesh, int count, const int *wanted) {
  int ranks[8];
  CHECK_EQ(px_mesh_size(mesh, -1), count);
  px_mesh_ranks(mesh, ranks);
  for (int i = 0; i < count; i++) CHECK_EQ(ranks[i], wanted[i]);
}

static const char *const names[] = {"rows", "columns"};

static void two_by_two(px_comm *comm, px_device device) {
  int rank = px_comm_rank(comm), row = rank / 2, column = rank % 2, dim, line[2];
  PX_SCOPED(px_mesh) mesh = NULL;
  OK(px_mesh_new(&mesh, &(px_mesh_options){
                            .comm = comm, .sizes = (int64_t[]){2, 2}, .names = names, .ndim = 2}));
  CHECK_EQ(px_mesh_ndim(mesh), 2);
  CHECK_EQ(px_mesh_coordinate(mesh, 0), row);
  CHECK_EQ(px_mesh_coordinate(mesh, 1), column);
  CHECK_EQ(px_mesh_stride(mesh, 0, 0), 2);
  check_ranks(mesh, 4, (int[]){0, 1, 2, 3});
  px_mesh_line(mesh, 0, line);
  CHECK(line[0] == column && line[1] == column + 2);
  sum_is(px_mesh_comm(mesh, 0), (float)rank, (float)(2 * column + 2));
  sum_is(px_mesh_comm(mesh, 1), (float)rank, (float)(4 * row + 1));
  OK(px_mesh_find(&dim, mesh, "columns"));
  CHECK_EQ(dim, 1);
  FAILS(px_mesh_find(&dim, mesh, "depth"), PX_KEY, "Mesh dimension 'depth' does not exist.");
}

static void parts_and_flattened(px_comm *comm, px_device device) {
  int rank = px_comm_rank(comm);
  PX_SCOPED(px_mesh) mesh = NULL;
  PX_SCOPED(px_mesh) part = NULL;
  PX_SCOPED(px_mesh) flat = NULL;
  px_mesh *both[2], *out;
  px_mesh_options options = {.comm = comm,
                             .ranks = (int[]){3, 1, 2, 0},
                             .sizes = (int64_t[]){2, 2},
                             .names = names,
                             .ndim = 2};
  OK(px_mesh_new(&mesh, &options));
  both[0] = both[1] = mesh;
  OK(px_mesh_select(&part, &mesh, (int[]){1}, 1));
  check_ranks(part, 2, rank % 2 ? (int[]){3, 1} : (int[]){2, 0});
  CHECK(px_mesh_comm(part, 0) == px_mesh_comm(mesh, 1));
  CHECK(!strcmp(px_mesh_name(part, 0), "columns") && !px_mesh_equal(part, mesh));
  // Ranks along a dimension are in ascending order, whatever the order of the mesh.
  CHECK_EQ(px_comm_rank(px_mesh_comm(part, 0)), rank > 1);
  OK(px_mesh_flatten(&flat, mesh, "all"));
  check_ranks(flat, 4, options.ranks);
  CHECK(px_mesh_comm(flat, 0) == comm && px_mesh_stride(flat, 0, 0) == 1 &&
        !px_mesh_stride(flat, 0, 1));
  FAILS(px_mesh_select(&out, both, (int[]){1, 0}, 2), PX_KEY, "ascending order");
  FAILS(px_mesh_select(&out, (px_mesh *[]){mesh, mesh}, (int[]){1, 1}, 2), PX_RUNTIME,
        "Slicing overlapping dim_names");
}

static void some_ranks(px_comm *comm, px_device device) {
  int rank = px_comm_rank(comm), in = rank == 1 || rank == 3;
  PX_SCOPED(px_mesh) mesh = NULL;
  OK(px_mesh_new(&mesh,
                 &(px_mesh_options){
                     .comm = comm, .ranks = (int[]){1, 3}, .sizes = (int64_t[]){2}, .ndim = 1}));
  CHECK_EQ(px_mesh_coordinate(mesh, 0), in ? rank == 3 : -1);
  CHECK((px_mesh_comm(mesh, 0) != NULL) == in && !px_mesh_name(mesh, 0));
  if (in) sum_is(px_mesh_comm(mesh, 0), (float)rank, 4);
  PX_SCOPED(px_mesh) over = NULL;
  px_comm *line = px_mesh_comm(mesh, 0);
  OK(px_mesh_new(&over, &(px_mesh_options){.comm = comm,
                                           .ranks = (int[]){1, 3},
                                           .sizes = (int64_t[]){2},
                                           .ndim = 1,
                                           .lines = &line}));
  CHECK(px_mesh_comm(over, 0) == line && px_mesh_equal(mesh, over));
}

static void refuse_invalid_meshes(px_comm *comm, px_device device) {
  px_mesh *out = NULL;
  px_mesh_options options = {.comm = comm, .sizes = (int64_t[]){2, 4}, .ndim = 2};
  FAILS(px_mesh_new(&out, &options), PX_RUNTIME,
        "Mesh should not be bigger than default world size 4, but found 8 ranks!");
  options.sizes = (int64_t[]){2, 0};
  FAILS(px_mesh_new(&out, &options), PX_VALUE,
        "expected a positive size for mesh dimension 1, got 0");
  options.sizes = (int64_t[]){2, 2};
  options.ranks = (int[]){0, 1, 2, 2};
  FAILS(px_mesh_new(&out, &options), PX_VALUE, "rank 2 appears in a mesh twice");
  options.ranks = (int[]){0, 1, 2, 4};
  FAILS(px_mesh_new(&out, &options), PX_VALUE, "rank 4 of a mesh is not in a group of 4");
  options.names = (const char *[]){"a", "a"};
  FAILS(px_mesh_new(&out, &options), PX_RUNTIME, "Each mesh_dim_name must be unique.");
  CHECK(!out);
}

PX_TEST(each_rank_has_coordinates_and_communicators) { run_ranks(4, ON_CPU, two_by_two); }
PX_TEST(submeshes_keep_coordinates_and_communicators) { run_ranks(4, ON_CPU, parts_and_flattened); }
PX_TEST(a_mesh_may_use_some_of_the_ranks) { run_ranks(4, ON_CPU, some_ranks); }
PX_TEST(invalid_meshes_are_refused) { run_ranks(4, ON_CPU, refuse_invalid_meshes); }
