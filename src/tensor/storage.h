// SPDX-License-Identifier: Apache-2.0
// Creation and destruction of storages, inline because every tensor does both. `here` is
// px__tally_here.
#pragma once
#include "base/pool.h"
#include "tensor/tensor_impl.h"

// storage.c. free_memory frees an allocation, possibly held by other processes. end_rare handles
// rare members.
extern PX__HIDDEN const px_class px__storage_class;
void px__storage_free_memory(px_storage *storage, px_allocation *allocation_take);
void px__storage_end_rare(px_storage *storage);

// Prepares a storage for others that read and write its memory at any time: computes its contents,
// runs the recorded launches that read it, and marks the address as known.
px_status px__storage_expose(const px_storage *storage) __attribute__((warn_unused_result));

static inline px_status px__storage_make(px_storage **out, px_allocation *allocation,
                                         px__thread_cache *here) {
  *out = px__object_list_pop(here, PX__OBJECT_LIST_STORAGE);
  if (PX_UNLIKELY(!*out)) {
    PX_TRY(PX_NEW(out));
    px__object_init(*out, &px__storage_class);
  }
  (*out)->allocation = allocation;
  return PX_OK;
}

// Takes ownership of the allocation, also on failure.
static inline px_status px__storage_from_allocation(px_storage **out,
                                                    px_allocation *allocation_take,
                                                    px__thread_cache *here) {
  px_status status = px__storage_make(out, allocation_take, here);
  if (PX_LIKELY(status == PX_OK)) return PX_OK;
  px__allocation_free(allocation_take);
  return px_error_add_frame(status, __FILE__, __LINE__, __func__);
}

static inline px_status px__storage_new(px_storage **out, size_t bytes, px_device device,
                                        px__thread_cache *here) {
  px_allocation *allocation = NULL;
  *out = NULL;
  PX_TRY(px__allocation_new(&allocation, bytes, device));
  return px__storage_from_allocation(out, allocation, here);
}

// Destroys an unreferenced storage and leaves it in the state expected by px__storage_make.
static inline void px__storage_end(px_storage *storage, px__thread_cache *here) {
  if (PX_UNLIKELY(storage->replaced || storage->unshrunk_bytes || storage->deferred))
    px__storage_end_rare(storage);
  if (PX_UNLIKELY(storage->ipc_reference != NULL))
    px__storage_free_memory(storage, storage->allocation);
  else
    px__allocation_free(storage->allocation);
  storage->version = 0;
  storage->fixed = false;
  storage->shared = NULL;
  px__object_list_push(here, PX__OBJECT_LIST_STORAGE, storage);
}

// px_release of a storage or NULL. A count of 1 is the caller's reference, so no other thread can
// race.
static inline void px__storage_release(px_storage *storage, px__thread_cache *here) {
  if (PX_LIKELY(storage && __atomic_load_n(&storage->head.refs, __ATOMIC_ACQUIRE) == 1))
    px__storage_end(storage, here);
  else
    px_release(storage);
}
