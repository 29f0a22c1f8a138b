// SPDX-License-Identifier: Apache-2.0
// The device layer's own state: devices, streams with their timelines, blocks with their uses.
//
// Locks, in the order in which they are taken: registry's < a graph's, an event's < pinned < a
// device's < captures', races' < a spin word (of a allocation's uses), a bin's latch. No thread
// holds two devices' locks. What a field's comment does not say is owned by its device's lock.
// Nothing waits for a device with a lock held, but for raw frees.
#pragma once
#include "device/latch.h"
#include "device/ledger.h"
#include "phlox/graph.h"

enum {
  PX__STREAM_POOL = 32,  // streams that a priority of a device makes before it takes one again
  PX__PRIORITIES = 8,
  PX__DEVICE_STREAMS = 1024,
  PX__STREAM_LIMIT = PX__DEVICES * PX__DEVICE_STREAMS,
  PX__RING = 8192,  // launch records kept a device
  PX__INLINE_USES = 4
};

// ---- timelines
// A vector clock: at[i] is the greatest sequence number of stream i known to come before.
typedef struct px__clock {
  uint64_t *at;
  int count;
} px__clock;
// A backend event recorded after work `seq` of a stream. It tells when that work is done.
typedef struct px__mark {
  struct px__mark *next;
  uint64_t seq;
  void *event;
  int users;      // waiting for it without the lock
  bool detached;  // not in the stream's list any more; goes with its last user
} px__mark;

// A node of a tree of free memory, by size and then address (tree.c).
typedef struct px__node {
  struct px__node *left, *right;
  size_t size;
  uintptr_t address;
} px__node;

// Free blocks, of the large pool and the small one (pool.c).
typedef struct px__free_lists {
  px__node *free[2];
  px__block *unsorted[2];  // freed last, and not in the tree yet
} px__free_lists;

// The block that a stream freed last, in one of its pools (pool.c). Guarded by `latch`, which is
// taken with or without the device's lock.
typedef struct px__fast_bin {
  px__biased_lock latch;
  px__block *block;  // atomic: also read without
  px__bin_counts counts;
} px__fast_bin;

typedef struct px__private_pool px__private_pool;
typedef struct px__route px__route;
typedef struct px__device px__device;
struct px_stream {
  px_object head;  // one reference is the device's, for as long as the process lives
  px_device device;
  int priority, index;  // index: in vector clocks, unique in the process
  bool foreign;         // another library's, which may give it work
  int64_t id;
  px__device *owner;  // NULL: the CPU's
  void *native;
  uint64_t issued;            // written under the lock, read without (atomic)
  uint64_t completed;         // known to be done (atomic)
  uint64_t synced;            // the host has waited for it (atomic)
  uint64_t allocator_synced;  // ... or the allocator has (atomic)
  px__clock clock;
  px__mark *first, *last;
  int marks;
  // Cached memory of this stream.
  px__free_lists free_lists;
  px__fast_bin fast[2];
  uint64_t retry_waited;  // its latest work when a request waited for it to move pages (reserve.c)
  // The capture that its work is part of, or 0; where its memory comes from then; its latest work
  // there (atomic, written under the lock).
  uint64_t capture;
  px__private_pool *private_pool;
  uint64_t captured;
};
static inline uint64_t px__capture_of(const px_stream *stream) {
  return __atomic_load_n(&stream->capture, __ATOMIC_ACQUIRE);
}

// A unit of work: what was issued under an id, and where it comes from.
typedef struct px__work {
  const char *op, *caller;  // the kernel; the op that the program called, or NULL
  px_stream *stream;
  uint64_t seq, id;
  uint64_t capture;  // which it is part of: it does not run; or 0
  px_site site;
  px_backward_site backward;
  int64_t profiled;  // its event, or 0
} px__work;
// clock.c. Virtual time, where the devices' is: of an event's latest record, which is done; of a
// stream, as far as it has run; or, without both, of the host that feeds the current device.
// `begin` is called when the backend has been chosen.
bool px__virtual_clock(const px_stream *stream, void *event, int64_t *out);
void px__virtual_begin(void);
// profile.c
px_status px__profile_start(const px_profile_options *options) __attribute__((warn_unused_result));
int64_t px__profile_work_begin(const px__work *work);
void px__profile_work_end(int64_t part);
// What has begun, if it is not a kernel.
void px__profile_work_is(const px__work *work, px_profile_work sort);

