// SPDX-License-Identifier: Apache-2.0
// Summaries of profiles: how long each device was busy with each class of work, and its critical
// path. The path is a chain of work to the end of the profile: before each unit, the last one to
// end before it began. Time between links is host time.
#include "device/profile/report_impl.h"

#include <stdio.h>
#include <stdlib.h>

// ---- spans

static int compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_start(const void *a, const void *b) {
  const px__span *x = a, *y = b;
  int order = compare(x->start, y->start);
  return order ? order : compare(x->number, y->number);
}

static int by_end(const void *a, const void *b) {
  const px__span *x = *(px__span *const *)a, *y = *(px__span *const *)b;
  int order = compare(x->end, y->end);
  return order ? order : by_start(x, y);
}

// True if an op or node has no enclosing op or node.
static bool is_outermost(const px_profile *profile, const px_profile_event *e) {
  px_profile_event above;
  for (int64_t i = e->parent; px_profile_event_at(profile, i, &above); i = above.parent)
    if (above.kind != PX_PROFILE_RANGE) return false;
  return true;
}

static bool span_of(px__span *out, const px_profile *profile, int64_t i) {
  px_profile_event e;
  px_profile_event_at(profile, i, &e);
  bool work = e.kind == PX_PROFILE_DEVICE, part = e.kind == PX_PROFILE_RANGE;
  if (e.kind == PX_PROFILE_MEMORY || (!work && !part && !is_outermost(profile, &e))) return false;
  *out = (px__span){.start = e.start, .end = e.end, .number = i};
  out->lane = work ? e.stream : e.thread;
  out->device = work ? e.device.index : -1;
  out->class = work ? (int)e.work : part ? PX__SPAN_PART : PX__SPAN_HOST;
  return true;
}

// Sorting by end allows a binary search. It terminates: each link ends before the next one begins.
static void mark_chain(px__span **ended, int64_t count) {
  for (int64_t at = count - 1; at >= 0;) {
    px__span *link = ended[at];
    link->critical = true;
    int64_t low = 0, high = at;  // the first that ends after the link's start is in [low, high]
    while (low < high) {
      int64_t middle = low + (high - low) / 2;
      if (ended[middle]->end <= link->start)
        low = middle + 1;
      else
        high = middle;
    }
    at = low - 1;
  }
}

static void mark_critical(px__spans *s, px__span **order, int device) {
  int64_t count = 0;
  for (int64_t i = 0; i < s->count; i++)
    if (s->rows[i].device == device) order[count++] = &s->rows[i];
  qsort(order, (size_t)count, sizeof(px__span *), by_end);
  mark_chain(order, count);
}

px_status px__spans_of(px__spans *out, const px_profile *profile) {
  px_profile_event e;
  int64_t count = 0;
  *out = (px__spans){0};
  for (; px_profile_event_at(profile, count, &e); count++)
    if (e.kind == PX_PROFILE_DEVICE && e.device.index >= out->devices)
      out->devices = e.device.index + 1;
  px__span **order = NULL;
  PX_TRY(px__alloc((void **)&out->rows, (size_t)(count + 1) * sizeof *out->rows));
  px_status status = px__alloc((void **)&order, (size_t)(count + 1) * sizeof(px__span *));
  if (status != PX_OK) return px__free(out->rows), out->rows = NULL, status;
  for (int64_t i = 0; i < count; i++) out->count += span_of(&out->rows[out->count], profile, i);
  qsort(out->rows, (size_t)out->count, sizeof *out->rows, by_start);
  for (int d = 0; d < out->devices; d++) mark_critical(out, order, d);
  px__free(order);
  if (out->count) out->start = out->end = out->rows[0].start;
  for (int64_t i = 0; i < out->count; i++)
    if (out->rows[i].end > out->end) out->end = out->rows[i].end;
  return PX_OK;
}

// ---- memory

static int by_time(const void *a, const void *b) {
  return compare(((const px__level *)a)->time, ((const px__level *)b)->time);
}

px_status px__levels_of(px__levels *out, const px_profile *profile) {
  px_profile_event e;
  int64_t count = 0, bytes = 0;
  *out = (px__levels){0};
  for (int64_t i = 0; px_profile_event_at(profile, i, &e); i++) count += e.device_bytes != 0;
  PX_TRY(px__alloc((void **)&out->rows, (size_t)(count + 1) * sizeof *out->rows));
  for (int64_t i = 0; px_profile_event_at(profile, i, &e); i++)
    if (e.device_bytes) out->rows[out->count++] = (px__level){e.end, e.device_bytes};
  qsort(out->rows, (size_t)count, sizeof *out->rows, by_time);
  for (int64_t i = 0; i < count; i++) {
    out->rows[i].bytes = bytes += out->rows[i].bytes;
    if (bytes > out->peak) out->peak = bytes;
  }
  return PX_OK;
}

// ---- summary of a device

enum {
  KERNELS = 1 << PX_PROFILE_KERNEL,
  COPIES = 1 << PX_PROFILE_COPY,
  COLLECTIVES = 1 << PX_PROFILE_COLLECTIVE
};

