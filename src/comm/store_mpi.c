// SPDX-License-Identifier: Apache-2.0
// The store of ranks that mpirun has started: rank 0 serves it over TCP, and MPI tells the others
// where.
#include <stdio.h>
#include <unistd.h>

#include "comm/comm_impl.h"

typedef struct address {
  char host[256];
  int port;  // -1: there is none
} address;

// Serves the store where all ranks can reach it. What goes wrong is told after the others know.
static px_status serve(px_store **out, address *at, int size, int64_t timeout_ms) {
  if (gethostname(at->host, sizeof at->host - 1)) snprintf(at->host, sizeof at->host, "127.0.0.1");
  at->port = -1;
  px_store_tcp_options options = {
      .host = at->host, .serve = true, .workers = size, .timeout_ms = timeout_ms};
  PX_TRY(px_store_tcp(out, &options));
  at->port = px_store_port(*out);
  // It is served until the end of the process, which waits for all ranks in MPI_Finalize: rank 0
  // may be through with it first.
  (void)px_retain(*out);
  return PX_OK;
}

static px_status join(px_store **out, const address *at, int64_t timeout_ms) {
  PX_CHECK(at->port > 0, PX_DIST_BACKEND, "rank 0 of MPI's ranks cannot serve a store");
  return px_store_tcp(
      out, &(px_store_tcp_options){.host = at->host, .port = at->port, .timeout_ms = timeout_ms});
}

px_status px_store_mpi(px_store **out, int *rank, int *size, int64_t timeout_ms) {
  PX_GIVEN(out);
  PX_GIVEN(rank);
  PX_GIVEN(size);
  const px_engine *engine;
  address at = {.port = -1};
  char why[PX__WHY] = "";
  PX_SCOPED(px_store) store = NULL;
  *out = NULL;
  PX_CHECK(px_cluster_rank() < 0, PX_UNIMPLEMENTED,
           "a simulated cluster has its own store (px_cluster_store), not MPI's");
  PX_TRY(px__engine_find(&engine, "mpi"));
  PX_CHECK(!engine->world(rank, size, NULL, 0, why, sizeof why), PX_DIST_BACKEND, "MPI: %s", why);
  px_status status = *rank ? PX_OK : serve(&store, &at, *size, timeout_ms);
  int bad = engine->world(rank, size, &at, sizeof at, why, sizeof why);
  PX_TRY(status);
  PX_CHECK(!bad, PX_DIST_BACKEND, "MPI: %s", why);
  if (*rank) PX_TRY(join(&store, &at, timeout_ms));
  *out = PX_MOVE(store);
  return PX_OK;
}
