// SPDX-License-Identifier: Apache-2.0
// Virtual time: the clocks of backends that have one.
#include "device/order/order.h"

bool px__virtual_clock(const px_stream *stream, void *event, int64_t *out) {
  if (!px__call_watched(PX__WATCH_VIRTUAL)) return false;
  const px__device *d = stream ? stream->owner : px__rt.devices[px__current_device];
  return px__rt.backend->clock(d->physical, stream ? stream->native : NULL, event, out);
}

void px__virtual_begin(void) {
  const px_backend *b = px__rt.backend;
  int64_t now;
  px__watch(PX__WATCH_VIRTUAL, PX__BACKEND_HAS(b, clock) && b->clock(0, NULL, NULL, &now));
  px_error_clear();  // a bad environment is reported when a device is opened
}
