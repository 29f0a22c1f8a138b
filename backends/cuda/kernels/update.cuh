// SPDX-License-Identifier: Apache-2.0
// Optimiser updates in one pass over memory: called by the generated kernels. Numbers have the
// compute type. A launch covers several parameters, each with its own blocks. A thread processes
// 16-byte vectors of each tensor if all are aligned.
#pragma once
#include "math.cuh"

// The calling thread's update, and its index among the update's threads.
struct k_update_part {
  const k_update &of;
  int64_t thread, threads;
};
static __device__ __forceinline__ k_update_part k_update_part_of(const k_updates &p) {
  int i = 0, last = p.count - 1;
#pragma unroll 1
  while (i < last) {
    int middle = (i + last) / 2;
    if (blockIdx.x >= p.of[middle].end)
      i = middle + 1;
    else
      last = middle;
  }
  int64_t begin = i ? p.of[i - 1].end : 0;
  return {p.of[i], (blockIdx.x - begin) * blockDim.x + threadIdx.x,
          (p.of[i].end - begin) * blockDim.x};
}

// Calls step(gradient, elements of the updated tensors) for `N` elements at a time, vectors
// `first` to `last`. Absent tensors are not accessed; their elements are undefined.
template <typename S, int M, int N, typename F>
static __device__ __forceinline__ void k_update_by(const k_update_part &part, int64_t first, int64_t last,
                                                   F step) {
  const k_update &u = part.of;
  typedef typename k_type<S>::number C;
  typedef k_vector<S, N> V;
  for (int64_t i = first + part.thread; i < last; i += part.threads) {
    V g = ((const V *)u.grad)[i], v[M];
#pragma unroll
    for (int m = 0; m < M; m++)
      if (u.at[m]) v[m] = ((V *)u.at[m])[i];
#pragma unroll
    for (int k = 0; k < N; k++) {
      C e[M];
#pragma unroll
      for (int m = 0; m < M; m++) e[m] = k_get(v[m].v[k]);
      step(k_get(g.v[k]), e);
#pragma unroll
      for (int m = 0; m < M; m++) k_put(&v[m].v[k], e[m]);
    }
#pragma unroll
    for (int m = 0; m < M; m++)
      if (u.at[m]) ((V *)u.at[m])[i] = v[m];
  }
}
template <typename S, int M, typename F>
static __device__ __forceinline__ void k_update_each(const k_update_part &part, F step) {
  const int N = 16 / sizeof(S);
  int64_t vectors = part.of.vector ? part.of.n / N : 0;
  k_update_by<S, M, N>(part, 0, vectors, step);
  k_update_by<S, M, 1>(part, vectors * N, part.of.n, step);
}

// If the numbers are on the device, the first thread updates the scalars. Returns true if the
// step is skipped.
static __device__ __forceinline__ bool k_update_begin(const k_update_part &part) {
  const k_update &u = part.of;
  if (!u.line) return false;
  if (u.line[K_LEFT_OUT] != 0) return true;
  if (part.thread == 0)
    for (int k = 0; k < K_SCALARS; k++)
      if (u.scalars[k]) *u.scalars[k] = (float)u.line[K_UPDATE_NUMBERS + k];
  return false;
}
static __device__ __forceinline__ double k_update_number(const k_updates &p, const k_update_part &part,
                                                          int i) {
  return part.of.line ? part.of.line[i] : p.numbers[i];
}

// One thread per line: make(options, scalars, first, numbers).
template <typename F>
static __device__ __forceinline__ void k_numbers_each(const k_numbers &p, F make) {
  for (int64_t i = k_thread(); i < p.lines; i += k_threads()) {
    double options[K_NUMBERS_OPTIONS], line[K_LINE] = {0};
    for (int k = 0; k < K_NUMBERS_OPTIONS; k++)
      options[k] = p.rate && k == p.rate_at ? *p.rate : p.options[k];
    for (int k = 0; k < p.each; k++) line[K_UPDATE_NUMBERS + k] = *p.scalars[i * p.each + k];
    make(options, line + K_UPDATE_NUMBERS, p.first, line);
    line[K_LEFT_OUT] = p.found && *p.found != 0;
    for (int k = 0; k < K_LINE; k++) p.out[i * K_LINE + k] = line[k];
  }
}