// ---- blocks
typedef struct px__use {
  px_stream *stream;
  uint64_t seq;
  bool write;
} px__use;
typedef enum px__allocation_kind {
  PX__HOST,     // host.c
  PX__PINNED,   // pinned.c
  PX__CACHED,   // pool.c
  PX__RAW,      // device memory past the cache
  PX__WRAPPED,  // somebody else's
  PX__META      // meta.c: none
} px__allocation_kind;
typedef struct px__shadow px__shadow;
typedef struct px__allocation {
  px_allocation pub;
  uint8_t kind, bin;  // px__allocation_kind; of host.c
  uint8_t spin;       // guards uses
  uint16_t use_count, use_room;
  px__use *uses;                 // by other streams than the memory's own; of CPU memory: copies
  px__shadow *shadow;            // recent accesses; of the race checker, under its lock (atomic)
  uint32_t written_by, read_by;  // by which list of together.c (atomic)
} px__allocation;
_Static_assert(sizeof(px__allocation) <= 64, "the head of a CPU block takes one cache line");
static inline px__allocation *px__allocation_of(px_allocation *allocation) {
  return (px__allocation *)allocation;
}

struct px__block {
  px__allocation allocation;  // first
  px__use few[PX__INLINE_USES];
  px__node node;                  // size and address; in a tree while free
  struct px__block *prev, *next;  // neighbours in the segment
  struct px__block *queue;        // in the list of pending frees
  px__segment *segment;           // which a run that grows may change, with the lock held
  bool small, in_private_pool;    // what the segment is for
  px_stream *stream;              // whose memory this is: uses on it need no mark
  uint64_t ready;                 // while free: all uses come before work `ready` of the stream
  const px_traceback *stack;      // where it was allocated, if there is a history
  enum { PX__ALLOCATED, PX__PENDING, PX__FREE } state;
};
static inline bool px__block_is_split(const px__block *block) { return block->prev || block->next; }
struct px__segment {
  px__segment *prev, *next;
  px__segment *below, *above;  // of pages: by address
  px__block *first, *last;
  void *data;
  size_t size;
  px__private_pool *private_pool;  // whose memory it is, or NULL
  const px_traceback *stack;       // where it was allocated, if there is a history
  bool small;
  bool paged;                   // a run of pages (pages.c), and not an allocation of the backend
  px_memory_allocator plugged;  // which it came from; zeros: from the backend
};
// A pool of graphs, or of the program's own: segments that serve them alone (rooms.c).
struct px__private_pool {
  px__private_pool *next;
  px_graph_pool name;
  int users;                    // captures, graphs, px_memory_pools and their routes
  int segments;                 // it goes when it has neither
  bool captured;                // a capture has used it: what is free is not known between replays
  bool lends, keeps_whole;      // options of px_memory_pool_set
  px_memory_allocator plugged;  // where new segments come from; zeros: from the backend
  px__free_lists free_lists;
  px__stat reserved[3];  // of its segments, as the statistics counts them
  px__allocation whole;  // for the race checker: a replay writes it
};
static inline px_graph_pool px__private_pool_name(const px__private_pool *pool) {
  return pool ? pool->name : (px_graph_pool){0};
}
// That a thread's requests go to a room (memory_pool.c).
struct px__route {
  px__route *next;
  pthread_t thread;
  px__private_pool *private_pool;
  px_memory_pool *pool;  // held
};
// configure.c
enum { PX__ROUND_STEPS = 16 };  // powers of two from 1 MiB on
typedef struct px__settings {
  size_t max_split;           // larger blocks are not split; SIZE_MAX: all are
  size_t non_split_rounding;  // how much larger such a block may be than the request
  size_t large_segment;       // of requests that get none of their own
  size_t pinned_most;         // page-locked blocks that are larger are not kept when they are free
  enum {
    PX__EXPANDABLE_UNSET,
    PX__EXPANDABLE_FALSE,
    PX__EXPANDABLE_TRUE
  } expandable;      // expandable_segments
  bool in_order;     // addresses follow from the program's order alone
  double threshold;  // share of the memory from which idle segments go back; 0: none
  double fraction;   // of the device that may be reserved; negative: not said
  size_t divisions[PX__ROUND_STEPS];  // of the powers of two, to which sizes round; 0: none
} px__settings;
// The latest events of a device (history.c).
typedef struct px__events {
  px_memory_event *at;
  int64_t count, room, most;
  int64_t oldest;  // where the next one goes, once there are as many as there may be
} px__events;
// The latest requests past the allowance that found no fit (reserve.c).
enum { PX__MISSES = 64 };
typedef struct px__miss {
  size_t size, live;  // what was asked for, and what was in use
} px__miss;
typedef struct px__misses {
  px__miss seen[PX__MISSES];
  unsigned count;
  size_t kept;  // bytes that were taken for those that came again
} px__misses;
typedef struct px__cache {
  px__segment *segments;
  px__private_pool *private_pools;
  px__route *routes;   // atomic: of threads whose requests go to a room, the latest first
  px__block *pending;  // freed, but used by other streams
  px__block *spare;    // records of blocks that are none any more
  size_t reserved;     // bytes of all segments
  size_t most;         // the most in use when a request found no fit, since the cache was emptied
  px__misses misses;   // ... since then
  bool tight;          // more would have been reserved than is worth it (reserve.c)
  bool compact;        // ... since the cache was emptied, on a device of few pages (thrift.c)
  bool moved;          // runs have met or lost pages: they are of all streams (runs.c)
  uintptr_t range, range_end;  // addresses for pages; 0: none yet
  bool range_asked;
  px__segment *lowest;  // of pages
  size_t limit;         // ... that there may be; 0: as many as the device has
  double fraction;      // ... of the device's memory that the limit is
  px__settings settings;
  px__statistics statistics;
  px__events events;
} px__cache;

