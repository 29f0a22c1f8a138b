// SPDX-License-Identifier: Apache-2.0
// CPU memory: header and data in one malloc block, the data starting on its own cache line.
//
// Freed allocations up to 1 MiB go to free lists of the freeing thread, with four size classes per
// power of two. A thread caches at most CACHE_BYTES, and frees all at its end. Larger ones have
// huge pages and share one list of at most LARGE_BYTES, or 1/16 of the host's memory if that is
// less: fresh pages cost more than most ops. Nothing is cached under AddressSanitizer, so that it
// detects use after free.
#include "device/memory/memory.h"

#include <sys/mman.h>
#include <unistd.h>

enum {
  LINE = 64,  // bytes of a cache line
  BINS = 64,
  MAX_CACHED = 1 << 20,  // bytes of the largest allocation cached per thread
  CACHE_BYTES = 16 << 20,
  NO_BIN = 255,
  LARGE_COUNT = 64,  // entries of the shared list
  LARGE_BYTES = 256 << 20,
  HUGE_PAGE = 2 << 20,
};
typedef struct thread_cache {
  px__allocation *bins[BINS];  // linked by pub.data
  size_t bytes;
} thread_cache;
static _Thread_local thread_cache *cache;
static pthread_key_t cache_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static bool key_made;

#if defined(__SANITIZE_ADDRESS__)
#define CACHING 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CACHING 0
#endif
#endif
#ifndef CACHING
#define CACHING 1
#endif

static void *next_of(const px__allocation *allocation) { return allocation->pub.data; }

static void drop_all(void *argument) {
  thread_cache *all = argument;
  for (int i = 0; i < BINS; i++)
    for (px__allocation *allocation = all->bins[i], *next; allocation; allocation = next) {
      next = next_of(allocation);
      free(allocation);
    }
  free(all);
  cache = NULL;
}

static void make_key(void) { key_made = pthread_key_create(&cache_key, drop_all) == 0; }

static bool cache_start(void) {
  pthread_once(&key_once, make_key);
  if (!CACHING || !key_made) return false;
  thread_cache *fresh = calloc(1, sizeof *fresh);  // without memory nothing is cached
  if (!fresh || pthread_setspecific(cache_key, fresh)) return free(fresh), false;
  cache = fresh;
  return true;
}

// Sizes in lines: 1 2 3 4 | 5 6 7 8 | 10 12 14 16 | 20 24 ...
static unsigned bin_of(size_t bytes) {
  size_t lines = (bytes + LINE - 1) / LINE;
  if (lines <= 4) return (unsigned)lines - 1;
  unsigned top = 63 - (unsigned)__builtin_clzll(lines - 1);  // 2^top < lines <= 2^(top+1)
  return (top - 1) * 4 + (unsigned)(((lines - 1) >> (top - 2)) & 3);
}
static size_t bin_bytes(unsigned bin) {
  if (bin < 4) return (bin + 1) * LINE;
  unsigned top = bin / 4 + 1;
  // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): bin is an allocation's bin
  return (((size_t)4 + bin % 4 + 1) << (top - 2)) * LINE;
}

// ---- large allocations
static pthread_mutex_t large_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  void *memory[LARGE_COUNT];
  size_t size[LARGE_COUNT], bytes;
  int count;
} large;  // guarded by large_lock, only ever tried

// Bytes of a large allocation with its header: eight size classes per power of two.
static size_t large_size(size_t bytes) {
  size_t all = bytes + LINE;
  size_t step = (size_t)1 << (60 - __builtin_clzll(all));
  return (all + step - 1) / step * step;
}

static void *large_take(size_t size) {
  void *memory = NULL;
  if (pthread_mutex_trylock(&large_lock)) return NULL;
  for (int i = large.count - 1; i >= 0 && !memory; i--) {
    if (large.size[i] != size) continue;
    memory = large.memory[i];
    large.bytes -= size;
    large.count--;
    large.memory[i] = large.memory[large.count], large.size[i] = large.size[large.count];
  }
  pthread_mutex_unlock(&large_lock);
  return memory;
}

