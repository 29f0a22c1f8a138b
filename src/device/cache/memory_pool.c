// SPDX-License-Identifier: Apache-2.0
// px_memory_pool: a private pool, and the routes by which threads send their requests to it.
#include "device/cache/cache.h"

struct px_memory_pool {
  px_object head;
  px__device *device;
  px__private_pool *private_pool;
  px_graph_pool name;
  px_memory_allocator plugged;
};

static void pool_destroy(void *self) {
  px_memory_pool *pool = self;
  if (px__device_alive()) {  // in a forked child the memory belongs to the parent
    px__error_guard guard;
    px__error_save(&guard);
    px_interrupt_hold(true);
    if (px__cache_wait(pool->device) != PX_OK) px_error_clear();  // then less is released
    px_interrupt_hold(false);
    px__error_restore(&guard);
    px__device_lock(pool->device);
    px__release_pool(pool->device, pool->private_pool);
    px__device_unlock(pool->device);
  }
  px__object_end(pool);
  px__free(pool);
}
static const px_class pool_class = {"memory pool", pool_destroy};

px_status px_memory_pool_new(px_memory_pool **out, int device) {
  return px_memory_pool_new_over(out, device, NULL);
}

// Opens the private pool on a device, as one more user. Lock held.
static px_status open_pool(px__private_pool **out, px__device *d, const px_memory_pool *pool) {
  PX_TRY(px__private_pool_open(out, d, pool->name));
  (*out)->plugged = pool->plugged;
  return PX_OK;
}

px_status px_memory_pool_new_over(px_memory_pool **out, int device,
                                  const px_memory_allocator *allocator) {
  PX_GIVEN(out);
  PX_CHECK(!allocator || (allocator->alloc && allocator->free), PX_TYPE,
           "an allocator needs both functions");
  px__device *d;
  px_memory_pool *pool;
  *out = NULL;
  PX_TRY(px__device_resolve(&d, device));
  PX_TRY(PX_NEW(&pool));
  pool->device = d;
  pool->name = px_graph_pool_new();
  if (allocator) pool->plugged = *allocator;
  px__device_lock(d);
  px_status status = open_pool(&pool->private_pool, d, pool);
  px__device_unlock(d);
  if (status != PX_OK) {
    px__free(pool);
    return px_error_add_frame(status, __FILE__, __LINE__, __func__);
  }
  px__object_init(pool, &pool_class);
  *out = pool;
  return PX_OK;
}

px_status px_memory_pool_set(px_memory_pool *pool, bool use_on_oom, bool no_split) {
  PX_GIVEN(pool);
  px__device_lock(pool->device);
  pool->private_pool->use_on_oom = use_on_oom;
  pool->private_pool->no_split = no_split;
  px__device_unlock(pool->device);
  return PX_OK;
}

px_graph_pool px_memory_pool_name(const px_memory_pool *pool) { return pool->name; }

px_status px_memory_pool_uses(int *out, const px_memory_pool *pool) {
  PX_GIVEN(out);
  PX_GIVEN(pool);
  px__device_lock(pool->device);
  *out = pool->private_pool->users;
  px__device_unlock(pool->device);
  return PX_OK;
}

px_status px_memory_pool_begin(px_memory_pool *pool, int device) {
  PX_GIVEN(pool);
  px__device *d;
  px__route *route;
  PX_TRY(px__device_resolve(&d, device));
  PX_TRY(PX_NEW(&route));
  px__device_lock(d);
  px_status status = open_pool(&route->private_pool, d, pool);
  if (status == PX_OK) {
    route->thread = pthread_self();
    route->pool = px_retain(pool);
    route->next = d->cache.routes;
    __atomic_store_n(&d->cache.routes, route, __ATOMIC_RELAXED);
  }
  px__device_unlock(d);
  if (status == PX_OK) return PX_OK;
  px__free(route);
  return px_error_add_frame(status, __FILE__, __LINE__, __func__);
}

px_status px_memory_pool_end(px_memory_pool *pool, int device) {
  PX_GIVEN(pool);
  px__device *d;
  PX_TRY(px__device_resolve(&d, device));
  px__device_lock(d);
  px__route **link = &d->cache.routes;
  while (*link && !pthread_equal((*link)->thread, pthread_self())) link = &(*link)->next;
  px__route *route = *link;
  bool own = route && route->pool == pool;
  if (own) {
    __atomic_store_n(link, route->next, __ATOMIC_RELAXED);
    px__private_pool_close(d, route->private_pool);
  }
  px__device_unlock(d);
  PX_CHECK(own, PX_RUNTIME, "the thread did not begin this pool of memory last");
  px__free(route);
  px_release(pool);  // may destroy it, and takes the lock
  return PX_OK;
}
