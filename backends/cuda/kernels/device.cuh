// SPDX-License-Identifier: Apache-2.0
// Shared by all device kernels: elements of every dtype, faults, sums over groups of threads.
//
// k_get converts a stored element to its compute type (float for fp16 and bf16, bool for any
// nonzero byte); k_put stores it. Kernels never trap: the first fault is written to the device's
// mapped slot, and the faulty element is skipped.
//
// Default launch: blocks of K_BLOCK threads, at most as many as the device holds, in a
// grid-stride loop. Adjacent threads access adjacent elements, so accesses of dense operands are
// coalesced.
#pragma once
#include "cuda/params.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct k_bool {
  uint8_t byte;
};

static __device__ __forceinline__ bool k_get(k_bool x) { return x.byte != 0; }
static __device__ __forceinline__ uint8_t k_get(uint8_t x) { return x; }
static __device__ __forceinline__ int8_t k_get(int8_t x) { return x; }
static __device__ __forceinline__ int16_t k_get(int16_t x) { return x; }
static __device__ __forceinline__ int32_t k_get(int32_t x) { return x; }
static __device__ __forceinline__ int64_t k_get(int64_t x) { return x; }
static __device__ __forceinline__ float k_get(__half x) { return __half2float(x); }
static __device__ __forceinline__ float k_get(__nv_bfloat16 x) { return __bfloat162float(x); }
static __device__ __forceinline__ float k_get(float x) { return x; }
static __device__ __forceinline__ double k_get(double x) { return x; }

// Floats convert to integers as in PyTorch's kernels: to the nearest number of int32, uint32 (for
// uint16) or, for uint8, int64, whose low bits are kept.
template <typename C>
struct k_is_real {
  static const bool value = false;
};
template <>
struct k_is_real<float> {
  static const bool value = true;
};
template <>
struct k_is_real<double> {
  static const bool value = true;
};
template <typename I>
struct k_clamped {
  typedef I type;
};
template <>
struct k_clamped<uint8_t> {
  typedef int64_t type;
};
template <>
struct k_clamped<int8_t> {
  typedef int32_t type;
};
template <>
struct k_clamped<int16_t> {
  typedef int32_t type;
};
template <>
struct k_clamped<uint16_t> {
  typedef uint32_t type;
};
template <typename I, typename C>
static __device__ __forceinline__ I k_to_integer(C x) {
  return k_is_real<C>::value ? (I)(typename k_clamped<I>::type)x : (I)x;
}
#define K_PUT(type, stored) \
  template <typename C> \
  static __device__ __forceinline__ void k_put(type *to, C x) { \
    *to = stored; \
  }
K_PUT(k_bool, k_bool{(uint8_t)(x != (C)0)})
K_PUT(uint8_t, k_to_integer<uint8_t>(x))
K_PUT(int8_t, k_to_integer<int8_t>(x))
K_PUT(int16_t, k_to_integer<int16_t>(x))
K_PUT(int32_t, k_to_integer<int32_t>(x))
K_PUT(int64_t, (int64_t)x)
K_PUT(__half, __float2half_rn((float)x))
K_PUT(__nv_bfloat16, __float2bfloat16_rn((float)x))
K_PUT(float, (float)x)
K_PUT(double, (double)x)

template <typename C>
static __device__ __forceinline__ C k_number_as(k_number x) {
  return k_is_real<C>::value ? (C)x.f : (C)x.i;
}

// Compute type of storage type S.
template <typename S>
struct k_type {
  typedef S number;
};
template <>
struct k_type<k_bool> {
  typedef bool number;
};
template <>
struct k_type<__half> {
  typedef float number;
};
template <>
struct k_type<__nv_bfloat16> {
  typedef float number;
};

// Storage types by dtype suffix.
typedef uint8_t k_u8;
typedef int8_t k_i8;
typedef int16_t k_i16;
typedef int32_t k_i32;
typedef int64_t k_i64;
typedef __half k_f16;
typedef __nv_bfloat16 k_bf16;
typedef float k_f32;
typedef double k_f64;

