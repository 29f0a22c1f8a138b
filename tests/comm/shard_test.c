// SPDX-License-Identifier: Apache-2.0
// Modules with parameters sharded over two or three processes train like one process.
#include "phlox/phlox.h"

#include <math.h>

#include "ranks.h"

// 5 and 1 rows are not divisible by 2 or 3.
static px_module *make_model(px_device device) {
  px_module *layers[3], *out;
  px_manual_seed(3);
  OK(px_linear_new(&layers[0], 2, 5));
  OK(px_tanh_new(&layers[1]));
  OK(px_linear_new(&layers[2], 5, 1));
  OK(px_sequential_new(&out, layers, 3));
  for (int i = 0; i < 3; i++) px_release(layers[i]);
  OK(px_module_to(out, PX_FLOAT64, device, false));
  return out;
}

static px_shard_options options_of(px_comm *comm) {
  return (px_shard_options){.comm = comm,
                            .device = PX_DEVICE_NONE,
                            .param_dtype = PX_DTYPE_NONE,
                            .reduce_dtype = PX_DTYPE_NONE};
}

static px_optimizer *make_optimizer(px_module *model) {
  PX_SCOPED(px_list) list = NULL;
  px_optimizer *out;
  OK(px_module_parameters(&list, model));
  OK(px_adam_new(&out, px_list_items(list), (int)px_list_size(list), .lr = 0.1));
  return out;
}

// Returns the loss of `count` points from `first` on. Each rank has its own range.
static double step(px_module *model, px_optimizer *optimizer, px_tensor *points, int64_t first,
                   int64_t count) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) guess = NULL;
  PX_SCOPED(px_tensor) loss = NULL;
  px_scalar value;
  OK(px_narrow(&x, points, 0, first, count));
  OK(px_prod(&y, x, 1, true, PX_DTYPE_NONE));
  OK(px_optimizer_zero_grad(optimizer, true));
  OK(px_module_call(&guess, model, x));
  OK(px_mse_loss(&loss, guess, y, "mean", NULL));
  OK(px_backward(1, &loss, NULL, false, false));
  OK(px_optimizer_step(optimizer));
  OK(px_tensor_item(&value, loss));
  return px_scalar_float(value);
}

static double mean_of(px_comm *comm, double value) {
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_work) work = NULL;
  OK(px_tensor_from_data(&sum, &value, 0, NULL, PX_FLOAT64, px_cpu()));
  px_collective all = {
      .op = PX_ALL_REDUCE, .reduce = PX_REDUCE_AVG, .outputs = &sum, .output_count = 1};
  OK(px_comm_run(&work, comm, &all));
  OK(px_work_wait(work, 0));
  return *(double *)px_tensor_data(sum);
}

static void check_parts(px_comm *comm, const px_shards *shards, int wanted) {
  px_shard part;
  int64_t first, rows;
  int count = 0;
  for (; px_shards_at(shards, count, &part); count++) {
    px_shard_rows(&first, &rows, part.sizes[part.dim], px_comm_rank(comm), px_comm_size(comm));
    CHECK_EQ(px_tensor_size(part.local, part.dim), rows);
    CHECK(!part.whole || px_storage_bytes(px_tensor_storage(part.whole)) == 0);
    CHECK(!px_tensor_grad(part.local) ||
          px_tensor_numel(px_tensor_grad(part.local)) == px_tensor_numel(part.local));
  }
  CHECK_EQ(count, wanted);
}

// The expected number of parts held by each rank of `comm` after a step.
typedef struct expected_parts {
  px_comm *comm;
  const px_shards *shards;
  int parts;
} expected_parts;

