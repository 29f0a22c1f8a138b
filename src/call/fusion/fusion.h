// SPDX-License-Identifier: Apache-2.0
// Fusion: calls of pointwise ops are recorded, and chains of records run as one launch.
//
// A record stands in for the memory of its result until the result is computed. Its inputs are
// other records, or storages that it reads when it runs. A write to such a storage first runs its
// readers (px__allocation_before_write).
#pragma once
#include "call/call_impl.h"
#include "phlox/fuse.h"

// The thread's scopes that have begun and not ended. off: within px_fuse_pause, or a function op,
// whose inner calls write to memory at once.
typedef struct px__fusion {
  unsigned depth : 15, off : 1, window : 16;  // window: calls recorded since results were computed
} px__fusion;
extern _Thread_local PX__HIDDEN_THREAD px__fusion px__fusion_here;
extern bool px__fusion_always;  // PHLOX_FUSE: also without a scope
static inline bool px__fuses_here(void) {
  return !px__fusion_here.off && (px__fusion_here.depth || px__fusion_always);
}

// Bracket a call, which is made while px__special_calls is not 0. enter sets call->records if its
// launch may be recorded; otherwise it computes deferred arguments. leave takes what enter
// returned.
px_status px__fusion_enter(px_call *call, bool *off) __attribute__((warn_unused_result));
static inline void px__fusion_leave(bool off) { px__fusion_here.off = off; }

// For a function op with call->records, which converts a dtype: records the conversion.
// converts: set by the layer of ops; true if the call does no more than that.
extern bool (*px__fusion_converts)(const px_call *call, px_dtype *to);
px_status px__fusion_cast(px_call *call) __attribute__((warn_unused_result));

// For pointwise calls with call->records. settle: the compute dtype and the number of elements are
// known; clears call->records if the launch cannot be recorded. result: makes the result.
// (strides NULL: row-major.) record: keeps the launch.
px_status px__fusion_settle(px_call *call, int64_t numel) __attribute__((warn_unused_result));
px_status px__fusion_result(px_call *call, int ndim, const int64_t *sizes, const int64_t *strides)
    __attribute__((warn_unused_result));
px_status px__fusion_record(px_call *call, const px_launch *launch)
    __attribute__((warn_unused_result));
// Launches a fold at the end of the chain of a deferred tensor. `accesses` are those of the result.
// takes: true if the fold can read `self` so.
bool px__fusion_takes_fold(const px_call *call, const px_tensor *self, uint64_t reduced);
px_status px__fusion_fold(const px_tensor *self, const px_launch *fold, const px_access *accesses,
                          int count) __attribute__((warn_unused_result));

// ---- records

typedef struct px__source {
  px__deferred *deferred;  // counted in its readers; NULL: not the result of a record
  px_storage *storage;     // owned; NULL: `deferred`, or a number
} px__source;
struct px__deferred {
  px_allocation allocation;      // in place of the storage's: no address
  px_storage *storage;           // not owned until it is computed. NULL: destroyed
  const px_tensor *into;         // an in-place call: the tensor that it changes. NULL: a new result
  bool computed;                 // `storage` has the result's memory, and is owned
  int readers;                   // records that read it
  int reruns;                    // times it ran without memory for the result
  px__deferred *before, *after;  // in the list of records that are not computed, oldest first
  const void *thread;            // the thread that recorded it
  px_stream *stream;             // the current stream then, owned; NULL: the CPU
  int64_t numel;
  int dtype;
  uint32_t mark, seen;  // of the chain that includes it, at place `step`; of the latest count
  int step, pins;       // pins: chains that run it
  int reach;            // upper bound of px__chain_reach
  px_launch *launch;    // with all it points to; NULL: not recorded yet
  px__source sources[PX_MAX_OPERANDS];  // by operand
};

// True if something other than a gradient holds the result.
static inline bool px__is_held(const px__deferred *d) {
  const px_storage *s = d->storage;
  return s && (int32_t)__atomic_load_n(&s->head.refs, __ATOMIC_RELAXED) >
                  __atomic_load_n(&s->saves, __ATOMIC_RELAXED);
}
static inline bool px__is_recorded_here(const px__deferred *d) {
  return d->thread == &px__fusion_here;
}
static inline bool px__is_held_here(const px__deferred *d) {
  return px__is_recorded_here(d) && px__is_held(d);
}
// The lock guards all records. It is recursive.
void px__records_lock(void);
void px__records_unlock(void);
px_status px__deferred_new(px__deferred **out, size_t bytes, px_device device)
    __attribute__((warn_unused_result));
void px__deferred_free(px__deferred *d);      // unless something refers to it
void px__deferred_drop(px_storage *storage);  // its storage is being destroyed
// Drops the sources and the launch.
void px__deferred_end_launch(px__deferred *d);
extern px__deferred *px__records_oldest;
extern int px__record_count;

// ---- chains

// The kernel "chain" of a device; NULL: calls on the device are not recorded.
px_kernel px__chain_kernel(px_device device);
// Computes records, with as few launches as fit. Lock held.
px_status px__chain_run(px__deferred *const *targets, int count)
    __attribute__((warn_unused_result));
// Computes all records of a kind. Takes the lock.
px_status px__chain_run_all(bool (*kind)(const px__deferred *d))
    __attribute__((warn_unused_result));
// The same as px__chain_run for one record, whose result gets no memory: `fold` reads it.
px_status px__chain_fold(px__deferred *d, const px_launch *fold, const px_access *accesses,
                         int count) __attribute__((warn_unused_result));
// The number of inputs of the records that would run to compute d; counts up to about `limit`.
int px__chain_reach(px__deferred *d, int limit);
