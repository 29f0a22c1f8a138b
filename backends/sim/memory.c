// SPDX-License-Identifier: Apache-2.0
// Memory of the simulated devices: address ranges, raw allocations, page-locked host memory.
//
// A device's own addresses span twice its memory, so allocation fails only when the memory is used
// up. Then follow four times its memory for pages (pages.c) and twice for memory of other processes
// (foreign.c). Addresses are chosen first fit between live allocations. Released memory is returned
// to the system or, in tests, filled with a pattern.
#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GRAIN = 512 };  // bytes: alignment of allocations

uintptr_t px__sim_in_page(void) { return (uintptr_t)sysconf(_SC_PAGESIZE) - 1; }

// ---- addresses

// Reserves addresses and maps the first bytes of a file at their start. All are inaccessible.
static void *reserve(size_t span, int file, size_t bytes) {
  void *at = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return at;
  int flags = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
  if (mmap(at, bytes, PROT_NONE, flags, file, 0) == at) return at;
  munmap(at, span);
  return MAP_FAILED;
}

px_status px__sim_map(int device) {
  px__sim_device *d = &px__sim.device[device];
  size_t own = 2 * px__sim.memory, paged = PX__SIM_PAGED * px__sim.memory + PX__SIM_PAGE;
  size_t bytes = own + paged, span = bytes + own;
  int file = memfd_create("phlox-sim", MFD_CLOEXEC);
  void *user = MAP_FAILED, *work = MAP_FAILED;
  if (file >= 0 && !ftruncate(file, (off_t)bytes)) {
    user = reserve(span, file, bytes);
    work = reserve(span, file, bytes);
  }
  if (user == MAP_FAILED || work == MAP_FAILED) {
    if (file >= 0) close(file);
    if (user != MAP_FAILED) munmap(user, span);
    if (work != MAP_FAILED) munmap(work, span);
    PX__SIM_FAIL(PX_NOMEM, 0, "cannot map %zu bytes of addresses for simulated device %d", span,
                 device);
  }
  px__sim_lock();
  d->file = file;
  d->base = (uintptr_t)user;
  d->paged = d->base + own;
  d->foreign = d->base + bytes;
  d->delta = (intptr_t)((uintptr_t)work - (uintptr_t)user);
  d->span = span;
  __atomic_store_n(&d->open, true, __ATOMIC_RELEASE);
  px__sim_explain();
  px__sim_unlock();
  // cppcheck-suppress memleak ; kept as base + delta
  return PX_OK;
}

void *px__sim_peek(int device, void *memory) {
  px__sim_lock();
  px__sim_device *d = &px__sim.device[device];
  bool mine = d->open && (uintptr_t)memory - d->base < d->span;
  void *found = mine ? (char *)memory + d->delta : NULL;
  px__sim_unlock();
  return found;
}

int px__sim_memory_device(const void *memory) {
  px__sim_lock();
  int device = px__sim_owner((uintptr_t)memory);
  px__sim_unlock();
  return device;
}

// ---- device memory

// Fills memory with a pattern chosen by the seed: NaN, a huge number, or a plausible wrong one.
static void poison(const px__sim_device *d, uintptr_t at, size_t bytes) {
  static const unsigned char patterns[] = {0xff, 0x7f, 0xcb, 0xa5};
  memset((void *)(at + (uintptr_t)d->delta), patterns[px__sim.seed % sizeof patterns], bytes);
}

bool px__sim_back(const px__sim_device *d, uintptr_t at, size_t bytes) {
  uintptr_t mask = px__sim_in_page(), first = at & ~mask, last = (at + bytes + mask) & ~mask;
  return !mprotect((void *)(first + (uintptr_t)d->delta), last - first, PROT_READ | PROT_WRITE);
}

// Returns whole pages to the system; they read as zero when used again.
static void punch(const px__sim_device *d, uintptr_t at, size_t bytes) {
  uintptr_t mask = px__sim_in_page(), first = (at + mask) & ~mask, last = (at + bytes) & ~mask;
  if (first >= last) return;
  madvise((void *)(first + (uintptr_t)d->delta), last - first, MADV_REMOVE);
  mprotect((void *)(first + (uintptr_t)d->delta), last - first, PROT_NONE);
}

void px__sim_blank(const px__sim_device *d, uintptr_t at, size_t bytes, bool taken) {
  if (px__sim.poison)
    poison(d, at, bytes);
  else if (!taken)
    punch(d, at, bytes);
}

// First fit. Requests of at least a page are page-aligned.
int px__sim_gap(const px__sim_device *d, uintptr_t low, uintptr_t high, size_t bytes,
                uintptr_t *at) {
  uintptr_t mask = px__sim_in_page();
  if (bytes <= mask) mask = GRAIN - 1;
  for (int i = px__sim_range_after(&d->live, low);; i++) {
    bool row = i < d->live.count && d->live.rows[i].at < high;
    uintptr_t end = row ? d->live.rows[i].at : high;
    *at = (low + mask) & ~mask;
    if (*at <= end && end - *at >= bytes) return i;
    if (!row) return -1;
    low = d->live.rows[i].at + d->live.rows[i].bytes;
  }
}