// Trains the sharded `model` on the ranks of `comm`, and `one` on each. The losses must agree.
static void compare_training(px_module *one, px_module *model, px_comm *comm, px_device device,
                             const expected_parts *after) {
  int64_t sizes[] = {12, 2}, each = 12 / px_comm_size(comm);
  PX_SCOPED(px_tensor) points = NULL;
  PX_SCOPED(px_optimizer) full = make_optimizer(one);
  PX_SCOPED(px_optimizer) sharded = make_optimizer(model);
  OK(px_randn(&points, sizes, 2, NULL, PX_FLOAT64, device, false, false));
  for (int i = 0; i < 4; i++) {
    double mine = step(model, sharded, points, px_comm_rank(comm) * each, each);
    CHECK_NEAR(mean_of(comm, mine), step(one, full, points, 0, 12), 1e-12);
    check_parts(after->comm, after->shards, after->parts);
  }
}

// `parts` are the ranks of `comm` that share the rows, and `replicas` the ranks with equal rows.
static void trains_with(px_comm *comm, px_comm *parts, px_comm *replicas, px_device device) {
  PX_SCOPED(px_module) one = make_model(device);
  PX_SCOPED(px_module) model = make_model(device);
  PX_SCOPED(px_shards) inner = NULL;
  PX_SCOPED(px_shards) outer = NULL;
  px_module_entry first;
  CHECK(px_module_entry_at(model, PX_ENTRY_MODULE, 0, &first));
  px_shard_options options = options_of(parts);
  options.replicas = replicas;
  OK(px_fully_shard(&inner, first.module, &options));
  OK(px_fully_shard(&outer, model, &options));
  check_parts(parts, inner, 2);
  check_parts(parts, outer, 2);
  compare_training(one, model, comm, device, &(expected_parts){parts, inner, 2});
  px_shard part;
  CHECK(px_shards_at(inner, 0, &part));
  PX_SCOPED(px_tensor) gathered = NULL;
  OK(px_shard_gather(&gathered, parts, part.local, part.ndim, part.sizes));
  PX_SCOPED(px_list) list = NULL;
  OK(px_module_parameters(&list, one));
  double a[10], b[10];
  OK(px_tensor_read(gathered, a, sizeof a));
  OK(px_tensor_read(px_list_get(list, 0), b, sizeof b));
  for (int i = 0; i < 10; i++) CHECK_NEAR(a[i], b[i], 1e-12);
}
static void trains(px_comm *comm, px_device device) { trains_with(comm, comm, NULL, device); }

// Shards two layers, with one between them, as one group.
static void shard_as_group(px_shards **out, px_module *model, px_comm *comm) {
  px_module_entry layers[3];
  for (int i = 0; i < 3; i++) CHECK(px_module_entry_at(model, PX_ENTRY_MODULE, i, &layers[i]));
  px_shard_options options = options_of(comm);
  options.others = &layers[2].module;
  options.other_count = 1;
  OK(px_fully_shard(out, layers[0].module, &options));
}

static void train_group(px_comm *comm, px_device device) {
  PX_SCOPED(px_module) one = make_model(device);
  PX_SCOPED(px_module) model = make_model(device);
  PX_SCOPED(px_shards) group = NULL;
  PX_SCOPED(px_shards) outer = NULL;
  px_shard_options options = options_of(comm);
  shard_as_group(&group, model, comm);
  OK(px_fully_shard(&outer, model, &options));
  check_parts(comm, outer, 0);
  compare_training(one, model, comm, device, &(expected_parts){comm, group, 4});
}
PX_TEST(a_group_of_modules_trains_as_in_one_process) {
  run_ranks(2, ON_CPU, train_group);
  run_ranks(2, ON_SIM, train_group);
}

