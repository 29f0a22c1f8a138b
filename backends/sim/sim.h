// SPDX-License-Identifier: Apache-2.0
// The simulated accelerators: what the files of this backend share.
//
// One lock, px__sim.lock, guards everything here; it is not held while a kernel, a copy or a host
// function runs. A task stays at the head of its stream until it is done, so a stream has work if
// it has a head. Each task gets the next number of one counter: the tasks issued before some
// moment, on any stream, are those with numbers up to the counter's value at that moment.
//
// Device memory is one memory file for each device, mapped twice. At the address that programs see,
// nothing can be read or written; kernels use the mapping `delta` bytes further. So the host faults
// when it dereferences a device address, and does not work by luck.
#pragma once
#include "phlox/backend.h"

#include <pthread.h>

#define PX__SIM_DEVICES 64
#define PX__SIM_PAGED 4  // addresses for pages: as many times the bytes of a device's memory
#define PX__SIM_PAGE ((size_t)2 << 20)  // as GPUs have them
// Flags of event_new: the event keeps the time; other processes have it too (backend.h has the
// bits).
#define PX__SIM_TIMING 1u
#define PX__SIM_SHARED 4u
// The core's: its time is the end of the work before, however late the host comes to record it.
#define PX__SIM_ENDS 8u

// Codes of the driver that the simulated devices give as an error's detail, with the driver's
// texts.
#define PX__SIM_CODES(XX) \
  XX(INVALID, 1, VALUE, "invalid argument") \
  XX(ORDINAL, 101, ACCELERATOR, "invalid device ordinal") \
  XX(PEER, 217, ACCELERATOR, "peer access is not supported between two devices") \
  XX(HANDLE, 400, ACCELERATOR, "invalid resource handle") \
  XX(NOT_READY, 600, ACCELERATOR, "device not ready") \
  XX(ILLEGAL, 700, ACCELERATOR, "an illegal memory access was encountered") \
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

// Fails with a status, the driver's code (0: none) and a text.
#define PX__SIM_FAIL(status, code, ...) \
  return px__sim.core->error((status), (code), __FILE__, __LINE__, __func__, __VA_ARGS__)
#define PX__SIM_TRY(call) \
  do { \
    px_status status_ = (call); \
    if (status_ != PX_OK) return status_; \
  } while (0)

// Ranges of addresses in ascending order, none overlapping.
typedef struct px__sim_range {
  uintptr_t at;
  size_t bytes;
} px__sim_range;
typedef struct px__sim_ranges {
  px__sim_range *rows;
  int count, room;
} px__sim_ranges;

typedef struct px__sim_device {
  bool open;
  int file;                 // its memory, from `base` to `foreign`
  uintptr_t base;           // first user address; `span` bytes of addresses
  uintptr_t paged;          // from here on, addresses that pages are put behind (pages.c)
  uintptr_t foreign;        // from here on, addresses for memory of other processes
  size_t span, used;        // used: bytes of live allocations, at most px__sim.memory
  intptr_t delta;           // from a user address to the kernels' one
  px__sim_ranges live;      // allocations, and runs of pages
  uint64_t peers, enabled;  // bit d: memory of device d can be / is made accessible from here
  px_kernel *loaded;        // kernels that were launched here, if code is loaded late
  int loaded_count;
  int broken;        // the driver's code of a sticky error, or 0
  char reason[256];  // and what happened
  px_fault_slot slot;
} px__sim_device;

// An event that several processes have, as this one has it (post.c). Lock held.
typedef struct px__sim_post px__sim_post;
typedef struct px__sim_board px__sim_board;
typedef struct px__sim_shared {
  int refs;  // the event and marks
  px__sim_board *board;
  px__sim_post *post;
  uint64_t serial;
} px__sim_shared;