enum { PX__LAUNCH_KINDS = 1 << 12 };
struct px__device {
  pthread_mutex_t lock;
  int index, physical;  // physical: the backend's number
  px_device_properties properties;
  px_fault_slot *slot;
  px_error *failed;  // atomic: of a host call of a stream, and told to nobody yet
  px_stream *streams[PX__DEVICE_STREAMS];  // [0]: the default stream
  int stream_count;                        // atomic
  int last[PX__PRIORITIES];                // the latest that was handed out
  px__work *ring;
  uint64_t launches;
  uint64_t kinds[PX__LAUNCH_KINDS];  // atomic: of launches, where code is loaded late
  int kind_count;                    // atomic
  px__mark *marks;                   // unused ones
  px_stream *messages;  // on which events for other processes are recorded; NULL: none yet (ipc.c)
  px__cache cache;
  int64_t fft_plans;                                     // of `lock`: how many the backend may keep
  bool peer_asked[PX__DEVICES], peer_open[PX__DEVICES];  // atomic: by the user; in the backend
};
typedef struct px__runtime {
  const px_backend *backend;  // NULL before initialisation
  int count;
  bool ready, forked;  // atomic
  bool peered;         // atomic: the program has enabled peer access somewhere
  bool blocking, loads_late;
  int least, greatest;          // priorities
  px_memory_allocator plugged;  // serves instead of the cache; zeros: none does
  px__device *devices[PX__DEVICES];
} px__runtime;
// ---- state.c
extern px__runtime px__rt;
extern _Thread_local PX__HIDDEN_THREAD int px__current_device;  // an index; set by current.c
// Whether a backend has a row that came after the first ones.
#define PX__BACKEND_HAS(backend, row) \
  ((backend)->size > offsetof(px_backend, row) && (backend)->row)
extern px_stream *px__streams[PX__STREAM_LIMIT];  // by index
px_status px__error_cuda(int code) __attribute__((warn_unused_result));

// ---- registry.c
// The device, initialised and open. PX_ACCELERATOR 101 for a bad index.
px_status px__device_open(px__device **out, int index) __attribute__((warn_unused_result));
static inline px_status px__device_get(px__device **out, int index) {
  *out = px__device_found(index);
  return PX_LIKELY(*out != NULL) ? PX_OK : px__device_open(out, index);
}
// current.c. The same of what a program asks for: negative is the current one.
px_status px__device_resolve(px__device **out, int index) __attribute__((warn_unused_result));
// Whether device calls may be made: initialised, and not in a forked child.
static inline bool px__device_alive(void) {
  return __atomic_load_n(&px__rt.ready, __ATOMIC_ACQUIRE) && !px__rt.forked;
}
static inline void px__device_lock(px__device *d) { pthread_mutex_lock(&d->lock); }
static inline void px__device_unlock(px__device *d) { pthread_mutex_unlock(&d->lock); }
// visible.c: the devices that CUDA_VISIBLE_DEVICES leaves of `present`, in its order; -1 if it
// names one twice. `glance`: by the backend's glance_named.
int px__visible(const char *text, int present, const px_backend *backend, bool glance,
                int physical[PX__DEVICES]);
// kernels.c
const px_kernel_row *px__host_kernels(int *count);
px_kernel px__host_kernel(const char *name);
// pack.c
size_t px__launch_pack(const px_launch *launch, void *room, size_t capacity);

// ---- captures.c, capture.c: what captures forbid, and what they keep
// Fails if the program may not wait for work of the stream (NULL: of any), or ask about it.
px_status px__capture_check(const px_stream *stream) __attribute__((warn_unused_result));
px_status px__capture_check_device(px__device *d) __attribute__((warn_unused_result));
// Spoils a capture, and fails with a driver's code.
px_status px__capture_invalidate(uint64_t capture, int code) __attribute__((warn_unused_result));
// The lock of the stream's device is held. keep: the work is part of its stream's capture. meet:
// the stream is about to wait for what was issued in `capture` (0: in none), which may make it part
// of that.
px_status px__capture_record(const px__work *work, const px_access *accesses, int count)
    __attribute__((warn_unused_result));
px_status px__capture_join(px_stream *stream, uint64_t capture) __attribute__((warn_unused_result));
// Whether a graph has a launch of that id.
bool px__capture_find_launch(px__work *out, uint64_t id);

// ---- sync.c: called, without a lock, before a call makes the host wait for a device
px_status px__sync_point(void) __attribute__((warn_unused_result));
// Around a wait of the host: px_wait_set_hooks.
typedef struct px__waiting {
  void (*end)(void *held);
  void *held;
} px__waiting;
px__waiting px__wait_begin(void);
void px__wait_end(px__waiting now);

