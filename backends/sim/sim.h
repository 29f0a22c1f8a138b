// SPDX-License-Identifier: Apache-2.0
// Simulated accelerators: declarations shared by the files of this backend.
//
// px__sim.lock guards all state here. Kernels, copies and host functions run without it.
// A task stays at the head of its stream until it completes, so a stream is busy while it has a
// head. Each task takes the next value of one global sequence counter. The tasks issued before a
// given moment, on any stream, have sequence numbers up to the counter's value at that moment.
//
// Each device's memory is one memory file, mapped twice. User addresses point into an inaccessible
// mapping; kernels use a second mapping `delta` bytes further. A host dereference of a device
// address therefore always faults.
#pragma once
#include "phlox/backend.h"

#include <pthread.h>

#define PX__SIM_DEVICES 64
#define PX__SIM_PAGED 4  // addresses reserved for pages, in multiples of the device's memory
#define PX__SIM_PAGE ((size_t)2 << 20)  // bytes; the page size of GPUs
// Flags of event_new; the bits are those of backend.h. TIMING: records timestamps. SHARED: usable
// by other processes.
#define PX__SIM_TIMING 1u
#define PX__SIM_SHARED 4u
// Used by the core. The event's time is the end of the preceding work, even if the host records it
// later.
#define PX__SIM_ENDS 8u

// Driver error codes of the simulated devices, with the driver's texts. Stored as the error's
// detail.
#define PX__SIM_CODES(XX) \
  XX(INVALID, 1, VALUE, "invalid argument") \
  XX(NO_MEMORY, 2, NOMEM, "out of memory") \
  XX(ORDINAL, 101, ACCELERATOR, "invalid device ordinal") \
  XX(PEER, 217, ACCELERATOR, "peer access is not supported between two devices") \
  XX(HANDLE, 400, ACCELERATOR, "invalid resource handle") \
  XX(NOT_READY, 600, ACCELERATOR, "device not ready") \
  XX(ILLEGAL, 700, ACCELERATOR, "an illegal memory access was encountered") \
  XX(REGISTERED, 712, ACCELERATOR, "part or all of the requested memory range is already mapped") \
  XX(UNREGISTERED, 713, ACCELERATOR, "pointer does not correspond to a registered memory region") \
  XX(LAUNCH, 719, ACCELERATOR, "unspecified launch failure") \
  XX(CAPTURING, 900, ACCELERATOR, "operation not permitted when stream is capturing") \
  XX(MERGE, 902, ACCELERATOR, "operation would result in a merge of separate capture sequences") \
  XX(UNMATCHED, 903, ACCELERATOR, "capture was not ended in the same stream as it began") \
  XX(ISOLATION, 905, ACCELERATOR, "dependency created on uncaptured work in another stream") \
  XX(CAPTURED, 907, ACCELERATOR, \
     "operation not permitted on an event last recorded in a capturing stream")
enum {
#define XX(name, number, status, text) PX__SIM_##name = number,
  PX__SIM_CODES(XX)
#undef XX
};

// Returns an error with a status, the driver's code (0: none) and a text.
#define PX__SIM_FAIL(status, code, ...) \
  return px__sim.core->error((status), (code), __FILE__, __LINE__, __func__, __VA_ARGS__)
#define PX__SIM_TRY(call) \
  do { \
    px_status status_ = (call); \
    if (status_ != PX_OK) return status_; \
  } while (0)

// Address ranges in ascending order, without overlap.
typedef struct px__sim_range {
  uintptr_t at;
  size_t bytes;
} px__sim_range;
typedef struct px__sim_ranges {
  px__sim_range *rows;
  int count, capacity;
} px__sim_ranges;

