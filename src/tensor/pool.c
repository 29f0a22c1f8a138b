// SPDX-License-Identifier: Apache-2.0
// Making and ending the free lists; taking from them and putting back, which is hot, is in the
// header.
#include "tensor/pool.h"

_Thread_local px__pools px__pool_here;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_exit;
static bool have_key;

static void close_lists(void *pools_) {
  px__pools *pools = pools_;
  pools->state = 2;
  for (int kind = 0; kind < PX__POOL_KINDS; kind++) {
    for (void *memory = pools->top[kind], *next; memory; memory = next) {
      next = *(void **)memory;
      px__free(memory);
    }
    pools->top[kind] = NULL;
    pools->count[kind] = 0;
  }
}

static void make_key(void) { have_key = pthread_key_create(&at_exit, close_lists) == 0; }

bool px__pool_open(void) {
  if (px__pool_here.state == 2) return false;
  pthread_once(&once, make_key);
  if (!have_key || pthread_setspecific(at_exit, &px__pool_here)) return false;
  px__pool_here.state = 1;
  return true;
}
