// SPDX-License-Identifier: Apache-2.0
// The chunks that segments of device memory are split into: PyTorch's sizes and rules.
//
// A chunk belongs to a stream, which may reuse it at once. A free chunk is in its stream's free
// list, a tree by size and then address, and records the work of that stream after which nothing
// uses it; another stream may take it when that work is done or ordered before its own. A request
// gets the best fit. All of it is under the device's lock, except for the fast bins.
#include "device/bins.h"

enum {
  GRAIN = PX__GRAIN,
  SMALL = PX__SMALL,
  STEPS_FROM = 20,          // settings' divisions begin at this power of two
  GREATEST_LEFT = 1 << 20,  // a large chunk is split only if more than this is left
  OTHERS_TRIES = 16,        // chunks of another stream that are looked at
};

// Rounds up to a multiple of a power of two divided by `parts` (roundup_power2_divisions).
static size_t round_parts(size_t bytes, size_t parts) {
  int power = 63 - __builtin_clzll(bytes);
  size_t part = ((size_t)1 << power) / parts;
  return (bytes + part - 1) / part * part;
}

size_t px__pool_round(const px__device *d, size_t bytes) {
  if (bytes < GRAIN) return GRAIN;
  int step = 63 - __builtin_clzll(bytes) - STEPS_FROM;
  step = step < 0 ? 0 : step < PX__ROUND_STEPS ? step : PX__ROUND_STEPS - 1;
  size_t parts = d->cache.settings.divisions[step];
  if (PX_UNLIKELY(parts > 1 && bytes > GRAIN * parts)) return round_parts(bytes, parts);
  return (bytes + GRAIN - 1) & ~(size_t)(GRAIN - 1);
}

static px__chunk *chunk_of(px__node *node) {
  return node ? (px__chunk *)((char *)node - offsetof(px__chunk, node)) : NULL;
}

// ---- the free list of a stream: the chunk freed last enters the tree when the next one comes
// ... of the stream. A room has one list for all streams.
static px__shelf *shelf_of(const px__chunk *chunk) {
  px__room *room = chunk->segment->room;
  return PX_UNLIKELY(room != NULL) ? &room->shelf : &chunk->stream->shelf;
}

static void insert_unsorted(px__shelf *shelf, bool small) {
  px__chunk *chunk = shelf->unsorted[small];
  shelf->unsorted[small] = NULL;
  if (chunk) px__tree_insert(&shelf->free[small], &chunk->node);
}

void px__chunk_list(px__chunk *chunk) {
  bool small = chunk->small;
  px__shelf *shelf = shelf_of(chunk);
  if (PX_UNLIKELY(shelf->unsorted[small] != NULL)) insert_unsorted(shelf, small);
  shelf->unsorted[small] = chunk;
  chunk->state = PX__FREE;
}

void px__chunk_unlist(px__chunk *chunk) {
  bool small = chunk->small;
  px__shelf *shelf = shelf_of(chunk);
  if (shelf->unsorted[small] == chunk)
    shelf->unsorted[small] = NULL;
  else
    px__tree_remove(&shelf->free[small], &chunk->node);
  chunk->state = PX__TAKEN;
}

px_status px__chunk_new(px__chunk **out, px__device *d) {
  px__chunk *chunk = d->cache.spare;
  if (chunk) {
    d->cache.spare = chunk->queue;
    memset(&chunk->allocation, 0, sizeof chunk->allocation);
    chunk->prev = chunk->next = NULL;
    chunk->ready = 0;
    chunk->state = PX__TAKEN;
    return *out = chunk, PX_OK;
  }
  return PX_NEW(out);
}

void px__chunk_drop(px__device *d, px__chunk *chunk) {
  chunk->queue = d->cache.spare;
  d->cache.spare = chunk;
}

// ---- coalescing
static bool can_coalesce(const px__chunk *chunk, const px__chunk *beside) {
  return beside && beside->state == PX__FREE &&
         px__ordered(beside->stream, beside->ready, chunk->stream);
}

