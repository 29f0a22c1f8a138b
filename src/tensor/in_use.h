// SPDX-License-Identifier: Apache-2.0
// Tensors in use by calls, and changes of them by other threads.
//
// A call reads the storage and the geometry of its tensors without a lock. In-place changes of a
// geometry, px_tensor_set_data and a resized storage replace memory read by other threads. Calls
// therefore publish their arguments. A change waits for the calls of other threads that use the
// tensor. It stops new calls only while it looks at them and makes the change, so it cannot wait
// for a call that waits for it.
//
// A call pays a few plain instructions: the barrier that orders them is the change's
// (px__process_barrier). While the process has one thread, nothing is published.
#pragma once
#include "base/pool.h"
#include "tensor/tensor_impl.h"

// The tensors used by a call or a batch of calls of one op: of `args`, `tensors` and `storage`.
typedef struct px__tensor_use px__tensor_use;
struct px__tensor_use {
  px__thread_cache *here;       // the calling thread's; NULL: not published
  const px__tensor_use *outer;  // call in progress on this thread that made this one, or NULL
  const struct px_op *op;       // of `args`, or NULL
  const struct px_value *args;  // `count` rows
  int count;                    // of rows, or of `tensors`
  const px_tensor *const *tensors;
  const px_storage *storage;  // or NULL
  const px_tensor *one;       // a list of one tensor
};
// True if one of the op's arguments is `t` or, unless NULL, a tensor over `storage`. Set by the
// layer above.
extern bool (*px__op_uses)(const px__tensor_use *use, const px_tensor *t,
                           const px_storage *storage);

// Atomic: the thread making a change, or NULL.
extern PX__HIDDEN const px__thread_cache *px__changing;
void px__change_wait(void);  // until no other thread makes one

static inline void px__use_publish(px__thread_cache *here, const px__tensor_use *use) {
  __atomic_store_n(&here->use, use, __ATOMIC_RELEASE);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  if (PX_UNLIKELY(__atomic_load_n(&px__changing, __ATOMIC_ACQUIRE) != NULL)) px__change_wait();
}
// Bracket a call. `use` lives as long as the call. Arguments are not written meanwhile.
static inline void px__use_begin(px__tensor_use *use) {
  use->here = px__thread_cache_take();
  if (!use->here) return;
  use->outer = use->here->use;
  px__use_publish(use->here, use);
}
static inline void px__use_end(const px__tensor_use *use) {
  if (PX_UNLIKELY(use->here != NULL)) px__use_publish(use->here, use->outer);
}

void px__use_begin_rest(px__tensor_use *use, const px_tensor *t, const px_storage *storage);
static inline void px__use_begin_one(px__tensor_use *use, const px_tensor *t,
                                     const px_storage *storage) {
  use->here = NULL;
  if (!PX_SINGLE_THREADED) px__use_begin_rest(use, t, storage);
}
// `PX__USES(t);` declares the use of one tensor until the end of the scope, PX__USES_STORAGE that
// of a storage.
#define PX__USES_ONE(t, storage) \
  __attribute__((cleanup(px__use_end))) px__tensor_use px__use_; \
  px__use_begin_one(&px__use_, (t), (storage))
#define PX__USES(t) PX__USES_ONE(t, NULL)
#define PX__USES_STORAGE(s) PX__USES_ONE(NULL, s)

// Brackets a change of t's geometry (storage NULL), or of the memory of all tensors over a storage.
// begin waits for the users. PX_RUNTIME after ten seconds, or soon if a user waits itself; or the
// status of an interrupt. Does nothing while the process has one thread. A thread makes one change
// at a time, and releases no object during it.
typedef struct px__change {
  bool locked;
} px__change;
px_status px__change_begin(px__change *out, const px_tensor *t, px_storage *storage)
    __attribute__((warn_unused_result));
void px__change_end(const px__change *change);
#define PX__CHANGE(t, storage) \
  __attribute__((cleanup(px__change_end))) px__change px__change_ = {false}; \
  PX_TRY(px__change_begin(&px__change_, (t), (storage)))

// Bracket the preparation of a storage's new memory, and its change: one thread at a time. lock
// waits and fails as px__change_begin does.
px_status px__storage_lock(px_storage *storage) __attribute__((warn_unused_result));
void px__storage_unlock(px_storage *storage);
