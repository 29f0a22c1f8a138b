// SPDX-License-Identifier: Apache-2.0
// The race checker: compares every declared access of a launch or copy with the recent accesses of
// the same allocation.
//
// Two accesses race if their bytes overlap, one of them writes, and neither the streams' clocks nor
// a host wait orders them. Strided accesses do not overlap if one fits in the gaps of the other:
// neighbouring columns, even and odd rows. A race follows from the issued work, not from timing,
// and is found even when harmless. Reports and shadows are guarded by `lock`, the innermost lock
// except for spin locks.
#include "device/order/order.h"

#include <stdio.h>

enum { HISTORY = 1 << 20, REPORTS = 1024 };  // bytes of shadows per allocation; stored reports
struct px__shadow {                          // one recorded access
  px__shadow *next;
  size_t begin, end;
  px__work work;
  const char *owner;  // earlier owner of the memory, or NULL
  bool write;
  px__gap gaps[PX__GAPS];
};

int px__race_on = -1;
static bool raises = true;  // atomic
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *reports[REPORTS];
static int64_t report_count;  // includes reports not stored

void px_race_enable(int level, bool raise) {
  __atomic_store_n(&raises, raise, __ATOMIC_RELAXED);
  __atomic_store_n(&px__race_on, level > 0, __ATOMIC_RELAXED);
}

px_status px__race_asked(bool *out) {
  bool ours, theirs;
  PX_TRY(px__env_PHLOX_SANITIZE(&ours));
  PX_TRY(px__env_TORCH_CUDA_SANITIZER(&theirs));
  *out = ours || theirs;
  return PX_OK;
}

bool px__race_start(void) {
  bool asked;
  if (px__race_asked(&asked) != PX_OK) return px_error_clear(), false;  // px_device_init reports it
  int unset = -1, on = asked;
  __atomic_compare_exchange_n(&px__race_on, &unset, on, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return __atomic_load_n(&px__race_on, __ATOMIC_RELAXED) > 0;
}

int px_race_level(void) { return px__races(); }

int64_t px_race_count(void) {
  pthread_mutex_lock(&lock);
  int64_t count = report_count;
  pthread_mutex_unlock(&lock);
  return count;
}

const char *px_race_report(int64_t i) {
  pthread_mutex_lock(&lock);
  const char *text = i >= 0 && i < report_count && i < REPORTS ? reports[i] : NULL;
  pthread_mutex_unlock(&lock);
  return text;
}

void px_race_clear(void) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < REPORTS; i++) {
    px__free(reports[i]);
    reports[i] = NULL;
  }
  report_count = 0;
  pthread_mutex_unlock(&lock);
}

// Takes and stores the report (without memory, only counts it). Raises it if configured.
static px_status store_report(const px__text *text) {
  const char *at = text->at ? text->at : "a race was found, but there is no memory to describe it";
  px_status status = PX_OK;
  if (__atomic_load_n(&raises, __ATOMIC_RELAXED))
    status = px_error_set(PX_RUNTIME, 0, __FILE__, __LINE__, __func__, "%s", at);
  pthread_mutex_lock(&lock);
  bool kept = report_count < REPORTS;
  if (kept) reports[report_count] = text->at;
  report_count++;
  pthread_mutex_unlock(&lock);
  if (!kept) px__free(text->at);
  return status;
}

static void add_site(px__text *text, const px__work *work) {
  char site[PX__SITE_TEXT];
  px__text_add(text, "%s", px__site_text(work, site));
}

// The origin of the calling thread's own access, on the host.
static void add_own_site(px__text *text) {
  px__work own = {.op = NULL};
  px__work_find_site(&own, NULL);
  add_site(text, &own);
}

// ---- accesses of streams
// True if work `seq` of a stream is ordered before later work of `after`, or of the host (NULL).
static bool is_ordered(const px_stream *stream, uint64_t seq, const px_stream *after) {
  return stream == after || px__synced(stream) >= seq ||
         (after && px__clock_at(&after->clock, stream->index) >= seq);
}

