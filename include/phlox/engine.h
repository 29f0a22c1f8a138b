// SPDX-License-Identifier: Apache-2.0
// The interface of collective engines: shared objects libphlox_NAME.so that move bytes between the
// processes of a communicator, over a library such as Gloo or NCCL. An engine includes this header
// alone and exports px_engine_entry.
//
// The core checks arguments, numbers the calls, enforces deadlines and names errors. An engine
// receives addresses in host memory and a reduction function; an engine that queues its work on
// streams receives addresses in device memory. Its functions return 0, or 1 with a message in `why`
// (at most `capacity` bytes), and throw no exceptions.
#pragma once
#include "phlox/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

// The collectives: name, name in the API.
#define PX_COLLECTIVE_MAP(XX) \
  XX(BROADCAST, "broadcast") \
  XX(ALL_REDUCE, "all_reduce") \
  XX(REDUCE, "reduce") \
  XX(ALL_GATHER, "all_gather") \
  XX(REDUCE_SCATTER, "reduce_scatter") \
  XX(ALL_TO_ALL, "all_to_all") \
  XX(GATHER, "gather") \
  XX(SCATTER, "scatter") \
  XX(BARRIER, "barrier") \
  XX(SEND, "send") \
  XX(RECV, "recv")
typedef enum px_collective_op {
#define XX(name, text) PX_##name,
  PX_COLLECTIVE_MAP(XX)
#undef XX
      PX_COLLECTIVE_COUNT
} px_collective_op;

#define PX_REDUCE_MAP(XX) \
  XX(SUM) XX(AVG) XX(PRODUCT) XX(MIN) XX(MAX) XX(BAND) XX(BOR) XX(BXOR) XX(PREMUL_SUM)
typedef enum px_reduce_op {
#define XX(name) PX_REDUCE_##name,
  PX_REDUCE_MAP(XX)
#undef XX
      PX_REDUCE_COUNT
} px_reduce_op;

#define PX_ENGINE_ABI 1
#define PX_ENGINE_ENTRY "px_engine_entry"

// Rendezvous data of a rank. `set` and `get` access a store shared by all ranks. `get` blocks until
// the key exists and returns memory to be freed with `release`.
typedef struct px_engine_job {
  int rank, size;
  int64_t timeout_ms;
  const char *interface;  // network interface, or NULL
  void *store;
  int (*set)(void *store, const char *key, const void *value, size_t size, char *why,
             size_t capacity);
  int (*get)(void *store, const char *key, void **value, size_t *size, char *why, size_t capacity);
  void (*release)(void *value);
  // Returns 1 with a reason if the communicator has ended; polled by long waits. Like `store`,
  // valid until `close`.
  int (*over)(void *store, char *why, size_t capacity);
} px_engine_job;

// One collective. `count` is the number of elements, of `item` bytes each, of the smaller of `in`
// and `out`: the contribution or result of one rank. The larger one holds `count` elements for each
// rank, in rank order.
typedef struct px_engine_call px_engine_call;
struct px_engine_call {
  px_collective_op op;
  int peer;      // the root; for send and recv the other rank, or -1 for any
  uint32_t tag;  // equal on all ranks for matching calls; other tags must not match
  const void *in;
  void *out;
  size_t item;
  int64_t count;
  const int64_t *in_counts,
      *out_counts;  // all_to_all: elements sent to and received from each rank
  void (*reduce)(void *out, const void *a, const void *b, size_t n);  // out may be a
  int64_t timeout_ms;
  px_dtype dtype;          // of the elements; complex ones are passed as their parts
  px_reduce_op reduction;  // never PREMUL_SUM: the core scales
  uint64_t number;  // sequence number of a collective in the communicator; 0 for send and recv
  // Post-processes `n` reduced elements received by this rank (the division of a mean), for engines
  // with `post`. NULL: nothing to do.
  void (*finish)(const px_engine_call *call, void *out, int64_t n);
  // Describes the call and its source line.
  void (*describe)(const px_engine_call *call, char *text, size_t capacity);
};
typedef void (*px_engine_ended)(void *argument, int peer, const char *why);

// The values of PHLOX_CUDA_PATH, CUDA_HOME and CUDA_PATH; NULL if unset.
typedef struct px_engine_paths {
  const char *ours, *home, *path;
} px_engine_paths;

typedef struct px_engine {
  uint32_t abi;  // PX_ENGINE_ABI
  size_t size;   // sizeof(px_engine); new members are added at the end only
  const char *name;
  // Joins a communicator; blocks until the other ranks join.
  int (*open)(void **out, const px_engine_job *job, char *why, size_t capacity);
  // Leaves the communicator. No call is pending.
  void (*close)(void *self);
  // Closes all connections: pending calls fail, here and on the other ranks.
  void (*abort)(void *self);
  // Runs a collective to completion. Thread-safe.
  int (*run)(void *self, const px_engine_call *call, char *why, size_t capacity);
  // start begins a send or recv. finish waits for it, returns the other rank and releases
  // `pending`; with a negative timeout it does not wait.
  int (*start)(void **pending, void *self, const px_engine_call *call, char *why, size_t capacity);
  int (*finish)(void *pending, int *peer, int64_t timeout_ms, char *why, size_t capacity);
  // Loads the underlying library. Called before all other functions, and again after a failure.
  // NULL: nothing to load.
  int (*load)(const px_engine_paths *paths, char *why, size_t capacity);
  // ---- engines with work on streams: `queue` is not NULL, and there are no `run`, `start` and
  // `finish`. All functions from `open` on use the current device of the calling thread, as set in
  // the driver. queue launches calls as one group and returns once the stream holds them. `abort`
  // cancels it, too.
  int (*queue)(void *self, const px_engine_call *calls, int count, void *stream, char *why,
               size_t capacity);
  // Polled by another thread a few times a second: returns 1 if queued work has failed, or if
  // `queue` exceeded the longest timeout of its calls.
  int (*check)(void *self, char *why, size_t capacity);
  // Returns 0 if the call is supported; else 1 for an unsupported reduction, 2 for a dtype, 3 for
  // an operation, with a message.
  int (*refuse)(const px_engine_call *call, char *why, size_t capacity);
  // ---- the simulator's engine, with threads as ranks; NULL in others
  // For device memory: queues the call on a stream (the backend's handle) and returns. `ended` is
  // called once on completion, by a thread that makes no device calls, with NULL (and, for a recv,
  // the other rank) or an error message. `call` is valid until then.
  int (*post)(void *self, const px_engine_call *call, void *stream, px_engine_ended ended,
              void *argument, char *why, size_t capacity);
  // Fails the calls from `number` on (0: all) on all ranks, for this reason. Such an engine itself
  // tracks live ranks and mismatched calls; if NULL, the core does.
  void (*fail)(void *self, uint64_t number, const char *why);
  // Notifies the engine of a simulated cluster: `ranks` at its start, 0 at its end, -1 if
  // interrupted; pending waits of the ranks then end.
  void (*cluster)(int ranks);
  // ---- engines with ranks started by another program (MPI), all of which call it; or NULL
  // Returns this rank and the number of ranks; if `bytes` is not 0, broadcasts rank 0's bytes at
  // `note`.
  int (*world)(int *rank, int *size, void *note, size_t bytes, char *why, size_t capacity);
} px_engine;

// Exported by the shared object as PX_ENGINE_ENTRY; returns NULL for an unsupported abi.
typedef const px_engine *(*px_engine_entry_fn)(uint32_t abi);

#ifdef __cplusplus
}
#endif
