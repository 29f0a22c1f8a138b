// SPDX-License-Identifier: Apache-2.0
// Per-thread slots. A slot is reused after its thread has ended and is never freed, so readers of
// the list need no lock.
#include "base/base_impl.h"

void px__thread_slot_add(px__thread_slot **list, px__thread_slot *slot) {
  slot->next = __atomic_load_n(list, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(list, &slot->next, slot, true, __ATOMIC_RELEASE,
                                      __ATOMIC_RELAXED))
    ;
}

void *px__thread_slot_take(px__thread_slot **list, size_t bytes) {
  for (px__thread_slot *s = __atomic_load_n(list, __ATOMIC_ACQUIRE); s; s = s->next)
    if (!__atomic_load_n(&s->taken, __ATOMIC_RELAXED) &&
        !__atomic_exchange_n(&s->taken, true, __ATOMIC_ACQUIRE))
      return s;
  px__thread_slot *made = calloc(1, bytes);
  if (!made) return NULL;
  made->taken = true;
  px__thread_slot_add(list, made);
  return made;
}

void px__thread_slot_release(px__thread_slot *slot) {
  __atomic_store_n(&slot->taken, false, __ATOMIC_RELEASE);
}