static size_t large_limit(void) {
  static size_t limit;  // atomic; 0 before the first call
  size_t known = __atomic_load_n(&limit, __ATOMIC_RELAXED);
  if (known) return known;
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  known = pages > 0 && page > 0 ? (size_t)pages / 16 * (size_t)page : 0;
  known = known < LARGE_BYTES ? known + 1 : LARGE_BYTES;
  __atomic_store_n(&limit, known, __ATOMIC_RELAXED);
  return known;
}

static bool large_cache(void *memory, size_t size) {
  if (!CACHING || pthread_mutex_trylock(&large_lock)) return false;
  bool fits = large.count < LARGE_COUNT && large.bytes + size <= large_limit();
  if (fits) {
    large.memory[large.count] = memory, large.size[large.count++] = size;
    large.bytes += size;
  }
  pthread_mutex_unlock(&large_lock);
  return fits;
}

static void large_release_all(void) {
  if (pthread_mutex_trylock(&large_lock)) return;
  while (large.count) free(large.memory[--large.count]);
  large.bytes = 0;
  pthread_mutex_unlock(&large_lock);
}

static void *large_new(size_t size) {
  void *memory = large_take(size);
  bool huge = size >= 2 * HUGE_PAGE;
  size_t line = huge ? HUGE_PAGE : LINE;
  if (memory) return memory;
  if (posix_memalign(&memory, line, size)) {
    large_release_all();
    if (posix_memalign(&memory, line, size)) return NULL;
  }
  if (huge) (void)madvise(memory, size / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
  return memory;
}

static px_status no_memory(size_t bytes) {
  PX_TRY(px__fault_begin());  // a bad PHLOX_FAULT fails every allocation
  PX_FAIL(PX_NOMEM,
          "DefaultCPUAllocator: can't allocate memory: you tried to allocate %zu bytes. Error "
          "code 12 (Cannot allocate memory)",
          bytes);
}

static px_status new_memory(px__allocation **out, size_t bytes, unsigned bin) {
  void *memory = NULL;
  bool fits = bytes < (size_t)PTRDIFF_MAX / 2;
  if (fits && bin == NO_BIN)
    memory = large_new(large_size(bytes));
  else if (!fits || posix_memalign(&memory, LINE, LINE + bin_bytes(bin)))
    memory = NULL;
  if (!memory) return no_memory(bytes);
  *out = memory;
  return PX_OK;
}

px_status px__host_new(px_allocation **out, size_t bytes) {
  unsigned bin = bytes == 0 ? 0 : bytes <= MAX_CACHED ? bin_of(bytes) : NO_BIN;
  px__allocation *allocation = CACHING && cache && bin != NO_BIN ? cache->bins[bin] : NULL;
  if (px__fault(PX__FAULT_ALLOC)) return no_memory(bytes);
  if (PX_LIKELY(allocation != NULL)) {
    cache->bins[bin] = next_of(allocation);
    cache->bytes -= bin_bytes(bin);
  } else {
    PX_TRY(new_memory(&allocation, bytes, bin));
  }
  *allocation = (px__allocation){.pub = {.data = bytes ? (char *)allocation + LINE : NULL,
                                         .bytes = bytes,
                                         .device = {PX_CPU, -1}},
                                 .kind = PX__HOST,
                                 .bin = (uint8_t)bin};
  *out = &allocation->pub;
  return PX_OK;
}

void px__host_free(px_allocation *pub) {
  px__allocation *allocation = px__allocation_of(pub);
  unsigned bin = allocation->bin;
  if (bin == NO_BIN) {
    if (!large_cache(allocation, large_size(pub->bytes))) free(allocation);
    return;
  }
  if (!CACHING || (!cache && !cache_start()) || cache->bytes + bin_bytes(bin) > CACHE_BYTES) {
    free(allocation);
    return;
  }
  cache->bytes += bin_bytes(bin);
  allocation->pub.data = cache->bins[bin];
  cache->bins[bin] = allocation;
}
