// SPDX-License-Identifier: Apache-2.0
// Launch batching: a thread collects launches, packed into a buffer, and the backend gets them in
// one call, perhaps as a single launch of the device. A batch has one stream and no dependences
// inside. A launch with a dependence, and other work of the thread, is issued after the batch.
// Batching is therefore unobservable except in speed.
#include "device/work/work.h"

enum { BUFFER = 64 << 10 };

// A launch of the batch; its copy is in the buffer.
typedef struct batched {
  px__work work;
  px_launch *launch;
  px_access accesses[PX_MAX_OPERANDS];
  int count;
} batched;
typedef struct batch {
  px__device *device;
  px_stream *stream;
  const px_allocation *parts;  // written by several launches, in disjoint parts
  uint32_t mark;               // the batch's id in the allocations it accesses
  int count;
  size_t used;            // bytes of the buffer
  px_status status;       // the first failure
  px__error_guard error;  // its error, if not returned to the caller yet
  bool unreported;
  batched launches[PX__LAUNCH_BATCH_LIMIT];
  _Alignas(16) char buffer[BUFFER];
} batch;
static _Thread_local batch *here;  // NULL until the thread batches a launch

// Returns a batch id. Not 0, the mark of allocations in no batch.
static uint32_t new_mark(void) {
  static uint32_t last;
  uint32_t mark = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
  return mark ? mark : new_mark();
}

static px_status start(void) {
  if (here) return PX_OK;
  PX_TRY(px__realloc((void **)&here, sizeof *here));
  here->stream = NULL, here->count = 0, here->used = 0, here->mark = new_mark(),
  here->status = PX_OK;
  here->unreported = false, here->parts = NULL;
  return PX_OK;
}

// ---- dependences

static px__allocation *allocation_of(const px_access *access) {
  return px__access_given(access) ? px__allocation_of(access->allocation) : NULL;
}

static bool is_dependent(const batch *t, const px_access *accesses, int count) {
  for (int i = 0; i < count; i++) {
    const px__allocation *b = allocation_of(&accesses[i]);
    if (!b || (accesses[i].write && accesses[i].allocation == t->parts)) continue;
    if (__atomic_load_n(&b->written_by, __ATOMIC_RELAXED) == t->mark) return true;
    if (accesses[i].write && __atomic_load_n(&b->read_by, __ATOMIC_RELAXED) == t->mark) return true;
  }
  return false;
}

static void mark(const batch *t, const px_access *accesses, int count) {
  for (int i = 0; i < count; i++) {
    px__allocation *b = allocation_of(&accesses[i]);
    if (b)
      __atomic_store_n(accesses[i].write ? &b->written_by : &b->read_by, t->mark, __ATOMIC_RELAXED);
  }
}

// ---- issue

static px_status launch_all(batch *t, int count) {
  const px_launch *launches[PX__LAUNCH_BATCH_LIMIT];
  const px_backend *backend = px__rt.backend;
  void *stream = t->stream->native;
  for (int i = 0; i < count; i++) launches[i] = t->launches[i].launch;
  if (PX__BACKEND_HAS(backend, launch_all)) return backend->launch_all(stream, launches, count);
  for (int i = 0; i < count; i++) PX_TRY(backend->launch(stream, launches[i]));
  return PX_OK;
}

static px_status number_all(batch *t, int count) {
  for (int i = 0; i < count; i++) {
    batched *l = &t->launches[i];
    PX_TRY(px__work_number(&l->work, l->accesses, l->count));
    l->launch->id = l->work.id;
  }
  return PX_OK;
}

static px_status issue(batch *t, int count) {
  px__device_lock(t->device);
  px_status status = number_all(t, count);
  px__scratch_here.device = t->device;
  if (status == PX_OK) status = launch_all(t, count);
  px__scratch_here.device = NULL;
  for (int i = 0; i < count; i++) px__profile_work_end(t->launches[i].work.profiled);
  px__device_unlock(t->device);
  return px__launch_finish(t->device, status);
}

static px_status flush(void) {
  batch *t = here;
  if (!t || !t->count) return PX_OK;
  int count = t->count;
  t->count = 0, t->used = 0, t->mark = new_mark();
  px_status status = issue(t, count);
  if (PX_UNLIKELY(status != PX_OK) && t->status == PX_OK) t->status = status;
  return status;
}

// ---- batching

static bool fits(const batch *t, size_t bytes, int accesses) {
  return t->count < PX__LAUNCH_BATCH_LIMIT && bytes <= BUFFER - t->used &&
         accesses <= PX_MAX_OPERANDS;
}

px_status px__launch_batch_add(bool *taken, px__device *d, px_stream *stream,
                               const px_launch *launch, const px_access *accesses, int count) {
  PX_TRY(start());
  batch *t = here;
  size_t bytes = px__launch_pack(launch, NULL, 0);
  if (t->stream != stream || is_dependent(t, accesses, count) || !fits(t, bytes, count))
    PX_TRY(flush());
  *taken = fits(t, bytes, count);
  if (!*taken) return PX_OK;
  batched *l = &t->launches[t->count++];
  l->launch = (px_launch *)(void *)(t->buffer + t->used);
  t->used += px__launch_pack(launch, l->launch, bytes);
  px__launch_bind(l->launch, d, stream);
  t->device = d, t->stream = stream;
  memcpy(l->accesses, accesses, (size_t)count * sizeof *accesses);
  l->count = count;
  px__work_describe(&l->work, stream, launch->op, accesses, count);
  l->work.profiled = 0;
  mark(t, accesses, count);
  return PX_OK;
}

static void release(const px__allocation *allocation) {
  batch *t = here;
  if (!t || !t->count) return;
  if (__atomic_load_n(&allocation->written_by, __ATOMIC_RELAXED) != t->mark &&
      __atomic_load_n(&allocation->read_by, __ATOMIC_RELAXED) != t->mark)
    return;
  px__error_guard outer;
  px__error_save(&outer);
  bool first = t->status == PX_OK;
  if (flush() != PX_OK && first) {
    t->unreported = true;
    px__error_save(&t->error);
  }
  px__error_restore(&outer);
}

// ---- begin and end

void px__launch_batch_begin(void) {
  static const px__launch_batch_hooks collector = {flush, release};
  px__launch_batching = &collector;
}

px_status px__launch_batch_parts(const px_allocation *allocation) {
  PX_TRY(start());
  here->parts = allocation;
  return PX_OK;
}

bool px__launch_batch_active(void) { return px__launch_batching != NULL; }

px_status px__launch_batch_end(void) {
  batch *t = here;
  px__launch_batching = NULL;
  if (!t) return PX_OK;
  (void)!flush();
  px_status status = t->status;
  if (t->unreported) px__error_restore(&t->error);
  here = NULL;
  px__free(t);
  return status;
}
