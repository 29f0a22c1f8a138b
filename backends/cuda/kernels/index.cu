// SPDX-License-Identifier: Apache-2.0
// Indexing by tensors; gather and scatter along a dimension. An invalid index is reported and
// its element skipped. Accumulation is atomic in any order, unless a fixed order is requested.
#include "device.cuh"

// ---- atomic additions

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
// Small types by compare-and-swap of the aligned word; bools by atomic or.
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

// ---- other reductions; NaN wins both max and min

template <typename C>
static __device__ __forceinline__ C joined(int how, C a, C b) {
  switch (how) {
    case K_PUT_ADD:
      return a + b;
    case K_PUT_MULTIPLY:
      return a * b;
    case K_PUT_MAX:
      return a > b || a != a ? a : b;
    default:
      return a < b || a != a ? a : b;
  }
}
template <typename S>
static __device__ __forceinline__ S joined_as(int how, S a, S b) {
  typedef typename k_type<S>::number C;
  S both;
  k_put(&both, joined(how, (C)k_get(a), (C)k_get(b)));
  return both;
}
// By compare-and-swap of the aligned word containing the element.
template <bool WIDE>
struct word_around {
  typedef unsigned type;
};
template <>
struct word_around<true> {
  typedef unsigned long long type;
};
template <typename S>
static __device__ __forceinline__ void join_at(S *to, S x, int how) {
  typedef typename word_around<(sizeof(S) > 4)>::type W;
  W *word = (W *)((uintptr_t)to & ~(uintptr_t)(sizeof(W) - 1)), old = *word, seen, next;
  size_t at = (uintptr_t)to & (sizeof(W) - 1);
  do {
    next = seen = old;
    S *target = (S *)((char *)&next + at);
    *target = joined_as(how, *target, x);
    old = atomicCAS(word, seen, next);
  } while (old != seen);
}

// ---- index_get, index_put: one thread per element of the loop, or 16 bytes of adjacent elements
// (widen() of the host). Accesses are coalesced on the side without indices; on the indexed
// side, within runs as long as the dimensions inside the indexed ones.

// Offsets of element i on both sides; false for an invalid index.
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
template <typename S>
static __device__ __forceinline__ void join_body(const k_pick &p) {
  int64_t self, other;
  for (int64_t i = k_thread(); i < p.n; i += k_threads())
    if (find(p, i, &self, &other)) join_at((S *)p.self + self, ((const S *)p.other)[other], p.how);
}
K_KERNEL(get, 1, uint8_t, k_pick)
K_KERNEL(get, 2, int16_t, k_pick)
K_KERNEL(get, 4, int32_t, k_pick)
K_KERNEL(get, 8, int64_t, k_pick)
K_KERNEL(get, 16, int4, k_pick)
K_KERNEL(put, 1, uint8_t, k_pick)
K_KERNEL(put, 2, int16_t, k_pick)
K_KERNEL(put, 4, int32_t, k_pick)
K_KERNEL(put, 8, int64_t, k_pick)
K_KERNEL(put, 16, int4, k_pick)
K_KERNEL(add, bool, k_bool, k_pick)
K_KERNEL(add, u8, uint8_t, k_pick)
K_KERNEL(add, i8, int8_t, k_pick)
K_KERNEL(add, i16, int16_t, k_pick)
K_KERNEL(add, i32, int32_t, k_pick)
K_KERNEL(add, i64, int64_t, k_pick)
K_FLOATS(add, k_pick)
K_KERNEL(join, bool, k_bool, k_pick)
K_KERNEL(join, u8, uint8_t, k_pick)
K_KERNEL(join, i8, int8_t, k_pick)
K_KERNEL(join, i16, int16_t, k_pick)
K_KERNEL(join, i32, int32_t, k_pick)
K_KERNEL(join, i64, int64_t, k_pick)
K_FLOATS(join, k_pick)

// Accumulation in a fixed order. Each target element belongs to one warp of the launch. Every
// warp scans all runs, 32 at a time, and accumulates those of its own targets one by one, so a
// target receives values in run order for any number of warps. A lane handles every 32nd element
// of a run. All warps read the indices, mostly from the cache.
template <typename S>
static __device__ __forceinline__ void join_run(const k_pick &p, int64_t to, int64_t from) {
  for (int64_t k = threadIdx.x % 32; k < p.run; k += 32) {
    S *target = (S *)p.self + to + k * p.self_strides[0];
    S x = ((const S *)p.other)[from + k * p.other_strides[0]];
    *target = joined_as(p.how, *target, x);
  }
}
static __device__ __forceinline__ bool is_own(int64_t target) {
  uint32_t mixed = (uint32_t)((uint64_t)target * 0x9e3779b97f4a7c15ull >> 32);
  return mixed % (uint32_t)(k_threads() / 32) == (uint32_t)(k_thread() / 32);
}
template <typename S>
static __device__ __forceinline__ void join_ordered_body(const k_pick &p) {
  int64_t runs = p.n / p.run, self = 0, other = 0;
  for (int64_t first = 0; first < runs; first += 32) {
    int64_t i = first + threadIdx.x % 32;
    bool own = i < runs && find(p, i * p.run, &self, &other) && is_own(self);
    for (unsigned left = __ballot_sync(~0u, own); left; left &= left - 1) {
      int lane = __ffs(left) - 1;
      join_run<S>(p, __shfl_sync(~0u, self, lane), __shfl_sync(~0u, other, lane));
    }
  }
}
K_FLOATS(join_ordered, k_pick)

