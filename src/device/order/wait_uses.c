// SPDX-License-Identifier: Apache-2.0
// Pending uses of an allocation: waits for them before the host accesses it, and makes them
// observable or waits for them after it was freed.
#include "device/order/order.h"

px_status px__allocation_wait_conflicts(px_allocation *allocation, bool write, px_stream *by) {
  px__allocation *b = px__allocation_of(allocation);
  px__use use;
  while (px__allocation_conflict(b, write, by, &use)) {
    if (px__completed(use.stream) < use.seq) PX_TRY(px__sync_point());
    PX_TRY(px__stream_wait_seq(use.stream, use.seq));
    px__allocation_forget_use(b, &use);
  }
  return PX_OK;
}

px_status px__allocation_host_access(const char *op, const px_access *access) {
  px_allocation *allocation = access->allocation;
  if (PX_LIKELY(!__atomic_load_n(&allocation->pending, __ATOMIC_ACQUIRE))) return PX_OK;
  PX_TRY(px__allocation_check_bounds(allocation, access->end));
  if (access->write) PX_TRY(px__allocation_before_write(allocation));
  if (px__rt.forked) return PX_OK;
  if (px__races()) PX_TRY(px__race_host(op, access));
  return px__allocation_wait_conflicts(allocation, access->write, NULL);
}

px_status px__allocation_wait(px_allocation *allocation, const char *op, bool write) {
  px_access all = {.allocation = allocation, .end = allocation->bytes, .write = write};
  return px__allocation_host_access(op, &all);
}

// The allocation is being freed: no thread adds uses any more.
void px__allocation_mark_uses(px__allocation *b) {
  for (int i = 0; i < b->use_count; i++) {
    px_stream *stream = b->uses[i].stream;
    if (px__completed(stream) >= b->uses[i].seq) continue;
    px__device_lock(stream->owner);
    // Without a mark the use is found done later, by the stream's next mark or a wait.
    if (px__stream_mark(stream) != PX_OK) px_error_clear();
    px__device_unlock(stream->owner);
  }
}

// An exposed address may be in use on every stream with unfinished work.
static void record_all_streams(px__device *d, px_allocation *allocation) {
  px_interrupt_hold(true);
  for (int i = 0; i < __atomic_load_n(&d->stream_count, __ATOMIC_ACQUIRE); i++) {
    px_stream *stream = d->streams[i];
    if (px__synced(stream) >= px__issued(stream)) continue;
    if (px__allocation_record_stream(allocation, stream) != PX_OK &&
        px__stream_wait_seq(stream, px__issued(stream)) != PX_OK)
      px_error_clear();
  }
  px_interrupt_hold(false);
}

void px__allocation_publish_uses(px__device *d, px__allocation *b) {
  px__error_guard guard;
  if (px__launch_batching) px__launch_batching->let_go(b);
  if (!b->pub.foreign && !b->use_count) return;
  px__error_save(&guard);
  if (b->pub.foreign) record_all_streams(d, &b->pub);
  px__allocation_mark_uses(b);
  px__error_restore(&guard);
}

void px__allocation_wait_uses(px__allocation *b) {
  if (!b->use_count || px__rt.forked) return;
  px__error_guard guard;
  px__error_save(&guard);
  px_interrupt_hold(true);
  for (int i = 0; i < b->use_count; i++)
    if (px__stream_wait_seq(b->uses[i].stream, b->uses[i].seq) != PX_OK) px_error_clear();
  px_interrupt_hold(false);
  px__error_restore(&guard);
}