typedef struct px__sim_device {
  bool open;
  int file;                 // memory file of the addresses from `base` to `foreign`
  uintptr_t base;           // first user address; the device owns `span` bytes of addresses
  uintptr_t paged;          // start of the addresses for pages (pages.c)
  uintptr_t foreign;        // start of the addresses for memory of other processes
  size_t span, used;        // used: bytes of live allocations, at most px__sim.memory
  intptr_t delta;           // kernel address minus user address
  px__sim_ranges live;      // allocations and mapped runs of pages
  uint64_t peers, enabled;  // bit d: peer access to device d is possible / enabled
  px_kernel *loaded;        // kernels launched here so far, if code is loaded lazily
  int loaded_count;
  int broken;        // driver code of the sticky error, or 0
  char reason[256];  // text of the sticky error
  px_fault_slot slot;
} px__sim_device;

// This process's reference to an event shared between processes (ipc_event.c). Lock held.
typedef struct px__sim_entry px__sim_entry;
typedef struct px__sim_table px__sim_table;
typedef struct px__sim_shared {
  int refs;  // held by the event and its marks
  px__sim_table *table;
  px__sim_entry *entry;
  uint64_t serial;
} px__sim_shared;

// One record of an event. Referenced by the event while it is the latest record, and by the tasks
// that record it or wait for it.
typedef struct px__sim_graph px__sim_graph;
typedef struct px__sim_mark {
  int refs;
  bool done;
  bool ends;               // PX__SIM_ENDS
  int device;              // of the recording stream; -1: unknown
  bool captured;           // recorded during a capture, so never done
  int step;                // index among the capture's records
  px__sim_graph *graph;    // the graph under capture; NULL after the capture ended
  int64_t time;            // nanoseconds, valid once done
  pthread_cond_t reached;  // stream threads wait here
  px__sim_shared
      *shared;  // shared event of this record, or NULL; `number` is the record's number there
  uint64_t number;
} px__sim_mark;
typedef struct px__sim_event {
  int device;
  unsigned flags;
  px__sim_mark *mark;      // the latest record, or NULL
  px__sim_shared *shared;  // or NULL
} px__sim_event;

typedef enum px__sim_kind {
  PX__SIM_TASK_WORK,  // launch, copy or fill
  PX__SIM_TASK_CALL,
  PX__SIM_TASK_RECORD,
  PX__SIM_TASK_WAIT,
  PX__SIM_TASK_COLLECTIVE  // one rank's part of a collective (rendezvous.h)
} px__sim_kind;
typedef struct px__sim_task px__sim_task;
typedef struct px__sim_stream px__sim_stream;
typedef struct px__sim_participant px__sim_participant;
struct px__sim_task {
  px__sim_task *next;
  px__sim_kind kind;
  // WORK: `run` executes the task without the lock; `touches` is true if the task accesses bytes in
  // [low, high).
  void (*run)(px__sim_stream *stream, px__sim_task *task);
  bool (*touches)(const px__sim_task *task, uintptr_t low, uintptr_t high);
  bool detached;  // schedule mode: a host function running on a detached thread
  uint64_t sequence;
  // Schedule mode, virtual nanoseconds: the host's clock at issue, the device's cost, the host's
  // cost of issuing.
  int64_t issued, cost, host;
  px__sim_mark *mark;    // record, wait
  void (*call)(void *);  // host function, with `argument`
  void *argument;
  px__sim_participant *participant;  // stored in `payload`
  px__sim_graph *graph;              // replays: a reference held until the task is done
  px__sim_task *node;                // replays: the captured task to execute
  int branch;                        // nodes: index of the captured stream
  int step;                          // nodes: index of the record made or waited for
  char *to;                          // copy, fill: user addresses of devices, or host memory
  const char *from;
  size_t bytes;
  int value;
  px_launch *launch;  // stored in `payload`
  _Alignas(16) unsigned char payload[];
};

// Captured tasks in issue order (graph.c).
struct px__sim_graph {
  int refs;                // owners plus pending replay tasks
  int owners;              // the captured graph and its executable instances
  px__sim_stream *origin;  // capturing stream; NULL after the capture
  int branches, steps;     // counts of captured streams and of records
  int *devices;            // of each branch
  px__sim_stream *
      *branch_streams;  // streams of the branches from 1 on; NULL until the capture has ended
  px__sim_task *first, *last;
};

