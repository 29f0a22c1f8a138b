// SPDX-License-Identifier: Apache-2.0
// Copies between allocations of any devices.
//
// Pageable host memory is not accessed after the call returns. A copy between devices runs on the
// source's current stream, with waits both ways. Without peer access it goes through page-locked
// memory in pieces.
#include "device/memory/memory.h"
#include "device/work/work.h"

enum { PIECE = 32 << 20, STAGED = 64 << 10 };  // bytes; drivers stage copies up to STAGED

typedef struct transfer {
  px_allocation *to, *from;
  size_t to_offset, from_offset, bytes;
} transfer;

static px_access access_of(px_allocation *allocation, size_t offset, size_t bytes, bool write) {
  return (px_access){
      .allocation = allocation, .begin = offset, .end = offset + bytes, .write = write};
}
static int side_of(const px_allocation *allocation) {
  return allocation->device.type == PX_CPU ? -1
                                           : px__rt.devices[allocation->device.index]->physical;
}

// Issues the copy on the stream. `pinned`: host memory may be accessed after the backend's call.
// `mark`: also after the library's.
static px_status issue(px_stream *stream, px_copy_kind kind, const transfer *t, bool pinned,
                       bool mark) {
  px_copy copy = {.kind = kind,
                  .to = (char *)t->to->data + t->to_offset,
                  .from = (const char *)t->from->data + t->from_offset,
                  .to_device = side_of(t->to),
                  .from_device = side_of(t->from),
                  .bytes = t->bytes,
                  .pinned = pinned};
  px_access accesses[2];
  int count = 0;
  if (copy.to_device >= 0 || pinned)
    accesses[count++] = access_of(t->to, t->to_offset, t->bytes, true);
  if (copy.from_device >= 0 || pinned)
    accesses[count++] = access_of(t->from, t->from_offset, t->bytes, false);
  px__work work;
  PX_TRY(px__work_begin(&work, stream, "copy", accesses, count));
  px__profile_work_is(&work, PX_PROFILE_COPY);
  px_status status = px__rt.backend->copy(stream->native, &copy);
  px__work_end(&work, mark);
  return status == PX_OK ? PX_OK : px__broken_note(stream->owner, status);
}

static px_status copy_host(const transfer *t) {
  px_access to = access_of(t->to, t->to_offset, t->bytes, true);
  px_access from = access_of(t->from, t->from_offset, t->bytes, false);
  PX_TRY(px__allocation_host_access("copy", &to));
  PX_TRY(px__allocation_host_access("copy", &from));
  char *target = (char *)t->to->data + t->to_offset;
  const char *source = (char *)t->from->data + t->from_offset;
  if (t->to == t->from) return memmove(target, source, t->bytes), PX_OK;
  return px__copy_interruptible(target, source, t->bytes);
}

// Copies between the host and a device.
static px_status copy_across(const transfer *t, bool non_blocking) {
  bool to_device = t->from->device.type == PX_CPU;
  px_allocation *host = to_device ? t->from : t->to, *device = to_device ? t->to : t->from;
  px__device *d;
  PX_TRY(px__device_get(&d, device->device.index));
  px_stream *stream = px__stream_now(d);
  bool pinned = px__allocation_is_pinned(host, to_device ? t->from_offset : t->to_offset, t->bytes);
  bool queued = non_blocking && pinned;
  bool returns = queued || (to_device && non_blocking);
  if (px__capture_of(stream) && !queued) return px__capture_invalidate(px__capture_of(stream), 900);
  if (!returns) PX_TRY(px__capture_check(stream));
  if (!returns) PX_TRY(px__sync_point());
  // A pageable copy may block in the backend, under the lock. Wait here before, without it.
  if (!pinned && (!to_device || t->bytes > STAGED)) PX_TRY(px__stream_wait_all(stream));
  // Wait for conflicting copies of unordered streams too: the result is then correct, and the race
  // checker reports the copy as unordered.
  if (!queued && __atomic_load_n(&host->pending, __ATOMIC_ACQUIRE))
    PX_TRY(px__allocation_wait_conflicts(host, !to_device, stream));
  // An interrupted wait leaves the copy running: it still uses page-locked memory.
  bool tracked = queued || (pinned && px_interrupt_wanted());
  PX_TRY(issue(stream, to_device ? PX_COPY_HOST_TO_DEVICE : PX_COPY_DEVICE_TO_HOST, t, pinned,
               tracked));
  return returns && !px__stream_blocks(stream) ? PX_OK : px__stream_finish(stream);
}

