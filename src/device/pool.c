// SPDX-License-Identifier: Apache-2.0
// Segments of device memory and the chunks that they are cut into: PyTorch's sizes and rules.
//
// A chunk belongs to a stream, on which it may be used again at once. Free chunks are in their
// stream's tree (by size, then address) and say after which work of the stream all their uses are;
// another stream may take one when that work is done or ordered before it. All under the device's
// lock.
#include "device/state.h"

enum {
  GRAIN = 512,              // sizes are multiples
  SMALL = 1 << 20,          // requests up to this come from the small pool
  SMALL_SEGMENT = 2 << 20,  //
  LARGE = 10 << 20,         // from here a segment of its own, rounded; below, one that settings say
  STEPS_FROM = 20,          // settings' divisions begin at this power of two
  SEGMENT_GRAIN = 2 << 20,  //
  GREATEST_LEFT = 1 << 20,  // a large chunk is split only if more than this is left
  FOREIGN_TRIES = 16,       // chunks of another stream that are looked at
};

// Up to the next of the parts into which settings divide the power of two.
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

size_t px__pool_segment_size(const px__device *d, size_t size) {
  if (size <= SMALL) return SMALL_SEGMENT;
  if (size < LARGE) return d->cache.settings.large_segment;
  return (size + SEGMENT_GRAIN - 1) & ~(size_t)(SEGMENT_GRAIN - 1);
}

static px__chunk *chunk_of(px__node *node) {
  return node ? (px__chunk *)((char *)node - offsetof(px__chunk, node)) : NULL;
}
static bool is_part(const px__chunk *chunk) { return chunk->prev || chunk->next; }

// ---- free chunks of a stream: all but the latest in its tree
static void cool(px_stream *stream, bool small) {
  px__chunk *hot = stream->hot[small];
  stream->hot[small] = NULL;
  if (hot) px__tree_insert(&stream->free[small], &hot->node);
}

static void put_free(px__chunk *chunk) {
  bool small = chunk->segment->small;
  if (PX_UNLIKELY(chunk->stream->hot[small] != NULL)) cool(chunk->stream, small);
  chunk->stream->hot[small] = chunk;
  chunk->state = PX__FREE;
}

static void pull_free(px__chunk *chunk) {
  bool small = chunk->segment->small;
  if (chunk->stream->hot[small] == chunk)
    chunk->stream->hot[small] = NULL;
  else
    px__tree_remove(&chunk->stream->free[small], &chunk->node);
  chunk->state = PX__TAKEN;
}

static px_status chunk_new(px__chunk **out, px__device *d) {
  px__chunk *chunk = d->cache.spare;
  if (chunk) {
    d->cache.spare = chunk->queue;
    memset(&chunk->block, 0, sizeof chunk->block);
    chunk->prev = chunk->next = NULL;
    chunk->ready = 0;
    chunk->state = PX__TAKEN;
    return *out = chunk, PX_OK;
  }
  return PX_NEW(out);
}

static void chunk_drop(px__device *d, px__chunk *chunk) {
  chunk->queue = d->cache.spare;
  d->cache.spare = chunk;
}

// ---- counting
static void count_take(px__stats *stats, const px__chunk *chunk, bool small, int sign) {
  int64_t size = (int64_t)chunk->node.size * sign;
  if (chunk->node.size >= chunk->stream->owner->cache.settings.max_split)
    px__stat_move(stats->oversize_allocations, sign);
  px__stat_pooled(stats->allocation, small, sign);
  px__stat_pooled(stats->allocated_bytes, small, size);
  px__stat_pooled(stats->requested_bytes, small, (int64_t)chunk->block.pub.bytes * sign);
}

static void count_active(px__stats *stats, const px__chunk *chunk, bool small, int sign) {
  px__stat_pooled(stats->active, small, sign);
  px__stat_pooled(stats->active_bytes, small, (int64_t)chunk->node.size * sign);
}

static void count_parts(px__stats *stats, bool small, int64_t chunks, int64_t bytes) {
  if (chunks) px__stat_pooled(stats->inactive_split, small, chunks);
  if (bytes) px__stat_pooled(stats->inactive_split_bytes, small, bytes);
}

// ---- joining
static bool can_absorb(const px__chunk *chunk, const px__chunk *beside) {
  return beside && beside->state == PX__FREE &&
         px__ordered(beside->stream, beside->ready, chunk->stream);
}

