// SPDX-License-Identifier: Apache-2.0
// A graph: work captured once and replayed with new data in the same memory. Requires a device:
// PHLOX_SIM_DEVICES=1 build/examples/graph.
#include <phlox/phlox.h>
#include <stdio.h>

enum { SIZE = 1 << 10, REPLAYS = 3 };

// The result is in the graph's memory. Each replay overwrites it.
static px_status capture(px_graph *graph, px_tensor **mean, px_tensor *x) {
  px_stream *stream, *before;
  PX_TRY(px_stream_current(&before, px_cuda(0)));
  PX_TRY(px_stream_new(&stream, px_cuda(0), 0));
  PX_TRY(px_stream_set_current(stream));
  px_release(stream);
  PX_SCOPED(px_tensor) square = NULL;
  PX_TRY(px_graph_begin(graph, (px_graph_pool){0}, PX_CAPTURE_GLOBAL));
  PX_TRY(px_mul(&square, x, x));
  PX_TRY(px_mean_all(mean, square, PX_DTYPE_NONE));
  PX_TRY(px_graph_end(graph));
  return px_stream_set_current(before);
}

static px_status work(px_graph *graph, px_tensor **x, px_tensor **mean) {
  PX_TRY(px_full(x, (int64_t[]){SIZE}, 1, px_float(0), PX_FLOAT32, px_cuda(0), false, false));
  PX_TRY(capture(graph, mean, *x));
  for (int i = 1; i <= REPLAYS; i++) {
    px_scalar value;
    PX_TRY(px_fill_(*x, px_float(i)));
    PX_TRY(px_graph_replay(graph));
    PX_TRY(px_tensor_item(&value, *mean));  // synchronizes
    printf("mean of squares: %g\n", px_scalar_float(value));
  }
  return PX_OK;
}

int main(void) {
  PX_SCOPED(px_graph) graph = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) mean = NULL;
  px_status status = px_graph_new(&graph);
  if (status == PX_OK) status = work(graph, &x, &mean);
  if (status != PX_OK) px_error_print();
  return status != PX_OK;
}
