// SPDX-License-Identifier: Apache-2.0
// Strategy: calls the reclaim functions of upper layers, and waits for pending frees and for work
// with uses of free blocks.
#include "device/strategy/strategy.h"

enum { MAX_RECLAIMS = 16 };
static void (*reclaims[MAX_RECLAIMS])(void);  // atomic; never removed

void px__reclaim_add(void (*reclaim)(void)) {
  for (int i = 0; i < MAX_RECLAIMS; i++) {
    void (*none)(void) = NULL;
    if (__atomic_load_n(&reclaims[i], __ATOMIC_ACQUIRE) == reclaim) return;
    if (__atomic_compare_exchange_n(&reclaims[i], &none, reclaim, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
      return;
  }
}

static void reclaim_all(void) {
  px__wrapped_sweep();
  for (int i = 0; i < MAX_RECLAIMS; i++) {
    void (*reclaim)(void) = __atomic_load_n(&reclaims[i], __ATOMIC_ACQUIRE);
    if (reclaim) reclaim();
  }
}

px__block *px__try_reclaim(px__request *r) {
  px__device_unlock(r->device);
  reclaim_all();
  r->status = px__cache_wait(r->device);
  px__device_lock(r->device);
  r->pool = px__private_pool_of(r->stream);  // another thread may have ended the capture
  return NULL;
}
