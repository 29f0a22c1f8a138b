// SPDX-License-Identifier: Apache-2.0
// What an engine of collectives is: a shared object libphlox_NAME.so that moves bytes between the
// processes of a communicator, over a library such as Gloo or NCCL. It includes this header alone,
// and exports px_engine_entry.
//
// The core checks arguments, numbers the calls, keeps deadlines and names errors. An engine gets
// addresses in host memory, and a function that reduces; or, one that queues its work on streams,
// addresses in the memory of a device. Its functions return 0, or fail with 1 and a text in `why`,
// and let no exception out.
#pragma once
#include "phlox/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

// The collectives: name, what programs call it.
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

// How a rank finds the others. `set` and `get` are those of a store that all ranks share; `get`
// waits, and gives memory that `release` releases.
typedef struct px_engine_job {
  int rank, size;
  int64_t timeout_ms;
  const char *interface;  // of the network, or NULL
  void *store;
  int (*set)(void *store, const char *key, const void *value, size_t size, char *why, size_t room);
  int (*get)(void *store, const char *key, void **value, size_t *size, char *why, size_t room);
  void (*release)(void *value);
  // Whether the communicator is over already, and why: who waits long asks. It, and `store`, may be
  // used until `close`.
  int (*over)(void *store, char *why, size_t room);
} px_engine_job;

// One collective. `count` is of elements of `item` bytes: of the smaller of `in` and `out`, which
// is what one rank contributes or gets. The larger one has them for each rank in turn.
typedef struct px_engine_call px_engine_call;
struct px_engine_call {
  px_collective_op op;
  int peer;      // the root; of send and recv, the other rank, or -1 for any
  uint32_t tag;  // equal on all ranks if their calls are; calls of other tags do not meet
  const void *in;
  void *out;
  size_t item;
  int64_t count;
  const int64_t *in_counts, *out_counts;  // of all_to_all: elements to and from each rank
  void (*reduce)(void *out, const void *a, const void *b, size_t n);  // out may be a
  int64_t timeout_ms;
  px_dtype dtype;          // of the elements, which are numbers: parts of complex ones
  px_reduce_op reduction;  // never PREMUL_SUM: the core scales
  uint64_t number;         // of a collective among the communicator's; 0 of send and recv
  // What is left to do with `n` reduced elements that this rank gets: of a mean, for an engine with
  // `post`. NULL: nothing.
  void (*finish)(const px_engine_call *call, void *out, int64_t n);
  // Says what was called, and in which line.
  void (*describe)(const px_engine_call *call, char *text, size_t room);
};
typedef void (*px_engine_ended)(void *argument, int peer, const char *why);

// PHLOX_CUDA_PATH, CUDA_HOME and CUDA_PATH; NULL where they are not set.
typedef struct px_engine_places {
  const char *ours, *home, *path;
} px_engine_places;

typedef struct px_engine {
  uint32_t abi;  // PX_ENGINE_ABI
  size_t size;   // sizeof(px_engine); it grows at the tail alone
  const char *name;
  // Joins a communicator; waits for the other ranks.
  int (*open)(void **out, const px_engine_job *job, char *why, size_t room);
  // No call is under way.
  void (*close)(void *self);
  // Ends all connections, so that calls which are under way fail, here and at the other ranks.
  void (*abort)(void *self);
  // Runs a collective to its end. Several threads may call it at once.
  int (*run)(void *self, const px_engine_call *call, char *why, size_t room);
  // Starts a send or recv; `finish` waits for it, gives the other rank, and ends `pending`; with a
  // negative time it does not wait.
  int (*start)(void **pending, void *self, const px_engine_call *call, char *why, size_t room);
  int (*finish)(void *pending, int *peer, int64_t timeout_ms, char *why, size_t room);
  // Finds the library that the engine stands on; called before all others, perhaps again after it
  // failed. NULL: there is none to find.
  int (*load)(const px_engine_places *places, char *why, size_t room);
  // ---- of an engine whose work runs on streams, where `queue` is not NULL: it has no `run`,
  // `start` and `finish`. It gets addresses in the memory of the calling thread's current device,
  // by the driver, at `open` and ever after. Queues calls, which begin together, and returns when
  // the stream has them. `abort` ends it, too.
  int (*queue)(void *self, const px_engine_call *calls, int count, void *stream, char *why,
               size_t room);
  // Whether something that was queued has failed, or `queue` has not returned within the longest
  // time of its calls; asked of another thread, some times a second.
  int (*check)(void *self, char *why, size_t room);
  // Whether it takes a call: 0, or, with a text, 1 for a reduction, 2 for a dtype, 3 for a call
  // that it does not have.
  int (*refuse)(const px_engine_call *call, char *why, size_t room);
  // ---- of the simulator's engine, whose ranks are threads; NULL in others
  // Device memory beside that of the host: queues the call on a stream (the backend's handle) and
  // returns. Then `ended` is called once when the call is over, by a thread that calls nothing of
  // devices: with NULL, and of a recv with the other rank, or with what went wrong. `call` is valid
  // until then.
  int (*post)(void *self, const px_engine_call *call, void *stream, px_engine_ended ended,
              void *argument, char *why, size_t room);
  // It sees itself which ranks live and whether their calls agree; where this is NULL, the core
  // watches over them. The calls from `number` on (0: all) fail at all ranks for this reason.
  void (*fail)(void *self, uint64_t number, const char *why);
  // A simulated cluster of so many ranks begins; 0: it has ended; -1: it was interrupted, and all
  // that ranks wait for ends.
  void (*cluster)(int ranks);
  // ---- of an engine whose ranks another program has started, all of which call it; or NULL
  // Which rank this is and how many there are; and, if there are any, gives all ranks rank 0's
  // bytes at `note`.
  int (*world)(int *rank, int *size, void *note, size_t bytes, char *why, size_t room);
} px_engine;

// Exported by the library under PX_ENGINE_ENTRY; NULL if it cannot serve this abi.
typedef const px_engine *(*px_engine_entry_fn)(uint32_t abi);

#ifdef __cplusplus
}
#endif
