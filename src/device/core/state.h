// SPDX-License-Identifier: Apache-2.0
// Internal state of the device layer: devices, streams and their timelines, allocations and their
// uses, the caching allocator.
//
// Lock order: registry < graph, event < pinned memory < device < captures, race checker < spin lock
// of an allocation's uses, lock of a fast bin. A thread never holds the locks of two devices.
// Fields without a comment about locking are guarded by the lock of their device. Never block on a
// device while holding a lock, except in raw frees.
#pragma once
#include "device/core/biased_lock.h"
#include "device/cache/statistics.h"
#include "phlox/graph.h"

enum {
  PX__STREAM_POOL = 32,  // streams per device and priority; beyond, released ones are reused first
  PX__PRIORITIES = 8,
  PX__DEVICE_STREAMS = 1024,
  PX__STREAM_LIMIT = PX__DEVICES * PX__DEVICE_STREAMS,
  PX__RING = 8192,     // launch records per device
  PX__INLINE_USES = 4  // uses stored in a block; more are allocated
};

// ---- timelines
// A vector clock: at[i] is the highest sequence number of stream i ordered before.
typedef struct px__clock {
  uint64_t *at;
  int count;
} px__clock;
// A backend event recorded after work `seq` of a stream. The work is done when the event is.
typedef struct px__mark {
  struct px__mark *next;
  uint64_t seq;
  void *event;
  int users;      // threads waiting for it without the lock
  bool detached;  // removed from the stream's list; recycled with its last user
} px__mark;

// A node of a tree of free memory, ordered by size and then address.
typedef struct px__node {
  struct px__node *left, *right;
  size_t size;
  uintptr_t address;
} px__node;

// Free blocks. Index 0 is the large pool and 1 the small one, as in PyTorch.
typedef struct px__free_lists {
  px__node *free[2];
  px__block *unsorted[2];  // the block freed last, not yet in the tree
} px__free_lists;

// The block freed last on a stream, per pool. Guarded by its biased lock, with or without the lock
// of the device.
typedef struct px__fast_bin {
  px__biased_lock lock;
  px__block *block;  // atomic; also read without the lock
  px__bin_counts counts;
} px__fast_bin;

typedef struct px__private_pool px__private_pool;
typedef struct px__route px__route;
typedef struct px__device px__device;
struct px_stream {
  px_object head;  // the device holds one reference until the process ends
  px_device device;
  int priority, index;  // index: into vector clocks, unique in the process
  bool foreign;         // belongs to another library; it may queue work there
  int64_t id;
  px__device *owner;  // NULL for the CPU stream
  void *native;
  uint64_t issued;            // last sequence number; written under the lock (atomic)
  uint64_t completed;         // work known to be done (atomic)
  uint64_t synced;            // work the host has waited for (atomic)
  uint64_t allocator_synced;  // work the host or the allocator has waited for (atomic)
  px__clock clock;
  px__mark *first, *last;
  int marks;
  // Free memory cached for this stream.
  px__free_lists free_lists;
  px__fast_bin fast[2];
  uint64_t retry_waited;  // `issued` when a request last waited in order to move pages
  // While captured: the capture's id (else 0), the pool for its memory, and the sequence number of
  // its last captured work (atomic, written under the lock).
  uint64_t capture;
  px__private_pool *private_pool;
  uint64_t captured;
};
static inline uint64_t px__capture_of(const px_stream *stream) {
  return __atomic_load_n(&stream->capture, __ATOMIC_ACQUIRE);
}

// A unit of work and its origin.
typedef struct px__work {
  const char *op, *caller;  // the kernel; the op called by the program, or NULL
  px_stream *stream;
  uint64_t seq, id;
  uint64_t capture;  // id of the capture recording it, or 0
  px_site site;
  px_backward_site backward;
  int64_t profiled;  // its profiler event, or 0
} px__work;
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

