// SPDX-License-Identifier: Apache-2.0
// A capture under way: which streams are part of it, and what it keeps.
//
// A stream that is captured has the number of its capture; memory for it comes from a room. Its
// timeline goes on: captured work has numbers and clocks, by which the allocator and the race
// checker see what is ordered. It counts as done when the stream has allocator_synced a mark after
// the capture.
#include "device/capture.h"

// ---- streams

// The device's lock is held, the captures' not: nobody else changes the pools of this device.
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

// ---- what is kept

static px_status make_room(void **rows, int64_t *room, int64_t count, size_t size) {
  if (count < *room) return PX_OK;
  int64_t more = *room ? 2 * *room : 32;
  PX_TRY(px__realloc(rows, (size_t)more * size));
  *room = more;
  return PX_OK;
}

static px_status keep_touch(px_graph *g, const px_access *a) {
  PX_TRY(make_room((void **)&g->touches, &g->touch_room, g->touch_count, sizeof *g->touches));
  px__captured_access *touch = &g->touches[g->touch_count++];
  *touch = (px__captured_access){.data = a->allocation->data,
                                 .begin = a->begin,
                                 .end = a->end,
                                 .write = a->write,
                                 .work = g->work_count};
  memcpy(touch->gaps, a->gaps, sizeof touch->gaps);
  return PX_OK;
}

// The graph has the address from now on, as if it had left the library.
static void hand_out(px_allocation *allocation) {
  const px__allocation *b = px__allocation_of(allocation);
  bool outside = b->kind == PX__CACHED && !((const px__block *)b)->in_private_pool;
  if (outside || b->kind == PX__RAW) allocation->foreign = true;
}

static px_status keep(px_graph *g, const px__work *work, const px_access *accesses, int count) {
  PX_TRY(make_room((void **)&g->works, &g->work_room, g->work_count, sizeof *g->works));
  for (int i = 0; i < count; i++) {
    if (!px__access_given(&accesses[i])) continue;
    hand_out(accesses[i].allocation);
    if (px__races()) PX_TRY(keep_touch(g, &accesses[i]));
  }
  g->works[g->work_count++] = *work;
  return PX_OK;
}

px_status px__capture_record(const px__work *work, const px_access *accesses, int count) {
  px__captures_lock();
  px_graph *g = px__capture_by_id(work->capture);
  bool whole = g && !g->invalid;
  px_status status = whole ? keep(g, work, accesses, count) : PX_OK;
  px__captures_unlock();
  if (!whole) return px__error_cuda(901);
  if (status == PX_OK) __atomic_store_n(&work->stream->captured, work->seq, __ATOMIC_RELAXED);
  return status;
}
