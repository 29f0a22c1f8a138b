// SPDX-License-Identifier: Apache-2.0
// The device layer's own state: devices, streams with their timelines, blocks with their uses.
//
// Locks, in the order in which they are taken: registry's < an event's < pinned < a device's
// (recursive) < races' < a block's spin word. No thread holds two devices' locks. What a field's
// comment does not say is owned by its device's lock. Nothing waits for a device with a lock held,
// but for raw frees.
#pragma once
#include "device/device_impl.h"

enum {
  PX__DEVICES = 64,
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
// A backend's event recorded after work `seq` of a stream: makes the timeline observable.
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

// What a stream was given back last (pool.c), and what has been asked for since the statistics were
// told. `spin` guards it: it is taken with the device's lock held or without.
typedef struct px__tally {
  int64_t count, bytes;     // requests, and the sum of their sizes in the pool
  int64_t wanted;           // ... and as they were asked for
  int64_t change, highest;  // of the requested bytes in use
} px__tally;
typedef struct px__rest {
  uint8_t spin;
  struct px__chunk *chunk;  // atomic: also read without
  px__tally tally;
} px__rest;

typedef struct px__device px__device;
struct px_stream {
  px_object head;  // one reference is the device's, for as long as the process lives
  px_device device;
  int priority, index;  // index: in vector clocks, unique in the process
  int64_t id;
  px__device *owner;  // NULL: the CPU's
  void *native;
  uint64_t issued;     // written under the lock, read without (atomic)
  uint64_t completed;  // known to be done (atomic)
  uint64_t synced;     // the host has waited for it (atomic)
  px__clock clock;
  px__mark *first, *last;
  int marks;
  px__node *free[2];         // cached memory of this stream: large, small
  struct px__chunk *hot[2];  // ... the latest, which is not in the tree
  px__rest rest[2];
};

typedef struct px__site {
  const char *file;
  int line;
} px__site;
// What was issued under an id.
typedef struct px__record {
  uint64_t id, seq;
  const char *op, *caller;
  px__site site;
  px_stream *stream;
} px__record;

// ---- statistics (stats.c)
// What was freed is not counted but follows: allocated - current + base.
typedef struct px__stat {
  int64_t current, peak, allocated, base;
} px__stat;
// In the order in which PyTorch lists them: by name. name, counted in pools, or a plain number.
#define PX__STAT_MAP(POOLED, SINGLE, NUMBER) \
  POOLED(active) \
  POOLED(active_bytes) \
  POOLED(allocated_bytes) \
  POOLED(allocation) \
  POOLED(inactive_split) \
  POOLED(inactive_split_bytes) \
  NUMBER(max_split_size) \
  NUMBER(num_alloc_retries) \
  NUMBER(num_device_alloc) \
  NUMBER(num_device_free) \
  NUMBER(num_ooms) \
  NUMBER(num_sync_all_streams) \
  SINGLE(oversize_allocations) \
  SINGLE(oversize_segments) POOLED(requested_bytes) POOLED(reserved_bytes) POOLED(segment)
typedef struct px__stats {
#define POOLED(name) px__stat name[3];  // all, large_pool, small_pool
#define SINGLE(name) px__stat name[1];
#define NUMBER(name) int64_t name;
  PX__STAT_MAP(POOLED, SINGLE, NUMBER)
#undef POOLED
#undef SINGLE
#undef NUMBER
} px__stats;
static inline void px__stat_move(px__stat *stat, int64_t by) {
  stat->current += by;
  if (by <= 0) return;
  stat->allocated += by;
  if (stat->current > stat->peak) stat->peak = stat->current;
}
static inline int64_t px__stat_freed(const px__stat *stat) {
  return stat->allocated - stat->current + stat->base;
}
static inline void px__stat_pooled(px__stat stat[3], bool small, int64_t by) {
  px__stat_move(&stat[0], by);
  px__stat_move(&stat[1 + small], by);
}

// ---- blocks
typedef struct px__use {
  px_stream *stream;
  uint64_t seq, id;
  bool write;
} px__use;
typedef enum px__block_kind {
  PX__HOST,    // host.c
  PX__PINNED,  // pinned.c
  PX__CACHED,  // pool.c
  PX__RAW,     // device memory past the cache
  PX__WRAPPED  // somebody else's
} px__block_kind;
typedef struct px__shadow px__shadow;
typedef struct px__block {
  px_block pub;
  uint8_t kind, bin;  // px__block_kind; of host.c
  uint8_t spin;       // guards uses
  uint16_t use_count, use_room;
  px__use *uses;       // by other streams than the memory's own; of CPU memory: copies
  px__shadow *shadow;  // recent accesses; of the race checker
} px__block;
_Static_assert(sizeof(px__block) <= 64, "the head of a CPU block takes one cache line");
static inline px__block *px__block_of(px_block *block) { return (px__block *)block; }

typedef struct px__segment px__segment;
typedef struct px__chunk {
  px__block block;  // first
  px__use few[PX__INLINE_USES];
  px__node node;                  // size and address; in a tree while free
  struct px__chunk *prev, *next;  // neighbours in the segment
  struct px__chunk *queue;        // in the list of pending frees
  px__segment *segment;
  px_stream *stream;  // whose memory this is: uses on it need no mark
  uint64_t ready;     // while free: all uses come before work `ready` of the stream
  enum { PX__TAKEN, PX__PENDING, PX__FREE } state;
} px__chunk;
struct px__segment {
  px__segment *prev, *next;
  px__chunk *first;
  void *data;
  size_t size;
  bool small;
};
// configure.c
enum { PX__ROUND_STEPS = 16 };  // powers of two from 1 MiB on
typedef struct px__settings {
  size_t max_split;           // larger chunks are not split; SIZE_MAX: all are
  size_t non_split_rounding;  // how much larger such a chunk may be than the request
  size_t large_segment;       // of requests that get none of their own
  double threshold;           // share of the memory from which idle segments go back; 0: none
  double fraction;            // of the device that may be reserved; negative: not said
  size_t divisions[PX__ROUND_STEPS];  // of the powers of two, to which sizes round; 0: none
} px__settings;
typedef struct px__cache {
  px__segment *segments;
  px__chunk *pending;  // freed, but used by other streams
  px__chunk *spare;
  size_t limit;  // 0: none; bytes that may be reserved
  px__settings settings;
  px__stats stats;
} px__cache;

struct px__device {
  pthread_mutex_t lock;
  int index, physical;  // physical: the backend's number
  bool open;            // atomic; all below is set before
  px_device_properties properties;
  px_fault_slot *slot;
  px_stream *streams[PX__DEVICE_STREAMS];  // [0]: the default stream
  int stream_count;                        // atomic
  int last[PX__PRIORITIES];                // the latest that was handed out
  px__record *ring;
  uint64_t launches;
  px__mark *marks;  // unused ones
  px__cache cache;
  bool peer_asked[PX__DEVICES], peer_open[PX__DEVICES];  // atomic: by the user; in the backend
};
typedef struct px__runtime {
  const px_backend *backend;  // NULL before initialisation
  int count;
  bool ready, forked;  // atomic
  bool blocking, uncached;
  int least, greatest;  // priorities
  px__device *devices[PX__DEVICES];
} px__runtime;
extern px__runtime px__rt;

// ---- registry.c
// The device, initialised and open. PX_ACCELERATOR 101 for a bad index.
px_status px__device_open(px__device **out, int index) __attribute__((warn_unused_result));
static inline px_status px__device_get(px__device **out, int index) {
  if (PX_LIKELY(__atomic_load_n(&px__rt.ready, __ATOMIC_ACQUIRE) && !px__rt.forked && index >= 0 &&
                index < px__rt.count &&
                __atomic_load_n(&px__rt.devices[index]->open, __ATOMIC_ACQUIRE)))
    return *out = px__rt.devices[index], PX_OK;
  return px__device_open(out, index);
}
// Whether device calls may be made: initialised, and not in a forked child.
static inline bool px__device_alive(void) {
  return __atomic_load_n(&px__rt.ready, __ATOMIC_ACQUIRE) && !px__rt.forked;
}
static inline void px__device_lock(px__device *d) { pthread_mutex_lock(&d->lock); }
static inline void px__device_unlock(px__device *d) { pthread_mutex_unlock(&d->lock); }
px_status px__error_cuda(int code) __attribute__((warn_unused_result));
// visible.c: the devices that CUDA_VISIBLE_DEVICES leaves of `present`, in its order; -1 if it
// names one twice.
int px__visible(const char *text, int present, const px_backend *backend,
                int physical[PX__DEVICES]);
// kernels.c
const px_kernel_row *px__host_kernels(int *count);
// pack.c
size_t px__launch_pack(const px_launch *launch, void *room, size_t capacity);

// ---- sync.c: called without a lock before the host waits for a device on a program's behalf
px_status px__sync_point(void) __attribute__((warn_unused_result));

// ---- current.c
px_stream *px__stream_now(px__device *d);  // the calling thread's current stream
// stream.c
px_status px__stream_create(px_stream **out, px__device *d, int priority, int64_t id)
    __attribute__((warn_unused_result));
extern px_stream *px__streams[PX__STREAM_LIMIT];  // by index
extern px_stream px__cpu_stream;

// ---- site.c
px__site px__site_now(void);

// ---- timeline.c: the one place where work is issued. A unit of work is begun (takes the lock of
// the stream's device, numbers it, checks races, marks uses), handed to the backend, and ended.
typedef struct px__work {
  const char *op;
  px_stream *stream;
  uint64_t seq, id;
  px__site site;
} px__work;
px_status px__work_begin(px__work *work, px_stream *stream, const char *op,
                         const px_access *accesses, int count) __attribute__((warn_unused_result));
// `mark`: the work's end will be waited for by itself.
void px__work_end(px__work *work, bool mark);

px_status px__clock_room(px__clock *clock, int count) __attribute__((warn_unused_result));
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
// Whether work `seq` of `before` is done, or comes before what is issued to `after` from now on
// (after's lock held).
static inline bool px__ordered(const px_stream *before, uint64_t seq, const px_stream *after) {
  return before == after || px__completed(before) >= seq ||
         px__clock_at(&after->clock, before->index) >= seq;
}
// Lock held: makes all work issued so far observable; asks what is done.
px_status px__stream_mark(px_stream *s) __attribute__((warn_unused_result));
void px__stream_poll(px_stream *s);
void px__stream_ask(px_stream *s);  // also without marks, if the stream is idle
// No lock held: the host waits until work `seq` is done.
px_status px__stream_reach(px_stream *s, uint64_t seq) __attribute__((warn_unused_result));
// No lock held: later work of `after` waits for all issued to `before`.
px_status px__stream_order(px_stream *after, px_stream *before) __attribute__((warn_unused_result));
// No lock held: later work of `after` waits for `event`, which marks work `seq` of `before` (NULL:
// it is done already).
px_status px__stream_wait_mark(px_stream *after, void *event, px_stream *before, uint64_t seq,
                               const px__clock *clock) __attribute__((warn_unused_result));
// The host has seen work `seq` done, and with it all that `clock` (may be NULL) says came before.
void px__stream_synced(px_stream *s, uint64_t seq, const px__clock *clock);
// Waits for all issued so far; px__fault_raise turns what a kernel reported into an error.
px_status px__stream_wait_all(px_stream *s) __attribute__((warn_unused_result));
// ... and raises what kernels reported.
px_status px__stream_finish(px_stream *s) __attribute__((warn_unused_result));
px_status px__fault_raise(px__device *d) __attribute__((warn_unused_result));
// The error of a fault slot, which is cleared: code's text and status.
px_status px__fault_error(px_fault_slot *slot) __attribute__((warn_unused_result));

// ---- block.c
static inline void px__spin_lock(uint8_t *spin) {
  while (__atomic_test_and_set(spin, __ATOMIC_ACQUIRE))
    ;
}
static inline void px__spin_unlock(uint8_t *spin) { __atomic_clear(spin, __ATOMIC_RELEASE); }
px_status px__block_use(px__block *block, const px__work *work, bool write)
    __attribute__((warn_unused_result));
// Whether every use is done or comes before later work of `stream` (may be NULL: done).
bool px__block_settled(px__block *block, px_stream *stream);
void px__block_drop_uses(px__block *block);
// Waits for copies that conflict with a host access.
px_status px__block_host_access(px_block *block, bool write) __attribute__((warn_unused_result));
// Makes the uses observable; waits for them.
void px__block_mark_uses(px__block *block);
void px__block_wait_uses(px__block *block);
// Saves the thread's error over cleanup that may set another.
typedef struct px__error_guard {
  bool held;
  px_error error;
} px__error_guard;
void px__error_save(px__error_guard *guard);
void px__error_restore(px__error_guard *guard);
void px__reclaim(void);

// ---- wrapped.c
void px__wrapped_free(px_block *block);
void px__wrapped_sweep(void);  // no lock held: gives back what nobody uses any more
// ---- host.c
px_status px__host_new(px_block **out, size_t bytes) __attribute__((warn_unused_result));
void px__host_free(px_block *block);
// ---- pinned.c
void px__pinned_free(px_block *block);
// ---- tree.c
void px__tree_insert(px__node **root, px__node *node);
void px__tree_remove(px__node **root, px__node *node);
px__node *px__tree_least(px__node *root, size_t size);   // the first of at least `size`
px__node *px__tree_after(px__node *root, px__node *of);  // the next in order
// ---- pool.c: segments and chunks. Lock held.
px__chunk *px__pool_find(px__device *d, px_stream *stream, size_t size);
px_status px__pool_grow(px__chunk **out, px__device *d, px_stream *stream, size_t size)
    __attribute__((warn_unused_result));
// Cuts a chunk that was found to size and hands it out.
px_block *px__pool_take(px__device *d, px__chunk *chunk, size_t size, size_t bytes);
void px__pool_give(px__device *d, px__chunk *chunk);
// Without the lock: what the stream was given back last, if it has the size; and giving a chunk
// back to be that. Either may decline.
px_block *px__pool_again(px__device *d, px_stream *stream, size_t bytes);
bool px__pool_rest(px__chunk *chunk);
// What the streams gave back last becomes free: before statistics are read.
void px__pool_wake(px__device *d);
void px__pool_sweep(px__device *d);  // frees whose other uses are settled become available
void px__pool_release(px__device *d);
// Gives the oldest idle segments back while more is reserved than the settings' threshold allows.
void px__pool_collect(px__device *d);
size_t px__pool_round(const px__device *d, size_t bytes);
size_t px__pool_segment_size(const px__device *d, size_t size);
// ---- configure.c
// Reads the environment, unless the program has chosen. PX_VALUE with PyTorch's texts.
px_status px__settings_start(void) __attribute__((warn_unused_result));
px_status px__settings_warn(void) __attribute__((warn_unused_result));  // no lock held
void px__settings_apply(px__device *d);                                 // no lock held
// ---- cache.c
px_status px__cache_new(px_block **out, size_t bytes, px__device *d)
    __attribute__((warn_unused_result));
void px__cache_free(px_block *block);
void px__cache_limit(px__device *d, double fraction);  // lock held
px_status px__cache_drain(px__device *d) __attribute__((warn_unused_result));
// ---- launch.c: whether this thread is inside a launch, with its device's lock held
bool px__launch_inside(void);
// Backends' scratch memory: a block that goes when the launch has been issued.
void *px__launch_scratch(const px_launch *launch, size_t bytes);

// ---- races.c
px_status px__race_asked(bool *out)  // by the environment
    __attribute__((warn_unused_result));
bool px__race_start(void);
static inline bool px__races(void) {
  int on = __atomic_load_n(&px__race_on, __ATOMIC_RELAXED);
  return PX_UNLIKELY(on != 0) && (on > 0 || px__race_start());
}
// Lock of the stream's device held.
px_status px__race_access(const px__work *work, const px_access *access)
    __attribute__((warn_unused_result));
px_status px__race_host(px__block *block, const px__use *use, bool write)
    __attribute__((warn_unused_result));
px_status px__race_nothing(px_stream *stream) __attribute__((warn_unused_result));
void px__race_forget(px__block *block);
// The block's memory was used before, by work up to `seq` of the stream.
void px__race_inherit(px__block *block, px_stream *stream, uint64_t seq);
bool px__record_find(px__record *out, px__device *d, uint64_t id);
const char *px__stream_text(const px_stream *stream, char text[64]);