static void backward_without_gather(px_comm *comm, px_device device) {
  int64_t sizes[] = {3, 2};
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) out = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_module) layer = NULL;
  PX_SCOPED(px_shards) shards = NULL;
  px_shard_options options = options_of(comm);
  px_shard part;
  OK(px_linear_new(&layer, 2, 5));
  OK(px_fully_shard(&shards, layer, &options));
  px_shards_gather_for_backward(shards, false);
  OK(px_ones(&x, sizes, 2, PX_FLOAT32, px_cpu(), false, false));
  OK(px_module_call(&out, layer, x));
  OK(px_sum(&sum, out, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_backward(1, &sum, NULL, false, false));
  CHECK(px_shards_at(shards, 0, &part));
  CHECK_NEAR(*(float *)px_tensor_data(px_tensor_grad(part.local)), 3, 0);
  PX_SCOPED(px_tensor) again = NULL;
  OK(px_tensor_set_requires_grad(x, true));
  PX_SCOPED(px_tensor) moved = NULL;
  OK(px_mul_scalar(&moved, x, px_int(1)));
  OK(px_module_call(&again, layer, moved));
  PX_SCOPED(px_tensor) total = NULL;
  OK(px_sum(&total, again, NULL, 0, false, PX_DTYPE_NONE));
  FAILS(px_backward(1, &total, NULL, false, false), PX_RUNTIME, "must be resized before");
}
PX_TEST(backward_can_skip_gathering_unread_parameters) {
  run_ranks(2, ON_CPU, backward_without_gather);
}

// ---- along other dimensions, and on the CPU

// Shards matrices along columns if these divide by the number of ranks.
static px_status by_columns(int *dim, px_tensor *parameter, void *comm) {
  int last = px_tensor_ndim(parameter) - 1;
  *dim = last && px_tensor_size(parameter, last) % px_comm_size(comm) == 0 ? -1 : 0;
  return PX_OK;
}

// Column shards, if possible, with parts on the CPU.
static void trains_on_cpu(px_comm *comm, px_device device, bool pin) {
  PX_SCOPED(px_module) one = make_model(device);
  PX_SCOPED(px_module) model = make_model(device);
  PX_SCOPED(px_shards) inner = NULL;
  PX_SCOPED(px_shards) outer = NULL;
  px_module_entry first;
  px_shard part;
  px_shard_options options = options_of(comm);
  options.dim_of = by_columns, options.dim_context = comm;
  options.offload = true, options.pin = pin;
  FAILS(px_fully_shard(&inner, model, &options), PX_VALUE, "expected a compute device");
  options.device = device;
  CHECK(px_module_entry_at(model, PX_ENTRY_MODULE, 0, &first));
  OK(px_fully_shard(&inner, first.module, &options));
  OK(px_fully_shard(&outer, model, &options));
  CHECK(px_shards_at(inner, 0, &part));
  CHECK_EQ(part.dim, 1);
  compare_training(one, model, comm, device, &(expected_parts){comm, inner, 2});
  CHECK(px_shards_at(inner, 0, &part));
  CHECK_EQ((int)px_tensor_device(part.local).type, PX_CPU);
  CHECK_EQ((int)px_tensor_device(px_tensor_grad(part.local)).type, PX_CPU);
  CHECK_EQ(px_tensor_is_pinned(part.local), options.pin);
  CHECK_EQ((int)px_tensor_device(part.whole).type, (int)device.type);
}
static void trains_offloaded(px_comm *comm, px_device device) {
  trains_on_cpu(comm, device, false);
  if (device.type == PX_CUDA) trains_on_cpu(comm, device, true);
}
PX_TEST(column_shards_on_the_cpu_train_as_in_one_process) {
  run_ranks(2, ON_CPU, trains_offloaded);
  run_ranks(2, ON_SIM, trains_offloaded);
  run_ranks(2, IN_CLUSTER, trains_offloaded);
}

