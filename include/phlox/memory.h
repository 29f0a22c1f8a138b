// SPDX-License-Identifier: Apache-2.0
// Device memory: statistics with PyTorch's names, the caching allocator, limits, and the race
// checker.
//
// A tensor's memory is freed with its last reference. The allocator caches it and reuses it only
// when safe: on the same stream, or after recorded uses by other streams are done.
#pragma once
#include "phlox/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

// One statistic: PyTorch's key ("allocated_bytes.all.current") and its value.
typedef struct px_memory_stat {
  char key[64];
  int64_t value;
} px_memory_stat;
// Calls each(stat, context) for every statistic of a device, in PyTorch's order; for none before
// initialisation.
PX_CALL px_memory_stats(int device, void (*each)(const px_memory_stat *stat, void *context),
                        void *context);
// The same for pinned host memory.
PX_CALL px_memory_host_stats(void (*each)(const px_memory_stat *stat, void *context),
                             void *context);
// Returns the statistic of a key ("allocated_bytes.all.current"); 0 before initialisation. PX_KEY
// for an unknown key.
PX_CALL px_memory_stat_get(int64_t *out, int device, const char *key);
PX_API int64_t px_memory_allocated(int device);  // bytes of live allocations, after rounding
PX_API int64_t px_memory_allocated_peak(int device);
PX_API int64_t px_memory_reserved(int device);  // bytes allocated from the device
PX_API int64_t px_memory_reserved_peak(int device);
PX_CALL px_memory_reset_peak(int device);
PX_CALL px_memory_reset_accumulated(int device);
// Return unused device memory to the backend (no-op before initialisation), and unused pinned
// memory to the system.
PX_CALL px_memory_empty_cache(void);
PX_CALL px_memory_empty_host_cache(void);
// Turns caching on or off. Without caching, allocations and frees of device memory go to the
// backend and are not counted; memory already cached is kept. Off at start if
// PYTORCH_NO_CUDA_MEMORY_CACHING is set.
PX_API void px_memory_set_caching(bool on);
// Limits the reserved memory of a device to `fraction` (0 to 1) of its memory. PX_VALUE if out of
// range.
PX_CALL px_memory_set_fraction(double fraction, int device);
// Configures the allocator from a text in the format of PYTORCH_CUDA_ALLOC_CONF. Absent keys are
// reset to their defaults. Warns about keys without effect. PX_VALUE, with PyTorch's text, for an
// invalid text; nothing is changed then.
PX_CALL px_memory_configure(const char *text);
// Returns that fraction; 1 without a limit.
PX_CALL px_memory_fraction(double *out, int device);
// Adds a function that is called before a request for device memory fails, on the requesting thread
// without locks: with the device, the bytes requested, the device's memory or the allowed part of
// it, and its free bytes. It remains until the process exits. PX_RUNTIME for more than 16.
typedef void (*px_shortage_observer)(int device, size_t requested, size_t total, size_t unused,
                                     void *context);
PX_CALL px_memory_observe_shortage(px_shortage_observer observer, void *context);
PX_CALL px_memory_host_reset_peak(void);
PX_CALL px_memory_host_reset_accumulated(void);

// A user-defined allocator. alloc returns memory of a device for work of a stream (the backend's
// handle; NULL is the default stream), or NULL if out of memory. free receives the same size,
// device and stream, once no work uses the memory; the host may have waited for that. Both are
// called from any thread, possibly with locks held. They must call no functions of this library but
// px_memory_device_alloc and px_memory_device_free, and stay valid until the process exits.
typedef struct px_memory_allocator {
  void *(*alloc)(int64_t size, int device, void *stream);
  void (*free)(void *at, int64_t size, int device, void *stream);
} px_memory_allocator;
// Replaces the cache by a user-defined allocator, from the first use of a device on; statistics
// then stay 0. NULL restores the cache. Captures then cannot allocate (PX_UNIMPLEMENTED).
// PX_RUNTIME "Can't swap an already initialized allocator" after that first use.
//
//   static void *take(int64_t size, int device, void *stream) {
//     void *at;
//     counted++;
//     return px_memory_device_alloc(&at, (size_t)size, device) == PX_OK ? at : NULL;
//   }
PX_CALL px_memory_set_allocator(const px_memory_allocator *allocator);
// True if a user-defined allocator is set.
PX_API bool px_memory_is_plugged(void);
// For such allocators: raw memory of a device (negative: the current one). free waits for work
// using the memory. PX_OUT_OF_MEMORY; PX_VALUE for 0 bytes.
PX_CALL px_memory_device_alloc(void **out, size_t bytes, int device);
PX_CALL px_memory_device_free(void *at, int device);

