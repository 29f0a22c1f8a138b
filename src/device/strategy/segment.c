// SPDX-License-Identifier: Apache-2.0
// Strategies: a new segment.
#include "device/strategy/strategy.h"

static px__block *new_segment(px__request *r, size_t bytes) {
  px__segment *segment;
  r->status = px__segment_new(&segment, r, NULL, bytes);
  return r->status == PX_OK ? segment->first : NULL;
}

px__block *px__try_exact_segment(px__request *r) {
  return new_segment(r, px__whole_pages(r->size));
}

px__block *px__try_segment(px__request *r) {
  const px__cache *c = &r->device->cache;
  bool exact = (c->over_slack || c->compact) && px__pages_wanted(r->device);
  return exact ? px__try_exact_segment(r) : new_segment(r, px__segment_size(r->device, r->size));
}