struct px__sim_stream {
  px__sim_stream *next;
  int device, priority, number;   // number: creation index in the process
  bool started, closing, orphan;  // orphan: released with pending work, freed with its last task
  pthread_t thread;
  pthread_cond_t work;
  px__sim_task *head, *tail;
  int tasks;               // queue length
  px__sim_graph *capture;  // graph under capture, or NULL
  int branch;              // index in that graph
  uint64_t random;
  int64_t now;  // schedule mode: virtual time
};

// A host thread's wait, either for a mark or until no task with a sequence number up to `sequence`
// matches: tasks of a stream, of a device, or touching bytes [low, high).
typedef struct px__sim_waiter {
  struct px__sim_waiter *next;
  const px__sim_mark *mark;
  const px__sim_stream *stream;
  int device;  // -1: none
  uintptr_t low, high;
  uint64_t sequence;
  bool satisfied;
  pthread_cond_t wake;
} px__sim_waiter;

typedef struct px__sim_state {
  const px_core *core;
  pthread_mutex_t lock;
  // Read from the environment when the first device is opened.
  bool configured, schedule, poison, late;
  bool skips;  // kernels are not executed
  int devices, delay, starve;
  uint64_t seed;
  size_t memory;
  int64_t bandwidth, latency;  // links: bytes/s, nanoseconds
  px__sim_device device[PX__SIM_DEVICES];
  px__sim_ranges pinned, registered;  // registered: by programs; also part of `pinned`
  px__sim_stream *streams;
  px__sim_waiter *waiters;
  uint64_t sequence;
  int streams_made;
  bool working;  // mode schedule: the worker thread was started; it waits for `work`
  pthread_cond_t work;
} px__sim_state;
extern px__sim_state px__sim;

