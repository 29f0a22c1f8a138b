// SPDX-License-Identifier: Apache-2.0
// The hooks that a layer above sets around calls (phlox/extend.h).
#include <pthread.h>

#include "call/op_impl.h"

const px_op_hooks *px__hooks;

px_op_flop_callback px__counted;
void px_op_set_flop_callback(px_op_flop_callback counted) {
  __atomic_store_n(&px__counted, counted, __ATOMIC_RELEASE);
  px__watch(PX__WATCH_COUNTED, counted != NULL);
}

void px_op_set_hooks(const px_op_hooks *hooks) {
  px__hooks = hooks;
  px__print_suffix = hooks ? hooks->print_suffix : NULL;
}

// The watch of each thread: a key, not thread-local memory, of which there is little
// (src/base/error.c). Threads ask for it once any thread has had one.
static pthread_key_t watch_key, keeper_key;
static bool have_keys;
bool px__watched;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void make_keys(void) {
  have_keys =
      pthread_key_create(&watch_key, NULL) == 0 && pthread_key_create(&keeper_key, NULL) == 0;
}

px_status px_op_watch_writes(const px_write_watch *watch) {
  pthread_once(&once, make_keys);
  PX_CHECK(have_keys && pthread_setspecific(watch_key, watch) == 0, PX_NOMEM,
           "there is no room for a thread's watch of writes");
  __atomic_store_n(&px__watched, true, __ATOMIC_RELEASE);
  return PX_OK;
}

px_status px_op_before_write(px_tensor *written) {
  if (PX_LIKELY(!__atomic_load_n(&px__watched, __ATOMIC_ACQUIRE)) || !written) return PX_OK;
  const px_write_watch *watch = pthread_getspecific(watch_key);
  return watch ? watch->seen(written, watch->context) : PX_OK;
}

// ---- what keeps results of calls

const px_dispatch_hook *px__keeper(void) {
  pthread_once(&once, make_keys);
  return have_keys ? pthread_getspecific(keeper_key) : NULL;
}
void px__keeper_put(const px_dispatch_hook *keeper) {
  (void)!pthread_setspecific(keeper_key, keeper);  // there is room: the thread has had one
}

px_status px_op_set_dispatch_hook(const px_dispatch_hook *hook, const px_dispatch_hook **before) {
  const px_dispatch_hook *had = px__keeper();
  PX_CHECK(have_keys && pthread_setspecific(keeper_key, hook) == 0, PX_NOMEM,
           "out of memory for the thread's dispatch hook");
  __atomic_add_fetch(&px__calls_differ, (hook != NULL) - (had != NULL), __ATOMIC_RELAXED);
  if (before) *before = had;
  return PX_OK;
}
