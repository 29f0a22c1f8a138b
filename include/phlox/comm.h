// SPDX-License-Identifier: Apache-2.0
// Communication between processes: stores for rendezvous, and communicators with collectives on
// tensors.
//
// A communicator uses an engine (phlox/engine.h), a shared object loaded at run time: "gloo" or
// "mpi" for host memory, "nccl" for GPUs, "sim" for ranks that are threads. All ranks call the same
// collectives in the same order. Every call ends within its deadline, with a result or with an
// error that names the rank, the operation and its number. Pending calls of all ranks fail at once
// if a rank exits, hangs for longer than PHLOX_HEARTBEAT_TIMEOUT, leaves while others continue, or
// calls a different collective; the error names the cause.
//
// Example: tests/comm/comm_test.c.
#pragma once
#include "phlox/engine.h"
#include "phlox/event.h"
#include "phlox/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

// ---- stores: keys and values shared by processes

typedef struct px_store px_store;

// Make a store in memory, shared by the threads of this process, or in a file, shared by the
// processes of one host or of a shared file system.
PX_CALL px_store_memory(px_store **out);
PX_CALL px_store_file(px_store **out, const char *path);
typedef struct px_store_tcp_options {
  const char *host;    // the server's host; see below
  int port;            // the server's port; 0 with `serve`: any free one
  bool serve;          // this process also runs the server, for the lifetime of the store
  int workers;         // number of clients; 0: unknown
  bool wait;           // the server's process waits until that many have connected
  int64_t timeout_ms;  // for connecting and later calls; 0: 300 s
  const char *secret;  // NULL: PHLOX_STORE_SECRET. Clients with another secret are refused
} px_store_tcp_options;
// Connects to the server of a job. PX_DIST_NETWORK if the server is not reachable in time, has no
// capacity, the port is in use, or the secret is wrong. Without a secret, a server on localhost,
// 127.0.0.0/8 or ::1 listens on the loopback only. On another host it listens on all interfaces and
// warns (px_warning_set_sink). PHLOX_STORE_CONNECTIONS, _KEYS, _MEMORY, _QUEUE and _REQUEST are its
// limits; a call above one fails with PX_DIST_STORE and their name.
PX_CALL px_store_tcp(px_store **out, const px_store_tcp_options *options);
// Makes the store of the ranks started by mpirun, and returns this rank and the number of ranks.
// All ranks call it; rank 0 serves the store over TCP. PX_UNIMPLEMENTED without the engine "mpi".
PX_CALL px_store_mpi(px_store **out, int *rank, int *size, int64_t timeout_ms);
// Makes a view of another store, with a prefix and a slash before each key.
PX_CALL px_store_prefix(px_store **out, const char *prefix, px_store *store);

PX_API int px_store_port(const px_store *self);  // 0 unless a TCP store
PX_API int64_t px_store_timeout(const px_store *self);
PX_API void px_store_set_timeout(px_store *self, int64_t milliseconds);
// Keys are strings, values bytes; a key and its value have less than 32 MiB. px_store_get waits for
// the key; free *value with px_free. PX_DIST_STORE "wait timeout after 300000ms, keys: /x".
PX_CALL px_store_set(px_store *self, const char *key, const void *value, size_t size);
PX_CALL px_store_get(void **value, size_t *size, px_store *self, const char *key);
// Adds to an integer, stored as decimal text; a missing key counts as 0. Returns the sum.
PX_CALL px_store_add(int64_t *out, px_store *self, const char *key, int64_t amount);
// Sets the value if the current one equals `expected`, or if there is none and `expected` is empty.
// Returns the value stored afterwards, or `expected` if the key is missing.
PX_CALL px_store_compare_set(void **value, size_t *size, px_store *self, const char *key,
                             const void *expected, size_t expected_size, const void *desired,
                             size_t desired_size);
// Waits until all keys exist, at most timeout_ms (0: the store's). PX_DIST_STORE as above.
PX_CALL px_store_wait(px_store *self, const char *const *keys, int count, int64_t timeout_ms);
PX_CALL px_store_check(bool *out, px_store *self, const char *const *keys, int count);
PX_CALL px_store_delete(bool *out, px_store *self, const char *key);
PX_CALL px_store_num_keys(int64_t *out, px_store *self);

// ---- communicators

typedef struct px_comm px_comm;
typedef struct px_work px_work;

// True if an engine can be loaded.
PX_API bool px_engine_available(const char *name);
// Loads an engine and returns the path of its library, a static string. PX_UNIMPLEMENTED, with the
// reason, if it cannot be loaded; PX_VALUE for an invalid name; PX_RUNTIME for "nccl" without a
// device.
PX_CALL px_engine_library(const char **path, const char *name);

typedef struct px_comm_options {
  const char *engine;
  px_store *store;  // shared by the ranks of this communicator only
  int rank, size;
  int64_t timeout_ms;  // for joining and for each call; 0: 30 min
} px_comm_options;
// Joins a communicator; returns when all ranks have joined. PX_UNIMPLEMENTED for an unknown engine,
// PX_DIST_BACKEND if a rank does not join in time.
PX_CALL px_comm_new(px_comm **out, const px_comm_options *options);
// Makes a communicator of the given ranks, in this order. All of them call it, with a name not used
// by another call of theirs. *out is NULL for a rank not listed.
PX_CALL px_comm_split(px_comm **out, px_comm *self, const char *name, const int *ranks, int count,
                      int64_t timeout_ms);
