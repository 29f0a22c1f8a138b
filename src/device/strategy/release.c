// SPDX-License-Identifier: Apache-2.0
// Strategies: give idle memory back. Before a new segment, down to the threshold of the garbage
// collection; with expandable_segments:True on a backend without pages, a new large segment
// replaces idle ones of its size. After an error of the device, all.
#include "device/strategy/strategy.h"

static size_t threshold(const px__device *d) {
  double share = d->cache.settings.gc_threshold;
  return share > 0 ? (size_t)(share * (double)px__memory_limit(d)) : SIZE_MAX;
}

static size_t without_replaced(const px__request *r) {
  const px__cache *c = &r->device->cache;
  size_t wanted = px__segment_size(r->device, r->size);
  if (r->small || c->settings.expandable != PX__EXPANDABLE_TRUE || px__pages_wanted(r->device))
    return SIZE_MAX;
  return c->reserved > wanted ? c->reserved - wanted : 0;
}

px__block *px__try_garbage(px__request *r) {
  size_t allowed = threshold(r->device), rest = without_replaced(r);
  if (rest < allowed) allowed = rest;
  if (allowed < SIZE_MAX) px__release_down_to(r->device, allowed);
  return NULL;
}

px__block *px__try_release(px__request *r) {
  px__release_idle(r->device);
  px__runs_unmap(r->device, SIZE_MAX, NULL);
  return NULL;
}
