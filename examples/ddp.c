// SPDX-License-Identifier: Apache-2.0
// Data-parallel training in several processes: `ddp 4` forks 4 ranks with a rendezvous file;
// `mpirun -n 4 ddp mpi` uses the ranks started by MPI. Each rank has the whole model and its part
// of each batch. A reducer averages the gradients during backward: the losses are those of one
// process.
#include <phlox/phlox.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH = 48, STEPS = 100 };

static px_status make_model(px_module **out) {
  px_module *layers[3] = {NULL};
  px_status status = px_linear_new(&layers[0], 2, 32);
  if (status == PX_OK) status = px_tanh_new(&layers[1]);
  if (status == PX_OK) status = px_linear_new(&layers[2], 32, 1);
  if (status == PX_OK) status = px_sequential_new(out, layers, 3);
  for (int i = 0; i < 3; i++) px_release(layers[i]);
  return status;
}

// Points in the plane. The target is the product of their coordinates.
static px_status make_data(px_tensor **points, px_tensor **products) {
  int64_t size[] = {BATCH, 2};
  PX_TRY(px_randn(points, size, 2, NULL, PX_FLOAT32, px_cpu(), false, false));
  return px_prod(products, *points, 1, true, PX_DTYPE_NONE);
}

static px_status step(double *sum, px_comm *comm, px_module *model, px_reducer *reducer,
                      px_optimizer *optimizer) {
  PX_SCOPED(px_tensor) points = NULL, *products = NULL, *x = NULL, *y = NULL;
  PX_SCOPED(px_tensor) guess = NULL, *loss = NULL, *mean = NULL;
  PX_SCOPED(px_work) work = NULL;
  int64_t part = BATCH / px_comm_size(comm), from = part * px_comm_rank(comm);
  px_scalar value;
  PX_TRY(make_data(&points, &products));
  PX_TRY(px_narrow(&x, points, 0, from, part));
  PX_TRY(px_narrow(&y, products, 0, from, part));
  PX_TRY(px_optimizer_zero_grad(optimizer, true));
  PX_TRY(px_reducer_begin(reducer));
  PX_TRY(px_module_call(&guess, model, x));
  PX_TRY(px_reducer_expect(reducer, NULL, 0));
  PX_TRY(px_mse_loss(&loss, guess, y, "mean", NULL));
  PX_TRY(px_backward(1, &loss, NULL, false, false));
  PX_TRY(px_optimizer_step(optimizer));
  PX_TRY(px_tensor_detach(&mean, loss));
  px_collective all = {
      .op = PX_ALL_REDUCE, .reduce = PX_REDUCE_AVG, .outputs = &mean, .output_count = 1};
  PX_TRY(px_comm_run(&work, comm, &all));
  PX_TRY(px_work_wait(work, 0));
  PX_TRY(px_tensor_item(&value, mean));
  *sum = px_scalar_float(value);
  return PX_OK;
}

static px_status train(px_comm *comm) {
  PX_SCOPED(px_module) model = NULL;
  PX_SCOPED(px_list) list = NULL;
  PX_SCOPED(px_optimizer) optimizer = NULL;
  PX_SCOPED(px_reducer) reducer = NULL;
  px_manual_seed(1);
  PX_TRY(make_model(&model));
  PX_TRY(px_module_parameters(&list, model));
  px_tensor *const *parameters = px_list_items(list);
  int count = (int)px_list_size(list);
  PX_TRY(px_adam_new(&optimizer, parameters, count, .lr = 0.02));
  PX_TRY(px_comm_check_parameters(comm, parameters, count));
  PX_TRY(px_comm_copy_from(comm, 0, parameters, count));
  px_reducer_options options = {.comm = comm, .parameters = parameters, .count = count};
  PX_TRY(px_reducer_new(&reducer, &options));
  for (int i = 1; i <= STEPS; i++) {
    double loss = 0;
    PX_TRY(step(&loss, comm, model, reducer, optimizer));
    if (i % 25 == 0 && !px_comm_rank(comm)) printf("step %d: loss %.4f\n", i, loss);
  }
  return px_comm_monitored_barrier(comm, 0, true);  // no rank exits while others need it
}

static px_status be_rank(const char *path, int rank, int size) {
  PX_SCOPED(px_store) store = NULL;
  PX_SCOPED(px_comm) comm = NULL;
  PX_TRY(px_store_file(&store, path));
  px_comm_options options = {"gloo", store, rank, size, 60000};
  PX_TRY(px_comm_new(&comm, &options));
  return train(comm);
}

// A rank started by mpirun.
static px_status be_mpi_rank(void) {
  PX_SCOPED(px_store) store = NULL;
  PX_SCOPED(px_comm) comm = NULL;
  int rank, size;
  PX_TRY(px_store_mpi(&store, &rank, &size, 60000));
  PX_CHECK(BATCH % size == 0, PX_VALUE, "%d ranks do not divide a batch of %d", size, BATCH);
  PX_TRY(px_comm_new(&comm, &(px_comm_options){"mpi", store, rank, size, 60000}));
  return train(comm);
}

static int tell(px_status status) {
  if (status != PX_OK) px_error_print();
  return status != PX_OK;
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "mpi")) return tell(be_mpi_rank());
  char path[] = "/tmp/phlox-ddp-XXXXXX";
  int size = argc > 1 ? atoi(argv[1]) : 2, failed = 0, status;
  if (size < 1 || BATCH % size || mkstemp(path) < 0) return 2;
  for (int rank = 0; rank < size; rank++) {
    if (fork()) continue;
    if (be_rank(path, rank, size) == PX_OK) return 0;
    fprintf(stderr, "rank %d: %s\n", rank, px_error_last()->message);
    return 1;
  }
  while (wait(&status) > 0) failed += status != 0;
  unlink(path);
  return failed != 0;
}
