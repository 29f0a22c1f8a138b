// SPDX-License-Identifier: Apache-2.0
// Device memory: statistics with PyTorch's names, the caching allocator, limits. And the race
// checker.
//
// A tensor's memory is freed when its last reference goes. The allocator keeps it for later
// requests, and reuses it only when that is safe: on the same stream, or when the uses by other
// streams, which the call path has noted, are done.
#pragma once
#include "phlox/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

// One statistic: PyTorch's key "allocated_bytes.all.current" and its value.
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
// Gives the statistic of a key, "allocated_bytes.all.current"; 0 before initialisation. PX_KEY if
// there is no such key.
PX_CALL px_memory_stat_get(int64_t *out, int device, const char *key);
PX_API int64_t px_memory_allocated(int device);  // bytes of live tensors, rounded
PX_API int64_t px_memory_allocated_peak(int device);
PX_API int64_t px_memory_reserved(int device);  // bytes taken from the device
PX_API int64_t px_memory_reserved_peak(int device);
PX_CALL px_memory_reset_peak(int device);
PX_CALL px_memory_reset_accumulated(int device);
// Returns unused device memory to the backend (nothing before initialisation); unused pinned memory
// to the system.
PX_CALL px_memory_empty_cache(void);
PX_CALL px_memory_empty_host_cache(void);
// Without caching, requests for device memory go to the backend, and frees back to it, and neither
// is counted; what the cache holds stays there. So it is from the start where
// PYTORCH_NO_CUDA_MEMORY_CACHING is set.
PX_API void px_memory_set_caching(bool on);
// Limits what Phlox reserves of a device to `fraction` (0 to 1) of its memory. PX_VALUE if out of
// range.
PX_CALL px_memory_set_fraction(double fraction, int device);
// Configures the allocator from a text in the form of PYTORCH_CUDA_ALLOC_CONF; keys that the text
// does not name return to their defaults. Warns of keys that have no effect. PX_VALUE, with
// PyTorch's text, for a bad text; nothing is changed then.
PX_CALL px_memory_configure(const char *text);
// Gives that fraction: 1 where no limit is set.
PX_CALL px_memory_fraction(double *out, int device);
PX_CALL px_memory_host_reset_peak(void);
PX_CALL px_memory_host_reset_accumulated(void);

// An allocator of the program's own. alloc gives memory of a device for work of a stream (the
// backend's handle; NULL is the default one), or NULL if there is none; free gets it back, with the
// same size, device and stream, when no work uses it any more, for which the host may have waited.
// Any thread calls them, and perhaps with locks held: they call nothing of this library but
// px_memory_device_alloc and px_memory_device_free. They stay valid until the process ends.
typedef struct px_memory_allocator {
  void *(*alloc)(int64_t size, int device, void *stream);
  void (*free)(void *at, int64_t size, int device, void *stream);
} px_memory_allocator;
// From the first use of a device on, the allocator gives and gets each block, instead of the cache,
// and statistics stay 0; NULL: the cache serves after all. Captures cannot allocate then
// (PX_UNIMPLEMENTED). PX_RUNTIME, "Can't swap an already initialized allocator", after that use.
//
//   static void *take(int64_t size, int device, void *stream) {
//     void *at;
//     counted++;
//     return px_memory_device_alloc(&at, (size_t)size, device) == PX_OK ? at : NULL;
//   }
PX_CALL px_memory_set_allocator(const px_memory_allocator *allocator);
// Whether a program's allocator serves, or will.
PX_API bool px_memory_is_plugged(void);
// For such allocators: memory of a device (negative: the current one) itself. free waits for work
// that uses it. PX_OUT_OF_MEMORY; PX_VALUE for no bytes.
PX_CALL px_memory_device_alloc(void **out, size_t bytes, int device);
PX_CALL px_memory_device_free(void *at, int device);

