// SPDX-License-Identifier: Apache-2.0
// Changes of tensors that calls of other threads may use.
#include "tensor/in_use.h"

#include <time.h>
#include <unistd.h>

// Seconds of waiting; looks at a thread that may wait for this one; microseconds between looks,
// which double from the first to the last.
enum { LONGEST = 10, LOOKS = 20, FIRST = 50, LAST = 1000 };

bool (*px__op_uses)(const px__tensor_use *use, const px_tensor *t, const px_storage *storage);
const px__thread_cache *px__changing;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

void px__change_wait(void) {
  if (__atomic_load_n(&px__changing, __ATOMIC_RELAXED) == px__thread_cache_here) return;
  pthread_mutex_lock(&changing);
  pthread_mutex_unlock(&changing);
}

void px__use_begin_rest(px__tensor_use *use, const px_tensor *t, const px_storage *storage) {
  *use = (px__tensor_use){.one = t, .count = t != NULL, .tensors = &use->one, .storage = storage};
  px__use_begin(use);
}

static bool uses(const px__tensor_use *use, const px_tensor *t, const px_storage *storage) {
  if (use->op) return px__op_uses(use, t, storage);
  if (use->storage) return use->storage == storage;
  for (int i = 0; i < use->count; i++)
    if (use->tensors[i] == t || (storage && use->tensors[i]->storage == storage)) return true;
  return false;
}

static bool is_other(const px__thread_cache *cache) {
  return cache != px__thread_cache_here && __atomic_load_n(&cache->slot.taken, __ATOMIC_SEQ_CST);
}
static px__thread_cache *after(const px__thread_cache *cache) {
  return (px__thread_cache *)cache->slot.next;
}

// Returns another thread with a call in progress that uses the tensor or the storage, or NULL.
static const px__thread_cache *find_user(const px_tensor *t, const px_storage *storage) {
  for (const px__thread_cache *c = px__thread_caches(); c; c = after(c)) {
    const px__tensor_use *use = is_other(c) ? __atomic_load_n(&c->use, __ATOMIC_ACQUIRE) : NULL;
    for (; use; use = use->outer)
      if (uses(use, t, storage)) return c;
  }
  return NULL;
}

static bool is_only_caller(void) {
  for (px__thread_cache *c = px__thread_caches(); c; c = after(c))
    if (is_other(c) && c->slot.next) return false;  // the last one is the shared cache
  return true;
}

static void lock(void) {
  pthread_mutex_lock(&changing);
  __atomic_store_n(&px__changing, px__thread_cache_here, __ATOMIC_SEQ_CST);
  // Calls that do not see the flag have published their tensors.
  if (!is_only_caller()) px__process_barrier();
}
static void unlock(void) {
  __atomic_store_n(&px__changing, NULL, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&changing);
}

// A forked child has one thread: changes and calls of others are not in progress there.
static void before_fork(void) { pthread_mutex_lock(&changing); }
static void after_fork(void) { pthread_mutex_unlock(&changing); }
static void begin_child(void) {
  for (px__thread_cache *c = px__thread_caches(); c; c = after(c)) {
    if (!is_other(c) || !c->slot.next) continue;
    c->use = NULL, c->waits = false;
    px__thread_slot_release(&c->slot);
  }
  pthread_mutex_unlock(&changing);
}
static __attribute__((constructor)) void watch_forks(void) {
  pthread_atfork(before_fork, after_fork, begin_child);
}

static void set_waits(px__thread_cache *here, bool waits) {
  if (here) __atomic_store_n(&here->waits, waits, __ATOMIC_RELAXED);
}

// Takes the lock unless another thread uses the tensor. *waits: that thread waits, perhaps for this
// one.
static bool try_change(const px_tensor *t, const px_storage *storage, bool *waits) {
  lock();
  const px__thread_cache *user = find_user(t, storage);
  if (!user) return true;
  *waits = __atomic_load_n(&user->waits, __ATOMIC_RELAXED);
  unlock();
  return false;
}

// A mark of another process is that of a thread lost in a fork.
static bool try_storage(px_storage *storage) {
  int32_t here = (int32_t)getpid(), seen = 0;
  while (!__atomic_compare_exchange_n(&storage->changing, &seen, here, false, __ATOMIC_ACQUIRE,
                                      __ATOMIC_RELAXED))
    if (seen == here) return false;
  return true;
}

static int64_t microseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static px_status wait_turns(const px_tensor *t, px_storage *storage, bool change) {
  int64_t end = microseconds() + LONGEST * 1000000;
  int looks = 0;
  for (int pause = FIRST; looks < LOOKS; pause = pause < LAST ? 2 * pause : LAST) {
    bool waits = false;
    if (change ? try_change(t, storage, &waits) : try_storage(storage)) return PX_OK;
    if (microseconds() > end) break;
    looks = waits ? looks + 1 : 0;
    PX_TRY(px_interrupt_poll());
    nanosleep(&(struct timespec){.tv_nsec = pause * 1000}, NULL);
  }
  PX_CHECK(looks < LOOKS, PX_RUNTIME,
           "the memory or shape of a tensor cannot change: another thread changes it");
  PX_FAIL(PX_RUNTIME,
          "the memory or shape of a tensor cannot change: a call of another thread has used it for "
          "%d seconds",
          LONGEST);
}

static px_status wait_marked(const px_tensor *t, px_storage *storage, bool change) {
  px__thread_cache *here = px__thread_cache_take();
  set_waits(here, true);
  px_status status = wait_turns(t, storage, change);
  set_waits(here, false);
  return status;
}

px_status px__change_begin(px__change *out, const px_tensor *t, px_storage *storage) {
  out->locked = false;
  if (PX_SINGLE_THREADED || !px__thread_cache_take()) return PX_OK;
  PX_TRY(wait_marked(t, storage, true));
  out->locked = true;
  return PX_OK;
}

px_status px__storage_lock(px_storage *storage) { return wait_marked(NULL, storage, false); }
void px__storage_unlock(px_storage *storage) {
  __atomic_store_n(&storage->changing, 0, __ATOMIC_RELEASE);
}

void px__change_end(const px__change *change) {
  if (change->locked) unlock();
}