static px_status to_dim(int *dim, px_tensor *parameter, void *wanted) {
  *dim = *(int *)wanted;
  return PX_OK;
}
static void refuses_dims(px_comm *comm, px_device device) {
  PX_SCOPED(px_module) model = make_model(device);
  PX_SCOPED(px_shards) shards = NULL;
  px_shard_options options = options_of(comm);
  int dim = 1;
  options.dim_of = to_dim, options.dim_context = &dim;
  FAILS(px_fully_shard(&shards, model, &options), PX_ASSERTION,
        "Shard dim 1 is invalid for 1D tensor: torch.Size([5])");
  dim = -3;
  FAILS(px_fully_shard(&shards, model, &options), PX_ASSERTION, "Shard dim -3 is invalid for 2D");
  px_module_entry last;
  CHECK(px_module_entry_at(model, PX_ENTRY_MODULE, 2, &last));
  dim = 1;
  FAILS(px_fully_shard(&shards, last.module, &options), PX_UNIMPLEMENTED,
        "FSDP does not support uneven sharding on dim 1: torch.Size([1, 5]) (world size: 2)");
  CHECK(!px_module_has_hooks(model));
}
PX_TEST(unshardable_dimensions_are_refused) { run_ranks(2, ON_CPU, refuses_dims); }

// ---- hooks on reduced gradients

typedef struct hook_calls {
  int count, ended;
  bool fails;
} hook_calls;
static px_status on_reduced(px_tensor *reduced, void *context) {
  hook_calls *h = context;
  PX_CHECK(!h->fails, PX_VALUE, "the hook");
  h->count++;
  return px_mul_scalar_(reduced, px_int(10));
}
static void on_end(void *context) { ((hook_calls *)context)->ended++; }

static px_status pass(px_module *model, px_tensor *x) {
  PX_SCOPED(px_tensor) out = NULL;
  PX_SCOPED(px_tensor) loss = NULL;
  PX_TRY(px_module_call(&out, model, x));
  PX_TRY(px_sum(&loss, out, NULL, 0, false, PX_DTYPE_NONE));
  return px_backward(1, &loss, NULL, false, false);
}

static void check_hooks(px_comm *comm, px_device device) {
  hook_calls first = {0}, second = {.fails = true};
  int64_t sizes[] = {1, 1};
  px_shard part;
  PX_SCOPED(px_module) model = NULL;
  PX_SCOPED(px_shards) shards = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_stream) own = NULL;
  px_shard_options options = options_of(comm);
  options.device = device;
  OK(px_linear_new(&model, 1, 2, .bias = false));
  OK(px_fully_shard(&shards, model, &options));
  OK(px_full(&x, sizes, 2, px_float(px_comm_rank(comm) + 1), PX_FLOAT32, device, false, false));
  if (device.type == PX_CUDA) OK(px_stream_new(&own, device, 0));
  OK(px_shards_on_reduced(shards, on_reduced, &first, on_end, own));
  OK(pass(model, x));
  CHECK_EQ(first.count, 1);
  CHECK(px_shards_at(shards, 0, &part));
  float grad;
  OK(px_tensor_read(px_tensor_grad(part.local), &grad, sizeof grad));
  CHECK_NEAR(grad, 15, 0);
  OK(px_shards_on_reduced(shards, on_reduced, &second, on_end, NULL));
  CHECK_EQ(first.ended, 1);
  FAILS(pass(model, x), PX_VALUE, "the hook");
  OK(px_shards_on_reduced(shards, NULL, NULL, NULL, NULL));
  CHECK_EQ(second.ended, 1);
  OK(pass(model, x));
  OK(px_tensor_read(px_tensor_grad(part.local), &grad, sizeof grad));
  CHECK_NEAR(grad, 16.5, 0);
}
PX_TEST(a_hook_modifies_the_reduced_gradient) {
  run_ranks(2, ON_CPU, check_hooks);
  run_ranks(2, ON_SIM, check_hooks);
}

