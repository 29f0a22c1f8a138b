// SPDX-License-Identifier: Apache-2.0
// The fixed part of chains: kernels that compute several pointwise ops at once. The backend writes
// the rest when a program first needs it (host/chain/source.c), and compiles it with NVRTC:
//
//   struct k_chain             n, where, and words: addresses, numbers and k_spread
//   template <int N> k_steps   load(p, at) and run(p, at): elements [at, at + N)
//
// Each op's result is rounded to its dtype. Chains and the kernels of single ops are compiled
// without contraction to fused multiply-add, so they compute equal bits.
#pragma once
#include "fold.cuh"

// ---- elements

template <typename D, typename S>
struct k_converter {
  static __device__ __forceinline__ D of(S x) {
    D y;
    k_put(&y, k_get(x));
    return y;
  }
};
template <typename S>
struct k_converter<S, S> {
  static __device__ __forceinline__ S of(S x) { return x; }
};
template <typename D, typename S>
static __device__ __forceinline__ D k_converted(S x) {
  return k_converter<D, S>::of(x);
}
// The compiler evaluates functions of known numbers, and rounds them otherwise than the device
// does. Integers may be known, e.g. x == x, so they are hidden when they become floats: `zero` is
// 0, which the compiler does not know.
template <typename D, typename S, bool HIDES>
struct k_caster {
  static __device__ __forceinline__ D of(S x, uint32_t) { return k_converter<D, S>::of(x); }
};
template <typename D, typename S>
struct k_caster<D, S, true> {
  static __device__ __forceinline__ D of(S x, uint32_t zero) {
    typedef typename k_type<S>::number C;
    D y;
    k_put(&y, (C)(k_get(x) ^ (C)zero));
    return y;
  }
};
template <typename D, typename S>
static __device__ __forceinline__ D k_cast(S x, uint32_t zero) {
  typedef typename k_type<D>::number to;
  typedef typename k_type<S>::number from;
  return k_caster < D, S, k_is_real<to>::value && !k_is_real<from>::value > ::of(x, zero);
}
// An input of an op that reads elements stored as W.
template <typename W, typename S>
static __device__ __forceinline__ typename k_type<W>::number k_input(S x, uint32_t zero) {
  return k_get(k_cast<W>(x, zero));
}
// The result of an op that stores elements as S, in the dtype D.
template <typename S, typename D, typename C>
static __device__ __forceinline__ D k_result(C x) {
  S y;
  k_put(&y, x);
  return k_converted<D>(y);
}

// ---- operands

// An operand whose elements are located by index; dimensions are innermost first.
template <int DIMS>
struct k_spread {
  const void *data;
  k_divisor by[DIMS];
  int64_t strides[DIMS];
  __device__ __forceinline__ int64_t find(uint32_t i) const {
    int64_t at = 0;
#pragma unroll
    for (int d = 0; d + 1 < DIMS; d++) {
      uint32_t q = k_divide(i, by[d]);
      at += (i - q * by[d].size) * strides[d];
      i = q;
    }
    return at + i * strides[DIMS - 1];
  }
};

template <typename S>
static __device__ __forceinline__ S *k_array(k_number word) {
  return (S *)word.i;
}
template <typename S, int N>
static __device__ __forceinline__ bool k_is_aligned(const S *at) {
  return (uintptr_t)at % sizeof(k_loaded<S, N>) == 0;
}

