// SPDX-License-Identifier: Apache-2.0
// The element-wise loop: evaluates an expression over inputs for each element of the result.
//
// If all operands, or all rows, are row-major and aligned, a thread processes 16-byte vectors of
// each operand; K_FLIGHT at a time if everything is row-major. Otherwise elements are located by
// index. Blocks have K_LOOP threads. A launch may cover several tensors (K_LIST); each block
// looks up its own. The result may alias an input with the same strides: a thread reads its
// inputs before it writes.
#pragma once
#include "math.cuh"

// Operand I of the loop, stored as S.
template <typename S, int I, int N>
struct k_in {
  typedef typename k_type<S>::number C;
  k_loaded<S, N> v[K_FLIGHT(N)];
  C one;
  bool many;  // array operand
  const S *data;
  int64_t at;
  __device__ __forceinline__ k_in(const k_loop &p) {
    many = p.kind[I] == K_MANY;
    data = (const S *)p.data[I];
    one = p.kind[I] == K_ONE ? (C)k_get(*(const S *)p.data[I]) : k_number_as<C>(p.value[I]);
  }
  // Selects an entry of a list.
  __device__ __forceinline__ void move(const uint64_t *entry) {
    if (many) data = (const S *)entry[1 + I];
  }
  // Loads the vector at element `at`.
  __device__ __forceinline__ void fetch(int u) {
    if (many) v[u] = *(const k_loaded<S, N> *)(data + at);
  }
  // Loads a vector of a row whose elements may be strided or broadcast.
  __device__ __forceinline__ void fetch_row(const k_loop &p) {
    int64_t step = p.strides[0][I];
    if (step == N || !many) return fetch(0);
    const S *from = data + at;
    S s[N];
    s[0] = *from;
#pragma unroll
    for (int k = 1; k < N; k++) s[k] = step ? from[step / N * k] : s[0];
#pragma unroll
    for (int k = 0; k < N; k++) v[0].put(k, s[k]);
  }
  __device__ __forceinline__ C get(int u, int k) const { return many ? k_get(v[u][k]) : one; }
  __device__ __forceinline__ C get_at() const { return many ? k_get(data[at]) : one; }
  __device__ __forceinline__ void step(const k_loop &p, int d, int64_t k) {
    at += k * p.strides[d][I];
  }
};

// Locates index i of the loop in all operands; returns the result's offset.
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

// The block's loop of a batch, and its block range.
struct k_list_entry {
  const uint64_t *entry;
  int64_t n, block, blocks;
  bool vectors;
  __device__ __forceinline__ explicit k_list_entry(const k_list &list) {
    int low = 0, high = list.count - 1;
#pragma unroll 1
    while (low < high) {
      int middle = (low + high) / 2;
      if (list.at[middle * list.words] >> 32 <= blockIdx.x)
        low = middle + 1;
      else
        high = middle;
    }
    entry = list.at + low * list.words;
    uint32_t size = (uint32_t)entry[0], begin = low ? (uint32_t)(entry[-list.words] >> 32) : 0;
    n = size & ~K_LIST_VECTORS, vectors = size & K_LIST_VECTORS;
    block = blockIdx.x - begin, blocks = (uint32_t)(entry[0] >> 32) - begin;
  }
};

// Evaluates vector u of the loaded inputs and stores it at `to`.
template <typename O, int N, typename E, typename... In>
static __device__ __forceinline__ void k_store_vector(O *to, int u, const E &e, const In &...in) {
  k_vector<O, N> x;
#pragma unroll
  for (int k = 0; k < N; k++) k_put(&x.v[k], e(in.get(u, k)...));
  *(k_vector<O, N> *)to = x;
}
// Vectors first, then single elements: all of them, or the tail.
template <typename O, int N, typename E, typename... In>
static __device__ __forceinline__ void k_each(const k_loop &p, E e, In... in) {
  enum { FLIGHT = K_FLIGHT(N), TILE = K_LOOP * FLIGHT };
  int64_t n = p.n, block = blockIdx.x, blocks = gridDim.x, vectors = p.mode <= K_ROWS ? n / N : 0;
  O *out = (O *)p.data[0];
  if (p.mode == K_LIST) {
    k_list_entry part(p.list);
    n = part.n, block = part.block, blocks = part.blocks, vectors = part.vectors ? n / N : 0;
    out = (O *)part.entry[1];
    (in.move(part.entry), ...);
  }
  if (p.mode <= K_LIST) {
#pragma unroll 1
    for (int64_t i = block * TILE + threadIdx.x; i < vectors; i += blocks * TILE) {
#pragma unroll
      for (int u = 0; u < FLIGHT; u++) {
        if (i + u * K_LOOP >= vectors) break;
        ((in.at = (i + u * K_LOOP) * N), ...);
        (in.fetch(u), ...);
      }
#pragma unroll
      for (int u = 0; u < FLIGHT; u++)
        if (i + u * K_LOOP < vectors) k_store_vector<O, N>(out + (i + u * K_LOOP) * N, u, e, in...);
    }
  } else {
#pragma unroll 1
    for (int64_t i = (int64_t)blockIdx.x * K_LOOP + threadIdx.x; i < vectors;
         i += (int64_t)gridDim.x * K_LOOP) {
      int64_t to = k_find<true>(p, i, in...);
      (in.fetch_row(p), ...);
      k_store_vector<O, N>(out + to, 0, e, in...);
    }
  }
#pragma unroll 1
  for (int64_t i = vectors * N + block * blockDim.x + threadIdx.x; i < n;
       i += blocks * blockDim.x) {
    int64_t to = i;
    if (p.mode <= K_LIST)
      ((in.at = i), ...);
    else
      to = k_find<false>(p, i, in...);
    k_put(out + to, e(in.get_at()...));
  }
}
