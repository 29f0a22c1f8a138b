// SPDX-License-Identifier: Apache-2.0
// Processes that work together: stores, by which they find each other, and communicators, whose
// collectives move and reduce tensors between them.
//
// A communicator stands on an engine (phlox/engine.h), a shared object that is found at run time;
// "gloo" or "mpi" in host memory, "nccl" on GPUs, "sim" between ranks that are threads. Its ranks
// call the same collectives in the same order. Every call ends: with its result, or with an error
// that names the rank, the operation and its number, within the deadline. All ranks are told at
// once when one ends, hangs for longer than PHLOX_HEARTBEAT_TIMEOUT, leaves while others go on, or
// calls for something else: what is under way then fails, and says so.
//
// Example: tests/comm/comm_test.c.
#pragma once
#include "phlox/engine.h"
#include "phlox/event.h"
#include "phlox/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

// ---- stores: keys and values that processes share

typedef struct px_store px_store;

// Makes a store in memory, which the threads of this process share; or in a file, which the
// processes of one host, or of a shared file system, do.
PX_CALL px_store_memory(px_store **out);
PX_CALL px_store_file(px_store **out, const char *path);
typedef struct px_store_tcp_options {
  const char *host;    // of the server
  int port;            // 0, of the server: any that is free
  bool serve;          // this process has the server, too, as long as the store lives
  int workers;         // processes that connect; 0: not known
  bool wait;           // the one that serves waits until that many are there
  int64_t timeout_ms;  // of connecting, and of later calls; 0: 300 s
  const char *secret;  // NULL: PHLOX_STORE_SECRET. Who does not know it is refused
} px_store_tcp_options;
// Connects to the server of a job. PX_DIST_NETWORK if it cannot be reached within the time, if the
// port is in use, or if the secret is not its own.
PX_CALL px_store_tcp(px_store **out, const px_store_tcp_options *options);
// Makes the store of the ranks that mpirun has started, all of which call it; and gives which rank
// this is, and how many there are. Rank 0 serves it over TCP. PX_UNIMPLEMENTED if the engine "mpi"
// is not there.
PX_CALL px_store_mpi(px_store **out, int *rank, int *size, int64_t timeout_ms);
// Makes a store that puts a prefix, and a slash, before each key of another one.
PX_CALL px_store_prefix(px_store **out, const char *prefix, px_store *store);

PX_API int px_store_port(const px_store *self);  // 0 for other kinds than TCP
PX_API int64_t px_store_timeout(const px_store *self);
PX_API void px_store_set_timeout(px_store *self, int64_t milliseconds);
// Keys are texts, values bytes; a key with its value has 64 MiB at most. px_store_get waits for the
// key; *value is to be freed with px_free. PX_DIST_STORE "wait timeout after 300000ms, keys: /x".
PX_CALL px_store_set(px_store *self, const char *key, const void *value, size_t size);
PX_CALL px_store_get(void **value, size_t *size, px_store *self, const char *key);
// Adds to a number, which is 0 if there is none, and is kept as decimal text.
PX_CALL px_store_add(int64_t *out, px_store *self, const char *key, int64_t amount);
// Sets the value if it is the expected one, or if there is none and none is expected. Gives what is
// there then, or what was expected if there is nothing.
PX_CALL px_store_compare_set(void **value, size_t *size, px_store *self, const char *key,
                             const void *expected, size_t expected_size, const void *desired,
                             size_t desired_size);
// Waits for keys, for at most timeout_ms (0: the store's). PX_DIST_STORE as above.
PX_CALL px_store_wait(px_store *self, const char *const *keys, int count, int64_t timeout_ms);
PX_CALL px_store_check(bool *out, px_store *self, const char *const *keys, int count);
PX_CALL px_store_delete(bool *out, px_store *self, const char *key);
PX_CALL px_store_num_keys(int64_t *out, px_store *self);

// ---- communicators

typedef struct px_comm px_comm;
typedef struct px_work px_work;

// Whether an engine can be loaded.
PX_API bool px_engine_available(const char *name);

typedef struct px_comm_options {
  const char *engine;
  px_store *store;  // shared by the ranks, and by no other communicator
  int rank, size;
  int64_t timeout_ms;  // of joining, and of each call; 0: 30 min
} px_comm_options;
// Joins a communicator; returns when all ranks have. PX_UNIMPLEMENTED if there is no such engine,
// PX_DIST_BACKEND if the others do not come.
PX_CALL px_comm_new(px_comm **out, const px_comm_options *options);
// Joins a communicator of some of the ranks, in this order; all of them call it, with a name that
// no other call of theirs has. *out is NULL for a rank that is not among them.
PX_CALL px_comm_split(px_comm **out, px_comm *self, const char *name, const int *ranks, int count,
                      int64_t timeout_ms);
PX_API int px_comm_rank(const px_comm *self);
PX_API int px_comm_size(const px_comm *self);
PX_API int64_t px_comm_timeout(const px_comm *self);
// Whether its collectives are work that an engine queues on a stream: those of NCCL on GPUs. It
// takes tensors of one device, and joins at its first call, which tells which.
PX_API bool px_comm_queues(const px_comm *self);
// Ends the connections: what is under way fails, here and at the other ranks, and so does what is
// called later.
PX_API void px_comm_abort(px_comm *self);
// Waits until all that it was given is over, as a rank must before its process ends: the others may
// need it. What fails is told by its own work. A send or receive of host memory, which ends in who
// waits for it, is left.
PX_CALL px_comm_synchronize(px_comm *self);