// Makes `beside` part of `chunk`. What `beside` was used for is ordered before the stream's next
// work, which need not be so of work `ready`: the chunk may have rested since.
static void absorb(px__device *d, px__chunk *chunk, px__chunk *beside) {
  pull_free(beside);
  count_parts(&d->cache.stats, chunk->segment->small, -1, -(int64_t)beside->node.size);
  if (beside == chunk->prev) {
    chunk->node.address = beside->node.address;
    chunk->prev = beside->prev;
    if (chunk->prev) chunk->prev->next = chunk;
  } else {
    chunk->next = beside->next;
    if (chunk->next) chunk->next->prev = chunk;
  }
  chunk->node.size += beside->node.size;
  chunk->ready = chunk->stream->issued;
  if (chunk->segment->first == beside) chunk->segment->first = chunk;
  chunk_drop(d, beside);
}

// All uses of the chunk come before work `ready` of its stream.
static void make_free(px__device *d, px__chunk *chunk) {
  count_active(&d->cache.stats, chunk, chunk->segment->small, -1);
  px__block_drop_uses(&chunk->block);
  if (can_absorb(chunk, chunk->prev)) absorb(d, chunk, chunk->prev);
  if (can_absorb(chunk, chunk->next)) absorb(d, chunk, chunk->next);
  if (is_part(chunk))
    count_parts(&d->cache.stats, chunk->segment->small, 1, (int64_t)chunk->node.size);
  put_free(chunk);
}

// ---- rest
// What a stream was given back last rests until something else is asked of its pool. A request of
// the same size takes it as it is, without the device's lock: so a loop of small ops neither cuts
// nor joins. It counts as taken until then.
static void count_tally(px__stats *stats, const px__tally *tally, bool small) {
  px__stat *const once[] = {stats->allocation, stats->active};
  px__stat *const sized[] = {stats->allocated_bytes, stats->active_bytes};
  for (int pool = 0; pool <= 1 + small; pool += 1 + small) {
    px__stat *requested = &stats->requested_bytes[pool];
    for (int i = 0; i < 2; i++) {
      once[i][pool].allocated += tally->count;
      sized[i][pool].allocated += tally->bytes;
    }
    requested->allocated += tally->wanted;
    int64_t highest = requested->current + tally->highest;
    if (highest > requested->peak) requested->peak = highest;
    requested->current += tally->change;
  }
}

// Device's lock held.
static void wake(px__device *d, px_stream *stream, bool small) {
  px__rest *rest = &stream->rest[small];
  px__spin_lock(&rest->spin);
  px__chunk *chunk = rest->chunk;
  px__tally tally = rest->tally;
  __atomic_store_n(&rest->chunk, NULL, __ATOMIC_RELAXED);
  rest->tally = (px__tally){0};
  px__spin_unlock(&rest->spin);
  if (tally.count) count_tally(&d->cache.stats, &tally, small);
  if (!chunk) return;
  count_take(&d->cache.stats, chunk, small, -1);
  make_free(d, chunk);
}

void px__pool_wake(px__device *d) {
  for (int i = 0; i < d->stream_count; i++)
    for (int small = 0; small < 2; small++) wake(d, d->streams[i], small);
}

// ---- finding
// A chunk that is not split must be of about the size of the request; and it is kept for those.
static bool may_serve(const px__chunk *chunk, size_t size) {
  const px__settings *s = &chunk->stream->owner->cache.settings;
  if (size < s->max_split) return chunk->node.size < s->max_split;
  return chunk->node.size < size + s->non_split_rounding;
}

static px__chunk *find_own(px_stream *stream, bool small, size_t size) {
  px__chunk *hot = stream->hot[small], *best = chunk_of(px__tree_least(stream->free[small], size));
  bool fits = hot && hot->node.size >= size && may_serve(hot, size);
  if (best && !may_serve(best, size)) best = NULL;  // larger ones may not, either
  bool better =
      fits && (!best || hot->node.size < best->node.size ||
               (hot->node.size == best->node.size && hot->node.address < best->node.address));
  return better ? hot : best;
}

static px__chunk *find_of(px_stream *owner, px_stream *stream, bool small, size_t size) {
  px__node *node = px__tree_least(owner->free[small], size);
  for (int i = 0; node && i < FOREIGN_TRIES; i++) {
    if (!may_serve(chunk_of(node), size)) return NULL;
    if (px__ordered(owner, chunk_of(node)->ready, stream)) return chunk_of(node);
    node = px__tree_after(owner->free[small], node);
  }
  return NULL;
}

// The best fit among the other streams' chunks that may be used on this one.
static px__chunk *find_foreign(px__device *d, px_stream *stream, bool small, size_t size) {
  px__chunk *best = NULL;
  px__pool_wake(d);  // first: it joins chunks
  for (int i = 0; i < d->stream_count; i++) {
    px_stream *owner = d->streams[i];
    if (owner == stream) continue;
    cool(owner, small);
    if (!owner->free[small]) continue;
    px__stream_ask(owner);
    px__chunk *chunk = find_of(owner, stream, small, size);
    if (chunk && (!best || chunk->node.size < best->node.size)) best = chunk;
  }
  return best;
}