// Adds how to reproduce the wrong result: starve the stream of the earlier work on simulated
// devices. The simulator numbers streams in the order of their creation.
static void add_replay(px__text *text, const px__work *before) {
  if (before->capture || before->stream->foreign) return;
  px__text_add(text,
               "\nTo reproduce: without the checker, on simulated devices, PHLOX_SIM_MODE=schedule "
               "PHLOX_SIM_STARVE=%d runs the later operation first.",
               before->stream->index);
}

static px_status report(const px__shadow *earlier, const px__work *work, const px_access *access) {
  char first[64], second[64], device[PX_DEVICE_TEXT];
  const px__work *before = &earlier->work;
  const char *who = earlier->owner ? earlier->owner : before->op;
  px__text text = {0};
  px__stream_text(before->stream, first);
  px__stream_text(work->stream, second);
  px__text_add(&text, "Phlox found a race on %zu bytes of %s at %p, bytes [%zu, %zu).\n",
               access->allocation->bytes, px_device_format(access->allocation->device, device),
               access->allocation->data, access->begin, access->end);
  px__text_add(&text, "  %s %s it on %s (operation %llu)", work->op,
               access->write ? "writes" : "reads", second, (unsigned long long)work->seq);
  add_site(&text, work);
  px__text_add(&text, "\n  %s %s bytes [%zu, %zu) of it on %s (operation %llu)", who,
               earlier->write ? "wrote" : "read", earlier->begin, earlier->end, first,
               (unsigned long long)before->seq);
  if (earlier->owner && before->op) px__text_add(&text, ", by %s or earlier", before->op);
  add_site(&text, before);
  px__text_add(&text,
               "\nThe two are unordered. Missing: %s must wait for %s after the latter's "
               "operation %llu (wait_stream, or an event recorded there and waited for here), or "
               "the host must synchronize in between.",
               second, first, (unsigned long long)before->seq);
  add_replay(&text, before);
  return store_report(&text);
}

static size_t divisor(size_t a, size_t b) {
  while (b) {
    size_t rest = a % b;
    a = b, b = rest;
  }
  return a;
}

// True if two series of byte windows never overlap. Each repeats every `pitch` bytes; the second
// starts `from` bytes after the first. Pitch 0 is a single window; two of those do overlap.
static bool windows_apart(size_t pitch_a, size_t width_a, size_t pitch_b, size_t width_b,
                          int64_t from) {
  size_t pitch = divisor(pitch_a, pitch_b);
  if (!pitch || width_a > pitch || width_b > pitch) return false;
  size_t back = (size_t)(from < 0 ? -from : from) % pitch;
  size_t apart = from >= 0 || !back ? back : pitch - back;
  return apart >= width_a && apart + width_b <= pitch;
}

// Window i of an access: 0 is the whole access, i is gap i - 1. False past the last.
static bool window_of(const px__gap *gaps, size_t bytes, int i, size_t *pitch, size_t *width) {
  *pitch = i ? gaps[i - 1].pitch : 0;
  *width = i ? gaps[i - 1].width : bytes;
  return i == 0 || *pitch;
}

// True if one access fits in the gaps of the other. Each window series contains its whole access,
// so one pair without overlap suffices.
static bool interleaved(const px__shadow *s, const px_access *a) {
  size_t pitch_s, width_s, pitch_a, width_a;
  int64_t from = (int64_t)a->begin - (int64_t)s->begin;
  for (int i = 0; i <= PX__GAPS; i++) {
    if (!window_of(s->gaps, s->end - s->begin, i, &pitch_s, &width_s)) break;
    for (int k = 0; k <= PX__GAPS; k++) {
      if (!window_of(a->gaps, a->end - a->begin, k, &pitch_a, &width_a)) break;
      if (windows_apart(pitch_s, width_s, pitch_a, width_a, from)) return true;
    }
  }
  return false;
}