// Page-locks host memory where it is, such as memory shared with other processes: copies between it
// and devices may be asynchronous, and tensors in it are pinned. It must not be freed before
// px_memory_host_unregister of the same address, which waits for work using it. PX_ACCELERATOR with
// the code 712 if some of it is registered already, 713 if the address is not registered; PX_VALUE
// for NULL, 0 bytes, device memory and pinned memory; PX_UNIMPLEMENTED without support by the
// backend.
//
//   PX_TRY(px_memory_host_register(at, bytes));
//   PX_TRY(px_tensor_wrap(&t, at, bytes, 1, sizes, NULL, PX_FLOAT32, px_cpu(), NULL, NULL));
//   PX_TRY(px_to(&copy, t, PX_DTYPE_NONE, px_cuda(0), true, false));
//   PX_TRY(px_device_synchronize(-1));
//   PX_TRY(px_memory_host_unregister(at));
PX_CALL px_memory_host_register(void *at, size_t bytes);
PX_CALL px_memory_host_unregister(void *at);

// The name of a memory pool: private to a graph, made by px_graph_pool_new, or of a px_memory_pool.
// All zeros is none.
typedef struct px_graph_pool {
  uint64_t own, shared;
} px_graph_pool;
// A memory pool: segments reserved for its users while it lives. Allocations of a thread come from
// it between px_memory_pool_begin and px_memory_pool_end, except those of a capture, which come
// from the graph's pool. Destroying a pool returns its free memory to the device; the rest follows
// once freed and the cache is emptied.
//
//   PX_TRY(px_memory_pool_new(&pool, -1));
//   PX_TRY(px_memory_pool_begin(pool, -1));
//   PX_TRY(px_empty(&t, sizes, 1, PX_FLOAT32, px_cuda(0), false, false, NULL));
//   PX_TRY(px_memory_pool_end(pool, -1));
typedef struct px_memory_pool px_memory_pool;
// Makes a pool on a device; negative: the current one.
PX_CALL px_memory_pool_new(px_memory_pool **out, int device);
// The same; segments come from a user-defined allocator.
PX_CALL px_memory_pool_new_over(px_memory_pool **out, int device,
                                const px_memory_allocator *allocator);
// use_on_oom: free memory of the pool serves outside allocations that would otherwise fail, unless
// a graph was captured with the pool. no_split: each allocation has its own segment. Both are off
// in a new pool.
PX_CALL px_memory_pool_set(px_memory_pool *pool, bool use_on_oom, bool no_split);
PX_API px_graph_pool px_memory_pool_name(const px_memory_pool *pool);
// Returns the pool's use count: itself, threads inside begin/end, and graphs.
PX_CALL px_memory_pool_uses(int *out, const px_memory_pool *pool);
// Directs the calling thread's allocations on a device (negative: the current one) to the pool
// until the matching end. Pools nest; the innermost is used. The pool stays alive in between. The
// thread that begins a pool must end it. px_memory_pool_end fails with PX_RUNTIME if the pool is
// not the thread's innermost.
PX_CALL px_memory_pool_begin(px_memory_pool *pool, int device);
PX_CALL px_memory_pool_end(px_memory_pool *pool, int device);

// A source line, and its function ("" if unknown). The strings stay valid.
typedef struct px_frame {
  const char *file, *function;
  int line;
  bool inside;  // belongs to the embedding language's library, not to the program
} px_frame;
// The origin of an event: the op called by the program (NULL: none) and the call stack, innermost
// first. Valid until the process exits.
typedef struct px_traceback {
  const char *op;
  const px_frame *frames;
  int count;
} px_traceback;

// A block of a segment. px_memory_snapshot calls each(block, context) for all blocks of a device.
typedef struct px_memory_block {
  int64_t segment_address, segment_size, address, size, requested;
  int64_t stream;
  px_graph_pool pool;  // of the segment; none: the general pool
  bool small_pool;
  const char *state;  // "active_allocated" "active_pending_free" "inactive"
  // Allocation sites of block and segment; NULL if no history was recorded then.
  const px_traceback *stack, *segment_stack;
  bool expandable;         // the segment consists of pages that can be unmapped individually
  int64_t segment_stream;  // the segment's stream; 0 for an expandable one after pages were moved
} px_memory_block;
PX_CALL px_memory_snapshot(int device, void (*each)(const px_memory_block *block, void *context),
                           void *context);

// ---- the history of device memory
// Events, by their names in PyTorch's snapshots. free_requested: the program freed a block;
// free_completed: its last use by a stream is done.
#define PX_MEMORY_ACTION_MAP(XX) \
  XX(ALLOC, alloc) \
  XX(FREE_REQUESTED, free_requested) \
  XX(FREE_COMPLETED, free_completed) \
  XX(SEGMENT_ALLOC, segment_alloc) \
  XX(SEGMENT_FREE, segment_free) \
  XX(OOM, oom) \
  XX(SNAPSHOT, snapshot) \
  XX(SEGMENT_MAP, segment_map) \
  XX(SEGMENT_UNMAP, segment_unmap)
typedef enum px_memory_action {
#define XX(name, text) PX_MEMORY_##name,
  PX_MEMORY_ACTION_MAP(XX)
#undef XX
      PX_MEMORY_ACTIONS
} px_memory_action;
PX_API const char *px_memory_action_name(px_memory_action action);