// ---- allocations
typedef struct px__use {
  px_stream *stream;
  uint64_t seq;
  bool write;
} px__use;
typedef enum px__allocation_kind {
  PX__HOST,     // CPU memory
  PX__PINNED,   // page-locked CPU memory
  PX__CACHED,   // from the caching allocator
  PX__RAW,      // device memory, bypassing the cache
  PX__WRAPPED,  // owned by another library
  PX__META      // no memory
} px__allocation_kind;
typedef struct px__shadow px__shadow;
typedef struct px__allocation {
  px_allocation pub;
  uint8_t kind, bin;  // px__allocation_kind; size class of CPU memory
  uint8_t spin;       // guards uses
  uint16_t use_count, use_capacity;
  px__use *uses;                 // device: on streams other than its own; CPU: copies
  px__shadow *shadow;            // recent accesses, guarded by the race checker's lock (atomic)
  uint32_t written_by, read_by;  // ids of launch batches (atomic)
} px__allocation;
_Static_assert(sizeof(px__allocation) <= 64, "the header of a CPU allocation takes one cache line");
static inline px__allocation *px__allocation_of(px_allocation *allocation) {
  return (px__allocation *)allocation;
}

struct px__block {
  px__allocation allocation;  // must be first
  px__use inline_uses[PX__INLINE_USES];
  px__node node;                  // size and address; in a tree while free
  struct px__block *prev, *next;  // neighbours in the segment
  struct px__block *queue;        // link in the list of pending frees, or of spare records
  px__segment *segment;           // changes if an expandable segment is merged or split
  bool small, in_private_pool;    // kind of its segment
  px_stream *stream;              // owner; its own uses need no record
  uint64_t ready;                 // while free: all uses are ordered before work `ready` of stream
  const px_traceback *stack;      // of the allocation, if history is recorded
  enum { PX__ALLOCATED, PX__PENDING, PX__FREE } state;
};
static inline bool px__block_is_split(const px__block *block) { return block->prev || block->next; }
struct px__segment {
  px__segment *prev, *next;
  px__segment *below, *above;  // expandable segments, by address
  px__block *first, *last;
  void *data;
  size_t size;
  px__private_pool *private_pool;  // owner, or NULL
  const px_traceback *stack;       // of the allocation, if history is recorded
  bool small;
  bool paged;                   // expandable: mapped pages, not an allocation of the backend
  px_memory_allocator plugged;  // its pluggable allocator; zeros: the backend
};
// A private pool, of graphs or of a px_memory_pool: its segments serve no other requests.
struct px__private_pool {
  px__private_pool *next;
  px_graph_pool name;
  int users;                    // captures, graphs, px_memory_pools and their routes
  int segments;                 // the pool is destroyed when both are 0
  bool captured;                // used by a capture: its free memory may be in use by replays
  bool use_on_oom, no_split;    // use_on_oom and no_split of px_memory_pool_set
  px_memory_allocator plugged;  // for new segments; zeros: the backend
  px__free_lists free_lists;
  px__stat reserved[3];         // bytes of its segments: all, large, small
  px__allocation replay_proxy;  // race checker: proxy of the pool's memory, written by each replay
};
static inline px_graph_pool px__private_pool_name(const px__private_pool *pool) {
  return pool ? pool->name : (px_graph_pool){0};
}
// Routes a thread's requests to the private pool of a px_memory_pool.
struct px__route {
  px__route *next;
  pthread_t thread;
  px__private_pool *private_pool;
  px_memory_pool *pool;  // a reference
};
// Settings of the allocator, from PYTORCH_CUDA_ALLOC_CONF.
enum { PX__ROUND_STEPS = 16 };  // powers of two, from 1 MiB
typedef struct px__settings {
  size_t max_split;           // bytes; larger blocks are not split. SIZE_MAX: no limit
  size_t non_split_rounding;  // bytes; limit of their excess over the request
  size_t large_segment;       // bytes of segments shared by large requests
  size_t pinned_max_cached;   // bytes; larger page-locked allocations are not cached
  enum {
    PX__EXPANDABLE_UNSET,
    PX__EXPANDABLE_FALSE,
    PX__EXPANDABLE_TRUE
  } expandable;         // expandable_segments
  bool deterministic;   // deterministic: addresses depend on the order of calls alone
  double gc_threshold;  // garbage_collection_threshold, a fraction of the memory; 0: off
  double fraction;      // per_process_memory_fraction; negative: unset
  size_t divisions[PX__ROUND_STEPS];  // roundup_power2_divisions; 0: no rounding
} px__settings;
// Ring buffer of the memory events of a device.
typedef struct px__events {
  px_memory_event *at;
  int64_t count, capacity, limit;
  int64_t oldest;  // index of the next event to overwrite, once `count` is `limit`
} px__events;
// The latest requests over the slack limit without a fitting free block.
enum { PX__MISSES = 64 };
typedef struct px__miss {
  size_t size, live;  // requested bytes; bytes in use then
} px__miss;
typedef struct px__misses {
  px__miss seen[PX__MISSES];
  unsigned count;
  size_t mapped;  // bytes mapped for repeated misses
} px__misses;
typedef struct px__cache {
  px__segment *segments;
  px__private_pool *private_pools;
  px__route *routes;        // atomic; the latest first
  px__block *pending;       // freed, still in use by other streams
  px__block *spare_blocks;  // unused records
  size_t reserved;          // bytes of all segments
  size_t peak_in_use;       // peak of the bytes in use at misses, since the cache was emptied
  px__misses misses;        // since the cache was emptied
  bool over_slack;          // the last miss was over the slack limit
  bool compact;             // compact placement is on, until the cache is emptied
  bool pages_moved;         // expandable segments were merged or lost pages: they serve all streams
  uintptr_t range, range_end;  // address range of expandable segments; 0: not reserved
  bool range_tried;            // reserving the range was tried
  px__segment *lowest;         // the expandable segment at the lowest address
  size_t limit;                // limit of `reserved`; 0: none
  double fraction;             // `limit` as a fraction of the device's memory
  px__settings settings;
  px__statistics statistics;
  px__events events;
} px__cache;

