// SPDX-License-Identifier: Apache-2.0
// Graphs: sequences of device work captured once and replayed as a whole.
//
// Between px_graph_begin and px_graph_end, work issued to the calling thread's current stream is
// added to the graph instead of run. Work of streams waiting for that stream is captured, too,
// until the capturing stream joins them with a wait. A replay repeats all of it at the same
// addresses and reads the memory's current contents. Random numbers continue from replay to replay.
// Numbers passed by value, and results computed on the host, stay as captured.
//
// Tensors made during a capture come from a memory pool reserved while a graph of that pool lives;
// replays write their results there. Graphs that never run concurrently may share a pool if
// replayed in capture order. The program must keep outside tensors alive while it replays the
// graph.
//
// During a capture, waiting for the device and querying its work fail with PX_ACCELERATOR and the
// driver's code, and invalidate the capture: px_graph_end then fails with code 901.
//
// Example: examples/graph.c.
#pragma once
#include "phlox/memory.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_graph px_graph;

// The scope of calls forbidden during a capture, among those that wait for a device or query its
// work: calls of all threads, of the capturing thread, or none. Such calls on captured streams
// always fail.
typedef enum px_capture_mode {
  PX_CAPTURE_GLOBAL,
  PX_CAPTURE_THREAD_LOCAL,
  PX_CAPTURE_RELAXED
} px_capture_mode;

// Makes an empty graph.
PX_CALL px_graph_new(px_graph **out);
// Returns a new pool name to be shared by graphs. The name of a px_memory_pool is valid, too.
PX_API px_graph_pool px_graph_pool_new(void);
// Begins capturing the calling thread's current stream of the current device; it must not be a
// default stream. Memory comes from `pool` or, if it is all zeros, from a private pool. PX_RUNTIME,
// with PyTorch's texts, if the graph is not empty or the stream is unsuitable; PX_ACCELERATOR 401
// if the stream is already capturing; PX_UNIMPLEMENTED if the backend has no graphs.
PX_CALL px_graph_begin(px_graph *graph, px_graph_pool pool, px_capture_mode mode);
// Ends the capture, on the thread that began it and with the same current stream. PX_ACCELERATOR
// 901 if the capture was invalidated, 904 if another captured stream has unjoined work, 908 on
// another thread. After 901 and 904 the graph is empty.
PX_CALL px_graph_end(px_graph *graph);
// Queues one run of the graph on the calling thread's current stream of the graph's device, after
// the previously queued run. PX_RUNTIME if the graph is empty; PX_ACCELERATOR 900 if the stream is
// capturing.
PX_CALL px_graph_replay(px_graph *graph);
// Makes later captures keep the captured graph. px_graph_instantiate, or the first replay,
// instantiates it. PX_UNIMPLEMENTED if the backend cannot keep graphs.
PX_CALL px_graph_keep(px_graph *graph);
// Instantiates the kept graph for replays, again if already done: it then includes changes made to
// the driver's graph. PX_RUNTIME, with PyTorch's texts, if no graph is kept.
PX_CALL px_graph_instantiate(px_graph *graph);
// Returns the backend's handle: the kept graph (a CUgraph on CUDA), or with `ready` the
// instantiated one (a CUgraphExec). The graph owns both. PX_RUNTIME, with PyTorch's texts, if there
// is none.
PX_CALL px_graph_native(void **out, px_graph *graph, bool ready);
// Writes the kept graph to a file in Graphviz's language: a node for each launch, copy and so on,
// and their dependencies. PX_RUNTIME if no graph is kept; PX_IO or similar if the file cannot be
// written.
PX_CALL px_graph_print(px_graph *graph, const char *path);
// Empties the graph: discards a capture and releases the pool. Tensors in the pool stay valid;
// their memory returns to the device when freed and the cache is emptied.
PX_CALL px_graph_reset(px_graph *graph);
// Returns the graph's pool. PX_RUNTIME if the graph is empty and not capturing.
PX_CALL px_graph_pool_of(px_graph_pool *out, px_graph *graph);
// Returns the number of launches, copies and host calls in the graph.
PX_API int64_t px_graph_size(const px_graph *graph);
// True if work of the stream is being captured.
PX_API bool px_stream_capturing(const px_stream *stream);

#ifdef __cplusplus
}
#endif
