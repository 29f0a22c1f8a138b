// SPDX-License-Identifier: Apache-2.0
// A complete backend in one file: two devices of type cuda with host memory.
//
// A stream is a queue of tasks and a thread that runs them in order. Recording an event creates a
// mark: a task of the recording stream sets it, tasks of other streams wait for it. Kernels are the
// library's CPU kernels. The backend is as asynchronous as a GPU, with the same ordering rules.
//
//   PHLOX_BACKENDS=toy PHLOX_BACKEND_PATH=build/examples PYTHONPATH=python python3 -m phlox
//   script.py CTS_BACKEND=build/examples/libphlox_toy.so build/tests/cts/backend
//
// One lock guards all state. Each change of state that others may wait for broadcasts `changed`.
#include <phlox/backend.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEVICES = 2, ALIGNMENT = 512 };
static const size_t TOTAL = (size_t)1 << 30;  // bytes of memory per device
enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_HANDLE = 400, NOT_READY = 600, FAILED = 719 };

static const px_core *core;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

#define FAIL(status, code, text) \
  return core->error(status, code, __FILE__, __LINE__, __func__, "CUDA error: %s", text)

// One recording of an event: done when the stream has reached it.
typedef struct mark {
  int owners;
  bool done;
  struct timespec time;
} mark;
typedef struct event {
  mark *latest;  // NULL: never recorded
  bool timing;
} event;

typedef struct task {
  struct task *next;
  uint64_t number;  // issue order over all streams
  void (*run)(struct task *task);
  int device;
  // Operands: one of these by kind of task, or `data`.
  mark *mark;
  bool records;  // sets the mark at its end
  void *to;
  const void *from;
  size_t bytes;
  int value;
  void (*function)(void *);
  _Alignas(16) char data[];
} task;

// A task stays at the head of its stream until it has finished.
typedef struct stream {
  struct stream *next;  // in the list of all streams
  task *head, **tail;
  int device;
  bool released;
} stream;
static stream *streams;
static uint64_t issued;

typedef struct block {
  struct block *next;
  char *at;
  size_t bytes;
  int device;  // -1: page-locked host memory
} block;
static block *blocks;
static size_t used[DEVICES];
static px_fault_slot slots[DEVICES];
static bool broken[DEVICES];

// ---- streams

static void mark_drop(mark *m) {
  if (m && --m->owners == 0) free(m);
}

static void mark_set(mark *m) {
  m->done = true;
  clock_gettime(CLOCK_MONOTONIC, &m->time);
}

static void unlink_stream(stream *s) {
  stream **at = &streams;
  while (*at != s) at = &(*at)->next;
  *at = s->next;
  free(s);
}

static void *stream_main(void *argument) {
  stream *s = argument;
  pthread_mutex_lock(&lock);
  while (s->head || !s->released) {
    task *t = s->head;
    if (!t) {
      pthread_cond_wait(&changed, &lock);
      continue;
    }
    pthread_mutex_unlock(&lock);
    t->run(t);
    pthread_mutex_lock(&lock);
    s->head = t->next;
    if (!s->head) s->tail = &s->head;
    if (t->records) mark_set(t->mark);
    mark_drop(t->mark);
    free(t);
    pthread_cond_broadcast(&changed);
  }
  unlink_stream(s);
  pthread_mutex_unlock(&lock);
  return NULL;
}

static px_status stream_new(int device, int priority, void **out) {
  pthread_t thread;
  stream *s = calloc(1, sizeof *s);
  if (!s) FAIL(PX_NOMEM, OUT_OF_MEMORY, "out of memory");
  s->device = device, s->tail = &s->head;
  pthread_mutex_lock(&lock);
  s->next = streams, streams = s;
  bool started = pthread_create(&thread, NULL, stream_main, s) == 0;
  if (!started) unlink_stream(s);
  pthread_mutex_unlock(&lock);
  if (!started) FAIL(PX_NOMEM, OUT_OF_MEMORY, "a stream's thread could not be started");
  pthread_detach(thread);
  *out = s;
  return PX_OK;
}

