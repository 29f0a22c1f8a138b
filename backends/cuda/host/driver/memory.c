// SPDX-License-Identifier: Apache-2.0
// Raw memory, copies and fills.
//
// Release must wait for work using the memory (rule C7). The driver does not guarantee this for
// device or page-locked memory, so the devices are synchronised. Raw memory backs the caches and is
// rarely released. The driver's copies satisfy rule C6.
#include "cuda/host/driver/cuda.h"

#include <string.h>

// Upper bound of a request in bytes, above any device's memory; the driver's arithmetic may
// overflow beyond.
#define MAX_BYTES ((size_t)1 << 48)

static bool is_open(int device) {
  return device >= 0 && device < PX__CUDA_DEVICES &&
         __atomic_load_n(&px__cuda_devices[device].open, __ATOMIC_ACQUIRE);
}

px_status px__cuda_alloc(int device, size_t bytes, void **out) {
  CUdeviceptr memory = 0;
  *out = NULL;
  PX_CUDA_PASS(px__cuda_use(device));
  if (bytes > MAX_BYTES)
    return px__cuda_error(CUDA_ERROR_OUT_OF_MEMORY, __FILE__, __LINE__, __func__);
  PX_CUDA_TRY(cuMemAlloc(&memory, bytes ? bytes : 1));
  *out = (void *)(uintptr_t)memory;
  return PX_OK;
}

void px__cuda_release(int device, void *memory) {
  if (!memory || px__cuda_use(device) != PX_OK) return;
  px__cu.cuCtxSynchronize();
  px__cu.cuMemFree((CUdeviceptr)(uintptr_t)memory);
}

px_status px__cuda_host_alloc(size_t bytes, void **out) {
  *out = NULL;
  PX_CUDA_PASS(px__cuda_use_any());
  CUresult result = bytes > MAX_BYTES
                        ? CUDA_ERROR_OUT_OF_MEMORY
                        : px__cu.cuMemHostAlloc(out, bytes ? bytes : 1, CU_MEMHOSTALLOC_PORTABLE);
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    PX_CUDA_FAIL(PX_NOMEM, "cannot allocate %zu bytes of page-locked memory", bytes);
  if (result != CUDA_SUCCESS) return px__cuda_error((int)result, __FILE__, __LINE__, __func__);
  return PX_OK;
}

static void wait_for_all(void) {
  for (int i = 0; i < PX__CUDA_DEVICES; i++)
    if (is_open(i) && px__cuda_use(i) == PX_OK) px__cu.cuCtxSynchronize();
}

void px__cuda_host_release(void *memory) {
  if (!memory) return;
  wait_for_all();
  px__cu.cuMemFreeHost(memory);
}

px_status px__cuda_host_register(void *memory, size_t bytes) {
  PX_CUDA_PASS(px__cuda_use_any());
  PX_CUDA_TRY(cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE));
  return PX_OK;
}

px_status px__cuda_host_unregister(void *memory) {
  PX_CUDA_PASS(px__cuda_use_any());
  wait_for_all();
  PX_CUDA_TRY(cuMemHostUnregister(memory));
  return PX_OK;
}

static CUdeviceptr address(const void *at) { return (CUdeviceptr)(uintptr_t)at; }

static px_status copy_peer(CUstream stream, const px_copy *c) {
  if (!is_open(c->to_device) || !is_open(c->from_device))
    return px__cuda_error(CUDA_ERROR_INVALID_DEVICE, __FILE__, __LINE__, __func__);
  PX_CUDA_TRY(cuMemcpyPeerAsync(address(c->to), px__cuda_devices[c->to_device].context,
                                address(c->from), px__cuda_devices[c->from_device].context,
                                c->bytes, stream));
  return PX_OK;
}

px_status px__cuda_copy(void *stream, const px_copy *c) {
  CUstream s = stream;
  if (!c->bytes) return PX_OK;
  PX_CUDA_PASS(px__cuda_use_stream(s));
  if (c->kind == PX_COPY_PEER) return copy_peer(s, c);
  switch (c->kind) {
    case PX_COPY_HOST_TO_DEVICE:
      PX_CUDA_TRY(cuMemcpyHtoDAsync(address(c->to), c->from, c->bytes, s));
      break;
    case PX_COPY_DEVICE_TO_HOST:
      PX_CUDA_TRY(cuMemcpyDtoHAsync(c->to, address(c->from), c->bytes, s));
      break;
    default:
      PX_CUDA_TRY(cuMemcpyDtoDAsync(address(c->to), address(c->from), c->bytes, s));
  }
  return PX_OK;
}

px_status px__cuda_fill(void *stream, void *memory, int value, size_t bytes) {
  if (!bytes) return PX_OK;
  PX_CUDA_PASS(px__cuda_use_stream(stream));
  PX_CUDA_TRY(cuMemsetD8Async(address(memory), (unsigned char)value, bytes, stream));
  return PX_OK;
}

// Host memory has no device, also if devices can read it.
int px__cuda_memory_device(const void *memory) {
  CUdeviceptr at = address(memory);
  unsigned kind = 0;
  int device = -1;
  if (px__cu.cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) != CUDA_SUCCESS ||
      kind != CU_MEMORYTYPE_DEVICE ||
      px__cu.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at) !=
          CUDA_SUCCESS)
    return -1;
  return device;
}

// ---- between processes
_Static_assert(sizeof(CUipcMemHandle) == sizeof(px_ipc_handle), "handles are passed on unchanged");

px_status px__cuda_memory_share(int device, void *memory, px_ipc_handle *out, size_t *offset) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CUipcMemHandle handle;
  PX_CUDA_PASS(px__cuda_use(device));
  PX_CUDA_TRY(cuMemGetAddressRange(&base, &bytes, address(memory)));
  PX_CUDA_TRY(cuIpcGetMemHandle(&handle, base));
  memcpy(out->bytes, &handle, sizeof handle);
  *offset = address(memory) - base;
  return PX_OK;
}

px_status px__cuda_memory_open(int device, const px_ipc_handle *handle, void **out, size_t *bytes) {
  CUdeviceptr memory = 0, base = 0;
  CUipcMemHandle theirs;
  *out = NULL;
  memcpy(&theirs, handle->bytes, sizeof theirs);
  PX_CUDA_PASS(px__cuda_use(device));
  PX_CUDA_TRY(cuIpcOpenMemHandle(&memory, theirs, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  // The driver may not report the size of another process's memory: then the size is unlimited.
  if (px__cu.cuMemGetAddressRange(&base, bytes, memory) != CUDA_SUCCESS) *bytes = SIZE_MAX;
  *out = (void *)(uintptr_t)memory;
  return PX_OK;
}

void px__cuda_memory_close(int device, void *memory) {
  if (px__cuda_use(device) != PX_OK) return;
  px__cu.cuCtxSynchronize();
  px__cu.cuIpcCloseMemHandle(address(memory));
}
