// SPDX-License-Identifier: Apache-2.0
// Per-thread free lists of hot objects: creating a tensor needs no malloc in the steady state.
//
// A freed object stays initialised, except its first word, the link. Reuse rewrites only fields
// that differ. An object freed on another thread joins that thread's list. Lists are short, and
// emptied when their thread ends. They are bypassed while faults are armed, so that the n-th
// allocation is the same in every run, and under the address and thread sanitizers.
#pragma once
#include "base/base_impl.h"

enum px__object_list_kind {
  PX__OBJECT_LIST_TENSOR,
  PX__OBJECT_LIST_STORAGE,
  PX__OBJECT_LIST_KINDS
};
enum { PX__OBJECT_LIST_LIMIT = 256, PX__CLASS_LIMIT = 256 };

typedef struct px__object_list {
  void *top;
  int64_t *live;  // the class's counter in the same thread cache; NULL before the first free
  int count;
} px__object_list;
// A thread's free lists, its calls in progress (tensor/in_use.h), and its counts of objects created
// less destroyed, by row of the class. Counts and calls are atomic: other threads read them.
typedef struct px__thread_cache {
  px__thread_slot slot;
  px__object_list pools[PX__OBJECT_LIST_KINDS];
  const struct px__tensor_use *use;  // the innermost call, or NULL
  bool waits;                        // for calls of other threads; atomic
  int64_t live[PX__CLASS_LIMIT];
} px__thread_cache;
// The calling thread's; NULL before the first use and while the thread ends.
extern _Thread_local PX__HIDDEN_THREAD px__thread_cache *px__thread_cache_here;
// The same, made on first use; NULL without memory and while the thread ends.
px__thread_cache *px__thread_cache_take(void);
// The caches of all threads: a list that never shrinks.
px__thread_cache *px__thread_caches(void);

// Destroys an object without putting it on a list.
void px__object_destroy(enum px__object_list_kind kind, void *object);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PX__OBJECT_LISTS_ON 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PX__OBJECT_LISTS_ON 0
#endif
#endif
#ifndef PX__OBJECT_LISTS_ON
#define PX__OBJECT_LISTS_ON 1
#endif

static inline void px__live_add(int64_t *live, int by) {
  __atomic_store_n(live, *live + by, __ATOMIC_RELAXED);
}

// Returns a freed object of the kind with one reference, otherwise unchanged; or NULL. `here` is
// px__thread_cache_here, loaded once by callers of several functions.
static inline void *px__object_list_pop(px__thread_cache *here, enum px__object_list_kind kind) {
  if (!PX__OBJECT_LISTS_ON || PX_UNLIKELY(!here || !here->pools[kind].top) || px__faults())
    return NULL;
  px__object_list *pool = &here->pools[kind];
  px_object *object = pool->top;
  pool->top = *(void **)object;
  pool->count--;
  px__live_add(pool->live, 1);
  __atomic_store_n(&object->refs, 1, __ATOMIC_RELAXED);
  return object;
}

// Destroys an object and puts it on the list.
static inline void px__object_list_push(px__thread_cache *here, enum px__object_list_kind kind,
                                        void *object) {
  px__object_list *pool = here ? &here->pools[kind] : NULL;
  if (!PX__OBJECT_LISTS_ON ||
      PX_UNLIKELY(!pool || !pool->live || pool->count >= PX__OBJECT_LIST_LIMIT)) {
    px__object_destroy(kind, object);
    return;
  }
  px__live_add(pool->live, -1);
  *(void **)object = pool->top;
  pool->top = object;
  pool->count++;
}