// True if both run when issued, or belong to one capture. Captured work runs at replays, in an
// order unknown here.
static bool run_in_same_order(const px__shadow *s, const px_stream *stream) {
  return s->work.capture == (stream ? px__capture_of(stream) : 0);
}

static bool conflicts(const px__shadow *s, const px_access *a, const px_stream *stream) {
  return run_in_same_order(s, stream) && (s->write || a->write) && s->begin < a->end &&
         a->begin < s->end && !is_ordered(s->work.stream, s->work.seq, stream) &&
         !interleaved(s, a);
}

// True if each window of the new access is also one of the shadow's, and no narrower.
static bool windows_cover(const px__shadow *s, const px_access *a) {
  for (int i = 0; i < PX__GAPS && a->gaps[i].pitch; i++)
    if (s->gaps[i].pitch != a->gaps[i].pitch || s->gaps[i].width > a->gaps[i].width) return false;
  return !a->gaps[0].pitch || s->begin == a->begin;
}

// True if the new access replaces the shadow: the shadow is ordered before and contained, and every
// access in conflict with the shadow conflicts with the new one too.
static bool is_covered(const px__shadow *s, const px_access *a, const px_stream *stream) {
  return a->begin <= s->begin && s->end <= a->end && (a->write || !s->write) &&
         run_in_same_order(s, stream) && windows_cover(s, a) &&
         is_ordered(s->work.stream, s->work.seq, stream);
}

// No later access conflicts with work the host has waited for, or with another capture's.
static bool is_expired(const px__shadow *s, const px_stream *stream) {
  if (s->work.capture) return !run_in_same_order(s, stream);
  return is_ordered(s->work.stream, s->work.seq, NULL);
}

// True if the same work already wrote these bytes: its read adds nothing.
static bool is_written(const px__shadow *s, const px__work *work, const px_access *a) {
  for (; s && s->work.stream == work->stream && s->work.seq == work->seq; s = s->next) {
    bool within = s->begin <= a->begin && a->end <= s->end;
    bool alike = s->begin == a->begin && !memcmp(s->gaps, a->gaps, sizeof s->gaps);
    if (s->write && within && (alike || !s->gaps[0].pitch)) return true;
  }
  return false;
}

// Lock held. Unlinks a shadow for reuse: the first covered or expired one, or the oldest at the
// limit.
static px__shadow *reuse(px__allocation *allocation, const px_access *access,
                         const px_stream *stream) {
  px__shadow **link = &allocation->shadow, **last = NULL;
  int count = 0;
  for (; *link; link = &(*link)->next, count++) {
    last = link;
    if (is_covered(*link, access, stream) || is_expired(*link, stream)) break;
  }
  if (!*link) link = count >= HISTORY / (int)sizeof **link ? last : NULL;
  if (!link) return NULL;
  px__shadow *found = *link;
  __atomic_store_n(link, found->next, __ATOMIC_RELAXED);
  return found;
}

static void remember(px__allocation *allocation, const px__work *work, const px_access *access,
                     const char *owner) {
  if (is_written(allocation->shadow, work, access)) return;
  px__shadow *shadow = reuse(allocation, access, work->stream);
  if (!shadow && !(shadow = malloc(sizeof *shadow))) return;  // no fault point: a debugging aid
  *shadow = (px__shadow){.next = allocation->shadow,
                         .begin = access->begin,
                         .end = access->end,
                         .work = *work,
                         .owner = owner,
                         .write = access->write};
  memcpy(shadow->gaps, access->gaps, sizeof shadow->gaps);
  __atomic_store_n(&allocation->shadow, shadow, __ATOMIC_RELAXED);
}

