// SPDX-License-Identifier: Apache-2.0
// Internal header of src/comm: communicators, works, the watchdog and clusters.
#pragma once
#include "comm/store_impl.h"
#include "phlox/event.h"
#include "phlox/memory.h"
#include "phlox/stream.h"

enum { PX__REASON = 1024 };  // bytes of a failure text from a backend
typedef void (*px__reduce)(void *out, const void *a, const void *b, size_t n);
// Returns the function that reduces elements of a dtype, or NULL if the reduction is unsupported.
// `per` receives the number of scalars per element (2 for complex).
px__reduce px__reduce_find(px_reduce_op op, px_dtype dtype, int *per);
// Divides n scalars by `by`. Completes a mean after a sum.
void px__reduce_divide(px_dtype dtype, void *at, int64_t n, int by);
// Multiplies n scalars by a factor, before a PREMUL_SUM.
void px__reduce_scale(px_dtype dtype, void *at, int64_t n, double factor);

// True if an engine implements a function. The engine's table may be shorter than this version's.
#define PX__ENGINE_HAS(engine, function) \
  ((engine)->size >= offsetof(px_engine, function) + sizeof((engine)->function) && \
   (engine)->function)
// Returns the engine, loading it on first use. Fails with PX_UNIMPLEMENTED if it is unavailable.
__attribute__((warn_unused_result)) px_status px__engine_find(const px_engine **out,
                                                              const char *name);

// Signature of one call. It must agree on all ranks.
typedef struct px__call {
  px_collective_op op;
  px_reduce_op reduce;
  px_dtype dtype;
  int peer;
  int64_t count;  // of elements
  uint64_t number;
  bool reduces, rooted;
  uint32_t tag;  // hash of the fields above
  px_site site;
} px__call;
enum { PX__CALL = 400 };
extern const char *const px__collective_names[PX_COLLECTIVE_COUNT];
extern const char *const px__reduction_names[PX_REDUCE_COUNT];
static inline bool px__is_p2p(px_collective_op op) { return op == PX_SEND || op == PX_RECV; }
// Writes "all_reduce number 3 of 4 elements float32, SUM", with " (train.py:7)" on request.
void px__call_describe(char *text, size_t error_storage, const px__call *call, bool with_line);
// Writes the error text of a failed call.
enum { PX__FAILURE = PX__CALL + 2 * PX__REASON };
void px__call_explain(char text[PX__FAILURE], const px__call *call, int rank, int64_t timeout_ms,
                      const char *why);

// The watchdog of a communicator (watch.c). NULL if the communicator has one rank.
typedef struct px__watchdog px__watchdog;
__attribute__((warn_unused_result)) px_status px__watchdog_start(px__watchdog **out, px_comm *comm);
void px__watchdog_end(px__watchdog *self);
// A collective received its number, or completed. Calls come in ascending order of numbers.
void px__watchdog_begun(px__watchdog *self, const px__call *call);
void px__watchdog_done(px__watchdog *self, uint64_t number);
// Reports a local failure to the other ranks. `number` is 0 for a send or recv.
void px__watchdog_failed(px__watchdog *self, uint64_t number, const char *why);
// Reports a failure, then waits a few seconds for the group's verdict. The verdict replaces `why`.
void px__watchdog_explain(px__watchdog *self, uint64_t number, char why[PX__REASON]);

// A callback to run at the end of a work. The list is most recent first.
typedef struct px__after {
  void (*fn)(void *context);
  void *context;
  struct px__after *next;
} px__after;

struct px_work {
  px_object head;
  px_work *next;  // in the communicator's queue (its `lock`) or its device works (its `works`)
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool done;                // guarded by `lock`
  px__after *after;         // guarded by `lock`; most recent first
  px_error *error;          // of a failed collective; set before `done`
  px_error *error_storage;  // preallocated storage of `error`
  bool on_thread;           // to be run by `thread`
  pthread_t thread;         // the communicator's
  px_comm *comm;            // borrowed: the queue and the streams end first
  bool owns;                // `comm` is owned: true for a send or recv of host memory
  px_tensor **tensors;      // inputs, then outputs
  int input_count, output_count;
  px_tensor *in, *out;          // contiguous host memory: one of `tensors`, or a staging buffer
  bool packs_in, scatters_out;  // `in`, `out` are staging buffers
  px_engine_call call;
  int64_t *counts;
  int64_t deadline;
  px__call called;
  int divide;     // by the number of ranks; 0: no division
  double factor;  // of PX_REDUCE_PREMUL_SUM
  void *pending;  // the engine's handle of a send or recv
  int source;
  px_event *event;  // of a device work
  px_device device;
  bool queued;    // on a stream, by the engine
  bool captured;  // in a graph; the watchdog ignores it
};

