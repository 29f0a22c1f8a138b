// SPDX-License-Identifier: Apache-2.0
// What cuFFT leaves to be done. Threads go round with the grid's stride: over numbers, over the
// places of the second halves of lines, or over lines.
#include "cuda/fft_params.h"

static __device__ __forceinline__ int64_t first_thread() {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ __forceinline__ int64_t threads() { return (int64_t)gridDim.x * blockDim.x; }

// n real numbers in a row are multiplied by one.
template <typename T>
static __device__ __forceinline__ void scale(const k_fft &p) {
  const T by = (T)p.by;
  for (int64_t i = first_thread(); i < p.n; i += threads()) ((T *)p.at)[i] *= by;
}

// The second halves of lines become the conjugates of the first, backwards.
template <typename T>
static __device__ __forceinline__ void mirror(const k_fft &p) {
  const int64_t half = (p.n - 1) / 2, count = p.lines * half;
  for (int64_t i = first_thread(); i < count; i += threads()) {
    int64_t line = i / half, k = i - line * half + 1;
    const T *from = (const T *)p.at + 2 * (line * p.apart + k * p.step);
    T *to = (T *)p.at + 2 * (line * p.apart + (p.n - k) * p.step);
    to[0] = from[0], to[1] = -from[1];
  }
}

// Of lines of n places, given by halves, the places that stand for themselves become real numbers:
// the first, and, where n is even, the last.
template <typename T>
static __device__ __forceinline__ void ends(const k_fft &p) {
  for (int64_t i = first_thread(); i < p.lines; i += threads()) {
    T *line = (T *)p.at + 2 * i * p.apart;
    line[1] = 0;
    if (p.n % 2 == 0) line[p.n * p.step + 1] = 0;
  }
}

#define EACH(body) \
  extern "C" __global__ void fft_##body##_f32(const __grid_constant__ k_fft p) { body<float>(p); } \
  extern "C" __global__ void fft_##body##_f64(const __grid_constant__ k_fft p) { body<double>(p); }
EACH(scale)
EACH(mirror)
EACH(ends)
