// SPDX-License-Identifier: Apache-2.0
// Sort keys: elements of any dtype as unsigned integers in the requested order. Ascending:
// signed integers have the top bit flipped; floats have the top bit flipped, or all bits if
// negative; NaN is the maximum. Descending flips all bits. The two zeros have distinct keys, so
// they can be restored, but compare as equal.
#pragma once
#include "device.cuh"

template <typename K>
static __device__ __forceinline__ K k_key(const k_sort &p, K bits) {
  if ((bits & ~(K)p.top) > (K)p.max_magnitude) return (K)p.nan;
  return bits ^ (K)(bits & (K)p.top ? p.negative : p.positive);
}
template <typename K>
static __device__ __forceinline__ K k_element(const k_sort &p, K key) {
  return key ^ (K)((key ^ (K)p.positive) & (K)p.top ? p.negative : p.positive);
}
// The key used for comparison.
template <typename K>
static __device__ __forceinline__ K k_rank(const k_sort &p, K key) {
  return key == (K)p.minus_zero ? (K)p.zero : key;
}

// Loads the bits of elements at index at(e) for each of N; all bits set if at(e) is negative.
template <typename S, typename K, int N, typename F>
static __device__ __forceinline__ void k_bits_of(K (&x)[N], const void *from, F at) {
#pragma unroll
  for (int e = 0; e < N; e++) {
    int64_t i = at(e);
    x[e] = i < 0 ? ~(K)0 : (K)((const S *)from)[i];
  }
}
template <typename K, int N, typename F>
static __device__ __forceinline__ void k_bits(K (&x)[N], const k_sort &p, F at) {
  switch (p.item) {
    case 1:
      return k_bits_of<uint8_t>(x, p.in, at);
    case 2:
      return k_bits_of<uint16_t>(x, p.in, at);
    case 4:
      return k_bits_of<uint32_t>(x, p.in, at);
    default:
      k_bits_of<uint64_t>(x, p.in, at);
  }
}
// Keys of elements; all bits set if absent.
template <typename K, int N, typename F>
static __device__ __forceinline__ void k_keys(K (&x)[N], const k_sort &p, F at) {
  k_bits(x, p, at);
#pragma unroll
  for (int e = 0; e < N; e++) x[e] = at(e) < 0 ? ~(K)0 : k_key(p, x[e]);
}
template <typename K>
static __device__ __forceinline__ void k_store_bits(const k_sort &p, int64_t i, K bits) {
  switch (p.item) {
    case 1:
      ((uint8_t *)p.out)[i] = (uint8_t)bits;
      break;
    case 2:
      ((uint16_t *)p.out)[i] = (uint16_t)bits;
      break;
    case 4:
      ((uint32_t *)p.out)[i] = (uint32_t)bits;
      break;
    default:
      ((uint64_t *)p.out)[i] = (uint64_t)bits;
  }
}
