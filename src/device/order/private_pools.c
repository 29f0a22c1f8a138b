// SPDX-License-Identifier: Apache-2.0
// Private pools, of graphs and of px_memory_pools. Their segments serve only captures, or threads
// with a route. They live as long as the px_memory_pool or a graph captured with them. The device's
// lock is held throughout.
#include "device/order/order.h"

static uint64_t last_shared, last_own;  // atomic; last names given out

px_graph_pool px_graph_pool_new(void) {
  return (px_graph_pool){.shared = __atomic_add_fetch(&last_shared, 1, __ATOMIC_RELAXED)};
}
px_graph_pool px__graph_pool_own(void) {
  return (px_graph_pool){.own = __atomic_add_fetch(&last_own, 1, __ATOMIC_RELAXED)};
}

px__private_pool *px__private_pool_of(const px_stream *stream) {
  if (PX_UNLIKELY(stream->private_pool != NULL)) return stream->private_pool;
  const px__route *route = stream->owner->cache.routes;
  while (PX_UNLIKELY(route != NULL) && !pthread_equal(route->thread, pthread_self()))
    route = route->next;
  return PX_UNLIKELY(route != NULL) ? route->private_pool : NULL;
}

static bool is_named(const px__private_pool *pool, px_graph_pool name) {
  return pool->name.own == name.own && pool->name.shared == name.shared;
}

px_status px__private_pool_open(px__private_pool **out, px__device *d, px_graph_pool name) {
  px__private_pool *pool = d->cache.private_pools;
  while (pool && !is_named(pool, name)) pool = pool->next;
  if (!pool) {
    PX_TRY(PX_NEW(&pool));
    pool->name = name;
    pool->next = d->cache.private_pools;
    pool->replay_proxy.pub = (px_allocation){.data = pool, .bytes = 1, .device = px_cuda(d->index)};
    d->cache.private_pools = pool;
  }
  pool->users++;
  *out = pool;
  return PX_OK;
}

static void drop_unused(px__device *d, px__private_pool *pool) {
  if (pool->users || pool->segments) return;
  px__private_pool **link = &d->cache.private_pools;
  while (*link != pool) link = &(*link)->next;
  *link = pool->next;
  if (pool->replay_proxy.shadow) px__race_forget(&pool->replay_proxy);
  px__free(pool);
}

void px__private_pool_close(px__device *d, px__private_pool *pool) {
  pool->users--;
  drop_unused(d, pool);
}

void px__private_pool_segment_gone(px__device *d, px__private_pool *pool) {
  pool->segments--;
  drop_unused(d, pool);
}

size_t px__private_pools_allocated(const px__device *d) {
  size_t bytes = 0;
  for (const px__segment *s = d->cache.segments; s; s = s->next)
    for (const px__block *block = s->private_pool ? s->first : NULL; block; block = block->next)
      if (block->state == PX__ALLOCATED) bytes += block->node.size;
  return bytes;
}