static px_mesh *two_by_two(px_comm *comm) {
  px_mesh *out;
  int64_t sizes[] = {2, 2};
  OK(px_mesh_new(&out, &(px_mesh_options){.comm = comm, .sizes = sizes, .ndim = 2}));
  return out;
}
static void replicas_train(px_comm *comm, px_device device) {
  PX_SCOPED(px_mesh) mesh = two_by_two(comm);
  trains_with(comm, px_mesh_comm(mesh, 1), px_mesh_comm(mesh, 0), device);
}
PX_TEST(two_ranks_train_as_one_process) { run_ranks(2, ON_CPU, trains); }
PX_TEST(ranks_without_rows_train_as_one_process) { run_ranks(3, ON_CPU, trains); }
PX_TEST(simulated_devices_train_as_one_process) { run_ranks(2, ON_SIM, trains); }
PX_TEST(two_replicas_of_two_ranks_train_as_one_process) { run_ranks(4, ON_CPU, replicas_train); }
PX_TEST(replicas_on_simulated_devices_train_as_one_process) {
  run_ranks(4, ON_SIM, replicas_train);
}
PX_TEST(replicas_in_a_simulated_cluster_train_as_one_process) {
  run_ranks(4, IN_CLUSTER, replicas_train);
}

// Rank r contributes r + 1 in each pass. Only the second of two passes is averaged over replicas.
static void accumulate_rows(px_comm *comm, px_device device) {
  PX_SCOPED(px_mesh) mesh = two_by_two(comm);
  PX_SCOPED(px_module) model = NULL;
  PX_SCOPED(px_shards) shards = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  int64_t sizes[] = {1, 1};
  px_shard part;
  px_shard_options options = options_of(px_mesh_comm(mesh, 1));
  options.replicas = px_mesh_comm(mesh, 0);
  OK(px_linear_new(&model, 1, 2, .bias = false));
  OK(px_fully_shard(&shards, model, &options));
  OK(px_full(&x, sizes, 2, px_float(px_comm_rank(comm) + 1), PX_FLOAT32, px_cpu(), false, false));
  for (int pass = 0; pass < 4; pass++) {
    PX_SCOPED(px_tensor) out = NULL;
    PX_SCOPED(px_tensor) loss = NULL;
    px_shards_average(shards, pass % 2);
    OK(px_module_call(&out, model, x));
    OK(px_sum(&loss, out, NULL, 0, false, PX_DTYPE_NONE));
    OK(px_backward(1, &loss, NULL, false, false));
    CHECK(px_shards_at(shards, 0, &part));
    px_tensor *grad = px_tensor_grad(part.local);
    CHECK((grad != NULL) == (pass > 0));
    if (grad) CHECK_NEAR(*(float *)px_tensor_data(grad), pass < 3 ? 5 : 10, 0);
  }
}
PX_TEST(rows_accumulate_in_a_replica_until_averaged) { run_ranks(4, ON_CPU, accumulate_rows); }

static void norms(px_comm *comm, px_device device) {
  double data[] = {3, 0, 0, 4};
  int64_t size = 2;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) own = NULL;
  PX_SCOPED(px_tensor) norm = NULL;
  PX_SCOPED(px_tensor) greatest = NULL;
  OK(px_tensor_from_data(&part, data + 2 * px_comm_rank(comm), 1, &size, PX_FLOAT64, px_cpu()));
  OK(px_full(&own, &size, 1, px_float(-12 / sqrt(2)), PX_FLOAT64, px_cpu(), false, false));
  OK(px_shard_norm(&norm, comm, &part, 1, &own, 1, 2));
  CHECK_NEAR(*(double *)px_tensor_data(norm), 13, 1e-12);
  OK(px_shard_norm(&greatest, comm, &part, 1, NULL, 0, INFINITY));
  CHECK_NEAR(*(double *)px_tensor_data(greatest), 4, 0);
  FAILS(px_shard_norm(&norm, comm, &part, 1, NULL, 0, 0), PX_UNIMPLEMENTED, "of sharded tensors");
}
// Numbers on the CPU and on the device, also for communicators that accept device tensors only.
static void find_max(px_comm *comm, px_device device) {
  px_device devices[] = {device, px_cpu()};
  for (int i = 0; i < 2; i++) {
    float value = (float)px_comm_rank(comm) - 3, found = 0;
    PX_SCOPED(px_tensor) number = NULL;
    PX_SCOPED(px_tensor) norm = NULL;
    OK(px_full(&number, NULL, 0, px_float(value), PX_FLOAT32, devices[i], false, false));
    OK(px_shard_norm(&norm, comm, &number, 1, NULL, 0, INFINITY));
    OK(px_shard_max(comm, number));
    OK(px_tensor_read(number, &found, sizeof found));
    CHECK_NEAR(found, px_comm_size(comm) - 4, 0);
    OK(px_tensor_read(norm, &found, sizeof found));
    CHECK_NEAR(found, 3, 0);
  }
}
PX_TEST(the_max_over_ranks_is_found) { run_ranks(3, ON_CPU, find_max); }
PX_TEST(the_max_over_ranks_is_found_with_queued_collectives) { run_ranks(3, IN_CLUSTER, find_max); }
PX_TEST(the_norm_is_that_of_the_full_gradient) { run_ranks(2, ON_CPU, norms); }