// ---- stream_pool.c
extern px_stream px__cpu_stream;
px_status px__stream_create(px_stream **out, px__device *d, int priority, int64_t id)
    __attribute__((warn_unused_result));
// A stream that nobody holds, or a new one; the caller's. Lock held.
px_status px__stream_acquire(px_stream **out, px__device *d, int priority)
    __attribute__((warn_unused_result));
// A foreign stream, in the place of one that nobody holds or has work of, if that is not NULL.
px_status px__stream_register_foreign(px_stream **out, px__device *d, px_stream *place,
                                      void *native, int priority)
    __attribute__((warn_unused_result));
const char *px__stream_text(const px_stream *stream, char text[64]);
// The calling thread's current stream. By device; NULL: the default stream. A thread has a list
// from when it first chooses one.
extern _Thread_local PX__HIDDEN_THREAD px_stream **px__streams_now;
static inline px_stream *px__stream_now(const px__device *d) {
  px_stream **now = px__streams_now;
  return now && now[d->index] ? now[d->index] : d->streams[0];
}
px_status px__stream_set_now(px_stream *stream);

// ---- site.c
enum { PX__SITE_TEXT = 1024 };
// Fills in where work of the calling thread comes from, which writes a allocation first. Without a
// lock.
void px__work_find_site(px__work *work, const px_allocation *written);
// The node of a backward pass whose work the thread does, and the lines that run on the thread, as
// the language tells them: how many, of at most `room`. `other` is where its work comes from, if
// the language tells none. latest: only that of the thread's latest work.
int px__site_frames(px_frame *frames, int room, bool latest, px_site *other);
// Where the thread's work comes from now.
void px__site_find(px_site *out);
// " at FILE:LINE in NODE of FILE:LINE", as much of it as is known.
const char *px__site_text(const px__work *work, char text[PX__SITE_TEXT]);

// ---- timeline.c: the one place where work is issued. A unit of work is begun (takes the lock of
// the stream's device, numbers it, checks races, marks uses), handed to the backend, and ended.
static inline bool px__access_given(const px_access *access) {
  return access->allocation && access->allocation->data;
}
px_status px__work_begin(px__work *work, px_stream *stream, const char *op,
                         const px_access *accesses, int count) __attribute__((warn_unused_result));
// `mark`: the work's end will be waited for by itself.
void px__work_end(px__work *work, bool mark);
// What px__work_begin does before it takes the lock, and then with it held.
void px__work_describe(px__work *work, px_stream *stream, const char *op, const px_access *accesses,
                       int count);
px_status px__work_number(px__work *work, const px_access *accesses, int count)
    __attribute__((warn_unused_result));

extern bool px__in_order;  // atomic; of the settings (configure.c)
px_status px__clock_reserve(px__clock *clock, int count) __attribute__((warn_unused_result));
void px__clock_join(px__clock *into, const px__clock *from);  // room was made
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
// How far the stream is, as the allocator may know it: what has been waited for does not depend on
// time.
static inline uint64_t px__done(const px_stream *s) {
  if (PX_UNLIKELY(__atomic_load_n(&px__in_order, __ATOMIC_RELAXED)))
    return __atomic_load_n(&s->allocator_synced, __ATOMIC_ACQUIRE);
  return px__completed(s);
}
// Whether work `seq` of `before` is done, or comes before what is issued to `after` from now on
// (after's lock held).
static inline bool px__ordered(const px_stream *before, uint64_t seq, const px_stream *after) {
  return before == after || px__done(before) >= seq ||
         px__clock_at(&after->clock, before->index) >= seq;
}
// Lock held. mark: records an event after all work issued so far. poll: looks which are
// allocator_synced.
px_status px__stream_mark(px_stream *s) __attribute__((warn_unused_result));
void px__stream_poll(px_stream *s);
void px__stream_query(px_stream *s);  // also without marks, if the stream is idle
// Work `seq` is known to be done, since somebody has waited for it.
void px__stream_set_completed(px_stream *s, uint64_t seq);
// No lock held: the host waits until work `seq` is done. Nobody asked for that: it orders nothing.
px_status px__stream_wait_seq(px_stream *s, uint64_t seq) __attribute__((warn_unused_result));
// No lock held: later work of `after` waits for all issued to `before`.
px_status px__stream_order(px_stream *after, px_stream *before) __attribute__((warn_unused_result));
// ... for work `seq` of it, before which `clock` says what came.
px_status px__stream_order_at(px_stream *after, px_stream *before, uint64_t seq,
                              const px__clock *clock) __attribute__((warn_unused_result));