// The stream is destroyed once its work is done.
static void stream_release(int device, void *self) {
  pthread_mutex_lock(&lock);
  ((stream *)self)->released = true;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

static void priority_range(int *lowest, int *highest) { *lowest = *highest = 0; }

// Waits for all work issued so far to a stream, or if `only` is NULL to a device (-1: to all).
// Caller holds the lock.
static void wait_for(const stream *only, int device) {
  uint64_t now = issued;
  for (bool busy = true; busy;) {
    busy = false;
    for (const stream *s = streams; s; s = s->next)
      if (only ? s == only : device < 0 || s->device == device)
        busy |= s->head && s->head->number <= now;
    if (busy) pthread_cond_wait(&changed, &lock);
  }
}

static px_status state_of(int device) {
  pthread_mutex_lock(&lock);
  bool failed = broken[device];
  pthread_mutex_unlock(&lock);
  if (failed) FAIL(PX_ACCELERATOR, FAILED, "unspecified launch failure");
  return PX_OK;
}

static px_status synchronize(int device) {
  pthread_mutex_lock(&lock);
  wait_for(NULL, device);
  pthread_mutex_unlock(&lock);
  return state_of(device);
}

static px_status stream_synchronize(void *self) {
  pthread_mutex_lock(&lock);
  wait_for(self, 0);
  pthread_mutex_unlock(&lock);
  return state_of(((stream *)self)->device);
}

static px_status stream_query(void *self, bool *out) {
  pthread_mutex_lock(&lock);
  *out = !((stream *)self)->head;
  pthread_mutex_unlock(&lock);
  return state_of(((stream *)self)->device);
}

static task *task_new(void (*run)(task *), size_t bytes) {
  task *t = calloc(1, sizeof *t + bytes);
  if (t) t->run = run;
  return t;
}

// Appends a task. Caller holds the lock.
static void queue(stream *s, task *t) {
  t->number = ++issued;
  t->device = s->device;
  *s->tail = t, s->tail = &t->next;
  pthread_cond_broadcast(&changed);
}

static px_status issue(void *self, task *t) {
  stream *s = self;
  px_status status = state_of(s->device);
  if (!t) FAIL(PX_NOMEM, OUT_OF_MEMORY, "out of host memory");
  if (status != PX_OK) {
    free(t);
    return status;
  }
  pthread_mutex_lock(&lock);
  queue(s, t);
  pthread_mutex_unlock(&lock);
  return PX_OK;
}

static void run_function(task *t) { t->function(t->to); }

static px_status host_call(void *self, void (*function)(void *), void *argument) {
  task *t = task_new(run_function, 0);
  if (t) t->function = function, t->to = argument;
  return issue(self, t);
}

// ---- events

static px_status event_new(int device, unsigned flags, void **out) {
  event *e = calloc(1, sizeof *e);
  if (!e) FAIL(PX_NOMEM, OUT_OF_MEMORY, "out of memory");
  e->timing = flags & 1;
  *out = e;
  return PX_OK;
}

static void event_release(int device, void *self) {
  pthread_mutex_lock(&lock);
  mark_drop(((event *)self)->latest);
  pthread_mutex_unlock(&lock);
  free(self);
}

static void run_nothing(task *t) {}

static px_status event_record(void *self, void *on) {
  event *e = self;
  task *t = task_new(run_nothing, 0);
  mark *m = calloc(1, sizeof *m);
  if (!t || !m) {
    free(t), free(m);
    FAIL(PX_NOMEM, OUT_OF_MEMORY, "out of host memory");
  }
  m->owners = 2;  // the event and the task
  t->mark = m, t->records = true;
  pthread_mutex_lock(&lock);
  mark_drop(e->latest);
  e->latest = m;
  queue(on, t);
  pthread_mutex_unlock(&lock);
  return PX_OK;
}

static void wait_mark(const mark *m) {
  while (m && !m->done) pthread_cond_wait(&changed, &lock);
}

static void run_wait(task *t) {
  pthread_mutex_lock(&lock);
  wait_mark(t->mark);
  pthread_mutex_unlock(&lock);
}

// Waits for the latest recording at the time of the call: the task holds its mark.
static px_status stream_wait(void *self, void *of) {
  task *t = task_new(run_wait, 0);
  if (!t) FAIL(PX_NOMEM, OUT_OF_MEMORY, "out of host memory");
  pthread_mutex_lock(&lock);
  t->mark = ((event *)of)->latest;
  if (t->mark) t->mark->owners++;
  queue(self, t);
  pthread_mutex_unlock(&lock);
  return PX_OK;
}

static px_status event_query(void *self, bool *out) {
  pthread_mutex_lock(&lock);
  mark *m = ((event *)self)->latest;
  *out = !m || m->done;
  pthread_mutex_unlock(&lock);
  return PX_OK;
}

static px_status event_synchronize(void *self) {
  pthread_mutex_lock(&lock);
  mark *m = ((event *)self)->latest;
  if (m) m->owners++;
  wait_mark(m);
  mark_drop(m);
  pthread_mutex_unlock(&lock);
  return PX_OK;
}

static px_status event_elapsed(void *start, void *end, float *out) {
  event *a = start, *b = end;
  pthread_mutex_lock(&lock);
  bool timed = a->timing && b->timing && a->latest && b->latest;
  bool done = timed && a->latest->done && b->latest->done;
  if (done)
    *out = (float)((double)(b->latest->time.tv_sec - a->latest->time.tv_sec) * 1e3 +
                   (double)(b->latest->time.tv_nsec - a->latest->time.tv_nsec) * 1e-6);
  pthread_mutex_unlock(&lock);
  if (!timed) FAIL(PX_ACCELERATOR, INVALID_HANDLE, "invalid resource handle");
  if (!done) FAIL(PX_ACCELERATOR, NOT_READY, "device not ready");
  return PX_OK;
}

// ---- memory

static px_status allocate_memory(int device, size_t bytes, void **out) {
  *out = NULL;
  block *b = bytes <= TOTAL ? calloc(1, sizeof *b) : NULL;
  size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (b) b->at = aligned_alloc(ALIGNMENT, whole ? whole : ALIGNMENT);
  pthread_mutex_lock(&lock);
  bool fits = b && b->at && (device < 0 || used[device] + bytes <= TOTAL);
  if (fits) {
    b->bytes = bytes, b->device = device;
    b->next = blocks, blocks = b;
    if (device >= 0) used[device] += bytes;
    *out = b->at;
  }
  pthread_mutex_unlock(&lock);
  if (fits) return PX_OK;
  if (b) free(b->at);
  free(b);
  FAIL(PX_OUT_OF_MEMORY, OUT_OF_MEMORY, "out of memory");
}

// Waits for all work, since the work using the memory is unknown.
static void free_memory(void *memory) {
  pthread_mutex_lock(&lock);
  wait_for(NULL, -1);
  block **at = &blocks;
  while (*at && (*at)->at != memory) at = &(*at)->next;
  block *b = *at;
  if (b) {
    *at = b->next;
    if (b->device >= 0) used[b->device] -= b->bytes;
  }
  pthread_mutex_unlock(&lock);
  if (b) free(b->at);
  free(b);
}

static px_status alloc(int device, size_t bytes, void **out) {
  return allocate_memory(device, bytes, out);
}
static void release(int device, void *memory) { free_memory(memory); }
static px_status host_alloc(size_t bytes, void **out) { return allocate_memory(-1, bytes, out); }
static void host_release(void *memory) { free_memory(memory); }

static px_status memory_info(int device, size_t *free_bytes, size_t *total) {
  pthread_mutex_lock(&lock);
  *free_bytes = TOTAL - used[device];
  pthread_mutex_unlock(&lock);
  *total = TOTAL;
  return PX_OK;
}

// Returns true if [at, at + bytes) is within one block of the device. Host memory is not checked.
static bool owns(int device, const void *at, size_t bytes) {
  bool found = device < 0;
  const char *first = at;
  pthread_mutex_lock(&lock);
  for (const block *b = blocks; b && !found; b = b->next)
    found = b->device == device && first >= b->at && first + bytes <= b->at + b->bytes;
  pthread_mutex_unlock(&lock);
  return found;
}

// ---- copies, fills, kernels

static void run_copy(task *t) { memmove(t->to, t->from, t->bytes); }

// Pageable source memory is copied during the call. Pageable destination memory is complete on
// return.
static px_status copy(void *self, const px_copy *c) {
  if (!owns(c->to_device, c->to, c->bytes) || !owns(c->from_device, c->from, c->bytes))
    FAIL(PX_VALUE, INVALID_VALUE, "invalid argument");
  bool now = c->kind == PX_COPY_HOST_TO_DEVICE && !c->pinned;
  task *t = task_new(run_copy, now ? c->bytes : 0);
  if (t) t->to = c->to, t->from = now ? memcpy(t->data, c->from, c->bytes) : c->from;
  if (t) t->bytes = c->bytes;
  px_status status = issue(self, t);
  bool waits = c->kind == PX_COPY_DEVICE_TO_HOST && !c->pinned;
  return status == PX_OK && waits ? stream_synchronize(self) : status;
}

static void run_fill(task *t) { memset(t->to, t->value, t->bytes); }

static px_status fill(void *self, void *memory, int value, size_t bytes) {
  task *t = task_new(run_fill, 0);
  if (t) t->to = memory, t->value = value, t->bytes = bytes;
  return issue(self, t);
}

static void run_kernel(task *t) {
  const px_launch *l = (const px_launch *)(const void *)t->data;
  px_status status = l->kernel(l);
  if (status == PX_NOMEM) px_kernel_fault(l, PX_FAULT_NOMEM, 0, 0, 0);
  if (status == PX_OK || status == PX_NOMEM) return;
  pthread_mutex_lock(&lock);
  broken[t->device] = true;
  pthread_mutex_unlock(&lock);
}

// Copies the launch and everything it points to: the caller's is valid only during the call.
static px_status launch(void *self, const px_launch *l) {
  size_t bytes = core->pack(l, NULL, 0);
  task *t = task_new(run_kernel, bytes);
  if (!t) return issue(self, NULL);
  core->pack(l, t->data, bytes);
  px_launch *own = (px_launch *)(void *)t->data;
  own->stream = self;
  for (int i = 0; i < own->operand_count; i++)
    if (own->operands[i].immediate) own->operands[i].data = own->operands[i].value;
  return issue(self, t);
}

static px_kernel find(const char *name) {
  for (int i = 0; i < core->host_kernel_count; i++)
    if (!strcmp(core->host_kernels[i].name, name)) return core->host_kernels[i].run;
  return NULL;
}

// ---- devices

static int probe(void) { return DEVICES; }

static px_status open_device(int device) {
  if (device < 0 || device >= DEVICES) FAIL(PX_ACCELERATOR, 101, "invalid device ordinal");
  return PX_OK;
}

static px_status properties(int device, px_device_properties *out) {
  *out = (px_device_properties){.name = "Phlox toy device",
                                .total_memory = TOTAL,
                                .major = 9,
                                .multi_processor_count = 1,
                                .max_threads_per_multi_processor = 1024,
                                .simulated = true};
  out->uuid[0] = 't', out->uuid[1] = (uint8_t)device;
  return PX_OK;
}

static px_fault_slot *fault_slot(int device) { return &slots[device]; }
static bool can_access_peer(int from, int to) { return from != to; }
static px_status enable_peer(int from, int to) { return PX_OK; }
static void *peek(int device, void *memory) { return memory; }
static int64_t library(const char *name) { return 0; }
static int processes(int device, px_process *out, int room) { return 0; }

static const px_backend table = {.size = sizeof table,
                                 .abi = PX_BACKEND_ABI,
                                 .name = "toy",
                                 .type = PX_CUDA,
                                 .probe = probe,
                                 .open = open_device,
                                 .properties = properties,
                                 .memory_info = memory_info,
                                 .synchronize = synchronize,
                                 .fault_slot = fault_slot,
                                 .alloc = alloc,
                                 .release = release,
                                 .host_alloc = host_alloc,
                                 .host_release = host_release,
                                 .can_access_peer = can_access_peer,
                                 .enable_peer = enable_peer,
                                 .stream_new = stream_new,
                                 .stream_release = stream_release,
                                 .priority_range = priority_range,
                                 .stream_query = stream_query,
                                 .stream_synchronize = stream_synchronize,
                                 .stream_wait = stream_wait,
                                 .copy = copy,
                                 .fill = fill,
                                 .host_call = host_call,
                                 .event_new = event_new,
                                 .event_release = event_release,
                                 .event_record = event_record,
                                 .event_query = event_query,
                                 .event_synchronize = event_synchronize,
                                 .event_elapsed = event_elapsed,
                                 .find = find,
                                 .launch = launch,
                                 .peek = peek,
                                 .library = library,
                                 .processes = processes,
                                 .runs_host_kernels = true};

PX_API const px_backend *px_backend_entry(const px_core *given);
const px_backend *px_backend_entry(const px_core *given) {
  if (given->abi != PX_BACKEND_ABI || given->size < sizeof *given) return NULL;
  core = given;
  return &table;
}