static void refuses(px_comm *comm, px_device device) {
  PX_SCOPED(px_module) model = make_model(device);
  PX_SCOPED(px_tensor) scalar = NULL;
  PX_SCOPED(px_shards) shards = NULL;
  px_shard_options options = options_of(comm);
  OK(px_full(&scalar, NULL, 0, px_float(1), PX_FLOAT64, px_cpu(), false, false));
  OK(px_module_register_parameter(model, "scale", scalar));
  FAILS(px_fully_shard(&shards, model, &options), PX_VALUE,
        "fully_shard doesn't support scalar parameters. Change scale to a 1D tensor");
  CHECK(!px_module_has_hooks(model));
  options.ignored = &scalar;
  options.ignored_count = 1;
  options.param_dtype = PX_BFLOAT16;
  OK(px_fully_shard(&shards, model, &options));
  OK(px_shards_unshard(shards, true));
  CHECK(!px_shards_is_unsharded(shards));
  OK(px_shards_unshard(shards, false));
  px_shard part;
  CHECK(px_shards_is_unsharded(shards) && px_shards_at(shards, 0, &part));
  CHECK_EQ((int)px_tensor_dtype(part.whole), PX_BFLOAT16);
  CHECK_EQ(px_tensor_dtype(part.local), PX_FLOAT64);
  OK(px_shards_reshard(shards));
  OK(px_shards_reshard(shards));
}
PX_TEST(unshardable_modules_are_refused_unchanged) { run_ranks(2, ON_CPU, refuses); }

// ---- after any failure the module is usable, and nothing leaks

static px_status one_step(px_module *model, px_tensor *x) {
  PX_SCOPED(px_tensor) out = NULL;
  PX_SCOPED(px_tensor) loss = NULL;
  PX_TRY(px_module_zero_grad(model));
  PX_TRY(px_module_call(&out, model, x));
  PX_TRY(px_sum(&loss, out, NULL, 0, false, PX_DTYPE_NONE));
  return px_backward(1, &loss, NULL, false, false);
}