// A collective. Tensors are contiguous, of one dtype and one device. Where a collective takes a
// tensor for each rank, one tensor with all of them in turn may stand for the list. broadcast,
// all_reduce and reduce change the outputs in place, one tensor or several, which then go as one
// piece, or, where the engine queues, together; at other ranks than the root, what reduce leaves
// there is what was there. PREMUL_SUM sums what the ranks have, each times its `factor`: of
// floating-point numbers alone. all_to_all gives parts of the sizes of the lists' tensors, or, of
// single tensors, of so many elements as the counts say (NULL: equal parts).
typedef struct px_collective {
  px_collective_op op;
  px_reduce_op reduce;
  px_tensor *const *inputs, *const *outputs;
  int input_count, output_count;
  int peer;  // the root; of send and recv, the other rank, or -1 for any
  int tag;   // of send and recv
  const int64_t *input_counts, *output_counts;
  int64_t timeout_ms;  // 0: the communicator's
  double factor;       // of PX_REDUCE_PREMUL_SUM
} px_collective;
// Begins a collective; *work, which may be asked for or not (NULL), is done when it ends. Tensors
// may not be changed before. Collectives of CPU tensors run in order on a thread of the
// communicator. Those of devices are work of a stream of the communicator, which waits for the
// current one. A tensor that does not fit, or that the engine does not take, is refused before
// anything is sent: PX_VALUE, PX_TYPE, PX_RUNTIME.
//
// Where the engine queues, a call waits for nothing but the first one's joining; the collective may
// be captured as part of a graph, of which it is then a part that no deadline ends; and
// a communicator's calls run one after another, sends and receives among them.
PX_CALL px_comm_run(px_work **work, px_comm *self, const px_collective *collective);
// Begins several sends and receives, which do not wait for each other, as in a ring. If it fails,
// there are no works.
PX_CALL px_comm_run_all(px_work **works, px_comm *self, const px_collective *collectives,
                        int count);
// Waits for all ranks, or says which did not come: PX_RUNTIME "[Rank 0]: Rank 1 failed to pass
// monitoredBarrier in 1000 ms". Rank 0 tells of the first, or, with `all`, of all that are missing.
PX_CALL px_comm_monitored_barrier(px_comm *self, int64_t timeout_ms, bool all);

// Waits for the end, for at most timeout_ms (0: until the deadline of the call): PX_RUNTIME if that
// is over. Of devices: makes the current stream wait, and, of a barrier, the host, too. Fails as
// the collective has.
PX_CALL px_work_wait(px_work *self, int64_t timeout_ms);
PX_API bool px_work_is_completed(const px_work *self);
// What went wrong, or NULL: borrowed.
PX_API const px_error *px_work_error(px_work *self);
// Calls `fn` when it has ended, with or without an error: at once if it has, else on the thread
// that ends it. That is a thread of the communicator, on which one may begin collectives and wait
// for them; of sends and receives of host memory, the one that waits. fn may release the work.
PX_CALL px_work_at_end(px_work *self, void (*fn)(void *context), void *context);
// The event behind it, of a device: borrowed; NULL of host memory.
PX_API px_event *px_work_event(px_work *self);
// The rank that a recv came from, after waiting; -1 of others.
PX_API int px_work_source(const px_work *self);

// ---- simulated clusters: ranks that are threads of this process, each with a simulated device

// The function of a rank. It makes its communicators as any program does.
typedef px_status (*px_cluster_function)(int rank, int ranks, void *argument);
// Runs a function once for each rank, at once, in threads whose current device is cuda:RANK, and
// waits for all. Communicators that such a thread makes, over whatever engine, are the engine
// "sim"'s (docs/simulator.md): they know the ranks of this process alone, and collectives of device
// memory are tasks of streams, under PHLOX_SIM_MODE=schedule in the order of its seed. With
// PHLOX_SIM_DEATH one rank ends early: its next call fails, and so do the others', which name it.
// Fails as the first rank does whose error is its own. Where the calling thread's check fails
// (px_interrupt_set_check), what the ranks wait for ends, with an error, and when they have
// returned, the call fails with the check's. PX_RUNTIME where there are fewer simulated devices
// than ranks, or another cluster is running.
//
//   static px_status train(int rank, int ranks, void *argument) {
//     PX_SCOPED(px_comm) comm = NULL;
//     PX_TRY(px_comm_new(&comm, &(px_comm_options){"nccl", px_cluster_store(), rank, ranks}));
//     ...
//   }
//   PX_TRY(px_cluster_run(64, train, NULL));
PX_CALL px_cluster_run(int ranks, px_cluster_function function, void *argument);
// The calling thread's rank and how many there are; -1 and 0 outside of a cluster. Threads that
// ranks or the library start belong to the rank of their current device. And a store in memory that
// the ranks share: borrowed, NULL outside.
PX_API int px_cluster_rank(void);
PX_API int px_cluster_size(void);
PX_API px_store *px_cluster_store(void);
// A store for the ranks' next communicator, as each rank calls this equally often. PX_RUNTIME
// outside.
PX_CALL px_cluster_meeting(px_store **out);

#ifdef __cplusplus
}
#endif