// Gathers runs by one index, several in flight, for fewer than 2^31 elements. A block of K_BLOCK
// threads covers K_BLOCK * K_RUNS elements; a thread has K_RUNS at stride K_BLOCK. One block for
// each such tile.
static __device__ __forceinline__ bool bad_index(const k_pick &p, int64_t x) {
  int64_t n = p.dim_sizes[0];
  if (x >= (p.wraps ? -n : 0) && x < n) return false;
  bool range = p.fault == K_FAULT_RANGE;
  k_fault(&p.where, p.fault, x, range ? n : p.dims[0], range ? 0 : n);
  return true;
}
template <typename S>
static __device__ __forceinline__ void get_runs_body(const k_pick &p) {
  int64_t first = (int64_t)blockIdx.x * K_BLOCK * K_RUNS + threadIdx.x, to[K_RUNS], x[K_RUNS];
  S v[K_RUNS];
#pragma unroll
  for (int u = 0; u < K_RUNS; u++) {
    uint32_t i = (uint32_t)(first + u * K_BLOCK), row = k_divide(i, p.by[0]);
    int64_t k = i - row * p.by[0].size;
    to[u] = -1;
    if (first + u * K_BLOCK >= p.n) continue;
    x[u] = p.index[0][row * p.index_strides[0][1]];
    if (bad_index(p, x[u])) continue;
    if (x[u] < 0) x[u] += p.dim_sizes[0];
    x[u] = x[u] * p.dim_strides[0] + k * p.self_strides[0] + row * p.self_strides[1];
    to[u] = k * p.other_strides[0] + row * p.other_strides[1];
  }
#pragma unroll
  for (int u = 0; u < K_RUNS; u++)
    if (to[u] >= 0) v[u] = ((const S *)p.self)[x[u]];
#pragma unroll
  for (int u = 0; u < K_RUNS; u++)
    if (to[u] >= 0) ((S *)p.other)[to[u]] = v[u];
}
K_KERNEL(get_runs, 4, int32_t, k_pick)
K_KERNEL(get_runs, 8, int64_t, k_pick)
K_KERNEL(get_runs, 16, int4, k_pick)

// Adds runs at the offsets of one index, 16 bytes at a time.
static __device__ __forceinline__ void add_vector(float *to, k_vector<float, 4> x) {
#if __CUDA_ARCH__ >= 900
  atomicAdd((float4 *)to, make_float4(x.v[0], x.v[1], x.v[2], x.v[3]));
#else
  for (int k = 0; k < 4; k++) atomicAdd(to + k, x.v[k]);
#endif
}
static __device__ __forceinline__ void add_vector(double *to, k_vector<double, 2> x) {
  atomicAdd(to, x.v[0]);
  atomicAdd(to + 1, x.v[1]);
}
static __device__ __forceinline__ void add_vector(__half *to, k_vector<__half, 8> x) {
#pragma unroll
  for (int k = 0; k < 8; k += 2) atomicAdd((__half2 *)(to + k), __halves2half2(x.v[k], x.v[k + 1]));
}
static __device__ __forceinline__ void add_vector(__nv_bfloat16 *to, k_vector<__nv_bfloat16, 8> x) {
#pragma unroll
  for (int k = 0; k < 8; k += 2)
    atomicAdd((__nv_bfloat162 *)(to + k), __halves2bfloat162(x.v[k], x.v[k + 1]));
}
template <typename S>
static __device__ __forceinline__ void add_runs_body(const k_pick &p) {
  typedef k_vector<S, 16 / sizeof(S)> V;
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    uint32_t row = k_divide((uint32_t)i, p.by[0]);
    int64_t k = i - row * p.by[0].size, x = p.index[0][row * p.index_strides[0][1]];
    if (bad_index(p, x)) continue;
    x = (x < 0 ? x + p.dim_sizes[0] : x) * p.dim_strides[0];
    add_vector((S *)((V *)p.self + x + k * p.self_strides[0] + row * p.self_strides[1]),
               ((const V *)p.other)[k * p.other_strides[0] + row * p.other_strides[1]]);
  }
}
K_FLOATS(add_runs, k_pick)

// ---- place_along, pick_along: dense doubles or int64. `take` is the dimension's size on the
// indexed side; the indices are [outer, size, inner]. `out` is cleared before place_along. One
// thread an index: reads of indices are coalesced, accesses of the indexed side are not.

// Offset of index i on the indexed side, -1 if invalid.
static __device__ __forceinline__ int64_t indexed_offset(const k_lines &p, int64_t i) {
  int64_t o = i / (p.size * p.inner), r = i % p.inner, k = p.indices[i];
  if (k >= 0 && k < p.take) return (o * p.take + k) * p.inner + r;
  k_fault(&p.where, K_FAULT_INDEX, k, p.dim, p.take);
  return -1;
}
template <typename S>
static __device__ __forceinline__ void along_body(const k_lines &p) {
  int64_t n = p.outer * p.size * p.inner;
  for (int64_t i = k_thread(); i < n; i += k_threads()) {
    int64_t big = indexed_offset(p, i);
    if (big < 0) continue;
    if (p.scatters)
      add_to((S *)p.out + big, ((const S *)p.in)[i]);
    else
      ((S *)p.out)[i] = ((const S *)p.in)[big];
  }
}
K_KERNEL(along, i64, int64_t, k_lines)
K_KERNEL(along, f64, double, k_lines)

// In a fixed order: one thread per line.
template <typename S>
static __device__ __forceinline__ void along_ordered_body(const k_lines &p) {
  for (int64_t i = k_thread(); i < p.outer * p.inner; i += k_threads())
    for (int64_t k = 0; k < p.size; k++) {
      int64_t at = (i / p.inner * p.size + k) * p.inner + i % p.inner, big = indexed_offset(p, at);
      if (big >= 0) ((S *)p.out)[big] += ((const S *)p.in)[at];
    }
}
K_KERNEL(along_ordered, f64, double, k_lines)
