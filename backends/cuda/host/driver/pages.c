// SPDX-License-Identifier: Apache-2.0
// Pages of device memory, mapped into reserved addresses.
//
// A page is one driver allocation with a single mapping, freed when it is unmapped, so no handle is
// kept. The set of mapped pages is tracked, because peers have no access to such memory until it is
// granted for each.
#include "cuda/host/driver/cuda.h"

#include <pthread.h>
#include <stdlib.h>

#define PAGE ((size_t)2 << 20)

typedef struct range {
  CUdeviceptr at;
  size_t pages;
  bool *mapped;         // one flag a page
  uint64_t reached_by;  // bit d: device d has access
} range;
static range ranges[PX__CUDA_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // guards `ranges`; a leaf lock

// Fills in the driver's properties of a page. False without virtual memory management.
static bool describe(CUmemAllocationProp *out, int device) {
  CUdevice handle = px__cuda_devices[device].handle;
  int can = 0, direct = 0;
  *out = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = handle}};
  if (px__cu.cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                  handle) != CUDA_SUCCESS ||
      !can)
    return false;
  if (px__cu.cuDeviceGetAttribute(&direct,
                                  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                                  handle) == CUDA_SUCCESS)
    out->allocFlags.gpuDirectRDMACapable = direct != 0;
  return true;
}

size_t px__cuda_page_size(int device) {
  CUmemAllocationProp page;
  size_t granularity = 0;
  bool can = device >= 0 && px__cuda_use(device) == PX_OK && describe(&page, device) &&
             px__cu.cuMemGetAllocationGranularity(&granularity, &page,
                                                  CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS;
  return can && granularity && PAGE % granularity == 0 ? PAGE : 0;
}

px_status px__cuda_range_new(int device, size_t bytes, void **out) {
  range *r = &ranges[device];
  CUdeviceptr at = 0;
  *out = NULL;
  PX_CUDA_PASS(px__cuda_use(device));
  bool *mapped = calloc(bytes / PAGE + 1, sizeof *mapped);
  if (!mapped) PX_CUDA_FAIL(PX_NOMEM, "out of host memory for the pages of device %d", device);
  CUresult result = px__cu.cuMemAddressReserve(&at, bytes, PAGE, 0, 0);
  if (result != CUDA_SUCCESS) {
    free(mapped);
    return px__cuda_error((int)result, __FILE__, __LINE__, __func__);
  }
  pthread_mutex_lock(&lock);
  r->at = at, r->pages = bytes / PAGE, r->mapped = mapped;
  r->reached_by |= 1ull << device;
  pthread_mutex_unlock(&lock);
  *out = (void *)(uintptr_t)at;
  return PX_OK;
}

// ---- access

static CUresult allow(CUdeviceptr at, size_t bytes, int device) {
  CUmemAccessDesc access = {
      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = px__cuda_devices[device].handle},
      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return px__cu.cuMemSetAccess(at, bytes, &access, 1);
}

static CUresult allow_all(const range *r, CUdeviceptr at, size_t bytes) {
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < PX__CUDA_DEVICES && result == CUDA_SUCCESS; i++)
    if (r->reached_by >> i & 1) result = allow(at, bytes, i);
  return result;
}

px_status px__cuda_pages_reach(int from, int to) {
  range *r = &ranges[to];
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  bool known = r->reached_by >> from & 1;
  for (size_t i = 0, end; i < r->pages && !known && result == CUDA_SUCCESS; i = end + 1) {
    for (end = i; end < r->pages && r->mapped[end];) end++;
    if (end > i) result = allow(r->at + i * PAGE, (end - i) * PAGE, from);
  }
  if (result == CUDA_SUCCESS) r->reached_by |= 1ull << from;
  pthread_mutex_unlock(&lock);
  return result == CUDA_SUCCESS ? PX_OK : px__cuda_error((int)result, __FILE__, __LINE__, __func__);
}

// ---- pages

static CUresult map_page(CUdeviceptr at, const CUmemAllocationProp *page) {
  CUmemGenericAllocationHandle handle;
  CUresult result = px__cu.cuMemCreate(&handle, PAGE, page, 0);
  if (result != CUDA_SUCCESS) return result;
  result = px__cu.cuMemMap(at, PAGE, 0, handle, 0);
  px__cu.cuMemRelease(handle);
  return result;
}

static CUresult map_all(range *r, CUdeviceptr at, size_t bytes, const CUmemAllocationProp *page) {
  CUresult result = CUDA_SUCCESS;
  size_t done = 0;
  while (done < bytes && (result = map_page(at + done, page)) == CUDA_SUCCESS) done += PAGE;
  if (result == CUDA_SUCCESS) result = allow_all(r, at, bytes);
  if (result != CUDA_SUCCESS && done) px__cu.cuMemUnmap(at, done);
  return result;
}

static void mark_pages(range *r, CUdeviceptr at, size_t bytes, bool mapped) {
  size_t first = (at - r->at) / PAGE;
  for (size_t i = 0; i < bytes / PAGE; i++) r->mapped[first + i] = mapped;
}

px_status px__cuda_pages_map(int device, void *at, size_t bytes) {
  CUdeviceptr low = (CUdeviceptr)(uintptr_t)at;
  CUmemAllocationProp page;
  PX_CUDA_PASS(px__cuda_use(device));
  describe(&page, device);
  pthread_mutex_lock(&lock);
  CUresult result = map_all(&ranges[device], low, bytes, &page);
  if (result == CUDA_SUCCESS) mark_pages(&ranges[device], low, bytes, true);
  pthread_mutex_unlock(&lock);
  return result == CUDA_SUCCESS ? PX_OK : px__cuda_error((int)result, __FILE__, __LINE__, __func__);
}

void px__cuda_pages_unmap(int device, void *at, size_t bytes) {
  CUdeviceptr low = (CUdeviceptr)(uintptr_t)at;
  if (px__cuda_use(device) != PX_OK) return;
  pthread_mutex_lock(&lock);
  px__cu.cuMemUnmap(low, bytes);
  mark_pages(&ranges[device], low, bytes, false);
  pthread_mutex_unlock(&lock);
}