// The name of a pool of memory: of a graph's own, of one that px_graph_pool_new has named, or of a
// px_memory_pool. All zeros is none.
typedef struct px_graph_pool {
  uint64_t own, shared;
} px_graph_pool;
// A pool of memory: segments that nothing else is given while the pool lives. A thread's requests
// go to it between px_memory_pool_begin and px_memory_pool_end. A capture's go to its graph's pool
// all the same. When the pool is destroyed, what no tensor holds of it goes back to the device; the
// rest does so when it is free and the cache is emptied.
//
//   PX_TRY(px_memory_pool_new(&pool, -1));
//   PX_TRY(px_memory_pool_begin(pool, -1));
//   PX_TRY(px_empty(&t, 1, sizes, PX_FLOAT32, px_cuda(0)));
//   PX_TRY(px_memory_pool_end(pool, -1));
typedef struct px_memory_pool px_memory_pool;
// Makes a pool on a device; negative: the current one.
PX_CALL px_memory_pool_new(px_memory_pool **out, int device);
// The same; the pool's segments come from the program's allocator.
PX_CALL px_memory_pool_new_over(px_memory_pool **out, int device,
                                const px_memory_allocator *allocator);
// use_on_oom: what is free in the pool serves a request from outside of it rather than that this
// fails; not once a graph was captured with the pool. no_split: a block has a segment by itself.
// Neither is so of a new pool.
PX_CALL px_memory_pool_set(px_memory_pool *pool, bool use_on_oom, bool no_split);
PX_API px_graph_pool px_memory_pool_name(const px_memory_pool *pool);
// Gives how often the pool is held: by itself, by threads that have begun it, and by graphs.
PX_CALL px_memory_pool_uses(int *out, const px_memory_pool *pool);
// Sends the calling thread's requests for a device to the pool, until the end that belongs to it;
// negative: the current device. Pools nest: the one that was begun last serves. It stays alive
// meanwhile. A thread that has begun a pool must end it. PX_RUNTIME from px_memory_pool_end if the
// pool is not the one that the thread has begun last.
PX_CALL px_memory_pool_begin(px_memory_pool *pool, int device);
PX_CALL px_memory_pool_end(px_memory_pool *pool, int device);

// A line of a program, in a function of that name ("" if that is not known). The strings stay
// valid.
typedef struct px_frame {
  const char *file, *function;
  int line;
  bool inside;  // of the embedding language's own library, and not of the program
} px_frame;
// Where something happened: the op that the program called (NULL: none), and the lines that led
// there, the innermost first. Lives as long as the process.
typedef struct px_traceback {
  const char *op;
  const px_frame *frames;
  int count;
} px_traceback;

// A block of a segment, for px_memory_snapshot, which calls each(block, context) for all blocks of
// a device.
typedef struct px_memory_block {
  int64_t segment_address, segment_size, address, size, requested;
  int64_t stream;
  px_graph_pool pool;  // of the segment; none: it serves all
  bool small_pool;
  const char *state;  // "active_allocated" "active_pending_free" "inactive"
  // Where block and segment were allocated; NULL: no history was recorded then.
  const px_traceback *stack, *segment_stack;
  bool expandable;         // the segment is a run of pages, which may be given back one by one
  int64_t segment_stream;  // that it was taken for; 0 of a run once pages have moved
} px_memory_block;
PX_CALL px_memory_snapshot(int device, void (*each)(const px_memory_block *block, void *context),
                           void *context);

// ---- the history of device memory
// What happened, by the name that PyTorch's snapshots have for it. free_requested: the program let
// go of a block; free_completed: no stream uses it any more.
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

// For what stacks are kept: nothing; the blocks that live; also events that allocate; all events.
typedef enum px_history_stacks {
  PX_HISTORY_NO_STACKS,
  PX_HISTORY_LIVE,
  PX_HISTORY_ALLOCATIONS,
  PX_HISTORY_ALL
} px_history_stacks;
typedef struct px_memory_history {
  int64_t max_entries;  // events kept for each device, the latest; 0: none
  px_history_stacks stacks;
  unsigned skipped;  // 1u << action of those that are no events
  bool clear;        // events of before go, as they do if max_entries changes
  bool lines_only;   // stacks without the op
} px_memory_history;
// Records from here on what happens to the memory of all devices; NULL: no more, and what was
// recorded goes. Blocks keep their stacks. Initialises. PX_VALUE if max_entries is negative.
//
//   PX_TRY(px_memory_record(&(px_memory_history){.max_entries = 10000, .stacks = PX_HISTORY_ALL}));
//   PX_TRY(step());
//   PX_TRY(px_memory_events(0, print_event, NULL));
PX_CALL px_memory_record(const px_memory_history *history);
PX_API bool px_memory_recording(void);

