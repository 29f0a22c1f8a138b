// SPDX-License-Identifier: Apache-2.0
// The updates of optimisers in one pass over memory: what the generated kernels call. Numbers are
// in the compute type. A thread takes 16 bytes of each tensor at a time, where all are aligned to
// them.
#pragma once
#include "math.cuh"

// step(gradient, elements of the tensors that change) for `N` elements at a time, from vector
// `first` to `last`. A tensor that is absent is not touched; its element has no meaning.
template <typename S, int M, int N, typename F>
static __device__ __forceinline__ void k_update_by(const k_update &u, int64_t first, int64_t last,
                                                   F step) {
  typedef typename k_type<S>::number C;
  typedef k_vector<S, N> V;
  for (int64_t i = first + k_thread(); i < last; i += k_threads()) {
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
static __device__ __forceinline__ void k_update_each(const k_update &u, F step) {
  const int N = 16 / sizeof(S);
  int64_t vectors = u.vector ? u.n / N : 0;
  k_update_by<S, M, N>(u, 0, vectors, step);
  k_update_by<S, M, 1>(u, vectors * N, u.n, step);
}

// Where the numbers lie on the device, the first thread moves the scalars on. True: the step is
// left out.
static __device__ __forceinline__ bool k_update_begin(const k_update &u) {
  if (!u.line) return false;
  if (u.line[K_LEFT_OUT] != 0) return true;
  if (k_thread() == 0)
    for (int k = 0; k < K_SCALARS; k++)
      if (u.scalars[k]) *u.scalars[k] = (float)u.line[K_UPDATE_NUMBERS + k];
  return false;
}
static __device__ __forceinline__ double k_update_number(const k_update &u, int i) {
  return u.line ? u.line[i] : u.numbers[i];
}

// One thread for each line: make(options, scalars, first, numbers).
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
