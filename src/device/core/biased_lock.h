// SPDX-License-Identifier: Apache-2.0
// A biased lock: nearly always taken by one thread, its owner, which then needs no locked
// instruction.
//
// The owner publishes the lock in its thread slot, then checks that it is still the owner. Other
// threads take `spin`. The first of them revokes the ownership, has the system run a barrier on all
// running threads, and waits until the owner has left. A thread becomes the owner after taking the
// lock often enough in a row. The published lock is in the thread's slot, not in the lock, so a
// late ex-owner cannot clear the next owner's flag. A thread holds at most one biased lock at a
// time.
#pragma once
#include "base/base_impl.h"

#include <pthread.h>

typedef struct px__biased_lock px__biased_lock;
typedef struct px__biased_lock_thread {
  px__thread_slot slot;
  px__biased_lock *held;  // atomic: the lock that the thread holds, or tries, as its owner
} px__biased_lock_thread;
struct px__biased_lock {
  px__biased_lock_thread *owner;  // atomic; NULL: none. Written under `spin`
  uint8_t spin;
  // Under `spin`: the last thread, how often it took the lock in a row, and how many more times
  // than the minimum it takes to become the owner.
  uint32_t streak, extra_streak;
  pthread_t last_thread;
};

// start: locks may have owners from now on, if the system has such barriers.
// here: the calling thread's record; NULL if it has never owned a lock.
extern _Thread_local PX__HIDDEN_THREAD px__biased_lock_thread *px__biased_lock_here;
void px__biased_lock_start(void);
void px__biased_lock_enter_shared(px__biased_lock *latch);

// Takes the lock if the calling thread (`me`, px__biased_lock_here) owns it.
static inline bool px__biased_lock_try(px__biased_lock *l, px__biased_lock_thread *me) {
  if (PX_UNLIKELY(!me || __atomic_load_n(&l->owner, __ATOMIC_RELAXED) != me)) return false;
  __atomic_store_n(&me->held, l, __ATOMIC_RELAXED);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  if (PX_LIKELY(__atomic_load_n(&l->owner, __ATOMIC_ACQUIRE) == me)) return true;
  __atomic_store_n(&me->held, NULL, __ATOMIC_RELEASE);
  return false;
}
// Returns the argument of px__biased_lock_leave: `me` if the thread owns the lock.
static inline px__biased_lock_thread *px__biased_lock_enter(px__biased_lock *l) {
  px__biased_lock_thread *me = px__biased_lock_here;
  if (PX_LIKELY(px__biased_lock_try(l, me))) return me;
  px__biased_lock_enter_shared(l);
  return NULL;
}
static inline void px__biased_lock_leave(px__biased_lock *l, px__biased_lock_thread *me) {
  if (PX_LIKELY(me != NULL))
    __atomic_store_n(&me->held, NULL, __ATOMIC_RELEASE);
  else
    px_spin_unlock(&l->spin);
}
