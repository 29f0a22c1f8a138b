// SPDX-License-Identifier: Apache-2.0
// Synchronizing calls may pass silently, warn or fail, to find stalls of a program.
// px_device_synchronize and waits for events are exempt, as in PyTorch: waiting is their purpose.
#include "device/core/state.h"
#include "phlox/extend.h"

static int mode;  // atomic
// Both atomic.
static void *(*begin_hook)(void);
static void (*end_hook)(void *held);

void px_wait_set_hooks(void *(*begin)(void), void (*end)(void *held)) {
  __atomic_store_n(&end_hook, end, __ATOMIC_RELEASE);
  __atomic_store_n(&begin_hook, begin, __ATOMIC_RELEASE);
}

px__waiting px__wait_begin(void) {
  void *(*begin)(void) = __atomic_load_n(&begin_hook, __ATOMIC_ACQUIRE);
  px__waiting now = {NULL, NULL};
  if (!begin) return now;
  now.end = __atomic_load_n(&end_hook, __ATOMIC_ACQUIRE);
  now.held = now.end ? begin() : NULL;
  return now;
}

void px__wait_end(px__waiting now) {
  if (now.held) now.end(now.held);
}

px_status px_sync_debug_set(px_sync_debug wanted) {
  PX_CHECK(wanted >= PX_SYNC_SILENT && wanted <= PX_SYNC_ERROR, PX_RUNTIME,
           "invalid value of debug_mode, expected one of 0,1,2");
  __atomic_store_n(&mode, wanted, __ATOMIC_RELAXED);
  return PX_OK;
}

px_sync_debug px_sync_debug_get(void) {
  return (px_sync_debug)__atomic_load_n(&mode, __ATOMIC_RELAXED);
}

px_status px__sync_point(void) {
  int now = __atomic_load_n(&mode, __ATOMIC_RELAXED);
  if (PX_LIKELY(now == PX_SYNC_SILENT)) return PX_OK;
  PX_CHECK(now != PX_SYNC_ERROR, PX_RUNTIME, "called a synchronizing CUDA operation");
  return px_warn(PX_WARN_USER, "called a synchronizing CUDA operation");
}