static px_status copy_within(const transfer *t) {
  px__device *d;
  PX_TRY(px__device_get(&d, t->to->device.index));
  px_stream *stream = px__stream_now(d);
  PX_TRY(issue(stream, PX_COPY_DEVICE_TO_DEVICE, t, false, false));
  return px__stream_blocks(stream) ? px__stream_finish(stream) : PX_OK;
}

// ---- between devices
// Enables peer access for copies if possible. Independent of px_device_enable_peer.
static px_status open_peer(bool *open, px__device *from, px__device *to) {
  const px_backend *backend = px__rt.backend;
  bool *known = &from->peer_open[to->index];
  *open = __atomic_load_n(known, __ATOMIC_ACQUIRE);
  if (*open || !backend->can_access_peer(from->physical, to->physical)) return PX_OK;
  px__device_lock(from);
  px_status status = *known ? PX_OK : backend->enable_peer(from->physical, to->physical);
  if (status == PX_OK) __atomic_store_n(known, true, __ATOMIC_RELEASE);
  px__device_unlock(from);
  *open = status == PX_OK;
  return status;
}

// Copies one piece: down on the source's stream, up on the destination's.
static px_status copy_piece(const transfer *t, px_allocation *staging, px_stream *source,
                            px_stream *target) {
  transfer to_host = {
      .to = staging, .from = t->from, .from_offset = t->from_offset, .bytes = t->bytes};
  transfer to_device = {.to = t->to, .to_offset = t->to_offset, .from = staging, .bytes = t->bytes};
  PX_TRY(issue(source, PX_COPY_DEVICE_TO_HOST, &to_host, true, true));
  PX_TRY(px__stream_order(target, source));
  return issue(target, PX_COPY_HOST_TO_DEVICE, &to_device, true, true);
}

static px_status copy_staged(const transfer *t, px_stream *source, px_stream *target) {
  for (size_t done = 0; done < t->bytes; done += PIECE) {
    transfer piece = *t;
    piece.to_offset += done, piece.from_offset += done;
    piece.bytes = t->bytes - done < PIECE ? t->bytes - done : PIECE;
    px_allocation *staging;
    PX_TRY(px__allocation_new_pinned(&staging, piece.bytes));
    px_status status = copy_piece(&piece, staging, source, target);
    px__allocation_free(staging);  // its pending uses name both streams
    PX_TRY(status);
  }
  return PX_OK;
}

static px_status copy_peer(const transfer *t) {
  px__device *from, *to;
  bool open;
  PX_TRY(px__device_get(&from, t->from->device.index));
  PX_TRY(px__device_get(&to, t->to->device.index));
  px_stream *source = px__stream_now(from), *target = px__stream_now(to);
  PX_TRY(open_peer(&open, from, to));
  if (open) {
    PX_TRY(px__stream_order(source, target));
    PX_TRY(issue(source, PX_COPY_PEER, t, false, false));
    PX_TRY(px__stream_order(target, source));
  } else {
    PX_TRY(copy_staged(t, source, target));
  }
  return px__stream_blocks(target) ? px__stream_finish(target) : PX_OK;
}

px_status px__copy_bytes(px_allocation *to, size_t to_offset, px_allocation *from,
                         size_t from_offset, size_t bytes, bool non_blocking) {
  transfer t = {to, from, to_offset, from_offset, bytes};
  if (bytes == 0) return PX_OK;
  if (to->device.type == PX_META || from->device.type == PX_META) return px__meta_copy(to);
  PX_TRY(px__allocation_check_bounds(to, to_offset + bytes));
  PX_TRY(px__allocation_check_bounds(from, from_offset + bytes));
  PX_CHECK(to_offset + bytes <= to->bytes && from_offset + bytes <= from->bytes, PX_BUG,
           "a copy of %zu bytes exceeds its allocation", bytes);
  PX_CHECK(!px__fault(PX__FAULT_COPY), PX_ACCELERATOR, "a copy could not be made (injected)");
  PX_TRY(px__allocation_before_write(to));
  bool to_host = to->device.type == PX_CPU, from_host = from->device.type == PX_CPU;
  if (to_host && from_host) return copy_host(&t);
  if (px__rt.forked) return px__error_cuda(3);
  if (to_host || from_host) return copy_across(&t, non_blocking);
  return to->device.index == from->device.index ? copy_within(&t) : copy_peer(&t);
}

bool px__device_reaches(px_device device, px_device other) {
  if (device.type != other.type) return false;
  if (device.type != PX_CUDA || device.index == other.index) return true;
  return px_device_peer_enabled(device.index, other.index) &&
         px_device_peer_enabled(other.index, device.index);
}