// Makes the free neighbour `beside` part of `chunk`. The uses of `beside` are ordered before the
// stream's next work, but not always before work `ready` of the chunk, which may have been in the
// fast bin since: so `ready` moves on.
static void coalesce(px__device *d, px__chunk *chunk, px__chunk *beside) {
  px__chunk_unlist(beside);
  px__ledger_unidle(&d->cache.ledger, beside);
  if (beside == chunk->prev) {
    chunk->node.address = beside->node.address;
    chunk->prev = beside->prev;
    if (chunk->prev) chunk->prev->next = chunk;
  } else {
    chunk->next = beside->next;
    if (chunk->next) chunk->next->prev = chunk;
    if (chunk->segment->last == beside) chunk->segment->last = chunk;
  }
  chunk->node.size += beside->node.size;
  chunk->ready = chunk->stream->issued;
  if (chunk->segment->first == beside) chunk->segment->first = chunk;
  px__chunk_drop(d, beside);
}

// All uses of the chunk come before work `ready` of its stream.
static void make_free(px__device *d, px__chunk *chunk, const px_traceback *stack) {
  px__ledger_retire(&d->cache.ledger, chunk);
  px__history_chunk(d, PX_MEMORY_FREE_COMPLETED, chunk, stack);
  px__allocation_drop_uses(&chunk->allocation);
  if (can_coalesce(chunk, chunk->prev)) coalesce(d, chunk, chunk->prev);
  if (can_coalesce(chunk, chunk->next)) coalesce(d, chunk, chunk->next);
  px__ledger_idle(&d->cache.ledger, chunk);
  px__chunk_list(chunk);
}

void px__chunk_coalesce(px__device *d, px__chunk *chunk) {
  px__chunk_unlist(chunk);
  px__ledger_unidle(&d->cache.ledger, chunk);
  if (can_coalesce(chunk, chunk->prev)) coalesce(d, chunk, chunk->prev);
  if (can_coalesce(chunk, chunk->next)) coalesce(d, chunk, chunk->next);
  px__ledger_idle(&d->cache.ledger, chunk);
  px__chunk_list(chunk);
}

// Neighbours of different streams, which were free at different times.
bool px__chunk_is_done(const px__chunk *chunk) {
  return chunk && chunk->state == PX__FREE && px__done(chunk->stream) >= chunk->ready;
}
static void merge_from(px__device *d, px__chunk *chunk) {
  if (!px__chunk_is_done(chunk) || !px__chunk_is_done(chunk->next)) return;
  px__chunk_unlist(chunk);
  px__ledger_unidle(&d->cache.ledger, chunk);
  while (px__chunk_is_done(chunk->next)) coalesce(d, chunk, chunk->next);
  chunk->ready = 0;
  px__ledger_idle(&d->cache.ledger, chunk);
  px__chunk_list(chunk);
}
void px__pool_merge(px__device *d) {
  for (px__segment *segment = d->cache.segments; segment; segment = segment->next)
    for (px__chunk *chunk = segment->first; chunk; chunk = chunk->next) merge_from(d, chunk);
}

// ---- fast bins (bins.h)
// Of a thread that does not own the latch.
__attribute__((noinline)) px__chunk *px__bin_pop_shared(px__fast_bin *bin, size_t bytes) {
  px__latch_thread *me = px__latch_enter(&bin->latch);
  px__chunk *chunk = px__bin_pop(bin, bytes);
  px__latch_leave(&bin->latch, me);
  return chunk;
}
__attribute__((noinline)) bool px__bin_push_shared(px__fast_bin *bin, px__chunk *chunk) {
  px__latch_thread *me = px__latch_enter(&bin->latch);
  bool taken = px__bin_push(bin, chunk);
  px__latch_leave(&bin->latch, me);
  return taken;
}

static void flush(px__device *d, px_stream *stream, bool small) {
  px__fast_bin *bin = px__bin_of(stream, small);
  px__latch_thread *me = px__latch_enter(&bin->latch);
  px__chunk *chunk = bin->chunk;
  px__unposted unposted = bin->unposted;
  __atomic_store_n(&bin->chunk, NULL, __ATOMIC_RELAXED);
  bin->unposted = (px__unposted){0};
  px__latch_leave(&bin->latch, me);
  if (unposted.count) px__ledger_post(&d->cache.ledger, &unposted, small);
  if (!chunk) return;
  px__ledger_free(&d->cache.ledger, chunk);
  px__history_chunk(d, PX_MEMORY_FREE_REQUESTED, chunk, chunk->stack);
  make_free(d, chunk, chunk->stack);
}

