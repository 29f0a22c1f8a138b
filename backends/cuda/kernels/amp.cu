// SPDX-License-Identifier: Apache-2.0
// Gradient scaling in mixed precision. unscale: one thread per element in a grid-stride loop;
// threads finding inf or NaN write the same flag. update_scale: one thread.
#include "math.cuh"

template <typename S>
static __device__ __forceinline__ void unscale_body(const k_amp &p) {
  typedef typename k_type<S>::number C;
  const C by = (C)*p.by;
  S *grad = (S *)p.grad;
  bool finite = true;
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    C g = k_get(grad[i]);
    finite &= isfinite(g) != 0;
    k_put(&grad[i], g * by);
  }
  if (!finite) *p.found = 1;
}
K_FLOATS(unscale, k_amp)

extern "C" __global__ void update_scale(const __grid_constant__ k_amp_scale p) {
  k_wait();
  if (k_thread()) return;
  if (*p.found != 0) {
    *p.scale = (float)((double)*p.scale * p.backoff);
    *p.tracker = 0;
    return;
  }
  if (++*p.tracker != p.interval) return;
  float grown = (float)((double)*p.scale * p.growth);
  if (isfinite(grown)) *p.scale = grown;
  *p.tracker = 0;
}
