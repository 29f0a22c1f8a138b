// SPDX-License-Identifier: Apache-2.0
// Buffers of kernels: a region of memory per thread, allocated with its first buffer and released
// at its end. A thread without memory for a region waits for the shared one and uses that until its
// buffers have ended. Its owner waits for pool threads only, and these have regions of their own.
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu/threads/buffer.h"
#include "cpu/threads/cache_line.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

enum {
  REGION = 1 << 20,       // bytes; kernels use 150 KiB at most, and pages are mapped on access
  GUARD = PX__CACHE_LINE  // unused bytes after a buffer, seen by the address sanitizer
};

typedef struct region {
  size_t used;
  _Alignas(PX__CACHE_LINE) char memory[REGION - PX__CACHE_LINE];
} region;
static region shared;  // owned by the holder of the lock
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local region *mine;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_exit;
static bool have_key;

static void release(void *own) {
  mine = NULL;
  ASAN_UNPOISON_MEMORY_REGION(own, sizeof(region));
  munmap(own, sizeof(region));
}
static void begin(void) { have_key = pthread_key_create(&at_exit, release) == 0; }

bool px__buffers_reserve(void) {
  if (mine) return true;
  pthread_once(&once, begin);
  if (!have_key) return false;
  region *made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return false;
  if (pthread_setspecific(at_exit, made)) return munmap(made, sizeof *made), false;
  ASAN_POISON_MEMORY_REGION(made->memory, sizeof made->memory);
  mine = made;
  return true;
}

void *px__buffer_new(size_t bytes) {
  if (__builtin_expect(!mine, 0) && !px__buffers_reserve()) {
    pthread_mutex_lock(&shared_lock);
    mine = &shared;
  }
  region *own = mine;
  char *at = own->memory + own->used;
  own->used += px__round_to_cache_line(bytes) + GUARD;
  ASAN_UNPOISON_MEMORY_REGION(at, bytes);
  return at;
}

void px__buffer_end(const void *variable) {
  char *at;
  memcpy(&at, variable, sizeof at);
  region *own = mine;
  size_t before = (size_t)(at - own->memory);
  ASAN_POISON_MEMORY_REGION(at, own->used - before);
  own->used = before;
  if (__builtin_expect(own != &shared || before, 1)) return;
  mine = NULL;
  pthread_mutex_unlock(&shared_lock);
}