void px__pool_flush(px__device *d) {
  for (int i = 0; i < d->stream_count; i++)
    for (int small = 0; small < 2; small++) flush(d, d->streams[i], small);
}

// ---- best fit
// Chunks of max_split and more are not split, so they serve only requests of about their size.
static bool may_serve(const px__chunk *chunk, size_t size) {
  const px__settings *s = &chunk->stream->owner->cache.settings;
  if (size < s->max_split) return chunk->node.size < s->max_split;
  return chunk->node.size < size + s->non_split_rounding;
}

static px__chunk *best_fit(const px__shelf *shelf, bool small, size_t size) {
  px__chunk *best = chunk_of(px__tree_least(shelf->free[small], size));
  px__chunk *last = shelf->unsorted[small];
  bool fits = last && last->node.size >= size && may_serve(last, size);
  if (best && !may_serve(best, size)) best = NULL;  // larger ones may not, either
  bool better =
      fits && (!best || last->node.size < best->node.size ||
               (last->node.size == best->node.size && last->node.address < best->node.address));
  return better ? last : best;
}

static px__chunk *best_fit_for(const px__shelf *shelf, px_stream *stream, bool small, size_t size) {
  px__node *node = px__tree_least(shelf->free[small], size);
  for (int i = 0; node && i < OTHERS_TRIES; i++) {
    px__chunk *chunk = chunk_of(node);
    if (!may_serve(chunk, size)) return NULL;
    if (px__ordered(chunk->stream, chunk->ready, stream)) return chunk;
    node = px__tree_after(shelf->free[small], node);
  }
  return NULL;
}

// Among other streams' chunks that this stream may use.
static px__chunk *best_fit_of_others(px__device *d, px_stream *stream, bool small, size_t size) {
  px__chunk *best = NULL;
  px__pool_flush(d);  // first: it coalesces
  for (int i = 0; i < d->stream_count; i++) {
    px_stream *owner = d->streams[i];
    if (owner == stream) continue;
    insert_unsorted(&owner->shelf, small);
    if (!owner->shelf.free[small]) continue;
    px__stream_ask(owner);
    px__chunk *chunk = best_fit_for(&owner->shelf, stream, small, size);
    if (chunk && (!best || chunk->node.size < best->node.size)) best = chunk;
  }
  return best;
}

static void move_to(px__chunk *chunk, px_stream *stream) {
  if (chunk->stream == stream) return;
  chunk->stream = stream;
  chunk->ready = stream->issued;
}

// ---- allocating
static bool should_split(const px__chunk *chunk, size_t size) {
  size_t left = chunk->node.size - size;
  const px__room *room = chunk->segment->room;
  if (PX_UNLIKELY(room != NULL) && room->keeps_whole) return false;
  const px__cache *c = &chunk->stream->owner->cache;
  bool tight = chunk->segment->paged && (c->tight || c->thrifty);
  if (chunk->small || size <= SMALL || tight) return left >= GRAIN;
  return left > GREATEST_LEFT && size < c->settings.max_split;
}

// Splits off what lies above `size`. Without memory for the remainder's record the chunk stays
// whole.
px__chunk *px__chunk_split(px__device *d, px__chunk *chunk, size_t size) {
  px__chunk *remainder;
  if (px__chunk_new(&remainder, d) != PX_OK) return px_error_clear(), NULL;
  remainder->segment = chunk->segment;
  remainder->small = chunk->small, remainder->in_room = chunk->in_room;
  remainder->stream = chunk->stream;
  remainder->ready = chunk->ready;
  remainder->node.address = chunk->node.address + size;
  remainder->node.size = chunk->node.size - size;
  chunk->node.size = size;
  remainder->prev = chunk, remainder->next = chunk->next;
  if (chunk->next) chunk->next->prev = remainder;
  chunk->next = remainder;
  if (!remainder->next) chunk->segment->last = remainder;
  px__chunk_list(remainder);
  return remainder;
}

