// SPDX-License-Identifier: Apache-2.0
// The profiler: a list of events that ops, nodes and parts of programs append to, and pairs of
// backend events around the work of devices.
//
// While nothing is noted, a call pays for one look at px__watching. All state is under one lock,
// which is a leaf: nothing else is taken with it, but for the first use of a device, which makes
// the event that its times are counted from. What is noted after the profile ended belongs to no
// profile: handles carry the number of theirs.
#include "device/state.h"
#include "phlox/profile.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct note {
  px_profile_event event;  // without its texts
  size_t name, shapes;     // where they begin in `texts`; 0: ""
  px_stream *stream;       // of a device's work
  void *begun, *ended;     // backend events
} note;

struct px_profile {
  px_profile_options options;
  uint64_t number;
  note *notes;
  int64_t count, room;
  char *texts;
  size_t length, text_room;
  void *origin[PX__DEVICES];  // a backend event, made at origin_time
  int64_t origin_time[PX__DEVICES];
  bool lost;  // there was no memory for an event
};

int px__watching;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static px_profile *now;                       // under the lock
static uint64_t made;                         // under the lock: the number of the latest profile
static _Thread_local int64_t innermost = -1;  // of the profile `innermost_of`
static _Thread_local uint64_t innermost_of;

enum { NUMBER_SHIFT = 40 };  // a handle: the profile's number, and the event's, counted from 1

