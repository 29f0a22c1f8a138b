// SPDX-License-Identifier: Apache-2.0
// Strategy: compact placement. Chooses the position of a request by cost, on a device of few pages
// that has been short of memory.
//
// A page stays mapped until the last allocation touching it is freed. With k allocations there,
// freed in random order, one more delays that by 1/(k + 1) of a lifetime. This is the cost of each
// page touched by a position: 1 for an untouched page. Free remainders next to the position in
// these pages cost extra: half of their part of a page if they reach the page's edge, where a large
// request could have continued, and a quarter between allocations. A request gets the cheapest
// position; of equal ones the lowest. Every block is examined: few pages have few blocks.
#include "device/strategy/strategy.h"

enum { MAX_PAGES = 512, PAGE_COST = 1 << 20 };  // pages of the address range; cost of a whole page

typedef struct survey {
  const px__request *r;
  uint16_t blocks[MAX_PAGES];       // number of allocations touching each page
  size_t touched_pages, max_pages;  // touched pages, and their limit
  uint64_t cost;                    // of the best position
  uintptr_t at;                     // the best position; 0: none
  px__block *block;                 // the free block around it; NULL: in the gap
  px__page_gap gap;
} survey;

bool px__compact_possible(px__device *d) {
  const px__cache *c = &d->cache;
  return px__pages_wanted(d) && (c->range_end - c->range) / PX__PAGE <= MAX_PAGES;
}

// True if the request may take the free block.
static bool is_usable(const px__block *block, const px__request *r) {
  return !block->segment->private_pool && px__block_is_usable(block, r->stream);
}

static size_t page_of(const survey *s, uintptr_t at) {
  return (at - s->r->device->cache.range) / PX__PAGE;
}

// ---- counting
static void count_block(survey *s, const px__block *block) {
  if (is_usable(block, s->r)) return;
  size_t last = page_of(s, px__block_end(block) - 1);
  for (size_t p = page_of(s, block->node.address); p <= last; p++)
    s->touched_pages += s->blocks[p]++ == 0;
}

static void count(survey *s) {
  const px__device *d = s->r->device;
  s->max_pages = px__memory_limit(d) / PX__PAGE;
  for (px__segment *segment = d->cache.segments; segment; segment = segment->next) {
    if (!segment->paged) s->touched_pages += segment->size / PX__PAGE;
    for (px__block *c = segment->paged ? segment->first : NULL; c; c = c->next) count_block(s, c);
  }
}

// ---- choosing
static uint64_t share_of(size_t bytes, int part) {
  return bytes * PAGE_COST / ((size_t)part * PX__PAGE);
}

// Returns the cost of a position in the free range [low, high). UINT64_MAX: too few pages.
static uint64_t cost_of(const survey *s, uintptr_t low, uintptr_t high, uintptr_t at) {
  size_t first = page_of(s, at), last = page_of(s, at + s->r->size - 1), added = 0;
  uintptr_t begin = at & ~(uintptr_t)(PX__PAGE - 1), end = px__whole_pages(at + s->r->size);
  uint64_t cost = 0;
  for (size_t p = first; p <= last; p++) {
    added += !s->blocks[p];
    cost += PAGE_COST / (s->blocks[p] + 1u);
  }
  cost += begin < low ? share_of(at - low, 4) : share_of(at - begin, 2);
  cost += end > high ? share_of(high - at - s->r->size, 4) : share_of(end - at - s->r->size, 2);
  return s->touched_pages + added <= s->max_pages ? cost : UINT64_MAX;
}

// Tries both ends of a free range, and both ends of its whole pages.
static void consider(survey *s, uintptr_t low, uintptr_t high, px__block *block,
                     const px__page_gap *gap) {
  size_t size = s->r->size;
  uintptr_t floor = high & ~(uintptr_t)(PX__PAGE - 1);
  uintptr_t candidates[] = {low, high - size, px__whole_pages(low), floor - size};
  for (int i = 0; i < PX_COUNT_OF(candidates); i++) {
    uintptr_t at = candidates[i];
    if (high - low < size || at < low || at > high - size) continue;
    uint64_t cost = cost_of(s, low, high, at);
    if (cost > s->cost || (cost == s->cost && (!s->at || at >= s->at))) continue;
    s->cost = cost, s->at = cost == UINT64_MAX ? 0 : at;
    s->block = block, s->gap = *gap;
  }
}

// Without `gaps`: only where pages are mapped.
static void choose(survey *s, bool gaps) {
  px__page_gap gap = {0};
  s->cost = UINT64_MAX, s->at = 0;
  while (px__page_gap_next(&gap, s->r)) {
    px__block *a = gap.side[0], *b = gap.side[1];
    if (gap.low < gap.high && gaps)
      consider(s, a ? a->node.address : gap.low, b ? px__block_end(b) : gap.high, NULL, &gap);
    for (px__block *block = gap.above ? gap.above->first : NULL; block; block = block->next)
      if (is_usable(block, s->r))
        consider(s, block->node.address, px__block_end(block), block, &gap);
  }
}

// ---- allocating at the position
// Maps the gap's pages touched by the position, and unmaps as many elsewhere, but not in free
// blocks that are part of it. Fails while work uses idle pages.
static px_status map_pages(survey *s) {
  const px__page_gap *gap = &s->gap;
  uintptr_t begin = s->at & ~(uintptr_t)(PX__PAGE - 1), end = px__whole_pages(s->at + s->r->size);
  px__block *excluded[2] = {s->at < gap->low ? gap->side[0] : NULL,
                            s->at + s->r->size > gap->high ? gap->side[1] : NULL};
  if (begin < gap->low) begin = gap->low;
  if (end > gap->high) end = gap->high;
  px__runs_unmap(s->r->device, end - begin, excluded);
  return px__runs_map(&s->block, s->r, begin, end - begin);
}

// Splits a free block at `at` and returns the upper part; all of it without memory for the record.
static px__block *split_below(px__device *d, px__block *block, uintptr_t at) {
  if (block->node.address >= at) return block;
  px__statistics_inactive(&d->cache.statistics, block, -1);
  px__block *upper = px__block_split(d, block, at - block->node.address);
  px__statistics_inactive(&d->cache.statistics, block, 1);
  px__statistics_inactive(&d->cache.statistics, upper, 1);
  return upper ? upper : block;
}

px__block *px__compact_place(const px__request *r) {
  px__device *d = r->device;
  if (PX_LIKELY(!d->cache.compact) || r->pool || !px__compact_possible(d)) return NULL;
  px__request mixed = *r;
  survey s = {.r = &mixed};
  mixed.small = false;  // new segments serve small and large requests
  px__pool_flush(d);
  for (int i = 0; i < d->stream_count; i++) px__stream_query(d->streams[i]);
  count(&s);
  choose(&s, true);
  if (s.at && !s.block && map_pages(&s) != PX_OK) {
    px_error_clear();
    choose(&s, false);
  }
  return s.at ? split_below(d, s.block, s.at) : NULL;
}

px__block *px__try_compact(px__request *r) {
  px__cache *c = &r->device->cache;
  if (c->compact || !px__compact_possible(r->device)) return NULL;
  c->compact = true;
  return px__compact_place(r);
}
