// SPDX-License-Identifier: Apache-2.0
// Storages: an allocation with the version counter shared by all tensors over it.
#include "tensor/storage.h"

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

// Frees replaced allocations, and ends the shrunk state.
__attribute__((noinline, cold)) void px__storage_end_rare(px_storage *storage) {
  for (px__replaced *f = storage->replaced, *next; f; f = next) {
    next = f->next;
    px__allocation_free(f->allocation);
    px__free(f);
  }
  storage->replaced = NULL;
  if (storage->unshrunk_bytes) px__allocation_unmark_shrunk();
  storage->unshrunk_bytes = 0;
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

px_status px__storage_replace(px_storage *storage, px_allocation *allocation) {
  px_allocation *old = storage->allocation;
  px__replaced *replaced = NULL;
  bool known = old->foreign && old->device.type == PX_CPU;
  if (known && PX_NEW(&replaced) != PX_OK) {
    px__allocation_free(allocation);
    return px_error_add_frame(PX_NOMEM, __FILE__, __LINE__, __func__);
  }
  storage->allocation = allocation;
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

px_status px__storage_grow(px_storage *storage, size_t bytes) {
  if (bytes <= storage->allocation->bytes) return PX_OK;
  PX_CHECK(!storage->fixed, PX_RUNTIME, "Trying to resize storage that is not resizable");
  return resize(storage, bytes);
}

px_status px_storage_resize(px_storage *storage, size_t bytes) {
  PX_GIVEN(storage);
  PX_CHECK(!storage->fixed, PX_RUNTIME, "Trying to resize storage that is not resizable");
  return bytes == storage->allocation->bytes ? PX_OK : resize(storage, bytes);
}
bool px_storage_resizable(const px_storage *storage) { return !storage->fixed; }

size_t px_storage_bytes(const px_storage *storage) { return storage->allocation->bytes; }
px_device px_storage_device(const px_storage *storage) { return storage->allocation->device; }
bool px_storage_is_pinned(const px_storage *storage) { return storage->allocation->pinned; }

void *px_storage_data(const px_storage *storage) {
  px__allocation_expose(storage->allocation);
  return storage->allocation->data;
}

px_status px_storage_pin(px_storage **out, px_storage *storage) {
  PX_GIVEN(out);
  PX_GIVEN(storage);
  *out = NULL;
  px_allocation *from = storage->allocation, *pinned = NULL;
  PX_CHECK(from->device.type == PX_CPU, PX_TYPE,
           "cannot pin 'torch.cuda.UntypedStorage' only CPU memory can be pinned");
  if (from->pinned) {
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
