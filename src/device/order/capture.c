// SPDX-License-Identifier: Apache-2.0
// An active capture: its streams and its recorded work.
//
// A captured stream has the id of its capture, and allocates from the capture's private pool. Its
// timeline continues: captured work has sequence numbers and clocks, for the allocator and the race
// checker. Captured work counts as done once the stream reaches a mark after the capture.
#include "device/order/capture.h"

// ---- streams

// Device's lock held, the captures' lock not: no other thread changes this device's pools.
static px_status find_pool(px_graph *g, px__device *d, px__private_pool **out) {
  for (int i = 0; i < g->pool_count; i++)
    if (g->pools[i].device == d) return *out = g->pools[i].private_pool, PX_OK;
  px__captures_lock();
  px_status status =
      px__realloc((void **)&g->pools, (size_t)(g->pool_count + 1) * sizeof *g->pools);
  if (status == PX_OK) status = px__private_pool_open(out, d, g->pool);
  if (status == PX_OK) {
    (*out)->captured = true;
    g->pools[g->pool_count++] = (px__capture_pool){d, *out};
  }
  px__captures_unlock();
  return status;
}

px_status px__capture_add(px_graph *g, px_stream *stream) {
  px__private_pool *pool;
  PX_TRY(find_pool(g, stream->owner, &pool));
  px__captures_lock();
  px_status status =
      px__realloc((void **)&g->members, (size_t)(g->member_count + 1) * sizeof(px_stream *));
  if (status == PX_OK) {
    g->members[g->member_count++] = px_retain(stream);
    stream->private_pool = pool;
    stream->captured = 0;
    __atomic_store_n(&stream->capture, g->id, __ATOMIC_RELEASE);
  }
  px__captures_unlock();
  return status;
}

px_status px__capture_join(px_stream *stream, uint64_t capture) {
  uint64_t own = px__capture_of(stream);
  if (!capture) return px__capture_invalidate(own, 905);
  px__captures_lock();
  px_graph *g = px__capture_by_id(capture),
           *other = own && own != capture ? px__capture_by_id(own) : NULL;
  bool invalid = g && g->invalid;
  if (g && other) g->invalid = other->invalid = true;
  if (!g && other) other->invalid = true;
  px__captures_unlock();
  if (!g) return px__error_cuda(907);
  if (other) return px__error_cuda(902);
  if (invalid) return px__error_cuda(901);
  return own ? PX_OK : px__capture_add(g, stream);
}

// ---- recording

static px_status reserve(void **rows, int64_t *capacity, int64_t count, size_t size) {
  if (count < *capacity) return PX_OK;
  int64_t larger = *capacity ? 2 * *capacity : 32;
  PX_TRY(px__realloc(rows, (size_t)larger * size));
  *capacity = larger;
  return PX_OK;
}

static px_status record_access(px_graph *g, const px_access *a) {
  PX_TRY(reserve((void **)&g->accesses, &g->access_capacity, g->access_count, sizeof *g->accesses));
  px__captured_access *access = &g->accesses[g->access_count++];
  *access = (px__captured_access){.data = a->allocation->data,
                                  .begin = a->begin,
                                  .end = a->end,
                                  .write = a->write,
                                  .work = g->work_count};
  memcpy(access->gaps, a->gaps, sizeof access->gaps);
  return PX_OK;
}

// The graph keeps the address from now on. Exposes the allocation.
static void expose(px_allocation *allocation) {
  const px__allocation *b = px__allocation_of(allocation);
  bool outside = b->kind == PX__CACHED && !((const px__block *)b)->in_private_pool;
  if (outside || b->kind == PX__RAW) allocation->foreign = true;
}

static px_status record(px_graph *g, const px__work *work, const px_access *accesses, int count) {
  PX_TRY(reserve((void **)&g->works, &g->work_capacity, g->work_count, sizeof *g->works));
  for (int i = 0; i < count; i++) {
    if (!px__access_given(&accesses[i])) continue;
    expose(accesses[i].allocation);
    if (px__races()) PX_TRY(record_access(g, &accesses[i]));
  }
  g->works[g->work_count++] = *work;
  return PX_OK;
}

px_status px__capture_record(const px__work *work, const px_access *accesses, int count) {
  px__captures_lock();
  px_graph *g = px__capture_by_id(work->capture);
  bool valid = g && !g->invalid;
  px_status status = valid ? record(g, work, accesses, count) : PX_OK;
  px__captures_unlock();
  if (!valid) return px__error_cuda(901);
  if (status == PX_OK) __atomic_store_n(&work->stream->captured, work->seq, __ATOMIC_RELAXED);
  return status;
}
