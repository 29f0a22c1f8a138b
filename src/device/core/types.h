// SPDX-License-Identifier: Apache-2.0
// Types of the device layer: streams and their timelines, allocations and their uses, the caching
// allocator, devices.
//
// Fields without a comment about locking are guarded by the lock of their device.
#pragma once
#include "device/core/biased_lock.h"
#include "device/cache/statistics.h"
#include "phlox/graph.h"

enum {
  PX__STREAM_POOL = 32,  // streams per device and priority; beyond, released ones are reused first
  PX__PRIORITIES = 8,
  PX__DISTINCT_STREAMS = 960,  // streams per device; beyond, held ones are handed out again
  PX__DEVICE_STREAMS = 1024,   // the rest is for streams of other libraries
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
typedef struct px__tree_node {
  struct px__tree_node *left, *right;
  size_t size;
  uintptr_t address;
} px__tree_node;

// Free blocks. Index 0 is the large pool and 1 the small one, as in PyTorch.
typedef struct px__free_lists {
  px__tree_node *free[2];
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
  px__tree_node node;             // size and address; in a tree while free
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