// Loads an element of a dtype known at run time; the branch is uniform.
template <typename C>
static __device__ __forceinline__ C k_load(const void *from, int dtype) {
  switch (dtype) {
#define XX(name, suffix, ...) \
  case K_##name: \
    return (C)k_get(*(const k_##suffix *)from);
    PX_DTYPE_COMPUTED_MAP(XX)
#undef XX
  }
  return C();
}
template <typename C>
static __device__ __forceinline__ void k_store(void *to, int dtype, C x) {
  switch (dtype) {
#define XX(name, suffix, ...) \
  case K_##name: \
    k_put((k_##suffix *)to, x); \
    break;
    PX_DTYPE_COMPUTED_MAP(XX)
#undef XX
  }
}
static __device__ __forceinline__ int k_item(int dtype) {
  switch (dtype) {
#define XX(name, suffix, cell, ...) \
  case K_##name: \
    return sizeof(cell);
    PX_DTYPE_MAP(XX)
#undef XX
  }
  return 0;
}

template <typename S, int N>
struct alignas(sizeof(S) * N) k_vector {
  S v[N];
};

// A vector as loaded. Small elements stay packed in words and are extracted on access.
// Extracting at once would make each load wait before the next is issued.
template <int BYTES>
struct k_word {
  typedef uint32_t type;
};
template <>
struct k_word<2> {
  typedef uint16_t type;
};
template <typename S, int N, bool SMALL = (sizeof(S) < 4 && N > 1)>
struct alignas(sizeof(S) * N) k_loaded {
  S v[N];
  __device__ __forceinline__ S operator[](int k) const { return v[k]; }
  __device__ __forceinline__ void put(int k, S x) { v[k] = x; }
};
template <typename S, int N>
struct alignas(sizeof(S) * N) k_loaded<S, N, true> {
  typedef typename k_word<sizeof(S) * N>::type W;
  enum { EACH = sizeof(W) / sizeof(S), BITS = 8 * sizeof(S) };  // elements, bits of an element
  W w[N / EACH];
  __device__ __forceinline__ S operator[](int k) const {
    W x = (W)(w[k / EACH] >> (k % EACH * BITS));
    S s;
    memcpy(&s, &x, sizeof s);
    return s;
  }
  // Elements must be put in order, from the first of a word on.
  __device__ __forceinline__ void put(int k, S s) {
    W x = 0;
    memcpy(&x, &s, sizeof s);
    w[k / EACH] = k % EACH ? (W)(w[k / EACH] | x << (k % EACH * BITS)) : x;
  }
};

// Calls f(vectors of N of each of TENSORS, element index) for vectors begin, begin + step, ... <
// end of the row starting at element `at`. Several vectors are loaded before one is used: stores
// in f may alias, so the compiler would not load ahead.
template <typename S, int N, int TENSORS, typename F>
static __device__ __forceinline__ void k_walk(const void *const (&tensors)[TENSORS], int64_t at,
                                              int64_t begin, int64_t end, int step, F f) {
  enum { AHEAD = 4 / TENSORS };
#pragma unroll 1
  for (int64_t i = begin; i < end; i += AHEAD * step) {
    k_loaded<S, N> v[AHEAD][TENSORS];
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
#pragma unroll
      for (int t = 0; t < TENSORS; t++)
        if (i + u * step < end)
          v[u][t] = ((const k_loaded<S, N> *)((const S *)tensors[t] + at))[i + u * step];
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
      if (i + u * step < end) f(v[u], at + (i + u * step) * N);
  }
}

// First statement of each kernel. On devices from 9.0 on, a launch starts while its predecessor
// in the stream finishes (programmatic dependent launch); the predecessor's writes are visible
// only after this. Launches of few blocks let their successor start once all of them run; next
// to a large launch, the successor's blocks would be distributed unevenly.
static __device__ __forceinline__ void k_wait() {
#if __CUDA_ARCH__ >= 900
  enum { FEW = 256 };
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (gridDim.x <= FEW) asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// Prefetches to L2 without reading: writes until the actual read are still seen.
static __device__ __forceinline__ void k_prefetch(const void *at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

// Defines kernels NAME_f16 etc. from NAME_body<S>(const P &p).
#define K_KERNEL(name, suffix, S, P) \
  extern "C" __global__ void __launch_bounds__(1024) \
      name##_##suffix(const __grid_constant__ P p) { \
    k_wait(); \
    name##_body<S>(p); \
  }
#define K_FLOATS(name, P) \
  K_KERNEL(name, f16, __half, P) \
  K_KERNEL(name, bf16, __nv_bfloat16, P) \
  K_KERNEL(name, f32, float, P) K_KERNEL(name, f64, double, P)
// The same from name<S, N>(const k_rows &p): 16-byte vectors if p.vector.
#define K_FLOATS_BY_VECTORS(name) \
  template <typename S> \
  static __device__ __forceinline__ void name##_body(const k_rows &p) { \
    if (p.vector) \
      name<S, 16 / sizeof(S)>(p); \
    else \
      name<S, 1>(p); \
  } \
  K_FLOATS(name, k_rows)

static __device__ __forceinline__ int64_t k_thread() {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ __forceinline__ int64_t k_threads() { return (int64_t)gridDim.x * blockDim.x; }

// ---- faults

struct k_slot {  // px_fault_slot
  unsigned long long launch;
  int64_t code, a, b, c;
};
enum {
  K_FAULT_INDEX = 1,
  K_FAULT_TARGET,
  K_FAULT_RANGE,
  K_FAULT_ZERO_DIVISION,
  K_FAULT_PROBABILITY,
  K_FAULT_WEIGHTS = 8,
  K_FAULT_NO_WEIGHT,
  K_FAULT_INPUT,
  K_FAULT_TARGETS,
  K_FAULT_RATE,
  K_FAULT_NEGATIVE_WEIGHT = 16,
  K_FAULT_INFINITE_WEIGHT
};
enum { K_PUT_STORE, K_PUT_ADD, K_PUT_MULTIPLY, K_PUT_MAX, K_PUT_MIN };  // px_put_mode
static __device__ __noinline__ void k_fault(const k_where *at, int code, int64_t a, int64_t b,
                                            int64_t c) {
  k_slot *slot = (k_slot *)at->slot;
  if (!slot || atomicCAS(&slot->launch, 0ull, (unsigned long long)at->id) != 0) return;
  *(volatile int64_t *)&slot->a = a;
  *(volatile int64_t *)&slot->b = b;
  *(volatile int64_t *)&slot->c = c;
  __threadfence_system();
  *(volatile int64_t *)&slot->code = code;
  __threadfence_system();
}

// ---- index arithmetic

static __device__ __forceinline__ uint32_t k_divide(uint32_t n, const k_divisor &by) {
  return (__umulhi(n, by.magic) + n) >> by.shift;
}
static __device__ __forceinline__ int64_t k_quotient(int64_t n, int64_t by) {
  return (uint64_t)(n | by) >> 32 ? n / by : (uint32_t)n / (uint32_t)by;
}
// Byte offsets of element i of the axes.
static __device__ __forceinline__ void k_locate(const k_axis *list, int count, int64_t i,
                                                int64_t *in, int64_t *out, int64_t *out2) {
  *in = *out = *out2 = 0;
#pragma unroll 1
  for (int d = 0; d < count; d++) {
    int64_t k = i;
    if (d + 1 < count) {
      int64_t q = k_quotient(i, list[d].size);
      k = i - q * list[d].size;
      i = q;
    }
    *in += k * list[d].in;
    *out += k * list[d].out;
    *out2 += k * list[d].out2;
  }
}
static __device__ __forceinline__ int64_t k_locate_in(const k_axis *list, int count, int64_t i) {
  int64_t in, out, out2;
  if (count == 1) return i * list[0].in;
  k_locate(list, count, i, &in, &out, &out2);
  return in;
}

// ---- groups of threads: `lanes` is a power of two up to 32 within a warp, or the whole block

struct k_add {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
template <typename C>
struct k_pair {
  C a, b;
};
template <typename C>
static __device__ __forceinline__ k_pair<C> operator+(k_pair<C> x, k_pair<C> y) {
  return {x.a + y.a, x.b + y.b};
}
struct k_maximum {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
  __device__ __forceinline__ float operator()(float a, float b) const {
    float x;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
  }
};
template <typename T>
static __device__ __forceinline__ T k_shuffle(T x, int step, int width) {
  return __shfl_xor_sync(0xffffffffu, x, step, width);
}
template <typename C>
static __device__ __forceinline__ k_pair<C> k_shuffle(k_pair<C> x, int step, int width) {
  return {k_shuffle(x.a, step, width), k_shuffle(x.b, step, width)};
}
// Reduces the values of a group; all of its threads receive the result. All threads of the block
// must call this; the block size is a power of two.
template <typename T, typename F>
static __device__ T k_join(T x, int lanes, F f) {
  __shared__ T partials[32];
  int width = lanes < 32 ? lanes : 32;
  for (int step = width / 2; step > 0; step /= 2) x = f(x, k_shuffle(x, step, width));
  if (lanes <= 32) return x;
  int warps = blockDim.x / 32;
  __syncthreads();
  if ((threadIdx.x & 31) == 0) partials[threadIdx.x / 32] = x;
  __syncthreads();
  x = partials[threadIdx.x & (warps - 1)];
  for (int step = warps / 2; step > 0; step /= 2) x = f(x, k_shuffle(x, step, 32));
  return x;
}
