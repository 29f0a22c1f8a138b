// SPDX-License-Identifier: Apache-2.0
// Free lists of the hot objects, one set a thread: a tensor costs no malloc in the steady state.
//
// An object on a list is whole, but for the first word, which links it: its class and what every
// new one begins with stay in it, so that who takes it writes only what differs. Objects that end
// on another thread join that thread's list; lists are short, and emptied when their thread ends.
// While faults are armed nothing is served from a list, so that the n-th allocation means the same
// on every run. Under the address and thread sanitizers the lists are off.
#pragma once
#include "base/base_impl.h"

enum px__pool_kind { PX__POOL_TENSOR, PX__POOL_STORAGE, PX__POOL_KINDS };
enum { PX__POOL_LIMIT = 256, PX__CLASS_LIMIT = 256 };

typedef struct px__pool {
  void *top;
  int64_t *live;  // how many of the class live, in the same tally; NULL before one ended
  int count;
} px__pool;
// What a thread has of objects: how many of each class it made, less those that it destroyed, by
// row of object.c, and its lists. Counts are atomic: others read them.
typedef struct px__thread_cache {
  px__thread_slot slot;
  px__pool pools[PX__POOL_KINDS];
  int64_t live[PX__CLASS_LIMIT];
} px__thread_cache;
// NULL: none yet, or the thread is ending.
extern _Thread_local PX__HIDDEN_THREAD px__thread_cache *px__thread_cache_here;

// Ends an object that is on no list.
void px__pool_drop(enum px__pool_kind kind, void *object);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PX__POOL_ON 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PX__POOL_ON 0
#endif
#endif
#ifndef PX__POOL_ON
#define PX__POOL_ON 1
#endif

static inline void px__live_add(int64_t *live, int by) {
  __atomic_store_n(live, *live + by, __ATOMIC_RELAXED);
}

// Gives an object of the kind with one reference, as it ended, or NULL: the caller makes one. here:
// px__thread_cache_here, which who takes or gives several looks for once.
static inline void *px__pool_take(px__thread_cache *here, enum px__pool_kind kind) {
  if (!PX__POOL_ON || PX_UNLIKELY(!here || !here->pools[kind].top) || px__faults()) return NULL;
  px__pool *pool = &here->pools[kind];
  px_object *object = pool->top;
  pool->top = *(void **)object;
  pool->count--;
  px__live_add(pool->live, 1);
  __atomic_store_n(&object->refs, 1, __ATOMIC_RELAXED);
  return object;
}

// Ends an object, and keeps it.
static inline void px__pool_give(px__thread_cache *here, enum px__pool_kind kind, void *object) {
  px__pool *pool = here ? &here->pools[kind] : NULL;
  if (!PX__POOL_ON || PX_UNLIKELY(!pool || !pool->live || pool->count >= PX__POOL_LIMIT)) {
    px__pool_drop(kind, object);
    return;
  }
  px__live_add(pool->live, -1);
  *(void **)object = pool->top;
  pool->top = object;
  pool->count++;
}
