// SPDX-License-Identifier: Apache-2.0
// State of the simulated devices, and sticky errors with the driver's codes and texts.
#include "sim/sim.h"

#include <stdio.h>

px__sim_state px__sim = {.lock = PTHREAD_MUTEX_INITIALIZER};

void px__sim_schedule_wake(void) {
  if (px__sim.working) pthread_cond_broadcast(&px__sim.work);
}

static const struct {
  int code;
  px_status status;
  const char *text;
} codes[] = {
#define XX(name, number, status, text) {number, PX_##status, text},
    PX__SIM_CODES(XX)
#undef XX
};

static px_status status_of(int code) {
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (codes[i].code == code) return codes[i].status;
  return PX_BUG;
}

static const char *text_of(int code) {
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (codes[i].code == code) return codes[i].text;
  return "unknown error";
}

px_status px__sim_fail(int code) {
  PX__SIM_FAIL(status_of(code), code, "CUDA error: %s", text_of(code));
}

// Keeps the first error of a device; all later calls on the device fail with it.
bool px__sim_break(int device, int code, const char *format, ...) {
  px__sim_device *d = &px__sim.device[device];
  if (d->broken) return false;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(d->reason, sizeof d->reason, format, arguments);
  va_end(arguments);
  d->broken = code;
  return true;
}

px_status px__sim_check(int device) {
  px__sim_lock();
  int code = px__sim.device[device].broken;
  px__sim_unlock();
  // `reason` is written once, before `broken`, under the lock.
  if (code)
    PX__SIM_FAIL(status_of(code), code, "CUDA error: %s\n%s", text_of(code),
                 px__sim.device[device].reason);
  return PX_OK;
}
