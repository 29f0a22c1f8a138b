// SPDX-License-Identifier: Apache-2.0
// Streams and events: driver handles.
//
// All streams are non-blocking (rule C5). The driver keeps released streams and events until their
// issued work is done (C8). A wait refers to the event's latest record at the time of the call
// (C1).
#include "cuda/host/driver/cuda.h"

#include <sched.h>
#include <string.h>
#include <time.h>

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

px_status px__cuda_stream_adopt(int device, void *stream, int *priority) {
  CUcontext context = NULL;
  PX_CUDA_PASS(px__cuda_use(device));
  if (stream == CU_STREAM_PER_THREAD)
    PX_CUDA_FAIL(PX_VALUE, "the handle 2 (per-thread default stream) differs between threads");
  PX_CUDA_TRY(cuStreamGetCtx(stream, &context));
  if (context != px__cuda_devices[device].context)
    return px__cuda_error(CUDA_ERROR_INVALID_HANDLE, __FILE__, __LINE__, __func__);
  PX_CUDA_TRY(cuStreamGetPriority(stream, priority));
  return PX_OK;
}

// CUDA_ERROR_NOT_READY is a result, not an error.
static px_status query_result(CUresult result, bool *out) {
  *out = result == CUDA_SUCCESS;
  if (*out || result == CUDA_ERROR_NOT_READY) return PX_OK;
  return px__cuda_error((int)result, __FILE__, __LINE__, __func__);
}

px_status px__cuda_stream_query(void *stream, bool *out) {
  PX_CUDA_PASS(px__cuda_use_any());
  return query_result(px__cu.cuStreamQuery(stream), out);
}

static bool is_interruptible(void) {
  return px__cuda_core->interrupt_wanted && px__cuda_core->interrupt_wanted();
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// Yields the CPU core between polls: briefly in a short wait, as the driver does; in a long wait
// for a fraction of the elapsed time, bounding the delay at the end.
static void back_off(int64_t elapsed) {
  enum { YIELD_NS = 20 * 1000, SLEEP_NS = 10 * 1000 * 1000, SHARE = 128, MAX_NS = 2 * 1000 * 1000 };
  int64_t pause = elapsed / SHARE;
  if (elapsed >= SLEEP_NS)
    nanosleep(&(struct timespec){0, pause < MAX_NS ? pause : MAX_NS}, NULL);
  else if (elapsed >= YIELD_NS)
    sched_yield();
}

// Polls the driver, and the program's interrupt check in between.
static px_status wait_interruptible(px_status (*query)(void *handle, bool *out), void *handle) {
  int64_t begin = now();
  for (bool done = false;;) {
    PX_CUDA_PASS(query(handle, &done));
    if (done) return PX_OK;
    PX_CUDA_PASS(px__cuda_core->interrupt_poll());
    back_off(now() - begin);
  }
}

px_status px__cuda_stream_synchronize(void *stream) {
  if (is_interruptible()) return wait_interruptible(px__cuda_stream_query, stream);
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
  return query_result(px__cu.cuEventQuery(event), out);
}

px_status px__cuda_event_synchronize(void *event) {
  if (is_interruptible()) return wait_interruptible(px__cuda_event_query, event);
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
_Static_assert(sizeof(CUipcEventHandle) == sizeof(px_ipc_handle),
               "handles are passed on unchanged");

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