// Lock held. Finds a conflict with an access by a stream, or by the host (NULL).
static bool find_conflict(px__shadow *out, const px_access *access, const px_stream *stream) {
  for (const px__shadow *s = px__allocation_of(access->allocation)->shadow; s; s = s->next)
    if (conflicts(s, access, stream)) return *out = *s, true;
  return false;
}

// Refused work is not issued and leaves no shadows. Access i belongs to works[i * step].
static px_status check(const px__work *works, int step, const px_access *accesses, int count) {
  px__shadow found[PX_MAX_OPERANDS];
  int late[PX_MAX_OPERANDS], n = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < count && n < PX_MAX_OPERANDS; i++)
    if (px__access_given(&accesses[i]) &&
        find_conflict(&found[n], &accesses[i], works[i * step].stream))
      late[n++] = i;
  bool refused = n && __atomic_load_n(&raises, __ATOMIC_RELAXED);
  for (int i = 0; i < count && !refused; i++)
    if (px__access_given(&accesses[i]))
      remember(px__allocation_of(accesses[i].allocation), &works[i * step], &accesses[i], NULL);
  pthread_mutex_unlock(&lock);
  px_status status = PX_OK;
  for (int i = 0; i < n && status == PX_OK; i++)
    status = report(&found[i], &works[late[i] * step], &accesses[late[i]]);
  return status;
}

px_status px__race_accesses(const px__work *work, const px_access *accesses, int count) {
  return check(work, 0, accesses, count);
}

px_status px__race_works(const px__work *works, const px_access *accesses, int count) {
  return check(works, 1, accesses, count);
}

void px__race_forget(px__allocation *allocation) {
  pthread_mutex_lock(&lock);
  while (allocation->shadow) {
    px__shadow *shadow = allocation->shadow;
    __atomic_store_n(&allocation->shadow, shadow->next, __ATOMIC_RELAXED);
    free(shadow);
  }
  pthread_mutex_unlock(&lock);
}

void px__race_inherit(px__allocation *allocation, px_stream *stream, uint64_t seq) {
  px__work work = {.op = NULL};
  px_access all = {.allocation = &allocation->pub, .end = allocation->pub.bytes, .write = true};
  (void)px__record_before(&work, stream, seq);
  work.stream = stream, work.seq = seq, work.capture = px__capture_of(stream);
  pthread_mutex_lock(&lock);
  remember(allocation, &work, &all, "the memory's earlier owner");
  pthread_mutex_unlock(&lock);
}

// ---- accesses of the host
static px_status report_host(const char *op, const px__shadow *copy, const px_access *access) {
  char stream[64];
  px__text text = {0};
  px__stream_text(copy->work.stream, stream);
  px__text_add(&text,
               "Phlox found a race on %zu bytes of page-locked memory at %p.\n  %s %s it on the "
               "host",
               access->allocation->bytes, access->allocation->data, op,
               access->write ? "writes" : "reads");
  add_own_site(&text);
  px__text_add(&text, "\n  %s, possibly unfinished, %s it on %s (operation %llu)", copy->work.op,
               copy->write ? "writes" : "reads", stream, (unsigned long long)copy->work.seq);
  add_site(&text, &copy->work);
  px__text_add(
      &text,
      "\nThe two are unordered. Missing: synchronize %s, or an event recorded after the copy, "
      "before the host accesses the memory.",
      stream);
  return store_report(&text);
}

px_status px__race_host(const char *op, const px_access *access) {
  px__shadow found;
  pthread_mutex_lock(&lock);
  bool late = find_conflict(&found, access, NULL);
  pthread_mutex_unlock(&lock);
  return late ? report_host(op, &found, access) : PX_OK;
}

px_status px__race_nothing(px_stream *stream) {
  char name[64];
  px__text text = {0};
  px__text_add(&text,
               "Phlox found a wait on nothing: %s waits for an event that was never recorded",
               px__stream_text(stream, name));
  add_own_site(&text);
  px__text_add(&text, "\nThe wait has no effect. Record the event before the wait.");
  return store_report(&text);
}
