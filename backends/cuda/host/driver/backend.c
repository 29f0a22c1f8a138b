// SPDX-License-Identifier: Apache-2.0
// The cuda backend: entry function, backend table, devices and peer access.
//
// Devices use their primary context, shared with other libraries of the process, so all use the
// same addresses. It is retained until the process exits. The driver itself reads
// CUDA_VISIBLE_DEVICES.
#include <stdlib.h>

#include "cuda/host/chain/chain.h"
#include "cuda/host/library/cudnn.h"
#include "cuda/host/library/cufft.h"
#include "cuda/host/ops/kernel.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

// ---- devices

static int probe(void) {
  int count = 0;
  const char *path;
  if (px_env_PHLOX_CUDA_PATH(px__cuda_core, &path) != PX_OK) return PX_PROBE_ERROR;
  CUresult result = px__cuda_load() ? px__cu.cuInit(0) : CUDA_ERROR_NO_DEVICE;
  if (result == CUDA_SUCCESS) result = px__cu.cuDeviceGetCount(&count);
  if (result == CUDA_ERROR_INVALID_DEVICE) return -1;  // CUDA_VISIBLE_DEVICES has a duplicate
  if (result != CUDA_SUCCESS) return 0;
  return count > PX__CUDA_DEVICES ? PX__CUDA_DEVICES : count;
}

