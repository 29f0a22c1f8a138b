// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory, cached. Sizes above 1 MiB are rounded to pages, not to powers of two.
//
// A freed block is reused only when the copies that use it are done; those copies left a mark in
// their stream. Everything here is guarded by `lock`, which comes before devices' locks.
#include "device/state.h"

#include <stdio.h>
#include <time.h>

enum {
  PAGE = 4096,
  EXACT_FROM = 1 << 20,
  WASTE = 8
};  // a block may be larger than the request by size/WASTE

typedef struct pin {
  px__block block;  // first
  px__node node;
  struct pin *next;  // in pending
} pin;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static px__node *idle;
static pin *pending;
// Also the statistics' current numbers.
static struct {
  px__stat active_requests, active_bytes, allocated_bytes, allocations;
  int64_t num_host_alloc, num_host_free;
  struct {
    int64_t total, max, min, count;
  } alloc_time, free_time;  // microseconds
} stats;

static pin *pin_of(px__node *node) {
  return node ? (pin *)((char *)node - offsetof(pin, node)) : NULL;
}

// Four size classes for each power of two up to 1 MiB, pages above.
static size_t round_size(size_t bytes) {
  size_t grain = PAGE;
  if (bytes < 256) return 256;
  if (bytes <= EXACT_FROM) grain = (size_t)1 << (63 - __builtin_clzll(bytes - 1) - 2);
  return (bytes + grain - 1) / grain * grain;
}

static int64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void count_time(int64_t *total, int64_t *max, int64_t *min, int64_t *count, int64_t since) {
  int64_t took = now_us() - since;
  *total += took;
  if (took > *max) *max = took;
  if (!*count || took < *min) *min = took;
  ++*count;
}
#define COUNT_TIME(which, since) \
  count_time(&stats.which.total, &stats.which.max, &stats.which.min, &stats.which.count, since)

static void release(pin *p) {
  int64_t since = now_us();
  px__rt.backend->host_release((void *)p->node.address);
  COUNT_TIME(free_time, since);
  stats.num_host_free++;
  px__stat_move(&stats.allocated_bytes, -(int64_t)p->node.size);
  px__stat_move(&stats.allocations, -1);
  px__block_drop_uses(&p->block);
  px__free(p);
}

// Asks the streams of the uses what is done.
static bool is_done(pin *p) {
  for (int i = 0; i < p->block.use_count; i++) {
    px_stream *stream = p->block.uses[i].stream;
    if (px__completed(stream) >= p->block.uses[i].seq) continue;
    px__device_lock(stream->owner);
    px__stream_poll(stream);
    px__device_unlock(stream->owner);
  }
  return px__block_settled(&p->block, NULL);
}

// Keeps a block that nobody uses, or gives it back.
static void rest(pin *p) {
  px__block_drop_uses(&p->block);
  if (p->node.size > __atomic_load_n(&px__pinned_most, __ATOMIC_RELAXED))
    release(p);
  else
    px__tree_insert(&idle, &p->node);
}

static void sweep(void) {
  for (pin **place = &pending; *place;) {
    pin *p = *place;
    if (!is_done(p)) {
      place = &p->next;
      continue;
    }
    *place = p->next;
    rest(p);
  }
}

static void release_idle(void) {
  while (idle) {
    pin *p = pin_of(idle);
    px__tree_remove(&idle, &p->node);
    release(p);
  }
}

static pin *find(size_t size) {
  pin *p = pin_of(px__tree_least(idle, size));
  if (!p || p->node.size > size + size / WASTE) return NULL;
  px__tree_remove(&idle, &p->node);
  return p;
}

static px_status raw_new(pin *p, size_t size) {
  void *data = NULL;
  int64_t since = now_us();
  px_status status = px__fault(PX__FAULT_HOST_ALLOC)
                         ? px_error_set(PX_OUT_OF_MEMORY, 0, __FILE__, __LINE__, __func__,
                                        "no page-locked memory is left (injected)")
                         : px__rt.backend->host_alloc(size, &data);
  PX_TRY(status);
  COUNT_TIME(alloc_time, since);
  p->node.address = (uintptr_t)data, p->node.size = size;
  stats.num_host_alloc++;
  px__stat_move(&stats.allocated_bytes, (int64_t)size);
  px__stat_move(&stats.allocations, 1);
  return PX_OK;
}

static px_status make(pin **out, size_t size) {
  pin *p;
  PX_TRY(PX_NEW(&p));
  px_status status = raw_new(p, size);
  if (status != PX_OK) {
    release_idle();
    status = raw_new(p, size);
  }
  if (status != PX_OK) {
    px__free(p);
    return px_error_pass(status, __FILE__, __LINE__, __func__);
  }
  *out = p;
  return PX_OK;
}

