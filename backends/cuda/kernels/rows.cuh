// SPDX-License-Identifier: Apache-2.0
// Contiguous rows, mostly held in registers so that memory is read once.
//
// `lanes` threads (a power of two) share a row of n elements, E each: up to a warp with several
// rows per block, or the whole block. A thread holds 16-byte vectors at stride `lanes`, or single
// elements for short unaligned rows.
#pragma once
#include "math.cuh"

// Bytes of compute-type registers per thread; K_TWO: two vectors of elements.
enum { K_TWO = 2, K_SHORT = 32, K_MIDDLE = 64, K_LONG = 128 };

// The elements of a thread in `BYTES` of registers.
template <typename S, int BYTES>
struct k_row {
  typedef typename k_type<S>::number C;
  enum { N = 16 / sizeof(S), E = BYTES == K_TWO ? 2 * N : BYTES / sizeof(C), G = E / N };
  int64_t row;
  int n, lane, lanes;
  bool vector;

  // The thread's row; n is 0 past the last row.
  __device__ __forceinline__ k_row(const k_rows &p)
      : row((int64_t)blockIdx.x * (blockDim.x / p.lanes) + threadIdx.x / p.lanes),
        n(row < p.outer ? (int)p.size : 0),
        lane(threadIdx.x % p.lanes),
        lanes(p.lanes),
        vector(BYTES != K_SHORT || p.vector) {}
  // Moves the thread to row `to`.
  __device__ __forceinline__ void go(const k_rows &p, int64_t to) {
    row = to, n = to < p.outer ? (int)p.size : 0;
  }
  // Offset of the row; of the first row if there is none.
  __device__ __forceinline__ int64_t begin(const k_rows &p) const { return n ? row * p.size : 0; }

  // Calls f(k, i) for the thread's element k, element i of the row.
  template <typename F>
  __device__ __forceinline__ void each(F f) const {
#pragma unroll
    for (int k = 0; k < E; k++) {
      int i = vector ? (k / N * lanes + lane) * N + k % N : k * lanes + lane;
      if (i < n) f(k, i);
    }
  }
  // Loads the thread's elements as stored. Asynchronous until they are used.
  __device__ __forceinline__ void fetch(k_loaded<S, N> *v, const S *from) const {
#pragma unroll
    for (int g = 0; g < G; g++) {
      int i = g * lanes + lane;
      if (vector && i * N < n) v[g] = ((const k_loaded<S, N> *)from)[i];
    }
    if (vector) return;
#pragma unroll
    for (int k = 0; k < E; k++)
      v[k / N].put(k % N, k * lanes + lane < n ? from[k * lanes + lane] : S());
  }
  __device__ __forceinline__ void read(C *x, const k_loaded<S, N> *v, C fill) const {
#pragma unroll
    for (int k = 0; k < E; k++) {
      bool here = vector ? (k / N * lanes + lane) * N < n : k * lanes + lane < n;
      x[k] = here ? k_get(v[k / N][k % N]) : fill;
    }
  }
  __device__ __forceinline__ void load(C *x, const S *from, C fill) const {
    k_loaded<S, N> v[G];
    fetch(v, from);
    read(x, v, fill);
  }
  // x = f(x, y) for each element, with y from another row. Elements past the row's end are
  // unchanged: they have no y, and sums over all lanes include them.
  template <typename F>
  __device__ __forceinline__ void combine(C *x, const S *from, F f) const {
#pragma unroll
    for (int g = 0; g < G; g++) {
      int i = g * lanes + lane;
      k_loaded<S, N> v;
      if (vector && i * N < n) v = ((const k_loaded<S, N> *)from)[i];
#pragma unroll
      for (int k = 0; k < N; k++) {
        int j = (g * N + k) * lanes + lane;
        bool here = vector ? i * N < n : j < n;
        if (!vector && here) v.put(k, from[j]);
        if (here) x[g * N + k] = f(x[g * N + k], k_get(v[k]));
      }
    }
  }
  __device__ __forceinline__ void store(S *to, const C *x) const {
    if (vector) {
#pragma unroll
      for (int g = 0; g < G; g++) {
        int i = g * lanes + lane;
        k_vector<S, N> v;
#pragma unroll
        for (int k = 0; k < N; k++) k_put(&v.v[k], x[g * N + k]);
        if (i * N < n) ((k_vector<S, N> *)to)[i] = v;
      }
    } else {
#pragma unroll
      for (int k = 0; k < E; k++)
        if (k * lanes + lane < n) k_put(&to[k * lanes + lane], x[k]);
    }
  }
};

// A row of any length and alignment walked by a block: single elements up to the first 16-byte
// boundary and after the last.
template <int COUNT>
struct k_count {
  enum { value = COUNT };
};
template <typename S>
struct k_strip {
  enum { N = 16 / sizeof(S) };
  int64_t head, vectors, n;
  __device__ __forceinline__ k_strip(const S *row, int64_t n, bool vector) : n(n) {
    head = vector ? (16 - (uintptr_t)row % 16) % 16 / sizeof(S) : n;
    if (head > n) head = n;
    vectors = (n - head) / N;
  }
  // Calls f(k_count<C>(), i) for C elements starting at i.
  template <typename F>
  __device__ __forceinline__ void each(F f) const {
    for (int64_t i = threadIdx.x; i < head; i += blockDim.x) f(k_count<1>(), i);
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) f(k_count<N>(), head + i * N);
    for (int64_t i = head + vectors * N + threadIdx.x; i < n; i += blockDim.x) f(k_count<1>(), i);
  }
};
template <int COUNT, typename S>
static __device__ __forceinline__ k_vector<S, COUNT> k_several(const S *row, int64_t i) {
  return *(const k_vector<S, COUNT> *)(row + i);
}

// Defines NAME_short_f16 etc. and NAME_long_f16 etc. (`bytes` a thread, up to `threads` threads)
// from NAME_body<S, BYTES>(const k_rows &p).
#define K_ROW_KERNEL(name, suffix, S, bytes, threads) \
  extern "C" __global__ void __launch_bounds__(K_BLOCK) \
      name##_short_##suffix(const __grid_constant__ k_rows p) { \
    k_wait(); \
    name##_body<S, K_SHORT>(p); \
  } \
  extern "C" __global__ void __launch_bounds__(threads) \
      name##_long_##suffix(const __grid_constant__ k_rows p) { \
    k_wait(); \
    name##_body<S, bytes>(p); \
  }
#define K_ROW_FLOATS(name, bytes, threads) \
  K_ROW_KERNEL(name, f16, __half, bytes, threads) \
  K_ROW_KERNEL(name, bf16, __nv_bfloat16, bytes, threads) \
  K_ROW_KERNEL(name, f32, float, bytes, threads) K_ROW_KERNEL(name, f64, double, bytes, threads)
