// SPDX-License-Identifier: Apache-2.0
// Strided copies of three dimensions by element size. Grid-stride loop of 256-thread blocks over
// the elements, last dimension innermost.
#include "device.cuh"

template <typename T>
static __device__ __forceinline__ void strided_copy(const k_strided &c) {
  int64_t n = c.sizes[0] * c.sizes[1] * c.sizes[2], step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    int64_t rest = i / c.sizes[2], z = i - rest * c.sizes[2], x = rest / c.sizes[1];
    int64_t y = rest - x * c.sizes[1];
    int64_t to = x * c.to_strides[0] + y * c.to_strides[1] + z * c.to_strides[2];
    int64_t from = x * c.from_strides[0] + y * c.from_strides[1] + z * c.from_strides[2];
    ((T *)c.to)[to] = ((const T *)c.from)[from];
  }
}

#define STRIDED(bytes, type) \
  extern "C" __global__ void px_strided_##bytes(const __grid_constant__ k_strided copy) { \
    k_wait(); \
    strided_copy<type>(copy); \
  }
STRIDED(1, uint8_t)
STRIDED(2, uint16_t)
STRIDED(4, uint32_t)
STRIDED(8, uint64_t)
STRIDED(16, int4)
