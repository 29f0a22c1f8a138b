// SPDX-License-Identifier: Apache-2.0
// What the files of graphs share: a graph, while it is captured and afterwards.
#pragma once
#include "device/state.h"

// Memory in a graph's pool that each replay fills with the state of a generator.
typedef struct px__generator_state {
  struct px__generator_state *next;
  void *generator;  // held
  const px__draw_functions *draws;
  px_allocation *allocation;
  uint64_t words;     // that the graph draws
  uint64_t taken[2];  // the state that the latest replay draws from
} px__generator_state;

// An access of a captured launch or copy, for the race checker. By address: the allocation may be
// freed.
typedef struct px__captured_access {
  void *data;
  size_t begin, end;
  bool write;
  px__gap gaps[PX__GAPS];
  int64_t work;  // of which it is
} px__captured_access;

typedef struct px__capture_pool {
  px__device *device;
  px__private_pool *private_pool;
} px__capture_pool;

struct px_graph {
  px_object head;
  pthread_mutex_t lock;  // owns what has no other owner
  px__device *device;    // NULL: a graph of nothing
  px_stream *last;       // of the latest replay, its number there, and what came before it
  uint64_t last_seq;
  px__clock last_clock;
  void *native;  // once it is captured, and ready for replays
  bool keeps;    // what was captured stays, as `kept`, of which the native graph is made
  void *kept;
  px_graph_pool pool;
  // The captures' lock owns the rest, which changes during the capture alone.
  px_graph *next;  // in the list of graphs that are something
  uint64_t id;     // of the capture
  bool underway, invalid;
  px_capture_mode mode;
  pthread_t thread;
  px_stream *origin, **members;  // members: all its streams, with the origin
  px__capture_pool *pools;
  px__work *works;
  px__captured_access *touches;
  int member_count, pool_count;
  int64_t work_count, work_room, touch_count, touch_room;
  px__generator_state *sources;
};

// captures.c. The lock of the captures; a graph enters their list with a new number, and leaves it.
// `over`: the capture has ended. `at` gives the capture under way of that number, or NULL; lock
// held.
void px__captures_lock(void);
void px__captures_unlock(void);
bool px__captures_any(void);
void px__capture_register(px_graph *graph);
void px__capture_unregister(px_graph *graph);
void px__capture_finish(px_graph *graph);
px_graph *px__capture_by_id(uint64_t capture);
// capture.c. Makes the stream one of the capture: its device's lock is held, the captures' is not.
px_status px__capture_add(px_graph *graph, px_stream *stream) __attribute__((warn_unused_result));
