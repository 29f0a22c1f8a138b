// SPDX-License-Identifier: Apache-2.0
// Order of work: streams, timelines, events, captures, uses of allocations, and the race checker.
#pragma once
#include "device/core/state.h"

// ---- virtual time
// Reads the virtual clock, if the backend has one: the time of an event's latest, completed record;
// of the completed work of a stream; or without both, of the host thread feeding the current
// device. Returns false without a virtual clock.
bool px__virtual_clock(const px_stream *stream, void *event, int64_t *out);
// Called once the backend is chosen.
void px__virtual_begin(void);

// ---- the profiler
px_status px__profile_start(const px_profile_options *options) __attribute__((warn_unused_result));
int64_t px__profile_work_begin(const px__work *work);
void px__profile_work_end(int64_t part);
// Sets the kind of the work just begun; the default is a kernel.
void px__profile_work_is(const px__work *work, px_profile_work sort);

// ---- streams
extern px_stream px__cpu_stream;
px_status px__stream_create(px_stream **out, px__device *d, int priority, int64_t id)
    __attribute__((warn_unused_result));
// Returns a new reference to an unused stream, or to a new one. Lock held.
px_status px__stream_acquire(px_stream **out, px__device *d, int priority)
    __attribute__((warn_unused_result));
// Registers a stream of another library. Takes over the record `reused`, unheld and idle, unless it
// is NULL.
px_status px__stream_register_foreign(px_stream **out, px__device *d, px_stream *reused,
                                      void *native, int priority)
    __attribute__((warn_unused_result));
const char *px__stream_text(const px_stream *stream, char text[64]);
// The calling thread's current streams by device; NULL: the default stream. The array is allocated
// when the thread first sets one.
extern _Thread_local PX__HIDDEN_THREAD px_stream **px__streams_now;
static inline px_stream *px__stream_now(const px__device *d) {
  px_stream **now = px__streams_now;
  return now && now[d->index] ? now[d->index] : d->streams[0];
}
px_status px__stream_set_now(px_stream *stream);

// ---- issuing and ordering work
// All work is issued here. px__work_begin locks the stream's device, numbers the work, records its
// uses and checks for races. The caller hands it to the backend and calls px__work_end.
static inline bool px__access_given(const px_access *access) {
  return access->allocation && access->allocation->data;
}
px_status px__work_begin(px__work *work, px_stream *stream, const char *op,
                         const px_access *accesses, int count) __attribute__((warn_unused_result));
// Unlocks the device. `mark`: the work will be waited for individually.
void px__work_end(px__work *work, bool mark);
// The two halves of px__work_begin: without, and with the lock.
void px__work_describe(px__work *work, px_stream *stream, const char *op, const px_access *accesses,
                       int count);
px_status px__work_number(px__work *work, const px_access *accesses, int count)
    __attribute__((warn_unused_result));

px_status px__clock_reserve(px__clock *clock, int count) __attribute__((warn_unused_result));
void px__clock_join(px__clock *into, const px__clock *from);  // `into` has the capacity
px_status px__clock_copy(px__clock *to, const px__clock *from) __attribute__((warn_unused_result));
static inline uint64_t px__clock_at(const px__clock *clock, int i) {
  return i < clock->count ? clock->at[i] : 0;
}
static inline uint64_t px__issued(const px_stream *s) {
  return __atomic_load_n(&s->issued, __ATOMIC_ACQUIRE);
}
static inline uint64_t px__completed(const px_stream *s) {
  return __atomic_load_n(&s->completed, __ATOMIC_ACQUIRE);
}
static inline uint64_t px__synced(const px_stream *s) {
  return __atomic_load_n(&s->synced, __ATOMIC_ACQUIRE);
}
// The last work of a stream taken as done by the allocator. With deterministic addresses, only work
// already waited for: timing has no effect.
static inline uint64_t px__done(const px_stream *s) {
  if (PX_UNLIKELY(__atomic_load_n(&px__deterministic, __ATOMIC_RELAXED)))
    return __atomic_load_n(&s->allocator_synced, __ATOMIC_ACQUIRE);
  return px__completed(s);
}
// True if work `seq` of `before` is done, or ordered before the next work of `after` (lock of
// `after` held).
static inline bool px__ordered(const px_stream *before, uint64_t seq, const px_stream *after) {
  return before == after || px__done(before) >= seq ||
         px__clock_at(&after->clock, before->index) >= seq;
}
// Lock held. Records an event after all work issued so far.
px_status px__stream_mark(px_stream *s) __attribute__((warn_unused_result));
// Advances `completed` to the last completed mark. Lock held.
void px__stream_poll(px_stream *s);
// Like px__stream_poll, but also detects an idle stream without marks. Lock held.
void px__stream_query(px_stream *s);
// Work `seq` is done: it was waited for.
void px__stream_set_completed(px_stream *s, uint64_t seq);
// Blocks until work `seq` is done. Internal: orders no work of the program. No lock held.
px_status px__stream_wait_seq(px_stream *s, uint64_t seq) __attribute__((warn_unused_result));
// Makes later work of `after` wait for all work issued to `before`. No lock held.
px_status px__stream_order(px_stream *after, px_stream *before) __attribute__((warn_unused_result));
// The same for work up to `seq` of `before`; `clock` is its vector clock.
px_status px__stream_order_at(px_stream *after, px_stream *before, uint64_t seq,
                              const px__clock *clock) __attribute__((warn_unused_result));
