// SPDX-License-Identifier: Apache-2.0
// Allocations of every kind: creation and release.
#include "device/cache/cache.h"
#include "device/memory/memory.h"

__attribute__((noinline, cold)) static px_status new_on_closed_device(px_allocation **out,
                                                                      size_t bytes, int index) {
  px__device *d;
  if (px__rt.forked) return px__error_cuda(3);
  PX_TRY(px__device_get(&d, index));
  return px__cache_new(out, bytes, d);
}

static px_status new_of_type(px_allocation **out, size_t bytes, px_device device) {
  if (device.type == PX_CPU) return px__host_new(out, bytes);
  if (device.type == PX_META) return px__meta_new(out, bytes);
  px__device *d = px__device_found(device.index);
  if (PX_LIKELY(d != NULL)) return px__cache_new(out, bytes, d);
  return new_on_closed_device(out, bytes, device.index);
}

// Out of line: only while profiling.
__attribute__((noinline, cold)) static px_status new_profiled(px_allocation **out, size_t bytes,
                                                              px_device device) {
  PX_TRY(new_of_type(out, bytes, device));
  if (device.type != PX_META) px__profile_memory(device, (int64_t)(*out)->bytes);
  return PX_OK;
}

px_status px__allocation_new_any(px_allocation **out, size_t bytes, px_device device) {
  if (PX_UNLIKELY(px__profile_on())) return new_profiled(out, bytes, device);
  return new_of_type(out, bytes, device);
}

// Reports a free to the profiler, except of memory it does not count: foreign, pinned or meta.
static void profile_free(const px_allocation *allocation, uint8_t kind) {
  if (kind == PX__HOST || kind == PX__CACHED || kind == PX__RAW)
    px__profile_memory(allocation->device, -(int64_t)allocation->bytes);
}

// Memory registered by the program may be the target of a running copy.
static void free_used_host(px_allocation *allocation) {
  px__allocation_wait_uses(px__allocation_of(allocation));
  px__allocation_drop_uses(px__allocation_of(allocation));
  px__host_free(allocation);
}

static void (*const frees[])(px_allocation *) = {
    [PX__HOST] = free_used_host, [PX__PINNED] = px__pinned_free,   [PX__CACHED] = px__cache_free,
    [PX__RAW] = px__raw_free,    [PX__WRAPPED] = px__wrapped_free, [PX__META] = px__meta_free};

__attribute__((noinline, cold)) static void forget_allocation(px__allocation *allocation) {
  if (px__profile_on()) profile_free(&allocation->pub, allocation->kind);
  if (allocation->shadow) px__race_forget(allocation);
}

void px__allocation_free(px_allocation *allocation) {
  if (!allocation) return;
  px__allocation *b = px__allocation_of(allocation);
  if (PX_UNLIKELY(px__profile_on() || b->shadow)) forget_allocation(b);
  if (PX_LIKELY(b->kind == PX__HOST && !b->uses))
    px__host_free(allocation);
  else
    frees[b->kind](allocation);
}

void px__allocation_expose(px_allocation *allocation) {
  __atomic_store_n(&allocation->foreign, true, __ATOMIC_RELAXED);
}
