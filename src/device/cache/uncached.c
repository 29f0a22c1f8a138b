// SPDX-License-Identifier: Apache-2.0
// Device memory without the cache: of the backend (PYTORCH_NO_CUDA_MEMORY_CACHING), or of a
// pluggable allocator of the program. Such an allocator replaces the cache: each allocation is its
// own. Or it backs the segments of a px_memory_pool. Memory is returned to it only when out of use.
#include "device/cache/cache.h"

px_status px__plugged_alloc(void **out, const px_memory_allocator *a, const px__request *r,
                            size_t bytes) {
  *out = a->alloc((int64_t)bytes, r->device->index, r->stream->native);
  PX_CHECK(*out, PX_OUT_OF_MEMORY, "the program's allocator has no %zu bytes", bytes);
  return PX_OK;
}

// ---- allocating
static px_status raw_memory(void **out, const px__request *r) {
  if (px__fault(PX__FAULT_DEVICE_ALLOC)) return PX_OUT_OF_MEMORY;
  if (!px__bins_disabled_for(PX__PLUGGED))
    return px__rt.backend->alloc(r->device->physical, r->bytes, out);
  PX_CHECK(!px__capture_of(r->stream), PX_UNIMPLEMENTED,
           "graphs over memory of a pluggable allocator are not implemented in Phlox");
  return px__plugged_alloc(out, &px__rt.plugged, r, r->bytes);
}

// Not in the statistics.
px_status px__raw_new(px_allocation **out, const px__request *r) {
  px__block *block;
  void *data = NULL;
  PX_TRY(PX_NEW(&block));
  px_status status = raw_memory(&data, r);
  if (status != PX_OK) return px__free(block), status;
  block->stream = r->stream;
  block->allocation = (px__allocation){
      .pub = {.data = data, .bytes = r->bytes, .device = r->stream->device}, .kind = PX__RAW};
  *out = &block->allocation.pub;
  return PX_OK;
}

// ---- freeing
// Waits for the stream.
static void plugged_free(px__block *block) {
  px_stream *stream = block->stream;
  px_allocation *allocation = &block->allocation.pub;
  px__error_guard guard;
  px__error_save(&guard);
  px_interrupt_hold(true);
  if (px__stream_wait_seq(stream, px__issued(stream)) != PX_OK) px_error_clear();
  px_interrupt_hold(false);
  px__error_restore(&guard);
  px__rt.plugged.free(allocation->data, (int64_t)allocation->bytes, allocation->device.index,
                      stream->native);
}

void px__raw_free(px_allocation *allocation) {
  px__block *block = (px__block *)allocation;
  px__device *d = px__device_found(allocation->device.index);
  if (!d) return;
  px__allocation_publish_uses(d, &block->allocation);
  px__allocation_wait_uses(&block->allocation);
  px__allocation_drop_uses(&block->allocation);
  if (px__bins_disabled_for(PX__PLUGGED))
    plugged_free(block);
  else
    px__rt.backend->release(d->physical, allocation->data);
  px__free(block);
}
