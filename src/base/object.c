// SPDX-License-Identifier: Apache-2.0
// Counted objects, and how many of each class are alive.
#include "base/base_impl.h"

enum { CLASS_LIMIT = 64 };
// One row a class, found by its address; rows are only added. Guarded by row_lock on adding.
static struct {
  const px_class *cls;
  int64_t live;  // atomic
} rows[CLASS_LIMIT];
static pthread_mutex_t row_lock = PTHREAD_MUTEX_INITIALIZER;

static __attribute__((noinline)) int64_t *find_live(const px_class *cls, unsigned start) {
  for (unsigned k = 0; k < CLASS_LIMIT; k++) {
    unsigned i = (start + k) % CLASS_LIMIT;
    const px_class *seen = __atomic_load_n(&rows[i].cls, __ATOMIC_ACQUIRE);
    if (seen == cls) return &rows[i].live;
    if (seen) continue;
    pthread_mutex_lock(&row_lock);
    if (!rows[i].cls) __atomic_store_n(&rows[i].cls, cls, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&row_lock);
    if (rows[i].cls == cls) return &rows[i].live;
  }
  return &rows[CLASS_LIMIT - 1].live;  // more classes than rows: the last row is shared
}

static inline int64_t *live_of(const px_class *cls) {
  unsigned start = (unsigned)((uintptr_t)cls / sizeof *cls) % CLASS_LIMIT;
  bool there = __atomic_load_n(&rows[start].cls, __ATOMIC_RELAXED) == cls;
  return PX_LIKELY(there) ? &rows[start].live : find_live(cls, start);
}

void px__object_init(void *object, const px_class *cls) {
  px_object *head = object;
  head->cls = cls;
  __atomic_store_n(&head->refs, 1, __ATOMIC_RELAXED);
  __atomic_add_fetch(live_of(cls), 1, __ATOMIC_RELAXED);
}

void px__object_end(void *object) {
  __atomic_sub_fetch(live_of(((px_object *)object)->cls), 1, __ATOMIC_RELAXED);
}

void px_object_init(void *object, const px_class *cls) { px__object_init(object, cls); }
void px_object_end(void *object) { px__object_end(object); }

void *px_retain(const void *object) {
  px_object *head = (px_object *)object;
  if (head) __atomic_add_fetch(&head->refs, 1, __ATOMIC_RELAXED);
  return head;
}

void px_release(void *object) {
  px_object *head = object;
  // A count of one is ours alone: nobody else can add to it, so no atomic subtraction is due.
  if (!head) return;
  if (__atomic_load_n(&head->refs, __ATOMIC_ACQUIRE) != 1 &&
      __atomic_sub_fetch(&head->refs, 1, __ATOMIC_ACQ_REL) != 0)
    return;
  head->cls->destroy(head);
}

int32_t px_refs(const void *object) {
  return object ? __atomic_load_n(&((const px_object *)object)->refs, __ATOMIC_RELAXED) : 0;
}

void px_release_at(void *place) { px_release(*(void **)place); }

void *px_move_at(void *place) {
  void *object = *(void **)place;
  *(void **)place = NULL;
  return object;
}

int64_t px_live_objects(const char *name) {
  int64_t sum = 0;
  for (int i = 0; i < CLASS_LIMIT; i++) {
    const px_class *cls = __atomic_load_n(&rows[i].cls, __ATOMIC_ACQUIRE);
    if (cls && (!name || !strcmp(name, cls->name)))
      sum += __atomic_load_n(&rows[i].live, __ATOMIC_RELAXED);
  }
  return sum;
}