static void move_to(px__chunk *chunk, px_stream *stream) {
  if (chunk->stream == stream) return;
  chunk->stream = stream;
  chunk->ready = stream->issued;
}

px__chunk *px__pool_find(px__device *d, px_stream *stream, size_t size) {
  bool small = size <= SMALL;
  wake(d, stream, small);
  px__chunk *chunk = find_own(stream, small, size);
  if (!chunk) chunk = find_foreign(d, stream, small, size);
  if (!chunk) return NULL;
  pull_free(chunk);
  move_to(chunk, stream);
  return chunk;
}

// ---- taking
static bool should_split(const px__chunk *chunk, size_t size) {
  size_t left = chunk->node.size - size;
  if (chunk->segment->small) return left >= GRAIN;
  return left > GREATEST_LEFT && size < chunk->stream->owner->cache.settings.max_split;
}

// Cuts off what lies above `size`; on no memory for its record the chunk stays whole.
static px__chunk *split(px__device *d, px__chunk *chunk, size_t size) {
  px__chunk *rest;
  if (chunk_new(&rest, d) != PX_OK) return px_error_clear(), NULL;
  rest->segment = chunk->segment;
  rest->stream = chunk->stream;
  rest->ready = chunk->ready;
  rest->node.address = chunk->node.address + size;
  rest->node.size = chunk->node.size - size;
  chunk->node.size = size;
  rest->prev = chunk, rest->next = chunk->next;
  if (chunk->next) chunk->next->prev = rest;
  chunk->next = rest;
  put_free(rest);
  return rest;
}

static px_block *hand_out(px__device *d, px__chunk *chunk, size_t bytes) {
  chunk->block = (px__block){
      .pub = {.data = (void *)chunk->node.address, .bytes = bytes, .device = px_cuda(d->index)},
      .kind = PX__CACHED};
  if (px__races() && chunk->ready) px__race_inherit(&chunk->block, chunk->stream, chunk->ready);
  return &chunk->block.pub;
}

px_block *px__pool_take(px__device *d, px__chunk *chunk, size_t size, size_t bytes) {
  px__stats *stats = &d->cache.stats;
  bool small = chunk->segment->small, was_part = is_part(chunk);
  px__chunk *rest = should_split(chunk, size) ? split(d, chunk, size) : NULL;
  if (rest && was_part)
    count_parts(stats, small, 0, -(int64_t)chunk->node.size);
  else if (rest)
    count_parts(stats, small, 1, (int64_t)rest->node.size);
  else if (was_part)
    count_parts(stats, small, -1, -(int64_t)chunk->node.size);
  px_block *block = hand_out(d, chunk, bytes);
  count_take(stats, chunk, small, 1);
  count_active(stats, chunk, small, 1);
  return block;
}

static void note_again(px__tally *tally, const px__chunk *chunk, size_t bytes) {
  tally->count++;
  tally->bytes += (int64_t)chunk->node.size;
  tally->wanted += (int64_t)bytes;
  tally->change += (int64_t)bytes - (int64_t)chunk->block.pub.bytes;
  if (tally->change > tally->highest) tally->highest = tally->change;
}

px_block *px__pool_again(px__device *d, px_stream *stream, size_t bytes) {
  px__rest *rest = &stream->rest[bytes <= SMALL];
  if (!__atomic_load_n(&rest->chunk, __ATOMIC_RELAXED) || px__races()) return NULL;
  px__spin_lock(&rest->spin);
  px__chunk *chunk = rest->chunk;
  bool fits = chunk && bytes <= chunk->node.size && chunk->node.size - bytes < GRAIN;
  if (fits) {
    __atomic_store_n(&rest->chunk, NULL, __ATOMIC_RELAXED);
    note_again(&rest->tally, chunk, bytes);
  }
  px__spin_unlock(&rest->spin);
  return fits ? hand_out(d, chunk, bytes) : NULL;
}

// ---- giving
bool px__pool_rest(px__chunk *chunk) {
  px__rest *rest = &chunk->stream->rest[chunk->segment->small];
  if (chunk->block.use_count) return false;
  px__block_drop_uses(&chunk->block);
  px__spin_lock(&rest->spin);
  bool rests = !rest->chunk;
  if (rests) {
    chunk->ready = px__issued(chunk->stream);
    __atomic_store_n(&rest->chunk, chunk, __ATOMIC_RELAXED);
  }
  px__spin_unlock(&rest->spin);
  return rests;
}

void px__pool_give(px__device *d, px__chunk *chunk) {
  px_stream *stream = chunk->stream;
  bool small = chunk->segment->small;
  wake(d, stream, small);
  if (px__pool_rest(chunk)) return;
  if (px__block_settled(&chunk->block, stream)) {
    count_take(&d->cache.stats, chunk, small, -1);
    chunk->ready = stream->issued;
    make_free(d, chunk);
    return;
  }
  count_take(&d->cache.stats, chunk, small, -1);
  chunk->state = PX__PENDING;
  chunk->queue = d->cache.pending;
  d->cache.pending = chunk;
}

