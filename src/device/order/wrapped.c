// SPDX-License-Identifier: Apache-2.0
// Allocations around memory of another owner, returned to it after the last work on it.
//
// Freeing host memory waits for its uses. Device memory still in use is deferred: a later call to
// free, wrap or wait releases it. No free waits, and streams of other libraries need no ordering
// with ours. Release functions of owners run without any lock.
#include "device/order/order.h"

#include <pthread.h>

typedef struct wrapped {
  px__allocation allocation;  // must be first
  void (*release)(void *);
  void *context;
  struct wrapped *next;
} wrapped;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wrapped *deferred;  // guarded by `lock`; also tested for NULL without it (atomic)

px_status px__allocation_wrap(px_allocation **out, void *data, size_t bytes, px_device device,
                              void (*release)(void *), void *context) {
  wrapped *w;
  px__wrapped_sweep();
  PX_TRY(PX_NEW(&w));
  w->allocation.pub = (px_allocation){
      .data = bytes ? data : NULL, .bytes = bytes, .device = device, .foreign = true};
  w->allocation.pub.irregular = w->allocation.pub.pending =
      device.type == PX_CPU && (uintptr_t)data % 8;
  w->allocation.kind = PX__WRAPPED;
  w->release = release, w->context = context;
  *out = &w->allocation.pub;
  return PX_OK;
}

static void release_memory(wrapped *w) {
  px__allocation_drop_uses(&w->allocation);
  if (w->release) w->release(w->context);
  px__free(w);
}

static bool is_done(wrapped *w) {
  for (int i = 0; i < w->allocation.use_count; i++) {
    px_stream *stream = w->allocation.uses[i].stream;
    px__device_lock(stream->owner);
    px__stream_query(stream);
    px__device_unlock(stream->owner);
  }
  return px__allocation_is_reusable(&w->allocation, NULL);
}

static void defer(wrapped *w) {
  pthread_mutex_lock(&lock);
  w->next = deferred;
  __atomic_store_n(&deferred, w, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
}

void px__wrapped_sweep(void) {
  if (PX_LIKELY(!__atomic_load_n(&deferred, __ATOMIC_ACQUIRE))) return;
  if (!px__device_alive()) return;
  px__error_guard guard;
  px__error_save(&guard);
  pthread_mutex_lock(&lock);
  wrapped *list = deferred;
  __atomic_store_n(&deferred, NULL, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
  for (wrapped *next; list; list = next) {
    next = list->next;
    if (is_done(list))
      release_memory(list);
    else
      defer(list);
  }
  px__error_restore(&guard);
}

void px__wrapped_free(px_allocation *allocation) {
  wrapped *w = (wrapped *)allocation;
  bool used = w->allocation.use_count > 0 && !px__rt.forked;
  px__error_guard guard;
  px__wrapped_sweep();
  if (!used) {
    release_memory(w);
    return;
  }
  px__error_save(&guard);
  if (allocation->device.type == PX_CPU) px__allocation_wait_uses(&w->allocation);
  if (allocation->device.type == PX_CPU || is_done(w)) {
    release_memory(w);
  } else {
    px__allocation_mark_uses(&w->allocation);
    defer(w);
  }
  px__error_restore(&guard);
}
