// SPDX-License-Identifier: Apache-2.0
// Memory of nodes and gradient states, of which each recorded op needs two: each thread has free
// lists of a few sizes. A block may be freed by another thread than the one that allocated it.
#include "autograd/engine/graph.h"

#include <stdlib.h>

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
} px__shelf;

static _Thread_local px__shelf *shelf;  // from the first piece on that the thread keeps
static pthread_key_t at_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool have_key;

static void end(void *self) {
  px__shelf *mine = self;
  shelf = NULL;
  for (int c = 0; c < CLASSES; c++)
    while (mine->first[c]) {
      px__piece *piece = mine->first[c];
      mine->first[c] = piece->next;
      px_free(piece);
    }
  free(mine);
}

static void make_key(void) { have_key = pthread_key_create(&at_exit, end) == 0; }

// Without memory nothing is kept.
static bool begin(void) {
  pthread_once(&once, make_key);
  px__shelf *fresh = have_key ? calloc(1, sizeof *fresh) : NULL;
  if (!fresh || pthread_setspecific(at_exit, fresh)) return free(fresh), false;
  shelf = fresh;
  return true;
}

static int class_of(size_t bytes) { return bytes ? (int)((bytes - 1) / STEP) : 0; }

px_status px__pool_get(void **out, size_t bytes) {
  int c = class_of(bytes);
  if (c >= CLASSES) return px_alloc(out, bytes);
  px__shelf *mine = shelf;
  px__piece *piece = mine ? mine->first[c] : NULL;
  if (!piece) return px_alloc(out, (size_t)(c + 1) * STEP);
  mine->first[c] = piece->next;
  mine->count[c]--;
  *out = memset(piece, 0, bytes);
  return PX_OK;
}

void px__pool_put(void *memory, size_t bytes) {
  int c = class_of(bytes);
  if (!POOLED || c >= CLASSES || (!shelf && !begin()) || shelf->count[c] >= KEEP) {
    px_free(memory);
    return;
  }
  px__piece *piece = memory;
  piece->next = shelf->first[c];
  shelf->first[c] = piece;
  shelf->count[c]++;
}
