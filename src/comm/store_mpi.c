// SPDX-License-Identifier: Apache-2.0
// The store of ranks started by mpirun. Rank 0 serves it over TCP and broadcasts its address and a
// random secret by MPI.
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "comm/comm_impl.h"

typedef struct address {
  char host[256];
  int port;         // -1: no server
  char secret[33];  // 128 bits in hexadecimal
} address;

static px_status draw_secret(char secret[33]) {
  uint8_t bits[16];
  PX_CHECK(getrandom(bits, sizeof bits, 0) == sizeof bits, PX_DIST_NETWORK, "getrandom failed");
  for (int i = 0; i < 16; i++) snprintf(secret + 2 * i, 3, "%02x", bits[i]);
  return PX_OK;
}

// Serves the store on rank 0. The caller reports failures after the broadcast.
static px_status serve(px_store **out, address *at, int size, int64_t timeout_ms) {
  if (gethostname(at->host, sizeof at->host - 1)) snprintf(at->host, sizeof at->host, "127.0.0.1");
  at->port = -1;
  PX_TRY(draw_secret(at->secret));
  px_store_tcp_options options = {.host = at->host,
                                  .serve = true,
                                  .workers = size,
                                  .timeout_ms = timeout_ms,
                                  .secret = at->secret};
  PX_TRY(px_store_tcp(out, &options));
  at->port = px_store_port(*out);
  // The server must outlive this communicator: rank 0 may finish first. It is kept until the
  // process exits, which waits for all ranks in MPI_Finalize.
  (void)px_retain(*out);
  return PX_OK;
}

static px_status join(px_store **out, const address *at, int64_t timeout_ms) {
  PX_CHECK(at->port > 0, PX_DIST_BACKEND, "MPI rank 0 failed to serve the store");
  return px_store_tcp(
      out, &(px_store_tcp_options){
               .host = at->host, .port = at->port, .timeout_ms = timeout_ms, .secret = at->secret});
}

px_status px_store_mpi(px_store **out, int *rank, int *size, int64_t timeout_ms) {
  PX_GIVEN(out);
  PX_GIVEN(rank);
  PX_GIVEN(size);
  const px_engine *engine;
  address at = {.port = -1};
  char why[PX__REASON] = "";
  PX_SCOPED(px_store) store = NULL;
  *out = NULL;
  PX_CHECK(px_cluster_rank() < 0, PX_UNIMPLEMENTED,
           "px_store_mpi is unavailable in a simulated cluster; use px_cluster_store");
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
