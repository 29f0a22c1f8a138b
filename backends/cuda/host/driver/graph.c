// SPDX-License-Identifier: Apache-2.0
// Graphs by the driver's stream capture.
//
// Capture uses relaxed mode. The core enforces the capture mode's rules for programs; the library
// itself allocates, loads code and queries older work during captures. Remaining violations are
// reported by the driver at the end of the capture.
#include "cuda/host/driver/cuda.h"

px_status px__cuda_capture_begin(void *stream) {
  PX_CUDA_PASS(px__cuda_use_stream(stream));
  PX_CUDA_TRY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  return PX_OK;
}

// Allocations captured from libraries are owned by the graph, which frees them before its next
// launch.
static px_status instantiate(CUgraph graph, void **out) {
  CUgraphExec exec = NULL;
  PX_CUDA_TRY(
      cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  *out = exec;
  return PX_OK;
}

px_status px__cuda_capture_keep(void *stream, void **out) {
  CUgraph graph = NULL;
  *out = NULL;
  PX_CUDA_PASS(px__cuda_use_stream(stream));
  PX_CUDA_TRY(cuStreamEndCapture(stream, &graph));
  *out = graph;
  return PX_OK;
}
px_status px__cuda_graph_make(int device, void *kept, void **out) {
  *out = NULL;
  PX_CUDA_PASS(px__cuda_use(device));
  return instantiate(kept, out);
}
px_status px__cuda_graph_print(int device, void *kept, const char *path) {
  PX_CUDA_PASS(px__cuda_use(device));
  PX_CUDA_TRY(cuGraphDebugDotPrint(kept, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
  return PX_OK;
}
void px__cuda_graph_drop(int device, void *kept) {
  if (kept && px__cuda_use(device) == PX_OK) px__cu.cuGraphDestroy(kept);
}

px_status px__cuda_capture_end(void *stream, void **out) {
  CUgraph graph = NULL;
  if (out) *out = NULL;
  PX_CUDA_PASS(px__cuda_use_stream(stream));
  CUresult result = px__cu.cuStreamEndCapture(stream, &graph);
  px_status status = PX_OK;
  if (out && result == CUDA_SUCCESS) status = instantiate(graph, out);
  if (graph) px__cu.cuGraphDestroy(graph);
  if (!out || result == CUDA_SUCCESS) return status;
  return px__cuda_error((int)result, __FILE__, __LINE__, __func__);
}

bool px__cuda_captures(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return px__cu.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

px_status px__cuda_graph_launch(void *stream, void *graph) {
  PX_CUDA_PASS(px__cuda_use_stream(stream));
  PX_CUDA_TRY(cuGraphLaunch(graph, stream));
  return PX_OK;
}

void px__cuda_graph_release(int device, void *graph) {
  if (graph && px__cuda_use(device) == PX_OK) px__cu.cuGraphExecDestroy(graph);
}
