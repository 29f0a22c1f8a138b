// SPDX-License-Identifier: Apache-2.0
// Simulated devices. Each test is a process, so it sets the environment before its first device
// call.
#pragma once
#include "phlox/phlox.h"
#include "test.h"

// Serves device type `cuda` by `count` simulated devices. Skips the test if the build folder lacks
// the backend.
static inline void simulate(int count) {
  char number[16], path[4096];
  built_path(path, sizeof path, "");
  setenv("PHLOX_BACKEND_PATH", path, 0);
  snprintf(number, sizeof number, "%d", count);
  setenv("PHLOX_SIM_DEVICES", number, 1);
  setenv("PHLOX_BACKENDS", "sim", 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  if (px_device_count(PX_CUDA) == 0) SKIP("no simulated backend");
}
