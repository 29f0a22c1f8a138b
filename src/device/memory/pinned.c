// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory, cached. Sizes are rounded to 512 bytes, not to powers of two.
//
// Pieces of memory come from one range of addresses, with pages mapped on demand, if the backend
// supports it; else from arenas allocated by the backend. A request gets the best fit; the
// remainder becomes a piece of its own, and idle neighbours are merged. A freed piece is reused
// once all copies using it are done; they have left marks in their streams. Everything here is
// guarded by `lock`, taken before the locks of devices.
#include "device/cache/cache.h"
#include "device/memory/memory.h"

#include <stdio.h>
#include <time.h>

enum {
  PAGE = 4096,
  GRAIN = 512,
  SMALL_ARENA = 2 << 20,  // bytes of an arena for small requests
  SMALL = 1 << 20,        // bytes of the largest small request; others get an arena of their size
  SLACK_DIVISOR = 32,     // slack of the cache: the peak in use divided by SHARE,
  SLACK_BYTES = 2 << 20,  // ... and these bytes
};
// Larger than any address space. Sums of such sizes do not overflow.
static const size_t MAX_BYTES = (size_t)1 << 56;

typedef struct piece {
  px__allocation allocation;  // first
  px__tree_node node;
  struct piece *next;           // in pending
  struct piece *below, *above;  // neighbours in the arena, or the range
  bool idle, paged;             // paged: part of the range
} piece;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static px__tree_node *idle;
static piece *pending;
static piece *top;  // the highest piece of the range
// The current values also serve the limit of the cache.
static struct {
  px__stat active_requests, active_bytes, allocated_bytes, allocations;
  int64_t num_host_alloc, num_host_free;
  struct {
    int64_t total, max, min, count;
  } alloc_time, free_time;  // microseconds
} stats;

static piece *piece_of(px__tree_node *node) {
  return node ? (piece *)((char *)node - offsetof(piece, node)) : NULL;
}

static size_t round_up(size_t bytes, size_t grain) { return (bytes + grain - 1) & ~(grain - 1); }

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

// Releases an arena of one idle piece, which is in no list.
static void release(piece *p) {
  int64_t since = now_us();
  px__rt.backend->host_release((void *)p->node.address);
  COUNT_TIME(free_time, since);
  stats.num_host_free++;
  px__stat_move(&stats.allocated_bytes, -(int64_t)p->node.size);
  px__stat_move(&stats.allocations, -1);
  px__allocation_drop_uses(&p->allocation);
  px__free(p);
}

// Polls the streams of the uses.
static bool is_done(piece *p) {
  for (int i = 0; i < p->allocation.use_count; i++) {
    px_stream *stream = p->allocation.uses[i].stream;
    if (px__completed(stream) >= p->allocation.uses[i].seq) continue;
    px__device_lock(stream->owner);
    px__stream_poll(stream);
    px__device_unlock(stream->owner);
  }
  return px__allocation_is_reusable(&p->allocation, NULL);
}

static bool is_arena(const piece *p) { return !p->below && !p->above && !p->paged; }

// Merges the idle piece above `p` into it. Neither is in the tree.
static void merge_above(piece *p, piece *above) {
  p->node.size += above->node.size;
  p->above = above->above;
  if (p->above) p->above->below = p;
  if (above == top) top = p;
  px__free(above);
}

// Unmaps at most `limit` bytes of pages inside [low, high) of an idle piece.
static void unmap(uintptr_t low, uintptr_t high, size_t limit) {
  int64_t since = now_us();
  size_t bytes = px__pinned_pages_unmap(low, high, limit);
  if (!bytes) return;
  COUNT_TIME(free_time, since);
  stats.num_host_free++;
  px__stat_move(&stats.allocated_bytes, -(int64_t)bytes);
  px__stat_move(&stats.allocations, -(int64_t)(bytes / PX__PAGE));
}

