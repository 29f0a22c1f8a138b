// SPDX-License-Identifier: Apache-2.0
// Host memory page-locked by programs, where it is.
#include "device/memory/memory.h"

typedef struct range {
  uintptr_t begin, end;
} range;
// In no order, without overlap: the backend refuses memory that is registered already.
static range *ranges;
static int capacity;
static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER;  // guards all of it; no lock is taken inside
int px__host_registered_count;

bool px__host_registered(const void *at, size_t bytes) {
  uintptr_t begin = (uintptr_t)at;
  bool found = false;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < px__host_registered_count && !found; i++)
    found = ranges[i].begin <= begin && begin < ranges[i].end && bytes <= ranges[i].end - begin;
  pthread_mutex_unlock(&lock);
  return found;
}

static px_status grow(void) {
  if (px__host_registered_count < capacity) return PX_OK;
  int wanted = capacity ? 2 * capacity : 16;
  PX_TRY(px__realloc((void **)&ranges, (size_t)wanted * sizeof *ranges));
  capacity = wanted;
  return PX_OK;
}

static px_status add(range added) {
  pthread_mutex_lock(&lock);
  px_status status = grow();
  if (status == PX_OK) {
    ranges[px__host_registered_count] = added;
    __atomic_store_n(&px__host_registered_count, px__host_registered_count + 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  return status;
}

static void drop(uintptr_t begin) {
  pthread_mutex_lock(&lock);
  for (int i = px__host_registered_count - 1; i >= 0; i--) {
    if (ranges[i].begin != begin) continue;
    ranges[i] = ranges[px__host_registered_count - 1];
    __atomic_store_n(&px__host_registered_count, px__host_registered_count - 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
}

// The backend's functions come as a pair.
static px_status begin(void) {
  PX_TRY(px_device_init());
  if (px__rt.forked) return px__error_cuda(3);
  PX_CHECK(PX__BACKEND_HAS(px__rt.backend, host_register), PX_UNIMPLEMENTED,
           "backend %s cannot page-lock existing memory", px__rt.backend->name);
  px__device *d;
  return px__device_get(&d, px_device_peek());
}

px_status px_memory_host_register(void *at, size_t bytes) {
  PX_TRY(begin());
  PX_TRY(px__rt.backend->host_register(at, bytes));
  px_status status = add((range){(uintptr_t)at, (uintptr_t)at + bytes});
  if (status != PX_OK) (void)px__rt.backend->host_unregister(at);
  return status;
}

// The backend waits as well, but does not tell the race checker. Nothing interrupts a release.
static px_status wait_for_devices(void) {
  px_status status = PX_OK;
  px_interrupt_hold(true);
  for (int i = 0; i < PX__DEVICES && status == PX_OK; i++)
    if (px__device_found(i)) status = px_device_synchronize(i);
  px_interrupt_hold(false);
  return status;
}

px_status px_memory_host_unregister(void *at) {
  PX_TRY(begin());
  PX_TRY(wait_for_devices());
  drop((uintptr_t)at);  // later copies take the memory for pageable
  return px__rt.backend->host_unregister(at);
}
