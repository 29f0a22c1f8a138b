// SPDX-License-Identifier: Apache-2.0
// Device memory between processes. An allocation of another process is opened once, and closed with
// the last px_allocation over it.
#include "device/order/order.h"

typedef struct mapping {
  struct mapping *next;
  int refs;
  px__device *device;
  px_ipc_handle handle;
  void *memory;
  size_t bytes;
} mapping;
// Context of the release function of a px_allocation over one.
typedef struct part {
  mapping *whole;
  void (*release)(void *);
  void *context;
} part;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mapping *first;  // guarded by `lock`, also held while the backend opens or closes memory

static px_status can_share(const px__device *d) {
  PX_CHECK(PX__BACKEND_HAS(px__rt.backend, memory_share), PX_UNIMPLEMENTED,
           "the backend %s cannot share memory of cuda:%d with other processes",
           px__rt.backend->name, d->index);
  return PX_OK;
}

// A live allocation does not move, so its pages can be shared if the backend supports it.
static px_status check_pages(px__device *d, const px__allocation *allocation) {
  if (allocation->kind != PX__CACHED) return PX_OK;
  px__device_lock(d);
  bool paged = ((const px__block *)allocation)->segment->paged;
  px__device_unlock(d);
  PX_CHECK(!paged || px__rt.backend->shares_pages, PX_UNIMPLEMENTED,
           "the backend %s cannot share memory of expandable segments with other processes: set "
           "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",
           px__rt.backend->name);
  return PX_OK;
}

px_status px__allocation_share(px_ipc_handle *out, size_t *offset, px_allocation *allocation) {
  px__device *d;
  PX_TRY(px__device_get(&d, allocation->device.index));
  PX_TRY(can_share(d));
  PX_TRY(check_pages(d, px__allocation_of(allocation)));
  return px__rt.backend->memory_share(d->physical, allocation->data, out, offset);
}

// Orders later work of the stream after all uses of the allocation so far.
static px_status order_after_uses(px_stream *after, px_allocation *allocation) {
  px__allocation *a = px__allocation_of(allocation);
  px__device *d = after->owner;
  px_stream *user;
  PX_TRY(px__stream_order(after, px__stream_now(d)));
  if (a->kind == PX__CACHED || a->kind == PX__RAW)
    PX_TRY(px__stream_order(after, ((px__block *)a)->stream));
  for (int i = 0; (user = px__allocation_user(a, i)); i++) PX_TRY(px__stream_order(after, user));
  int known = allocation->foreign ? __atomic_load_n(&d->stream_count, __ATOMIC_ACQUIRE) : 0;
  for (int i = 0; i < known; i++) PX_TRY(px__stream_order(after, d->streams[i]));
  return PX_OK;
}

// Records on an internal stream: the sending thread may not know the streams used by the program,
// and none of them shall wait.
px_status px__allocation_record(px_event *event, px_allocation *allocation) {
  px__device *d;
  PX_TRY(px__device_get(&d, allocation->device.index));
  PX_TRY(px__capture_check_device(d));
  pthread_mutex_lock(&lock);
  px_status status = d->ipc_stream ? PX_OK : px_stream_new(&d->ipc_stream, allocation->device, 0);
  if (status == PX_OK) status = order_after_uses(d->ipc_stream, allocation);
  if (status == PX_OK) status = px_event_record(event, d->ipc_stream);
  pthread_mutex_unlock(&lock);
  return status;
}

static px_status open_new(mapping **out, px__device *d, const px_ipc_handle *handle) {
  mapping *o;
  PX_TRY(PX_NEW(&o));
  *o = (mapping){.next = first, .device = d, .handle = *handle};
  px_status status = px__rt.backend->memory_open(d->physical, handle, &o->memory, &o->bytes);
  if (status != PX_OK) return px__free(o), status;
  *out = first = o;
  return PX_OK;
}

static px_status open_memory(mapping **out, px__device *d, const px_ipc_handle *handle) {
  pthread_mutex_lock(&lock);
  mapping *o = first;
  while (o && (o->device != d || memcmp(&o->handle, handle, sizeof *handle))) o = o->next;
  px_status status = o ? PX_OK : open_new(&o, d, handle);
  if (status == PX_OK) o->refs++;
  pthread_mutex_unlock(&lock);
  *out = o;
  return status;
}

static void close_memory(mapping *o) {
  pthread_mutex_lock(&lock);
  bool last = --o->refs == 0;
  if (last) {
    mapping **at = &first;
    while (*at != o) at = &(*at)->next;
    *at = o->next;
    px__rt.backend->memory_close(o->device->physical, o->memory);
  }
  pthread_mutex_unlock(&lock);
  if (last) px__free(o);
}

static void release_part(void *context) {
  part p = *(part *)context;
  if (!px__device_alive()) return;  // in a forked child the memory belongs to the parent
  px__free(context);
  close_memory(p.whole);
  if (p.release) p.release(p.context);
}

static px_status wrap_part(px_allocation **out, part **p, mapping *o, size_t offset, size_t bytes) {
  PX_CHECK(offset <= o->bytes && bytes <= o->bytes - offset, PX_VALUE,
           "expected a range within the %zu bytes of the IPC handle, got %zu bytes at offset %zu",
           o->bytes, bytes, offset);
  PX_TRY(PX_NEW(p));
  (*p)->whole = o;
  return px__allocation_wrap(out, (char *)o->memory + offset, bytes, px_cuda(o->device->index),
                             release_part, *p);
}

px_status px__allocation_open(px_allocation **out, int device, const px__foreign *foreign) {
  px__device *d;
  mapping *o = NULL;
  part *p = NULL;
  PX_TRY(px__device_get(&d, device));
  PX_TRY(can_share(d));
  PX_TRY(open_memory(&o, d, &foreign->handle));
  px_status status = wrap_part(out, &p, o, foreign->offset, foreign->bytes);
  if (status != PX_OK) {
    px__free(p);
    close_memory(o);
    return px_error_add_frame(status, __FILE__, __LINE__, __func__);
  }
  p->release = foreign->release, p->context = foreign->context;
  return PX_OK;
}