enum { PX__LAUNCH_KINDS = 1 << 12 };  // slots of the table of launch kinds
struct px__device {
  pthread_mutex_t lock;
  int index, physical;  // physical: the backend's index
  px_device_properties properties;
  px_fault_slot *slot;
  px_error *callback_error;                // atomic; error of a host callback, not raised yet
  px_stream *streams[PX__DEVICE_STREAMS];  // [0]: the default stream
  int stream_count;                        // atomic
  int last_acquired[PX__PRIORITIES];       // index of the stream acquired last
  px__work *ring;
  uint64_t launches;
  uint64_t launch_kinds[PX__LAUNCH_KINDS];  // atomic; kinds launched, if kernels are loaded lazily
  int launch_kind_count;                    // atomic
  px__mark *spare_marks;                    // spare records
  px_stream *ipc_stream;  // records events for other processes; created on first use
  px__cache cache;
  int64_t fft_plans;  // limit of the plans cached by the backend
  bool peer_enabled[PX__DEVICES], peer_open[PX__DEVICES];  // atomic; by the user, in the backend
};
typedef struct px__runtime {
  const px_backend *backend;  // NULL before initialisation
  int count;
  bool ready, forked;  // atomic
  bool peers_enabled;  // atomic; peer access is enabled somewhere
  bool blocking, loads_late;
  int lowest_priority, highest_priority;  // range of priorities
  px_memory_allocator plugged;            // replaces the cache; zeros: none
  px__device *devices[PX__DEVICES];
} px__runtime;
// ---- the runtime
extern px__runtime px__rt;
extern _Thread_local PX__HIDDEN_THREAD int px__current_device;  // an index
// True if the backend's table has an optional row, and it is set.
#define PX__BACKEND_HAS(backend, row) \
  ((backend)->size > offsetof(px_backend, row) && (backend)->row)
extern px_stream *px__streams[PX__STREAM_LIMIT];  // by index
px_status px__error_cuda(int code) __attribute__((warn_unused_result));

