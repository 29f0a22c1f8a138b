// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, the counter-based generator of the device kernels, addressed as in cuRAND. The key
// is the seed, the upper half of the counter the subsequence (thread), and the lower half the
// offset in blocks of four words. A draw depends on nothing else, so results do not depend on the
// order of threads.
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct px_philox4 {
  uint32_t v[4];
} px_philox4;

// The thread's block number `offset / 4`; offset is in words.
static inline px_philox4 px_philox(uint64_t seed, uint64_t subsequence, uint64_t offset) {
  uint64_t block = offset / 4;
  uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
  uint32_t c2 = (uint32_t)subsequence, c3 = (uint32_t)(subsequence >> 32);
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)b;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)a;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return (px_philox4){{c0, c1, c2, c3}};
}

// cuRAND's uniforms in (0, 1]: one word for a float, two words for a double (the first word is the
// lower half of the 53 mixed bits).
static inline float px_philox_uniform_float(uint32_t x) { return (float)x * 0x1p-32f + 0x1p-33f; }
static inline double px_philox_uniform_double(uint32_t x, uint32_t y) {
  uint64_t z = (uint64_t)x ^ ((uint64_t)y << 21);
  return (double)z * 0x1p-53 + 0x1p-54;
}
// A number of the exponential distribution from a uniform one, in float or double as PyTorch's
// device kernels.
static inline double px__philox_exponential(double u, bool wide) {
  double half = wide ? 0x1p-53 : 0x1p-24;
  return u >= 1 - half ? half : wide ? -log(u) : (double)-logf((float)u);
}
