// SPDX-License-Identifier: Apache-2.0
// Profiles in the Trace Event Format of Perfetto, chrome://tracing and TensorBoard.
//
// The host is a process with its threads. Each device is a process, with its streams as threads.
// The id of an event is its index plus 1. An arrow leads from an op to the device work issued by
// it.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/profile/report_impl.h"
#include "device/core/state.h"

enum { DEVICE_ORDER = 5000000 };  // sort index of devices: after all host threads

typedef struct writer {
  px__text text;
  const px_profile_event *events;
  int64_t count, since;
  bool more;  // an event was written before
} writer;

// The row of an event.
typedef struct track {
  int device;      // -1: the host
  int64_t number;  // the thread or stream
} track;
// Memory allocated or, negative, freed within an event.
typedef struct change {
  int64_t time, event, bytes;
  int device;
} change;

static bool is_device(int index) { return index >= 0 && index < PX__DEVICES; }
static bool is_work(const px_profile_event *e) { return e->kind == PX_PROFILE_DEVICE; }
static track track_of(const px_profile_event *e) {
  return is_work(e) ? (track){e->device.index, e->stream} : (track){-1, e->thread};
}

// ---- texts
// Adds a JSON string. Bytes that are not UTF-8 are shown as \xff.
static void add_quoted(px__text *to, const char *text) {
  px__text_add(to, "\"");
  while (*text) {
    int plain = 0, length = 1;  // 0: the bytes are not UTF-8
    while ((unsigned char)text[plain] >= 32 && text[plain] != '"' && text[plain] != '\\' &&
           (length = px__utf8_length(text + plain)))
      plain += length;
    px__text_add(to, "%.*s", plain, text);
    text += plain;
    if (!*text) break;
    px__text_add(to, length ? "\\u%04x" : "\\\\x%02x", (unsigned char)*text);
    text++;
  }
  px__text_add(to, "\"");
}

// Writes microseconds.
static void add_time(px__text *to, const char *name, int64_t nanoseconds) {
  px__text_add(to, ", \"%s\": %lld.%03lld", name, (long long)(nanoseconds / 1000),
               (long long)(nanoseconds % 1000));
}

static void open_event(writer *w, const char *phase, track at) {
  long long process = at.device < 0 ? (long long)getpid() : at.device;
  px__text_add(&w->text, "%s\n{\"ph\": \"%s\", \"pid\": %lld, \"tid\": %lld", w->more ? "," : "",
               phase, process, (long long)at.number);
  w->more = true;
}

// ---- processes and threads
static void put_name(writer *w, track at, const char *what, const char *kind, int64_t number) {
  char name[48];
  snprintf(name, sizeof name, number < 0 ? "%s" : "%s %lld", kind, (long long)number);
  open_event(w, "M", at);
  px__text_add(&w->text, ", \"name\": \"%s\", \"args\": {\"%s\": \"%s\"}}", what,
               strcmp(what, "process_labels") ? "name" : "labels", name);
}

static void put_process(writer *w, track at) {
  long long order = at.device < 0 ? 0 : DEVICE_ORDER + at.device;
  track process = {at.device, 0};
  put_name(w, process, "process_name", at.device < 0 ? "host" : "cuda", at.device);
  put_name(w, process, "process_labels", at.device < 0 ? "CPU" : "GPU", at.device);
  open_event(w, "M", process);
  px__text_add(&w->text, ", \"name\": \"process_sort_index\", \"args\": {\"sort_index\": %lld}}",
               order);
}

static int by_track(const void *a, const void *b) {
  const track *x = a, *y = b;
  if (x->device != y->device) return x->device - y->device;
  return (x->number > y->number) - (x->number < y->number);
}

static px_status put_tracks(writer *w) {
  track *tracks;
  PX_TRY(px__alloc((void **)&tracks, (size_t)(w->count + 1) * sizeof *tracks));
  for (int64_t i = 0; i < w->count; i++) tracks[i] = track_of(&w->events[i]);
  qsort(tracks, (size_t)w->count, sizeof *tracks, by_track);
  for (int64_t i = 0; i < w->count; i++) {
    if (i && !by_track(&tracks[i - 1], &tracks[i])) continue;
    if (!i || tracks[i - 1].device != tracks[i].device) put_process(w, tracks[i]);
    put_name(w, tracks[i], "thread_name", tracks[i].device < 0 ? "thread" : "stream",
             tracks[i].number);
  }
  px__free(tracks);
  return PX_OK;
}

// ---- events
static const char *category(const px_profile_event *e) {
  if (e->kind == PX_PROFILE_RANGE) return "user_annotation";
  if (!is_work(e)) return "cpu_op";
  return e->work == PX_PROFILE_COPY ? "gpu_memcpy" : "kernel";
}

static const char *const works[] = {[PX_PROFILE_KERNEL] = "kernel",
                                    [PX_PROFILE_COPY] = "copy",
                                    [PX_PROFILE_COLLECTIVE] = "collective",
                                    [PX_PROFILE_OTHER] = "other"};

// Adds the program's frames, innermost first, or the known line.
static void add_lines(px__text *to, const px_profile_event *e) {
  px__text lines = {0};
  for (int i = 0; e->stack && i < e->stack->count; i++) {
    const px_frame *f = &e->stack->frames[i];
    if (!*f->file || f->inside) continue;
    px__text_add(&lines, "%s%s(%d): %s", lines.length ? ";" : "", f->file, f->line, f->function);
  }
  if (!lines.length && e->file) px__text_add(&lines, "%s(%d)", e->file, e->line);
  if (lines.length) {
    px__text_add(to, ", \"Call stack\": ");
    add_quoted(to, lines.at);
  }
  to->failed |= lines.failed;
  px__free(lines.at);
}

