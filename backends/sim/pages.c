// SPDX-License-Identifier: Apache-2.0
// Pages of the simulated devices, mapped into reserved addresses.
//
// The memory file has an offset for every address, so mapping pages only means accounting for them.
// Unmapping discards the content and makes the addresses invalid until pages are mapped there
// again. A GPU faults when pages in use by pending work are unmapped. Here the device breaks in the
// same way. This exposes missing or wrong waits in the core.
#include "sim/sim.h"

#include <sys/mman.h>

// ---- page-locked host memory
static px_status host_range_new(size_t bytes, void **out) {
  void *at = mmap(NULL, bytes + PX__SIM_PAGE, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *out = NULL;
  if (at == MAP_FAILED) PX__SIM_FAIL(PX_NOMEM, 0, "cannot reserve %zu bytes of addresses", bytes);
  *out = (void *)(((uintptr_t)at + PX__SIM_PAGE - 1) & ~(uintptr_t)(PX__SIM_PAGE - 1));
  return PX_OK;
}

static px_status host_pages_map(void *at, size_t bytes) {
  px__sim_lock();
  bool there = !mprotect(at, bytes, PROT_READ | PROT_WRITE) &&
               px__sim_range_join(&px__sim.pinned, (uintptr_t)at, bytes);
  px__sim_unlock();
  if (there) return PX_OK;
  mprotect(at, bytes, PROT_NONE);
  PX__SIM_FAIL(PX_NOMEM, 0, "cannot allocate %zu bytes of page-locked memory", bytes);
}

// If host memory runs out for splitting the range, the pages stay mapped.
static void host_pages_unmap(void *at, size_t bytes) {
  uintptr_t low = (uintptr_t)at;
  px__sim_lock();
  px__sim_waiter waiter = {.device = -1, .low = low, .high = low + bytes};
  px__sim_await(&waiter);
  if (px__sim_range_cut(&px__sim.pinned, low, bytes)) {
    madvise(at, bytes, MADV_DONTNEED);
    mprotect(at, bytes, PROT_NONE);
  }
  px__sim_unlock();
}

// ---- pages of a device or of the host (-1)
size_t px__sim_page_size(int device) { return PX__SIM_PAGE; }

px_status px__sim_range_new(int device, size_t bytes, void **out) {
  if (device < 0) return host_range_new(bytes, out);
  px__sim_device *d = &px__sim.device[device];
  *out = NULL;
  PX__SIM_TRY(px__sim_check(device));
  uintptr_t first = (d->paged + PX__SIM_PAGE - 1) & ~(uintptr_t)(PX__SIM_PAGE - 1);
  if (first + bytes > d->foreign || bytes % PX__SIM_PAGE)
    PX__SIM_FAIL(PX_OUT_OF_MEMORY, 2, "CUDA error: out of memory (%zu bytes of addresses)", bytes);
  *out = (void *)first;
  return PX_OK;
}

px_status px__sim_pages_map(int device, void *at, size_t bytes) {
  if (device < 0) return host_pages_map(at, bytes);
  px__sim_device *d = &px__sim.device[device];
  uintptr_t low = (uintptr_t)at;
  PX__SIM_TRY(px__sim_check(device));
  px__sim_lock();
  int row = px__sim_range_after(&d->live, low);
  bool empty = row == d->live.count || d->live.rows[row].at >= low + bytes;
  bool inside = low >= d->paged && low + bytes <= d->foreign && low % PX__SIM_PAGE == 0;
  bool right = empty && inside && bytes && bytes % PX__SIM_PAGE == 0;
  bool fits = right && bytes <= px__sim.memory - d->used;
  bool listed = fits && px__sim_back(d, low, bytes) && px__sim_range_join(&d->live, low, bytes);
  if (listed) d->used += bytes;
  if (listed) px__sim_blank(d, low, bytes, true);
  px__sim_unlock();
  if (!right) return px__sim_fail(PX__SIM_INVALID);
  if (!fits)
    PX__SIM_FAIL(PX_OUT_OF_MEMORY, 2, "CUDA error: out of memory (%zu bytes on device %d)", bytes,
                 device);
  if (!listed) PX__SIM_FAIL(PX_NOMEM, 0, "no host memory to list an allocation");
  return PX_OK;
}

// If host memory runs out for splitting the range, the pages stay mapped.
void px__sim_pages_unmap(int device, void *at, size_t bytes) {
  if (device < 0) return host_pages_unmap(at, bytes);
  px__sim_device *d = &px__sim.device[device];
  uintptr_t low = (uintptr_t)at;
  px__sim_lock();
  px__sim_waiter work = {
      .device = -1, .low = low, .high = low + bytes, .sequence = px__sim.sequence};
  intptr_t delta;
  bool there = px__sim_reach(device, low, bytes, &delta);
  if (!there || !px__sim_satisfied(&work))
    px__sim_break(device, PX__SIM_ILLEGAL, "pages were unmapped %s",
                  there ? "in use by pending work" : "at unmapped addresses");
  if (there && px__sim_range_cut(&d->live, low, bytes)) {
    d->used -= bytes;
    px__sim_blank(d, low, bytes, false);
  }
  px__sim_unlock();
}
