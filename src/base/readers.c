// SPDX-License-Identifier: Apache-2.0
// Items retired from objects with readers.
//
// An item waits until each of the two counts was zero once after its replacement. New readers count
// themselves in counts[turn] only. The other count therefore reaches zero even if readers always
// overlap, and then the turn changes. The lock is held for walks of the list of retired items.
#include "phlox/readers.h"

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
  px_spin_lock(&self->lock);
  int awaited = take_ended(self, &ended), turn = self->turn;
  if (awaited == 1 << turn) __atomic_store_n(&self->turn, 1 - turn, __ATOMIC_RELAXED);
  px_spin_unlock(&self->lock);
  end_all(ended);
}

void px_readers_retire(px_readers *self, px_retired *item) {
  if (!self || !item || !item->end) return;
  item->awaited = 3;
  px_spin_lock(&self->lock);
  item->next = self->retired;
  PX_PUBLISH(self->retired, item);
  px_spin_unlock(&self->lock);
  px_readers_sweep(self);
}
