// SPDX-License-Identifier: Apache-2.0
// The loop of the element-wise kernels: an expression over inputs, for each element of the result.
//
// Where everything is row-major and aligned, a thread takes 16 bytes of each operand at a time;
// else elements are placed by their index. The result may be the memory of an input with the same
// strides: a thread reads all that it needs before it writes.
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
  static const int operand = I;
  C x[N], one;
  int64_t at;
  __device__ __forceinline__ k_in(const k_loop &p) {
    if (p.kind[I] == K_ONE)
      one = k_get(*(const S *)p.data[I]);
    else
      one = k_number_as<C>(p.value[I]);
  }
  __device__ __forceinline__ void load(const k_loop &p, int64_t i) {
    if (p.kind[I] == K_MANY) {
      k_vector<S, N> v = ((const k_vector<S, N> *)p.data[I])[i];
#pragma unroll
      for (int k = 0; k < N; k++) x[k] = k_get(v.v[k]);
    } else {
#pragma unroll
      for (int k = 0; k < N; k++) x[k] = one;
    }
  }
  __device__ __forceinline__ void load_one(const k_loop &p) {
    x[0] = p.kind[I] == K_MANY ? k_get(((const S *)p.data[I])[at]) : one;
  }
  __device__ __forceinline__ void step(const k_loop &p, int d, int64_t k) {
    at += k * p.strides[d][I];
  }
};

// Element i, wherever it lies.
template <typename O, typename E, typename... In>
static __device__ __forceinline__ void k_element(const k_loop &p, int64_t i, E e, In &...in) {
  int64_t to = 0;
  ((in.at = 0), ...);
#pragma unroll 1
  for (int d = 0; d < p.ndim; d++) {
    int64_t k;
    if (p.mode == K_WIDE) {
      k = i % p.sizes[d];
      i /= p.sizes[d];
    } else {
      uint32_t q = k_divide((uint32_t)i, p.by[d]);
      k = (uint32_t)i - q * p.by[d].size;
      i = q;
    }
    to += k * p.strides[d][0];
    (in.step(p, d, k), ...);
  }
  (in.load_one(p), ...);
  k_put((O *)p.data[0] + to, e(in.x[0]...));
}

template <typename O, int N, typename E, typename... In>
static __device__ __forceinline__ void k_each(const k_loop &p, E e, In... in) {
  int64_t first = k_thread(), threads = k_threads();
  if (p.mode != K_FLAT) {
    for (int64_t i = first; i < p.n; i += threads) k_element<O>(p, i, e, in...);
    return;
  }
  int64_t blocks = p.n / N;
  for (int64_t i = first; i < blocks; i += threads) {
    (in.load(p, i), ...);
    k_vector<O, N> to;
#pragma unroll
    for (int k = 0; k < N; k++) k_put(&to.v[k], e(in.x[k]...));
    ((k_vector<O, N> *)p.data[0])[i] = to;
  }
  int64_t rest = blocks * N + first;
  if (rest >= p.n) return;
  ((in.at = p.kind[In::operand] == K_MANY ? rest : 0), ...);
  (in.load_one(p), ...);
  k_put((O *)p.data[0] + rest, e(in.x[0]...));
}
