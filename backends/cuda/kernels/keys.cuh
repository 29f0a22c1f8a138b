// SPDX-License-Identifier: Apache-2.0
// Keys: elements of any dtype as unsigned integers with the wanted order. For ascending order, a
// signed integer has its top bit flipped; a float has its top bit flipped, or all bits if it is
// negative; a NaN is the greatest. For descending order all bits are flipped. The two zeros have
// different keys, from which they can be restored, but compare as equal.
#pragma once
#include "device.cuh"

template <typename K>
static __device__ __forceinline__ K k_key(const k_sort &p, K bits) {
  if ((bits & ~(K)p.top) > (K)p.most) return (K)p.nan;
  return bits ^ (K)(bits & (K)p.top ? p.negative : p.positive);
}
template <typename K>
static __device__ __forceinline__ K k_element(const k_sort &p, K key) {
  return key ^ (K)((key ^ (K)p.positive) & (K)p.top ? p.negative : p.positive);
}
// The key to compare.
template <typename K>
static __device__ __forceinline__ K k_rank(const k_sort &p, K key) {
  return key == (K)p.minus_zero ? (K)p.zero : key;
}

// Bits of elements: at `first` + at(e) for each of N, or all set where at(e) is negative.
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
// The keys of elements, all bits set where there is none.
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