px_status px__sim_alloc(int device, size_t bytes, void **out) {
  *out = NULL;
  PX__SIM_TRY(px__sim_check(device));
  px__sim_device *d = &px__sim.device[device];
  size_t rounded = bytes > d->span ? bytes : (bytes + GRAIN - 1) & ~(size_t)(GRAIN - 1);
  if (!rounded) rounded = GRAIN;
  uintptr_t at = 0;
  px__sim_lock();
  bool fits = rounded <= px__sim.memory - d->used;
  int row = fits ? px__sim_gap(d, d->base, d->paged, rounded, &at) : -1;
  bool listed =
      row >= 0 && px__sim_back(d, at, rounded) && px__sim_range_insert(&d->live, row, at, rounded);
  if (listed) d->used += rounded;
  px__sim_unlock();
  if (row < 0)
    PX__SIM_FAIL(PX_OUT_OF_MEMORY, 2, "CUDA error: out of memory (%zu bytes on device %d)", bytes,
                 device);
  if (!listed) PX__SIM_FAIL(PX_NOMEM, 0, "no host memory to list an allocation");
  px__sim_blank(d, at, rounded, true);
  *out = (void *)at;
  return PX_OK;
}

px__sim_range px__sim_take_live(int device, uintptr_t at) {
  px__sim_ranges *live = &px__sim.device[device].live;
  int i = px__sim_range_after(live, at);
  size_t bytes = i < live->count && live->rows[i].at == at ? live->rows[i].bytes : 0;
  px__sim_waiter waiter = {.device = device, .low = at, .high = at + bytes};
  if (bytes) px__sim_await(&waiter);
  return (px__sim_range){at, px__sim_range_remove(live, at)};
}

void px__sim_release(int device, void *memory) {
  if (!memory) return;
  px__sim_device *d = &px__sim.device[device];
  px__sim_lock();
  px__sim_range gone = px__sim_take_live(device, (uintptr_t)memory);
  // Blank the memory before releasing the lock, so that no other thread can allocate the range
  // first.
  d->used -= gone.bytes;
  px__sim_blank(d, gone.at, gone.bytes, false);
  px__sim_unlock();
}

px_status px__sim_memory_info(int device, size_t *free_bytes, size_t *total) {
  PX__SIM_TRY(px__sim_check(device));
  px__sim_lock();
  *total = px__sim.memory;
  *free_bytes = px__sim.memory - px__sim.device[device].used;
  px__sim_unlock();
  return PX_OK;
}

// ---- page-locked host memory: plain pages, listed for the checks of kernels

px_status px__sim_host_alloc(size_t bytes, void **out) {
  size_t mask = px__sim_in_page(), rounded = (bytes + mask) & ~mask;
  if (!rounded) rounded = mask + 1;
  *out = rounded >= bytes ? aligned_alloc(mask + 1, rounded) : NULL;
  if (!*out) PX__SIM_FAIL(PX_NOMEM, 0, "cannot allocate %zu bytes of page-locked memory", bytes);
  px__sim_lock();
  uintptr_t at = (uintptr_t)*out;
  bool listed =
      px__sim_range_insert(&px__sim.pinned, px__sim_range_after(&px__sim.pinned, at), at, rounded);
  px__sim_unlock();
  if (listed) return PX_OK;
  free(*out);
  *out = NULL;
  PX__SIM_FAIL(PX_NOMEM, 0, "no host memory to list an allocation");
}

// Waits for work using the range starting at `at`. Lock held.
static void await_range(const px__sim_ranges *ranges, uintptr_t at) {
  int i = px__sim_range_after(ranges, at);
  size_t bytes = i < ranges->count ? ranges->rows[i].bytes : 0;
  px__sim_waiter waiter = {.device = -1, .low = at, .high = at + bytes};
  px__sim_await(&waiter);
}

void px__sim_host_release(void *memory) {
  if (!memory) return;
  uintptr_t at = (uintptr_t)memory;
  px__sim_lock();
  await_range(&px__sim.pinned, at);
  size_t bytes = px__sim_range_remove(&px__sim.pinned, at);
  px__sim_unlock();
  if (bytes) free(memory);
}

// Memory registered where it is. Lock held.
static int add_registered(uintptr_t at, size_t bytes) {
  px__sim_ranges *pinned = &px__sim.pinned, *registered = &px__sim.registered;
  if (!bytes || at + bytes <= at || px__sim_owner(at) >= 0) return PX__SIM_INVALID;
  int i = px__sim_range_after(pinned, at), k = px__sim_range_after(registered, at);
  if (k < registered->count && registered->rows[k].at < at + bytes) return PX__SIM_REGISTERED;
  if (i < pinned->count && pinned->rows[i].at < at + bytes) return PX__SIM_INVALID;
  if (!px__sim_range_insert(registered, k, at, bytes)) return PX__SIM_NO_MEMORY;
  if (px__sim_range_insert(pinned, i, at, bytes)) return 0;
  px__sim_range_remove(registered, at);
  return PX__SIM_NO_MEMORY;
}

px_status px__sim_host_register(void *memory, size_t bytes) {
  px__sim_lock();
  int code = memory ? add_registered((uintptr_t)memory, bytes) : PX__SIM_INVALID;
  px__sim_unlock();
  return code ? px__sim_fail(code) : PX_OK;
}

px_status px__sim_host_unregister(void *memory) {
  uintptr_t at = (uintptr_t)memory;
  px__sim_lock();
  await_range(&px__sim.registered, at);
  size_t bytes = px__sim_range_remove(&px__sim.registered, at);
  if (bytes) px__sim_range_cut(&px__sim.pinned, at, bytes);
  px__sim_unlock();
  return bytes ? PX_OK : px__sim_fail(PX__SIM_UNREGISTERED);
}
