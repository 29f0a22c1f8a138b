// SPDX-License-Identifier: Apache-2.0
// The caching allocator's policy: where a request is served from, and what is tried before out of
// memory is the answer.
//
// Order: this stream's free memory, other streams' that is ordered or done, the device. Then what
// the layers above can let go, pending frees waited for and the pool searched again, unused
// segments given back, the device, and the pool once more.
#include "device/state.h"

#include <stdio.h>
#include <unistd.h>

static px_block *search(px__device *d, px_stream *stream, size_t size, size_t bytes) {
  px__chunk *chunk = px__pool_find(d, stream, size);
  return chunk ? px__pool_take(d, chunk, size, bytes) : NULL;
}

static px_status grow(px_block **out, px__device *d, px_stream *stream, size_t size, size_t bytes) {
  px__chunk *chunk;
  PX_TRY(px__pool_grow(&chunk, d, stream, size));
  *out = px__pool_take(d, chunk, size, bytes);
  return PX_OK;
}

static const char *size_text(char text[32], uint64_t bytes) {
  static const char *const units[] = {"KiB", "MiB", "GiB"};
  if (bytes <= 1024) {
    snprintf(text, 32, "%llu bytes", (unsigned long long)bytes);
    return text;
  }
  int unit = bytes <= 1 << 20 ? 0 : bytes <= 1 << 30 ? 1 : 2;
  snprintf(text, 32, "%.2f %s", (double)bytes / (double)(1ull << (10 * (unit + 1))), units[unit]);
  return text;
}

// Who holds memory of the device, in PyTorch's words.
static void list_processes(px__device *d, char *text, size_t room) {
  px_process rows[4];
  char held[32];
  size_t used = 0;
  int count = px__rt.backend->processes(d->physical, rows, PX_COUNT_OF(rows));
  *text = 0;
  for (int i = 0; i < count && used < room; i++) {
    size_text(held, rows[i].bytes);
    bool own = rows[i].id == (int64_t)getpid();
    int more =
        own ? snprintf(text + used, room - used,
                       "Including non-PyTorch memory, this process has %s memory in use. ", held)
            : snprintf(text + used, room - used, "Process %lld has %s memory in use. ",
                       (long long)rows[i].id, held);
    used += (size_t)more;
  }
}

static px_status out_of_memory(px__device *d, size_t size) {
  size_t free_bytes = 0, total = d->properties.total_memory;
  char wanted[32], has[32], unused[32], allowed[32], live[32], idle[32];
  char processes[320], limit[64] = "";
  if (px__rt.backend->memory_info(d->physical, &free_bytes, &total) != PX_OK) px_error_clear();
  uint64_t allocated = (uint64_t)d->cache.stats.allocated_bytes[0].current;
  uint64_t reserved = (uint64_t)d->cache.stats.reserved_bytes[0].current;
  list_processes(d, processes, sizeof processes);
  if (d->cache.limit)
    snprintf(limit, sizeof limit, "%s allowed; ", size_text(allowed, d->cache.limit));
  PX_FAIL(PX_OUT_OF_MEMORY,
          "CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s "
          "is free. %s%sOf the allocated memory %s is allocated by PyTorch, and %s is reserved by "
          "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
          "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
          "documentation for Memory Management  "
          "(https://docs.pytorch.org/docs/stable/notes/"
          "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)",
          size_text(wanted, px__pool_segment_size(d, size)), d->index, size_text(has, total),
          size_text(unused, free_bytes), processes, limit, size_text(live, allocated),
          size_text(idle, reserved - allocated));
}

// The first use of a pending free that is not done. Lock held.
static bool next_pending(px__device *d, px__use *out) {
  px__pool_sweep(d);
  px__chunk *chunk = d->cache.pending;
  if (!chunk) return false;
  for (int i = 0; i < chunk->block.use_count; i++) {
    *out = chunk->block.uses[i];
    if (px__completed(out->stream) < out->seq) return true;
  }
  return false;
}

