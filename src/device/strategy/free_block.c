// SPDX-License-Identifier: Apache-2.0
// Strategies: a free block, of the request's stream or usable by it. The best fit is taken.
#include "device/strategy/strategy.h"

enum { MAX_TRIES = 16 };  // blocks examined per other stream

static px__block *block_of(px__tree_node *node) {
  return node ? (px__block *)((char *)node - offsetof(px__block, node)) : NULL;
}

// Blocks of max_split and more are not split: they serve only requests of similar size.
static bool may_serve(const px__block *block, size_t size) {
  const px__settings *s = &block->stream->owner->cache.settings;
  if (size < s->max_split) return block->node.size < s->max_split;
  return block->node.size < size + s->non_split_rounding;
}

// Returns the best fit in the lists of the request's stream.
static px__block *own_fit(const px__free_lists *free_lists, const px__request *r) {
  px__block *best = block_of(px__tree_lower_bound(free_lists->free[r->small], r->size));
  px__block *last = free_lists->unsorted[r->small];
  bool fits = last && last->node.size >= r->size && may_serve(last, r->size);
  if (best && !may_serve(best, r->size)) best = NULL;  // then no larger one may serve either
  bool better =
      fits && (!best || last->node.size < best->node.size ||
               (last->node.size == best->node.size && last->node.address < best->node.address));
  return better ? last : best;
}

// Returns the best fit in the lists of others that the request's stream may use.
static px__block *usable_fit(px__free_lists *free_lists, const px__request *r) {
  px__free_lists_sort(free_lists, r->small);
  px__tree_node *node = px__tree_lower_bound(free_lists->free[r->small], r->size);
  for (int i = 0; node && i < MAX_TRIES; i++) {
    px__block *block = block_of(node);
    if (!may_serve(block, r->size)) return NULL;
    if (px__block_is_usable(block, r->stream)) return block;
    node = px__tree_next(free_lists->free[r->small], node);
  }
  return NULL;
}

static px__block *fit_of_others(const px__request *r) {
  px__device *d = r->device;
  px__block *best = NULL;
  px__pool_flush(d);  // before the search, since it coalesces
  for (int i = 0; i < d->stream_count; i++) {
    px_stream *owner = d->streams[i];
    if (owner == r->stream) continue;
    px__free_lists_sort(&owner->free_lists, r->small);
    if (!owner->free_lists.free[r->small]) continue;
    px__stream_query(owner);
    px__block *block = usable_fit(&owner->free_lists, r);
    if (block && (!best || block->node.size < best->node.size)) best = block;
  }
  return best;
}

px__block *px__best_fit(const px__request *r) {
  if (PX_UNLIKELY(r->pool != NULL)) return usable_fit(&r->pool->free_lists, r);
  px__bin_flush(r->stream, r->small);
  px__block *own = own_fit(&r->stream->free_lists, r);
  if (own && !(r->device->cache.over_slack && own->node.size > r->size)) return own;
  px__block *other = fit_of_others(r);
  own = own_fit(&r->stream->free_lists, r);  // the search may have merged it
  return !own || (other && other->node.size < own->node.size) ? other : own;
}

px__block *px__try_free_block(px__request *r) {
  if (r->device->cache.pending) px__pool_sweep(r->device);
  px__block *block = px__compact_place(r);
  return block ? block : px__best_fit(r);
}

px__block *px__try_other_kind(px__request *r) {
  px__request other = *r;
  other.small = !r->small;
  return px__best_fit(&other);
}

px__block *px__try_lent_pool(px__request *r) {
  px__private_pool *pool = r->pool ? NULL : r->device->cache.private_pools;
  px__block *block = NULL;
  for (; pool && !block; pool = pool->next)
    if (pool->use_on_oom && !pool->captured) block = usable_fit(&pool->free_lists, r);
  return block;
}

px__block *px__try_merged(px__request *r) {
  px__device *d = r->device;
  px__pool_flush(d);
  px__pool_sweep(d);
  px__blocks_merge(d);
  d->cache.compact = px__compact_possible(d);
  px__block *block = px__try_free_block(r);
  if (!block) d->cache.statistics.num_alloc_retries++;
  return block;
}
