// SPDX-License-Identifier: Apache-2.0
// Tests of communicators: runs a function in each rank of a group of processes or threads.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include "phlox/comm.h"
#include "phlox/device.h"
#include "test.h"

typedef void (*rank_body)(px_comm *comm, px_device device);

// Ranks as processes with tensors on the CPU or on one simulated device each, or as threads of a
// simulated cluster with either.
typedef enum place { ON_CPU, ON_SIM, IN_CLUSTER_CPU, IN_CLUSTER } place;

static void join_and_run(px_store *store, int rank, int size, place where, rank_body body) {
  bool simulated = where == ON_SIM || where == IN_CLUSTER;
  px_device device = {simulated ? PX_CUDA : PX_CPU, !simulated ? -1 : where == ON_SIM ? 0 : rank};
  PX_SCOPED(px_comm) comm = NULL;
  px_comm_options options = {simulated ? "nccl" : "gloo", store, rank, size, 60000};
  OK(px_comm_new(&comm, &options));
  body(comm, device);
  // Keeps all connections open until each rank is done.
  OK(px_comm_monitored_barrier(comm, 60000, true));
}

static void be_rank(const char *path, int rank, int size, place where, rank_body body) {
  PX_SCOPED(px_store) store = NULL;
  OK(px_store_file(&store, path));
  join_and_run(store, rank, size, where, body);
}

typedef struct cluster_body {
  place where;
  rank_body body;
} cluster_body;
static px_status be_thread(int rank, int size, void *argument) {
  const cluster_body *of = argument;
  join_and_run(px_cluster_store(), rank, size, of->where, of->body);
  return PX_OK;
}

static void run_threads(int size, place where, rank_body body) {
  setenv("PHLOX_BACKENDS", "sim", 1), setenv("PHLOX_SIM_DEVICES", "4", 1);
  OK(px_cluster_run(size, be_thread, &(cluster_body){where, body}));
}

// Runs `body` in each rank.
static void run_ranks(int size, place where, rank_body body) {
  char path[] = "/tmp/phlox-comm-XXXXXX";
  pid_t children[8];
  if (where == IN_CLUSTER || where == IN_CLUSTER_CPU) return run_threads(size, where, body);
  if (!px_engine_available("gloo")) SKIP("the gloo engine is not built");
  CHECK(mkstemp(path) >= 0);
  for (int r = 0; r < size; r++) {
    children[r] = fork();
    if (children[r]) continue;
    if (where == ON_SIM) setenv("PHLOX_BACKENDS", "sim", 1), setenv("PHLOX_SIM_DEVICES", "1", 1);
    be_rank(path, r, size, where, body);
    _exit(0);
  }
  int failed = 0, status;
  for (int r = 0; r < size; r++) {
    waitpid(children[r], &status, 0);
    failed += status != 0;
  }
  unlink(path);
  CHECK_EQ(failed, 0);
}