// ---- devices
// Returns the device, initialised and open. Fails with PX_ACCELERATOR 101 for a bad index.
px_status px__device_open(px__device **out, int index) __attribute__((warn_unused_result));
static inline px_status px__device_get(px__device **out, int index) {
  *out = px__device_found(index);
  return PX_LIKELY(*out != NULL) ? PX_OK : px__device_open(out, index);
}
// The same for an index from the program: a negative one means the current device.
px_status px__device_resolve(px__device **out, int index) __attribute__((warn_unused_result));
// True if device calls are allowed: initialised, and not in a forked child.
static inline bool px__device_alive(void) {
  return __atomic_load_n(&px__rt.ready, __ATOMIC_ACQUIRE) && !px__rt.forked;
}
static inline void px__device_lock(px__device *d) { pthread_mutex_lock(&d->lock); }
static inline void px__device_unlock(px__device *d) { pthread_mutex_unlock(&d->lock); }
// ---- visible devices
// Lists the devices that CUDA_VISIBLE_DEVICES selects among `present`, in its order. Returns their
// number, or -1 if one is named twice. `glance`: match UUIDs with the backend's match_forksafe.
int px__visible(const char *text, int present, const px_backend *backend, bool glance,
                int physical[PX__DEVICES]);
// ---- CPU kernels
const px_kernel_row *px__host_kernels(int *count);
px_kernel px__host_kernel(const char *name);
// ---- packing launches
// Copies a launch and its arguments to `to`, if `capacity` bytes are enough. Returns the size.
size_t px__launch_pack(const px_launch *launch, void *to, size_t capacity);

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

// ---- waits of the host
// Warns or fails before a synchronizing call, as px_sync_debug_set asked. No lock held.
px_status px__sync_point(void) __attribute__((warn_unused_result));
// Brackets a wait of the host with the hooks of px_wait_set_hooks.
typedef struct px__waiting {
  void (*end)(void *held);
  void *held;
} px__waiting;
px__waiting px__wait_begin(void);
void px__wait_end(px__waiting now);

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

// ---- call sites
enum { PX__SITE_TEXT = 1024 };
// Fills in the origin of work of the calling thread. `written` is its first written operand, or
// NULL. No lock held.
void px__work_find_site(px__work *work, const px_allocation *written);
// Fills in up to `capacity` frames of the calling thread, the node of a running backward pass
// first, and returns their number. `other` is the origin of its work if the language reports no
// frames. latest: only the origin of the thread's latest work.
int px__site_frames(px_frame *frames, int capacity, bool latest, px_site *other);
// Origin of the thread's work now.
void px__site_find(px_site *out);
// Formats " at FILE:LINE in NODE of FILE:LINE"; unknown parts are left out.
const char *px__site_text(const px__work *work, char text[PX__SITE_TEXT]);

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

extern bool px__deterministic;  // atomic; settings.deterministic
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
// Waits for the pending uses of a freed allocation.
void px__allocation_wait_uses(px__allocation *allocation);

// ---- misaligned operands
// Runs a CPU kernel on aligned copies of its misaligned operands.
px_status px__launch_aligned(const px_launch *launch, const px_access *accesses, int count)
    __attribute__((warn_unused_result));

