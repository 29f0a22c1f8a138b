// SPDX-License-Identifier: Apache-2.0
// Elements picked by index tensors, and places along a dimension. A bad index is reported, and its
// element left alone. Additions to one place are atomic, in no order.
#include "device.cuh"

// ---- additions of every dtype

static __device__ __forceinline__ void add_to(float *to, float x) { atomicAdd(to, x); }
static __device__ __forceinline__ void add_to(double *to, double x) { atomicAdd(to, x); }
static __device__ __forceinline__ void add_to(__half *to, __half x) { atomicAdd(to, x); }
static __device__ __forceinline__ void add_to(__nv_bfloat16 *to, __nv_bfloat16 x) {
  atomicAdd(to, x);
}
static __device__ __forceinline__ void add_to(int32_t *to, int32_t x) { atomicAdd(to, x); }
static __device__ __forceinline__ void add_to(int64_t *to, int64_t x) {
  atomicAdd((unsigned long long *)to, (unsigned long long)x);
}
// Narrow ones by way of the aligned word around them. Bytes of bools are joined by `or`.
template <typename S>
static __device__ __forceinline__ void add_narrow(S *to, S x) {
  unsigned *word = (unsigned *)((uintptr_t)to & ~(uintptr_t)3);
  unsigned shift = ((uintptr_t)to & 3) * 8, mask = sizeof(S) == 1 ? 0xffu : 0xffffu;
  unsigned old = *word, seen;
  do {
    seen = old;
    unsigned sum = ((seen >> shift) + (unsigned)x) & mask;
    old = atomicCAS(word, seen, (seen & ~(mask << shift)) | sum << shift);
  } while (old != seen);
}
static __device__ __forceinline__ void add_to(uint8_t *to, uint8_t x) { add_narrow(to, x); }
static __device__ __forceinline__ void add_to(int8_t *to, int8_t x) { add_narrow(to, x); }
static __device__ __forceinline__ void add_to(int16_t *to, int16_t x) { add_narrow(to, x); }
static __device__ __forceinline__ void add_to(k_bool *to, k_bool x) {
  unsigned *word = (unsigned *)((uintptr_t)to & ~(uintptr_t)3);
  if (x.byte) atomicOr(word, 1u << ((uintptr_t)to & 3) * 8);
}

// ---- index_get, index_put: a thread an element of the loop

// Where element i lies on both sides; false if an index is bad.
static __device__ bool find(const k_pick &p, int64_t i, int64_t *self, int64_t *other) {
  int64_t at[K_INDICES];
  *self = *other = 0;
#pragma unroll
  for (int k = 0; k < K_INDICES; k++) at[k] = 0;
  for (int d = 0; d < p.ndim; d++) {
    int64_t k;
    if (p.wide) {
      k = i % p.sizes[d];
      i /= p.sizes[d];
    } else {
      uint32_t q = k_divide((uint32_t)i, p.by[d]);
      k = (uint32_t)i - q * p.by[d].size;
      i = q;
    }
    *self += k * p.self_strides[d], *other += k * p.other_strides[d];
#pragma unroll
    for (int j = 0; j < K_INDICES; j++)
      if (j < p.count) at[j] += k * p.index_strides[j][d];
  }
#pragma unroll
  for (int j = 0; j < K_INDICES; j++) {
    if (j >= p.count) break;
    int64_t x = p.index[j][at[j]], n = p.dim_sizes[j];
    if (x < (p.wraps ? -n : 0) || x >= n) {
      bool range = p.fault == K_FAULT_RANGE;
      k_fault(&p.where, p.fault, x, range ? n : p.dims[j], range ? 0 : n);
      return false;
    }
    *self += (x < 0 ? x + n : x) * p.dim_strides[j];
  }
  return true;
}

template <typename S>
static __device__ __forceinline__ void get_body(const k_pick &p) {
  int64_t self, other;
  for (int64_t i = k_thread(); i < p.n; i += k_threads())
    if (find(p, i, &self, &other)) ((S *)p.other)[other] = ((const S *)p.self)[self];
}
template <typename S>
static __device__ __forceinline__ void put_body(const k_pick &p) {
  int64_t self, other;
  for (int64_t i = k_thread(); i < p.n; i += k_threads())
    if (find(p, i, &self, &other)) ((S *)p.self)[self] = ((const S *)p.other)[other];
}
template <typename S>
static __device__ __forceinline__ void add_body(const k_pick &p) {
  int64_t self, other;
  for (int64_t i = k_thread(); i < p.n; i += k_threads())
    if (find(p, i, &self, &other)) add_to((S *)p.self + self, ((const S *)p.other)[other]);
}
K_KERNEL(get, 1, uint8_t, k_pick)
K_KERNEL(get, 2, int16_t, k_pick)
K_KERNEL(get, 4, int32_t, k_pick)
K_KERNEL(get, 8, int64_t, k_pick)
K_KERNEL(put, 1, uint8_t, k_pick)
K_KERNEL(put, 2, int16_t, k_pick)
K_KERNEL(put, 4, int32_t, k_pick)
K_KERNEL(put, 8, int64_t, k_pick)
K_KERNEL(add, bool, k_bool, k_pick)
K_KERNEL(add, u8, uint8_t, k_pick)
K_KERNEL(add, i8, int8_t, k_pick)
K_KERNEL(add, i16, int16_t, k_pick)
K_KERNEL(add, i32, int32_t, k_pick)
K_KERNEL(add, i64, int64_t, k_pick)
K_FLOATS(add, k_pick)

// ---- place_along, pick_along: dense doubles or int64; `take` is the size of the big side. The
// indices are [outer, size, inner]; `out` was cleared before elements are placed.

template <typename S>
static __device__ __forceinline__ void along_body(const k_lines &p) {
  int64_t n = p.outer * p.size * p.inner;
  for (int64_t i = k_thread(); i < n; i += k_threads()) {
    int64_t o = i / (p.size * p.inner), r = i % p.inner, k = p.indices[i];
    int64_t big = (o * p.take + k) * p.inner + r;
    if (k < 0 || k >= p.take)
      k_fault(&p.where, K_FAULT_INDEX, k, p.dim, p.take);
    else if (p.place)
      add_to((S *)p.out + big, ((const S *)p.in)[i]);
    else
      ((S *)p.out)[i] = ((const S *)p.in)[big];
  }
}
K_KERNEL(along, i64, int64_t, k_lines)
K_KERNEL(along, f64, double, k_lines)