px_status px__cache_drain(px__device *d) {
  px__use use;
  for (;;) {
    px__device_lock(d);
    bool waits = next_pending(d, &use);
    px__device_unlock(d);
    if (!waits) return PX_OK;
    PX_TRY(px__stream_reach(use.stream, use.seq));
  }
}

// Lock held; nothing fitted and the device refused.
static px_status release_and_grow(px_block **out, px__device *d, px_stream *stream, size_t size,
                                  size_t bytes) {
  px__pool_wake(d);
  px__pool_sweep(d);
  if ((*out = search(d, stream, size, bytes))) return PX_OK;
  d->cache.stats.num_alloc_retries++;
  px__pool_release(d);
  px_status status = grow(out, d, stream, size, bytes);
  if (status != PX_OUT_OF_MEMORY) return status;
  if ((*out = search(d, stream, size, bytes))) return PX_OK;
  d->cache.stats.num_ooms++;
  return out_of_memory(d, size);
}

static px_status under_pressure(px_block **out, px__device *d, px_stream *stream, size_t size,
                                size_t bytes) {
  if (!px__launch_inside()) {  // else the lock is held, and nobody may be waited for
    px__reclaim();
    PX_TRY(px__cache_drain(d));
  }
  px__device_lock(d);
  px_status status = release_and_grow(out, d, stream, size, bytes);
  px__device_unlock(d);
  return status;
}

// PYTORCH_NO_CUDA_MEMORY_CACHING: no cache, no counters.
static px_status new_raw(px_block **out, px__device *d, size_t bytes, size_t size) {
  px__chunk *chunk;
  PX_TRY(PX_NEW(&chunk));
  void *data = NULL;
  px_status status = px__fault(PX__FAULT_DEVICE_ALLOC)
                         ? PX_OUT_OF_MEMORY
                         : px__rt.backend->alloc(d->physical, size, &data);
  if (status != PX_OK) {
    px__free(chunk);
    return status == PX_OUT_OF_MEMORY ? out_of_memory(d, size) : status;
  }
  chunk->stream = px__stream_now(d);
  chunk->block = (px__block){.pub = {.data = data, .bytes = bytes, .device = px_cuda(d->index)},
                             .kind = PX__RAW};
  *out = &chunk->block.pub;
  return PX_OK;
}

// Nothing to hold: a head alone.
static px_status new_empty(px_block **out, px__device *d) {
  return px__block_wrap(out, NULL, 0, px_cuda(d->index), NULL, NULL);
}

px_status px__cache_new(px_block **out, size_t bytes, px__device *d) {
  *out = NULL;
  if (bytes == 0) {
    PX_TRY(new_empty(out, d));
    (*out)->foreign = false;
    return PX_OK;
  }
  if (bytes > (size_t)PTRDIFF_MAX / 2) return out_of_memory(d, (size_t)PTRDIFF_MAX / 2);
  px_stream *stream = px__stream_now(d);
  if ((*out = px__pool_again(d, stream, bytes))) return PX_OK;
  px__device_lock(d);
  size_t size = px__pool_round(d, bytes);
  if (px__rt.uncached) {
    px__device_unlock(d);
    return new_raw(out, d, bytes, size);
  }
  if (d->cache.pending) px__pool_sweep(d);
  px_status status = PX_OK;
  *out = search(d, stream, size, bytes);
  if (!*out) {
    if (d->cache.settings.threshold > 0) px__pool_collect(d);
    status = grow(out, d, stream, size, bytes);
  }
  px__device_unlock(d);
  if (PX_LIKELY(status == PX_OK)) return PX_OK;
  if (status != PX_OUT_OF_MEMORY) return px_error_pass(status, __FILE__, __LINE__, __func__);
  return under_pressure(out, d, stream, size, bytes);
}