static void survives_with(px_comm *comm, px_comm *replicas) {
  int64_t sizes[] = {2, 2}, n = 1;
  px_device device = px_cpu();
  px_shard_options options = options_of(comm);
  options.replicas = replicas;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_module) model = make_model(device);
  PX_SCOPED(px_shards) shards = NULL;
  OK(px_ones(&x, sizes, 2, PX_FLOAT64, px_cpu(), false, false));
  for (px_status status = PX_NOMEM; status != PX_OK; n++) {
    OK(px_fault_arm("alloc", n, false));
    status = px_fully_shard(&shards, model, &options);
    px_fault_disarm_all();
    CHECK(status == PX_OK || status == PX_NOMEM);
    CHECK_EQ(px_module_has_hooks(model), status == PX_OK);
  }
  CHECK(n > 10);
  n = 1;
  for (px_status status = PX_NOMEM; status != PX_OK; n++) {
    OK(px_fault_arm("alloc", n, false));
    status = one_step(model, x);
    px_fault_disarm_all();
    CHECK(status == PX_OK || status == PX_NOMEM);
    OK(one_step(model, x));
    check_parts(comm, shards, 4);
    px_shard part;
    CHECK(px_shards_at(shards, 3, &part));
    CHECK_NEAR(*(double *)px_tensor_data(px_tensor_grad(part.local)), 2, 0);
  }
  CHECK(n > 30);
}
static void survives_as_group(px_comm *comm) {
  int64_t sizes[] = {2, 2};
  px_shard_options options = options_of(comm);
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_module) model = make_model(px_cpu());
  PX_SCOPED(px_shards) group = NULL;
  PX_SCOPED(px_shards) outer = NULL;
  shard_as_group(&group, model, comm);
  OK(px_fully_shard(&outer, model, &options));
  OK(px_ones(&x, sizes, 2, PX_FLOAT64, px_cpu(), false, false));
  px_status status = PX_NOMEM;
  for (int64_t n = 1; status != PX_OK; n++) {
    OK(px_fault_arm("alloc", n, false));
    status = one_step(model, x);
    px_fault_disarm_all();
    CHECK(status == PX_OK || status == PX_NOMEM);
    OK(one_step(model, x));
    check_parts(comm, group, 4);
  }
}

// One rank with column shards, on the CPU or in pinned memory.
static void survives_offloaded(px_comm *comm, px_device device) {
  int64_t sizes[] = {2, 2};
  px_shard_options options = options_of(comm);
  options.dim_of = by_columns, options.dim_context = comm;
  options.device = device, options.offload = true, options.pin = device.type == PX_CUDA;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_module) model = make_model(device);
  PX_SCOPED(px_shards) shards = NULL;
  OK(px_ones(&x, sizes, 2, PX_FLOAT64, device, false, false));
  px_status status = PX_NOMEM;
  for (int64_t n = 1; status != PX_OK; n++) {
    OK(px_fault_arm("alloc", n, false));
    status = px_fully_shard(&shards, model, &options);
    px_fault_disarm_all();
    CHECK(status == PX_OK || status == PX_NOMEM);
  }
  for (int64_t n = 1; n == 1 || status != PX_OK; n++) {
    OK(px_fault_arm("alloc", n, false));
    status = one_step(model, x);
    px_fault_disarm_all();
    CHECK(status == PX_OK || status == PX_NOMEM);
    OK(one_step(model, x));
    px_shard part;
    double grad;
    CHECK(px_shards_at(shards, 3, &part));
    OK(px_tensor_read(px_tensor_grad(part.local), &grad, sizeof grad));
    CHECK_NEAR(grad, 2, 0);
  }
}

// ---- a backward pass failed after some groups were reduced: the next step starts over, also if
// gradients of several passes accumulate

static px_status refuse(px_tensor **out, px_tensor *grad, void *context) {
  *out = NULL;
  PX_FAIL(PX_RUNTIME, "this gradient is refused");
}
// On the first layer: fails the backward passes of all ranks at the gradient of its result.
static px_status refuse_result(px_tensor **replacement, px_module *module, px_tensor *const *inputs,
                               int count, px_tensor *result, void *fails) {
  int64_t id;
  *replacement = NULL;
  return *(bool *)fails ? px_tensor_add_hook(&id, result, refuse, NULL, NULL) : PX_OK;
}

static px_status pass_of(px_module *model, px_comm *comm, px_device device, int turn) {
  PX_SCOPED(px_tensor) x = NULL;
  double value = 0.1 * (turn + 1) * (px_comm_rank(comm) + 1);
  OK(px_full(&x, (int64_t[]){2, 2}, 2, px_float(value), PX_FLOAT64, device, false, false));
  return pass(model, x);
}