// Returns the time with at least one unit of the classes running.
static int64_t busy_time(const px__spans *s, int device, int classes) {
  int64_t sum = 0, until = INT64_MIN;
  for (int64_t i = 0; i < s->count; i++) {
    const px__span *x = &s->rows[i];
    if (x->device != device || !(classes >> x->class & 1)) continue;
    int64_t from = x->start > until ? x->start : until;
    if (x->end > from) sum += x->end - from, until = x->end;
  }
  return sum;
}

static int64_t critical(const px__spans *s, int device, int class) {
  int64_t sum = 0;
  for (int64_t i = 0; i < s->count; i++)
    if (s->rows[i].critical && s->rows[i].device == device && s->rows[i].class == class)
      sum += s->rows[i].end - s->rows[i].start;
  return sum;
}

static px_profile_summary summary_of(const px__spans *s, int device) {
  px_profile_summary r = {0};
  for (int64_t i = 0; i < s->count; i++) {
    if (s->rows[i].device != device) continue;
    if (!r.count++) r.start = s->rows[i].start;
    if (s->rows[i].end > r.end) r.end = s->rows[i].end;
  }
  r.kernels = busy_time(s, device, KERNELS);
  r.copies = busy_time(s, device, COPIES);
  r.collectives = busy_time(s, device, COLLECTIVES);
  r.busy = busy_time(s, device, KERNELS | COPIES | COLLECTIVES);
  r.overlap = r.kernels + busy_time(s, device, COPIES | COLLECTIVES) - r.busy;
  r.critical_kernels = critical(s, device, PX_PROFILE_KERNEL);
  r.critical_copies = critical(s, device, PX_PROFILE_COPY);
  r.critical_collectives = critical(s, device, PX_PROFILE_COLLECTIVE);
  r.critical_host =
      r.end - r.start - r.critical_kernels - r.critical_copies - r.critical_collectives;
  return r;
}

px_status px_profile_summarize(px_profile_summary *out, const px_profile *profile,
                               px_device device) {
  px__spans spans;
  PX_GIVEN(out);
  PX_GIVEN(profile);
  PX_TRY(px__spans_of(&spans, profile));
  *out = summary_of(&spans, device.type == PX_CUDA ? device.index : -2);
  px__free(spans.rows);
  return PX_OK;
}

// ---- table

static double ms(int64_t nanoseconds) { return (double)nanoseconds / 1e6; }

// A step ends with its last work. Its time counts from the end of the step before.
typedef struct step {
  char name[40];
  int64_t start, end;
  int64_t before;  // end of the step before; -1: none
  bool open;
} step;

static void end_step(px__text *text, step *s) {
  if (!s->open) return;
  int64_t since = s->before >= 0 ? s->before : s->start;
  px__text_add(text, "%-24s  %12.3f\n", s->name, ms(s->end - since));
  s->before = s->end;
  s->open = false;
}

static void add_steps(px__text *text, const px_profile *profile) {
  static const char prefix[] = "ProfilerStep";
  px_profile_event e;
  step s = {.before = -1};
  for (int64_t i = 0; px_profile_event_at(profile, i, &e); i++) {
    bool begins = e.kind == PX_PROFILE_RANGE && !strncmp(e.name, prefix, sizeof prefix - 1);
    if (begins) {
      if (s.before < 0 && !s.open) px__text_add(text, "%-24s  %12s\n", "Step", "ms");
      end_step(text, &s);
      snprintf(s.name, sizeof s.name, "%s", e.name);
      s.start = e.start, s.end = e.end, s.open = true;
    }
    if (s.open && e.kind == PX_PROFILE_DEVICE && e.end > s.end) s.end = e.end;
  }
  end_step(text, &s);
}

static void add_devices(px__text *text, const px__spans *spans) {
  bool headed = false;
  for (int device = 0; device < spans->devices; device++) {
    px_profile_summary r = summary_of(spans, device);
    if (!r.count) continue;
    if (!headed)
      px__text_add(text, "%-8s %10s %10s %10s %10s %12s %10s   %s\n", "Device", "Span ms", "Busy",
                   "Kernels", "Copies", "Collectives", "Overlap",
                   "Critical path: kernels, copies, collectives, host");
    headed = true;
    px__text_add(text,
                 "cuda:%-3d %10.3f %10.3f %10.3f %10.3f %12.3f %10.3f   %.3f %.3f %.3f %.3f\n",
                 device, ms(r.end - r.start), ms(r.busy), ms(r.kernels), ms(r.copies),
                 ms(r.collectives), ms(r.overlap), ms(r.critical_kernels), ms(r.critical_copies),
                 ms(r.critical_collectives), ms(r.critical_host));
  }
}

px_status px_profile_table(char **out, const px_profile *profile) {
  px__spans spans;
  px__levels levels;
  px__text text = {0};
  PX_GIVEN(out);
  PX_GIVEN(profile);
  PX_TRY(px__spans_of(&spans, profile));
  px_status status = px__levels_of(&levels, profile);
  if (status != PX_OK) return px__free(spans.rows), status;
  px__text_add(&text, "%s", "");
  add_steps(&text, profile);
  add_devices(&text, &spans);
  if (levels.count)
    px__text_add(&text, "Peak device memory allocated within the profile: %.3f MiB\n",
                 (double)levels.peak / (1 << 20));
  px__free(spans.rows);
  px__free(levels.rows);
  if (text.failed) return px__free(text.at), PX_NOMEM;
  *out = text.at;
  return PX_OK;
}
