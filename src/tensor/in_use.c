// SPDX-License-Identifier: Apache-2.0
// Changes of tensors that calls of other threads may use.
#include "tensor/in_use.h"

#include <time.h>

// Microseconds between two looks; seconds of waiting; looks at a thread that may wait for this one.
enum { TURN = 50, LONGEST = 10, LOOKS = 100 };

bool (*px__op_uses)(const px__use *use, const px_tensor *t, const px_storage *storage);
const px__thread_cache *px__changing;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

void px__change_wait(void) {
  if (__atomic_load_n(&px__changing, __ATOMIC_RELAXED) == px__thread_cache_here) return;
  pthread_mutex_lock(&changing);
  pthread_mutex_unlock(&changing);
}

void px__use_begin_rest(px__use *use, const px_tensor *t, const px_storage *storage) {
  *use = (px__use){.one = t, .count = t != NULL, .tensors = &use->one, .storage = storage};
  px__use_begin(use);
}

static bool uses(const px__use *use, const px_tensor *t, const px_storage *storage) {
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
    const px__use *use = is_other(c) ? __atomic_load_n(&c->use, __ATOMIC_ACQUIRE) : NULL;
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

static bool try_storage(px_storage *storage) {
  return !__atomic_exchange_n(&storage->changing, true, __ATOMIC_ACQUIRE);
}

static px_status wait_turns(const px_tensor *t, px_storage *storage, bool change) {
  const struct timespec pause = {.tv_nsec = TURN * 1000};
  int looks = 0;
  for (int turn = 0; turn < LONGEST * 1000000 / TURN && looks < LOOKS; turn++) {
    bool waits = false;
    if (change ? try_change(t, storage, &waits) : try_storage(storage)) return PX_OK;
    looks = waits ? looks + 1 : 0;
    PX_TRY(px_interrupt_poll());
    nanosleep(&pause, NULL);
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
  if (px__single_threaded() || !px__thread_cache_take()) return PX_OK;
  PX_TRY(wait_marked(t, storage, true));
  out->locked = true;
  return PX_OK;
}

px_status px__storage_lock(px_storage *storage) { return wait_marked(NULL, storage, false); }
void px__storage_unlock(px_storage *storage) {
  __atomic_store_n(&storage->changing, false, __ATOMIC_RELEASE);
}

void px__change_end(const px__change *change) {
  if (change->locked) unlock();
}