// Whether the host waits for what is issued to the stream (CUDA_LAUNCH_BLOCKING).
static inline bool px__stream_blocks(const px_stream *s) {
  return PX_UNLIKELY(px__rt.blocking) && !px__capture_of(s);
}
// No lock held: later work of `after` waits for `event`, which marks work `seq` of `before` (NULL:
// it is done already), and was recorded in `capture` (0: in none).
px_status px__stream_wait_mark(px_stream *after, void *event, px_stream *before, uint64_t seq,
                               const px__clock *clock, uint64_t capture)
    __attribute__((warn_unused_result));
// The host has seen work `seq` done, and with it all that `clock` (may be NULL) says came before.
void px__stream_synced(px_stream *s, uint64_t seq, const px__clock *clock);
// Waits for all issued so far; px__fault_raise turns what a kernel reported into an error.
px_status px__stream_wait_all(px_stream *s) __attribute__((warn_unused_result));
// stream.c: ... and raises what kernels reported.
px_status px__stream_finish(px_stream *s) __attribute__((warn_unused_result));

// ---- records.c
static inline void px__record_add(const px__work *work) {  // lock held
  work->stream->owner->ring[work->id % PX__RING] = *work;
}
bool px__record_find(px__work *out, px__device *d, uint64_t id);
// The latest work of the stream up to `seq`, if there is a record of it. Lock held.
bool px__record_before(px__work *out, const px_stream *stream, uint64_t seq);
px_status px__fault_raise(px__device *d) __attribute__((warn_unused_result));
// Adds to an error of the backend which launch broke the device, if that is known. No lock held.
px_status px__broken_note(px__device *d, px_status status) __attribute__((warn_unused_result));
// At the end of the program, what no call has raised goes to the standard error.
void px__fault_watch(void);
// The error of a fault slot, which is cleared: code's text and status.
px_status px__fault_error(px_fault_slot *slot) __attribute__((warn_unused_result));

// ---- uses.c
px_status px__allocation_add_use(px__allocation *allocation, const px__work *work, bool write)
    __attribute__((warn_unused_result));
// Whether every use is done or ordered before later work of `stream`; done, if that is NULL.
bool px__allocation_is_reusable(px__allocation *allocation, px_stream *stream);
// The i-th stream that uses the allocation, besides the memory's own; NULL past the last.
px_stream *px__allocation_user(px__allocation *allocation, int i);
void px__allocation_drop_uses(px__allocation *allocation);
// CPU memory: finds a use that an access of the host (by NULL), or of later work of a stream, must
// wait for; false if there is none. forget_use drops it after the wait.
bool px__allocation_conflict(px__allocation *allocation, bool write, px_stream *by, px__use *out);
void px__allocation_forget_use(px__allocation *allocation, const px__use *use);

// ---- ticket.c
// The host waits for copies that conflict with its own access (by NULL), or with later work of a
// stream.
px_status px__allocation_wait_conflicts(px_allocation *allocation, bool write, px_stream *by)
    __attribute__((warn_unused_result));
// Makes the uses observable; waits for them.
void px__allocation_mark_uses(px__allocation *allocation);
void px__allocation_wait_uses(px__allocation *allocation);

// ---- aligned.c: runs a kernel of the CPU with copies of operands at odd addresses
px_status px__launch_aligned(const px_launch *launch, const px_access *accesses, int count)
    __attribute__((warn_unused_result));