struct px_comm {
  px_object head;
  const px_engine *engine;
  bool queues;   // the engine queues its work on a stream
  void *joined;  // the engine's handle; by `lock`
  const char *interface;
  px_store *store;
  char *engine_name;
  int rank, size;
  int64_t timeout_ms;
  pthread_t thread;
  bool has_thread;
  px__watchdog *watch;
  pid_t owner;           // forked children have neither the threads nor the connections
  pthread_mutex_t lock;  // guards the fields down to `aborted`
  pthread_cond_t changed;
  int on_host;  // works queued on or running in `thread`
  px_work *first, *last;
  bool ends;
  uint64_t number, barriers, meshes;
  char broken[PX__REASON];   // reason of the group's failure; empty while usable
  bool refused;              // `broken` names a call that failed on this rank
  bool aborted;              // the engine's `abort` was called
  pthread_mutex_t queueing;  // serializes numbering and queueing of works
  px_stream *streams[2];     // of the first device used: [0] receives, [1] all other calls;
                             // an engine that queues uses only [1]
  pthread_mutex_t works;     // guards the fields below; never held across a wait
  px_work *on_device, *on_device_last;  // unfinished device works, oldest first
  int work_count;
  uint64_t works_done;  // last completed collective of an engine that queues
  bool captured;        // some collectives are part of graphs
};

// True if the engine queues device memory as well as running host memory; true if it detects dead
// ranks and mismatched calls itself.
static inline bool px__comm_posts(const px_comm *comm) {
  return PX__ENGINE_HAS(comm->engine, post);
}
static inline bool px__comm_detects(const px_comm *comm) {
  return PX__ENGINE_HAS(comm->engine, fail);
}

// cluster.c. Called when a rank of a simulated cluster begins a collective. Fails if the rank is
// dead or is to die at this call. `px__cluster_leave` reports to the other ranks that this rank
// makes no more calls.
__attribute__((warn_unused_result)) px_status px__cluster_enter(px_comm *comm, px_collective_op op);
void px__cluster_leave(px_comm *comm);

// Joins the group through the engine's `open`. Returns 0, or 1 with the reason in `why`.
int px__comm_open(px_comm *self, int64_t timeout_ms, char why[PX__REASON]);

// ---- device_work.c: device work items
__attribute__((warn_unused_result)) px_status px__begin_on_device(px_comm *self, px_work *work);
// Creates and queues works as one batch, for an engine that queues.
__attribute__((warn_unused_result)) px_status px__begin_on_stream(px_work **works, px_comm *self,
                                                                  const px_collective *collectives,
                                                                  int count);

// ---- pending_works.c: unfinished device works
void px__works_add(px_comm *self, px_work *work);
// Removes finished works from the list. `all` waits for all of them.
void px__works_reap(px_comm *self, bool all);
// Removes finished works and blocks until fewer than PX__WORKS remain or the group has failed. The
// limit bounds teardown: ending each work takes some milliseconds.
enum { PX__WORKS = 128 };
__attribute__((warn_unused_result)) px_status px__works_await_capacity(px_comm *self);
// For the watchdog; these never block on other threads.
// px__works_done: number of the last collective known to be complete.
// px__works_check: polls completion. True if a work is late or has failed, with its number and why.
// px__works_abort: sets the error of all unfinished works and fails the device's next wait.
uint64_t px__works_done(px_comm *self);
bool px__works_check(px_comm *self, uint64_t *number, char why[PX__REASON]);
void px__works_abort(px_comm *self, const char *why);

// Creates the work of a collective: validates it and prepares its memory. Sends nothing.
__attribute__((warn_unused_result)) px_status px__work_new(px_work **out, px_comm *comm,
                                                           const px_collective *collective);
// Copies tensors to `in`, and `out` to tensors. Device copies use the current stream.
__attribute__((warn_unused_result)) px_status px__work_gather(px_work *self);
__attribute__((warn_unused_result)) px_status px__work_spread(px_work *self);
// Runs the first work of the queue. The caller holds the communicator's lock, which is released
// while the work runs.
void px__work_run_first(px_comm *comm);
// Runs the engine and stores its error in the work. Calls no device function.
void px__work_run(px_work *self, px_comm *comm);
void px__work_done(px_work *self);
// Marks the group as failed and returns the error. The text is the call's name followed by the
// engine's text, or by the group's reason if it failed earlier.
__attribute__((warn_unused_result)) px_status px__work_break_group(px_work *self, px_comm *comm,
                                                                   const char *why);
// Moves the calling thread's error into the work.
void px__work_fail(px_work *self);
