// SPDX-License-Identifier: Apache-2.0
// Whether calls that make the host wait for a device do so silently, warn, or fail: for finding the
// places where a program loses time. px_device_synchronize and waits for events are not counted, as
// in PyTorch, since waiting is what they are for.
#include "device/state.h"

static int mode;  // atomic

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
