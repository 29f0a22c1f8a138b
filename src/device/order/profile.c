// SPDX-License-Identifier: Apache-2.0
// The profiler: a list of events that ops, nodes and parts of programs append to, and pairs of
// backend events around the work of devices.
//
// While nothing is noted, a call pays for one look at px__watching. All state is under one lock,
// which is a leaf: nothing else is taken with it, but for the first use of a device, which makes
// the event that its times are counted from. What is noted after the profile ended belongs to no
// profile: handles carry the number of theirs.
#include "device/core/state.h"
#include "phlox/profile.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct note {
  px_profile_event event;  // without its texts
  size_t name, shapes;     // where they begin in `texts`; 0: ""
  px_stream *stream;       // of a device's work
  void *begun, *ended;     // backend events
} note;

enum { NAMES = 1024, NAME_TRIES = 4 };
struct px_profile {
  px_profile *next;  // of all that there are, under the lock
  px_profile_options options;
  uint64_t number;
  note *notes;
  int64_t count, room;
  char *texts;
  size_t length, text_room;
  struct {
    const char *name;  // of an op, a constant; `inplace`: and its form in place
    bool inplace;
    size_t text;
  } names[NAMES];  // those that were kept, at the place that follows from them or a next one
  void *origin[PX__DEVICES];  // a backend event, made at origin_time
  int64_t origin_time[PX__DEVICES];
  bool lost;  // there was no memory for an event
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static px_profile *now;       // under the lock
static px_profile *living;    // under the lock: all that have not been freed
static bool in_virtual_time;  // atomic; of the latest profile
static uint64_t made;         // under the lock: the number of the latest profile
// Of the profile `of`: the event that the thread is in, or -1, and its number, the system's.
static _Thread_local struct {
  int64_t innermost;
  uint32_t of;
  int number;
} own;

enum { NUMBER_SHIFT = 40 };  // a handle: the profile's number, and the event's, counted from 1

// The host's time: virtual, where that of the devices was when the profile began.
static int64_t nanoseconds(void) {
  struct timespec t;
  int64_t virtual_time;
  if (__atomic_load_n(&in_virtual_time, __ATOMIC_RELAXED) &&
      px__virtual_clock(NULL, NULL, &virtual_time))
    return virtual_time;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// ---- the list, with the lock held

static size_t keep_text(px_profile *p, const char *text) {
  size_t size = strlen(text) + 1, begin = p->length;
  if (size == 1) return 0;
  if (begin + size > p->text_room) {
    size_t room = 2 * (begin + size) + 4096;
    if (px__realloc((void **)&p->texts, room) != PX_OK) return p->lost = true, 0;
    p->text_room = room;
  }
  memcpy(p->texts + begin, text, size);
  p->length += size;
  return begin;
}

// Whether a place has the name already; the memory of one may come to have another.
static bool is_kept(const px_profile *p, int at, const char *name, bool inplace) {
  enum { PREFIX = 6 };  // "aten::"
  const char *text = p->texts + p->names[at].text + PREFIX;
  return p->names[at].name == name && p->names[at].inplace == inplace &&
         !strncmp(text, name, strlen(name));
}

// Calls of ops are many: each name is kept once.
static size_t keep_name(px_profile *p, const char *name, bool inplace) {
  char text[128];
  uintptr_t key = ((uintptr_t)name + inplace) * 0x9e3779b97f4a7c15u >> 32;
  int at = 0, tries = 0;
  for (; tries < NAME_TRIES; tries++) {
    at = (int)((key + (uintptr_t)tries) % NAMES);
    if (!p->names[at].name) break;
    if (is_kept(p, at, name, inplace)) return p->names[at].text;
  }
  snprintf(text, sizeof text, "aten::%s%s", name, inplace ? "_" : "");
  size_t kept = keep_text(p, text);
  if (kept && tries < NAME_TRIES)
    p->names[at].name = name, p->names[at].inplace = inplace, p->names[at].text = kept;
  return kept;
}

// What the thread knows of the profile that is being made.
static void know(const px_profile *p) {
  if (own.of == (uint32_t)p->number) return;
  own.innermost = -1;
  own.of = (uint32_t)p->number;
  own.number = (int)syscall(SYS_gettid);
}

static note *add(px_profile *p, px_profile_kind kind, size_t name, const char *shapes) {
  if (p->count == p->room) {
    int64_t room = 2 * p->room + 256;
    if (px__realloc((void **)&p->notes, (size_t)room * sizeof *p->notes) != PX_OK)
      return p->lost = true, NULL;
    p->room = room;
  }
  note *n = &p->notes[p->count++];
  *n = (note){.event = {.kind = kind, .parent = -1, .end = -1, .device = px_cpu()}};
  n->name = name;
  n->shapes = keep_text(p, shapes);
  know(p);
  n->event.thread = own.number;
  n->event.parent = own.innermost;
  return n;
}

// The event that this thread is in, or NULL.
static note *here(px_profile *p) {
  if (p) know(p);
  return p && own.innermost >= 0 ? &p->notes[own.innermost] : NULL;
}

// The event of a handle; NULL if its profile has ended.
static note *noted(int64_t handle) {
  int64_t at = (handle & (((int64_t)1 << NUMBER_SHIFT) - 1)) - 1;
  bool is_now = now && now->number == (uint64_t)(handle >> NUMBER_SHIFT);
  return is_now && at < now->count ? &now->notes[at] : NULL;
}

// An event could not be noted, which is told when the profile ends; the call itself is fine.
static void unlock(void) {
  bool lost = now && now->lost;
  pthread_mutex_unlock(&lock);
  if (lost) px_error_clear();
}

// ---- parts

typedef struct whereabouts {
  px_site site;
  const px_traceback *stack;
} whereabouts;

// What is noted of where the program is. Asks the language, which may take locks of its own.
static whereabouts where_now(void) {
  whereabouts at = {0};
  if (px__call_watched(PX__WATCH_LINES)) px_site_get(&at.site.file, &at.site.line);
  if (px__call_watched(PX__WATCH_STACKS)) at.stack = px__stack_of_lines();
  return at;
}

// With the lock held: the event begins, and later ones are within it.
static int64_t begin(note *n, const whereabouts *at) {
  if (!n) return 0;
  n->event.file = at->site.file, n->event.line = at->site.line;
  n->event.stack = at->stack;
  n->event.start = nanoseconds();
  own.innermost = n - now->notes;
  return (int64_t)(now->number << NUMBER_SHIFT) + own.innermost + 1;
}

int64_t px__profile_enter_op(const char *name, bool inplace, const char *shapes) {
  whereabouts at = where_now();
  pthread_mutex_lock(&lock);
  bool noted = now && now->options.host;
  note *n = noted ? add(now, PX_PROFILE_OP, keep_name(now, name, inplace), shapes) : NULL;
  int64_t handle = begin(n, &at);
  unlock();
  return handle;
}

int64_t px_profile_enter(px_profile_kind kind, const char *name) {
  if (!px__profile_on() || !name) return 0;
  whereabouts at = where_now();
  pthread_mutex_lock(&lock);
  bool noted = now && now->options.host;
  note *n = noted ? add(now, kind, keep_text(now, name), "") : NULL;
  int64_t handle = begin(n, &at);
  unlock();
  return handle;
}

void px_profile_leave(int64_t part) {
  if (part <= 0) return;
  int64_t time = nanoseconds();
  pthread_mutex_lock(&lock);
  note *n = noted(part);
  if (n) {
    n->event.end = time;
    know(now);
    own.innermost = n->event.parent;
  }
  pthread_mutex_unlock(&lock);
}

void px__profile_memory(px_device device, int64_t bytes) {
  pthread_mutex_lock(&lock);
  if (now && now->options.memory && bytes) {
    note *n = here(now);
    if (!n && (n = add(now, PX_PROFILE_MEMORY, keep_text(now, "[memory]"), ""))) {
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
  note *n = now && now->options.flops ? here(now) : NULL;
  if (n) n->event.flops += flops;
  pthread_mutex_unlock(&lock);
}

// ---- work of devices

// The event behind work tells its end in virtual time too, in which the host may come later.
enum { ENDS = 8 };
static px_status record(void **event, px_stream *stream, unsigned flags) {
  int device = stream->owner->physical;
  PX_TRY(px__rt.backend->event_new(device, PX_EVENT_TIMING | flags, event));
  return px__rt.backend->event_record(*event, stream->native);
}

// Times of a device are counted from an event for which the host has waited, on a stream of its
// own: the others' work may wait for what this thread has yet to do.
static px_status set_origin(px_profile *p, const px__device *d) {
  void *aside, **origin = &p->origin[d->index];
  if (*origin) return PX_OK;
  PX_TRY(px__rt.backend->event_new(d->physical, PX_EVENT_TIMING, origin));
  PX_TRY(px__rt.backend->stream_new(d->physical, 0, &aside));
  px_status status = px__rt.backend->event_record(*origin, aside);
  if (status == PX_OK) status = px__rt.backend->event_synchronize(*origin);
  p->origin_time[d->index] = nanoseconds();
  px__rt.backend->stream_release(d->physical, aside);
  return status;
}

// With the device's lock held, before and after the work is issued. What a capture keeps does not
// run. A failure costs the event, not the work.
int64_t px__profile_work_begin(const px__work *work) {
  int64_t at = -1;
  pthread_mutex_lock(&lock);
  if (now && now->options.devices && !work->capture) {
    px_status status = set_origin(now, work->stream->owner);
    note *n = status == PX_OK ? add(now, PX_PROFILE_DEVICE, keep_text(now, work->op), "") : NULL;
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
  note *n = noted(part);
  if (n && record(&n->ended, n->stream, ENDS) != PX_OK) now->lost = true;
  unlock();
}

void px__profile_work_is(const px__work *work, px_profile_work sort) {
  if (work->profiled <= 0) return;
  pthread_mutex_lock(&lock);
  note *n = noted(work->profiled);
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

// ---- a profile

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
  p->length = 1;  // at 0 there is the empty text
  px_status status = px__realloc((void **)&p->texts, p->text_room = 4096);
  for (int i = 0; options->devices && status == PX_OK && i < px__rt.count; i++)
    if (px__rt.devices[i] && px__rt.devices[i]->stream_count)
      status = set_origin(p, px__rt.devices[i]);
  if (status != PX_OK) return px_profile_free(p), status;
  p->texts[0] = 0;
  pthread_mutex_lock(&lock);
  bool free_place = !now;
  if (free_place) {
    p->number = ++made;
    now = p;
    __atomic_store_n(&in_virtual_time, px__call_watched(PX__WATCH_VIRTUAL), __ATOMIC_RELAXED);
    px__watch(PX__WATCH_PROFILE | watched(options), true);
  }
  pthread_mutex_unlock(&lock);
  if (!free_place) px_profile_free(p);
  PX_CHECK(free_place, PX_RUNTIME, "Profiler is already enabled on this thread");
  return PX_OK;
}

static px_status end(px_profile *p, int64_t time) {
  for (int64_t i = 0; i < p->count; i++) {
    note *n = &p->notes[i];
    if (n->stream) PX_TRY(resolve(p, n));
    if (n->event.end < 0) n->event.end = n->stream ? n->event.start : time;
  }
  PX_CHECK(!p->lost, PX_OUT_OF_MEMORY, "the profile is not whole: an event could not be noted");
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

// False of what is no profile, or none any more.
static bool leave_living(px_profile *profile) {
  pthread_mutex_lock(&lock);
  px_profile **place = &living;
  while (*place && *place != profile) place = &(*place)->next;
  bool found = *place && profile != now;
  if (found) *place = profile->next;
  pthread_mutex_unlock(&lock);
  return found;
}

void px_profile_free(px_profile *profile) {
  if (!leave_living(profile)) return;
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