// ---- wrapped and meta allocations
void px__wrapped_free(px_allocation *allocation);
px_status px__meta_new(px_allocation **out, size_t bytes) __attribute__((warn_unused_result));
void px__meta_free(px_allocation *allocation);
// A copy from or to meta: a no-op, or an error if `to` is no meta allocation.
px_status px__meta_copy(const px_allocation *to) __attribute__((warn_unused_result));
// ---- CPU memory
px_status px__host_new(px_allocation **out, size_t bytes) __attribute__((warn_unused_result));
void px__host_free(px_allocation *allocation);
// ---- pages of page-locked memory; its lock held
// Reserves the address range. All of it is unmapped. False if it is reserved already, or fails.
bool px__pinned_range(uintptr_t *at, size_t *bytes);
// Returns the bytes of the unmapped pages touched by [low, high).
size_t px__pinned_pages_missing(uintptr_t low, uintptr_t high);
// Maps these pages. May have mapped some if it fails.
px_status px__pinned_pages_map(uintptr_t low, uintptr_t high) __attribute__((warn_unused_result));
// Unmaps pages inside [low, high), at most `limit` bytes rounded up to pages. Returns the bytes.
size_t px__pinned_pages_unmap(uintptr_t low, uintptr_t high, size_t limit);
// ---- page-locked memory
extern size_t px__pinned_max_cached;  // settings.pinned_max_cached; atomic
void px__pinned_free(px_allocation *allocation);
// ---- trees of free memory
void px__tree_insert(px__node **root, px__node *node);
void px__tree_remove(px__node **root, px__node *node);
px__node *px__tree_lower_bound(px__node *root, size_t size);  // first of at least `size`
px__node *px__tree_next(px__node *root, px__node *of);        // next in order
// ---- blocks; lock of the device held
typedef struct px__request {
  px__device *device;
  px_stream *stream;
  size_t bytes, size;         // as requested, and rounded
  bool exact;                 // a new segment gets no more bytes than this request
  bool mixed;                 // a new segment serves small and large requests
  bool may_wait;              // the caller can wait for work
  bool retry_after_wait;      // output: it should, and then retry
  const px_traceback *stack;  // of the caller, if history is recorded
} px__request;
// Allocates from free blocks; NULL if none fits.
px_allocation *px__pool_allocate(const px__request *request);
// The same from blocks of the other kind, small or large.
px_allocation *px__pool_allocate_other(const px__request *request);
// The same from private pools with use_on_oom, if the request is not for a private pool itself.
px_allocation *px__pool_allocate_lent(const px__request *request);
void px__pool_free(px__device *d, px__block *block, const px_traceback *stack);
// Frees the blocks in fast bins and adds their counts to the statistics.
void px__pool_flush(px__device *d);
// Moves pending frees without unfinished uses to the free lists.
void px__pool_sweep(px__device *d);
// Merges idle neighbours, also of different streams.
void px__pool_merge(px__device *d);
size_t px__pool_round(const px__device *d, size_t bytes);
// Records of blocks.
px_status px__block_new(px__block **out, px__device *d) __attribute__((warn_unused_result));
void px__block_drop(px__device *d, px__block *block);
// Inserts a block into its free list, or removes it.
void px__block_insert_free(px__block *block);
void px__block_remove_free(px__block *block);
// Splits a block at `size`. The upper part is put on the free list and returned; NULL without
// memory for its record.
px__block *px__block_split(px__device *d, px__block *block, size_t size);
// True if the block is free and its uses are done. NULL is not idle.
bool px__block_is_idle(const px__block *block);
// Allocates from a block: one on no free list, or a free one.
px_allocation *px__pool_take(const px__request *request, px__block *block);
px_allocation *px__pool_take_free(const px__request *request, px__block *block);
// The private pool of a request, or NULL.
px__private_pool *px__request_pool(const px__request *request);
// Bytes: sizes of blocks are multiples of GRAIN, segments of PAGE. SMALL_MAX is the largest request
// of the small pool.
enum { PX__GRAIN = 512, PX__SMALL_MAX = 1 << 20, PX__PAGE = 2 << 20 };

// Merges a free block with free neighbours, if their uses are ordered before its stream's next
// work.
void px__block_coalesce(px__device *d, px__block *block);

// ---- segments; lock held
// Allocates from a new segment, of the size from the settings or (exact) no larger than needed.
px_status px__segment_extend(px_allocation **out, const px__request *request)
    __attribute__((warn_unused_result));
// Bytes of a new segment for a request of `size` bytes.
size_t px__segment_size(const px__device *d, size_t size);
// Creates a segment of one block, on no free list, at an address or (NULL) anywhere.
px_status px__segment_new(px__segment **out, const px__request *request, void *at, size_t bytes)
    __attribute__((warn_unused_result));
