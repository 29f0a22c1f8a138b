// SPDX-License-Identifier: Apache-2.0
// Memory of the simulated devices: address ranges, raw allocations, page-locked host memory.
//
// A device has twice as many addresses as bytes of memory, so an allocation fails only when the
// memory is used up. Addresses are chosen first fit between the live allocations. Released memory
// is returned to the system, or, for tests, filled with a pattern.
#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GRAIN = 512, PAGE = 4096 };

// ---- addresses

px_status px__sim_map(int device) {
  px__sim_device *d = &px__sim.device[device];
  size_t span = 2 * px__sim.memory;
  int file = memfd_create("phlox-sim", MFD_CLOEXEC);
  void *user = MAP_FAILED, *work = MAP_FAILED;
  if (file >= 0 && !ftruncate(file, (off_t)span)) {
    user = mmap(NULL, span, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    work = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  }
  if (file >= 0) close(file);
  if (user == MAP_FAILED || work == MAP_FAILED) {
    if (user != MAP_FAILED) munmap(user, span);
    if (work != MAP_FAILED) munmap(work, span);
    PX__SIM_FAIL(PX_NOMEM, 0, "cannot map %zu bytes of addresses for simulated device %d", span,
                 device);
  }
  px__sim_lock();
  d->base = (uintptr_t)user;
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

// ---- device memory

// Fills with a pattern that no program means: by seed NaN, a huge number, or a plain wrong one.
static void poison(const px__sim_device *d, uintptr_t at, size_t bytes) {
  static const unsigned char patterns[] = {0xff, 0x7f, 0xcb, 0xa5};
  memset((void *)(at + (uintptr_t)d->delta), patterns[px__sim.seed % sizeof patterns], bytes);
}

// Gives the whole pages back to the system; they read as zero when they are used again.
static void punch(const px__sim_device *d, uintptr_t at, size_t bytes) {
  uintptr_t first = (at + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
  uintptr_t last = (at + bytes) & ~(uintptr_t)(PAGE - 1);
  if (first < last) madvise((void *)(first + (uintptr_t)d->delta), last - first, MADV_REMOVE);
}

// First fit: finds the row before which `bytes` are free, and where. Large blocks start on a page.
static int find_gap(const px__sim_device *d, size_t bytes, uintptr_t *at) {
  uintptr_t mask = bytes >= PAGE ? PAGE - 1 : GRAIN - 1;
  uintptr_t free_from = d->base;
  for (int i = 0;; i++) {
    uintptr_t end = i < d->live.count ? d->live.rows[i].at : d->base + d->span;
    *at = (free_from + mask) & ~mask;
    if (*at <= end && end - *at >= bytes) return i;
    if (i == d->live.count) return -1;
    free_from = d->live.rows[i].at + d->live.rows[i].bytes;
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
  int row = fits ? find_gap(d, rounded, &at) : -1;
  bool listed = row >= 0 && px__sim_range_insert(&d->live, row, at, rounded);
  if (listed) d->used += rounded;
  px__sim_unlock();
  if (row < 0)
    PX__SIM_FAIL(PX_OUT_OF_MEMORY, 2, "CUDA error: out of memory (%zu bytes on device %d)", bytes,
                 device);
  if (!listed) PX__SIM_FAIL(PX_NOMEM, 0, "no host memory to list an allocation");
  if (px__sim.poison) poison(d, at, rounded);
  *out = (void *)at;
  return PX_OK;
}

void px__sim_release(int device, void *memory) {
  if (!memory) return;
  px__sim_device *d = &px__sim.device[device];
  uintptr_t at = (uintptr_t)memory;
  px__sim_lock();
  int i = px__sim_range_after(&d->live, at);
  size_t bytes = i < d->live.count && d->live.rows[i].at == at ? d->live.rows[i].bytes : 0;
  px__sim_waiter waiter = {.device = device, .low = at, .high = at + bytes};
  if (bytes) px__sim_await(&waiter);
  // The pages go while the lock is held: nobody may be given the range before.
  bytes = px__sim_range_remove(&d->live, at);
  d->used -= bytes;
  if (px__sim.poison)
    poison(d, at, bytes);
  else
    punch(d, at, bytes);
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

// ---- page-locked host memory: plain pages, and a list that kernels are checked against

px_status px__sim_host_alloc(size_t bytes, void **out) {
  size_t rounded = (bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
  if (!rounded) rounded = PAGE;
  *out = rounded >= bytes ? aligned_alloc(PAGE, rounded) : NULL;
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

void px__sim_host_release(void *memory) {
  if (!memory) return;
  uintptr_t at = (uintptr_t)memory;
  px__sim_lock();
  int i = px__sim_range_after(&px__sim.pinned, at);
  size_t bytes = i < px__sim.pinned.count ? px__sim.pinned.rows[i].bytes : 0;
  px__sim_waiter waiter = {.device = -1, .low = at, .high = at + bytes};
  px__sim_await(&waiter);
  bytes = px__sim_range_remove(&px__sim.pinned, at);
  px__sim_unlock();
  if (bytes) free(memory);
}
