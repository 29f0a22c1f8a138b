// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 with cuRAND's addressing: the key is the seed; a subsequence has blocks of four
// words.
#pragma once
#include "device.cuh"

struct words {
  uint32_t v[4];
};
// Low and high word of a product in one instruction; the uint64_t product takes three.
static __device__ __forceinline__ uint2 wide_product(uint32_t x, uint32_t y) {
  uint2 z;
  asm("{ .reg .u64 z; mul.wide.u32 z, %2, %3; mov.b64 {%0, %1}, z; }"
      : "=r"(z.x), "=r"(z.y)
      : "r"(x), "r"(y));
  return z;
}
// The block of four words at `offset`, in words, of a subsequence.
static __device__ __forceinline__ words philox(uint64_t seed, uint64_t subsequence,
                                               uint64_t offset) {
  uint64_t block = offset / 4;
  uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
  uint32_t c2 = (uint32_t)subsequence, c3 = (uint32_t)(subsequence >> 32);
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    uint2 a = wide_product(0xd2511f53u, c0), b = wide_product(0xcd9e8d57u, c2);
    c0 = b.y ^ c1 ^ k0, c1 = b.x;
    c2 = a.y ^ c3 ^ k1, c3 = a.x;
    k0 += 0x9e3779b9u, k1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}
// Uniform in (0, 1].
static __device__ __forceinline__ float uniform_float(uint32_t x) {
  return __fmaf_rn((float)x, 2.3283064365386963e-10f, 1.1641532182693481e-10f);
}
