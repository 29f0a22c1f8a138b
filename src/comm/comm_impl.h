// SPDX-License-Identifier: Apache-2.0
// Communicators, for the files of this folder.
#pragma once
#include "comm/store_impl.h"
#include "phlox/event.h"
#include "phlox/memory.h"
#include "phlox/stream.h"

enum { PX__WHY = 1024 };  // room for an engine's text
typedef void (*px__reduce)(void *out, const void *a, const void *b, size_t n);
// The function that reduces elements of a dtype; NULL if there is none. `per` is how many numbers
// an element is.
px__reduce px__reduce_find(px_reduce_op op, px_dtype dtype, int *per);
// Divides numbers by `by`: what is left to do of a mean.
void px__reduce_divide(px_dtype dtype, void *at, int64_t n, int by);
// Multiplies them, before a sum of what is scaled.
void px__reduce_scale(px_dtype dtype, void *at, int64_t n, double factor);

// Whether an engine has a function; of a table that may be shorter than this one.
#define PX__ENGINE_HAS(engine, function) \
  ((engine)->size >= offsetof(px_engine, function) + sizeof((engine)->function) && \
   (engine)->function)
// The engine, loaded once; PX_UNIMPLEMENTED, with why, if it is not there.
__attribute__((warn_unused_result)) px_status px__engine_find(const px_engine **out,
                                                              const char *name);

// What a rank called, as the others must have.
typedef struct px__call {
  px_collective_op op;
  px_reduce_op reduce;
  px_dtype dtype;
  int peer;
  int64_t count;  // of elements
  uint64_t number;
  bool reduces, rooted;
  uint32_t tag;  // of all of these
  px_site site;
} px__call;
enum { PX__CALL = 400 };
extern const char *const px__collective_names[PX_COLLECTIVE_COUNT];
extern const char *const px__reduction_names[PX_REDUCE_COUNT];
static inline bool px__pairs_up(px_collective_op op) { return op == PX_SEND || op == PX_RECV; }
// "all_reduce number 3 of 4 elements float32, SUM", and, if asked for, " (train.py:7)".
void px__call_describe(char *text, size_t room, const px__call *call, bool with_line);
// The text of the error of one that has failed.
enum { PX__FAILURE = PX__CALL + 2 * PX__WHY };
void px__call_explain(char text[PX__FAILURE], const px__call *call, int rank, int64_t timeout_ms,
                      const char *why);

// Who watches over a communicator (watch.c); NULL where it has one rank.
typedef struct px__watch px__watch;
__attribute__((warn_unused_result)) px_status px__watch_start(px__watch **out, px_comm *comm);
void px__watch_end(px__watch *self);
// A collective was numbered, and was done. In the order of numbers.
void px__watch_begun(px__watch *self, const px__call *call);
void px__watch_done(px__watch *self, uint64_t number);
// Something has failed here (number 0: a send or recv): the other ranks are told.
void px__watch_failed(px__watch *self, uint64_t number, const char *why);
// The same; and waits a moment for why the group has failed, which takes the place of the text.
void px__watch_explain(px__watch *self, uint64_t number, char why[PX__WHY]);

// What is called when a work has ended.
typedef struct px__after {
  void (*fn)(void *context);
  void *context;
  struct px__after *next;
} px__after;

struct px_work {
  px_object head;
  px_work *next;  // in the communicator's queue, by `lock`; or among its works, by `works`
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool done;            // by `lock`
  px__after *after;     // by `lock`; the last that was added first
  px_error *error;      // of a collective that failed; set before `done`
  px_error *room;       // for it
  bool on_thread;       // to be run by `thread`
  pthread_t thread;     // the communicator's
  px_comm *comm;        // borrowed, as the queue and the streams end first
  bool owns;            // but not by what is sent or received on the host: it owns it
  px_tensor **tensors;  // inputs, then outputs
  int input_count, output_count;
  px_tensor *in, *out;           // in one piece, in host memory: `tensors`, or memory of its own
  bool gathers_in, spreads_out;  // `in`, `out` are memory of its own
  px_engine_call call;
  int64_t *counts;
  int64_t deadline;
  px__call called;
  int divide;     // by the number of ranks; 0: not
  double factor;  // of PX_REDUCE_PREMUL_SUM
  void *pending;  // of a send or recv
  int source;
  px_event *event;  // of a device
  px_device device;
  bool queued;    // on a stream, by the engine
  bool captured;  // as part of a graph: it is not watched
};