// True if the host waits after each launch to the stream (CUDA_LAUNCH_BLOCKING).
static inline bool px__stream_blocks(const px_stream *s) {
  return PX_UNLIKELY(px__rt.blocking) && !px__capture_of(s);
}
// Makes later work of `after` wait for `event`, recorded after work `seq` of `before` in `capture`
// (0: in none). NULL: the work is done already. No lock held.
px_status px__stream_wait_mark(px_stream *after, void *event, px_stream *before, uint64_t seq,
                               const px__clock *clock, uint64_t capture)
    __attribute__((warn_unused_result));
// The host has waited for work `seq`, and so for all work in `clock` (may be NULL).
void px__stream_synced(px_stream *s, uint64_t seq, const px__clock *clock);
// Waits for all work issued so far. Does not raise faults of kernels: see px__fault_raise.
px_status px__stream_wait_all(px_stream *s) __attribute__((warn_unused_result));
// The same, then raises faults of kernels.
px_status px__stream_finish(px_stream *s) __attribute__((warn_unused_result));

// ---- launch batching
// Hooks of a thread during launch batching, NULL otherwise. flush issues the batch, and runs before
// other work is issued. release runs before an allocation's memory is reused. No lock held.
typedef struct px__launch_batch_hooks {
  px_status (*flush)(void);
  void (*let_go)(const px__allocation *allocation);
} px__launch_batch_hooks;
extern _Thread_local PX__HIDDEN_THREAD const px__launch_batch_hooks
    *px__launch_batching;  // state.c
// Issues the thread's batched launches. Called before the thread waits or issues other work.
static inline px_status px__launch_batch_flush(void) {
  return PX_UNLIKELY(px__launch_batching != NULL) ? px__launch_batching->flush() : PX_OK;
}
// The same for launches recorded by the layer above, on any thread and stream. Called before work
// that orders streams, and before waits of the program.
static inline px_status px__issue_recorded(void) {
  PX_TRY(px__launch_batch_flush());
  return px__recorded_issue ? px__recorded_issue() : PX_OK;
}
// Adds a launch to the batch. Issues the batch first if the launch depends on it or does not fit.
// *taken is false if the launch fits no batch.
px_status px__launch_batch_add(bool *taken, px__device *d, px_stream *stream,
                               const px_launch *launch, const px_access *accesses, int count)
    __attribute__((warn_unused_result));

// ---- captures
// Fails, and invalidates the capture, if a capture forbids to wait for or to query the stream
// (NULL: any stream).
px_status px__capture_check(const px_stream *stream) __attribute__((warn_unused_result));
px_status px__capture_check_device(px__device *d) __attribute__((warn_unused_result));
// Invalidates a capture and returns a driver's error code.
px_status px__capture_invalidate(uint64_t capture, int code) __attribute__((warn_unused_result));
// Adds work, and its accesses for the race checker, to the capture of its stream. Caller holds the
// lock of the stream's device.
px_status px__capture_record(const px__work *work, const px_access *accesses, int count)
    __attribute__((warn_unused_result));
// Called before the stream waits for work issued in `capture` (0: in none): adds the stream to that
// capture, or invalidates both. Caller holds the lock of the stream's device.
px_status px__capture_join(px_stream *stream, uint64_t capture) __attribute__((warn_unused_result));
// Finds the captured launch of an id, in any graph.
bool px__capture_find_launch(px__work *out, uint64_t id);

