// SPDX-License-Identifier: Apache-2.0
// Strategies: grow an expandable segment in the gap of the address range with the fewest new pages,
// together with free blocks on both sides. As many idle pages are unmapped elsewhere.
//
// A repeated step of a program may miss at the same request each time: pages taken from some blocks
// are taken back later. Mapping pages is slower than most work on them. A repeated miss therefore
// gets new pages, up to a limit, until the step fits.
#include "device/strategy/strategy.h"

#define MIB ((size_t)1 << 20)
enum {
  REPEATED = 32,       // MiB of new pages for repeated misses,
  REPEATED_SHARE = 20  // ... or the peak in use divided by this, if larger
};

typedef struct fit {
  uintptr_t at;        // address of the new pages
  size_t bytes;        // their size
  px__block *side[2];  // free blocks below and above, part of the fit; or NULL
} fit;

// Computes the new pages of the request in the gap. False if it does not fit.
static bool try_gap(fit *out, const px__request *r, const px__page_gap *gap) {
  px__block *a = gap->side[0], *b = gap->side[1];
  size_t under = a ? a->node.size : 0, over = b ? b->node.size : 0, size = gap->high - gap->low;
  size_t bytes = r->size > under ? px__whole_pages(r->size - under) : 0;
  if (bytes <= size) {
    *out = (fit){.at = gap->low, .bytes = bytes, .side = {a, NULL}};
    return bytes > 0;
  }
  *out = (fit){.at = gap->low, .bytes = size, .side = {a, b}};
  return size && r->size - under - size <= over;
}

// Finds the gap with the fewest new pages; of equal ones the lowest.
static bool find_fit(fit *out, const px__request *r) {
  px__page_gap gap = {0};
  fit found;
  *out = (fit){0};
  while (px__page_gap_next(&gap, r))
    if (try_gap(&found, r, &gap) && (!out->bytes || found.bytes < out->bytes)) *out = found;
  return out->bytes > 0;
}

// Up to `more` bytes of new pages need not be unmapped elsewhere.
static px__block *grow(px__request *r, size_t more) {
  fit where;
  px__block *block;
  if (r->pool || !px__pages_wanted(r->device)) return NULL;
  px__pool_flush(r->device);
  if (!find_fit(&where, r)) return NULL;
  if (where.bytes > more) px__runs_unmap(r->device, where.bytes, where.side);
  r->status = px__runs_map(&block, r, where.at, where.bytes);
  // The best fit may be another block: unmapping polls the streams.
  return r->status == PX_OK ? px__best_fit(r) : NULL;
}

px__block *px__try_page_run(px__request *r) { return grow(r, 0); }

// True if a request of this size has missed before with as much memory in use.
static bool is_repeated(px__cache *c, const px__request *r) {
  px__misses *m = &c->misses;
  px__miss now = {.size = r->size, .live = (size_t)c->statistics.allocated_bytes[0].current};
  unsigned known = m->count < PX__MISSES ? m->count : PX__MISSES;
  for (unsigned i = 0; i < known; i++)
    if (m->seen[i].size == now.size && m->seen[i].live == now.live) return true;
  m->seen[m->count++ % PX__MISSES] = now;
  return false;
}

px__block *px__try_repeated_miss(px__request *r) {
  px__cache *c = &r->device->cache;
  size_t share = c->peak_in_use / REPEATED_SHARE, before = c->reserved;
  size_t limit = share > REPEATED * MIB ? share : REPEATED * MIB;
  size_t more = is_repeated(c, r) && limit > c->misses.mapped ? limit - c->misses.mapped : 0;
  px__block *block = grow(r, more);
  if (more && c->reserved > before) c->misses.mapped += c->reserved - before;
  return block;
}
