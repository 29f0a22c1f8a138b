// SPDX-License-Identifier: Apache-2.0
// Runs of pages that grow where a request needs it, and lose what is free in them. All with the
// device's lock held.
//
// A live allocation stays where it is, and with it the pages that it touches. All other pages may
// go anywhere, as soon as no work uses them. So a request that finds no fit gets the place in the
// device's addresses that takes the fewest pages beside what is free on both sides of it; runs that
// meet become one.
#include "device/state.h"

// ---- giving pages back
static void count_idle(px__device *d, px__chunk *chunk, bool idle) {
  if (!chunk || chunk->state != PX__FREE) return;
  if (idle)
    px__ledger_idle(&d->cache.ledger, chunk);
  else
    px__ledger_unidle(&d->cache.ledger, chunk);
}

// Records for the pieces of a chunk, and a segment for what lies behind.
static px_status make_room(px__device *d, px__segment **rest) {
  px__chunk *spare[2] = {NULL, NULL};
  px_status status = PX_NEW(rest);
  for (int i = 0; i < 2 && status == PX_OK; i++) status = px__chunk_new(&spare[i], d);
  for (int i = 0; i < 2; i++)
    if (spare[i]) px__chunk_drop(d, spare[i]);
  if (status != PX_OK && *rest) px__free(*rest);
  return status;
}

// Makes [low, high) of a free chunk a chunk of its own, which is in no list. There are records.
static px__chunk *carve(px__device *d, px__chunk *chunk, uintptr_t low, uintptr_t high) {
  px__chunk *carved = chunk;
  px__chunk_unlist(chunk);
  if (low > chunk->node.address) {
    carved = px__chunk_split(d, chunk, low - chunk->node.address);
    px__chunk_unlist(carved);
    px__chunk_list(chunk);
  }
  if (carved->node.size > high - low) px__chunk_split(d, carved, high - low);
  return carved;
}

// The segment becomes two around the chunk, or loses its beginning or end.
static void part(px__device *d, px__chunk *gone, px__segment *rest) {
  px__segment *s = gone->segment;
  px__chunk *left = gone->prev, *right = gone->next;
  bool two = left && right;
  if (left) left->next = NULL;
  if (right) right->prev = NULL;
  if (!left) s->first = right;
  if (two) {
    *rest = (px__segment){.first = right,
                          .last = s->last,
                          .stack = s->stack,
                          .small = s->small,
                          .paged = true,
                          .next = s->next};
    for (px__chunk *chunk = right; chunk; chunk = chunk->next) chunk->segment = rest;
    rest->prev = s;
    if (rest->next) rest->next->prev = rest;
    s->next = rest;
  }
  if (left) s->last = left;
  px__pages_cut(d, s, gone->node.address, gone->node.size, two ? rest : NULL);
  if (!two) px__free(rest);
  d->cache.reserved -= gone->node.size;
  d->cache.moved = true;
  px__ledger_cut(&d->cache.ledger, s, gone->node.size, two);
}

static void note_cut(px__device *d, const px__chunk *gone) {
  if (px__history_on())
    px__history_note(d, &(px_memory_event){.action = PX_MEMORY_SEGMENT_UNMAP,
                                           .address = (int64_t)gone->node.address,
                                           .size = (int64_t)gone->node.size,
                                           .stream = gone->stream->id,
                                           .stack = gone->segment->stack});
}

// Gives the pages [low, high) of a free chunk back, which is not all that its segment has.
static bool cut(px__device *d, px__chunk *chunk, uintptr_t low, uintptr_t high) {
  px__segment *rest = NULL;
  px__chunk *before = chunk->prev, *behind = chunk->next;
  if (make_room(d, &rest) != PX_OK) return px_error_clear(), false;
  count_idle(d, before, false), count_idle(d, chunk, false), count_idle(d, behind, false);
  px__chunk *gone = carve(d, chunk, low, high);
  px__chunk *left = gone->prev, *right = gone->next;
  note_cut(d, gone);
  part(d, gone, rest);
  px__chunk_drop(d, gone);
  count_idle(d, left, true), count_idle(d, right, true);
  if (before != left) count_idle(d, before, true);
  if (behind != right) count_idle(d, behind, true);
  return true;
}

// The whole pages of a free chunk that nothing uses: from where on, and how many bytes.
static size_t pages_of(const px__chunk *chunk, uintptr_t *low) {
  *low = px__whole_pages(chunk->node.address);
  uintptr_t high = (chunk->node.address + chunk->node.size) & ~(uintptr_t)(PX__PAGE - 1);
  return px__chunk_is_done(chunk) && high > *low ? high - *low : 0;
}

// Gives back at most `wanted` bytes of a chunk's pages: the last ones, if the segment does not
// begin with it.
static size_t give_of(px__device *d, px__chunk *chunk, size_t wanted) {
  uintptr_t low;
  size_t bytes = pages_of(chunk, &low);
  if (bytes > wanted) {
    if (chunk->prev) low += bytes - wanted;
    bytes = wanted;
  }
  if (bytes == chunk->segment->size) return px__segment_release(d, chunk->segment), bytes;
  return bytes && cut(d, chunk, low, low + bytes) ? bytes : 0;
}