// Device work has the id of the op that issued it.
static void put_event(writer *w, int64_t i) {
  const px_profile_event *e = &w->events[i];
  track at = track_of(e);
  px__text *to = &w->text;
  bool given = is_work(e) && e->parent >= 0;
  open_event(w, "X", at);
  px__text_add(to, ", \"cat\": \"%s\", \"name\": ", category(e));
  add_quoted(to, e->name ? e->name : "");
  add_time(to, "ts", e->start - w->since);
  add_time(to, "dur", e->end - e->start);
  px__text_add(to, ", \"args\": {\"External id\": %lld", (long long)((given ? e->parent : i) + 1));
  if (is_work(e))
    px__text_add(to, ", \"device\": %d, \"stream\": %lld, \"correlation\": %lld, \"work\": \"%s\"",
                 at.device, (long long)at.number, (long long)(i + 1), works[e->work]);
  if (e->shapes && *e->shapes) px__text_add(to, ", \"Input Dims\": %s", e->shapes);
  add_lines(to, e);
  px__text_add(to, "}}");
}

static void put_end(writer *w, const px_profile_event *e, int64_t number, bool into) {
  open_event(w, into ? "f" : "s", track_of(e));
  if (into) px__text_add(&w->text, ", \"bp\": \"e\"");
  px__text_add(&w->text, ", \"cat\": \"ac2g\", \"name\": \"ac2g\", \"id\": %lld",
               (long long)number);
  add_time(&w->text, "ts", e->start - w->since);
  px__text_add(&w->text, "}");
}

static void put_arrow(writer *w, int64_t i) {
  const px_profile_event *e = &w->events[i];
  if (!is_work(e) || e->parent < 0) return;
  put_end(w, &w->events[e->parent], i + 1, false);
  put_end(w, e, i + 1, true);
}

// ---- memory
static int by_time(const void *a, const void *b) {
  const change *x = a, *y = b;
  if (x->time != y->time) return x->time < y->time ? -1 : 1;
  return (x->event > y->event) - (x->event < y->event);
}

// The exact time within an event is unknown: uses its last nanosecond.
static int64_t list_changes(const writer *w, change *out) {
  int64_t count = 0;
  for (int64_t i = 0; i < w->count; i++) {
    const px_profile_event *e = &w->events[i];
    int64_t time = e->end > e->start ? e->end - 1 : e->start;
    if (e->cpu_bytes) out[count++] = (change){time, i, e->cpu_bytes, -1};
    if (e->device_bytes) out[count++] = (change){time, i, e->device_bytes, e->memory_device};
  }
  qsort(out, (size_t)count, sizeof *out, by_time);
  return count;
}

// Writes a mark at the event, and the total since the profile's start.
static void put_change(writer *w, const change *t, int64_t level) {
  px__text *to = &w->text;
  open_event(w, "i", track_of(&w->events[t->event]));
  px__text_add(to, ", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": \"[memory]\"");
  add_time(to, "ts", t->time - w->since);
  px__text_add(to,
               ", \"args\": {\"Device Type\": %d, \"Device Id\": %d, \"Bytes\": %lld, "
               "\"Total Allocated\": %lld}}",
               t->device >= 0, t->device, (long long)t->bytes, (long long)level);
  open_event(w, "C", (track){t->device, 0});
  px__text_add(to, ", \"name\": \"memory\"");
  add_time(to, "ts", t->time - w->since);
  px__text_add(to, ", \"args\": {\"bytes\": %lld}}", (long long)level);
}

static px_status put_memory(writer *w) {
  change *all;
  int64_t levels[PX__DEVICES + 1] = {0};
  PX_TRY(px__alloc((void **)&all, (size_t)(2 * w->count + 1) * sizeof *all));
  int64_t count = list_changes(w, all);
  for (int64_t i = 0; i < count; i++)
    put_change(w, &all[i], levels[all[i].device + 1] += all[i].bytes);
  px__free(all);
  return PX_OK;
}

// ---- the whole trace
static px_status put_all(writer *w, const char *members) {
  bool has_members = members && *members;
  px__text_add(&w->text, "{\"schemaVersion\": 1, \"displayTimeUnit\": \"ms\"%s%s, ",
               has_members ? ", " : "", has_members ? members : "");
  px__text_add(&w->text, "\"traceEvents\": [");
  PX_TRY(put_tracks(w));
  for (int64_t i = 0; i < w->count; i++)
    if (w->events[i].kind != PX_PROFILE_MEMORY) put_event(w, i), put_arrow(w, i);
  PX_TRY(put_memory(w));
  px__text_add(&w->text, "\n]}\n");
  PX_CHECK(!w->text.failed, PX_OUT_OF_MEMORY, "out of memory for the text of a trace");
  return PX_OK;
}

px_status px_profile_trace(char **out, const px_profile_event *events, int64_t count,
                           const char *members) {
  PX_GIVEN(out);
  PX_GIVEN_N(events, count);
  writer w = {.events = events, .count = count, .since = count ? events[0].start : 0};
  for (int64_t i = 0; i < count; i++) {
    const px_profile_event *e = &events[i];
    bool valid = (!is_work(e) || (is_device(e->device.index) && e->work <= PX_PROFILE_OTHER)) &&
                 is_device(e->memory_device);
    PX_CHECK(valid && e->parent < i, PX_VALUE,
             "event %lld of a trace has an invalid device or work, or a parent after it",
             (long long)i);
    if (e->start < w.since) w.since = e->start;
  }
  px_status status = put_all(&w, members);
  if (status != PX_OK) return px__free(w.text.at), status;
  *out = w.text.at;
  return PX_OK;
}