// ---- wrapped.c
void px__wrapped_free(px_allocation *allocation);
px_status px__meta_new(px_allocation **out, size_t bytes) __attribute__((warn_unused_result));
void px__meta_free(px_allocation *allocation);
// A copy from or to meta: done, or an error.
px_status px__meta_copy(const px_allocation *to) __attribute__((warn_unused_result));
// ---- host.c
px_status px__host_new(px_allocation **out, size_t bytes) __attribute__((warn_unused_result));
void px__host_free(px_allocation *allocation);
// ---- pinned.c
// pinned_pages.c, with the lock of page-locked memory held. range reserves addresses, all of which
// have no pages; false if they are reserved already, or cannot be. missing: bytes of pages that
// [low, high) touches and that are not there. map puts those; if it fails, perhaps some. unmap
// gives back pages that lie in [low, high), at most `most` bytes and a page, and tells how many.
bool px__pinned_range(uintptr_t *at, size_t *bytes);
size_t px__pinned_pages_missing(uintptr_t low, uintptr_t high);
px_status px__pinned_pages_map(uintptr_t low, uintptr_t high) __attribute__((warn_unused_result));
size_t px__pinned_pages_unmap(uintptr_t low, uintptr_t high, size_t most);
extern size_t px__pinned_most;  // of the settings (configure.c); atomic
void px__pinned_free(px_allocation *allocation);
// ---- tree.c
void px__tree_insert(px__node **root, px__node *node);
void px__tree_remove(px__node **root, px__node *node);
px__node *px__tree_lower_bound(px__node *root, size_t size);  // the first of at least `size`
px__node *px__tree_next(px__node *root, px__node *of);        // the next in order
// ---- pool.c: blocks
typedef struct px__request {
  px__device *device;
  px_stream *stream;
  size_t bytes, size;  // as asked for, and rounded
  bool tight;          // a new segment has no more than that
  bool mixed;          // ... and is a large one, whatever the size, that all may share
  bool may_wait,
      retry_after_wait;       // who asks could wait for work; and should, and ask again (reserve.c)
  const px_traceback *stack;  // where, if there is a history
} px__request;
// From what is free, NULL if nothing fits; from a new segment. Lock held.
px_allocation *px__pool_allocate(const px__request *request);
// ... from what is for requests of the other kind, small or large.
px_allocation *px__pool_allocate_other(const px__request *request);
// ... from a pool of the program's own that lends, if the request is not for a pool itself.
px_allocation *px__pool_allocate_lent(const px__request *request);
void px__pool_free(px__device *d, px__block *block, const px_traceback *stack);
// The rest is with the lock held. Chunks in fast bins become free ones: before statistics are read.
void px__pool_flush(px__device *d);
void px__pool_sweep(px__device *d);  // frees whose other uses are settled become free blocks
// Free neighbours become one, whichever streams they are of, if all that used them is done.
void px__pool_merge(px__device *d);
size_t px__pool_round(const px__device *d, size_t bytes);
// For segments.c. Records of blocks; a block's place in the free list; what splits a block in two,
// of which the upper one is free and listed (NULL without memory for it); a allocation in a block
// of a segment that was taken for the request, or in a free one; the room that this is from, or
// NULL.
px_status px__block_new(px__block **out, px__device *d) __attribute__((warn_unused_result));
void px__block_drop(px__device *d, px__block *block);
void px__block_insert_free(px__block *block);
void px__block_remove_free(px__block *block);
px__block *px__block_split(px__device *d, px__block *block, size_t size);
bool px__block_is_idle(const px__block *block);  // free, and nothing uses it any more; may be NULL
px_allocation *px__pool_take(const px__request *request, px__block *block);
px_allocation *px__pool_take_free(const px__request *request, px__block *block);
px__private_pool *px__request_pool(const px__request *request);
// Sizes are multiples of a grain; the largest small request; segments are multiples of a page.
enum { PX__GRAIN = 512, PX__SMALL_MAX = 1 << 20, PX__PAGE = 2 << 20 };

// ... and makes a free block one with its free neighbours, whose uses come before its stream's
// work.
void px__block_coalesce(px__device *d, px__block *block);

// ---- segments.c: with the lock held
// Takes memory for a request from the device, as much as the settings want or (tight) as little as
// will do.
px_status px__segment_extend(px_allocation **out, const px__request *request)
    __attribute__((warn_unused_result));
size_t px__segment_size(const px__device *d, size_t size);
// A segment of a block that is in no list, at an address or (NULL) anywhere; a segment that is free
// goes back; it leaves the list of all; whether it is free, and may go now; the one that was made
// first; whether a stream of the device is captured, when nothing goes back.
px_status px__segment_new(px__segment **out, const px__request *request, void *at, size_t bytes)
    __attribute__((warn_unused_result));
void px__segment_release(px__device *d, px__segment *segment);
void px__segment_forget(px__device *d, px__segment *segment);
bool px__segment_is_free(const px__segment *segment);
bool px__segment_can_go(const px__segment *segment);
// Whether a segment goes only when nothing uses it any more; the backend waits for others.
static inline bool px__segment_must_be_idle(const px__segment *segment) {
  return segment->paged || segment->plugged.alloc;
}
px__segment *px__segment_oldest(const px__device *d);
bool px__device_captures(const px__device *d);
static inline size_t px__whole_pages(size_t bytes) {
  return (bytes + PX__PAGE - 1) & ~(size_t)(PX__PAGE - 1);
}

// ---- runs.c: with the lock held
// Serves a request with as few new pages as will do, for which others go back if they are more than
// `more`; *out NULL: there is no place for it.
px_status px__runs_grow(px_allocation **out, const px__request *request, size_t more)
    __attribute__((warn_unused_result));
// Gives back at most `wanted` bytes of pages that are free and out of use, of the oldest segments
// first, and none of two blocks (may be NULL). Returns how many.
size_t px__runs_unmap(px__device *d, size_t wanted, px__block *const kept[2]);
// Puts pages at an address where there are none, as a free block of the request's stream, which is
// joined to what is free on both sides.
px_status px__runs_map(px__block **out, const px__request *request, uintptr_t at, size_t bytes)
    __attribute__((warn_unused_result));

// ---- thrift.c: with the lock held
// Whether the device has so few pages that requests may be placed with care. allocate does so, if
// the cache is compact and no room is to serve; NULL: there is no place.
bool px__compact_possible(px__device *d);
px_allocation *px__compact_allocate(const px__request *request);

// ---- plugged.c: from an allocator of the program's; back to it; the allocation of a block goes
// back to the one in place of the cache, after a wait, without a lock
px_status px__plugged_alloc(void **out, const px_memory_allocator *allocator,
                            const px__request *request, size_t bytes)
    __attribute__((warn_unused_result));