// Elements [at, at + N) of an array.
template <typename S, int N>
static __device__ __forceinline__ k_loaded<S, N> k_flat(k_number array, int64_t at) {
  const S *from = k_array<const S>(array) + at;
  if (k_is_aligned<S, N>(from)) return *(const k_loaded<S, N> *)from;
  k_loaded<S, N> v;
#pragma unroll
  for (int k = 0; k < N; k++) v.put(k, from[k]);
  return v;
}
// The same of a spread operand. Its rows may consist of whole vectors.
template <typename S, int N, int DIMS>
static __device__ __forceinline__ k_loaded<S, N> k_gather(const k_number *words, int64_t at) {
  const k_spread<DIMS> &p = *(const k_spread<DIMS> *)words;
  const S *from = (const S *)p.data;
  S s[N];
  if (p.by[0].size % N == 0) {
    int64_t step = p.strides[0];
    from += p.find((uint32_t)at);
    if (step == 1 && k_is_aligned<S, N>(from)) return *(const k_loaded<S, N> *)from;
    s[0] = *from;
#pragma unroll
    for (int k = 1; k < N; k++) s[k] = step ? from[k * step] : s[0];
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) s[k] = from[p.find((uint32_t)at + k)];
  }
  k_loaded<S, N> v;
#pragma unroll
  for (int k = 0; k < N; k++) v.put(k, s[k]);
  return v;
}
template <typename S, int N>
static __device__ __forceinline__ void k_scatter(k_number array, int64_t at,
                                                 const k_vector<S, N> &v) {
  S *to = k_array<S>(array) + at;
  if (k_is_aligned<S, N>(to)) {
    *(k_vector<S, N> *)to = v;
    return;
  }
#pragma unroll
  for (int k = 0; k < N; k++) to[k] = v.v[k];
}

// ---- ends

// Computes and stores all elements: vectors first, FLIGHT at a time, then single ones.
template <template <int> class STEPS, int N, int FLIGHT, typename P>
static __device__ __forceinline__ void k_store_all(const P &p) {
  enum { TILE = K_LOOP * FLIGHT };
  int64_t vectors = p.n / N;
#pragma unroll 1
  for (int64_t i = (int64_t)blockIdx.x * TILE + threadIdx.x; i < vectors;
       i += (int64_t)gridDim.x * TILE) {
    STEPS<N> steps[FLIGHT];
#pragma unroll
    for (int u = 0; u < FLIGHT; u++)
      if (i + u * K_LOOP < vectors) steps[u].load(p, (i + u * K_LOOP) * N);
#pragma unroll
    for (int u = 0; u < FLIGHT; u++)
      if (i + u * K_LOOP < vectors) steps[u].run(p, (i + u * K_LOOP) * N);
  }
  int64_t i = vectors * N + (int64_t)blockIdx.x * K_LOOP + threadIdx.x;
  if (i >= p.n) return;
  STEPS<1> step;
  step.load(p, i);
  step.run(p, i);
}

// Elements of the input of a fold, which would be stored as S at `address` if its memory began at
// address 0.
template <template <int> class STEPS, typename S, int N>
struct k_computed {
  template <typename P>
  static __device__ __forceinline__ k_loaded<S, N> at(const P &p, const void *address) {
    int64_t i = (int64_t)address / (int64_t)sizeof(S);
    STEPS<N> steps;
    steps.load(p, i);
    return steps.run(p, i);
  }
};
// The fold F of a chain whose last result is stored as R. AHEAD divides K_FLUSH. The chain's
// parameters follow the fold's.
template <typename F, template <int> class STEPS, typename R, typename P, int AHEAD>
struct k_chain_fold : F {
  enum { ROW_AHEAD = AHEAD, COLUMN_AHEAD = AHEAD };
  template <typename S, int N>
  struct reader {
    static __device__ __forceinline__ k_loaded<S, N> at(const P &, const void *) {
      return {};  // another dtype than the input's: never called
    }
  };
  template <int N>
  struct reader<R, N> : k_computed<STEPS, R, N> {};
  template <typename S, int N>
  static __device__ __forceinline__ k_loaded<S, N> read(const k_fold &p, const void *at) {
    return reader<S, N>::at(*(const P *)(&p + 1), at);
  }
  template <typename T>
  static __device__ __forceinline__ T read_any(const k_fold &p, const void *at) {
    return (T)k_get(read<R, 1>(p, at)[0]);
  }
};