struct px_comm {
  px_object head;
  const px_engine *engine;
  bool queues;   // the engine queues its work on a stream
  void *joined;  // the engine's; by `lock`
  const char *interface;
  px_store *store;
  char *engine_name;
  int rank, size;
  int64_t timeout_ms;
  pthread_t thread;
  bool has_thread;
  px__watch *watch;
  pid_t owner;           // a child of a fork has neither threads nor connections
  pthread_mutex_t lock;  // of what follows
  pthread_cond_t changed;
  int on_host;  // works that its thread has or runs
  px_work *first, *last;
  bool ends;
  uint64_t number, barriers, meshes;
  char broken[PX__WHY];      // why it is not usable any more
  bool refused;              // it names a call that has failed here
  bool aborted;              // the engine was told
  pthread_mutex_t queueing;  // held while works get numbers and are queued, in this order
  px_stream *streams[2];     // of the device that was used first: of receives, and of all else;
                             // where the engine queues, the second is that of all
  pthread_mutex_t works;     // of what follows; nothing is waited for while it is held
  px_work *on_device, *on_device_last;  // works that may be under way, in their order
  int work_count;
  uint64_t works_done;  // the last collective that is over, of an engine that queues
  bool captured;        // some are part of graphs
};

// Whether the engine queues device memory beside that of the host, and whether it knows what
// becomes of the ranks.
static inline bool px__comm_posts(const px_comm *comm) {
  return PX__ENGINE_HAS(comm->engine, post);
}
static inline bool px__comm_sees(const px_comm *comm) { return PX__ENGINE_HAS(comm->engine, fail); }

// cluster.c. A rank of a simulated cluster begins a collective: fails if it dies here, or is dead;
// `parts` tells the other ranks that it will call no more.
__attribute__((warn_unused_result)) px_status px__cluster_pass(px_comm *comm, px_collective_op op);
void px__cluster_parts(px_comm *comm);

// Joins: calls the engine's `open`. 0, or 1 and why not.
int px__comm_open(px_comm *self, int64_t timeout_ms, char why[PX__WHY]);

// ---- device.c: works of devices
__attribute__((warn_unused_result)) px_status px__begin_on_device(px_comm *self, px_work *work);
// Makes and queues works together, for an engine that queues.
__attribute__((warn_unused_result)) px_status px__begin_on_stream(px_work **works, px_comm *self,
                                                                  const px_collective *collectives,
                                                                  int count);

// ---- works.c: those of them that may be under way
void px__works_keep(px_comm *self, px_work *work);
// Forgets works that are over; `all` waits for them.
void px__works_reap(px_comm *self, bool all);
// The same, and waits until no more than PX__WORKS are left, or the group is over: each takes some
// milliseconds to end when all are ended.
enum { PX__WORKS = 128 };
__attribute__((warn_unused_result)) px_status px__works_await_room(px_comm *self);
// For the watch, whatever other threads wait for. Tells the last collective that is known to be
// over; looks which are, and whether one is late or has failed: its number, and why; gives all that
// are not over their error, which the device's next wait has, too.
uint64_t px__works_done(px_comm *self);
bool px__works_look(px_comm *self, uint64_t *number, char why[PX__WHY]);
void px__works_give_up(px_comm *self, const char *why);

// Makes the work of a collective: checks it, and prepares its memory. Nothing is sent.
__attribute__((warn_unused_result)) px_status px__work_new(px_work **out, px_comm *comm,
                                                           const px_collective *collective);
// Copies tensors to `in`, and `out` to tensors. On a device: on the current stream.
__attribute__((warn_unused_result)) px_status px__work_gather(px_work *self);
__attribute__((warn_unused_result)) px_status px__work_spread(px_work *self);
// Runs the first work of the queue; called and left with the communicator's lock, which it drops.
void px__work_off_first(px_comm *comm);
// Runs the engine, and keeps its error. It calls nothing of devices.
void px__work_run(px_work *self, px_comm *comm);
void px__work_done(px_work *self);
// Fails with the engine's text, or why the group is over, behind the name of the call; the group
// is not usable any more.
__attribute__((warn_unused_result)) px_status px__work_refuse(px_work *self, px_comm *comm,
                                                              const char *why);
// Keeps the calling thread's error as the work's.
void px__work_fail(px_work *self);
