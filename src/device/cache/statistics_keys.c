// SPDX-License-Identifier: Apache-2.0
// The allocators' statistics by PyTorch's keys, from one table.
#include "device/cache/cache.h"

#include <stdio.h>

typedef struct row {
  const char *name;
  size_t offset;
  char kind;  // p pooled, s single, n number
} row;
static const row rows[] = {
#define POOLED(name) {#name, offsetof(px__statistics, name), 'p'},
#define SINGLE(name) {#name, offsetof(px__statistics, name), 's'},
#define NUMBER(name) {#name, offsetof(px__statistics, name), 'n'},
    PX__STAT_MAP(POOLED, SINGLE, NUMBER)
#undef POOLED
#undef SINGLE
#undef NUMBER
};
static const char *const pools[] = {"all", "large_pool", "small_pool"};
typedef void (*visitor)(const px_memory_stat *stat, void *context);

static void visit_stat(const char *prefix, const px__stat *stat, visitor each, void *context) {
  const struct {
    const char *name;
    int64_t value;
  } parts[] = {{"allocated", stat->allocated},
               {"current", stat->current},
               {"freed", px__stat_freed(stat)},
               {"peak", stat->peak}};
  px_memory_stat out;
  for (int i = 0; i < PX_COUNT_OF(parts); i++) {
    snprintf(out.key, sizeof out.key, "%s.%s", prefix, parts[i].name);
    out.value = parts[i].value;
    each(&out, context);
  }
}

static void visit_row(const row *r, const void *at, visitor each, void *context) {
  char prefix[48];
  px_memory_stat out;
  if (r->kind == 'n') {
    snprintf(out.key, sizeof out.key, "%s", r->name);
    memcpy(&out.value, at, sizeof out.value);
    each(&out, context);
    return;
  }
  for (int pool = 0; pool < (r->kind == 'p' ? 3 : 1); pool++) {
    snprintf(prefix, sizeof prefix, r->kind == 'p' ? "%s.%s" : "%s", r->name, pools[pool]);
    visit_stat(prefix, (const px__stat *)at + pool, each, context);
  }
}

static px_status device_of(px__device **out, int device) {
  *out = NULL;
  if (!px__device_alive()) return PX_OK;
  if (device < 0) device = px_device_peek();
  PX_CHECK(device < px__rt.count, PX_RUNTIME, "Invalid device argument %d: did you call init?",
           device);
  *out = px__rt.devices[device];
  return PX_OK;
}

static void copy_statistics(px__statistics *out, px__device *d) {
  px__pool_flush(d);
  *out = d->cache.statistics;
  size_t split = d->cache.settings.max_split;
  out->max_split_size = split == SIZE_MAX ? -1 : (int64_t)split;
}

// Copies the counters of all private pools. Free with px__free. Lock held.
typedef struct pool_stats {
  px_graph_pool name;
  px__stat reserved[3];
} pool_stats;
static px_status copy_pools(pool_stats **out, int *count, const px__device *d) {
  *count = 0;
  for (const px__private_pool *p = d->cache.private_pools; p; p = p->next) ++*count;
  PX_TRY(px__alloc((void **)out, (size_t)(*count + 1) * sizeof **out));
  pool_stats *next = *out;
  for (const px__private_pool *p = d->cache.private_pools; p; p = p->next, next++) {
    next->name = p->name;
    memcpy(next->reserved, p->reserved, sizeof next->reserved);
  }
  return PX_OK;
}

static void visit_pool(const pool_stats *p, visitor each, void *context) {
  char prefix[64];
  for (int pool = 0; pool < 3; pool++) {
    snprintf(prefix, sizeof prefix, "reserved_bytes_by_private_pools.%llu_%llu.%s",
             (unsigned long long)p->name.own, (unsigned long long)p->name.shared, pools[pool]);
    visit_stat(prefix, &p->reserved[pool], each, context);
  }
}

px_status px_memory_stats(int device, visitor each, void *context) {
  PX_GIVEN(each);
  px__device *d;
  px__statistics stats;
  pool_stats *own = NULL;
  int count = 0;
  PX_TRY(device_of(&d, device));
  if (!d) return PX_OK;
  px__device_lock(d);
  copy_statistics(&stats, d);
  px_status status = copy_pools(&own, &count, d);
  px__device_unlock(d);
  for (int i = 0; status == PX_OK && i < PX_COUNT_OF(rows); i++) {
    visit_row(&rows[i], (const char *)&stats + rows[i].offset, each, context);
    bool follows = rows[i].offset == offsetof(px__statistics, reserved_bytes);
    for (int k = 0; follows && k < count; k++) visit_pool(&own[k], each, context);
  }
  px__free(own);
  return status;
}

typedef struct search {
  const char *key;
  int64_t value;
  bool found;
} search;

static void match_key(const px_memory_stat *stat, void *context) {
  search *s = context;
  if (strcmp(stat->key, s->key)) return;
  s->found = true;
  s->value = stat->value;
}

px_status px_memory_stat_get(int64_t *out, int device, const char *key) {
  PX_GIVEN(out);
  PX_GIVEN(key);
  search s = {.key = key};
  PX_TRY(px_memory_stats(device, match_key, &s));
  static const px__statistics none;  // before initialisation
  for (int i = 0; !s.found && i < PX_COUNT_OF(rows); i++)
    visit_row(&rows[i], (const char *)&none + rows[i].offset, match_key, &s);
  PX_CHECK(s.found, PX_KEY, "%s", key);
  *out = s.value;
  return PX_OK;
}

// Copies the statistics under the lock; zeros before initialisation.
static px__statistics current_stats(int device) {
  px__device *d;
  px__statistics stats = {0};
  if (device_of(&d, device) != PX_OK) px_error_clear();
  if (!d) return stats;
  px__device_lock(d);
  copy_statistics(&stats, d);
  px__device_unlock(d);
  return stats;
}

int64_t px_memory_allocated(int device) { return current_stats(device).allocated_bytes[0].current; }
int64_t px_memory_allocated_peak(int device) {
  return current_stats(device).allocated_bytes[0].peak;
}
int64_t px_memory_reserved(int device) { return current_stats(device).reserved_bytes[0].current; }
int64_t px_memory_reserved_peak(int device) { return current_stats(device).reserved_bytes[0].peak; }

static px_status reset(int device, void (*reset_one)(px__stat *), bool numbers) {
  px__device *d;
  PX_TRY(device_of(&d, device));
  if (!d) return PX_OK;
  px__device_lock(d);
  px__pool_flush(d);
  for (int i = 0; i < PX_COUNT_OF(rows); i++) {
    void *at = (char *)&d->cache.statistics + rows[i].offset;
    if (rows[i].kind == 'n' && numbers) memset(at, 0, sizeof(int64_t));
    int count = rows[i].kind == 'p' ? 3 : rows[i].kind == 's' ? 1 : 0;
    for (int pool = 0; pool < count; pool++) reset_one((px__stat *)at + pool);
  }
  for (px__private_pool *p = d->cache.private_pools; p; p = p->next)
    for (int pool = 0; pool < 3; pool++) reset_one(&p->reserved[pool]);
  px__device_unlock(d);
  return PX_OK;
}

px_status px_memory_reset_peak(int device) { return reset(device, px__stat_reset_peak, false); }
px_status px_memory_reset_accumulated(int device) {
  return reset(device, px__stat_reset_accumulated, true);
}
