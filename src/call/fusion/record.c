// SPDX-License-Identifier: Apache-2.0
// The life of records.
#include "call/fusion/fusion.h"

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
px__deferred *px__records_oldest;
static px__deferred *newest;
_Thread_local px__fusion px__fusion_here;
bool px__fusion_always;
int px__record_count;

void px__records_lock(void) { pthread_mutex_lock(&lock); }
void px__records_unlock(void) { pthread_mutex_unlock(&lock); }

static void link_record(px__deferred *d) {
  d->before = newest, d->after = NULL;
  *(newest ? &newest->after : &px__records_oldest) = d;
  newest = d;
  px__record_count++;
  __atomic_add_fetch(&px__special_calls, 1, __ATOMIC_RELAXED);
}

static void unlink_record(px__deferred *d) {
  *(d->before ? &d->before->after : &px__records_oldest) = d->after;
  *(d->after ? &d->after->before : &newest) = d->before;
  px__record_count--;
  __atomic_sub_fetch(&px__special_calls, 1, __ATOMIC_RELAXED);
}

px_status px__deferred_new(px__deferred **out, size_t bytes, px_device device) {
  PX_TRY(PX_NEW(out));
  (*out)->allocation.bytes = bytes, (*out)->allocation.device = device;
  px__records_lock();
  link_record(*out);
  px__records_unlock();
  return PX_OK;
}

static void drop_source(px__source *s) {
  px__source dropped = *s;
  *s = (px__source){NULL, NULL};
  px_storage *read = dropped.deferred ? dropped.deferred->storage : dropped.storage;
  if (read && !(dropped.deferred && !dropped.deferred->computed))
    px__allocation_reader_end(read->allocation);
  px_release(dropped.storage);
  if (!dropped.deferred) return;
  dropped.deferred->readers--;
  px__deferred_free(dropped.deferred);
}

void px__deferred_end_launch(px__deferred *d) {
  unlink_record(d);
  for (int i = 0; i < PX_MAX_OPERANDS; i++) drop_source(&d->sources[i]);
  px__free(d->launch);
  px_release(d->stream);
  d->launch = NULL, d->stream = NULL;
}

void px__deferred_free(px__deferred *d) {
  if (d->readers || d->pins || (d->storage && !d->computed)) return;
  if (d->computed)
    px_release(d->storage);
  else
    px__deferred_end_launch(d);
  px__free(d);
}

void px__deferred_drop(px_storage *storage) {
  px__records_lock();
  px__deferred *d = storage->deferred;
  if (d) {
    storage->deferred = NULL, storage->allocation = NULL;
    d->storage = NULL;
    px__deferred_free(d);
  }
  px__records_unlock();
}
