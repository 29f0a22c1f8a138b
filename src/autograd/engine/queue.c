// SPDX-License-Identifier: Apache-2.0
// Ready nodes in a max-heap: inner backward calls first, then by descending sequence number, so the
// most recently recorded node runs first.
#include "autograd/engine/engine.h"

enum { POPS_PER_POLL = 8 };  // pops between two interrupt checks

void px__queue_init(px__queue *queue, bool alone) {
  queue->alone = alone;
  pthread_mutex_init(&queue->lock, NULL);
  pthread_cond_init(&queue->changed, NULL);
  queue->heap = NULL;
  queue->count = queue->capacity = 0;
  queue->pops = 0;
}

void px__queue_end(px__queue *queue) {
  pthread_mutex_destroy(&queue->lock);
  pthread_cond_destroy(&queue->changed);
  px_free(queue->heap);
}

static void lock(px__queue *queue) {
  if (!queue->alone) pthread_mutex_lock(&queue->lock);
}

static void unlock(px__queue *queue) {
  if (!queue->alone) pthread_mutex_unlock(&queue->lock);
}

static bool before(const px__item *a, const px__item *b) {
  return a->depth != b->depth ? a->depth > b->depth : a->sequence > b->sequence;
}

static void sift_up(px__queue *queue, int i) {
  px__item item = queue->heap[i];
  for (; i > 0 && before(&item, &queue->heap[(i - 1) / 2]); i = (i - 1) / 2)
    queue->heap[i] = queue->heap[(i - 1) / 2];
  queue->heap[i] = item;
}

static void sift_down(px__queue *queue, int i) {
  px__item item = queue->heap[i];
  for (int child = 2 * i + 1; child < queue->count; child = 2 * i + 1) {
    if (child + 1 < queue->count && before(&queue->heap[child + 1], &queue->heap[child])) child++;
    if (!before(&queue->heap[child], &item)) break;
    queue->heap[i] = queue->heap[child];
    i = child;
  }
  queue->heap[i] = item;
}

static px_status push(px__queue *queue, px__item item) {
  if (queue->count == queue->capacity) {
    int capacity = queue->capacity ? queue->capacity * 2 : 16;
    PX_TRY(px_realloc((void **)&queue->heap, (size_t)capacity * sizeof *queue->heap));
    queue->capacity = capacity;
  }
  queue->heap[queue->count++] = item;
  sift_up(queue, queue->count - 1);
  return PX_OK;
}

px_status px__queue_push(px__queue *queue, px__item item) {
  lock(queue);
  px_status status = push(queue, item);
  if (!queue->alone) pthread_cond_broadcast(&queue->changed);
  unlock(queue);
  return status;
}

static bool is_over(const px__task *until) {
  return until && __atomic_load_n(&until->outstanding, __ATOMIC_ACQUIRE) == 0;
}

static px__item take(px__queue *queue) {
  px__item first = queue->heap[0];
  queue->heap[0] = queue->heap[--queue->count];
  if (queue->count) sift_down(queue, 0);
  return first;
}

// Polls for interrupts without the lock: before each wait, and every few pops.
px_status px__queue_pop(px__queue *queue, const px__task *until, bool *found, px__item *out) {
  if (++queue->pops % POPS_PER_POLL == 0) PX_TRY(px_interrupt_poll());
  for (;;) {
    lock(queue);
    bool over = is_over(until);
    *found = queue->count > 0 && !over;
    if (*found)
      *out = take(queue);
    else if (!over)
      px_interrupt_wait(&queue->changed, &queue->lock);
    unlock(queue);
    if (*found || over) return PX_OK;
    PX_TRY(px_interrupt_poll());
  }
}

void px__queue_wake(px__queue *queue) {
  pthread_mutex_lock(&queue->lock);
  pthread_cond_broadcast(&queue->changed);
  pthread_mutex_unlock(&queue->lock);
}