// One record of an event. Kept by the event while it is the latest, and by the tasks that record it
// or wait for it.
typedef struct px__sim_graph px__sim_graph;
typedef struct px__sim_mark {
  int refs;
  bool done;
  bool ends;               // PX__SIM_ENDS
  int device;              // of the stream that records it; -1: not known
  bool captured;           // recorded in a capture: never done
  int step;                // how many records of the capture came before
  px__sim_graph *graph;    // of that capture, until it ends
  int64_t time;            // nanoseconds, once done
  pthread_cond_t reached;  // streams' threads wait here
  px__sim_shared *shared;  // of an event of several processes, in which it is `number`
  uint64_t number;
} px__sim_mark;
typedef struct px__sim_event {
  int device;
  unsigned flags;
  px__sim_mark *mark;      // the latest record, or NULL
  px__sim_shared *shared;  // or NULL
} px__sim_event;

typedef enum px__sim_kind {
  PX__SIM_TASK_WORK,  // a launch, a copy, a fill
  PX__SIM_TASK_CALL,
  PX__SIM_TASK_RECORD,
  PX__SIM_TASK_WAIT,
  PX__SIM_TASK_VISIT  // a rank's part of a collective (meet.h)
} px__sim_kind;
typedef struct px__sim_task px__sim_task;
typedef struct px__sim_stream px__sim_stream;
typedef struct px__sim_visit px__sim_visit;
struct px__sim_task {
  px__sim_task *next;
  px__sim_kind kind;
  // Of work: what is done when the stream gets there, and whether it uses bytes [low, high).
  void (*run)(px__sim_stream *stream, px__sim_task *task);  // the lock is not held
  bool (*touches)(const px__sim_task *task, uintptr_t low, uintptr_t high);
  bool away;  // schedule mode: a host function that runs on a thread of its own
  uint64_t ticket;
  // Schedule mode: the host's clock at issue; nanoseconds that it takes, and the host to issue it.
  int64_t issued, cost, host;
  px__sim_mark *mark;    // record, wait
  void (*call)(void *);  // host function
  void *argument;
  px__sim_visit *visit;  // in `room`
  px__sim_graph *graph;  // of a replay: held until the task is done
  px__sim_task *node;    // ... whose work it does
  int branch;            // of a node: which of the streams that were captured
  int step;              // of a node: the record that it makes or waits for
  char *to;              // copy, fill: user addresses of the devices, or host memory
  const char *from;
  size_t bytes;
  int value;
  px_launch *launch;  // in `room`
  _Alignas(16) unsigned char room[];
};

// Tasks that were kept, in the order in which they were issued (graph.c).
struct px__sim_graph {
  int refs;                // its owners, and tasks of replays
  int owners;              // what was kept, and what was made of it
  px__sim_stream *origin;  // while it is captured
  int branches, steps;     // steps: how many records there are
  int *devices;            // of the branches
  px__sim_stream **sides;  // of the branches from 1 on; NULL until the capture has ended
  px__sim_task *first, *last;
};

struct px__sim_stream {
  px__sim_stream *next;
  int device, priority, number;   // number: how many streams the process made before
  bool started, closing, orphan;  // orphan: released with work pending, frees itself
  pthread_t thread;
  pthread_cond_t work;
  px__sim_task *head, *tail;
  int tasks;               // between them
  px__sim_graph *capture;  // what it is given is kept there; NULL: it runs
  int branch;              // its number there
  uint64_t random;
  int64_t now;  // schedule mode: virtual time
};

// What a host thread waits for: a mark, or that no task up to `ticket` is left which the filters
// choose: those of a stream, of a device, or those that touch bytes [low, high).
typedef struct px__sim_waiter {
  struct px__sim_waiter *next;
  const px__sim_mark *mark;
  const px__sim_stream *stream;
  int device;  // -1: none
  uintptr_t low, high;
  uint64_t ticket;
  bool satisfied;
  pthread_cond_t wake;
} px__sim_waiter;

