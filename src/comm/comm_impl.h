// SPDX-License-Identifier: Apache-2.0
// Communicators, for the files of this folder.
#pragma once
#include "comm/store_impl.h"
#include "phlox/event.h"
#include "phlox/stream.h"

enum { PX__WHY = 1024 };  // room for an engine's text
typedef void (*px__reduce)(void *out, const void *a, const void *b, size_t n);
// The function that reduces elements of a dtype; NULL if there is none. `per` is how many numbers
// an element is.
px__reduce px__reduce_find(px_reduce_op op, px_dtype dtype, int *per);
// Divides numbers by `by`: what is left to do of a mean.
void px__reduce_divide(px_dtype dtype, void *at, int64_t n, int by);

// The engine, loaded once; PX_UNIMPLEMENTED, with why, if it is not there.
__attribute__((warn_unused_result)) px_status px__engine_find(const px_engine **out,
                                                              const char *name);

struct px_work {
  px_object head;
  px_work *next;  // in the communicator's queue; by its lock
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool done;            // by `lock`
  px_error *error;      // of a collective that failed; set before `done`
  px_comm *comm;        // borrowed, as the queue and the streams end first; owned by who sends
  px_tensor **tensors;  // inputs, then outputs
  int input_count, output_count;
  px_tensor *in, *out;           // in one piece, in host memory: `tensors`, or memory of its own
  bool gathers_in, spreads_out;  // `in`, `out` are memory of its own
  px_engine_call call;
  int64_t *counts;
  int64_t deadline;
  uint64_t number;
  int divide;  // by the number of ranks; 0: not
  px_dtype dtype;
  px_reduce_op reduce;
  void *pending;  // of a send or recv
  int source;
  px_event *event;  // of a device
  px_device device;
};

struct px_comm {
  px_object head;
  const px_engine *engine;
  void *joined;  // the engine's
  px_store *store;
  char *engine_name;
  int rank, size;
  int64_t timeout_ms;
  pthread_t thread;
  bool has_thread;
  pthread_mutex_t lock;  // of what follows
  pthread_cond_t changed;
  px_work *first, *last;
  bool ends;
  uint64_t number, barriers;
  char broken[PX__WHY];   // why it is not usable any more
  px_stream *streams[2];  // of the device that was used first: of receives, and of all else
  px_work *on_device;  // works of it that may be under way; of the threads that begin collectives
};

// Makes the work of a collective: checks it, and prepares its memory. Nothing is sent.
__attribute__((warn_unused_result)) px_status px__work_new(px_work **out, px_comm *comm,
                                                           const px_collective *collective);
// Copies tensors to `in`, and `out` to tensors. On a device: on the current stream.
__attribute__((warn_unused_result)) px_status px__work_gather(px_work *self);
__attribute__((warn_unused_result)) px_status px__work_spread(px_work *self);
// Runs the engine, and keeps its error. It calls nothing of devices.
void px__work_run(px_work *self, px_comm *comm);
void px__work_done(px_work *self);
// Keeps the calling thread's error as the work's.
void px__work_fail(px_work *self, px_comm *comm);
