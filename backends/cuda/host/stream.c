// SPDX-License-Identifier: Apache-2.0
// Streams and events: the driver's, whose handles are the backend's.
//
// All streams are non-blocking ones (rule C5). The driver keeps what was released until the work
// that was issued is done (C8), and takes an event's latest record at the wait (C1).
#include "cuda/host/cuda.h"

#include <string.h>

enum { TIMING = 1, BLOCKING = 2, SHARED = 4 };  // flags of event_new

px_status px__cuda_stream_new(int device, int priority, void **out) {
  CUstream stream = NULL;
  *out = NULL;
  PX_CUDA_PASS(px__cuda_use(device));
  PX_CUDA_TRY(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority));
  *out = stream;
  return PX_OK;
}

void px__cuda_stream_release(int device, void *stream) {
  if (stream && px__cuda_use(device) == PX_OK) px__cu.cuStreamDestroy(stream);
}

// What is not ready is an answer, not an error.
static px_status answer(CUresult result, bool *out) {
  *out = result == CUDA_SUCCESS;
  if (*out || result == CUDA_ERROR_NOT_READY) return PX_OK;
  return px__cuda_error((int)result, __FILE__, __LINE__, __func__);
}

px_status px__cuda_stream_query(void *stream, bool *out) {
  PX_CUDA_PASS(px__cuda_use_any());
  return answer(px__cu.cuStreamQuery(stream), out);
}

px_status px__cuda_stream_synchronize(void *stream) {
  PX_CUDA_PASS(px__cuda_use_any());
  PX_CUDA_TRY(cuStreamSynchronize(stream));
  return PX_OK;
}

px_status px__cuda_stream_wait(void *stream, void *event) {
  PX_CUDA_PASS(px__cuda_use_stream(stream));
  PX_CUDA_TRY(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT));
  return PX_OK;
}

px_status px__cuda_host_call(void *stream, void (*fn)(void *), void *argument) {
  PX_CUDA_PASS(px__cuda_use_stream(stream));
  PX_CUDA_TRY(cuLaunchHostFunc(stream, fn, argument));
  return PX_OK;
}

px_status px__cuda_event_new(int device, unsigned flags, void **out) {
  CUevent event = NULL;
  unsigned native = (flags & TIMING ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING) |
                    (flags & BLOCKING ? CU_EVENT_BLOCKING_SYNC : 0u) |
                    (flags & SHARED ? CU_EVENT_INTERPROCESS : 0u);
  *out = NULL;
  PX_CUDA_PASS(px__cuda_use(device));
  PX_CUDA_TRY(cuEventCreate(&event, native));
  *out = event;
  return PX_OK;
}

void px__cuda_event_release(int device, void *event) {
  if (event && px__cuda_use(device) == PX_OK) px__cu.cuEventDestroy(event);
}

px_status px__cuda_event_record(void *event, void *stream) {
  PX_CUDA_PASS(px__cuda_use_stream(stream));
  PX_CUDA_TRY(cuEventRecord(event, stream));
  return PX_OK;
}

px_status px__cuda_event_query(void *event, bool *out) {
  PX_CUDA_PASS(px__cuda_use_any());
  return answer(px__cu.cuEventQuery(event), out);
}

px_status px__cuda_event_synchronize(void *event) {
  PX_CUDA_PASS(px__cuda_use_any());
  PX_CUDA_TRY(cuEventSynchronize(event));
  return PX_OK;
}

px_status px__cuda_event_elapsed(void *start, void *end, float *out) {
  *out = 0;
  PX_CUDA_PASS(px__cuda_use_any());
  PX_CUDA_TRY(cuEventElapsedTime(out, start, end));
  return PX_OK;
}

// ---- between processes
_Static_assert(sizeof(CUipcEventHandle) == sizeof(px_ipc_handle), "they are passed on as they are");

px_status px__cuda_event_share(void *event, px_ipc_handle *out) {
  CUipcEventHandle handle;
  PX_CUDA_PASS(px__cuda_use_any());
  PX_CUDA_TRY(cuIpcGetEventHandle(&handle, event));
  memcpy(out->bytes, &handle, sizeof handle);
  return PX_OK;
}

px_status px__cuda_event_open(int device, const px_ipc_handle *handle, void **out) {
  CUipcEventHandle theirs;
  CUevent event = NULL;
  *out = NULL;
  memcpy(&theirs, handle->bytes, sizeof theirs);
  PX_CUDA_PASS(px__cuda_use(device));
  PX_CUDA_TRY(cuIpcOpenEventHandle(&event, theirs));
  *out = event;
  return PX_OK;
}
