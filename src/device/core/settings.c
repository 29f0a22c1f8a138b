// SPDX-License-Identifier: Apache-2.0
// Numerical settings of a backend's libraries. They apply to the process and are read at every
// affected launch.
#include "device/core/state.h"

#include <pthread.h>

static int values[PX_SETTING_COUNT] = {
#define XX(name, module, attribute, value) [PX_SETTING_##name] = value,
    PX_SETTING_MAP(XX)
#undef XX
};  // atomic
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_environment(void) {
  bool on;
  if (px__env_TORCH_ALLOW_TF32_CUBLAS_OVERRIDE(&on) != PX_OK) return px_error_clear();
  if (on) values[PX_SETTING_MATMUL_TF32] = 1;
}

int px_setting_get(px_setting setting) {
  if ((unsigned)setting >= PX_SETTING_COUNT) return 0;
  pthread_once(&once, read_environment);
  return __atomic_load_n(&values[setting], __ATOMIC_RELAXED);
}

void px_setting_set(px_setting setting, int value) {
  if ((unsigned)setting >= PX_SETTING_COUNT) return;
  pthread_once(&once, read_environment);
  __atomic_store_n(&values[setting], value, __ATOMIC_RELAXED);
  if (setting == PX_SETTING_CUDNN_TF32) px_setting_set(PX_SETTING_CUDNN_RNN_TF32, value);
}
