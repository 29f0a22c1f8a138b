// SPDX-License-Identifier: Apache-2.0
// Blocks around memory that somebody else owns, and gets back when the last work on it is done.
//
// Freeing host memory waits for its uses. Device memory that is still in use goes to a list, and a
// later call (one that frees, wraps or waits) gives it back: so no free waits, and another
// library's streams need not know of ours. The owners' release functions run without any lock.
#include "device/state.h"

#include <pthread.h>

typedef struct wrapped {
  px__allocation allocation;  // first
  void (*release)(void *);
  void *context;
  struct wrapped *next;
} wrapped;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wrapped *waiting;  // guarded by `lock`; whether there is any, also without (atomic)

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

static void give_back(wrapped *w) {
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

static void keep(wrapped *w) {
  pthread_mutex_lock(&lock);
  w->next = waiting;
  __atomic_store_n(&waiting, w, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
}

void px__wrapped_sweep(void) {
  if (PX_LIKELY(!__atomic_load_n(&waiting, __ATOMIC_ACQUIRE))) return;
  if (!px__device_alive()) return;
  px__error_guard guard;
  px__error_save(&guard);
  pthread_mutex_lock(&lock);
  wrapped *list = waiting;
  __atomic_store_n(&waiting, NULL, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
  for (wrapped *next; list; list = next) {
    next = list->next;
    if (is_done(list))
      give_back(list);
    else
      keep(list);
  }
  px__error_restore(&guard);
}

void px__wrapped_free(px_allocation *allocation) {
  wrapped *w = (wrapped *)allocation;
  bool used = w->allocation.use_count > 0 && !px__rt.forked;
  px__error_guard guard;
  px__wrapped_sweep();
  if (!used) {
    give_back(w);
    return;
  }
  px__error_save(&guard);
  if (allocation->device.type == PX_CPU) px__allocation_wait_uses(&w->allocation);
  if (allocation->device.type == PX_CPU || is_done(w)) {
    give_back(w);
  } else {
    px__allocation_mark_uses(&w->allocation);
    keep(w);
  }
  px__error_restore(&guard);
}