// Runs two passes. The second one reduces, and averages over replicas, or it fails.
static void two_passes(px_module *model, px_shards *const *groups, px_comm *comm, px_device device,
                       bool sums, bool *fails, bool second_fails) {
  OK(px_module_zero_grad(model));
  for (int turn = 0; turn < 2; turn++) {
    for (int g = 0; g < 2; g++) {
      px_shards_reduce(groups[g], turn || !sums);
      px_shards_average(groups[g], turn || sums);
    }
    *fails = turn && second_fails;
    px_status status = pass_of(model, comm, device, turn);
    CHECK_EQ(status, *fails ? PX_RUNTIME : PX_OK);
  }
  px_error_clear();
  *fails = false;
}

static void read_gradients(double out[32], px_shards *const *groups) {
  px_shard part;
  for (int g = 0; g < 2; g++)
    for (int i = 0; px_shards_at(groups[g], i, &part); i++) {
      px_tensor *grad = px_tensor_grad(part.local);
      size_t bytes = grad ? (size_t)px_tensor_numel(grad) * sizeof(double) : 0;
      if (bytes) OK(px_tensor_read(grad, out, bytes));
      out += bytes / sizeof(double);
    }
}

// `sums`: gradients of both passes accumulate in the rank. Otherwise replicas accumulate in rows.
static void restarts_with(px_comm *comm, px_comm *parts, px_comm *replicas, px_device device,
                          bool sums, px_dtype reduce_dtype) {
  int64_t id;
  bool fails = false;
  double wanted[32] = {0}, found[32] = {0};
  px_module_entry first;
  PX_SCOPED(px_module) model = make_model(device);
  PX_SCOPED(px_shards) inner = NULL;
  PX_SCOPED(px_shards) outer = NULL;
  px_shard_options options = options_of(parts);
  options.replicas = replicas;
  options.reduce_dtype = reduce_dtype;
  CHECK(px_module_entry_at(model, PX_ENTRY_MODULE, 0, &first));
  OK(px_fully_shard(&inner, first.module, &options));
  OK(px_fully_shard(&outer, model, &options));
  OK(px_module_add_hook(&id, first.module, false, refuse_result, &fails, NULL));
  px_shards *groups[] = {inner, outer};
  two_passes(model, groups, comm, device, sums, &fails, false);
  read_gradients(wanted, groups);
  for (int i = 0; i < 2; i++) {
    two_passes(model, groups, comm, device, sums, &fails, true);
    two_passes(model, groups, comm, device, sums, &fails, false);
    memset(found, 0, sizeof found);
    read_gradients(found, groups);
    CHECK(!memcmp(found, wanted, sizeof found));
  }
  CHECK(wanted[0] != 0 || px_comm_rank(comm));
}
static void restarts(px_comm *comm, px_device device) {
  restarts_with(comm, comm, NULL, device, true, PX_DTYPE_NONE);
  restarts_with(comm, comm, NULL, device, true, PX_FLOAT32);
}
static void replicas_restart(px_comm *comm, px_device device) {
  PX_SCOPED(px_mesh) mesh = two_by_two(comm);
  px_comm *parts = px_mesh_comm(mesh, 1), *replicas = px_mesh_comm(mesh, 0);
  restarts_with(comm, parts, replicas, device, true, PX_DTYPE_NONE);
  restarts_with(comm, parts, replicas, device, false, PX_DTYPE_NONE);
}
PX_TEST(a_step_after_a_failed_backward_starts_over) { run_ranks(2, ON_CPU, restarts); }
PX_TEST(a_step_after_a_failed_backward_on_simulated_devices_starts_over) {
  run_ranks(2, ON_SIM, restarts);
}
PX_TEST(a_step_of_replicas_after_a_failed_backward_starts_over) {
  run_ranks(4, ON_CPU, replicas_restart);
}

static void survives(px_comm *comm, px_device device) {
  survives_offloaded(comm, px_cpu());
  survives_as_group(comm);
  survives_with(comm, NULL);
  survives_with(comm, comm);
}
PX_TEST(a_failed_step_with_pinned_parts_does_not_affect_the_next) {
  run_ranks(1, ON_SIM, survives_offloaded);
}
PX_TEST(a_failed_step_does_not_affect_the_next) { run_ranks(1, ON_CPU, survives); }
