// SPDX-License-Identifier: Apache-2.0
// The list of captured graphs, and the restrictions of active captures. `lock` guards the list and
// all recorded work.
#include "device/order/capture.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static px_graph *graphs;   // graphs with a capture, active or ended
static int active;         // atomic; number of active captures
static uint64_t captures;  // the last id

void px__captures_lock(void) { pthread_mutex_lock(&lock); }
void px__captures_unlock(void) { pthread_mutex_unlock(&lock); }

void px__capture_register(px_graph *g) {
  px__captures_lock();
  g->id = ++captures;
  g->active = true, g->invalid = false;
  g->next = graphs;
  graphs = g;
  __atomic_add_fetch(&active, 1, __ATOMIC_RELAXED);
  px__captures_unlock();
}

static void end(px_graph *g) {
  if (g->active) __atomic_sub_fetch(&active, 1, __ATOMIC_RELAXED);
  g->active = false;
}

void px__capture_unregister(px_graph *g) {
  px__captures_lock();
  px_graph **link = &graphs;
  while (*link && *link != g) link = &(*link)->next;
  if (*link) *link = g->next;
  end(g);
  px__captures_unlock();
}

// Lock held.
px_graph *px__capture_by_id(uint64_t capture) {
  px_graph *g = graphs;
  while (g && !(g->active && g->id == capture)) g = g->next;
  return g;
}

void px__capture_finish(px_graph *g) {
  px__captures_lock();
  end(g);
  px__captures_unlock();
}

bool px__capture_find_launch(px__work *out, uint64_t id) {
  bool found = false;
  px__captures_lock();
  for (const px_graph *g = graphs; g && !found; g = g->next)
    for (int64_t i = 0; i < g->work_count && !found; i++)
      if (g->works[i].id == id) *out = g->works[i], found = true;
  px__captures_unlock();
  return found;
}

// ---- restrictions

bool px__captures_any(void) { return __atomic_load_n(&active, __ATOMIC_RELAXED) != 0; }

bool px__capturing(void) {
  px__device *d;
  if (PX_LIKELY(!px__captures_any())) return false;
  if (px__device_get(&d, px_device_peek()) != PX_OK) return px_error_clear(), false;
  return px__capture_of(px__stream_now(d)) != 0;
}

px_status px__capture_refuse(const char *text) {
  PX_FAIL(PX_RUNTIME,
          "%s during CUDA graph capture. If you need this call to be captured, please file an "
          "issue. Current cudaStreamCaptureStatus: cudaStreamCaptureStatusActive",
          text);
}

px_status px__capture_invalidate(uint64_t capture, int code) {
  px__captures_lock();
  px_graph *g = px__capture_by_id(capture);
  if (g) g->invalid = true;
  px__captures_unlock();
  return px__error_cuda(code);
}

static bool is_restricted(const px_graph *g) {
  return g->active && (g->mode == PX_CAPTURE_GLOBAL || (g->mode == PX_CAPTURE_THREAD_LOCAL &&
                                                        pthread_equal(g->thread, pthread_self())));
}

px_status px__capture_check(const px_stream *stream) {
  if (PX_LIKELY(!px__captures_any())) return PX_OK;
  uint64_t own = stream ? px__capture_of(stream) : 0;
  if (own) return px__capture_invalidate(own, 900);
  bool forbidden = false;
  px__captures_lock();
  for (px_graph *g = graphs; g; g = g->next)
    if (is_restricted(g)) forbidden = g->invalid = true;
  px__captures_unlock();
  return forbidden ? px__error_cuda(900) : PX_OK;
}

px_status px__capture_check_device(px__device *d) {
  if (PX_LIKELY(!px__captures_any())) return PX_OK;
  int count = __atomic_load_n(&d->stream_count, __ATOMIC_ACQUIRE);
  for (int i = 0; i < count; i++)
    if (px__capture_of(d->streams[i])) return px__capture_check(d->streams[i]);
  return px__capture_check(NULL);
}
