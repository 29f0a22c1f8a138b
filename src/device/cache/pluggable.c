// SPDX-License-Identifier: Apache-2.0
// Pluggable allocators of the program. One replaces the cache: each allocation is its own. Or it
// backs the segments of a px_memory_pool. Memory is returned to it only when out of use.
#include "device/cache/cache.h"

px_status px__plugged_alloc(void **out, const px_memory_allocator *a, const px__request *r,
                            size_t bytes) {
  *out = a->alloc((int64_t)bytes, r->device->index, r->stream->native);
  PX_CHECK(*out, PX_OUT_OF_MEMORY, "the program's allocator has no %zu bytes", bytes);
  return PX_OK;
}

void px__plugged_release(const px_memory_allocator *a, px_stream *stream, void *at, size_t bytes) {
  a->free(at, (int64_t)bytes, stream->owner->index, stream->native);
}

void px__plugged_free(px__block *block) {
  px_stream *stream = block->stream;
  px_allocation *allocation = &block->allocation.pub;
  px__error_guard guard;
  px__error_save(&guard);
  px_interrupt_hold(true);
  if (px__stream_wait_seq(stream, px__issued(stream)) != PX_OK) px_error_clear();
  px_interrupt_hold(false);
  px__error_restore(&guard);
  px__plugged_release(&px__rt.plugged, stream, allocation->data, allocation->bytes);
}
