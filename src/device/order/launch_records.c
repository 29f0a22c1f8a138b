// SPDX-License-Identifier: Apache-2.0
// Launch records: the origin of the latest PX__RING launches of a device, by id. Errors reported by
// a kernel are raised with the op and the line of its record.
#include "device/work/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const struct {
  px_status status;
  const char *text;
} faults[] = {{PX_OK, ""},
#define XX(name, status, text) {PX_##status, text},
              PX_FAULT_MAP(XX)
#undef XX
};

bool px__record_find(px__work *out, px__device *d, uint64_t id) {
  px__device_lock(d);
  *out = d->ring[id % PX__RING];
  px__device_unlock(d);
  return out->id == id || px__capture_find_launch(out, id);
}

bool px__record_before(px__work *out, const px_stream *stream, uint64_t seq) {
  const px__device *d = stream->owner;
  for (uint64_t id = d->launches; id && id + PX__RING > d->launches; id--) {
    const px__work *work = &d->ring[id % PX__RING];
    if (work->id != id || work->stream != stream || work->seq > seq) continue;
    *out = *work;
    return true;
  }
  return false;
}

px_status px__fault_error(px_fault_slot *slot) {
  int64_t code = __atomic_load_n(&slot->code, __ATOMIC_ACQUIRE);
  bool known = code > 0 && code < PX_COUNT_OF(faults);
  long long a = slot->a, b = slot->b, c = slot->c;
  slot->code = 0;
  __atomic_store_n(&slot->launch, 0, __ATOMIC_RELEASE);
  if (!known) PX_FAIL(PX_BUG, "a kernel reported an unknown fault %lld", (long long)code);
  char text[256];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  snprintf(text, sizeof text, faults[code].text, a, b, c);
#pragma GCC diagnostic pop
  return px_error_set(faults[code].status, 0, __FILE__, __LINE__, __func__, "%s", text);
}

// Adds the launch of an id to the thread's error.
static void note_launch(px__device *d, uint64_t id) {
  char stream[64], site[PX__SITE_TEXT];
  px__work work;
  if (!px__record_find(&work, d, id)) return;
  px__stream_text(work.stream, stream);
  if (work.caller && strcmp(work.caller, work.op))
    PX_NOTE("\nIt was reported by %s (kernel %s) on %s", work.caller, work.op, stream);
  else
    PX_NOTE("\nIt was reported by %s on %s", work.op, stream);
  if (*px__site_text(&work, site)) PX_NOTE(", launched%s", site);
}

// Returns the fault code of the device's slot, and the id of its launch.
static int64_t read_slot(const px__device *d, uint64_t *id) {
  const px_fault_slot *slot = d->slot;
  *id = slot ? __atomic_load_n(&slot->launch, __ATOMIC_ACQUIRE) : 0;
  return *id ? __atomic_load_n(&slot->code, __ATOMIC_ACQUIRE) : PX_FAULT_NONE;
}

static px_status raise_failed(px__device *d) {
  px_error *failed = __atomic_exchange_n(&d->callback_error, NULL, __ATOMIC_ACQ_REL);
  if (!failed) return PX_OK;
  px_status status = px_error_give(failed);
  px__free(failed);
  return status;
}

px_status px__fault_raise(px__device *d) {
  uint64_t id;
  if (PX_UNLIKELY(__atomic_load_n(&d->callback_error, __ATOMIC_RELAXED) != NULL))
    return raise_failed(d);
  int64_t code = read_slot(d, &id);
  if (PX_LIKELY(code == PX_FAULT_NONE) || code == PX_FAULT_BROKEN) return PX_OK;
  px_status status = px__fault_error(d->slot);
  note_launch(d, id);
  return status;
}

px_status px__broken_note(px__device *d, px_status status) {
  uint64_t id;
  if (status != PX_OK && read_slot(d, &id) == PX_FAULT_BROKEN) note_launch(d, id);
  return status;
}
// ---- exit
// ---- at the end of the program

enum { EXIT_WAIT = 200 };  // milliseconds, all devices together

static bool is_idle(px__device *d) {
  bool done = true;
  px_status status = PX_OK;  // a device that fails will report nothing more
  px__device_lock(d);
  for (int i = 0; i < d->stream_count && done && status == PX_OK; i++)
    if (!d->streams[i]->foreign)  // its owner may have ended it
      status = px__rt.backend->stream_query(d->streams[i]->native, &done);
  px__device_unlock(d);
  return done || status != PX_OK;
}

// Prints faults not raised by any call. Waits for running work, but not for long: a program must be
// able to exit while a kernel hangs.
static void print_faults(void) {
  const struct timespec pause = {.tv_nsec = 1000000};
  if (!px__device_alive()) return;
  for (int i = 0, waited = 0; i < px__rt.count; i++) {
    px__device *d = px__device_found(i);
    if (!d) continue;
    for (; waited < EXIT_WAIT && !is_idle(d); waited++) nanosleep(&pause, NULL);
    px_status status = px__fault_raise(d);
    if (status != PX_OK)
      dprintf(2, "phlox: the program ended before a call waited for this error: %s: %s\n",
              px_status_exception(status), px_error_last()->message);
  }
}

// Called once a device is open, so that this runs before the exit handlers of the backend.
void px__fault_watch(void) {
  static bool watched;  // atomic
  if (!__atomic_exchange_n(&watched, true, __ATOMIC_RELAXED)) (void)atexit(print_faults);
}
