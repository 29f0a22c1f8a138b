// SPDX-License-Identifier: Apache-2.0
// Biased locks: the slow path of threads other than the owner.
//
// The barrier takes some microseconds. A thread must therefore take a lock a thousand times in a
// row to become its owner, and more often after each revocation: the requirement doubles.
#include "device/core/biased_lock.h"

enum { MIN_STREAK = 1 << 10, MAX_STREAK = 1 << 24 };
_Thread_local px__biased_lock_thread *px__biased_lock_here;
static px__thread_slot *threads;  // atomic; never removed
static bool started;              // atomic

// ---- thread slots
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_exit;
static bool have_key;

static void thread_exit(void *self) {
  px__biased_lock_here = NULL;
  px__thread_slot_release(&((px__biased_lock_thread *)self)->slot);
}
static void make_key(void) { have_key = pthread_key_create(&at_exit, thread_exit) == 0; }

// Returns the calling thread's record; NULL without memory.
static px__biased_lock_thread *here(void) {
  if (px__biased_lock_here) return px__biased_lock_here;
  pthread_once(&once, make_key);
  px__biased_lock_thread *t = have_key ? px__thread_slot_take(&threads, sizeof *t) : NULL;
  if (t && pthread_setspecific(at_exit, t)) px__thread_slot_release(&t->slot), t = NULL;
  return px__biased_lock_here = t;
}

// ---- ownership
void px__biased_lock_start(void) { __atomic_store_n(&started, true, __ATOMIC_RELAXED); }

// After the barrier either this thread sees the owner's writes, or the owner sees this thread's.
static void revoke_owner(px__biased_lock *l, const px__biased_lock_thread *owner) {
  __atomic_store_n(&l->owner, NULL, __ATOMIC_RELEASE);
  px__process_barrier();
  while (__atomic_load_n(&owner->held, __ATOMIC_ACQUIRE) == l)
    ;
  l->extra_streak = l->extra_streak < MAX_STREAK ? 2 * l->extra_streak + MIN_STREAK : MAX_STREAK;
}

void px__biased_lock_enter_shared(px__biased_lock *l) {
  px_spin_lock(&l->spin);
  const px__biased_lock_thread *owner = __atomic_load_n(&l->owner, __ATOMIC_RELAXED);
  if (owner) revoke_owner(l, owner);
  if (!pthread_equal(l->last_thread, pthread_self())) {
    l->last_thread = pthread_self(), l->streak = 0;
  } else if (++l->streak >= MIN_STREAK + l->extra_streak &&
             __atomic_load_n(&started, __ATOMIC_RELAXED) && px__process_barrier_available()) {
    l->streak = 0;
    __atomic_store_n(&l->owner, here(), __ATOMIC_RELEASE);
  }
}
