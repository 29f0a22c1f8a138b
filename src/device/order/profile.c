// SPDX-License-Identifier: Apache-2.0
// The profiler: a list of events of ops, nodes and parts of programs, and pairs of backend events
// around device work.
//
// Without a running profile, a call only loads px__watching. One lock guards all state. It is
// innermost, except at the first use of a device, which creates the reference event of its times.
// Handles carry the number of their profile: events after its end belong to none.
#include "device/order/order.h"
#include "phlox/profile.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct note {
  px_profile_event event;  // without its texts
  size_t name, shapes;     // offsets in `texts`; 0: ""
  px_stream *stream;       // of device work
  void *begun, *ended;     // backend events
} note;

enum { NAMES = 1024, NAME_TRIES = 4 };
struct px_profile {
  px_profile *next;  // in `living`
  px_profile_options options;
  uint64_t number;
  note *notes;
  int64_t count, capacity;
  char *texts;
  size_t length, text_capacity;
  struct {
    const char *name;  // of an op, a constant; `inplace`: of its in-place form
    bool inplace;
    size_t text;
  } names[NAMES];             // hash table of interned names
  void *origin[PX__DEVICES];  // a backend event, recorded at origin_time
  int64_t origin_time[PX__DEVICES];
  bool lost;  // an event could not be stored
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static px_profile *now;       // under the lock; the running profile
static px_profile *living;    // under the lock; all profiles not freed yet
static bool in_virtual_time;  // atomic; of the latest profile
static uint64_t made;         // under the lock; number of the latest profile
// The thread's current event in profile `of`, or -1, and its system thread id.
static _Thread_local struct {
  int64_t innermost;
  uint32_t of;
  int number;
} thread_state;

enum { NUMBER_SHIFT = 40 };  // a handle: the profile's number, then the event's index + 1

// The host's time. Virtual if the devices' time was virtual when the profile began.
static int64_t nanoseconds(void) {
  struct timespec t;
  int64_t virtual_time;
  if (__atomic_load_n(&in_virtual_time, __ATOMIC_RELAXED) &&
      px__virtual_clock(NULL, NULL, &virtual_time))
    return virtual_time;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// ---- the list; lock held

static size_t store_text(px_profile *p, const char *text) {
  size_t size = strlen(text) + 1, begin = p->length;
  if (size == 1) return 0;
  if (begin + size > p->text_capacity) {
    size_t capacity = 2 * (begin + size) + 4096;
    if (px__realloc((void **)&p->texts, capacity) != PX_OK) return p->lost = true, 0;
    p->text_capacity = capacity;
  }
  memcpy(p->texts + begin, text, size);
  p->length += size;
  return begin;
}

// True if the slot holds the name. Compares texts too, since a freed name's address may be reused.
static bool is_interned(const px_profile *p, int at, const char *name, bool inplace) {
  enum { PREFIX = 6 };  // "aten::"
  const char *text = p->texts + p->names[at].text + PREFIX;
  return p->names[at].name == name && p->names[at].inplace == inplace &&
         !strncmp(text, name, strlen(name));
}

// Interns names: calls of ops are many.
static size_t intern_name(px_profile *p, const char *name, bool inplace) {
  char text[128];
  uintptr_t key = ((uintptr_t)name + inplace) * 0x9e3779b97f4a7c15u >> 32;
  int at = 0, tries = 0;
  for (; tries < NAME_TRIES; tries++) {
    at = (int)((key + (uintptr_t)tries) % NAMES);
    if (!p->names[at].name) break;
    if (is_interned(p, at, name, inplace)) return p->names[at].text;
  }
  snprintf(text, sizeof text, "aten::%s%s", name, inplace ? "_" : "");
  size_t kept = store_text(p, text);
  if (kept && tries < NAME_TRIES)
    p->names[at].name = name, p->names[at].inplace = inplace, p->names[at].text = kept;
  return kept;
}

// Initialises the thread's state for the running profile.
static void start_thread(const px_profile *p) {
  if (thread_state.of == (uint32_t)p->number) return;
  thread_state.innermost = -1;
  thread_state.of = (uint32_t)p->number;
  thread_state.number = (int)syscall(SYS_gettid);
}

static note *add(px_profile *p, px_profile_kind kind, size_t name, const char *shapes) {
  if (p->count == p->capacity) {
    int64_t capacity = 2 * p->capacity + 256;
    if (px__realloc((void **)&p->notes, (size_t)capacity * sizeof *p->notes) != PX_OK)
      return p->lost = true, NULL;
    p->capacity = capacity;
  }
  note *n = &p->notes[p->count++];
  *n = (note){.event = {.kind = kind, .parent = -1, .end = -1, .device = px_cpu()}};
  n->name = name;
  n->shapes = store_text(p, shapes);
  start_thread(p);
  n->event.thread = thread_state.number;
  n->event.parent = thread_state.innermost;
  return n;
}

// Returns the thread's current event, or NULL.
static note *current_event(px_profile *p) {
  if (p) start_thread(p);
  return p && thread_state.innermost >= 0 ? &p->notes[thread_state.innermost] : NULL;
}

// Returns the event of a handle; NULL if its profile has ended.
static note *find_event(int64_t handle) {
  int64_t at = (handle & (((int64_t)1 << NUMBER_SHIFT) - 1)) - 1;
  bool is_now = now && now->number == (uint64_t)(handle >> NUMBER_SHIFT);
  return is_now && at < now->count ? &now->notes[at] : NULL;
}

// A lost event is reported when the profile ends. The call itself succeeds.
static void unlock(void) {
  bool lost = now && now->lost;
  pthread_mutex_unlock(&lock);
  if (lost) px_error_clear();
}

// ---- parts

typedef struct position {
  px_site site;
  const px_traceback *stack;
} position;

// Records the program's current position. Asks the language, which may take locks.
static position position_now(void) {
  position at = {0};
  if (px__call_watched(PX__WATCH_LINES)) px_site_get(&at.site.file, &at.site.line);
  if (px__call_watched(PX__WATCH_STACKS)) at.stack = px__stack_of_lines();
  return at;
}

// Makes the event the thread's current one. Lock held.
static int64_t begin(note *n, const position *at) {
  if (!n) return 0;
  n->event.file = at->site.file, n->event.line = at->site.line;
  n->event.stack = at->stack;
  n->event.start = nanoseconds();
  thread_state.innermost = n - now->notes;
  return (int64_t)(now->number << NUMBER_SHIFT) + thread_state.innermost + 1;
}

int64_t px__profile_enter_op(const char *name, bool inplace, const char *shapes) {
  position at = position_now();
  pthread_mutex_lock(&lock);
  bool find_event = now && now->options.host;
  note *n = find_event ? add(now, PX_PROFILE_OP, intern_name(now, name, inplace), shapes) : NULL;
  int64_t handle = begin(n, &at);
  unlock();
  return handle;
}

int64_t px_profile_enter(px_profile_kind kind, const char *name) {
  if (!px__profile_on() || !name) return 0;
  position at = position_now();
  pthread_mutex_lock(&lock);
  bool find_event = now && now->options.host;
  note *n = find_event ? add(now, kind, store_text(now, name), "") : NULL;
  int64_t handle = begin(n, &at);
  unlock();
  return handle;
}

void px_profile_leave(int64_t part) {
  if (part <= 0) return;
  int64_t time = nanoseconds();
  pthread_mutex_lock(&lock);
  note *n = find_event(part);
  if (n) {
    n->event.end = time;
    start_thread(now);
    thread_state.innermost = n->event.parent;
  }
  pthread_mutex_unlock(&lock);
}

void px__profile_memory(px_device device, int64_t bytes) {
  pthread_mutex_lock(&lock);
  if (now && now->options.memory && bytes) {
    note *n = current_event(now);
    if (!n && (n = add(now, PX_PROFILE_MEMORY, store_text(now, "[memory]"), ""))) {
      n->event.start = n->event.end = nanoseconds();
      n->event.device = device;
    }
    if (n) *(device.type == PX_CPU ? &n->event.cpu_bytes : &n->event.device_bytes) += bytes;
    if (n && device.type != PX_CPU) n->event.memory_device = device.index;
  }
  unlock();
}

void px__profile_flops(int64_t flops) {
  pthread_mutex_lock(&lock);
  note *n = now && now->options.flops ? current_event(now) : NULL;
  if (n) n->event.flops += flops;
  pthread_mutex_unlock(&lock);
}

// ---- device work

// Marks the event after work: in virtual time, it must report its end even if the host records it
// later.
enum { REPORTS_END = 8 };
static px_status record(void **event, px_stream *stream, unsigned flags) {
  int device = stream->owner->physical;
  PX_TRY(px__rt.backend->event_new(device, PX_EVENT_TIMING | flags, event));
  return px__rt.backend->event_record(*event, stream->native);
}

// Creates the reference event of a device's times, and waits for it on a separate stream: work of
// others may wait for work not yet issued by this thread.
static px_status set_origin(px_profile *p, const px__device *d) {
  void *stream, **origin = &p->origin[d->index];
  if (*origin) return PX_OK;
  PX_TRY(px__rt.backend->event_new(d->physical, PX_EVENT_TIMING, origin));
  PX_TRY(px__rt.backend->stream_new(d->physical, 0, &stream));
  px_status status = px__rt.backend->event_record(*origin, stream);
  if (status == PX_OK) status = px__rt.backend->event_synchronize(*origin);
  p->origin_time[d->index] = nanoseconds();
  px__rt.backend->stream_release(d->physical, stream);
  return status;
}

// Called under the device's lock, before and after the work is issued. Skips captured work, which
// does not run. A failure loses the event, not the work.
int64_t px__profile_work_begin(const px__work *work) {
  int64_t at = -1;
  pthread_mutex_lock(&lock);
  if (now && now->options.devices && !work->capture) {
    px_status status = set_origin(now, work->stream->owner);
    note *n = status == PX_OK ? add(now, PX_PROFILE_DEVICE, store_text(now, work->op), "") : NULL;
    if (n) {
      n->stream = work->stream;  // streams live as long as the process
      n->event.device = px_cuda(work->stream->owner->index);
      n->event.stream = work->stream->id;
      status = record(&n->begun, work->stream, 0);
      at = (int64_t)(now->number << NUMBER_SHIFT) + (n - now->notes) + 1;
    }
    if (status != PX_OK) now->lost = true;
  }
  unlock();
  return at;
}

void px__profile_work_end(int64_t part) {
  if (part <= 0) return;
  pthread_mutex_lock(&lock);
  note *n = find_event(part);
  if (n && record(&n->ended, n->stream, REPORTS_END) != PX_OK) now->lost = true;
  unlock();
}

void px__profile_work_is(const px__work *work, px_profile_work sort) {
  if (work->profiled <= 0) return;
  pthread_mutex_lock(&lock);
  note *n = find_event(work->profiled);
  if (n) n->event.work = sort;
  pthread_mutex_unlock(&lock);
}

static px_status resolve(px_profile *p, note *n) {
  float since = 0, took = 0;
  int device = n->stream->owner->index;
  if (!n->begun || !n->ended) return PX_OK;
  PX_TRY(px__rt.backend->event_synchronize(n->ended));
  if (px__virtual_clock(n->stream, n->begun, &n->event.start) &&
      px__virtual_clock(n->stream, n->ended, &n->event.end))
    return PX_OK;
  PX_TRY(px__rt.backend->event_elapsed(p->origin[device], n->begun, &since));
  PX_TRY(px__rt.backend->event_elapsed(n->begun, n->ended, &took));
  n->event.start = p->origin_time[device] + (int64_t)((double)since * 1e6);
  n->event.end = n->event.start + (int64_t)((double)took * 1e6);
  return PX_OK;
}

// ---- profiles

static int watched(const px_profile_options *options) {
  return (options->flops ? PX__WATCH_FLOPS : 0) | (options->shapes ? PX__WATCH_SHAPES : 0) |
         (options->lines ? PX__WATCH_LINES : 0) | (options->stacks ? PX__WATCH_STACKS : 0);
}

px_status px__profile_start(const px_profile_options *options) {
  px_profile *p;
  PX_TRY(PX_NEW(&p));
  pthread_mutex_lock(&lock);
  p->next = living, living = p;
  pthread_mutex_unlock(&lock);
  p->options = *options;
  p->length = 1;  // offset 0 is the empty text
  px_status status = px__realloc((void **)&p->texts, p->text_capacity = 4096);
  for (int i = 0; options->devices && status == PX_OK && i < px__rt.count; i++)
    if (px__rt.devices[i] && px__rt.devices[i]->stream_count)
      status = set_origin(p, px__rt.devices[i]);
  if (status != PX_OK) return px_profile_free(p), status;
  p->texts[0] = 0;
  pthread_mutex_lock(&lock);
  bool idle = !now;
  if (idle) {
    p->number = ++made;
    now = p;
    __atomic_store_n(&in_virtual_time, px__call_watched(PX__WATCH_VIRTUAL), __ATOMIC_RELAXED);
    px__watch(PX__WATCH_PROFILE | watched(options), true);
  }
  pthread_mutex_unlock(&lock);
  if (!idle) px_profile_free(p);
  PX_CHECK(idle, PX_RUNTIME, "Profiler is already enabled on this thread");
  return PX_OK;
}

static px_status end(px_profile *p, int64_t time) {
  for (int64_t i = 0; i < p->count; i++) {
    note *n = &p->notes[i];
    if (n->stream) PX_TRY(resolve(p, n));
    if (n->event.end < 0) n->event.end = n->stream ? n->event.start : time;
  }
  PX_CHECK(!p->lost, PX_OUT_OF_MEMORY, "the profile is incomplete: an event could not be recorded");
  return PX_OK;
}

px_status px_profile_stop(px_profile **out) {
  static const px_profile_options all = {
      .flops = true, .shapes = true, .lines = true, .stacks = true};
  PX_GIVEN(out);
  pthread_mutex_lock(&lock);
  px_profile *p = now;
  now = NULL;
  px__watch(PX__WATCH_PROFILE | watched(&all), false);
  pthread_mutex_unlock(&lock);
  PX_CHECK(p, PX_RUNTIME, "Can't disable Kineto profiler when it's not running");
  px_status status = end(p, nanoseconds());
  if (status != PX_OK) return px_profile_free(p), status;
  *out = p;
  return PX_OK;
}

// Removes a profile from `living`. False if it is not in there.
static bool remove_living(px_profile *profile) {
  pthread_mutex_lock(&lock);
  px_profile **link = &living;
  while (*link && *link != profile) link = &(*link)->next;
  bool found = *link && profile != now;
  if (found) *link = profile->next;
  pthread_mutex_unlock(&lock);
  return found;
}

void px_profile_free(px_profile *profile) {
  if (!remove_living(profile)) return;
  for (int64_t i = 0; i < profile->count; i++) {
    note *n = &profile->notes[i];
    int device = n->stream ? n->stream->owner->physical : 0;
    if (n->begun) px__rt.backend->event_release(device, n->begun);
    if (n->ended) px__rt.backend->event_release(device, n->ended);
  }
  for (int i = 0; i < PX__DEVICES; i++)
    if (profile->origin[i])
      px__rt.backend->event_release(px__rt.devices[i]->physical, profile->origin[i]);
  px__free(profile->notes);
  px__free(profile->texts);
  px__free(profile);
}

bool px_profile_running(void) { return px__profile_on(); }

bool px_profile_event_at(const px_profile *profile, int64_t i, px_profile_event *out) {
  if (!profile || i < 0 || i >= profile->count) return false;
  const note *n = &profile->notes[i];
  *out = n->event;
  out->name = profile->texts + n->name;
  out->shapes = profile->texts + n->shapes;
  return true;
}