void px__plugged_release(const px_memory_allocator *allocator, px_stream *stream, void *at,
                         size_t bytes);
void px__plugged_free(px__block *block);

// ---- reserve.c: with the lock held
// What is left to try before a request takes memory from the device; *out NULL: nothing fits.
void px__reserve_try(px_allocation **out, px__request *request);
// Idle segments, of which every block is free, go back; also free pages of the others, if the
// device is short of memory, or more was reserved than is worth it.
void px__reserve_release(px__device *d, bool pages);
// A room that nothing but the caller uses gives what is idle of it back, and is let go of.
void px__reserve_end_pool(px__device *d, px__private_pool *pool);

// ---- pages.c: with the lock held
// Whether segments are to be runs of pages.
bool px__pages_wanted(px__device *d);
// Finds addresses for a segment of that size, unless it has them, and puts pages behind them. give:
// the pages go. join: the segment and the one above, which it meets, are one run.
px_status px__pages_map(px__device *d, px__segment *segment) __attribute__((warn_unused_result));
void px__pages_unmap(px__device *d, px__segment *segment);
void px__pages_merge(px__device *d, px__segment *segment);
// The pages of [at, at + bytes) go, which are at the segment's beginning, at its end, or between
// them: then `rest` becomes the segment of what lies behind.
void px__pages_unmap_part(px__device *d, px__segment *segment, uintptr_t at, size_t bytes,
                          px__segment *rest);
// ---- rooms.c: with the lock held. open finds or makes the pool of that name, for one user more;
// close ends a use; left is called when a room has a segment less; now gives the route that the
// calling thread has begun last, or NULL.
px__route *px__route_now(const px__cache *cache);
px_status px__private_pool_open(px__private_pool **out, px__device *d, px_graph_pool name)
    __attribute__((warn_unused_result));
void px__private_pool_close(px__device *d, px__private_pool *pool);
void px__private_pool_segment_gone(px__device *d, px__private_pool *pool);
// Bytes that are allocated in all of them; the allocation that lies at an address, or NULL.
size_t px__private_pools_allocated(const px__device *d);
px__allocation *px__pool_allocation_at(const px__device *d, const void *data);
// ---- stack.c: the op and the lines that run on the thread; NULL without memory for it. No lock is
// held. at_launch: with the device's lock, of a launch that is being issued.
const px_traceback *px__stack_here(void);
const px_traceback *px__stack_at_launch(void);
const px_traceback *px__stack_of_lines(void);  // without the op
// ---- history.c: what happened to memory, if that is recorded. Without a lock, the stack for what
// is wanted now; with the device's lock held, the events.
enum { PX__RECORDED = 1, PX__UNCACHED = 2, PX__PLUGGED = 4 };
extern PX__HIDDEN int px__bins_disabled;  // atomic: why blocks do not go by fast bins
static inline bool px__bins_disabled_for(int why) {
  return PX_UNLIKELY((__atomic_load_n(&px__bins_disabled, __ATOMIC_RELAXED) & why) != 0);
}
static inline void px__bins_disable(int why, bool on) {
  if (on)
    __atomic_fetch_or(&px__bins_disabled, why, __ATOMIC_RELAXED);
  else
    __atomic_fetch_and(&px__bins_disabled, ~why, __ATOMIC_RELAXED);
}
static inline bool px__history_on(void) { return px__bins_disabled_for(PX__RECORDED); }
bool px__history_wants(px_history_stacks stacks);
bool px__history_names_ops(void);
// What is recorded from now on; NULL: nothing. Before it, devices begin anew with their lock held.
void px__history_choose(const px_memory_history *history);
void px__history_begin(px__device *d, const px_memory_history *history);
void px__history_note(px__device *d, const px_memory_event *event);
static inline void px__history_block(px__device *d, px_memory_action action, const px__block *block,
                                     const px_traceback *stack) {
  if (px__history_on())
    px__history_note(d,
                     &(px_memory_event){.action = action,
                                        .address = (int64_t)block->node.address,
                                        .size = (int64_t)block->allocation.pub.bytes,
                                        .stream = block->stream->id,
                                        .pool = px__private_pool_name(block->segment->private_pool),
                                        .stack = stack});
}
static inline void px__history_segment(px__device *d, px_memory_action action,
                                       const px__segment *segment, int64_t stream) {
  if (px__history_on())
    px__history_note(d, &(px_memory_event){.action = action,
                                           .address = (int64_t)(uintptr_t)segment->data,
                                           .size = (int64_t)segment->size,
                                           .stream = stream,
                                           .pool = px__private_pool_name(segment->private_pool),
                                           .stack = segment->stack});
}
// ---- memory.c: copies of what px_memory_snapshot and px_memory_events tell, freed with px__free
// (NULL: none)
px_status px__memory_blocks(px_memory_block **out, int64_t *count, int device)
    __attribute__((warn_unused_result));