static inline void px__sim_lock(void) { pthread_mutex_lock(&px__sim.lock); }
static inline void px__sim_unlock(void) { pthread_mutex_unlock(&px__sim.lock); }
static inline uint64_t px__sim_random(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// state.c. `fail` returns the status and text of a driver code; `check` returns the device's sticky
// error and takes the lock.
px_status px__sim_fail(int code);
px_status px__sim_check(int device);
// Sets the sticky error. False if the device already had one. Lock held.
bool px__sim_break(int device, int code, const char *format, ...) PX_PRINTF(3, 4);

// sim.c. Reads the environment once. Lock held.
px_status px__sim_configure(void);

// ranges.c. `after` returns the index of the first range ending after `at`. `remove` deletes the
// range starting at `at` and returns its bytes, or 0. `reach` is true if the bytes are pinned
// memory or live memory addressable by `from` (-1: any device), and returns the distance to the
// host-visible mapping; lock held. `owner` returns the device owning an address, or -1.
int px__sim_range_after(const px__sim_ranges *ranges, uintptr_t at);
bool px__sim_range_insert(px__sim_ranges *ranges, int i, uintptr_t at, size_t bytes);
size_t px__sim_range_remove(px__sim_ranges *ranges, uintptr_t at);
bool px__sim_reach(int from, uintptr_t at, size_t bytes, intptr_t *delta);
int px__sim_owner(uintptr_t at);
// `join` adds a range and merges it with adjacent ones. `cut` removes [at, at + bytes) from the
// range containing it. Both return false without changes if host memory runs out.
bool px__sim_range_join(px__sim_ranges *ranges, uintptr_t at, size_t bytes);
bool px__sim_range_cut(px__sim_ranges *ranges, uintptr_t at, size_t bytes);

// memory.c. `in_page` returns the mask of an address's offset within a system page, which may be 64
// KiB. `map` reserves a device's address ranges. `blank` fills or discards memory when it is
// allocated (`taken`) or released. `gap` finds `bytes` free bytes in [low, high) and returns their
// row in `live`, or -1; `take_live` waits for work on the range starting at `at` and removes it,
// returning 0 bytes if there is none. Lock held in the last two.
uintptr_t px__sim_in_page(void);
px_status px__sim_map(int device);
// Makes memory accessible to kernels. False if the host refuses.
bool px__sim_back(const px__sim_device *d, uintptr_t at, size_t bytes);
int px__sim_gap(const px__sim_device *d, uintptr_t low, uintptr_t high, size_t bytes,
                uintptr_t *at);
px__sim_range px__sim_take_live(int device, uintptr_t at);
void px__sim_blank(const px__sim_device *d, uintptr_t at, size_t bytes, bool taken);
px_status px__sim_alloc(int device, size_t bytes, void **out);
void px__sim_release(int device, void *memory);
px_status px__sim_host_alloc(size_t bytes, void **out);
void px__sim_host_release(void *memory);
px_status px__sim_memory_info(int device, size_t *free, size_t *total);
void *px__sim_peek(int device, void *memory);
int px__sim_memory_device(const void *memory);
px_status px__sim_host_register(void *memory, size_t bytes);
px_status px__sim_host_unregister(void *memory);

// task.c. `task_new` returns a zeroed task with `extra` payload bytes. `finish` removes the
// stream's head and wakes its waiters; lock held. `stream_free` frees a stream without tasks; lock
// held.
px__sim_task *px__sim_task_new(px__sim_kind kind, size_t extra);
void px__sim_task_free(px__sim_task *task);
px__sim_mark *px__sim_mark_new(int refs);
void px__sim_mark_release(px__sim_mark *mark);           // lock held
void px__sim_reached(px__sim_mark *mark, int64_t time);  // marks it done; lock held
bool px__sim_satisfied(const px__sim_waiter *waiter);
void px__sim_finish(px__sim_stream *stream);
// `keep` appends a task to the graph captured by the stream and owns it. `graph_free` drops a
// reference. Lock held.
void px__sim_capture_task(px__sim_stream *stream, px__sim_task *task);
void px__sim_graph_free(px__sim_graph *graph);
void px__sim_stream_free(px__sim_stream *stream);
void px__sim_condition(pthread_cond_t *condition);  // initialises it with the monotonic clock
bool px__sim_thread(pthread_t *out, void *(*run)(void *), void *argument);
int64_t px__sim_clock(void);

// stream.c. `issue` appends a task to the stream, blocking while its queue is full, and frees the
// task on failure; *sequence may be NULL. `await` blocks the calling host thread; lock held.
// `await_interruptible` may be interrupted by the program (px_core.interrupt_poll), and releases
// the lock meanwhile.
px_status px__sim_issue(px__sim_stream *stream, px__sim_task *task, uint64_t *sequence);
px_status px__sim_start(px__sim_stream *stream);  // starts its thread or the schedule's worker
void px__sim_await(px__sim_waiter *waiter);
// For the collective at the head of its stream: `wait` blocks the stream's thread until it has
// ended, `finish` reports the result. Lock held, and released temporarily.
void px__sim_participant_wait(px__sim_participant *participant);
void px__sim_participant_finish(px__sim_participant *participant);
px_status px__sim_await_interruptible(px__sim_waiter *waiter);
px_status px__sim_synchronize(int device);
px_status px__sim_stream_new(int device, int priority, void **out);
void px__sim_stream_release(int device, void *stream);
void px__sim_priority_range(int *least, int *greatest);
px_status px__sim_stream_adopt(int device, void *stream, int *priority);
px_status px__sim_stream_query(void *stream, bool *out);
px_status px__sim_stream_synchronize(void *stream);
px_status px__sim_host_call(void *stream, void (*fn)(void *), void *argument);

// schedule.c, the other mode. `wake` (state.c) is called after any change that may unblock the
// worker. `step` runs one task for a polling host thread. `start` creates the worker. Lock held.
bool px__sim_schedule_start(void);
void px__sim_schedule_wake(void);
void px__sim_schedule_step(int device);
// Advances the host's virtual clock by the cost of issuing a task; returns its value before.
int64_t px__sim_schedule_issue(int device, int64_t cost);
void px__sim_schedule_waited(int device, int64_t time);  // the host has waited until `time`
// Virtual time of an event, else of a stream, else of the host.
int64_t px__sim_schedule_clock(int device, const px__sim_stream *s, const px__sim_event *e);

// event.c
px_status px__sim_event_new(int device, unsigned flags, void **out);
void px__sim_event_release(int device, void *event);
px_status px__sim_event_record(void *event, void *stream);
px_status px__sim_event_query(void *event, bool *out);
px_status px__sim_event_synchronize(void *event);
px_status px__sim_event_elapsed(void *start, void *end, float *out);
px_status px__sim_event_share(void *event, px_ipc_handle *out);
px_status px__sim_event_open(int device, const px_ipc_handle *handle, void **out);
px_status px__sim_stream_wait(void *stream, void *event);

// handle.c. Two numbers stored in a handle after the name of a file. Memory: offset in the file,
// bytes. Events: table index, serial. `file_bytes` returns a file's size.
typedef struct px__sim_handle {
  uint64_t at, bytes;
} px__sim_handle;
px_status px__sim_share_file(px_ipc_handle *out, int file, px__sim_handle numbers);
px__sim_handle px__sim_numbers(const px_ipc_handle *handle);
size_t px__sim_file_bytes(int file);

// foreign.c
px_status px__sim_memory_share(int device, void *memory, px_ipc_handle *out, size_t *offset);
px_status px__sim_memory_open(int device, const px_ipc_handle *handle, void **out, size_t *bytes);
void px__sim_memory_close(int device, void *memory);

// pages.c
size_t px__sim_page_size(int device);
px_status px__sim_range_new(int device, size_t bytes, void **out);
px_status px__sim_pages_map(int device, void *at, size_t bytes);
void px__sim_pages_unmap(int device, void *at, size_t bytes);

// ipc_event.c. `make` creates an event's shared entry. All functions but `make`, `handle` and
// `await` require the lock. `record` numbers a record being issued. `await` blocks until a record
// is done or its process has exited.
px_status px__sim_shared_make(px__sim_shared **out);
px_status px__sim_shared_open(px__sim_shared **out, const px_ipc_handle *handle);
px_status px__sim_shared_handle(const px__sim_shared *shared, px_ipc_handle *out);
void px__sim_shared_release(px__sim_shared *shared);
uint64_t px__sim_shared_record(px__sim_shared *shared);
void px__sim_shared_done(px__sim_shared *shared, uint64_t number);
uint64_t px__sim_shared_latest(const px__sim_shared *shared);
bool px__sim_shared_is_done(const px__sim_shared *shared, uint64_t number);
void px__sim_shared_await(const px__sim_shared *shared, uint64_t number);

// ipc_event_wait.c. Updates the event's mark to the latest record of any process. Lock held.
px_status px__sim_refresh(px__sim_event *event);

// fault_report.c. Installs a handler that explains host accesses to device memory before the
// process dies. Lock held.
void px__sim_explain(void);

// graph.c. `join` adds a stream to the capture of a mark; lock held.
px_status px__sim_join(px__sim_stream *stream, const px__sim_mark *mark);
px_status px__sim_capture_begin(void *stream);
px_status px__sim_capture_end(void *stream, void **out);
px_status px__sim_capture_keep(void *stream, void **out);
px_status px__sim_graph_make(int device, void *kept, void **out);
px_status px__sim_graph_print(int device, void *kept, const char *path);
px_status px__sim_graph_launch(void *stream, void *graph);
void px__sim_graph_release(int device, void *graph);

// transfer.c, launch.c
px_status px__sim_copy(void *stream, const px_copy *copy);
px_status px__sim_fill(void *stream, void *memory, int value, size_t bytes);
px_status px__sim_launch(void *stream, const px_launch *launch);
px_kernel px__sim_find(const char *name);
