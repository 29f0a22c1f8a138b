// SPDX-License-Identifier: Apache-2.0
// Free lists of the hot objects, one set a thread: a tensor costs no malloc in the steady state.
//
// Memory released on another thread joins that thread's list; lists are short, and emptied when
// their thread ends. While faults are armed nothing is served from a list, so that the n-th
// allocation means the same on every run. Under AddressSanitizer the lists are off.
#pragma once
#include "base/base_impl.h"

enum px__pool_kind { PX__POOL_TENSOR, PX__POOL_STORAGE, PX__POOL_KINDS };
enum { PX__POOL_LIMIT = 256 };

typedef struct px__pools {
  void *top[PX__POOL_KINDS];  // linked through the first word
  int16_t count[PX__POOL_KINDS];
  int8_t state;  // 0 before first use, 1 open, 2 closed: the thread is ending
} px__pools;
// Small and reached on every op.
extern _Thread_local px__pools px__pool_here;

// Registers the thread's lists for emptying at its end; false if that is not possible.
bool px__pool_open(void);

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

// Gives memory of the kind, its contents undefined, or NULL: the caller then allocates.
static inline void *px__pool_take(enum px__pool_kind kind) {
  px__pools *pools = &px__pool_here;
  void *memory = pools->top[kind];
  if (!PX__POOL_ON || !memory || __atomic_load_n(&px__fault_armed, __ATOMIC_RELAXED)) return NULL;
  pools->top[kind] = *(void **)memory;
  pools->count[kind]--;
  return memory;
}

static inline void px__pool_give(enum px__pool_kind kind, void *memory) {
  px__pools *pools = &px__pool_here;
  bool room = PX__POOL_ON && pools->count[kind] < PX__POOL_LIMIT &&
              (PX_LIKELY(pools->state == 1) || px__pool_open());
  if (!room) {
    px__free(memory);
    return;
  }
  *(void **)memory = pools->top[kind];
  pools->top[kind] = memory;
  pools->count[kind]++;
}
