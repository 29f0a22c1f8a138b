// SPDX-License-Identifier: Apache-2.0
// Memory of the simulated devices shared between processes.
//
// Each process simulates its own devices. A handle names the memory file of the sender's device and
// an allocation in it. Opening it maps the allocation into the local device's address range for
// foreign memory, in both of its mappings.
#include "sim/sim.h"

#include <sys/mman.h>
#include <unistd.h>

px_status px__sim_memory_share(int device, void *memory, px_ipc_handle *out, size_t *offset) {
  px__sim_device *d = &px__sim.device[device];
  uintptr_t at = (uintptr_t)memory;
  PX__SIM_TRY(px__sim_check(device));
  px__sim_lock();
  int i = px__sim_range_after(&d->live, at);
  px__sim_range row = i < d->live.count ? d->live.rows[i] : (px__sim_range){UINTPTR_MAX, 0};
  px__sim_unlock();
  if (row.at > at || row.at >= d->foreign) return px__sim_fail(PX__SIM_INVALID);
  *offset = at - row.at;
  return px__sim_share_file(out, d->file, (px__sim_handle){row.at - d->base, row.bytes});
}

// Maps whole pages of a file into both mappings of the device.
static bool map_part(const px__sim_device *d, uintptr_t at, size_t bytes, int file, off_t from) {
  int flags = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
  void *work = (void *)(at + (uintptr_t)d->delta);
  return mmap((void *)at, bytes, PROT_NONE, flags, file, from) != MAP_FAILED &&
         mmap(work, bytes, PROT_READ | PROT_WRITE, flags, file, from) != MAP_FAILED;
}

// Replaces the pages with inaccessible ones, so the addresses stay reserved.
static void unmap_part(const px__sim_device *d, uintptr_t at, size_t bytes) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  mmap((void *)at, bytes, PROT_NONE, flags, -1, 0);
  mmap((void *)(at + (uintptr_t)d->delta), bytes, PROT_NONE, flags, -1, 0);
}

// Expands a range to whole pages.
static px__sim_range pages_of(uintptr_t at, size_t bytes) {
  uintptr_t mask = px__sim_in_page(), first = at & ~mask;
  return (px__sim_range){first, (at + bytes - first + mask) & ~mask};
}

static px_status map_foreign(px__sim_device *d, int file, px__sim_handle p, void **out) {
  px__sim_range pages = pages_of(p.at, p.bytes);
  uintptr_t at = 0;
  px__sim_lock();
  int row = px__sim_gap(d, d->foreign, d->base + d->span, pages.bytes, &at);
  bool listed = row >= 0 && px__sim_range_insert(&d->live, row, at + (p.at - pages.at), p.bytes);
  bool mapped = listed && map_part(d, at, pages.bytes, file, (off_t)pages.at);
  if (listed && !mapped) {
    unmap_part(d, at, pages.bytes);
    px__sim_range_remove(&d->live, at + (p.at - pages.at));
  }
  px__sim_unlock();
  if (!mapped)
    PX__SIM_FAIL(PX_NOMEM, 0, "cannot map %zu bytes of another process's memory", pages.bytes);
  *out = (void *)(at + (p.at - pages.at));
  return PX_OK;
}

px_status px__sim_memory_open(int device, const px_ipc_handle *handle, void **out, size_t *bytes) {
  px__sim_handle p = px__sim_numbers(handle);
  int file;
  *out = NULL;
  PX__SIM_TRY(px__sim_check(device));
  PX__SIM_TRY(px__sim.core->file_open(&file, handle));
  size_t all = px__sim_file_bytes(file);
  bool inside = p.bytes && p.at <= all && p.bytes <= all - p.at;
  px_status status =
      inside ? map_foreign(&px__sim.device[device], file, p, out) : px__sim_fail(PX__SIM_INVALID);
  close(file);
  *bytes = p.bytes;
  return status;
}

void px__sim_memory_close(int device, void *memory) {
  px__sim_device *d = &px__sim.device[device];
  px__sim_lock();
  px__sim_range row = px__sim_take_live(device, (uintptr_t)memory);
  px__sim_range pages = pages_of(row.at, row.bytes);
  if (row.bytes) unmap_part(d, pages.at, pages.bytes);
  px__sim_unlock();
}
