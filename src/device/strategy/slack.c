// SPDX-License-Identifier: Apache-2.0
// Condition: reserved memory would exceed the peak in use by more than a slack limit. Below it,
// segments have PyTorch's sizes and number. Above it, pages move instead.
#include "device/strategy/strategy.h"

#define MIB ((size_t)1 << 20)
enum {
  SLACK = 256,            // MiB of slack
  SLACK_EXPANDABLE = 32,  // ... with expandable_segments:True
  SLACK_SHARE = 16        // ... at most the device's memory divided by this
};

// The result also determines how blocks are chosen and split from now on.
bool px__slack_exceeded(const px__request *r) {
  px__cache *c = &r->device->cache;
  if (!px__pages_wanted(r->device)) return false;
  size_t live = (size_t)c->statistics.allocated_bytes[0].current + r->size;
  size_t share = px__memory_limit(r->device) / SLACK_SHARE;
  size_t slack = (c->settings.expandable == PX__EXPANDABLE_TRUE ? SLACK_EXPANDABLE : SLACK) * MIB;
  if (live > c->peak_in_use) c->peak_in_use = live;
  size_t allowed = c->peak_in_use + (slack < share ? slack : share);
  return c->over_slack = c->reserved + px__segment_size(r->device, r->size) > allowed;
}
