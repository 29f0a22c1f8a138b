// SPDX-License-Identifier: Apache-2.0
// Graphs: a stretch of device work that is captured once, and then replayed as a whole.
//
// Between px_graph_begin and px_graph_end, what is issued to the calling thread's current stream
// does not run, but becomes part of the graph; so does what is issued to streams that wait for it,
// until they are joined by a wait of that stream. A replay does all of it again, at the same
// addresses: what it reads is what the memory holds then. Random numbers go on from replay to
// replay. Numbers that were passed by value, and whatever the host computes, stay as they were.
//
// Tensors that are made in a capture lie in a pool of memory that nothing else is given while a
// graph of that pool lives; replays write their results there. Graphs that never run at once may
// share a pool, if they are replayed in the order in which they were captured. A tensor from
// outside is the program's to keep while it replays the graph.
//
// During a capture nothing may wait for the device or ask whether its work is done: that fails with
// PX_ACCELERATOR and the driver's code, and spoils the capture, whose end then fails with 901.
//
// Example: examples/graph.c.
#pragma once
#include "phlox/memory.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_graph px_graph;

// Which of the calls that wait for a device, or ask about its work, a capture forbids beside those
// on its own streams: of all threads, of the thread that began it, or none.
typedef enum px_capture_mode {
  PX_CAPTURE_GLOBAL,
  PX_CAPTURE_THREAD_LOCAL,
  PX_CAPTURE_RELAXED
} px_capture_mode;

// Makes a graph of nothing.
PX_CALL px_graph_new(px_graph **out);
// Names a pool for graphs to share. That of a px_memory_pool serves too.
PX_API px_graph_pool px_graph_pool_new(void);
// Begins to capture the calling thread's current stream of the current device, which may not be a
// default stream. Memory comes from `pool`, or if that is none from a pool of the graph's own.
// PX_RUNTIME, with PyTorch's texts, if the graph has something or the stream does not fit;
// PX_ACCELERATOR 401 if the stream is being captured; PX_UNIMPLEMENTED if the backend has no
// graphs.
PX_CALL px_graph_begin(px_graph *graph, px_graph_pool pool, px_capture_mode mode);
// Ends the capture, in the thread that began it and with the same current stream. Fails with
// PX_ACCELERATOR 901 if the capture was spoilt, 904 if a stream that was captured too has work that
// was not joined, 908 in another thread; in the first two cases the graph is then one of nothing.
PX_CALL px_graph_end(px_graph *graph);
// Queues one run of the graph on the calling thread's current stream of the graph's device, after
// the run that was queued last. PX_RUNTIME if it has nothing; PX_ACCELERATOR 900 if the stream is
// being captured.
PX_CALL px_graph_replay(px_graph *graph);
// Lets what is captured from now on be kept as it was: it is made ready by px_graph_instantiate, or
// by the first replay. PX_UNIMPLEMENTED if the backend keeps none.
PX_CALL px_graph_keep(px_graph *graph);
// Makes what was kept ready for replays, anew where it was: what a program has changed in the
// driver's graph counts from then on. PX_RUNTIME, with PyTorch's texts, if nothing is kept.
PX_CALL px_graph_instantiate(px_graph *graph);
// Gives the backend's handle of what is kept, on CUDA a CUgraph, or of what is ready for replays, a
// CUgraphExec; both are the graph's. PX_RUNTIME, with PyTorch's texts, if there is none.
PX_CALL px_graph_native(void **out, px_graph *graph, bool ready);
// Writes what is kept to a file, in the language of Graphviz: a node for each launch, copy and the
// like, and what they wait for. PX_RUNTIME if nothing is kept; fails if the file cannot be written.
PX_CALL px_graph_print(px_graph *graph, const char *path);
// Makes the graph one of nothing: a capture is given up, and the pool is let go of. Tensors that
// lie in the pool stay good; memory that they leave goes back when the cache is emptied.
PX_CALL px_graph_reset(px_graph *graph);
// Gives the graph's pool. PX_RUNTIME if it has nothing and captures nothing.
PX_CALL px_graph_pool_of(px_graph_pool *out, px_graph *graph);
// How many launches, copies and host calls the graph has.
PX_API int64_t px_graph_size(const px_graph *graph);
// Whether work of the stream is being captured.
PX_API bool px_stream_capturing(const px_stream *stream);

#ifdef __cplusplus
}
#endif
