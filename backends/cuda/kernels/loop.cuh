// SPDX-License-Identifier: Apache-2.0
// The loop of the element-wise kernels: an expression over inputs, for each element of the result.
//
// Where everything is row-major and aligned, or all rows are, a thread takes 16 bytes of each
// operand at a time, K_FLIGHT of them at once where all is row-major; else elements are placed by
// their index. Blocks have K_LOOP threads. The result may be the memory of an input with the
// same strides: a thread reads all that it needs before it writes.
#pragma once
#include "math.cuh"

template <typename C>
static __device__ __forceinline__ C k_number_as(k_number x) {
  return k_is_real<C>::value ? (C)x.f : (C)x.i;
}

// Operand I of the loop, stored as S.
template <typename S, int I, int N>
struct k_in {
  typedef typename k_type<S>::number C;
  k_loaded<S, N> v[K_FLIGHT(N)];
  C one;
  bool many;  // elements
  int64_t at;
  __device__ __forceinline__ k_in(const k_loop &p) {
    many = p.kind[I] == K_MANY;
    one = p.kind[I] == K_ONE ? (C)k_get(*(const S *)p.data[I]) : k_number_as<C>(p.value[I]);
  }
  // The vector from element `at` on.
  __device__ __forceinline__ void fetch(const k_loop &p, int u) {
    if (many) v[u] = *(const k_loaded<S, N> *)((const S *)p.data[I] + at);
  }
  // The vector of a row: its elements may lie apart, or be one.
  __device__ __forceinline__ void fetch_row(const k_loop &p) {
    int64_t step = p.strides[0][I];
    if (step == N || !many) return fetch(p, 0);
    const S *from = (const S *)p.data[I] + at;
    S s[N];
    s[0] = *from;
#pragma unroll
    for (int k = 1; k < N; k++) s[k] = step ? from[step / N * k] : s[0];
#pragma unroll
    for (int k = 0; k < N; k++) v[0].put(k, s[k]);
  }
  __device__ __forceinline__ C get(int u, int k) const { return many ? k_get(v[u][k]) : one; }
  __device__ __forceinline__ C get_at(const k_loop &p) const {
    return many ? k_get(((const S *)p.data[I])[at]) : one;
  }
  __device__ __forceinline__ void step(const k_loop &p, int d, int64_t k) {
    at += k * p.strides[d][I];
  }
};

// Finds place i of the loop in all operands; returns that of the result.
template <bool NARROW, typename... In>
static __device__ __forceinline__ int64_t k_find(const k_loop &p, int64_t i, In &...in) {
  int64_t to = 0;
  ((in.at = 0), ...);
#pragma unroll 1
  for (int d = 0; d < p.ndim; d++) {
    int64_t k;
    if (NARROW || p.mode == K_NARROW) {
      uint32_t q = k_divide((uint32_t)i, p.by[d]);
      k = (uint32_t)i - q * p.by[d].size;
      i = q;
    } else {
      k = i % p.sizes[d];
      i /= p.sizes[d];
    }
    to += k * p.strides[d][0];
    (in.step(p, d, k), ...);
  }
  return to;
}

// The result's vector from element `to` on, of what was fetched as number u.
template <typename O, int N, typename E, typename... In>
static __device__ __forceinline__ void k_give(const k_loop &p, int64_t to, int u, const E &e,
                                              const In &...in) {
  k_vector<O, N> x;
#pragma unroll
  for (int k = 0; k < N; k++) k_put(&x.v[k], e(in.get(u, k)...));
  *(k_vector<O, N> *)((O *)p.data[0] + to) = x;
}
// Vectors first, and then single elements: all of them, or the few that make no vector.
template <typename O, int N, typename E, typename... In>
static __device__ __forceinline__ void k_each(const k_loop &p, E e, In... in) {
  enum { FLIGHT = K_FLIGHT(N), TILE = K_LOOP * FLIGHT };
  int64_t vectors = p.mode <= K_ROWS ? p.n / N : 0;
  if (p.mode == K_FLAT) {
#pragma unroll 1
    for (int64_t i = (int64_t)blockIdx.x * TILE + threadIdx.x; i < vectors;
         i += (int64_t)gridDim.x * TILE) {
#pragma unroll
      for (int u = 0; u < FLIGHT; u++) {
        if (i + u * K_LOOP >= vectors) break;
        ((in.at = (i + u * K_LOOP) * N), ...);
        (in.fetch(p, u), ...);
      }
#pragma unroll
      for (int u = 0; u < FLIGHT; u++)
        if (i + u * K_LOOP < vectors) k_give<O, N>(p, (i + u * K_LOOP) * N, u, e, in...);
    }
  } else {
#pragma unroll 1
    for (int64_t i = (int64_t)blockIdx.x * K_LOOP + threadIdx.x; i < vectors;
         i += (int64_t)gridDim.x * K_LOOP) {
      int64_t to = k_find<true>(p, i, in...);
      (in.fetch_row(p), ...);
      k_give<O, N>(p, to, 0, e, in...);
    }
  }
#pragma unroll 1
  for (int64_t i = vectors * N + k_thread(); i < p.n; i += k_threads()) {
    int64_t to = k_find<false>(p, i, in...);
    k_put((O *)p.data[0] + to, e(in.get_at(p)...));
  }
}
