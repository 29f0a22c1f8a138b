// SPDX-License-Identifier: Apache-2.0
// The loop of the element-wise kernels: an expression over inputs, for each element of the result.
//
// Where everything is row-major and aligned, or all rows are, a thread takes 16 bytes of each
// operand at a time, two of them at once where they are not many elements; else elements are placed
// by their index. Blocks have K_LOOP threads. The result may be the memory of an input with the
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
  k_vector<S, N> v[K_FLIGHT(N)];
  C one;
  bool many, repeated;  // elements; in a row, one
  int64_t at;
  __device__ __forceinline__ k_in(const k_loop &p) {
    many = p.kind[I] == K_MANY;
    repeated = !many || (p.mode == K_ROWS && p.strides[0][I] == 0);
    one = p.kind[I] == K_ONE ? (C)k_get(*(const S *)p.data[I]) : k_number_as<C>(p.value[I]);
  }
  // The vector from element `at` on; one element for all of it where a row repeats it.
  __device__ __forceinline__ void fetch(const k_loop &p, int u) {
    if (!repeated)
      v[u] = *(const k_vector<S, N> *)((const S *)p.data[I] + at);
    else if (many)
      one = k_get(((const S *)p.data[I])[at]);
  }
  __device__ __forceinline__ C get(int u, int k) const { return repeated ? one : k_get(v[u].v[k]); }
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

// Vectors first, and then single elements: all of them, or the few that make no vector.
template <typename O, int N, typename E, typename... In>
static __device__ __forceinline__ void k_each(const k_loop &p, E e, In... in) {
  bool rows = p.mode == K_ROWS;
  int flight = rows ? 1 : K_FLIGHT(N);
  int64_t vectors = p.mode <= K_ROWS ? p.n / N : 0;
  for (int64_t i = (int64_t)blockIdx.x * K_LOOP * flight + threadIdx.x; i < vectors;
       i += (int64_t)gridDim.x * K_LOOP * flight) {
    int64_t to = i * N;
    if (rows) {
      to = k_find<true>(p, i, in...);
      (in.fetch(p, 0), ...);
    } else {
#pragma unroll
      for (int u = 0; u < K_FLIGHT(N); u++) {
        if (i + u * K_LOOP >= vectors) break;
        ((in.at = to + u * K_LOOP * N), ...);
        (in.fetch(p, u), ...);
      }
    }
#pragma unroll
    for (int u = 0; u < K_FLIGHT(N); u++) {
      if (u >= flight || i + u * K_LOOP >= vectors) break;
      k_vector<O, N> x;
#pragma unroll
      for (int k = 0; k < N; k++) k_put(&x.v[k], e(in.get(u, k)...));
      *(k_vector<O, N> *)((O *)p.data[0] + to + u * K_LOOP * N) = x;
    }
  }
#pragma unroll 1
  for (int64_t i = vectors * N + k_thread(); i < p.n; i += k_threads()) {
    int64_t to = k_find<false>(p, i, in...);
    k_put((O *)p.data[0] + to, e(in.get_at(p)...));
  }
}