// Releases a free segment to the device.
void px__segment_release(px__device *d, px__segment *segment);
// Removes the segment from the list and frees its record.
void px__segment_forget(px__device *d, px__segment *segment);
bool px__segment_is_free(const px__segment *segment);
// True if the segment is free and can be released now.
bool px__segment_can_go(const px__segment *segment);
// True if a release requires all uses to be done; the backend waits for uses of other segments.
static inline bool px__segment_must_be_idle(const px__segment *segment) {
  return segment->paged || segment->plugged.alloc;
}
px__segment *px__segment_oldest(const px__device *d);
// True if a stream of the device is captured: nothing can be released then.
bool px__device_captures(const px__device *d);
static inline size_t px__whole_pages(size_t bytes) {
  return (bytes + PX__PAGE - 1) & ~(size_t)(PX__PAGE - 1);
}

// ---- expandable segments; lock held
// Serves a request by growing an expandable segment with as few new pages as possible. Above `more`
// bytes, unmaps as many pages elsewhere. *out is NULL if no gap fits.
px_status px__runs_grow(px_allocation **out, const px__request *request, size_t more)
    __attribute__((warn_unused_result));
// Unmaps up to `wanted` bytes of idle pages, oldest segments first, except in the blocks `excluded`
// (may be NULL). Returns the bytes.
size_t px__runs_unmap(px__device *d, size_t wanted, px__block *const excluded[2]);
// Maps pages at an unmapped address, as a free block of the request's stream, coalesced with its
// neighbours.
px_status px__runs_map(px__block **out, const px__request *request, uintptr_t at, size_t bytes)
    __attribute__((warn_unused_result));

// ---- compact placement; lock held
// True if the address range has few enough pages for compact placement.
bool px__compact_possible(px__device *d);
// Places a request by cost, if compact placement is on and the request is for no private pool. NULL
// if nothing fits.
px_allocation *px__compact_allocate(const px__request *request);

// ---- pluggable allocators
px_status px__plugged_alloc(void **out, const px_memory_allocator *allocator,
                            const px__request *request, size_t bytes)
    __attribute__((warn_unused_result));
void px__plugged_release(const px_memory_allocator *allocator, px_stream *stream, void *at,
                         size_t bytes);
// Frees a raw allocation of the pluggable allocator. Waits for the stream; no lock held.
void px__plugged_free(px__block *block);

// ---- limits of reserved memory; lock held
// Tries the last steps before a request takes memory from the device. *out is NULL if none fits.
void px__reserve_try(px_allocation **out, px__request *request);
// Releases idle segments. `pages`, or if over the slack limit: also unmaps idle pages of others.
void px__reserve_release(px__device *d, bool pages);
// Ends a use of a private pool. The last one also releases its idle segments.
void px__reserve_end_pool(px__device *d, px__private_pool *pool);

// ---- pages of expandable segments; lock held
// True if new segments shall be expandable.
bool px__pages_wanted(px__device *d);
// Maps the segment's pages, at its address or at the first sufficient gap.
px_status px__pages_map(px__device *d, px__segment *segment) __attribute__((warn_unused_result));
void px__pages_unmap(px__device *d, px__segment *segment);
// Merges the adjacent segment above into `segment`.
void px__pages_merge(px__device *d, px__segment *segment);
// Unmaps [at, at + bytes) at the segment's start, its end, or between. In the last case `rest`
// becomes the segment above the hole.
void px__pages_unmap_part(px__device *d, px__segment *segment, uintptr_t at, size_t bytes,
                          px__segment *rest);
// ---- private pools; lock held
// Returns the calling thread's latest route, or NULL.
px__route *px__route_now(const px__cache *cache);
// Finds or creates the pool of a name and adds a user; close removes one.
px_status px__private_pool_open(px__private_pool **out, px__device *d, px_graph_pool name)
    __attribute__((warn_unused_result));
