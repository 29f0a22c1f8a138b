// SPDX-License-Identifier: Apache-2.0
// Hooks set by the layer above around calls (phlox/extend.h).
#include <pthread.h>

#include "call/op_impl.h"

const px_op_hooks *px__hooks;

px_op_flop_callback px__flop_counter;
void px_op_set_flop_callback(px_op_flop_callback counted) {
  __atomic_store_n(&px__flop_counter, counted, __ATOMIC_RELEASE);
  px__watch(PX__WATCH_COUNTED, counted != NULL);
}

void px_op_set_hooks(const px_op_hooks *hooks) {
  px__hooks = hooks;
  px__print_suffix = hooks ? hooks->print_suffix : NULL;
}

// Per-thread write watches. They use a pthread key, because static thread-local memory is scarce
// (src/base/error.c). Threads read the key only after the first watch of any thread was set.
static pthread_key_t watch_key, hook_key;
static bool keys_ok;
bool px__writes_watched;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void make_keys(void) {
  keys_ok = pthread_key_create(&watch_key, NULL) == 0 && pthread_key_create(&hook_key, NULL) == 0;
}

px_status px_op_watch_writes(const px_write_watch *watch) {
  pthread_once(&once, make_keys);
  PX_CHECK(keys_ok && pthread_setspecific(watch_key, watch) == 0, PX_NOMEM,
           "out of memory for a thread's write watch");
  __atomic_store_n(&px__writes_watched, true, __ATOMIC_RELEASE);
  return PX_OK;
}

px_status px_op_before_write(px_tensor *written) {
  if (PX_LIKELY(!__atomic_load_n(&px__writes_watched, __ATOMIC_ACQUIRE)) || !written) return PX_OK;
  const px_write_watch *watch = pthread_getspecific(watch_key);
  return watch ? watch->seen(written, watch->context) : PX_OK;
}

// ---- dispatch hooks: keep or replace results of calls

const px_dispatch_hook *px__dispatch_hook(void) {
  pthread_once(&once, make_keys);
  return keys_ok ? pthread_getspecific(hook_key) : NULL;
}
void px__dispatch_hook_set(const px_dispatch_hook *hook) {
  (void)!pthread_setspecific(hook_key, hook);  // cannot fail: the thread has a slot already
}

px_status px_op_set_dispatch_hook(const px_dispatch_hook *hook, const px_dispatch_hook **before) {
  const px_dispatch_hook *previous = px__dispatch_hook();
  PX_CHECK(keys_ok && pthread_setspecific(hook_key, hook) == 0, PX_NOMEM,
           "out of memory for the thread's dispatch hook");
  __atomic_add_fetch(&px__special_calls, (hook != NULL) - (previous != NULL), __ATOMIC_RELAXED);
  if (before) *before = previous;
  return PX_OK;
}
