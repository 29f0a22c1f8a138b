// SPDX-License-Identifier: Apache-2.0
// A lock that one thread takes nearly always, for which it then costs no locked instruction.
//
// A latch has an owner, or none. The owner says that it is inside, and looks then whether it still
// is the owner. Others take `spin`; the first of them takes the ownership away, has the system put
// a barrier into all threads that run, and waits until the owner is outside. A thread becomes the
// owner when it has taken the latch often enough with nobody else between. Who is inside says so in
// a place of its thread's: one that is late to learn that it owns the latch no more must not undo
// what the next owner says. A thread is inside of one latch at a time.
#pragma once
#include "base/base_impl.h"

#include <pthread.h>

typedef struct px__biased_lock px__biased_lock;
typedef struct px__biased_lock_thread {
  px__thread_slot slot;
  px__biased_lock *inside;  // atomic: of which latch the thread is inside as its owner, or may be
} px__biased_lock_thread;
struct px__biased_lock {
  px__biased_lock_thread *owner;  // atomic, or NULL; written with `spin`
  uint8_t spin;
  // With `spin`: which thread took the latch last, how often in turn, and how often is enough, less
  // what always is.
  uint32_t turns, reluctance;
  pthread_t latest;
};

static inline void px__spin_acquire(uint8_t *spin) {
  while (__atomic_test_and_set(spin, __ATOMIC_ACQUIRE))
    ;
}
static inline void px__spin_release(uint8_t *spin) { __atomic_clear(spin, __ATOMIC_RELEASE); }

// latch.c. start: from here on latches may have owners, if the system has such barriers.
// here: NULL: the thread has owned no latch.
extern _Thread_local PX__HIDDEN_THREAD px__biased_lock_thread *px__biased_lock_here;
void px__biased_lock_start(void);
void px__biased_lock_enter_shared(px__biased_lock *latch);

// Whether the calling thread, which is px__biased_lock_here, owns the latch, and so is inside now.
static inline bool px__biased_lock_try(px__biased_lock *l, px__biased_lock_thread *me) {
  if (PX_UNLIKELY(!me || __atomic_load_n(&l->owner, __ATOMIC_RELAXED) != me)) return false;
  __atomic_store_n(&me->inside, l, __ATOMIC_RELAXED);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  if (PX_LIKELY(__atomic_load_n(&l->owner, __ATOMIC_ACQUIRE) == me)) return true;
  __atomic_store_n(&me->inside, NULL, __ATOMIC_RELEASE);
  return false;
}
// Gives what px__biased_lock_leave wants: the thread, if it owns the latch.
static inline px__biased_lock_thread *px__biased_lock_enter(px__biased_lock *l) {
  px__biased_lock_thread *me = px__biased_lock_here;
  if (PX_LIKELY(px__biased_lock_try(l, me))) return me;
  px__biased_lock_enter_shared(l);
  return NULL;
}
static inline void px__biased_lock_leave(px__biased_lock *l, px__biased_lock_thread *me) {
  if (PX_LIKELY(me != NULL))
    __atomic_store_n(&me->inside, NULL, __ATOMIC_RELEASE);
  else
    px__spin_release(&l->spin);
}