px_status px__memory_events(px_memory_event **out, int64_t *count, int device)
    __attribute__((warn_unused_result));
// ---- configure.c
// Reads the environment, unless the program has chosen. PX_VALUE with PyTorch's texts.
px_status px__settings_start(void) __attribute__((warn_unused_result));
px_status px__settings_warn(void) __attribute__((warn_unused_result));  // no lock held
void px__settings_apply(px__device *d);                                 // no lock held
void px__settings_limit(px__device *d, double fraction);                // lock held
// ---- shortage.c: what the error says after PyTorch's text
enum { PX__SIZE_TEXT = 32 };
const char *px__bytes_text(char text[PX__SIZE_TEXT], uint64_t bytes);  // "2.00 MiB"
typedef struct px__shortage {
  size_t wanted, unused, limit;  // unused: of the device
} px__shortage;
void px__shortage_text(char *text, size_t room, px__device *d, const px__shortage *shortage);
// ---- out_of_memory.c: fails with PyTorch's text for a request of `bytes`; no lock is needed
px_status px__out_of_memory(px__device *d, size_t bytes) __attribute__((warn_unused_result));
// ---- cache.c
// For all streams, and in a capture too none of the memory that its work uses again.
px_status px__cache_new_lasting(px_allocation **out, size_t bytes, px__device *d)
    __attribute__((warn_unused_result));
// With the lock held: does not wait, and does not call reclaim functions.
px_status px__cache_new_locked(px_allocation **out, size_t bytes, px__device *d)
    __attribute__((warn_unused_result));
void px__cache_free(px_allocation *allocation);
void px__cache_free_raw(px_allocation *allocation);  // of kind PX__RAW
// Waits, without a lock, for work that uses memory which is freed, or free: what was issued so far.
px_status px__cache_wait(px__device *d) __attribute__((warn_unused_result));
// ---- scratch.c: memory that backends allocate while a launch is issued, with its device's lock
// held
typedef struct px__scratch {
  px__device *device;     // of the launch that this thread issues; NULL: none
  px_allocation *blocks;  // linked by `uses`, which scratch memory has none of
} px__scratch;
extern _Thread_local PX__HIDDEN_THREAD px__scratch px__scratch_here;
void *px__scratch_take(const px_launch *launch, size_t bytes);
void px__scratch_drop(void);  // no lock held

// ---- launches
static inline void px__launch_bind(px_launch *launch, const px__device *d,
                                   const px_stream *stream) {
  launch->fault = d->slot;
  launch->device = d->physical;
  launch->stream = stream->native;
}
// What became of launches that the backend was given. No lock held.
static inline px_status px__launch_finish(px__device *d, px_status status) {
  if (PX_UNLIKELY(status != PX_OK)) status = px__broken_note(d, status);
  if (PX_UNLIKELY(px__scratch_here.blocks != NULL)) px__scratch_drop();
  return status;
}

// ---- together.c
// What a thread that collects its launches does before other work is issued, and before a
// allocation's memory becomes somebody else's (no lock held). NULL: it collects none.
typedef struct px__launch_batch_hooks {
  px_status (*flush)(void);
  void (*let_go)(const px__allocation *allocation);
} px__launch_batch_hooks;
extern _Thread_local PX__HIDDEN_THREAD const px__launch_batch_hooks
    *px__launch_batching;  // state.c
// Issues what the thread has collected: before it waits, or lets others wait.
static inline px_status px__launch_batch_flush(void) {
  return PX_UNLIKELY(px__launch_batching != NULL) ? px__launch_batching->flush() : PX_OK;
}
// Adds a launch to the list, after it has issued what the launch depends on. *taken false: the
// launch fits into no list, and those before it are issued.
px_status px__launch_batch_add(bool *taken, px__device *d, px_stream *stream,
                               const px_launch *launch, const px_access *accesses, int count)
    __attribute__((warn_unused_result));

// ---- races.c
px_status px__race_asked(bool *out)  // by the environment
    __attribute__((warn_unused_result));
bool px__race_start(void);
static inline bool px__races(void) {
  int on = __atomic_load_n(&px__race_on, __ATOMIC_RELAXED);
  return PX_UNLIKELY(on != 0) && (on > 0 || px__race_start());
}
// Lock of the stream's device held.
px_status px__race_accesses(const px__work *work, const px_access *accesses, int count)
    __attribute__((warn_unused_result));
// The same for accesses of which each is by a work of its own.
px_status px__race_works(const px__work *works, const px_access *accesses, int count)
    __attribute__((warn_unused_result));
px_status px__race_host(const char *op, const px_access *access)
    __attribute__((warn_unused_result));
px_status px__race_nothing(px_stream *stream) __attribute__((warn_unused_result));
void px__race_forget(px__allocation *allocation);
// The allocation's memory was used before, by work up to `seq` of the stream.
void px__race_inherit(px__allocation *allocation, px_stream *stream, uint64_t seq);