static int64_t nanoseconds(void) {
  struct timespec t;
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

static note *add(px_profile *p, px_profile_kind kind, const char *name, const char *shapes) {
  if (p->count == p->room) {
    int64_t room = 2 * p->room + 256;
    if (px__realloc((void **)&p->notes, (size_t)room * sizeof *p->notes) != PX_OK)
      return p->lost = true, NULL;
    p->room = room;
  }
  note *n = &p->notes[p->count++];
  *n = (note){.event = {.kind = kind, .parent = -1, .end = -1, .device = px_cpu()}};
  n->name = keep_text(p, name);
  n->shapes = keep_text(p, shapes);
  n->event.thread = (int)syscall(SYS_gettid);
  if (innermost_of == p->number) n->event.parent = innermost;
  return n;
}

// The event that this thread is in, or NULL.
static note *here(px_profile *p) {
  return p && innermost_of == p->number && innermost >= 0 ? &p->notes[innermost] : NULL;
}

// An event could not be noted, which is told when the profile ends; the call itself is fine.
static void unlock(void) {
  bool lost = now && now->lost;
  pthread_mutex_unlock(&lock);
  if (lost) px_error_clear();
}

// ---- parts

int64_t px__profile_enter(px_profile_kind kind, const char *name, const char *shapes) {
  const char *file = NULL;
  int line = 0;
  pthread_mutex_lock(&lock);
  bool lines = now && now->options.lines;
  pthread_mutex_unlock(&lock);
  if (lines) px_site_get(&file, &line);  // asks the language, which may take locks of its own
  int64_t handle = 0;
  pthread_mutex_lock(&lock);
  note *n = now && now->options.host ? add(now, kind, name, shapes) : NULL;
  if (n) {
    n->event.file = file, n->event.line = line;
    n->event.start = nanoseconds();
    innermost = n - now->notes, innermost_of = now->number;
    handle = (int64_t)(now->number << NUMBER_SHIFT) + innermost + 1;
  }
  unlock();
  return handle;
}

int64_t px_profile_enter(px_profile_kind kind, const char *name) {
  return px__profile_on() && name ? px__profile_enter(kind, name, "") : 0;
}

void px_profile_leave(int64_t part) {
  if (part <= 0) return;
  int64_t at = (part & (((int64_t)1 << NUMBER_SHIFT) - 1)) - 1, time = nanoseconds();
  pthread_mutex_lock(&lock);
  if (now && now->number == (uint64_t)(part >> NUMBER_SHIFT) && at < now->count) {
    now->notes[at].event.end = time;
    innermost = now->notes[at].event.parent, innermost_of = now->number;
  }
  pthread_mutex_unlock(&lock);
}

bool px__profile_wants_shapes(void) {
  pthread_mutex_lock(&lock);
  bool wants = now && now->options.shapes;
  pthread_mutex_unlock(&lock);
  return wants;
}

void px__profile_memory(px_device device, int64_t bytes) {
  pthread_mutex_lock(&lock);
  if (now && now->options.memory && bytes) {
    note *n = here(now);
    if (!n && (n = add(now, PX_PROFILE_MEMORY, "[memory]", ""))) {
      n->event.start = n->event.end = nanoseconds();
      n->event.device = device;
    }
    if (n) *(device.type == PX_CPU ? &n->event.cpu_bytes : &n->event.device_bytes) += bytes;
  }
  unlock();
}

// ---- work of devices

static px_status record(void **event, px_stream *stream) {
  int device = stream->owner->physical;
  PX_TRY(px__rt.backend->event_new(device, PX_EVENT_TIMING, event));
  return px__rt.backend->event_record(*event, stream->native);
}

// Times of a device are counted from an event for which the host has waited: of devices in use,
// when the profile begins; of others, when they have no work yet.
static px_status set_origin(px_profile *p, px_stream *stream) {
  int i = stream->owner->index;
  if (p->origin[i]) return PX_OK;
  PX_TRY(record(&p->origin[i], stream));
  PX_TRY(px__rt.backend->event_synchronize(p->origin[i]));
  p->origin_time[i] = nanoseconds();
  return PX_OK;
}

// With the device's lock held, before and after the work is issued. What a capture keeps does not
// run. A failure costs the event, not the work.
int64_t px__profile_work_begin(const px__work *work) {
  int64_t at = -1;
  pthread_mutex_lock(&lock);
  if (now && now->options.devices && !work->capture) {
    px_status status = set_origin(now, work->stream);
    note *n = status == PX_OK ? add(now, PX_PROFILE_DEVICE, work->op, "") : NULL;
    if (n) {
      n->stream = work->stream;  // streams live as long as the process
      n->event.device = px_cuda(work->stream->owner->index);
      n->event.stream = work->stream->id;
      status = record(&n->begun, work->stream);
      at = (int64_t)(now->number << NUMBER_SHIFT) + (n - now->notes) + 1;
    }
    if (status != PX_OK) now->lost = true;
  }
  unlock();
  return at;
}

void px__profile_work_end(int64_t part) {
  int64_t at = (part & (((int64_t)1 << NUMBER_SHIFT) - 1)) - 1;
  if (part <= 0) return;
  pthread_mutex_lock(&lock);
  if (now && now->number == (uint64_t)(part >> NUMBER_SHIFT) &&
      record(&now->notes[at].ended, now->notes[at].stream) != PX_OK)
    now->lost = true;
  unlock();
}

static px_status resolve(px_profile *p, note *n) {
  float since = 0, took = 0;
  int device = n->stream->owner->index;
  if (!n->begun || !n->ended) return PX_OK;
  PX_TRY(px__rt.backend->event_synchronize(n->ended));
  PX_TRY(px__rt.backend->event_elapsed(p->origin[device], n->begun, &since));
  PX_TRY(px__rt.backend->event_elapsed(n->begun, n->ended, &took));
  n->event.start = p->origin_time[device] + (int64_t)((double)since * 1e6);
  n->event.end = n->event.start + (int64_t)((double)took * 1e6);
  return PX_OK;
}

// ---- a profile

px_status px_profile_start(const px_profile_options *options) {
  PX_GIVEN(options);
  px_profile *p;
  PX_TRY(PX_NEW(&p));
  p->options = *options;
  p->length = 1;  // at 0 there is the empty text
  px_status status = px__realloc((void **)&p->texts, p->text_room = 4096);
  for (int i = 0; options->devices && status == PX_OK && i < px__rt.count; i++)
    if (px__rt.devices[i] && px__rt.devices[i]->stream_count)
      status = set_origin(p, px__rt.devices[i]->streams[0]);
  if (status != PX_OK) return px_profile_free(p), status;
  p->texts[0] = 0;
  pthread_mutex_lock(&lock);
  bool free_place = !now;
  if (free_place) {
    p->number = ++made;
    now = p;
    px__watch(PX__WATCH_PROFILE, true);
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
  PX_GIVEN(out);
  pthread_mutex_lock(&lock);
  px_profile *p = now;
  now = NULL;
  px__watch(PX__WATCH_PROFILE, false);
  pthread_mutex_unlock(&lock);
  PX_CHECK(p, PX_RUNTIME, "Can't disable Kineto profiler when it's not running");
  px_status status = end(p, nanoseconds());
  if (status != PX_OK) return px_profile_free(p), status;
  *out = p;
  return PX_OK;
}

void px_profile_free(px_profile *profile) {
  if (!profile) return;
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
