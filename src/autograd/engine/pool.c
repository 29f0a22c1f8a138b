// SPDX-License-Identifier: Apache-2.0
// Memory of nodes and gradient states, of which each recorded op needs two: each thread has free
// lists of a few sizes. A block may be freed by another thread than the one that allocated it.
#include "graph.h"

enum { STEP = 128, CLASSES = 8, KEEP = 2048 };  // blocks of 128, 256 ... 1024 bytes

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { POOLED = 0 };  // so that uses after release are seen
#else
enum { POOLED = 1 };
#endif

typedef struct px__piece {
  struct px__piece *next;
} px__piece;
typedef struct px__shelf {
  px__piece *first[CLASSES];
  int count[CLASSES];
  bool registered;
} px__shelf;

// Reached twice for every recorded op, so it takes the fast form of thread-local storage.
static _Thread_local px__shelf shelf;
static pthread_key_t at_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void clear(void *self) {
  px__shelf *mine = self;
  for (int c = 0; c < CLASSES; c++)
    while (mine->first[c]) {
      px__piece *piece = mine->first[c];
      mine->first[c] = piece->next;
      px_free(piece);
    }
  memset(mine->count, 0, sizeof mine->count);
  mine->registered = false;
}

static void make_key(void) { (void)pthread_key_create(&at_exit, clear); }

static int class_of(size_t bytes) { return bytes ? (int)((bytes - 1) / STEP) : 0; }

px_status px__pool_get(void **out, size_t bytes) {
  int c = class_of(bytes);
  if (c >= CLASSES) return px_alloc(out, bytes);
  px__piece *piece = shelf.first[c];
  if (!piece) return px_alloc(out, (size_t)(c + 1) * STEP);
  shelf.first[c] = piece->next;
  shelf.count[c]--;
  *out = memset(piece, 0, bytes);
  return PX_OK;
}

void px__pool_put(void *memory, size_t bytes) {
  int c = class_of(bytes);
  if (!POOLED || c >= CLASSES || shelf.count[c] >= KEEP) {
    px_free(memory);
    return;
  }
  if (!shelf.registered) {
    pthread_once(&once, make_key);
    if (pthread_setspecific(at_exit, &shelf) != 0) {
      px_free(memory);
      return;
    }
    shelf.registered = true;
  }
  px__piece *piece = memory;
  piece->next = shelf.first[c];
  shelf.first[c] = piece;
  shelf.count[c]++;
}
