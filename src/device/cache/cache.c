// SPDX-License-Identifier: Apache-2.0
// The caching allocator's policy: the steps before a request fails.
//
// 1. Free blocks of the stream, usable ones of other streams, a new segment.
// 2. Once the device is out of memory: call the reclaim functions of upper layers. Wait for
//    pending frees, and for work with uses of free blocks. Merge free neighbours. Search again.
// 3. Move free pages to the best gap for the request.
// 4. Release idle segments and retry a new segment. Search again, also blocks of the other kind.
// 5. Try a segment no larger than the request, then private pools with use_on_oom.
#include "device/cache/fast_bin.h"

#define MAX_BYTES ((size_t)PTRDIFF_MAX / 2)  // bytes of the largest allocation

// ---- reclaim functions of upper layers
enum { MAX_RECLAIMS = 16 };
static void (*reclaims[MAX_RECLAIMS])(void);  // atomic; never removed
void px__reclaim_add(void (*reclaim)(void)) {
  for (int i = 0; i < MAX_RECLAIMS; i++) {
    void (*none)(void) = NULL;
    if (__atomic_load_n(&reclaims[i], __ATOMIC_ACQUIRE) == reclaim) return;
    if (__atomic_compare_exchange_n(&reclaims[i], &none, reclaim, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
      return;
  }
}

static void reclaim_all(void) {
  px__wrapped_sweep();
  for (int i = 0; i < MAX_RECLAIMS; i++) {
    void (*reclaim)(void) = __atomic_load_n(&reclaims[i], __ATOMIC_ACQUIRE);
    if (reclaim) reclaim();
  }
}

// Finds the first unfinished use of a pending free. Skips captured work, which never finishes. Lock
// held.
static bool next_pending(px__device *d, px__use *out) {
  px__pool_sweep(d);
  for (px__block *block = d->cache.pending; block; block = block->queue)
    for (int i = 0; i < block->allocation.use_count; i++) {
      *out = block->allocation.uses[i];
      if (px__done(out->stream) < out->seq && !px__capture_of(out->stream)) return true;
    }
  return false;
}

// Finds the last work item of the stream that still guards its free blocks. Lock held.
static bool guards_free_blocks(px__device *d, px_stream *s, px__use *out) {
  px__pool_flush(d);
  const px__free_lists *free_lists = &s->free_lists;
  bool idle = px__capture_of(s) || px__done(s) >= s->issued;
  bool has = free_lists->free[0] || free_lists->free[1] || free_lists->unsorted[0] ||
             free_lists->unsorted[1];
  *out = (px__use){s, s->issued, false};
  return !idle && (has || d->cache.private_pools);  // these hold blocks freed by all streams
}

static px_status wait_pending(px__device *d) {
  px__use use;
  for (;;) {
    px__device_lock(d);
    bool busy = next_pending(d, &use);
    px__device_unlock(d);
    if (!busy) return PX_OK;
    PX_TRY(px__stream_wait_seq(use.stream, use.seq));
  }
}

px_status px__cache_wait(px__device *d) {
  px__use use;
  PX_TRY(wait_pending(d));
  for (int i = 0; i < __atomic_load_n(&d->stream_count, __ATOMIC_ACQUIRE); i++) {
    px__device_lock(d);
    bool busy = guards_free_blocks(d, d->streams[i], &use);
    px__device_unlock(d);
    if (busy) PX_TRY(px__stream_wait_seq(use.stream, use.seq));
  }
  return PX_OK;
}

// ---- allocating
// From free memory. Lock held.
static px_allocation *from_pool(const px__request *r) {
  px_allocation *allocation = px__compact_allocate(r);
  return allocation ? allocation : px__pool_allocate(r);
}

// The same, else from the device. Lock held.
static px_status serve(px_allocation **out, px__request *r) {
  px__device *d = r->device;
  if (d->cache.pending) px__pool_sweep(d);
  if ((*out = from_pool(r))) return PX_OK;
  px__reserve_try(out, r);
  return *out || r->retry_after_wait ? PX_OK : px__segment_extend(out, r);
}

static void record_oom(const px__request *r) {
  size_t free_bytes = 0, total;
  if (!px__history_on()) return;
  if (px__rt.backend->memory_info(r->device->physical, &free_bytes, &total) != PX_OK)
    px_error_clear();
  px__history_note(r->device, &(px_memory_event){.action = PX_MEMORY_OOM,
                                                 .size = (int64_t)r->size,
                                                 .free_bytes = (int64_t)free_bytes,
                                                 .stream = r->stream->id,
                                                 .stack = r->stack});
}

// After an out-of-memory error of the device. Lock held.
static px_status serve_after_oom(px_allocation **out, const px__request *r) {
  px__device *d = r->device;
  px__pool_flush(d);
  px__pool_sweep(d);
  px__pool_merge(d);
  d->cache.compact = px__compact_possible(d);
  if ((*out = from_pool(r))) return PX_OK;
  d->cache.statistics.num_alloc_retries++;
  px__request exact = *r;
  exact.exact = true;
  px_status status = px__runs_grow(out, r, 0);
  if (*out || (status != PX_OK && status != PX_OUT_OF_MEMORY)) return status;
  px__reserve_release(d, true);
  status = px__segment_extend(out, r);
  if (status != PX_OUT_OF_MEMORY) return status;
  if ((*out = from_pool(r)) || (*out = px__pool_allocate_other(r))) return PX_OK;
  status = px__runs_grow(out, r, 0);
  if (!*out && (status == PX_OK || status == PX_OUT_OF_MEMORY))
    status = px__segment_extend(out, &exact);
  if (status != PX_OUT_OF_MEMORY) return status;
  if ((*out = px__pool_allocate_lent(r))) return PX_OK;
  d->cache.statistics.num_ooms++;
  record_oom(r);
  return status;
}

static px_status serve_under_pressure(px_allocation **out, const px__request *r) {
  reclaim_all();
  PX_TRY(px__cache_wait(r->device));
  px__device_lock(r->device);
  px_status status = serve_after_oom(out, r);
  px__device_unlock(r->device);
  return status;
}

// Serves a request after the wait asked for by px__reserve_try. No lock held.
__attribute__((noinline, cold)) static px_status serve_after_wait(px_allocation **out,
                                                                  px__request *r) {
  r->may_wait = r->retry_after_wait = false;
  PX_TRY(px__cache_wait(r->device));
  px__device_lock(r->device);
  px_status status = serve(out, r);
  px__device_unlock(r->device);
  return status;
}

static px_status raw_memory(void **out, const px__request *r) {
  if (px__fault(PX__FAULT_DEVICE_ALLOC)) return PX_OUT_OF_MEMORY;
  if (!px__bins_disabled_for(PX__PLUGGED))
    return px__rt.backend->alloc(r->device->physical, r->size, out);
  PX_CHECK(!px__capture_of(r->stream), PX_UNIMPLEMENTED,
           "graphs over memory of a pluggable allocator are not implemented in Phlox");
  return px__plugged_alloc(out, &px__rt.plugged, r, r->bytes);
}

// Without caching (PYTORCH_NO_CUDA_MEMORY_CACHING), or with an allocator in place of the cache. Not
// in the statistics.
static px_status new_raw(px_allocation **out, const px__request *r) {
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

// An allocation of 0 bytes has a header but no memory.
static px_status new_empty(px_allocation **out, px__device *d) {
  PX_TRY(px__allocation_wrap(out, NULL, 0, px_cuda(d->index), NULL, NULL));
  (*out)->foreign = false;
  return PX_OK;
}

static px_status new_allocation(px_allocation **out, size_t bytes, px__device *d,
                                px_stream *stream) {
  *out = NULL;
  if (bytes == 0) return new_empty(out, d);
  if (bytes > MAX_BYTES) return px__out_of_memory(d, MAX_BYTES);
  px__request r = {.device = d, .stream = stream, .bytes = bytes, .may_wait = true};
  if (px__history_wants(PX_HISTORY_LIVE)) r.stack = px__stack_here();
  px__device_lock(d);
  r.size = px__pool_round(d, bytes);
  bool uncached = px__bins_disabled_for(PX__UNCACHED | PX__PLUGGED);
  px_status status = uncached ? PX_OK : serve(out, &r);
  px__device_unlock(d);
  if (PX_UNLIKELY(r.retry_after_wait)) status = serve_after_wait(out, &r);
  if (PX_UNLIKELY(uncached))
    status = new_raw(out, &r);
  else if (PX_UNLIKELY(status == PX_OUT_OF_MEMORY))
    status = serve_under_pressure(out, &r);
  if (PX_LIKELY(status == PX_OK)) return PX_OK;
  if (status != PX_OUT_OF_MEMORY) return px_error_add_frame(status, __FILE__, __LINE__, __func__);
  return px__out_of_memory(d, r.size);
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
  if (px__history_wants(PX_HISTORY_LIVE)) r.stack = px__stack_at_launch();
  r.size = px__pool_round(d, bytes);
  if (px__bins_disabled_for(PX__UNCACHED | PX__PLUGGED)) return new_raw(out, &r);
  px_status status = serve(out, &r);
  return PX_LIKELY(status != PX_OUT_OF_MEMORY) ? status : serve_after_oom(out, &r);
}

// ---- freeing
// True if a launch batch may use the allocation.
static inline bool may_be_batched(const px__allocation *allocation) {
  return __atomic_load_n(&allocation->written_by, __ATOMIC_RELAXED) ||
         __atomic_load_n(&allocation->read_by, __ATOMIC_RELAXED);
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

// Makes all uses known and observable, before the memory is reused.
static void publish_uses(px__device *d, px__block *block) {
  if (px__launch_batching) px__launch_batching->let_go(&block->allocation);
  if (!block->allocation.pub.foreign && !block->allocation.use_count) return;
  px__error_guard guard;
  px__error_save(&guard);
  if (block->allocation.pub.foreign) record_all_streams(d, &block->allocation.pub);
  px__allocation_mark_uses(&block->allocation);
  px__error_restore(&guard);
}

void px__cache_free_raw(px_allocation *allocation) {
  px__block *block = (px__block *)allocation;
  px__device *d = px__device_found(allocation->device.index);
  if (!d) return;
  publish_uses(d, block);
  px__allocation_wait_uses(&block->allocation);
  px__allocation_drop_uses(&block->allocation);
  if (px__bins_disabled_for(PX__PLUGGED))
    px__plugged_free(block);
  else
    px__rt.backend->release(d->physical, allocation->data);
  px__free(block);
}

__attribute__((noinline)) static void free_locked(px__device *d, px__block *block) {
  publish_uses(d, block);
  if (px__bin_put(block)) return;
  const px_traceback *stack = px__history_wants(PX_HISTORY_ALL) ? px__stack_here() : NULL;
  px__device_lock(d);
  px__pool_free(d, block, stack);
  px__device_unlock(d);
}

void px__cache_free(px_allocation *allocation) {
  px__block *block = (px__block *)allocation;
  px__device *d = px__device_found(allocation->device.index);
  if (PX_UNLIKELY(!d)) return;  // in a forked child the memory belongs to the parent
  bool published = allocation->foreign || may_be_batched(&block->allocation);
  if (PX_UNLIKELY(published) || !px__bin_put(block)) free_locked(d, block);
}
