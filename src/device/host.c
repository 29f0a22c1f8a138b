// SPDX-License-Identifier: Apache-2.0
// Memory of the CPU: head and data in one allocation, the data on a cache line of its own.
//
// Freed blocks up to 1 MiB go to free lists of the freeing thread, with four size classes for each
// power of two; a thread keeps at most KEPT_BYTES and frees all at its end. Larger blocks have huge
// pages and share one list, of up to LARGE_BYTES or a sixteenth of the machine's memory, because
// fresh pages cost more than most ops do. Under AddressSanitizer nothing is kept, so that it sees
// use after free.
#include "device/state.h"

#include <sys/mman.h>
#include <unistd.h>

enum {
  LINE = 64,
  BINS = 64,
  GREATEST_KEPT = 1 << 20,
  KEPT_BYTES = 16 << 20,
  NO_BIN = 255,
  LARGE = 64,  // blocks in the list
  LARGE_BYTES = 256 << 20,
  HUGE_PAGE = 2 << 20,
};
typedef struct keep {
  px__allocation *bins[BINS];  // linked by pub.data
  size_t bytes;
} keep;
static _Thread_local keep *kept;
static pthread_key_t kept_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static bool key_made;

#if defined(__SANITIZE_ADDRESS__)
#define KEEPS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEEPS 0
#endif
#endif
#ifndef KEEPS
#define KEEPS 1
#endif

static void *next_of(const px__allocation *allocation) { return allocation->pub.data; }

static void drop_all(void *argument) {
  keep *all = argument;
  for (int i = 0; i < BINS; i++)
    for (px__allocation *allocation = all->bins[i], *next; allocation; allocation = next) {
      next = next_of(allocation);
      free(allocation);
    }
  free(all);
  kept = NULL;
}

static void make_key(void) { key_made = pthread_key_create(&kept_key, drop_all) == 0; }

static bool keep_start(void) {
  pthread_once(&key_once, make_key);
  if (!KEEPS || !key_made) return false;
  keep *fresh = calloc(1, sizeof *fresh);  // without memory nothing is kept
  if (!fresh || pthread_setspecific(kept_key, fresh)) return free(fresh), false;
  kept = fresh;
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
  // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): bin is that of a allocation
  return (((size_t)4 + bin % 4 + 1) << (top - 2)) * LINE;
}

// ---- large blocks
static pthread_mutex_t large_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  void *memory[LARGE];
  size_t room[LARGE], bytes;
  int count;
} large;  // guarded by large_lock, which nobody waits for

// The size of a large allocation with its head: eight size classes for each power of two.
static size_t large_room(size_t bytes) {
  size_t all = bytes + LINE;
  size_t step = (size_t)1 << (60 - __builtin_clzll(all));
  return (all + step - 1) / step * step;
}

static void *large_take(size_t room) {
  void *memory = NULL;
  if (pthread_mutex_trylock(&large_lock)) return NULL;
  for (int i = large.count - 1; i >= 0 && !memory; i--) {
    if (large.room[i] != room) continue;
    memory = large.memory[i];
    large.bytes -= room;
    large.count--;
    large.memory[i] = large.memory[large.count], large.room[i] = large.room[large.count];
  }
  pthread_mutex_unlock(&large_lock);
  return memory;
}

static size_t large_limit(void) {
  static size_t limit;  // atomic; 0 until asked
  size_t known = __atomic_load_n(&limit, __ATOMIC_RELAXED);
  if (known) return known;
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  known = pages > 0 && page > 0 ? (size_t)pages / 16 * (size_t)page : 0;
  known = known < LARGE_BYTES ? known + 1 : LARGE_BYTES;
  __atomic_store_n(&limit, known, __ATOMIC_RELAXED);
  return known;
}

static bool large_keep(void *memory, size_t room) {
  if (!KEEPS || pthread_mutex_trylock(&large_lock)) return false;
  bool fits = large.count < LARGE && large.bytes + room <= large_limit();
  if (fits) {
    large.memory[large.count] = memory, large.room[large.count++] = room;
    large.bytes += room;
  }
  pthread_mutex_unlock(&large_lock);
  return fits;
}

static void large_drop(void) {
  if (pthread_mutex_trylock(&large_lock)) return;
  while (large.count) free(large.memory[--large.count]);
  large.bytes = 0;
  pthread_mutex_unlock(&large_lock);
}

static void *large_new(size_t room) {
  void *memory = large_take(room);
  bool huge = room >= 2 * HUGE_PAGE;
  size_t line = huge ? HUGE_PAGE : LINE;
  if (memory) return memory;
  if (posix_memalign(&memory, line, room)) {
    large_drop();
    if (posix_memalign(&memory, line, room)) return NULL;
  }
  if (huge) (void)madvise(memory, room / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
  return memory;
}

static px_status no_memory(size_t bytes) {
  PX_TRY(px__fault_begin());  // PHLOX_FAULT may be what is wrong
  PX_FAIL(PX_NOMEM,
          "DefaultCPUAllocator: can't allocate memory: you tried to allocate %zu bytes. Error "
          "code 12 (Cannot allocate memory)",
          bytes);
}

static px_status take_fresh(px__allocation **out, size_t bytes, unsigned bin) {
  void *memory = NULL;
  bool fits = bytes < (size_t)PTRDIFF_MAX / 2;
  if (fits && bin == NO_BIN)
    memory = large_new(large_room(bytes));
  else if (!fits || posix_memalign(&memory, LINE, LINE + bin_bytes(bin)))
    memory = NULL;
  if (!memory) return no_memory(bytes);
  *out = memory;
  return PX_OK;
}

px_status px__host_new(px_allocation **out, size_t bytes) {
  unsigned bin = bytes == 0 ? 0 : bytes <= GREATEST_KEPT ? bin_of(bytes) : NO_BIN;
  px__allocation *allocation = KEEPS && kept && bin != NO_BIN ? kept->bins[bin] : NULL;
  if (px__fault(PX__FAULT_ALLOC)) return no_memory(bytes);
  if (PX_LIKELY(allocation != NULL)) {
    kept->bins[bin] = next_of(allocation);
    kept->bytes -= bin_bytes(bin);
  } else {
    PX_TRY(take_fresh(&allocation, bytes, bin));
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
    if (!large_keep(allocation, large_room(pub->bytes))) free(allocation);
    return;
  }
  if (!KEEPS || (!kept && !keep_start()) || kept->bytes + bin_bytes(bin) > KEPT_BYTES) {
    free(allocation);
    return;
  }
  kept->bytes += bin_bytes(bin);
  allocation->pub.data = kept->bins[bin];
  kept->bins[bin] = allocation;
}