// Gives back at most `wanted` bytes of pages, of the oldest segments first, and none of two chunks.
// Returns how many.
size_t px__runs_give(px__device *d, size_t wanted, px__chunk *const kept[2]) {
  size_t given = 0;
  if (px__device_captures(d)) return 0;
  for (int i = 0; i < d->stream_count; i++) px__stream_ask(d->streams[i]);
  for (px__segment *segment = px__segment_oldest(d), *before; segment && given < wanted;
       segment = before) {
    before = segment->prev;
    if (!segment->paged || segment->room) continue;
    bool keeps = kept && ((kept[0] && kept[0]->segment == segment) ||
                          (kept[1] && kept[1]->segment == segment));
    if (!keeps && segment->size <= wanted - given && px__segment_can_go(segment)) {
      given += segment->size;
      px__segment_release(d, segment);
      continue;
    }
    for (px__chunk *chunk = segment->first, *next; chunk && given < wanted; chunk = next) {
      next = chunk->next;
      if (!kept || (chunk != kept[0] && chunk != kept[1]))
        given += give_of(d, chunk, wanted - given);
    }
  }
  return given;
}

// ---- growing
typedef struct place {
  uintptr_t at;        // where new pages go
  size_t bytes;        // of them
  px__chunk *side[2];  // free chunks below and above, which the request gets too; or NULL
} place;

static bool is_alike(const px__segment *s, bool small) {
  return s && s->paged && !s->room && s->small == small;
}

// The chunk beside a gap, if it may serve the request.
static px__chunk *beside(const px__segment *s, const px__request *r, bool above) {
  if (!is_alike(s, r->size <= PX__SMALL)) return NULL;
  px__chunk *chunk = above ? s->first : s->last;
  bool may = chunk->state == PX__FREE && px__ordered(chunk->stream, chunk->ready, r->stream);
  return may ? chunk : NULL;
}

// What the request takes in the gap [low, high), if it fits there.
static bool try_gap(place *out, const px__request *r, uintptr_t low, uintptr_t high,
                    px__segment *below, px__segment *above) {
  px__chunk *a = beside(below, r, false), *b = beside(above, r, true);
  size_t under = a ? a->node.size : 0, over = b ? b->node.size : 0, gap = high - low;
  size_t bytes = r->size > under ? px__whole_pages(r->size - under) : 0;
  if (bytes <= gap) {
    *out = (place){.at = low, .bytes = bytes, .side = {a, NULL}};
    return gap > 0 && bytes > 0;
  }
  *out = (place){.at = low, .bytes = gap, .side = {a, b}};
  return gap && r->size - under - gap <= over;
}

// Of all gaps the one that takes the fewest pages, and of those the lowest.
static bool find_place(place *out, const px__request *r) {
  const px__cache *c = &r->device->cache;
  uintptr_t low = c->range;
  place found;
  *out = (place){0};
  for (px__segment *s = c->lowest, *below = NULL;; below = s, s = s->above) {
    if (try_gap(&found, r, low, s ? (uintptr_t)s->data : c->range_end, below, s) &&
        (!out->bytes || found.bytes < out->bytes))
      *out = found;
    if (!s) return out->bytes > 0;
    low = (uintptr_t)s->data + s->size;
  }
}

// Makes the segment above one with `s`, if both are of a kind and meet.
static void join(px__device *d, px__segment *s) {
  px__segment *above = s ? s->above : NULL;
  if (!above || !is_alike(s, s->small) || !is_alike(above, s->small) ||
      (char *)s->data + s->size != above->data)
    return;
  px__chunk *last = s->last, *first = above->first;
  count_idle(d, last, false), count_idle(d, first, false);
  last->next = first, first->prev = last, s->last = above->last;
  for (px__chunk *chunk = first; chunk; chunk = chunk->next) chunk->segment = s;
  count_idle(d, last, true), count_idle(d, first, true);
  px__pages_join(d, s);
  d->cache.moved = true;
  px__ledger_join(&d->cache.ledger, above);
  px__segment_forget(d, above);
}

px_status px__runs_put(px__chunk **out, const px__request *r, uintptr_t at, size_t bytes) {
  px__device *d = r->device;
  px__segment *segment;
  PX_TRY(px__segment_new(&segment, r, (void *)at, bytes));
  px__chunk *chunk = segment->first;
  px__segment *below = segment->below;
  px__chunk_list(chunk);
  join(d, segment);
  join(d, below);
  px__chunk_coalesce(d, chunk);
  *out = chunk;
  return PX_OK;
}

px_status px__runs_grow(px_allocation **out, const px__request *r, size_t more) {
  place where;
  *out = NULL;
  if (px__pool_room(r) || !px__pages_wanted(r->device)) return PX_OK;
  px__pool_flush(r->device);
  if (!find_place(&where, r)) return PX_OK;
  if (where.bytes > more) px__runs_give(r->device, where.bytes, where.side);
  px__chunk *chunk;
  PX_TRY(px__runs_put(&chunk, r, where.at, where.bytes));
  *out = px__pool_allocate(r);
  return PX_OK;
}
