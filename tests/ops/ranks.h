// SPDX-License-Identifier: Apache-2.0
// For tests of communicators: runs a body in processes of its own, as the ranks of a group.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include "phlox/comm.h"
#include "phlox/device.h"
#include "test.h"

typedef void (*rank_body)(px_comm *comm, px_device device);

static void be_rank(const char *path, int rank, int size, const char *engine, px_device device,
                    rank_body body) {
  PX_SCOPED(px_store) store = NULL;
  PX_SCOPED(px_comm) comm = NULL;
  OK(px_store_file(&store, path));
  px_comm_options options = {engine, store, rank, size, 60000};
  OK(px_comm_new(&comm, &options));
  body(comm, device);
  // No rank closes its connections while another one still needs them.
  OK(px_comm_monitored_barrier(comm, 60000, true));
}

// Runs the body in processes of its own, on the CPU and on a simulated device each.
static void run_ranks(int size, bool simulated, rank_body body) {
  char path[] = "/tmp/phlox-comm-XXXXXX";
  pid_t children[8];
  if (!px_engine_available("gloo")) SKIP("the gloo engine is not built");
  CHECK(mkstemp(path) >= 0);
  for (int r = 0; r < size; r++) {
    children[r] = fork();
    if (children[r]) continue;
    if (simulated) setenv("PHLOX_BACKENDS", "sim", 1), setenv("PHLOX_SIM_DEVICES", "1", 1);
    px_device device = simulated ? (px_device){PX_CUDA, 0} : (px_device){PX_CPU, -1};
    be_rank(path, r, size, simulated ? "nccl" : "gloo", device, body);
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
