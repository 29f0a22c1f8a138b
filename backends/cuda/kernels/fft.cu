// SPDX-License-Identifier: Apache-2.0
// Pre- and post-processing of cuFFT transforms. Grid-stride loops over numbers, over elements of
// the redundant halves of lines, or over lines.
#include "cuda/fft_params.h"
#include "device.cuh"

// Scales n contiguous real numbers, in pairs: they are aligned as complex numbers are.
template <typename T>
static __device__ __forceinline__ void scale(const k_fft &p) {
  enum { FLIGHT = 4 };
  typedef k_vector<T, 2> V;
  const T by = (T)p.by, *from = (const T *)p.from;
  T *to = (T *)p.at;
  const int64_t pairs = p.n / 2, step = k_threads();
  for (int64_t i = k_thread(); i < pairs; i += step * FLIGHT) {
    V x[FLIGHT];
#pragma unroll
    for (int u = 0; u < FLIGHT; u++)
      if (i + u * step < pairs) x[u] = ((const V *)from)[i + u * step];
#pragma unroll
    for (int u = 0; u < FLIGHT; u++)
      if (i + u * step < pairs) ((V *)to)[i + u * step] = {x[u].v[0] * by, x[u].v[1] * by};
  }
  if (p.n % 2 && k_thread() == 0) to[p.n - 1] = from[p.n - 1] * by;
}

// Fills the redundant half of each line: the conjugate of the first half, reversed.
template <typename T>
static __device__ __forceinline__ void mirror(const k_fft &p) {
  const int64_t half = (p.n - 1) / 2, count = p.lines * half;
  for (int64_t i = k_thread(); i < count; i += k_threads()) {
    int64_t line = i / half, k = i - line * half + 1;
    const T *from = (const T *)p.at + 2 * (line * p.distance + k * p.stride);
    T *to = (T *)p.at + 2 * (line * p.distance + (p.n - k) * p.stride);
    to[0] = from[0], to[1] = -from[1];
  }
}

// Zeroes the imaginary parts of the self-conjugate elements of half spectra of n-element lines:
// the first one and, for even n, the last one.
template <typename T>
static __device__ __forceinline__ void ends(const k_fft &p) {
  for (int64_t i = k_thread(); i < p.lines; i += k_threads()) {
    T *line = (T *)p.at + 2 * i * p.distance;
    line[1] = 0;
    if (p.n % 2 == 0) line[p.n * p.stride + 1] = 0;
  }
}

#define KERNEL(body, suffix, T) \
  extern "C" __global__ void fft_##body##_##suffix(const __grid_constant__ k_fft p) { \
    k_wait(); \
    body<T>(p); \
  }
#define EACH(body) KERNEL(body, f32, float) KERNEL(body, f64, double)
EACH(scale)
EACH(mirror)
EACH(ends)