static px_allocation *begin_allocation(px__chunk *chunk, size_t bytes) {
  chunk->allocation = (px__allocation){
      .pub = {.data = (void *)chunk->node.address, .bytes = bytes, .device = chunk->stream->device},
      .kind = PX__CACHED};
  chunk->stack = NULL;
  if (px__races() && chunk->ready)
    px__race_inherit(&chunk->allocation, chunk->stream, chunk->ready);
  return &chunk->allocation.pub;
}

// Splits a chunk that has left the free list to size, and makes a allocation of it.
px_allocation *px__pool_take(const px__request *r, px__chunk *chunk) {
  bool was_part = px__chunk_is_part(chunk);
  px__chunk *remainder =
      should_split(chunk, r->size) ? px__chunk_split(r->device, chunk, r->size) : NULL;
  px_allocation *allocation = begin_allocation(chunk, r->bytes);
  chunk->stack = r->stack;
  px__ledger_allocate(&r->device->cache.ledger, chunk, remainder, was_part);
  px__history_chunk(r->device, PX_MEMORY_ALLOC, chunk, r->stack);
  return allocation;
}

// Where the request's memory comes from, if not from what serves all: a capture's room, or one
// that the thread has begun.
px__room *px__pool_room(const px__request *r) {
  if (PX_UNLIKELY(r->stream->room != NULL)) return r->stream->room;
  const px__route *route = px__route_now(&r->device->cache);
  return PX_UNLIKELY(route != NULL) ? route->room : NULL;
}

static px__chunk *find_in_room(px__room *room, const px__request *r, bool small) {
  insert_unsorted(&room->shelf, small);
  return best_fit_for(&room->shelf, r->stream, small, r->size);
}

static px__chunk *find(const px__request *r, bool small) {
  px__room *room = px__pool_room(r);
  if (PX_UNLIKELY(room != NULL)) return find_in_room(room, r, small);
  flush(r->device, r->stream, small);
  px__chunk *own = best_fit(&r->stream->shelf, small, r->size);
  if (own && !(r->device->cache.tight && own->node.size > r->size)) return own;
  px__chunk *other = best_fit_of_others(r->device, r->stream, small, r->size);
  own = best_fit(&r->stream->shelf, small, r->size);  // the search may have joined it to others
  return !own || (other && other->node.size < own->node.size) ? other : own;
}

px_allocation *px__pool_take_free(const px__request *r, px__chunk *chunk) {
  if (!chunk) return NULL;
  px__chunk_unlist(chunk);
  move_to(chunk, r->stream);
  return px__pool_take(r, chunk);
}
px_allocation *px__pool_allocate(const px__request *r) {
  return px__pool_take_free(r, find(r, r->size <= SMALL));
}
px_allocation *px__pool_allocate_other(const px__request *r) {
  return px__pool_take_free(r, find(r, r->size > SMALL));
}
px_allocation *px__pool_allocate_lent(const px__request *r) {
  px__chunk *chunk = NULL;
  px__room *room = px__pool_room(r) ? NULL : r->device->cache.rooms;
  for (; room && !chunk; room = room->next)
    if (room->lends && !room->captured) chunk = find_in_room(room, r, r->size <= SMALL);
  return px__pool_take_free(r, chunk);
}

// ---- freeing
void px__pool_free(px__device *d, px__chunk *chunk, const px_traceback *stack) {
  px_stream *stream = chunk->stream;
  flush(d, stream, chunk->small);
  if (px__bin_give(chunk)) return;
  px__ledger_free(&d->cache.ledger, chunk);
  px__history_chunk(d, PX_MEMORY_FREE_REQUESTED, chunk, stack);
  if (px__allocation_is_reusable(&chunk->allocation, stream)) {
    chunk->ready = stream->issued;
    make_free(d, chunk, stack);
    return;
  }
  chunk->state = PX__PENDING;
  chunk->queue = d->cache.pending;
  d->cache.pending = chunk;
}

void px__pool_sweep(px__device *d) {
  for (int i = 0; i < d->stream_count; i++) px__stream_poll(d->streams[i]);
  for (px__chunk **place = &d->cache.pending; *place;) {
    px__chunk *chunk = *place;
    if (!px__allocation_is_reusable(&chunk->allocation, chunk->stream)) {
      place = &chunk->queue;
      continue;
    }
    *place = chunk->queue;
    chunk->ready = chunk->stream->issued;
    make_free(d, chunk, chunk->stack);
  }
}
