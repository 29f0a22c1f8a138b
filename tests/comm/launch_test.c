// SPDX-License-Identifier: Apache-2.0
// Jobs launched from C, without Python.
#include "phlox/launch.h"
#include "phlox/comm.h"
#include "phlox/phlox.h"

#include "test.h"

static px_status job(const char *program, const char *option) {
  const char *const arguments[] = {
      "--nproc-per-node=2", "--no-python", option, "sh", "-c", program};
  const char *const environment[] = {"PATH=/usr/bin:/bin", "RANK=9", "KEPT=yes", NULL};
  const px_job_options options = {.arguments = arguments, .count = 6, .environment = environment};
  return px_job_run(&options);
}

PX_TEST(ranks_get_their_environment) {
  OK(job("test $RANK = $LOCAL_RANK && test $WORLD_SIZE = 2 && test $KEPT = yes", "--standalone"));
}

PX_TEST(a_failed_job_reports_its_rank) {
  FAILS(job("test $RANK = 0 || exit 7; sleep 600", "--standalone"), PX_RUNTIME,
        "rank      : 1 (local_rank: 1)");
  FAILS(job("test $RANK = 1 || exit 7; sleep 600", "--standalone"), PX_RUNTIME, "exitcode  : 7");
}

PX_TEST(a_failed_job_restarts) {
  OK(job("test $TORCHELASTIC_RESTART_COUNT = 2", "--max-restarts=2"));
}

PX_TEST(a_missing_program_is_named) {
  const char *const arguments[] = {"--no-python", "--standalone", "/missing/program"};
  const px_job_options options = {.arguments = arguments, .count = 3};
  FAILS(px_job_run(&options), PX_IO, "cannot start /missing/program: No such file or directory");
}

PX_TEST(invalid_arguments_start_nothing) {
  FAILS(job("true", "--tee=9"), PX_VALUE,
        "argument --tee: expected 0, 1, 2, 3, or RANK:NUMBER,..., got '9'");
  FAILS(job("true", "--numa-binding"), PX_UNIMPLEMENTED, "--numa-binding is not implemented");
  FAILS(px_job_run(NULL), PX_TYPE, "`options` is NULL");
  const px_job_options none = {0};
  FAILS(px_job_run(&none), PX_VALUE, "training_script");
  CHECK(strstr(px_job_usage(), "--max-restarts"));
}

// Runs the agent of node 1 of 2 at a store with the given value of a key.
static px_status run_node_1(const char *key, const char *value, const char *node) {
  PX_SCOPED(px_store) store = NULL;
  OK(px_store_tcp(&store, &(px_store_tcp_options){.host = "127.0.0.1", .serve = true}));
  char endpoint[64];
  snprintf(endpoint, sizeof endpoint, "--rdzv-endpoint=127.0.0.1:%d", px_store_port(store));
  OK(px_store_set(store, "torchrun/none/ranks/0/0", "1 default", 9));
  OK(px_store_set(store, key, value, strlen(value)));
  const char *const arguments[] = {"--nnodes=2", "--no-python", endpoint, node, "true"};
  return px_job_run(&(px_job_options){.arguments = arguments, .count = 5});
}

PX_TEST(hostile_values_of_the_rendezvous_are_refused) {
  static const char *const counts[] = {"2147483647 default", "-1 default", "0 default", "x"};
  for (int i = 0; i < 4; i++)
    FAILS(run_node_1("torchrun/none/ranks/0/0", counts[i], "--node-rank=1"), PX_DIST_STORE,
          "phlox-run: expected a number of ranks in [1, 16384] of node 0, got");
  FAILS(run_node_1("torchrun/none/verdict/0/0", "9 0", "--node-rank=1"), PX_DIST_STORE,
        "phlox-run: expected the verdict of a node, got '9 0'");
  FAILS(run_node_1("torchrun/none/nodes", "-9223372036854775808", "--rdzv-backend=c10d"), PX_VALUE,
        "phlox-run: all 2 nodes of the job have joined already");
}
