// SPDX-License-Identifier: Apache-2.0
// Public functions of virtual time; and the start of a profile, after the devices' initialisation
// determines if time is virtual.
#include "device/order/order.h"
#include "phlox/profile.h"

static px_status check(void) {
  PX_TRY(px_device_init());
  PX_CHECK(px__call_watched(PX__WATCH_VIRTUAL), PX_RUNTIME,
           "the time of these devices is real: virtual time is that of simulated devices with "
           "PHLOX_SIM_MODE=schedule");
  return PX_OK;
}

px_status px_time_host(int64_t *out) {
  PX_GIVEN(out);
  PX_TRY(check());
  px__virtual_clock(NULL, NULL, out);
  return PX_OK;
}

px_status px_time_stream(int64_t *out, px_stream *stream) {
  PX_GIVEN(out);
  PX_GIVEN(stream);
  PX_TRY(check());
  PX_CHECK(stream->owner, PX_RUNTIME, "the stream of the CPU has no virtual time");
  PX_TRY(px_stream_synchronize(stream));
  px__virtual_clock(stream, NULL, out);
  return PX_OK;
}

px_status px_time_device(int64_t *out, px_device device) {
  PX_GIVEN(out);
  PX_TRY(check());
  PX_CHECK(device.type == PX_CUDA, PX_RUNTIME, "the CPU has no virtual time");
  px__device *d;
  PX_TRY(px__device_resolve(&d, device.index));
  PX_TRY(px_device_synchronize(device.index));
  int64_t latest = 0, one;
  int count = __atomic_load_n(&d->stream_count, __ATOMIC_ACQUIRE);
  for (int i = 0; i < count; i++)
    if (px__virtual_clock(d->streams[i], NULL, &one) && one > latest) latest = one;
  *out = latest;
  return PX_OK;
}

px_status px_profile_start(const px_profile_options *options) {
  PX_GIVEN(options);
  // Without devices the profile is of the host alone.
  if (options->devices && px_device_init() != PX_OK) px_error_clear();
  return px__profile_start(options);
}