// Unmaps the pages of an idle piece touched by [low, high).
static void unmap_around(const piece *p, uintptr_t low, uintptr_t high) {
  low &= ~(uintptr_t)(PX__PAGE - 1), high = px__whole_pages(high);
  if (low < p->node.address) low = p->node.address;
  if (high > p->node.address + p->node.size) high = p->node.address + p->node.size;
  unmap(low, high, SIZE_MAX);
}

// Marks the piece idle and merges it with idle neighbours.
static piece *coalesce(piece *p) {
  if (p->above && p->above->idle) {
    px__tree_remove(&idle, &p->above->node);
    merge_above(p, p->above);
  }
  if (p->below && p->below->idle) {
    px__tree_remove(&idle, &p->below->node);
    p = p->below;
    merge_above(p, p->above);
  }
  p->idle = true;
  return p;
}

// Caches a piece without uses, or releases it if larger than the limit.
static void cache_piece(piece *p) {
  size_t limit = __atomic_load_n(&px__pinned_max_cached, __ATOMIC_RELAXED);
  uintptr_t low = p->node.address, high = low + p->node.size;
  px__allocation_drop_uses(&p->allocation);
  p = coalesce(p);
  if (is_arena(p) && p->node.size > limit) return release(p);
  px__tree_insert(&idle, &p->node);
  if (p->paged && high - low > limit) unmap_around(p, low, high);
}

static void sweep(void) {
  for (piece **link = &pending; *link;) {
    piece *p = *link;
    if (!is_done(p)) {
      link = &p->next;
      continue;
    }
    *link = p->next;
    cache_piece(p);
  }
}

// Returns the smallest idle arena of at least `bytes`, or the largest; or NULL.
static piece *idle_arena(size_t bytes) {
  piece *largest = NULL;
  for (px__tree_node *node = px__tree_lower_bound(idle, 0); node;
       node = px__tree_next(idle, node)) {
    if (!is_arena(piece_of(node))) continue;
    largest = piece_of(node);
    if (node->size >= bytes) break;
  }
  return largest;
}

// Unmaps pages of idle pieces, from the highest address down, until at most `limit` bytes are
// allocated or all pages are in use.
static void unmap_down_to(int64_t limit) {
  for (piece *p = top; p && stats.allocated_bytes.current > limit; p = p->below)
    if (p->idle)
      unmap(p->node.address, p->node.address + p->node.size,
            (size_t)(stats.allocated_bytes.current - limit));
}

// Releases idle pages and arenas, until at most `limit` bytes are allocated.
static void release_down_to(int64_t limit) {
  if (limit < 0) limit = 0;
  unmap_down_to(limit);
  while (stats.allocated_bytes.current > limit) {
    piece *p = idle_arena((size_t)(stats.allocated_bytes.current - limit));
    if (!p) return;
    px__tree_remove(&idle, &p->node);
    release(p);
  }
}

// Makes the part above `size` an idle piece. Without memory for its record, a piece of an arena
// stays whole.
static px_status split(piece *p, size_t size) {
  piece *left;
  if (p->node.size - size < GRAIN) return PX_OK;
  px_status status = PX_NEW(&left);
  if (status != PX_OK && !p->paged) return px_error_clear(), PX_OK;
  PX_TRY(status);
  left->node.address = p->node.address + size, left->node.size = p->node.size - size;
  left->below = p, left->above = p->above, left->idle = true, left->paged = p->paged;
  if (left->above) left->above->below = left;
  p->above = left, p->node.size = size;
  if (p == top) top = left;
  px__tree_insert(&idle, &left->node);
  return PX_OK;
}

static piece *find(size_t size) {
  piece *p = piece_of(px__tree_lower_bound(idle, size));
  if (!p) return NULL;
  px__tree_remove(&idle, &p->node);
  p->idle = false;
  return p;
}

static px_status check_fault(void) {
  PX_CHECK(!px__fault(PX__FAULT_HOST_ALLOC), PX_OUT_OF_MEMORY,
           "no page-locked memory is left (injected)");
  return PX_OK;
}

