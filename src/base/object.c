// SPDX-License-Identifier: Apache-2.0
// Reference-counted objects, and the number of live objects per class.
//
// Each thread counts the objects it creates and destroys in its own counters, without locked
// instructions. Only the sum over all threads is meaningful. Counters of ended threads are reused
// by later ones and never freed.
//
// Reference counts are atomic, but without locked instructions while the process has one thread. A
// locked instruction costs as much as ten others, and a view of a tensor updates four counts.
#include "base/pool.h"

// A hash table by address, with linear probing. Rows are never emptied.
static const px_class *classes[PX__CLASS_LIMIT];  // atomic

static px__thread_cache shared = {.slot.taken = true};  // for threads without one; written by any
static px__thread_slot *thread_caches = &shared.slot;   // atomic; never removed
_Thread_local px__thread_cache *px__thread_cache_here;
static _Thread_local bool ending;  // the thread is ending and has released its cache

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_exit;
static bool have_key;

static void empty(px__object_list *pool) {
  for (void *object = pool->top, *next; object; object = next) {
    next = *(void **)object;
    px__free(object);
  }
  pool->top = NULL, pool->count = 0;
}

static void thread_exit(void *self) {
  px__thread_cache *t = self;
  px__thread_cache_here = NULL, ending = true;
  for (int kind = 0; kind < PX__OBJECT_LIST_KINDS; kind++) empty(&t->pools[kind]);
  px__thread_slot_release(&t->slot);
}

static void make_key(void) { have_key = pthread_key_create(&at_exit, thread_exit) == 0; }

// Threads without a cache (no memory, or ending) use the shared one. The fence orders the slot
// before the thread's first call, for readers of all slots.
px__thread_cache *px__thread_cache_take(void) {
  if (px__thread_cache_here) return px__thread_cache_here;
  pthread_once(&once, make_key);
  if (ending || !have_key) return NULL;
  px__thread_cache *t = px__thread_slot_take(&thread_caches, sizeof *t);
  if (t && pthread_setspecific(at_exit, t)) px__thread_slot_release(&t->slot), t = NULL;
#ifdef __SANITIZE_THREAD__  // it does not know fences
  if (t) (void)__atomic_exchange_n(&t->waits, false, __ATOMIC_SEQ_CST);
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
  return px__thread_cache_here = t;
}

px__thread_cache *px__thread_caches(void) {
  return (px__thread_cache *)__atomic_load_n(&thread_caches, __ATOMIC_ACQUIRE);
}

static int first_row(const px_class *cls) {
  return (int)((uintptr_t)cls / sizeof *cls % PX__CLASS_LIMIT);
}

// With more classes than rows, the last row probed is shared.
static int find_row(const px_class *cls) {
  int row = first_row(cls);
  for (int k = 0; k < PX__CLASS_LIMIT; k++) {
    const px_class *seen = NULL;
    row = (first_row(cls) + k) % PX__CLASS_LIMIT;
    if (__atomic_compare_exchange_n(&classes[row], &seen, cls, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED) ||
        seen == cls)
      break;
  }
  return row;
}

static __attribute__((noinline)) void count_slowly(const px_class *cls, int by) {
  px__thread_cache *mine = px__thread_cache_take();
  int64_t *live = &(mine ? mine : &shared)->live[find_row(cls)];
  if (mine)
    px__live_add(live, by);
  else
    __atomic_add_fetch(live, by, __ATOMIC_RELAXED);
}

static inline void count(const px_class *cls, int by) {
  px__thread_cache *own = px__thread_cache_here;
  int row = first_row(cls);
  if (PX_UNLIKELY(!own || __atomic_load_n(&classes[row], __ATOMIC_RELAXED) != cls))
    count_slowly(cls, by);
  else
    px__live_add(&own->live[row], by);
}

void px__object_init(void *object, const px_class *cls) {
  px_object *head = object;
  head->cls = cls;
  __atomic_store_n(&head->refs, 1, __ATOMIC_RELAXED);
  count(cls, 1);
}

void px__object_end(void *object) { count(((px_object *)object)->cls, -1); }

void px__object_destroy(enum px__object_list_kind kind, void *object) {
  px__thread_cache *mine = px__thread_cache_here;
  px__object_end(object);
  if (mine) mine->pools[kind].live = &mine->live[find_row(((px_object *)object)->cls)];
  px__free(object);
}

void px_object_init(void *object, const px_class *cls) { px__object_init(object, cls); }
void px_object_end(void *object) { px__object_end(object); }

// Returns the new number of references. Threads started later see earlier plain writes.
static inline int32_t add_refs(px_object *head, int by) {
  if (!PX_SINGLE_THREADED) return __atomic_add_fetch(&head->refs, by, __ATOMIC_ACQ_REL);
  int32_t refs = __atomic_load_n(&head->refs, __ATOMIC_RELAXED) + by;
  __atomic_store_n(&head->refs, refs, __ATOMIC_RELAXED);
  return refs;
}

void *px_retain(const void *object) {
  px_object *head = (px_object *)object;
  if (head) (void)add_refs(head, 1);
  return head;
}

void px_release(void *object) {
  px_object *head = object;
  // A single reference is the caller's: no thread can add one, so no atomic subtraction is needed.
  if (!head) return;
  if (__atomic_load_n(&head->refs, __ATOMIC_ACQUIRE) != 1 && add_refs(head, -1) != 0) return;
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
  for (int row = 0; row < PX__CLASS_LIMIT; row++) {
    const px_class *cls = __atomic_load_n(&classes[row], __ATOMIC_RELAXED);
    if (!cls || (name && strcmp(name, cls->name))) continue;
    for (px__thread_slot *s = __atomic_load_n(&thread_caches, __ATOMIC_ACQUIRE); s; s = s->next)
      sum += __atomic_load_n(&((px__thread_cache *)s)->live[row], __ATOMIC_RELAXED);
  }
  return sum;
}