// An event. `address` and `size`, in bytes that were asked for, are the block's or the segment's;
// of PX_MEMORY_OOM size is the request's and `free_bytes` what the device had left; of
// PX_MEMORY_SNAPSHOT size is the sum of what was in use.
typedef struct px_memory_event {
  px_memory_action action;
  int64_t address, size, stream, free_bytes;
  px_graph_pool pool;
  int64_t time;  // microseconds since 1970
  const px_traceback *stack;
} px_memory_event;
// Calls each(event, context) for the events of a device, from the oldest on.
PX_CALL px_memory_events(int device, void (*each)(const px_memory_event *event, void *context),
                         void *context);

// What a picture of a device's memory is drawn from: its blocks, by segment, and the events that
// led to them, from the oldest on. Borrowed.
typedef struct px_memory_past {
  int device;
  const px_memory_block *blocks;
  int64_t block_count;
  const px_memory_event *events;
  int64_t event_count;
} px_memory_past;
// Gives a picture as the text of an SVG, which the caller frees with px_free: for each device with
// events of blocks the bytes that lived, event by event, by the op and the line of the program that
// allocated them, and what was reserved. What lived before the events began is one part. `owners`
// ops and lines, of those that held most at the peak, have a colour of their own. PX_VALUE if there
// are no such events, or owners is negative.
PX_CALL px_memory_picture(char **out, const px_memory_past *devices, int count, int owners);
// Writes the picture of what px_memory_record has recorded of all devices. PX_IO if it cannot.
//
//   PX_TRY(px_memory_record(&(px_memory_history){.max_entries = 10000, .stacks = PX_HISTORY_ALL}));
//   PX_TRY(step());
//   PX_TRY(px_memory_draw("memory.svg", 12));
PX_CALL px_memory_draw(const char *path, int owners);

// The race checker (docs/races.md). Level 0 is off, 1 is on. With `raise`, the call that races
// fails with PX_RUNTIME. A report is kept for px_race_report in any case.
PX_API void px_race_enable(int level, bool raise);
PX_API int px_race_level(void);
PX_API int64_t px_race_count(void);
// Returns the text of the i-th report since px_race_clear, or NULL.
PX_API const char *px_race_report(int64_t i);
PX_API void px_race_clear(void);

// Where work comes from, for race reports and errors of devices. The strings must stay valid.
typedef struct px_site {
  const char *file;  // NULL: not known
  int line;
  unsigned lines;  // the library's number for all that led there, which a history wants; 0: none
} px_site;
// Sets the source line of this thread's next launches: `px_site_set(__FILE__, __LINE__)`. NULL
// clears it.
PX_API void px_site_set(const char *file, int line);
// Sets a function of an embedding language that tells the source line when a launch needs one.
PX_API void px_site_set_source(void (*source)(const char **file, int *line));
// Sets a function of an embedding language that gives the lines that run on the calling thread, the
// innermost first, and how many: at most `room`, 0 if it knows none.
PX_API void px_site_set_frames(int (*source)(px_frame *frames, int room));
// Gives the calling thread's source line: what was set, or else what the source tells, or else what
// was lent. *file is NULL if none is known.
PX_API void px_site_get(const char **file, int *line);
// The same as a value to be lent, with all lines while a history of memory wants them.
PX_API px_site px_site_here(void);
// Lends the thread the line on whose behalf it works, where it has none of its own. Returns what
// was lent before, to be given back.
PX_API px_site px_site_lend(px_site site);
// The node of a backward pass whose work the thread does, and where its forward call was. Setting
// it returns what was set before; `node` NULL means none.
typedef struct px_backward_site {
  const char *node;
  px_site forward;
} px_backward_site;
PX_API px_backward_site px_site_set_backward(px_backward_site now);

#ifdef __cplusplus
}
#endif
