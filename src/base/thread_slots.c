// SPDX-License-Identifier: Apache-2.0
// Blocks that threads take, each for itself. A thread that ends leaves its block to a later one;
// none is ever freed, so that lists are read without a lock.
#include "base/base_impl.h"

void px__seat_add(px__seat **list, px__seat *seat) {
  seat->next = __atomic_load_n(list, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(list, &seat->next, seat, true, __ATOMIC_RELEASE,
                                      __ATOMIC_RELAXED))
    ;
}

void *px__seat_take(px__seat **list, size_t bytes) {
  for (px__seat *s = __atomic_load_n(list, __ATOMIC_ACQUIRE); s; s = s->next)
    if (!__atomic_load_n(&s->taken, __ATOMIC_RELAXED) &&
        !__atomic_exchange_n(&s->taken, true, __ATOMIC_ACQUIRE))
      return s;
  px__seat *made = calloc(1, bytes);
  if (!made) return NULL;
  made->taken = true;
  px__seat_add(list, made);
  return made;
}

void px__seat_leave(px__seat *seat) { __atomic_store_n(&seat->taken, false, __ATOMIC_RELEASE); }
