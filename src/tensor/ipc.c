// SPDX-License-Identifier: Apache-2.0
// Device storages across processes: handles, and storages made from handles. ipc_counters.c keeps
// the reference counts.
#include "tensor/ipc_counters.h"
#include "tensor/storage.h"

// ---- sending
static void collect_for_memory(void) { px__ipc_references_collect(); }

static px_status describe(px_storage_handle *out, px_storage *storage) {
  px_device_properties properties;
  px_allocation *allocation = storage->allocation;
  px__ipc_reference *p;
  size_t offset;
  PX_TRY(px_device_get_properties(&properties, allocation->device.index));
  memcpy(out->device, properties.uuid, sizeof out->device);
  out->bytes = allocation->bytes;
  if (!allocation->bytes) return PX_OK;
  PX_TRY(px__ipc_reference_of_storage(&p, storage));
  PX_TRY(px__allocation_share(&out->memory, &offset, allocation));
  PX_TRY(px__allocation_record(p->event, allocation));
  PX_TRY(px_event_ipc_handle(&out->event, p->event));
  out->offset = offset;
  px__ipc_reference_send(out, p);
  return PX_OK;
}

px_status px_storage_ipc_handle(px_storage_handle *out, px_storage *storage) {
  PX_GIVEN(out);
  PX_GIVEN(storage);
  *out = (px_storage_handle){.bytes = 0};
  PX_TRY(px__storage_ready(storage));
  PX_CHECK(storage->allocation->device.type == PX_CUDA, PX_RUNTIME,
           "expected a device storage, got a CPU storage: share it with px_storage_fd");
  PX_TRY(px_device_init());
  px__reclaim_add(collect_for_memory);
  if (px__ipc_references_collect_is_due()) px__ipc_references_collect();
  return describe(out, storage);
}

px_status px_storage_ipc_collect(int64_t *left) {
  PX_GIVEN(left);
  *left = 0;
  if (!px_device_initialized()) return PX_OK;
  px__wrapped_sweep();
  *left = px__ipc_references_collect();
  return PX_OK;
}

// ---- receiving

// Returns the storage of a handle: an existing one of this process, or `fresh` with the opened
// memory. Two threads receiving the same handle concurrently may get two storages over the same
// memory.
static px_status receive(px_storage **out, px_storage *fresh, const px_storage_handle *handle) {
  px_allocation *allocation;
  px__ipc_reference *p;
  PX_TRY(px__ipc_reference_find(out, &p, handle));
  if (*out) return PX_OK;
  px__foreign foreign = {handle->memory, handle->offset, handle->bytes, px__ipc_reference_drop, p};
  px_status status = px__allocation_open(&allocation, fresh->allocation->device.index, &foreign);
  if (status != PX_OK) return px__ipc_reference_drop(p), status;
  fresh->fixed = true;
  px__ipc_reference_attach(fresh, allocation, p);
  *out = px_retain(fresh);
  return PX_OK;
}

// Orders later work of all streams of the device after the sender's work: the receiving thread may
// belong to a pool without a stream of its own. `own_event` is the sender's event if this process
// is the sender, else NULL.
static px_status wait_for_sender(const px_storage_handle *handle, int device, px_event *own_event) {
  static const px_ipc_handle none;
  PX_SCOPED(px_event) event = px_retain(own_event);
  if (!memcmp(&handle->event, &none, sizeof none)) return PX_OK;
  if (!event) PX_TRY(px_event_from_ipc_handle(&event, px_cuda(device), &handle->event));
  return px__device_wait_event(device, event);
}

px_status px_storage_from_ipc_handle(px_storage **out, const px_storage_handle *handle) {
  int device;
  PX_GIVEN(out);
  PX_GIVEN(handle);
  *out = NULL;
  PX_TRY(px__device_of_uuid(&device, handle->device));
  PX_SCOPED(px_storage) fresh = NULL;
  PX_TRY(px__storage_new(&fresh, 0, px_cuda(device), px__thread_cache_here));
  if (!handle->bytes) return *out = PX_MOVE(fresh), PX_OK;
  PX_SCOPED(px_storage) found = NULL;
  PX_SCOPED(px_event) event = NULL;
  PX_TRY(px__ipc_reference_is_own(handle)
             ? px__ipc_reference_take_back(&found, &event, fresh, handle)
             : receive(&found, fresh, handle));
  PX_TRY(wait_for_sender(handle, device, event));
  px__ipc_reference_received(found->ipc_reference);  // last: a failed call may be repeated
  *out = PX_MOVE(found);
  return PX_OK;
}
