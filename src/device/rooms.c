// SPDX-License-Identifier: Apache-2.0
// Rooms: the pools of graphs, and of the program's own. Their segments serve captures, or the
// threads of routes, alone, and stay while a graph that was captured with them, or the pool, lives.
// All with the device's lock held.
#include "device/state.h"

static uint64_t names;  // atomic: given out

px_graph_pool px_graph_pool_new(void) {
  return (px_graph_pool){.shared = __atomic_add_fetch(&names, 1, __ATOMIC_RELAXED)};
}

px__route *px__route_now(const px__cache *cache) {
  px__route *route = cache->routes;
  while (route && !pthread_equal(route->thread, pthread_self())) route = route->next;
  return route;
}

static bool is_named(const px__room *room, px_graph_pool name) {
  return room->name.own == name.own && room->name.shared == name.shared;
}

px_status px__room_open(px__room **out, px__device *d, px_graph_pool name) {
  px__room *room = d->cache.rooms;
  while (room && !is_named(room, name)) room = room->next;
  if (!room) {
    PX_TRY(PX_NEW(&room));
    room->name = name;
    room->next = d->cache.rooms;
    room->whole.pub = (px_allocation){.data = room, .bytes = 1, .device = px_cuda(d->index)};
    d->cache.rooms = room;
  }
  room->users++;
  *out = room;
  return PX_OK;
}

static void drop_unused(px__device *d, px__room *room) {
  if (room->users || room->segments) return;
  px__room **place = &d->cache.rooms;
  while (*place != room) place = &(*place)->next;
  *place = room->next;
  if (room->whole.shadow) px__race_forget(&room->whole);
  px__free(room);
}

void px__room_close(px__device *d, px__room *room) {
  room->users--;
  drop_unused(d, room);
}

void px__room_left(px__device *d, px__room *room) {
  room->segments--;
  drop_unused(d, room);
}

size_t px__rooms_allocated(const px__device *d) {
  size_t bytes = 0;
  for (const px__segment *s = d->cache.segments; s; s = s->next)
    for (const px__block *block = s->room ? s->first : NULL; block; block = block->next)
      if (block->state == PX__TAKEN) bytes += block->node.size;
  return bytes;
}

px__allocation *px__pool_allocation_at(const px__device *d, const void *data) {
  uintptr_t at = (uintptr_t)data;
  for (const px__segment *s = d->cache.segments; s; s = s->next) {
    if (at - (uintptr_t)s->data >= s->size) continue;
    for (px__block *block = s->first; block; block = block->next)
      if (block->node.address == at && block->state == PX__TAKEN) return &block->allocation;
  }
  return NULL;
}
