// SPDX-License-Identifier: Apache-2.0
// Scopes of fusion on a thread, and the times at which records run.
#include "call/fusion/fusion.h"

bool px_fuse_active(void) { return px__fuses_here(); }
bool px_fuse_pause(void) {
  bool before = px__fusion_here.off;
  px__fusion_here.off = true;
  return before;
}
void px_fuse_resume(bool before) { px__fusion_here.off = before; }

px_status px_fuse_begin(void) {
  enum { MAX_DEPTH = 32767 };
  PX_CHECK(px__fusion_here.depth < MAX_DEPTH, PX_RUNTIME, "px_fuse_begin: %d scopes have begun",
           MAX_DEPTH);
  if (!px__fusion_here.depth++) __atomic_add_fetch(&px__special_calls, 1, __ATOMIC_RELAXED);
  return PX_OK;
}

static bool is_saved_here(const px__deferred *d) { return px__is_recorded_here(d) && d->storage; }
static bool is_held_on_device(const px__deferred *d) {
  return d->allocation.device.type != PX_CPU && px__is_held(d);
}

// Bytes of an input's memory that only records hold, divided among them.
static size_t kept_bytes(const px__source *s) {
  const px_storage *read = s->deferred ? s->deferred->storage : s->storage;
  if (!read || (s->deferred && !s->deferred->computed)) return 0;
  uint32_t readers = read->allocation->readers;
  uint32_t own = s->deferred ? 1 : readers;  // a computed record has one reference for all readers
  return readers && (uint32_t)read->head.refs <= own ? read->allocation->bytes / readers : 0;
}

// True if the inputs that the records keep alive take more memory than the results, which wait for
// a backward pass.
static bool keeps_more(void) {
  size_t inputs = 0, results = 0;
  for (const px__deferred *d = px__records_oldest; d; d = d->after) {
    if (!px__is_recorded_here(d)) continue;
    if (d->storage) results += d->allocation.bytes;
    for (int i = 1; i < PX_MAX_OPERANDS; i++) inputs += kept_bytes(&d->sources[i]);
  }
  return inputs > results;
}

// Computes what waits for a backward pass, unless that takes more memory than waiting.
static px_status run_saved(void) {
  px__records_lock();
  bool more = keeps_more();
  px__records_unlock();
  return more ? px__chain_run_all(is_saved_here) : PX_OK;
}

px_status px_fuse_end(px_status so_far) {
  PX_CHECK(px__fusion_here.depth > 0, PX_RUNTIME, "px_fuse_end: no px_fuse_begin precedes it");
  if (--px__fusion_here.depth) return so_far;
  px__error_guard error;
  if (so_far != PX_OK) px__error_save(&error);
  px_status status = px__chain_run_all(px__is_held_here);
  if (status == PX_OK) status = run_saved();
  __atomic_sub_fetch(&px__special_calls, 1, __ATOMIC_RELAXED);
  if (so_far == PX_OK) return status;
  px__error_restore(&error);
  return so_far;
}

// ---- hooks of the lower layers

static px_status run(px_storage *storage) {
  px__records_lock();
  px__deferred *d = storage->deferred;
  px_status status = d ? px__chain_run(&d, 1) : PX_OK;
  px__records_unlock();
  return status;
}

// Returns a record that reads the allocation, or NULL.
static px__deferred *reader_of(const px_allocation *allocation) {
  for (px__deferred *d = px__records_oldest; d; d = d->after)
    for (int i = 0; i < PX_MAX_OPERANDS && !d->pins; i++) {  // pins: it runs already
      const px__source *s = &d->sources[i];
      const px_storage *read = s->deferred ? s->deferred->storage : s->storage;
      if (read && read->allocation == allocation) return d;
    }
  return NULL;
}

static px_status run_readers(px_allocation *written) {
  px_status status = PX_OK;
  px__records_lock();
  for (px__deferred *d; status == PX_OK && (d = reader_of(written));) status = px__chain_run(&d, 1);
  px__records_unlock();
  return status;
}

static px_status issue_on_devices(void) {
  return px__record_count ? px__chain_run_all(is_held_on_device) : PX_OK;
}

static __attribute__((constructor)) void set_hooks(void) {
  static const px__deferred_hooks hooks = {run, px__deferred_drop};
  px__deferred_hooks_set = &hooks;
  px__readers_run = run_readers;
  if (px__env_PHLOX_FUSE(&px__fusion_always) != PX_OK) px_error_clear();  // raised by a later call
  if (px__fusion_always) __atomic_add_fetch(&px__special_calls, 1, __ATOMIC_RELAXED);
  px__recorded_issue = issue_on_devices;
}
