// SPDX-License-Identifier: Apache-2.0
// Storages: a block of memory with the version that all tensors over it share.
#include "tensor/storage.h"

// Memory whose address was handed out (an array of NumPy's over it) outlives its replacement.
struct px__former {
  px__former *next;
  px_allocation *block;
};

__attribute__((noinline, cold)) void px__storage_let_go(px_storage *storage, px_allocation *block) {
  if (storage->passed)
    px__passed_end(storage, block);
  else
    px__allocation_free(block);
}

// Addresses that are still known to somebody, and what is cut, go with the storage.
__attribute__((noinline, cold)) void px__storage_end_rest(px_storage *storage) {
  for (px__former *f = storage->former, *next; f; f = next) {
    next = f->next;
    px__allocation_free(f->block);
    px__free(f);
  }
  storage->former = NULL;
  if (storage->whole) px__allocation_unmark_shrunk();
  storage->whole = 0;
}

static void storage_destroy(void *self) { px__storage_end(self, px__thread_cache_here); }
const px_class px__storage_class = {"storage", storage_destroy};

px_status px__storage_wrap(px_storage **out, void *data, size_t bytes, px_device device,
                           void (*release)(void *), void *context) {
  PX_SCOPED(px_storage) made = NULL;
  *out = NULL;
  PX_TRY(px__storage_make(&made, NULL, px__thread_cache_here));
  PX_TRY(px__allocation_wrap(&made->block, data, bytes, device, release, context));
  made->fixed = true;
  *out = PX_MOVE(made);
  return PX_OK;
}

px_status px__storage_replace(px_storage *storage, px_allocation *block) {
  px_allocation *old = storage->block;
  px__former *former = NULL;
  bool known = old->foreign && old->device.type == PX_CPU;
  if (known && PX_NEW(&former) != PX_OK) {
    px__allocation_free(block);
    return px_error_pass(PX_NOMEM, __FILE__, __LINE__, __func__);
  }
  storage->block = block;
  if (former) {
    *former = (px__former){storage->former, old};
    storage->former = former;
  } else {
    px__storage_let_go(storage, old);
  }
  return PX_OK;
}

static px_status block_like(px_allocation **out, const px_allocation *like, size_t bytes) {
  return like->pinned ? px__allocation_new_pinned(out, bytes)
                      : px__allocation_new(out, bytes, like->device);
}

// All tensors over the storage see the new memory, as they share one resize in PyTorch.
static px_status resize(px_storage *storage, size_t bytes) {
  px_allocation *old = storage->block, *made = NULL;
  size_t kept = bytes < old->bytes ? bytes : old->bytes;
  size_t whole = storage->whole > old->bytes ? storage->whole : old->bytes;
  bool was_cut = storage->whole != 0, cut = bytes < whole;
  PX_TRY(block_like(&made, old, bytes));
  px_status status = px__copy_bytes(made, 0, old, 0, kept, false);
  if (status != PX_OK) {
    px__allocation_free(made);
    return px_error_pass(status, __FILE__, __LINE__, __func__);
  }
  if (cut) px__allocation_mark_shrunk(made);
  status = px__storage_replace(storage, made);
  if (status != PX_OK ? cut : was_cut) px__allocation_unmark_shrunk();
  if (status == PX_OK) storage->whole = cut ? whole : 0;
  return status;
}

px_status px__storage_grow(px_storage *storage, size_t bytes) {
  if (bytes <= storage->block->bytes) return PX_OK;
  PX_CHECK(!storage->fixed, PX_RUNTIME, "Trying to resize storage that is not resizable");
  return resize(storage, bytes);
}

px_status px_storage_resize(px_storage *storage, size_t bytes) {
  PX_GIVEN(storage);
  PX_CHECK(!storage->fixed, PX_RUNTIME, "Trying to resize storage that is not resizable");
  return bytes == storage->block->bytes ? PX_OK : resize(storage, bytes);
}
bool px_storage_resizable(const px_storage *storage) { return !storage->fixed; }

size_t px_storage_bytes(const px_storage *storage) { return storage->block->bytes; }
px_device px_storage_device(const px_storage *storage) { return storage->block->device; }
bool px_storage_is_pinned(const px_storage *storage) { return storage->block->pinned; }

void *px_storage_data(const px_storage *storage) {
  px__allocation_expose(storage->block);
  return storage->block->data;
}

px_status px_storage_pin(px_storage **out, px_storage *storage) {
  PX_GIVEN(out);
  PX_GIVEN(storage);
  *out = NULL;
  px_allocation *from = storage->block, *pinned = NULL;
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
