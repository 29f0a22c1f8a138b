// SPDX-License-Identifier: Apache-2.0
// Biased locks: mutual exclusion with and without an owner. A thread that takes most of the turns
// becomes the owner.
#include "device/core/biased_lock.h"

#include "test.h"

enum { OFTEN = 5000, THREADS = 3, ROUNDS = 100 };
static px__biased_lock latch;
static int64_t count;  // guarded by the lock
static bool ended;     // atomic

static void add(int times) {
  for (int i = 0; i < times; i++) {
    px__biased_lock_thread *me = px__biased_lock_enter(&latch);
    count++;
    px__biased_lock_leave(&latch, me);
  }
}
static void *add_often(void *unused) {
  add(40 * OFTEN);
  return unused;
}
static px__biased_lock_thread *owner(void) {
  return __atomic_load_n(&latch.owner, __ATOMIC_RELAXED);
}

// True if the system has the barriers required for ownership.
static bool start(void) {
  px__biased_lock_start();
  add(OFTEN);
  return owner() != NULL;
}

PX_TEST(a_frequent_user_becomes_the_owner) {
  if (!start()) SKIP("no membarrier here");
  CHECK(owner() == px__biased_lock_here);
  px__biased_lock_thread *me = px__biased_lock_enter(&latch);
  CHECK(me == px__biased_lock_here && me->held == &latch);
  px__biased_lock_leave(&latch, me);
  CHECK(!me->held && !latch.spin);
}

PX_TEST(without_membarrier_there_is_no_owner) {
  add(OFTEN);
  CHECK(!owner());
  CHECK_EQ(count, OFTEN);
}

PX_TEST(another_thread_revokes_the_ownership) {
  pthread_t other;
  if (!start()) SKIP("no membarrier here");
  pthread_create(&other, NULL, add_often, NULL);
  pthread_join(other, NULL);
  CHECK(owner() && owner() != px__biased_lock_here);
  add(1);
  CHECK(!owner());
  CHECK_EQ(count, 41 * OFTEN + 1);
}

// Locks as soon as there is an owner.
static void *lock_owned(void *unused) {
  while (!owner())
    ;
  add(1);
  __atomic_store_n(&ended, true, __ATOMIC_RELEASE);
  return unused;
}

PX_TEST(no_update_is_lost_during_revocation) {
  if (!start()) SKIP("no membarrier here");
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t intruder;
    int times = 0;
    latch = (px__biased_lock){0}, count = 0, ended = false;
    pthread_create(&intruder, NULL, lock_owned, NULL);
    for (; !__atomic_load_n(&ended, __ATOMIC_ACQUIRE); times++) add(1);
    pthread_join(intruder, NULL);
    CHECK_EQ(count, times + 1);
  }
}

PX_TEST(concurrent_threads_count_exactly) {
  pthread_t thread[THREADS];
  start();
  for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, add_often, NULL);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  CHECK_EQ(count, (40 * THREADS + 1) * OFTEN);
}