// Scope of recorded stacks: none; live blocks; also events that allocate; all events.
typedef enum px_history_stacks {
  PX_HISTORY_NO_STACKS,
  PX_HISTORY_LIVE,
  PX_HISTORY_ALLOCATIONS,
  PX_HISTORY_ALL
} px_history_stacks;
typedef struct px_memory_history {
  int64_t max_entries;  // latest events kept for each device; 0: none
  px_history_stacks stacks;
  unsigned skipped;  // bit set of 1u << action: actions not recorded
  bool clear;        // drop earlier events; implied if max_entries changes
  bool lines_only;   // stacks without the op
} px_memory_history;
// Starts recording memory events of all devices; NULL stops and drops the events. Blocks keep their
// stacks. Initialises. PX_VALUE for a negative max_entries.
//
//   PX_TRY(px_memory_record(&(px_memory_history){.max_entries = 10000, .stacks = PX_HISTORY_ALL}));
//   PX_TRY(step());
//   PX_TRY(px_memory_events(0, print_event, NULL));
PX_CALL px_memory_record(const px_memory_history *history);
PX_API bool px_memory_recording(void);

// An event. `address` and `size` (in requested bytes) are those of the block or segment. For
// PX_MEMORY_OOM, size is the request's and `free_bytes` the device's free memory. For
// PX_MEMORY_SNAPSHOT, size is the total in use.
typedef struct px_memory_event {
  px_memory_action action;
  int64_t address, size, stream, free_bytes;
  px_graph_pool pool;
  int64_t time;  // microseconds since 1970
  const px_traceback *stack;
} px_memory_event;
// Calls each(event, context) for the events of a device, oldest first.
PX_CALL px_memory_events(int device, void (*each)(const px_memory_event *event, void *context),
                         void *context);

// The input of a memory picture: the blocks of a device, by segment, and the events that led to
// them, oldest first. Borrowed.
typedef struct px_memory_trace {
  int device;
  const px_memory_block *blocks;
  int64_t block_count;
  const px_memory_event *events;
  int64_t event_count;
} px_memory_trace;
// Renders an SVG, to be freed with px_free: for each device with block events, the live bytes over
// events, by allocating op and source line, and the reserved bytes. Memory allocated before the
// first event is one part. The `owners` ops and lines with the most bytes at the peak have
// individual colours. PX_VALUE without such events, or for negative owners.
PX_CALL px_memory_picture(char **out, const px_memory_trace *devices, int count, int owners);
// Writes a picture of the events recorded on all devices to a file. PX_IO if it cannot be written.
//
//   PX_TRY(px_memory_record(&(px_memory_history){.max_entries = 10000, .stacks = PX_HISTORY_ALL}));
//   PX_TRY(step());
//   PX_TRY(px_memory_draw("memory.svg", 12));
PX_CALL px_memory_draw(const char *path, int owners);

// The race checker (docs/howto/races.md). Level 0 is off, 1 is on. With `raise`, the racing call
// fails with PX_RUNTIME. px_race_report keeps the report in any case.
PX_API void px_race_enable(int level, bool raise);
PX_API int px_race_level(void);
PX_API int64_t px_race_count(void);
// Returns the text of the i-th report since px_race_clear, or NULL.
PX_API const char *px_race_report(int64_t i);
PX_API void px_race_clear(void);

// The source line of work, for race reports and device errors. The strings must stay valid.
typedef struct px_site {
  const char *file;  // NULL: unknown
  int line;
  unsigned lines;  // the library's id of the call stack, if a history needs it; 0: none
} px_site;
// Sets the source line of this thread's next launches: `px_site_set(__FILE__, __LINE__)`. NULL
// clears it.
PX_API void px_site_set(const char *file, int line);
// Sets an embedding language's function that returns the source line on demand.
PX_API void px_site_set_source(void (*source)(const char **file, int *line));
// Sets an embedding language's function that stores the calling thread's stack in `frames`,
// innermost first, at most `capacity` frames. It returns their number; 0 if unknown.
PX_API void px_site_set_frames(int (*source)(px_frame *frames, int capacity));
// Returns the calling thread's source line: the one set, else the source function's, else the lent
// one. *file is NULL if unknown.
PX_API void px_site_get(const char **file, int *line);
// The same as a value for px_site_lend, including the stack while a memory history records.
PX_API px_site px_site_here(void);
// Lends the thread the source line of the thread it works for, used if it has no line itself.
// Returns the line lent before, to be restored.
PX_API px_site px_site_lend(px_site site);
// The backward node running on the thread, and the source line of its forward call. Setting returns
// the previous value; `node` NULL means none.
typedef struct px_backward_site {
  const char *node;
  px_site forward;
} px_backward_site;
PX_API px_backward_site px_site_set_backward(px_backward_site now);

#ifdef __cplusplus
}
#endif