void px__pool_sweep(px__device *d) {
  for (int i = 0; i < d->stream_count; i++) px__stream_poll(d->streams[i]);
  for (px__chunk **place = &d->cache.pending; *place;) {
    px__chunk *chunk = *place;
    if (!px__block_settled(&chunk->block, chunk->stream)) {
      place = &chunk->queue;
      continue;
    }
    *place = chunk->queue;
    chunk->ready = chunk->stream->issued;
    make_free(d, chunk);
  }
}

// ---- segments
static px_status raw_alloc(px__device *d, size_t size, void **out) {
  px__cache *cache = &d->cache;
  *out = NULL;
  bool refused =
      px__fault(PX__FAULT_DEVICE_ALLOC) ||
      (cache->limit && (size_t)cache->stats.reserved_bytes[0].current + size > cache->limit);
  PX_CHECK(!refused, PX_OUT_OF_MEMORY, "the device has no %zu bytes left", size);
  return px__rt.backend->alloc(d->physical, size, out);
}

px_status px__pool_grow(px__chunk **out, px__device *d, px_stream *stream, size_t size) {
  px__segment *segment;
  px__chunk *chunk;
  PX_TRY(chunk_new(&chunk, d));
  px_status status = PX_NEW(&segment);
  void *data = NULL;
  if (status == PX_OK) status = raw_alloc(d, px__pool_segment_size(d, size), &data);
  if (status != PX_OK) {
    if (segment) px__free(segment);
    chunk_drop(d, chunk);
    return status;
  }
  *segment = (px__segment){.next = d->cache.segments,
                           .first = chunk,
                           .data = data,
                           .size = px__pool_segment_size(d, size),
                           .small = size <= SMALL};
  if (segment->next) segment->next->prev = segment;
  d->cache.segments = segment;
  chunk->segment = segment;
  chunk->stream = stream;
  chunk->node.address = (uintptr_t)data, chunk->node.size = segment->size;
  px__stat_pooled(d->cache.stats.segment, segment->small, 1);
  px__stat_pooled(d->cache.stats.reserved_bytes, segment->small, (int64_t)segment->size);
  d->cache.stats.num_device_alloc++;
  if (segment->size >= d->cache.settings.max_split)
    px__stat_move(d->cache.stats.oversize_segments, 1);
  *out = chunk;
  return PX_OK;
}

static void segment_release(px__device *d, px__segment *segment) {
  px__cache *cache = &d->cache;
  for (px__chunk *chunk = segment->first, *next; chunk; chunk = next) {
    next = chunk->next;
    pull_free(chunk);
    if (is_part(chunk)) count_parts(&cache->stats, segment->small, -1, -(int64_t)chunk->node.size);
    chunk_drop(d, chunk);
  }
  *(segment->prev ? &segment->prev->next : &cache->segments) = segment->next;
  if (segment->next) segment->next->prev = segment->prev;
  px__rt.backend->release(d->physical, segment->data);
  px__stat_pooled(cache->stats.segment, segment->small, -1);
  px__stat_pooled(cache->stats.reserved_bytes, segment->small, -(int64_t)segment->size);
  cache->stats.num_device_free++;
  if (segment->size >= cache->settings.max_split) px__stat_move(cache->stats.oversize_segments, -1);
  px__free(segment);
}

static bool is_idle(const px__segment *segment) {
  for (px__chunk *chunk = segment->first; chunk; chunk = chunk->next)
    if (chunk->state != PX__FREE) return false;
  return true;
}

void px__pool_collect(px__device *d) {
  px__pool_wake(d);
  px__cache *cache = &d->cache;
  size_t most = cache->limit ? cache->limit : d->properties.total_memory;
  int64_t allowed = (int64_t)(cache->settings.threshold * (double)most);
  px__segment *oldest = cache->segments;
  while (oldest && oldest->next) oldest = oldest->next;
  for (px__segment *segment = oldest, *before; segment; segment = before) {
    before = segment->prev;
    if (cache->stats.reserved_bytes[0].current <= allowed) return;
    if (is_idle(segment)) segment_release(d, segment);
  }
}

// Gives back the segments of which every chunk is free, whatever streams these belong to: a raw
// free waits for the work that uses it.
void px__pool_release(px__device *d) {
  px__pool_wake(d);
  d->cache.stats.num_sync_all_streams++;
  for (px__segment *segment = d->cache.segments, *next; segment; segment = next) {
    next = segment->next;
    if (is_idle(segment)) segment_release(d, segment);
  }
}
