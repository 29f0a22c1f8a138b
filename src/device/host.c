// SPDX-License-Identifier: Apache-2.0
// Memory of the CPU: head and data in one allocation, the data on a cache line of its own.
//
// Blocks up to a mebibyte are kept for reuse in lists of the thread that frees them, four sizes a
// doubling; a thread keeps at most KEPT_BYTES and gives all back at its end. Under AddressSanitizer
// nothing is kept, so that use after free is seen.
#include "device/state.h"

enum {
  LINE = 64,
  BINS = 64,
  GREATEST_KEPT = 1 << 20,
  KEPT_BYTES = 16 << 20,
  NO_BIN = 255,
};
typedef struct keep {
  px__block *bins[BINS];  // linked by pub.data
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

static void *next_of(const px__block *block) { return block->pub.data; }

static void drop_all(void *argument) {
  keep *all = argument;
  for (int i = 0; i < BINS; i++)
    for (px__block *block = all->bins[i], *next; block; block = next) {
      next = next_of(block);
      free(block);
    }
  free(all);
  kept = NULL;
}

static void make_key(void) { key_made = pthread_key_create(&kept_key, drop_all) == 0; }

static bool keep_start(void) {
  pthread_once(&key_once, make_key);
  if (!KEEPS || !key_made) return false;
  keep *fresh = calloc(1, sizeof *fresh);  // on no memory nothing is kept
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
  return (((size_t)4 + bin % 4 + 1) << (top - 2)) * LINE;
}

static px_status take_fresh(px__block **out, size_t bytes, unsigned bin) {
  size_t room = bin == NO_BIN ? bytes : bin_bytes(bin);
  void *memory = NULL;
  bool fits = bytes < (size_t)PTRDIFF_MAX - 2 * LINE;
  if (!fits || posix_memalign(&memory, LINE, LINE + room)) memory = NULL;
  PX_CHECK(memory, PX_NOMEM,
           "DefaultCPUAllocator: can't allocate memory: you tried to allocate %zu bytes. Error "
           "code 12 (Cannot allocate memory)",
           bytes);
  *out = memory;
  return PX_OK;
}

px_status px__host_new(px_block **out, size_t bytes) {
  unsigned bin = bytes == 0 ? 0 : bytes <= GREATEST_KEPT ? bin_of(bytes) : NO_BIN;
  px__block *block = KEEPS && kept && bin != NO_BIN ? kept->bins[bin] : NULL;
  if (px__fault(PX__FAULT_ALLOC))
    PX_FAIL(PX_NOMEM,
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate %zu bytes. Error "
            "code 12 (Cannot allocate memory)",
            bytes);
  if (PX_LIKELY(block != NULL)) {
    kept->bins[bin] = next_of(block);
    kept->bytes -= bin_bytes(bin);
  } else {
    PX_TRY(take_fresh(&block, bytes, bin));
  }
  *block = (px__block){
      .pub = {.data = bytes ? (char *)block + LINE : NULL, .bytes = bytes, .device = {PX_CPU, -1}},
      .kind = PX__HOST,
      .bin = (uint8_t)bin};
  *out = &block->pub;
  return PX_OK;
}

void px__host_free(px_block *pub) {
  px__block *block = px__block_of(pub);
  unsigned bin = block->bin;
  if (!KEEPS || bin == NO_BIN || (!kept && !keep_start()) ||
      kept->bytes + bin_bytes(bin) > KEPT_BYTES) {
    free(block);
    return;
  }
  kept->bytes += bin_bytes(bin);
  block->pub.data = kept->bins[bin];
  kept->bins[bin] = block;
}