// ---- freeing
// An address that left the library may be in use on any stream.
static void use_everywhere(px__device *d, px_block *block) {
  for (int i = 0; i < __atomic_load_n(&d->stream_count, __ATOMIC_ACQUIRE); i++) {
    px_stream *stream = d->streams[i];
    if (px__synced(stream) >= px__issued(stream)) continue;
    if (px__block_record_stream(block, stream) != PX_OK &&
        px__stream_reach(stream, px__issued(stream)) != PX_OK)
      px_error_clear();
  }
}

static void free_raw(px__device *d, px__chunk *chunk) {
  px__block_wait_uses(&chunk->block);
  px__block_drop_uses(&chunk->block);
  px__rt.backend->release(d->physical, chunk->block.pub.data);
  px__free(chunk);
}

void px__cache_free(px_block *block) {
  if (!px__device_alive()) return;  // in a forked child the memory is the parent's
  px__chunk *chunk = (px__chunk *)block;
  px__device *d = px__rt.devices[block->device.index];
  if (PX_UNLIKELY(block->foreign || chunk->block.use_count)) {
    px__error_guard guard;
    px__error_save(&guard);
    if (block->foreign) use_everywhere(d, block);
    px__block_mark_uses(&chunk->block);
    px__error_restore(&guard);
  }
  if (chunk->block.kind == PX__RAW) {
    free_raw(d, chunk);
    return;
  }
  if (PX_LIKELY(px__pool_rest(chunk))) return;
  px__device_lock(d);
  px__pool_give(d, chunk);
  px__device_unlock(d);
}

// ---- the public side
px_status px_memory_empty_cache(void) {
  if (!px__device_alive()) return PX_OK;
  px__wrapped_sweep();
  for (int i = 0; i < px__rt.count; i++) {
    px__device *d = px__rt.devices[i];
    if (!__atomic_load_n(&d->open, __ATOMIC_ACQUIRE)) continue;
    PX_TRY(px__cache_drain(d));
    px__device_lock(d);
    px__pool_release(d);
    px__device_unlock(d);
  }
  return PX_OK;
}

void px__cache_limit(px__device *d, double fraction) {
  size_t limit = (size_t)(fraction * (double)d->properties.total_memory);
  d->cache.limit = fraction < 1 ? (limit ? limit : 1) : 0;
}

px_status px_memory_set_fraction(double fraction, int device) {
  PX_CHECK(fraction >= 0 && fraction <= 1, PX_VALUE,
           "Invalid fraction value: %g. Allowed range: 0~1", fraction);
  px__device *d;
  PX_TRY(px_device_init());
  PX_TRY(px__device_get(&d, device < 0 ? px_device_peek() : device));
  px__device_lock(d);
  px__cache_limit(d, fraction);
  px__device_unlock(d);
  return PX_OK;
}

static const char *const states[] = {[PX__TAKEN] = "active_allocated",
                                     [PX__PENDING] = "active_pending_free",
                                     [PX__FREE] = "inactive"};

static px_memory_block describe(const px__segment *segment, const px__chunk *chunk) {
  return (px_memory_block){
      .segment_address = (int64_t)(uintptr_t)segment->data,
      .segment_size = (int64_t)segment->size,
      .address = (int64_t)chunk->node.address,
      .size = (int64_t)chunk->node.size,
      .requested = chunk->state == PX__FREE ? 0 : (int64_t)chunk->block.pub.bytes,
      .stream = chunk->stream->id,
      .small_pool = segment->small,
      .state = states[chunk->state]};
}

px_status px_memory_snapshot(int device, void (*each)(const px_memory_block *block, void *context),
                             void *context) {
  PX_GIVEN(each);
  if (!px__device_alive() || device < 0 || device >= px__rt.count) return PX_OK;
  px__device *d = px__rt.devices[device];
  px__device_lock(d);
  px__pool_wake(d);
  px__segment *last = d->cache.segments;
  while (last && last->next) last = last->next;
  for (px__segment *segment = last; segment; segment = segment->prev)
    for (px__chunk *chunk = segment->first; chunk; chunk = chunk->next) {
      px_memory_block block = describe(segment, chunk);
      each(&block, context);
    }
  px__device_unlock(d);
  return PX_OK;
}