static px_status make_fault(px__cuda_device *d) {
  void *slot = NULL;
  if (d->fault) return PX_OK;
  PX_CUDA_TRY(cuMemHostAlloc(&slot, sizeof *d->fault,
                             CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  d->fault = memset(slot, 0, sizeof *d->fault);
  return PX_OK;
}

static px_status open_locked(px__cuda_device *d, int device) {
  PX_CUDA_TRY(cuDeviceGet(&d->handle, device));
  PX_CUDA_PASS(px__cuda_measure(d));
  if (!d->context) PX_CUDA_TRY(cuDevicePrimaryCtxRetain(&d->context, d->handle));
  PX_CUDA_TRY(cuCtxSetCurrent(d->context));
  PX_CUDA_PASS(make_fault(d));
  __atomic_store_n(&d->open, true, __ATOMIC_RELEASE);
  return PX_OK;
}

static px_status open_device(int device) {
  bool unused;
  PX_CUDA_PASS(px_env_PHLOX_CUDNN(px__cuda_core, &unused));  // report an invalid value early
  if (!px__cuda_load()) PX_CUDA_FAIL(PX_RUNTIME, "Found no NVIDIA driver on your system.");
  if (device < 0 || device >= probe())
    return px__cuda_error(CUDA_ERROR_INVALID_DEVICE, __FILE__, __LINE__, __func__);
  pthread_mutex_lock(&opening);
  px__cuda_device *d = &px__cuda_devices[device];
  px_status status = d->open ? PX_OK : open_locked(d, device);
  pthread_mutex_unlock(&opening);
  return status;
}

static px_status memory_info(int device, size_t *free, size_t *total) {
  PX_CUDA_PASS(px__cuda_use(device));
  PX_CUDA_TRY(cuMemGetInfo(free, total));
  return PX_OK;
}

static px_status synchronize(int device) {
  PX_CUDA_PASS(px__cuda_use(device));
  PX_CUDA_TRY(cuCtxSynchronize());
  return PX_OK;
}

static px_fault_slot *fault_slot(int device) { return px__cuda_devices[device].fault; }

// ---- peers

static bool can_access_peer(int from, int to) {
  int can = 0, count = probe();
  CUdevice a, b;
  bool inside = from >= 0 && to >= 0 && from < count && to < count && from != to;
  return inside && px__cu.cuDeviceGet(&a, from) == CUDA_SUCCESS &&
         px__cu.cuDeviceGet(&b, to) == CUDA_SUCCESS &&
         px__cu.cuDeviceCanAccessPeer(&can, a, b) == CUDA_SUCCESS && can;
}

static px_status enable_peer(int from, int to) {
  if (!can_access_peer(from, to))
    return px__cuda_error(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, __FILE__, __LINE__, __func__);
  PX_CUDA_PASS(open_device(to));
  PX_CUDA_PASS(open_device(from));
  PX_CUDA_PASS(px__cuda_use(from));
  CUresult result = px__cu.cuCtxEnablePeerAccess(px__cuda_devices[to].context, 0);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    return px__cuda_error((int)result, __FILE__, __LINE__, __func__);
  return px__cuda_pages_reach(from, to);
}

// ---- the table

// PyTorch's range. The device's own would require a context to query.
static void priority_range(int *least, int *greatest) { *least = 0, *greatest = -3; }

// Device memory is not host-readable.
static void *peek(int device, void *memory) { return NULL; }

static px_status launch(void *stream, const px_launch *l) {
  PX_CUDA_PASS(px__cuda_use(l->device));
  if (__builtin_expect(l->stream == stream, 1)) return l->kernel(l);
  px_launch own = *l;
  own.stream = stream;
  return l->kernel(&own);
}

static px_status launch_each(void *stream, const px_launch *const *launches, int count) {
  px_status status = PX_OK;
  for (int i = 0; i < count && status == PX_OK; i++) status = launch(stream, launches[i]);
  return status;
}
static px_status launch_all(void *stream, const px_launch *const *launches, int count) {
  struct {
    px__cuda_updates updates;
    px__cuda_loops loops;
    px__cuda_folds folds;
  } *all = malloc(sizeof *all);  // too large for small stacks
  if (!all) return launch_each(stream, launches, count);
  px__cuda_updates_begin(&all->updates), px__cuda_loops_begin(&all->loops),
      px__cuda_folds_begin(&all->folds);
  px_status status = launch_each(stream, launches, count);
  const px_status last[] = {px__cuda_updates_end(&all->updates), px__cuda_loops_end(&all->loops),
                            px__cuda_folds_end(&all->folds)};
  for (int i = 0; i < 3 && status == PX_OK; i++) status = last[i];
  free(all);
  return status;
}

static int64_t library(const char *name) {
  return strcmp(name, "cudnn") == 0 ? px__cudnn_version() : 0;
}

// Without NVRTC there are no chains, and the core records no calls.
static px_kernel find_kernel(const char *name) {
  return !strcmp(name, "chain") && !px__cuda_can_compile() ? NULL : px__cuda_find(name);
}

static const px_backend table = {
    .size = sizeof(px_backend),
    .abi = PX_BACKEND_ABI,
    .name = "cuda",
    .type = PX_CUDA,
    .probe = probe,
    .open = open_device,
    .properties = px__cuda_properties,
    .processes = px__cuda_processes,
    .metric = px__cuda_metric,
    .probe_forksafe = px__cuda_probe_forksafe,
    .match_forksafe = px__cuda_match_forksafe,
    .memory_info = memory_info,
    .synchronize = synchronize,
    .fault_slot = fault_slot,
    .alloc = px__cuda_alloc,
    .release = px__cuda_release,
    .host_alloc = px__cuda_host_alloc,
    .host_release = px__cuda_host_release,
    .can_access_peer = can_access_peer,
    .enable_peer = enable_peer,
    .stream_new = px__cuda_stream_new,
    .stream_release = px__cuda_stream_release,
    .priority_range = priority_range,
    .stream_adopt = px__cuda_stream_adopt,
    .stream_query = px__cuda_stream_query,
    .stream_synchronize = px__cuda_stream_synchronize,
    .stream_wait = px__cuda_stream_wait,
    .copy = px__cuda_copy,
    .fill = px__cuda_fill,
    .host_call = px__cuda_host_call,
    .event_new = px__cuda_event_new,
    .event_release = px__cuda_event_release,
    .event_record = px__cuda_event_record,
    .event_query = px__cuda_event_query,
    .event_synchronize = px__cuda_event_synchronize,
    .event_elapsed = px__cuda_event_elapsed,
    .find = find_kernel,
    .launch = launch,
    .launch_all = launch_all,
    .loads_late = px__cuda_loads_late,
    .peek = peek,
    .library = library,
    .memory_share = px__cuda_memory_share,
    .memory_open = px__cuda_memory_open,
    .memory_close = px__cuda_memory_close,
    .event_share = px__cuda_event_share,
    .event_open = px__cuda_event_open,
    .capture_begin = px__cuda_capture_begin,
    .capture_end = px__cuda_capture_end,
    .graph_launch = px__cuda_graph_launch,
    .graph_release = px__cuda_graph_release,
    .capture_keep = px__cuda_capture_keep,
    .graph_make = px__cuda_graph_make,
    .graph_print = px__cuda_graph_print,
    .graph_drop = px__cuda_graph_drop,
    .recurrent_plan = px__cudnn_recurrent_plan,
    .attention_refusal = px__cuda_attention_refusal,
    .fft_plans = px__cufft_plans,
    .page_size = px__cuda_page_size,
    .range_new = px__cuda_range_new,
    .pages_map = px__cuda_pages_map,
    .pages_unmap = px__cuda_pages_unmap,
    .memory_device = px__cuda_memory_device,
    .host_register = px__cuda_host_register,
    .host_unregister = px__cuda_host_unregister,
};

PX_API const px_backend *px_backend_entry(const px_core *core);
const px_backend *px_backend_entry(const px_core *core) {
  if (core->abi != PX_BACKEND_ABI || core->size < sizeof *core) return NULL;
  px__cuda_core = core;
  return &table;
}