static void count_new(size_t bytes, int64_t allocations, int64_t since) {
  COUNT_TIME(alloc_time, since);
  stats.num_host_alloc++;
  px__stat_move(&stats.allocated_bytes, (int64_t)bytes);
  px__stat_move(&stats.allocations, allocations);
}

static px_status raw_new(piece *p, size_t size) {
  void *data = NULL;
  int64_t since = now_us();
  PX_TRY(check_fault());
  PX_TRY(px__rt.backend->host_alloc(size, &data));
  p->node.address = (uintptr_t)data, p->node.size = size;
  count_new(size, 1, since);
  return PX_OK;
}

// Maps the missing pages of a piece of the range, `missing` bytes.
static px_status raw_map(const piece *p, size_t missing) {
  uintptr_t low = p->node.address, high = low + p->node.size;
  int64_t since = now_us();
  PX_TRY(check_fault());
  px_status status = px__pinned_pages_map(low, high);
  size_t bytes = status == PX_OK ? missing : missing - px__pinned_pages_missing(low, high);
  if (bytes) count_new(bytes, (int64_t)(bytes / PX__PAGE), since);
  return status;
}

// Bytes that may be allocated after a request: the peak in use plus slack.
static int64_t limit_after(size_t size) {
  int64_t live = stats.active_bytes.current + (int64_t)size;
  int64_t limit = live > stats.active_bytes.peak ? live : stats.active_bytes.peak;
  return limit + limit / SLACK_DIVISOR + SLACK_BYTES;
}

static size_t arena_size(size_t size) {
  size_t limit = __atomic_load_n(&px__pinned_max_cached, __ATOMIC_RELAXED);
  return size <= SMALL && SMALL_ARENA <= limit ? SMALL_ARENA : round_up(size, PAGE);
}

// Reserves the range as one idle piece. False if it exists already, or fails.
static bool reserve_range(void) {
  piece *p;
  if (PX_NEW(&p) != PX_OK) return px_error_clear(), false;
  if (!px__pinned_range(&p->node.address, &p->node.size)) return px__free(p), false;
  p->idle = p->paged = true;
  px__tree_insert(&idle, &p->node);
  top = p;
  return true;
}

static px_status make_arena(piece **out, size_t size) {
  piece *p;
  size_t bytes = arena_size(size);
  release_down_to(limit_after(size) - (int64_t)bytes);
  PX_TRY(PX_NEW(&p));
  px_status status = raw_new(p, bytes);
  if (status != PX_OK) {
    release_down_to(0);
    status = raw_new(p, round_up(size, PAGE));
  }
  if (status != PX_OK) {
    px__free(p);
    return px_error_add_frame(status, __FILE__, __LINE__, __func__);
  }
  *out = p;
  return PX_OK;
}

static px_status map(piece *p) {
  size_t missing = px__pinned_pages_missing(p->node.address, p->node.address + p->node.size);
  if (!missing) return PX_OK;
  release_down_to(limit_after(p->node.size) - (int64_t)missing);
  px_status status = raw_map(p, missing);
  if (status == PX_OK) return PX_OK;
  release_down_to(0);
  return raw_map(p, px__pinned_pages_missing(p->node.address, p->node.address + p->node.size));
}

static px_status take(piece **out, size_t size) {
  piece *p = find(size);
  if (!p && reserve_range()) p = find(size);
  if (!p) PX_TRY(make_arena(&p, size));
  px_status status = split(p, size);
  if (status == PX_OK && p->paged) status = map(p);
  if (status != PX_OK) {
    cache_piece(p);
    return px_error_add_frame(status, __FILE__, __LINE__, __func__);
  }
  *out = p;
  return PX_OK;
}

