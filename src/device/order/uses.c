// SPDX-License-Identifier: Apache-2.0
// Recorded uses of an allocation.
//
// Work on a device allocation's own stream is not recorded: stream order suffices. Other uses are
// recorded with their sequence number, one entry per stream (and per direction in CPU memory). Once
// the allocation is freed, they determine when its memory may be reused.
#include "device/order/order.h"

// Spin lock held.
static px_status reserve_use(px__allocation *b) {
  if (b->use_count < b->use_capacity) return PX_OK;
  px__use *more;
  uint16_t capacity = b->use_capacity ? (uint16_t)(2 * b->use_capacity) : PX__INLINE_USES;
  bool block = b->kind == PX__CACHED || b->kind == PX__RAW;
  if (block && b->use_capacity == 0) {
    b->uses = ((px__block *)b)->inline_uses;
    b->use_capacity = PX__INLINE_USES;
    return PX_OK;
  }
  PX_TRY(px__alloc((void **)&more, capacity * sizeof *more));
  if (b->use_count) memcpy(more, b->uses, b->use_count * sizeof *more);
  if (b->uses && !(block && b->uses == ((px__block *)b)->inline_uses)) px__free(b->uses);
  b->uses = more, b->use_capacity = capacity;
  return PX_OK;
}

// Keeps the later of two uses on one stream: threads may add them in any order.
static px_status add_use(px__allocation *b, px__use use) {
  for (int i = 0; i < b->use_count; i++)
    if (b->uses[i].stream == use.stream && b->uses[i].write == use.write) {
      if (b->uses[i].seq <= use.seq) b->uses[i] = use;
      return PX_OK;
    }
  PX_TRY(reserve_use(b));
  b->uses[b->use_count++] = use;
  return PX_OK;
}

static px_status add_use_locked(px__allocation *b, px__use use) {
  px_spin_lock(&b->spin);
  px_status status = add_use(b, use);
  px_spin_unlock(&b->spin);
  return status;
}

px_status px__allocation_add_use(px__allocation *b, const px__work *work, bool write) {
  if ((b->kind == PX__CACHED || b->kind == PX__RAW) && ((px__block *)b)->stream == work->stream)
    return PX_OK;
  bool host = b->pub.device.type == PX_CPU;
  PX_TRY(add_use_locked(b, (px__use){work->stream, work->seq, host && write}));
  if (host) __atomic_store_n(&b->pub.pending, true, __ATOMIC_RELEASE);
  return PX_OK;
}

px_status px__allocation_record_stream(px_allocation *allocation, px_stream *stream) {
  px__allocation *b = px__allocation_of(allocation);
  PX_CHECK(allocation->device.type == PX_CUDA && stream->owner, PX_RUNTIME,
           "record_stream is for device memory and device streams");
  if (b->kind == PX__CACHED && ((px__block *)b)->stream == stream) return PX_OK;
  return add_use_locked(b, (px__use){stream, px__issued(stream), false});
}

px_stream *px__allocation_user(px__allocation *b, int i) {
  px_spin_lock(&b->spin);
  px_stream *stream = i < b->use_count ? b->uses[i].stream : NULL;
  px_spin_unlock(&b->spin);
  return stream;
}

bool px__allocation_is_reusable(px__allocation *b, px_stream *stream) {
  bool settled = true;
  if (!b->use_count) return true;
  px_spin_lock(&b->spin);
  for (int i = 0; i < b->use_count && settled; i++)
    settled = stream ? px__ordered(b->uses[i].stream, b->uses[i].seq, stream)
                     : px__completed(b->uses[i].stream) >= b->uses[i].seq;
  px_spin_unlock(&b->spin);
  return settled;
}

void px__allocation_drop_uses(px__allocation *b) {
  if (!b->uses) return;
  bool block = b->kind == PX__CACHED || b->kind == PX__RAW;
  if (b->uses && !(block && b->uses == ((px__block *)b)->inline_uses)) px__free(b->uses);
  b->uses = NULL;
  b->use_count = b->use_capacity = 0;
}

// Without uses nothing is pending, unless every access must be seen: misaligned or shrunk memory,
// inputs of recorded launches, or the race checker, to which an internal wait orders nothing.
static void update_pending(px__allocation *b) {
  if (b->use_count) return;
  bool seen = b->pub.irregular || b->pub.readers || __atomic_load_n(&b->shadow, __ATOMIC_RELAXED);
  __atomic_store_n(&b->pub.pending, seen, __ATOMIC_RELEASE);
}

px_status (*px__readers_run)(px_allocation *written);
px_status (*px__recorded_issue)(void);

// 16 bits suffice: at most 4,096 launches are recorded, and a launch has 12 operands.
static void add_readers(px_allocation *allocation, int count) {
  px__allocation *b = px__allocation_of(allocation);
  px_spin_lock(&b->spin);
  __atomic_add_fetch(&allocation->readers, (uint16_t)count, __ATOMIC_RELAXED);
  if (b->kind == PX__HOST) update_pending(b);
  px_spin_unlock(&b->spin);
}
void px__allocation_reader_begin(px_allocation *allocation) { add_readers(allocation, 1); }
void px__allocation_reader_end(px_allocation *allocation) { add_readers(allocation, -1); }

// Work of `by` is ordered after all work in its clock.
static bool is_ordered(const px__use *use, const px_stream *by) {
  return by && px__ordered(use->stream, use->seq, by);
}

bool px__allocation_conflict(px__allocation *b, bool write, px_stream *by, px__use *out) {
  bool found = false;
  if (by) px__device_lock(by->owner);
  px_spin_lock(&b->spin);
  for (int i = 0; i < b->use_count && !found; i++)
    if ((write || b->uses[i].write) && !is_ordered(&b->uses[i], by))
      *out = b->uses[i], found = true;
  update_pending(b);
  px_spin_unlock(&b->spin);
  if (by) px__device_unlock(by->owner);
  return found;
}

void px__allocation_forget_use(px__allocation *b, const px__use *use) {
  px_spin_lock(&b->spin);
  for (int i = 0; i < b->use_count; i++)
    if (b->uses[i].stream == use->stream && b->uses[i].seq == use->seq) {
      b->uses[i] = b->uses[--b->use_count];
      break;
    }
  update_pending(b);
  px_spin_unlock(&b->spin);
}
