// SPDX-License-Identifier: Apache-2.0
// Graphs: the state of a capture and of a captured graph, shared by the files of graphs.
#pragma once
#include "device/order/order.h"

// Device memory for a generator's state, written before each replay.
typedef struct px__generator_state {
  struct px__generator_state *next;
  void *generator;  // a reference
  const px__draw_functions *draws;
  px_allocation *allocation;
  uint64_t words;     // numbers drawn by a replay
  uint64_t taken[2];  // state used by the latest replay
} px__generator_state;

// An access of captured work, for the race checker. By address: the allocation may be freed.
typedef struct px__captured_access {
  void *data;
  size_t begin, end;
  bool write;
  px__gap gaps[PX__GAPS];
  int64_t work;  // index into works
} px__captured_access;

typedef struct px__capture_pool {
  px__device *device;
  px__private_pool *private_pool;
} px__capture_pool;

struct px_graph {
  px_object head;
  pthread_mutex_t lock;    // guards fields without another lock
  px__device *device;      // NULL: nothing captured
  px_stream *last_stream;  // stream of the latest replay, its sequence number and its clock
  uint64_t last_seq;
  px__clock last_clock;
  void *native;        // the executable graph, once captured
  bool keep_captured;  // keep the captured graph as `kept`, to instantiate `native` from
  void *kept;
  px_graph_pool pool;
  // The rest is guarded by the captures' lock and changes only during the capture.
  px_graph *next;  // in the list of captured graphs
  uint64_t id;     // of the capture
  bool active, invalid;
  px_capture_mode mode;
  pthread_t thread;
  px_stream *origin, **members;  // members: all captured streams, origin included
  px__capture_pool *pools;
  px__work *works;
  px__captured_access *accesses;
  int member_count, pool_count;
  int64_t work_count, work_capacity, access_count, access_capacity;
  px__generator_state *generator_states;
};

// ---- the list of captures
// The captures' lock; the list of graphs, with a new capture id for each entry; the end of a
// capture; the active capture of an id, or NULL (lock held).
void px__captures_lock(void);
void px__captures_unlock(void);
void px__capture_register(px_graph *graph);
void px__capture_unregister(px_graph *graph);
void px__capture_finish(px_graph *graph);
px_graph *px__capture_by_id(uint64_t capture);
// ---- streams of a capture
// Adds the stream to the capture. Its device's lock is held, the captures' lock is not.
px_status px__capture_add(px_graph *graph, px_stream *stream) __attribute__((warn_unused_result));