px_status px__allocation_new_pinned(px_allocation **out, size_t bytes) {
  *out = NULL;
  PX_CHECK(px_device_count(PX_CUDA) > 0, PX_RUNTIME,
           "pin_memory=True requires a CUDA or other accelerator backend; no pinned memory "
           "allocator is available on this system.");
  px__device *d;  // page-locking needs a context
  PX_TRY(px_device_init());
  PX_TRY(px__device_get(&d, px_device_peek()));
  if (bytes == 0) return px__host_new(out, 0);
  PX_CHECK(bytes <= MAX_BYTES, PX_NOMEM, "no host has %zu bytes", bytes);
  size_t size = round_up(bytes, GRAIN);
  pthread_mutex_lock(&lock);
  if (pending) sweep();
  piece *p = NULL;
  px_status status = take(&p, size);
  if (status == PX_OK) {
    px__stat_move(&stats.active_requests, 1);
    px__stat_move(&stats.active_bytes, (int64_t)p->node.size);
    p->allocation = (px__allocation){.pub = {.data = (void *)p->node.address,
                                             .bytes = bytes,
                                             .device = {PX_CPU, -1},
                                             .pinned = true},
                                     .kind = PX__PINNED};
    *out = &p->allocation.pub;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

void px__pinned_free(px_allocation *allocation) {
  piece *p = (piece *)allocation;
  if (!px__device_alive()) return;  // in a forked child the memory belongs to the parent
  pthread_mutex_lock(&lock);
  px__stat_move(&stats.active_requests, -1);
  px__stat_move(&stats.active_bytes, -(int64_t)p->node.size);
  if (px__allocation_is_reusable(&p->allocation, NULL)) {
    cache_piece(p);
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
  release_down_to(0);
  pthread_mutex_unlock(&lock);
  return PX_OK;
}

// ---- statistics
typedef void (*visitor)(const px_memory_stat *stat, void *context);

static void report(visitor each, void *context, const char *name, const char *part, int64_t value) {
  px_memory_stat out = {.value = value};
  snprintf(out.key, sizeof out.key, "%s%s%s", name, *part ? "." : "", part);
  each(&out, context);
}

static void report_stat(visitor each, void *context, const char *name, const px__stat *stat) {
  report(each, context, name, "allocated", stat->allocated);
  report(each, context, name, "current", stat->current);
  report(each, context, name, "freed", px__stat_freed(stat));
  report(each, context, name, "peak", stat->peak);
}

static px_status reset(void (*reset_one)(px__stat *), bool numbers) {
  px__stat *all[] = {&stats.active_requests, &stats.active_bytes, &stats.allocated_bytes,
                     &stats.allocations};
  pthread_mutex_lock(&lock);
  for (int i = 0; i < PX_COUNT_OF(all); i++) reset_one(all[i]);
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

#define REPORT_TIME(which) \
  do { \
    int64_t count = s.which.count; \
    report(each, context, "host_" #which, "avg", count ? s.which.total / count : 0); \
    report(each, context, "host_" #which, "count", count); \
    report(each, context, "host_" #which, "max", s.which.max); \
    report(each, context, "host_" #which, "min", s.which.min); \
    report(each, context, "host_" #which, "total", s.which.total); \
  } while (0)

px_status px_memory_host_stats(visitor each, void *context) {
  PX_GIVEN(each);
  if (!px__device_alive()) return PX_OK;
  pthread_mutex_lock(&lock);
  __typeof__(stats) s = stats;
  pthread_mutex_unlock(&lock);
  report_stat(each, context, "active_bytes", &s.active_bytes);
  report_stat(each, context, "active_requests", &s.active_requests);
  report_stat(each, context, "allocated_bytes", &s.allocated_bytes);
  report_stat(each, context, "allocations", &s.allocations);
  REPORT_TIME(alloc_time);
  REPORT_TIME(free_time);
  report(each, context, "num_host_alloc", "", s.num_host_alloc);
  report(each, context, "num_host_free", "", s.num_host_free);
  return PX_OK;
}
