// SPDX-License-Identifier: Apache-2.0
// Modes: grad mode and inference mode per thread, anomaly mode per process (so the engine's threads
// see it).
#include "autograd/engine/graph.h"

typedef struct px__modes {
  bool no_grad, inference;
  bool passing;     // a node runs for forward mode
  bool alone;       // backward passes run on this thread alone
  uint8_t forward;  // active levels of duals (dual.c)
  int suspended;    // nesting of running view and function ops
  int floor;        // histories of this vmap level and deeper are not recorded; 0: all are
} px__modes;
static _Thread_local px__modes modes;
static bool anomaly, check_nan = true;  // atomic

// Views created while recording is off are marked. Changing them in place later is an error if that
// change would be recorded.
static void mark(void) {
  bool off = (modes.no_grad || modes.inference) && !modes.forward;
  px_tensor_set_new_marks(modes.inference ? PX_MARK_INFERENCE : 0,
                          PX_MARK_VIEW | (off ? PX_MARK_UNRECORDED : 0));
}

static inline bool records(void) { return !modes.no_grad && !modes.inference; }
bool px_grad_enabled(void) { return records(); }

void px_grad_set_enabled(bool enabled) {
  if (modes.no_grad == !enabled) return;
  modes.no_grad = !enabled;
  mark();
}

bool px__grad_swap(bool enabled) {
  bool before = !modes.no_grad;
  px_grad_set_enabled(enabled);
  return before;
}

bool px_multithreading_enabled(void) { return !modes.alone; }
void px_multithreading_set_enabled(bool enabled) { modes.alone = !enabled; }

bool px_inference_enabled(void) { return modes.inference; }

void px_inference_set_enabled(bool enabled) {
  modes.inference = enabled;
  mark();
}

px_modes px_modes_get(void) {
  return (px_modes){!modes.no_grad, modes.inference, px_device_preferred(), px_autocast_get(),
                    modes.forward};
}

void px_modes_set(px_modes taken) {
  modes.no_grad = !taken.grad;
  modes.inference = taken.inference;
  modes.forward = (uint8_t)taken.forward;
  mark();
  px_autocast_set(taken.autocast);
  // Cannot fail: another thread has used this device type as its default.
  if (px_device_set_default(taken.device) != PX_OK) px_error_clear();
}

bool px_anomaly_enabled(void) { return __atomic_load_n(&anomaly, __ATOMIC_RELAXED); }

bool px_anomaly_checks_nan(void) { return __atomic_load_n(&check_nan, __ATOMIC_RELAXED); }

bool px__check_nan(void) { return px_anomaly_enabled() && px_anomaly_checks_nan(); }

void px_anomaly_set(bool enabled, bool check) {
  __atomic_store_n(&check_nan, check, __ATOMIC_RELAXED);
  __atomic_store_n(&anomaly, enabled, __ATOMIC_RELAXED);
}

bool px__forward(void) { return modes.forward != 0; }

bool px__run_forward(void) { return modes.passing; }
bool px__run_forward_swap(bool forward) {
  bool before = modes.passing;
  modes.passing = forward;
  return before;
}

void px__forward_count(int change) {
  if (modes.forward || change > 0) modes.forward = (uint8_t)(modes.forward + change);
  mark();
}

bool px__recording(void) { return (records() || modes.forward) && modes.suspended == 0; }

void px__suspend(bool on) { modes.suspended += on ? 1 : -1; }

px_recording_state px__swap_recording(px_recording_state to) {
  px_recording_state before = {modes.suspended, modes.floor};
  modes.suspended = to.suspended, modes.floor = to.floor;
  return before;
}

int px__history_floor(void) { return modes.floor; }
