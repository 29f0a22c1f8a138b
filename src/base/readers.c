// SPDX-License-Identifier: Apache-2.0
// Items retired from objects with readers.
//
// An item waits until each of the two counts was zero once after its replacement. New readers count
// themselves in counts[turn] only. The other count therefore reaches zero even if readers always
// overlap, and then the turn changes. The lock is held for walks of the list of retired items.
#include "phlox/readers.h"

#include <sched.h>

static void lock(px_readers *self) {
  while (__atomic_exchange_n(&self->lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
}
static void unlock(px_readers *self) { __atomic_store_n(&self->lock, 0, __ATOMIC_RELEASE); }

// Moves the items without readers to *ended. Returns the counts that the others await.
static int take_ended(px_readers *self, px_retired **ended) {
  int awaited = 0, idle = (PX_READ(self->counts[0]) ? 0 : 1) | (PX_READ(self->counts[1]) ? 0 : 2);
  px_retired *kept = NULL;
  for (px_retired *item = self->retired, *next; item; item = next) {
    next = item->next;
    item->awaited &= ~idle;
    awaited |= item->awaited;
    px_retired **list = item->awaited ? &kept : ended;
    item->next = *list, *list = item;
  }
  PX_PUBLISH(self->retired, kept);
  return awaited;
}

static void end_all(px_retired *ended) {
  for (px_retired *item = ended, *next; item; item = next) {
    next = item->next;
    item->end(item);
  }
}

void px_readers_sweep(px_readers *self) {
  px_retired *ended = NULL;
  lock(self);
  int awaited = take_ended(self, &ended), turn = self->turn;
  if (awaited == 1 << turn) __atomic_store_n(&self->turn, 1 - turn, __ATOMIC_RELAXED);
  unlock(self);
  end_all(ended);
}

void px_readers_retire(px_readers *self, px_retired *item) {
  if (!self || !item || !item->end) return;
  item->awaited = 3;
  lock(self);
  item->next = self->retired;
  PX_PUBLISH(self->retired, item);
  unlock(self);
  px_readers_sweep(self);
}
