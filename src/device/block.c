// SPDX-License-Identifier: Apache-2.0
// Blocks of every kind: making, freeing, and the marks of who uses them.
//
// A device block needs no mark for work of its own stream; every other use is kept with its
// sequence number, one entry a stream (and direction, for CPU blocks), and becomes the ticket when
// the block is freed.
#include "device/state.h"

px_status px__block_new(px_block **out, size_t bytes, px_device device) {
  if (device.type == PX_CPU) return px__host_new(out, bytes);
  px__device *d;
  if (px__rt.forked) return px__error_cuda(3);
  PX_TRY(px__device_get(&d, device.index));
  return px__cache_new(out, bytes, d);
}

static void (*const frees[])(px_block *) = {[PX__HOST] = px__host_free,
                                            [PX__PINNED] = px__pinned_free,
                                            [PX__CACHED] = px__cache_free,
                                            [PX__RAW] = px__cache_free,
                                            [PX__WRAPPED] = px__wrapped_free};

void px__block_free(px_block *block) {
  if (!block) return;
  px__block *b = px__block_of(block);
  if (PX_UNLIKELY(b->shadow != NULL)) px__race_forget(b);
  if (PX_LIKELY(b->kind == PX__HOST))
    px__host_free(block);
  else
    frees[b->kind](block);
}

void px__block_hand_out(px_block *block) { block->foreign = true; }

// ---- uses
// Spin word held.
static px_status use_room(px__block *b) {
  if (b->use_count < b->use_room) return PX_OK;
  px__use *more;
  uint16_t room = b->use_room ? (uint16_t)(2 * b->use_room) : PX__INLINE_USES;
  bool chunk = b->kind == PX__CACHED || b->kind == PX__RAW;
  if (chunk && b->use_room == 0) {
    b->uses = ((px__chunk *)b)->few;
    b->use_room = PX__INLINE_USES;
    return PX_OK;
  }
  PX_TRY(px__alloc((void **)&more, room * sizeof *more));
  if (b->use_count) memcpy(more, b->uses, b->use_count * sizeof *more);
  if (b->uses && !(chunk && b->uses == ((px__chunk *)b)->few)) px__free(b->uses);
  b->uses = more, b->use_room = room;
  return PX_OK;
}

// The later of two uses on one stream counts: threads may come in any order.
static px_status add_use(px__block *b, px__use use) {
  for (int i = 0; i < b->use_count; i++)
    if (b->uses[i].stream == use.stream && b->uses[i].write == use.write) {
      if (b->uses[i].seq <= use.seq) b->uses[i] = use;
      return PX_OK;
    }
  PX_TRY(use_room(b));
  b->uses[b->use_count++] = use;
  return PX_OK;
}

static px_status add_use_locked(px__block *b, px__use use) {
  px__spin_lock(&b->spin);
  px_status status = add_use(b, use);
  px__spin_unlock(&b->spin);
  return status;
}

px_status px__block_use(px__block *b, const px__work *work, bool write) {
  if ((b->kind == PX__CACHED || b->kind == PX__RAW) && ((px__chunk *)b)->stream == work->stream)
    return PX_OK;
  bool host = b->pub.device.type == PX_CPU;
  PX_TRY(add_use_locked(b, (px__use){work->stream, work->seq, work->id, host && write}));
  if (host) __atomic_store_n(&b->pub.pending, true, __ATOMIC_RELEASE);
  return PX_OK;
}

px_status px__block_record_stream(px_block *block, px_stream *stream) {
  px__block *b = px__block_of(block);
  PX_CHECK(block->device.type == PX_CUDA && stream->owner, PX_RUNTIME,
           "record_stream is for device memory and device streams");
  if (b->kind == PX__CACHED && ((px__chunk *)b)->stream == stream) return PX_OK;
  return add_use_locked(b, (px__use){stream, px__issued(stream), 0, false});
}

bool px__block_settled(px__block *b, px_stream *stream) {
  bool settled = true;
  if (!b->use_count) return true;
  px__spin_lock(&b->spin);
  for (int i = 0; i < b->use_count && settled; i++)
    settled = stream ? px__ordered(b->uses[i].stream, b->uses[i].seq, stream)
                     : px__completed(b->uses[i].stream) >= b->uses[i].seq;
  px__spin_unlock(&b->spin);
  return settled;
}