void px__private_pool_close(px__device *d, px__private_pool *pool);
// Called after a segment of the pool was released.
void px__private_pool_segment_gone(px__device *d, px__private_pool *pool);
// Returns the bytes allocated in all private pools.
size_t px__private_pools_allocated(const px__device *d);
// Returns the live allocation at an address, or NULL.
px__allocation *px__pool_allocation_at(const px__device *d, const void *data);
// ---- stacks
// Return the op and the frames of the calling thread; NULL without memory. The first and the last
// require no lock held. at_launch runs under the device's lock, for the launch being issued.
const px_traceback *px__stack_here(void);
const px_traceback *px__stack_at_launch(void);
const px_traceback *px__stack_of_lines(void);  // without the op
// ---- memory history
// Stacks are collected without a lock; events are added under the device's lock.
enum { PX__RECORDED = 1, PX__UNCACHED = 2, PX__PLUGGED = 4 };
extern PX__HIDDEN int px__bins_disabled;  // atomic; reasons to bypass the fast bins
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
// Sets the history options from now on (NULL: no history). Call px__history_begin for each device
// first, under its lock.
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
// ---- snapshots
// Copies of px_memory_snapshot's and px_memory_events' rows. Free with px__free; NULL if empty.
px_status px__memory_blocks(px_memory_block **out, int64_t *count, int device)
    __attribute__((warn_unused_result));
px_status px__memory_events(px_memory_event **out, int64_t *count, int device)
    __attribute__((warn_unused_result));
// ---- settings
// Reads the environment unless settings were made already. PX_VALUE with PyTorch's texts.
px_status px__settings_start(void) __attribute__((warn_unused_result));
px_status px__settings_warn(void) __attribute__((warn_unused_result));  // no lock held
void px__settings_apply(px__device *d);                                 // no lock held
void px__settings_limit(px__device *d, double fraction);                // lock held
// ---- text of out-of-memory errors
enum { PX__SIZE_TEXT = 32 };
const char *px__bytes_text(char text[PX__SIZE_TEXT], uint64_t bytes);  // "2.00 MiB"
typedef struct px__shortage {
  size_t wanted, unused, limit;  // unused: free memory of the device
} px__shortage;
// Writes the explanation appended to an out-of-memory error.
void px__shortage_text(char *text, size_t capacity, px__device *d, const px__shortage *shortage);
// ---- out-of-memory errors
// Fails with PyTorch's text for a request of `bytes`. No lock is needed.
px_status px__out_of_memory(px__device *d, size_t bytes) __attribute__((warn_unused_result));
// ---- the caching allocator
// For use on all streams. In a capture, from memory never reused by the captured work.
px_status px__cache_new_lasting(px_allocation **out, size_t bytes, px__device *d)
    __attribute__((warn_unused_result));
// With the lock held: does not wait, calls no reclaim functions.
px_status px__cache_new_locked(px_allocation **out, size_t bytes, px__device *d)
    __attribute__((warn_unused_result));
void px__cache_free(px_allocation *allocation);
void px__cache_free_raw(px_allocation *allocation);  // of kind PX__RAW
// Waits for issued work with uses of free memory or of pending frees. No lock held.
px_status px__cache_wait(px__device *d) __attribute__((warn_unused_result));
// ---- scratch memory
// Memory allocated by a backend while a launch is issued, under the device's lock.
typedef struct px__scratch {
  px__device *device;          // of the launch being issued by this thread, or NULL
  px_allocation *allocations;  // linked by `uses`, otherwise empty in scratch memory
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
// Adds the broken launch to an error, and frees scratch memory. No lock held.
static inline px_status px__launch_finish(px__device *d, px_status status) {
  if (PX_UNLIKELY(status != PX_OK)) status = px__broken_note(d, status);
  if (PX_UNLIKELY(px__scratch_here.allocations != NULL)) px__scratch_drop();
  return status;
}

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
// Adds a launch to the batch. Issues the batch first if the launch depends on it or does not fit.
// *taken is false if the launch fits no batch.
px_status px__launch_batch_add(bool *taken, px__device *d, px_stream *stream,
                               const px_launch *launch, const px_access *accesses, int count)
    __attribute__((warn_unused_result));

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
