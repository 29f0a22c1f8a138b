// SPDX-License-Identifier: Apache-2.0
// Pivots of decompositions, and addresses of matrices. Grid-stride loops over numbers or matrices.
#include "cuda/pivots_params.h"
#include "device.cuh"

static __device__ __forceinline__ int32_t checked(const k_exchanges &p, int64_t i) {
  int32_t row = p.from[i];
  if (row >= 1 && row <= p.n) return row;
  k_fault(&p.where, p.fault, 0, 0, 0);
  return 1;
}

// Copies the pivots; invalid ones are reported and replaced by 1.
extern "C" __global__ void exchanges(const __grid_constant__ k_exchanges p) {
  k_wait();
  for (int64_t i = k_thread(); i < p.lines * p.count; i += k_threads()) p.to[i] = checked(p, i);
}

// Sets column k of a zeroed matrix to 1 in the row moved to k. One thread per matrix; `to` has n
// numbers of scratch for each.
template <typename T>
static __device__ __forceinline__ void permute(const k_exchanges &p) {
  for (int64_t i = k_thread(); i < p.lines; i += k_threads()) {
    int32_t *rows = p.to + i * p.n;
    T *out = (T *)p.out + i * p.n * p.n * p.parts;
    for (int32_t k = 0; k < p.n; k++) rows[k] = k;
    for (int32_t k = 0; k < p.count; k++) {
      int32_t with = checked(p, i * p.count + k) - 1, other = rows[with];
      rows[with] = rows[k], rows[k] = other;
    }
    for (int32_t k = 0; k < p.n; k++) out[((int64_t)rows[k] * p.n + k) * p.parts] = 1;
  }
}
extern "C" __global__ void permutation_f32(const __grid_constant__ k_exchanges p) {
  k_wait();
  permute<float>(p);
}
extern "C" __global__ void permutation_f64(const __grid_constant__ k_exchanges p) {
  k_wait();
  permute<double>(p);
}

extern "C" __global__ void places(const __grid_constant__ k_places p) {
  k_wait();
  for (int64_t i = k_thread(); i < p.count; i += k_threads()) p.to[i] = p.from + i * p.step;
}