void px__block_drop_uses(px__block *b) {
  if (!b->uses) return;
  bool chunk = b->kind == PX__CACHED || b->kind == PX__RAW;
  if (b->uses && !(chunk && b->uses == ((px__chunk *)b)->few)) px__free(b->uses);
  b->uses = NULL;
  b->use_count = b->use_room = 0;
}

// Takes one use that a host access must wait for; false if there is none. Clears `pending` when no
// use is left.
static bool next_conflict(px__block *b, bool write, px__use *out) {
  bool found = false;
  px__spin_lock(&b->spin);
  for (int i = 0; i < b->use_count && !found; i++)
    if (write || b->uses[i].write) *out = b->uses[i], found = true;
  if (!b->use_count) __atomic_store_n(&b->pub.pending, false, __ATOMIC_RELEASE);
  px__spin_unlock(&b->spin);
  return found;
}

static void forget_use(px__block *b, const px__use *use) {
  px__spin_lock(&b->spin);
  for (int i = 0; i < b->use_count; i++)
    if (b->uses[i].stream == use->stream && b->uses[i].seq == use->seq) {
      b->uses[i] = b->uses[--b->use_count];
      break;
    }
  if (!b->use_count) __atomic_store_n(&b->pub.pending, false, __ATOMIC_RELEASE);
  px__spin_unlock(&b->spin);
}

px_status px__block_host_access(px_block *block, bool write) {
  px__block *b = px__block_of(block);
  if (px__rt.forked) return PX_OK;
  px__use use;
  while (next_conflict(b, write, &use)) {
    if (px__races() && px__synced(use.stream) < use.seq) PX_TRY(px__race_host(b, &use, write));
    if (px__completed(use.stream) < use.seq) PX_TRY(px__sync_point());
    PX_TRY(px__stream_reach(use.stream, use.seq));
    forget_use(b, &use);
  }
  return PX_OK;
}

px_status px__block_wait(px_block *block) {
  if (PX_LIKELY(!__atomic_load_n(&block->pending, __ATOMIC_ACQUIRE))) return PX_OK;
  return px__block_host_access(block, true);
}

// The block is being freed: nobody adds uses.
void px__block_mark_uses(px__block *b) {
  for (int i = 0; i < b->use_count; i++) {
    px_stream *stream = b->uses[i].stream;
    if (px__completed(stream) >= b->uses[i].seq) continue;
    px__device_lock(stream->owner);
    // Without a mark the ticket is settled later, by the stream's next mark or a wait.
    if (px__stream_mark(stream) != PX_OK) px_error_clear();
    px__device_unlock(stream->owner);
  }
}

void px__block_wait_uses(px__block *b) {
  if (!b->use_count || px__rt.forked) return;
  px__error_guard guard;
  px__error_save(&guard);
  for (int i = 0; i < b->use_count; i++)
    if (px__stream_reach(b->uses[i].stream, b->uses[i].seq) != PX_OK) px_error_clear();
  px__error_restore(&guard);
}

// ---- errors over cleanup
void px__error_save(px__error_guard *guard) {
  guard->held = px_error_last()->code != PX_OK;
  if (guard->held) px_error_take(&guard->error);
}

void px__error_restore(px__error_guard *guard) {
  if (guard->held)
    px_error_give(&guard->error);
  else
    px_error_clear();
}

// ---- letting go under pressure
enum { RECLAIMS = 16 };
static void (*reclaims[RECLAIMS])(void);  // atomic; only added
void px__reclaim_add(void (*reclaim)(void)) {
  for (int i = 0; i < RECLAIMS; i++) {
    void (*none)(void) = NULL;
    if (__atomic_load_n(&reclaims[i], __ATOMIC_ACQUIRE) == reclaim) return;
    if (__atomic_compare_exchange_n(&reclaims[i], &none, reclaim, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
      return;
  }
}

void px__reclaim(void) {
  px__wrapped_sweep();
  for (int i = 0; i < RECLAIMS; i++) {
    void (*reclaim)(void) = __atomic_load_n(&reclaims[i], __ATOMIC_ACQUIRE);
    if (reclaim) reclaim();
  }
}
