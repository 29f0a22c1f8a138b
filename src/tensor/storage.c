// SPDX-License-Identifier: Apache-2.0
// Storages: an allocation with the version counter shared by all tensors over it.
#include "tensor/storage.h"
#include "phlox/extend.h"
#include "tensor/in_use.h"

// A replaced allocation whose address was handed out (to a NumPy array, for example). It is kept
// until the storage is destroyed.
struct px__replaced {
  px__replaced *next;
  px_allocation *allocation;
};

__attribute__((noinline, cold)) void px__storage_free_memory(px_storage *storage,
                                                             px_allocation *allocation) {
  if (storage->ipc_reference)
    px__ipc_reference_end(storage, allocation);
  else
    px__allocation_free(allocation);
}

const px__deferred_hooks *px__deferred_hooks_set;

// Drops a deferred launch, frees replaced allocations, and ends the shrunk state.
__attribute__((noinline, cold)) void px__storage_end_rare(px_storage *storage) {
  if (storage->deferred) {
    px__deferred_hooks_set->drop(storage);
    return;
  }
  for (px__replaced *f = storage->replaced, *next; f; f = next) {
    next = f->next;
    px__allocation_free(f->allocation);
    px__free(f);
  }
  storage->replaced = NULL;
  if (storage->unshrunk_bytes) px__allocation_unmark_shrunk();
  storage->unshrunk_bytes = 0;
  storage->allocation->unsaved = false;
}

void px_tensor_guard_outline(px_tensor *outline) {
  px_storage *storage = outline->storage;
  if (storage->unshrunk_bytes || !outline->numel) return;
  storage->unshrunk_bytes = 1;
  storage->allocation->unsaved = true;
  px__allocation_mark_shrunk(storage->allocation);
}

static void storage_destroy(void *self) { px__storage_end(self, px__thread_cache_here); }
const px_class px__storage_class = {"storage", storage_destroy};

px_status px__storage_wrap(px_storage **out, void *data, size_t bytes, px_device device,
                           void (*release)(void *), void *context) {
  PX_SCOPED(px_storage) made = NULL;
  *out = NULL;
  PX_TRY(px__storage_make(&made, NULL, px__thread_cache_here));
  PX_TRY(px__allocation_wrap(&made->allocation, data, bytes, device, release, context));
  made->fixed = true;
  *out = PX_MOVE(made);
  return PX_OK;
}

// Returns the allocation before. *replaced: room to keep it, if its address is known outside.
static px_status swap(px_allocation **out, px__replaced **replaced, px_storage *storage,
                      px_allocation *allocation) {
  PX__CHANGE(NULL, storage);
  px_allocation *old = storage->allocation;
  if (old->foreign && old->device.type == PX_CPU) PX_TRY(PX_NEW(replaced));
  storage->allocation = allocation;
  *out = old;
  return PX_OK;
}

px_status px__storage_replace(px_storage *storage, px_allocation *allocation) {
  px_allocation *old = NULL;
  px__replaced *replaced = NULL;
  px_status status = px__allocation_before_write(storage->allocation);
  if (status == PX_OK) status = swap(&old, &replaced, storage, allocation);
  if (status != PX_OK) {
    px__allocation_free(allocation);
    return px_error_add_frame(status, __FILE__, __LINE__, __func__);
  }
  if (replaced) {
    *replaced = (px__replaced){storage->replaced, old};
    storage->replaced = replaced;
  } else {
    px__storage_free_memory(storage, old);
  }
  return PX_OK;
}

static px_status block_like(px_allocation **out, const px_allocation *like, size_t bytes) {
  return like->pinned ? px__allocation_new_pinned(out, bytes)
                      : px__allocation_new(out, bytes, like->device);
}