PX_API int px_comm_rank(const px_comm *self);
PX_API int px_comm_size(const px_comm *self);
PX_API int64_t px_comm_timeout(const px_comm *self);
// True if collectives are queued on streams by the engine: NCCL on GPUs. Such a communicator uses
// tensors of one device, determined by its first call, which also joins.
PX_API bool px_comm_queues(const px_comm *self);
// Closes the connections: pending and later calls fail, here and on the other ranks.
PX_API void px_comm_abort(px_comm *self);
// Blocks until all work given to the communicator is over. A rank must do so before its process
// exits, since other ranks may depend on it. Errors are reported by the failed work only. Sends and
// receives of host memory, which progress in their waiter, are not waited for.
PX_CALL px_comm_synchronize(px_comm *self);

// A collective. Tensors are contiguous, with one dtype and one device. For a collective with a
// tensor for each rank, one tensor holding all of them in rank order may replace the list.
// broadcast, all_reduce and reduce work in place on one or several outputs. Several are sent as one
// message, or queued as one group if the engine queues. reduce leaves the outputs of other ranks
// than the root unchanged. PREMUL_SUM, for floating-point tensors only, sums the ranks' values
// multiplied by their `factor`. all_to_all sends parts of the sizes of the tensors in the lists.
// With single tensors, the counts give the number of elements for each rank (NULL: equal parts).
typedef struct px_collective {
  px_collective_op op;
  px_reduce_op reduce;
  px_tensor *const *inputs, *const *outputs;
  int input_count, output_count;
  int peer;  // the root; for send and recv the other rank, or -1 for any
  int tag;   // for send and recv
  const int64_t *input_counts, *output_counts;
  int64_t timeout_ms;  // 0: the communicator's
  double factor;       // for PX_REDUCE_PREMUL_SUM
} px_collective;
// Starts a collective; *work (may be NULL) completes when it ends. Its tensors must not be changed
// before that. Collectives of CPU tensors run in order on a thread of the communicator. Collectives
// of device tensors run on a stream of the communicator, after the current stream's work. An
// invalid or unsupported tensor fails before anything is sent: PX_VALUE, PX_TYPE, PX_RUNTIME.
//
// If the engine queues, only the first call blocks, to join. A collective may be captured into a
// graph; deadlines do not apply to it then. All calls of a communicator, including sends and
// receives, run one after another.
PX_CALL px_comm_run(px_work **work, px_comm *self, const px_collective *collective);
// Starts several sends and receives that do not wait for each other, as in a ring. On failure it
// returns no works.
PX_CALL px_comm_run_all(px_work **works, px_comm *self, const px_collective *collectives,
                        int count);
// Waits for all ranks and reports missing ones: PX_RUNTIME "[Rank 0]: Rank 1 failed to pass
// monitoredBarrier in 1000 ms". Rank 0 names the first missing rank or, with `all`, all of them.
PX_CALL px_comm_monitored_barrier(px_comm *self, int64_t timeout_ms, bool all);

// Waits for completion, at most timeout_ms (0: until the call's deadline); PX_RUNTIME on timeout.
// For device work, makes the current stream wait; for a barrier, the host, too. Returns the error
// of the collective.
PX_CALL px_work_wait(px_work *self, int64_t timeout_ms);
PX_API bool px_work_is_completed(const px_work *self);
// The error, borrowed, or NULL.
PX_API const px_error *px_work_error(px_work *self);
// Calls `fn` on completion, with or without an error: immediately if complete, else on the
// completing thread. That is a thread of the communicator; it may start collectives and wait for
// them. For sends and receives of host memory it is the waiting thread. fn may release the work.
PX_CALL px_work_at_end(px_work *self, void (*fn)(void *context), void *context);
// The event of device work, borrowed; NULL for host memory.
PX_API px_event *px_work_event(px_work *self);
// The source rank of a recv, after waiting; -1 for other works.
PX_API int px_work_source(const px_work *self);

// ---- simulated clusters: ranks that are threads of this process, each with a simulated device

// The function of a rank. It makes its communicators like any program.
typedef px_status (*px_cluster_function)(int rank, int ranks, void *argument);
// Runs a function on each rank in parallel, in threads with current device cuda:RANK, and waits for
// all. Communicators made by these threads use the engine "sim" regardless of the engine named
// (docs/reference/simulator.md): their ranks are those of this process, and collectives of device
// memory are stream tasks, ordered by the seed under PHLOX_SIM_MODE=schedule. With PHLOX_SIM_DEATH
// one rank dies early: its next call fails, and the calls of the others fail with its name. Returns
// the error of the first rank that failed by itself. If the calling thread's check fails
// (px_interrupt_set_check), pending waits of the ranks fail. After all ranks return, the call fails
// with the error of the check. PX_RUNTIME with fewer simulated devices than ranks, or if another
// cluster is running.
//
//   static px_status train(int rank, int ranks, void *argument) {
//     PX_SCOPED(px_comm) comm = NULL;
//     PX_TRY(px_comm_new(&comm, &(px_comm_options){"nccl", px_cluster_store(), rank, ranks}));
//     ...
//   }
//   PX_TRY(px_cluster_run(64, train, NULL));
PX_CALL px_cluster_run(int ranks, px_cluster_function function, void *argument);
// The calling thread's rank and the number of ranks; -1 and 0 outside a cluster. Threads started by
// ranks or by the library belong to the rank of their current device. px_cluster_store returns a
// memory store shared by the ranks, borrowed; NULL outside.
PX_API int px_cluster_rank(void);
PX_API int px_cluster_size(void);
PX_API px_store *px_cluster_store(void);
// Returns a store for the ranks' next communicator. Each rank calls this equally often. PX_RUNTIME
// outside a cluster.
PX_CALL px_cluster_next_store(px_store **out);

#ifdef __cplusplus
}
#endif