px_status px__block_new_pinned(px_block **out, size_t bytes) {
  *out = NULL;
  PX_CHECK(px_device_count(PX_CUDA) > 0, PX_RUNTIME,
           "pin_memory=True requires a CUDA or other accelerator backend; no pinned memory "
           "allocator is available on this system.");
  px__device *d;  // page-locking needs a context
  PX_TRY(px_device_init());
  PX_TRY(px__device_get(&d, px_device_peek()));
  if (bytes == 0) return px__host_new(out, 0);
  size_t size = round_size(bytes);
  pthread_mutex_lock(&lock);
  if (pending) sweep();
  pin *p = find(size);
  px_status status = p ? PX_OK : make(&p, size);
  if (status == PX_OK) {
    px__stat_move(&stats.active_requests, 1);
    px__stat_move(&stats.active_bytes, (int64_t)p->node.size);
    p->block = (px__block){.pub = {.data = (void *)p->node.address,
                                   .bytes = bytes,
                                   .device = {PX_CPU, -1},
                                   .pinned = true},
                           .kind = PX__PINNED};
    *out = &p->block.pub;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

void px__pinned_free(px_block *block) {
  pin *p = (pin *)block;
  if (!px__device_alive()) return;  // in a forked child: the parent's
  pthread_mutex_lock(&lock);
  px__stat_move(&stats.active_requests, -1);
  px__stat_move(&stats.active_bytes, -(int64_t)p->node.size);
  if (px__block_settled(&p->block, NULL)) {
    rest(p);
  } else {
    p->next = pending;
    pending = p;
  }
  pthread_mutex_unlock(&lock);
}

px_status px_memory_empty_host_cache(void) {
  if (!px__device_alive()) return PX_OK;
  pthread_mutex_lock(&lock);
  sweep();
  release_idle();
  pthread_mutex_unlock(&lock);
  return PX_OK;
}

// ---- statistics
typedef void (*visitor)(const px_memory_stat *stat, void *context);

static void tell(visitor each, void *context, const char *name, const char *part, int64_t value) {
  px_memory_stat out = {.value = value};
  snprintf(out.key, sizeof out.key, "%s%s%s", name, *part ? "." : "", part);
  each(&out, context);
}

static void tell_stat(visitor each, void *context, const char *name, const px__stat *stat) {
  tell(each, context, name, "allocated", stat->allocated);
  tell(each, context, name, "current", stat->current);
  tell(each, context, name, "freed", px__stat_freed(stat));
  tell(each, context, name, "peak", stat->peak);
}

static px_status reset(void (*one)(px__stat *), bool numbers) {
  px__stat *all[] = {&stats.active_requests, &stats.active_bytes, &stats.allocated_bytes,
                     &stats.allocations};
  pthread_mutex_lock(&lock);
  for (int i = 0; i < PX_COUNT_OF(all); i++) one(all[i]);
  if (numbers) {
    stats.num_host_alloc = stats.num_host_free = 0;
    memset(&stats.alloc_time, 0, sizeof stats.alloc_time);
    memset(&stats.free_time, 0, sizeof stats.free_time);
  }
  pthread_mutex_unlock(&lock);
  return PX_OK;
}

px_status px_memory_host_reset_peak(void) { return reset(px__stat_reset_peak, false); }
px_status px_memory_host_reset_accumulated(void) { return reset(px__stat_reset_accumulated, true); }

#define TELL_TIME(which) \
  do { \
    int64_t count = s.which.count; \
    tell(each, context, "host_" #which, "avg", count ? s.which.total / count : 0); \
    tell(each, context, "host_" #which, "count", count); \
    tell(each, context, "host_" #which, "max", s.which.max); \
    tell(each, context, "host_" #which, "min", s.which.min); \
    tell(each, context, "host_" #which, "total", s.which.total); \
  } while (0)

px_status px_memory_host_stats(visitor each, void *context) {
  PX_GIVEN(each);
  if (!px__device_alive()) return PX_OK;
  pthread_mutex_lock(&lock);
  __typeof__(stats) s = stats;
  pthread_mutex_unlock(&lock);
  tell_stat(each, context, "active_bytes", &s.active_bytes);
  tell_stat(each, context, "active_requests", &s.active_requests);
  tell_stat(each, context, "allocated_bytes", &s.allocated_bytes);
  tell_stat(each, context, "allocations", &s.allocations);
  TELL_TIME(alloc_time);
  TELL_TIME(free_time);
  tell(each, context, "num_host_alloc", "", s.num_host_alloc);
  tell(each, context, "num_host_free", "", s.num_host_free);
  return PX_OK;
}
