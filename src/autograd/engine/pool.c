// SPDX-License-Identifier: Apache-2.0
// Memory of nodes and gradient states: per-thread free lists of a few sizes. Each recorded op needs
// two objects. A block may be freed on another thread than the one that allocated it.
#include "autograd/engine/graph.h"

#include <stdlib.h>

enum { STEP = 128, CLASSES = 8, KEEP = 2048 };  // 128-byte size classes; blocks kept per class

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { POOLED = 0 };  // lets sanitizers detect use after free
#else
enum { POOLED = 1 };
#endif

typedef struct free_block {
  struct free_block *next;
} free_block;
typedef struct thread_lists {
  free_block *first[CLASSES];
  int count[CLASSES];
} thread_lists;

static _Thread_local thread_lists *free_lists;  // created when the thread frees its first block
static pthread_key_t at_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_key;

static void end(void *self) {
  thread_lists *lists = self;
  free_lists = NULL;
  for (int c = 0; c < CLASSES; c++)
    while (lists->first[c]) {
      free_block *block = lists->first[c];
      lists->first[c] = block->next;
      px_free(block);
    }
  free(lists);
}

static void make_key(void) { has_key = pthread_key_create(&at_exit, end) == 0; }

// Creates the thread's free lists. Without memory for them nothing is pooled.
static bool create_lists(void) {
  pthread_once(&once, make_key);
  thread_lists *fresh = has_key ? calloc(1, sizeof *fresh) : NULL;
  if (!fresh || pthread_setspecific(at_exit, fresh)) return free(fresh), false;
  free_lists = fresh;
  return true;
}

static int class_of(size_t bytes) { return bytes ? (int)((bytes - 1) / STEP) : 0; }

px_status px__pool_get(void **out, size_t bytes) {
  int c = class_of(bytes);
  if (c >= CLASSES) return px_alloc(out, bytes);
  thread_lists *lists = free_lists;
  free_block *block = lists ? lists->first[c] : NULL;
  if (!block) return px_alloc(out, (size_t)(c + 1) * STEP);
  lists->first[c] = block->next;
  lists->count[c]--;
  *out = memset(block, 0, bytes);
  return PX_OK;
}

void px__pool_put(void *memory, size_t bytes) {
  int c = class_of(bytes);
  if (!POOLED || c >= CLASSES || (!free_lists && !create_lists()) || free_lists->count[c] >= KEEP) {
    px_free(memory);
    return;
  }
  free_block *block = memory;
  block->next = free_lists->first[c];
  free_lists->first[c] = block;
  free_lists->count[c]++;
}