typedef struct px__sim_state {
  const px_core *core;
  pthread_mutex_t lock;
  // From the environment, read when the first device is opened.
  bool configured, schedule, poison, late;
  bool skips;  // kernels are left out
  int devices, delay, starve;
  uint64_t seed;
  size_t memory;
  int64_t bandwidth, latency;  // of links: bytes in a second, nanoseconds
  px__sim_device device[PX__SIM_DEVICES];
  px__sim_ranges pinned;
  px__sim_stream *streams;
  px__sim_waiter *waiters;
  uint64_t ticket;
  int streams_made;
  bool working;  // mode schedule: the worker was started; it waits for `work`
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

// state.c. `fail` fails with the status and text of a driver's code, `check` with the sticky error
// of a device (it takes the lock).
px_status px__sim_fail(int code);
px_status px__sim_check(int device);
// Lock held. False if the device was broken already.
bool px__sim_break(int device, int code, const char *format, ...) PX_PRINTF(3, 4);

// sim.c: reads the environment, once. Lock held.
px_status px__sim_configure(void);

// ranges.c. `after` gives the first range that ends after `at`; `remove` takes out the one that
// starts there, and gives its bytes, 0 if there is none. `reach` tells whether bytes are live
// memory that `from` may address (from -1: any device's) or pinned memory, and gives the distance
// to where the host finds them; lock held. `owner` gives the device that an address belongs to, or
// -1.
int px__sim_range_after(const px__sim_ranges *ranges, uintptr_t at);
bool px__sim_range_insert(px__sim_ranges *ranges, int i, uintptr_t at, size_t bytes);
size_t px__sim_range_remove(px__sim_ranges *ranges, uintptr_t at);
bool px__sim_reach(int from, uintptr_t at, size_t bytes, intptr_t *delta);
int px__sim_owner(uintptr_t at);
// join adds a range, and makes it one with those that it touches; cut takes [at, at + bytes) out of
// the range that it is part of. False without host memory: nothing has changed then.
bool px__sim_range_join(px__sim_ranges *ranges, uintptr_t at, size_t bytes);
bool px__sim_range_cut(px__sim_ranges *ranges, uintptr_t at, size_t bytes);

// memory.c. `in_page` has the bits of an address that lie within a page of the system; its pages
// may be of 64 KiB. `map` makes a device's address ranges. `blank` does to memory what the device
// does when it is taken, or given back. `gap` finds where in [low, high) `bytes` are free, and the
// row of `live` for them, -1 if there is no place. `take_live` waits for work on the range that
// starts there, and takes it out; its bytes are 0 if there is none. Both with the lock held.
uintptr_t px__sim_in_page(void);
px_status px__sim_map(int device);
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

// task.c. `task_new` gives a zeroed task with `extra` bytes of room. `finish` takes the head off
// and tells who waits; lock held. `stream_free` frees a stream that has no tasks any more; lock
// held.
px__sim_task *px__sim_task_new(px__sim_kind kind, size_t extra);
void px__sim_task_free(px__sim_task *task);
px__sim_mark *px__sim_mark_new(int refs);
void px__sim_mark_release(px__sim_mark *mark);           // lock held
void px__sim_reached(px__sim_mark *mark, int64_t time);  // lock held: it is done
bool px__sim_satisfied(const px__sim_waiter *waiter);
void px__sim_finish(px__sim_stream *stream);
// Takes over a task of a stream that is captured; drops a reference of a graph. Lock held.
void px__sim_keep(px__sim_stream *stream, px__sim_task *task);
void px__sim_graph_free(px__sim_graph *graph);
void px__sim_stream_free(px__sim_stream *stream);
void px__sim_condition(pthread_cond_t *condition);  // one of the monotonic clock
bool px__sim_thread(pthread_t *out, void *(*run)(void *), void *argument);
int64_t px__sim_clock(void);

// stream.c. `issue` appends a task to the stream, after a wait if that is full, and frees it if
// that fails; *ticket may be NULL. `await` blocks the calling host thread; lock held. `asking`: the
// program may end the wait (px_core.interrupt_poll), for which the lock is given up.
px_status px__sim_issue(px__sim_stream *stream, px__sim_task *task, uint64_t *ticket);
px_status px__sim_start(px__sim_stream *stream);  // its thread, or the schedule's
void px__sim_await(px__sim_waiter *waiter);
// Of a visit that is at the head of its stream: waits until it is over, on the stream's thread; and
// tells who waits for it. Lock held, and given up meanwhile.
void px__sim_visit_stay(px__sim_visit *visit);
void px__sim_visit_end(px__sim_visit *visit);
px_status px__sim_await_asking(px__sim_waiter *waiter);
px_status px__sim_synchronize(int device);
px_status px__sim_stream_new(int device, int priority, void **out);
void px__sim_stream_release(int device, void *stream);
void px__sim_priority_range(int *least, int *greatest);
px_status px__sim_stream_adopt(int device, void *stream, int *priority);
px_status px__sim_stream_query(void *stream, bool *out);
px_status px__sim_stream_synchronize(void *stream);
px_status px__sim_host_call(void *stream, void (*fn)(void *), void *argument);

// schedule.c: the other mode. `wake` (state.c) after anything that may let the worker go on; `step`
// lets it run one task for a host thread that polls; `start` makes the worker. Lock held.
bool px__sim_schedule_start(void);
void px__sim_schedule_wake(void);
void px__sim_schedule_step(int device);
// The host's virtual clock when it issues a task, which costs it some time.
int64_t px__sim_schedule_issue(int device, int64_t cost);
void px__sim_schedule_meet(int device, int64_t time);  // the host has waited until then
// Of an event, or else of a stream, or else of the host.
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

// handle.c. Two numbers in a handle, behind the name of a file: of memory where it is in the file,
// and its bytes; of an event the number of its post, and its serial. The size of a file.
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

// post.c. `make` makes what an event has in common with other processes; the rest is with the lock
// held, but for `await`. `record` numbers a record that is being issued; `await` blocks the thread
// until a record is done, or its process has ended.
px_status px__sim_shared_make(px__sim_shared **out);
px_status px__sim_shared_open(px__sim_shared **out, const px_ipc_handle *handle);
px_status px__sim_shared_handle(const px__sim_shared *shared, px_ipc_handle *out);
void px__sim_shared_release(px__sim_shared *shared);
uint64_t px__sim_shared_record(px__sim_shared *shared);
void px__sim_shared_done(px__sim_shared *shared, uint64_t number);
uint64_t px__sim_shared_latest(const px__sim_shared *shared);
bool px__sim_shared_is_done(const px__sim_shared *shared, uint64_t number);
void px__sim_shared_await(const px__sim_shared *shared, uint64_t number);

// watch.c: brings the event's mark up to what other processes have recorded. Lock held.
px_status px__sim_look(px__sim_event *event);

// explain.c: from now on a host access to device memory is explained before it kills. Lock held.
void px__sim_explain(void);

// graph.c. `join` makes a stream one of the capture that the mark is of; lock held.
px_status px__sim_join(px__sim_stream *stream, const px__sim_mark *mark);
px_status px__sim_capture_begin(void *stream);
px_status px__sim_capture_end(void *stream, void **out);
px_status px__sim_capture_keep(void *stream, void **out);
px_status px__sim_graph_make(int device, void *kept, void **out);
px_status px__sim_graph_print(int device, void *kept, const char *path);
px_status px__sim_graph_launch(void *stream, void *graph);
void px__sim_graph_release(int device, void *graph);

// copy.c, launch.c
px_status px__sim_copy(void *stream, const px_copy *copy);
px_status px__sim_fill(void *stream, void *memory, int value, size_t bytes);
px_status px__sim_launch(void *stream, const px_launch *launch);
px_kernel px__sim_find(const char *name);