// All tensors over the storage see the new memory, as in PyTorch.
static px_status resize(px_storage *storage, size_t bytes) {
  px_allocation *old = storage->allocation, *made = NULL;
  size_t kept = bytes < old->bytes ? bytes : old->bytes;
  size_t whole = storage->unshrunk_bytes > old->bytes ? storage->unshrunk_bytes : old->bytes;
  bool was_shrunk = storage->unshrunk_bytes != 0, shrunk = bytes < whole;
  PX_TRY(block_like(&made, old, bytes));
  px_status status = px__copy_bytes(made, 0, old, 0, kept, false);
  if (status != PX_OK) {
    px__allocation_free(made);
    return px_error_add_frame(status, __FILE__, __LINE__, __func__);
  }
  if (shrunk) px__allocation_mark_shrunk(made);
  status = px__storage_replace(storage, made);
  if (status != PX_OK ? shrunk : was_shrunk) px__allocation_unmark_shrunk();
  if (status == PX_OK) storage->unshrunk_bytes = shrunk ? whole : 0;
  return status;
}

static px_status resize_locked(px_storage *storage, size_t bytes, bool grow) {
  PX_TRY(px__storage_ready(storage));
  size_t before = storage->allocation->bytes;
  if (grow && bytes <= before) return PX_OK;
  PX_CHECK(!storage->fixed, PX_RUNTIME, "Trying to resize storage that is not resizable");
  return bytes == before ? PX_OK : resize(storage, bytes);
}

static px_status lock_and_resize(px_storage *storage, size_t bytes, bool grow) {
  PX_TRY(px__storage_lock(storage));
  px_status status = resize_locked(storage, bytes, grow);
  px__storage_unlock(storage);
  return status;
}

px_status px__storage_grow(px_storage *storage, size_t bytes) {
  return lock_and_resize(storage, bytes, true);
}

px_status px_storage_resize(px_storage *storage, size_t bytes) {
  PX_GIVEN(storage);
  return lock_and_resize(storage, bytes, false);
}
bool px_storage_resizable(const px_storage *storage) {
  PX__USES_STORAGE(storage);
  return !storage->fixed;
}

size_t px_storage_bytes(const px_storage *storage) {
  PX__USES_STORAGE(storage);
  return storage->allocation->bytes;
}
px_device px_storage_device(const px_storage *storage) {
  PX__USES_STORAGE(storage);
  return storage->allocation->device;
}
bool px_storage_is_pinned(const px_storage *storage) {
  PX__USES_STORAGE(storage);
  return px__allocation_is_pinned(storage->allocation, 0, storage->allocation->bytes);
}

px_status px__storage_expose(const px_storage *storage) {
  PX_TRY(px__storage_ready(storage));
  PX_TRY(px__allocation_before_write(storage->allocation));
  px__allocation_expose(storage->allocation);
  return PX_OK;
}

void *px_storage_data(const px_storage *storage) {
  PX__USES_STORAGE(storage);
  return px__storage_expose(storage) == PX_OK ? storage->allocation->data : NULL;
}

px_status px_storage_pin(px_storage **out, px_storage *storage) {
  PX_GIVEN(out);
  PX_GIVEN(storage);
  *out = NULL;
  PX__USES_STORAGE(storage);
  PX_TRY(px__storage_ready(storage));
  px_allocation *from = storage->allocation, *pinned = NULL;
  PX_CHECK(from->device.type == PX_CPU, PX_TYPE,
           "cannot pin 'torch.cuda.UntypedStorage' only CPU memory can be pinned");
  if (px__allocation_is_pinned(from, 0, from->bytes)) {
    *out = px_retain(storage);
    return PX_OK;
  }
  PX_TRY(px__allocation_new_pinned(&pinned, from->bytes));
  PX_SCOPED(px_storage) made = NULL;
  PX_TRY(px__storage_from_allocation(&made, pinned, px__thread_cache_here));
  if (from->bytes) PX_TRY(px__copy_bytes(pinned, 0, from, 0, from->bytes, false));
  *out = PX_MOVE(made);
  return PX_OK;
}
