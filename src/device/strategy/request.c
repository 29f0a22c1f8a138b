// SPDX-License-Identifier: Apache-2.0
// Requests to the caching allocator. The strategies are tried in order until one returns a block.
// New ones need an entry in the array.
#include "device/cache/fast_bin.h"
#include "device/strategy/strategy.h"

#define MAX_BYTES ((size_t)PTRDIFF_MAX / 2)  // bytes of the largest allocation

static bool may_wait(const px__request *r) { return r->may_wait; }

static const struct {
  px__block *(*try)(px__request *request);
  bool (*applies)(const px__request *request);  // NULL: always
} strategies[] = {
    {px__try_free_block, NULL},
    {px__try_garbage, NULL},
    {px__try_compact, px__slack_exceeded},
    {px__try_other_kind, px__slack_exceeded},
    {px__try_after_work, px__slack_exceeded},
    {px__try_repeated_miss, px__slack_exceeded},
    {px__try_segment, NULL},
    // The device is out of memory.
    {px__try_reclaim, may_wait},
    {px__try_merged, NULL},
    {px__try_page_run, NULL},
    {px__try_release, NULL},
    {px__try_segment, NULL},
    // The release waited for work: more may be free.
    {px__try_free_block, NULL},
    {px__try_other_kind, NULL},
    {px__try_page_run, NULL},
    {px__try_exact_segment, NULL},
    {px__try_lent_pool, NULL},
    {px__try_report, NULL},
};

// Lock held.
static px_status serve(px_allocation **out, px__request *r) {
  r->pool = px__private_pool_of(r->stream);
  r->size = px__pool_round(r->device, r->bytes);
  r->small = r->size <= PX__SMALL_MAX;
  px_status failure = PX_OK;
  for (int i = 0; i < PX_COUNT_OF(strategies); i++) {
    if (strategies[i].applies && !strategies[i].applies(r)) continue;
    r->status = PX_OK;
    px__block *block = strategies[i].try(r);
    if (block) {
      if (PX_UNLIKELY(failure != PX_OK)) px_error_clear();
      *out = px__block_take(r, block);
      return PX_OK;
    }
    if (r->status != PX_OK) failure = r->status;
    if (failure != PX_OK && failure != PX_OUT_OF_MEMORY) break;
  }
  return failure;
}

// ---- allocating
// An allocation of 0 bytes has a header but no memory.
static px_status new_empty(px_allocation **out, px__device *d) {
  px__allocation *empty;
  PX_TRY(PX_NEW(&empty));
  empty->pub.device = px_cuda(d->index), empty->kind = PX__META;
  *out = &empty->pub;
  return PX_OK;
}

static bool is_uncached(void) { return px__bins_disabled_for(PX__UNCACHED | PX__PLUGGED); }

static px_status new_allocation(px_allocation **out, size_t bytes, px__device *d,
                                px_stream *stream) {
  *out = NULL;
  if (bytes == 0) return new_empty(out, d);
  if (bytes > MAX_BYTES) return px__out_of_memory(d, MAX_BYTES);
  px__request r = {.device = d, .stream = stream, .bytes = bytes, .may_wait = true};
  if (is_uncached()) {
    px_status status = px__raw_new(out, &r);
    return status == PX_OUT_OF_MEMORY ? px__out_of_memory(d, bytes) : status;
  }
  if (px__history_wants(PX_HISTORY_LIVE)) r.stack = px__stack_here();
  px__device_lock(d);
  px_status status = serve(out, &r);
  px__device_unlock(d);
  return PX_LIKELY(status == PX_OK) ? PX_OK
                                    : px_error_add_frame(status, __FILE__, __LINE__, __func__);
}

px_status px__cache_new(px_allocation **out, size_t bytes, px__device *d) {
  px__biased_lock_thread *me = px__biased_lock_here;
  px_stream *stream = px__stream_now(d);
  *out = px__bin_take(stream, bytes, me);
  return PX_LIKELY(*out != NULL) ? PX_OK : new_allocation(out, bytes, d, stream);
}
px_status px__cache_new_lasting(px_allocation **out, size_t bytes, px__device *d) {
  PX_TRY(new_allocation(out, bytes, d, d->streams[0]));
  (*out)->foreign = true;  // a free waits for all streams
  return PX_OK;
}

px_status px__cache_new_locked(px_allocation **out, size_t bytes, px__device *d) {
  *out = NULL;
  PX_CHECK(bytes <= MAX_BYTES, PX_OUT_OF_MEMORY, "no device has %zu bytes", bytes);
  px__request r = {.device = d, .stream = px__stream_now(d), .bytes = bytes};
  if ((*out = px__bin_take(r.stream, bytes, px__biased_lock_here))) return PX_OK;
  if (is_uncached()) return px__raw_new(out, &r);
  if (px__history_wants(PX_HISTORY_LIVE)) r.stack = px__stack_at_launch();
  return serve(out, &r);
}
