// SPDX-License-Identifier: Apache-2.0
// Gradient scaling for mixed precision.
#include "cpu/convert/dense.h"
#include "cpu/threads/threads.h"
#include "kernel_args/amp.h"

#include <math.h>

enum { GRAIN = 32 * 1024 };  // elements per thread, min

// Checks for inf and NaN before scaling. Threads that find one store the same value.
typedef struct task {
  void *grad;
  float *found, by;
} task;
#define UNSCALE(T) \
  static void unscale_##T(void *context, int64_t begin, int64_t end) { \
    const task *t = context; \
    T *grad = t->grad; \
    bool finite = true; \
    for (int64_t i = begin; i < end; i++) { \
      finite &= isfinite(grad[i]) != 0; \
      grad[i] *= (T)t->by; \
    } \
    float one = 1; \
    if (!finite) __atomic_store(t->found, &one, __ATOMIC_RELAXED); \
  }
UNSCALE(float)
UNSCALE(double)

PX_KERNEL(_amp_unscale) {
  px__dense d = {.launch = l};
  bool wide = args->grad->dtype == PX_FLOAT64;
  const float *by = px__dense_in(&d, args->inv_scale, PX_FLOAT32);
  task t = {.grad = px__dense_inout(&d, args->scaled, wide ? PX_FLOAT64 : PX_FLOAT32),
            .found = px__dense_inout(&d, args->found, PX_FLOAT32)};
  if (!d.failed) {
    t.by = *by;
    px__cpu_parallel(px_operand_numel(args->grad), GRAIN, wide ? unscale_double : unscale_float,
                     &t);
  }
  px__dense_close(&d);
  return PX_OK;
}

// The scale does not grow to inf.
PX_KERNEL(_amp_update_scale) {
  px__dense d = {.launch = l};
  const float *found = px__dense_in(&d, args->found_inf, PX_FLOAT32);
  float *scale = px__dense_inout(&d, args->scale, PX_FLOAT32);
  int32_t *tracker = px__dense_inout(&d, args->tracker, PX_INT32);
  if (!d.failed && *found != 0) {
    *scale = (float)((double)*scale * args->scale_backoff_factor);
    *tracker = 0;
  } else if (!d.failed && ++*tracker == args->growth_interval) {
    float grown = (float)((double)*scale * args->scale_growth_factor);
    if (isfinite(grown)) *scale = grown;
    *tracker = 0;
  }
  px__dense_close(&d);
  return PX_OK;
}