// ---- launch records and faults
static inline void px__record_add(const px__work *work) {  // lock held
  work->stream->owner->ring[work->id % PX__RING] = *work;
}
bool px__record_find(px__work *out, px__device *d, uint64_t id);
// Finds the latest recorded work of the stream up to `seq`. Lock held.
bool px__record_before(px__work *out, const px_stream *stream, uint64_t seq);
// Raises the pending error of the device: of a host callback, or a fault reported by a kernel.
px_status px__fault_raise(px__device *d) __attribute__((warn_unused_result));
// Adds the launch at fault, if known, to an error of the backend. No lock held.
px_status px__broken_note(px__device *d, px_status status) __attribute__((warn_unused_result));
// Registers an exit handler to print faults not raised by then to stderr.
void px__fault_watch(void);
// Clears a fault slot and returns its error.
px_status px__fault_error(px_fault_slot *slot) __attribute__((warn_unused_result));

// ---- uses of allocations
// Records a use of the allocation by `work`.
px_status px__allocation_add_use(px__allocation *allocation, const px__work *work, bool write)
    __attribute__((warn_unused_result));
// True if every use is done, or ordered before later work of `stream` (NULL: done).
bool px__allocation_is_reusable(px__allocation *allocation, px_stream *stream);
// Returns the i-th stream with a recorded use; NULL past the last.
px_stream *px__allocation_user(px__allocation *allocation, int i);
void px__allocation_drop_uses(px__allocation *allocation);
// CPU memory: finds a use that conflicts with an access by `by` (NULL: the host) and must be waited
// for. Drop it with px__allocation_forget_use after the wait.
bool px__allocation_conflict(px__allocation *allocation, bool write, px_stream *by, px__use *out);
void px__allocation_forget_use(px__allocation *allocation, const px__use *use);

// ---- pending uses
// Blocks until all copies conflicting with an access by `by` (NULL: the host) are done.
px_status px__allocation_wait_conflicts(px_allocation *allocation, bool write, px_stream *by)
    __attribute__((warn_unused_result));
// Makes the pending uses of a freed allocation observable by polling.
void px__allocation_mark_uses(px__allocation *allocation);
// The same after all uses are known: of its launch batch, and if exposed, of every stream of `d`.
void px__allocation_publish_uses(px__device *d, px__allocation *allocation);
// Waits for the pending uses of a freed allocation.
void px__allocation_wait_uses(px__allocation *allocation);

// ---- wrapped allocations
void px__wrapped_free(px_allocation *allocation);

// ---- private pools; lock held
// Returns the pool of the stream's capture, else of the calling thread's route, or NULL.
px__private_pool *px__private_pool_of(const px_stream *stream);
// A new name for the pool of one graph.
px_graph_pool px__graph_pool_own(void);
// Finds or creates the pool of a name and adds a user; close removes one.
px_status px__private_pool_open(px__private_pool **out, px__device *d, px_graph_pool name)
    __attribute__((warn_unused_result));
void px__private_pool_close(px__device *d, px__private_pool *pool);
// Called after a segment of the pool was released.
void px__private_pool_segment_gone(px__device *d, px__private_pool *pool);
// Returns the bytes allocated in all private pools.
size_t px__private_pools_allocated(const px__device *d);

// ---- the race checker
px_status px__race_asked(bool *out)  // reads the environment
    __attribute__((warn_unused_result));
bool px__race_start(void);
static inline bool px__races(void) {
  int on = __atomic_load_n(&px__race_on, __ATOMIC_RELAXED);
  return PX_UNLIKELY(on != 0) && (on > 0 || px__race_start());
}
// Checks accesses of one unit of work. Lock of the stream's device held.
px_status px__race_accesses(const px__work *work, const px_access *accesses, int count)
    __attribute__((warn_unused_result));
// The same if access i belongs to works[i].
px_status px__race_works(const px__work *works, const px_access *accesses, int count)
    __attribute__((warn_unused_result));
px_status px__race_host(const char *op, const px_access *access)
    __attribute__((warn_unused_result));
// Reports a wait for an event never recorded.
px_status px__race_nothing(px_stream *stream) __attribute__((warn_unused_result));
void px__race_forget(px__allocation *allocation);
// Earlier work of the stream, up to `seq`, used the memory of this new allocation.
void px__race_inherit(px__allocation *allocation, px_stream *stream, uint64_t seq);
