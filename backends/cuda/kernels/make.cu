// SPDX-License-Identifier: Apache-2.0
// Tensors by a rule of the place: arange, linspace, eye, the triangles of matrices; and, over
// masks, how many elements are not zero and where.
#include "loop.cuh"

extern "C" __global__ void arange(const __grid_constant__ k_make p) {
  int item = k_item(p.dtype);
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    if (p.whole)
      k_store((char *)p.out + i * item, p.dtype, p.start + i * p.step);
    else
      k_store((char *)p.out + i * item, p.dtype, fma((double)i, p.by, p.from));
  }
}

// The second half counts from the end, so that it is exact there.
extern "C" __global__ void linspace(const __grid_constant__ k_make p) {
  int item = k_item(p.dtype);
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    bool low = p.n == 1 || i < p.n / 2;
    if (p.dtype == K_FLOAT32) {
      float f = (float)p.from, t = (float)p.to, s = p.n > 1 ? (t - f) / (float)(p.n - 1) : 0;
      ((float *)p.out)[i] = low ? __fadd_rn(f, __fmul_rn(s, (float)i))
                                : __fsub_rn(t, __fmul_rn(s, (float)(p.n - i - 1)));
      continue;
    }
    double x = low ? p.from + p.by * (double)i : p.to - p.by * (double)(p.n - i - 1);
    k_store((char *)p.out + i * item, p.dtype, x);
  }
}

extern "C" __global__ void eye(const __grid_constant__ k_make p) {
  int item = k_item(p.dtype);
  for (int64_t i = k_thread(); i < p.n; i += k_threads())
    k_store((char *)p.out + i * item, p.dtype, (int64_t)(i / p.columns == i % p.columns));
}

template <typename S>
static __device__ __forceinline__ void triangle_body(const k_make &p) {
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    int64_t rest = i, to = 0, from = 0, beyond = 0;
    for (int d = 0; d < p.ndim; d++) {  // the innermost first: columns, then rows
      int64_t at = rest % p.sizes[d];
      rest /= p.sizes[d];
      to += at * p.to_strides[d], from += at * p.from_strides[d];
      beyond += d == 0 ? at : d == 1 ? -at : 0;
    }
    bool keep = p.lower ? beyond <= p.diagonal : beyond >= p.diagonal;
    S zero = S();
    ((S *)p.out)[to] = keep ? ((const S *)p.in)[from] : zero;
  }
}
K_KERNEL(triangle, 1, uint8_t, k_make)
K_KERNEL(triangle, 2, int16_t, k_make)
K_KERNEL(triangle, 4, int32_t, k_make)
K_KERNEL(triangle, 8, int64_t, k_make)

// ---- over masks and indices; operands are dense. Elements are counted in chunks, a block each;
// chunk k has those from k * step on.

enum { SEVERAL = 8 };  // elements of a thread at a time
// Bit k: element i + k is not zero, and before `end`.
static __device__ __forceinline__ unsigned set_bits(const k_make &p, int64_t i, int64_t end) {
  unsigned bits = 0;
  if (p.dtype <= K_UINT8 && i + SEVERAL <= end && ((uintptr_t)p.in + i) % SEVERAL == 0) {
    k_vector<uint8_t, SEVERAL> v = *(const k_vector<uint8_t, SEVERAL> *)((const uint8_t *)p.in + i);
#pragma unroll
    for (int k = 0; k < SEVERAL; k++) bits |= (v.v[k] != 0) << k;
    return bits;
  }
#pragma unroll 1
  for (int k = 0; k < SEVERAL && i + k < end; k++) {
    const char *at = (const char *)p.in + (i + k) * k_item(p.dtype);
    bool set =
        p.dtype >= K_FLOAT16 ? k_load<double>(at, p.dtype) != 0 : k_load<int64_t>(at, p.dtype) != 0;
    bits |= (unsigned)set << k;
  }
  return bits;
}
extern "C" __global__ void __launch_bounds__(K_BLOCK)
    nonzero_chunks(const __grid_constant__ k_make p) {
  int64_t begin = blockIdx.x * p.step, end = begin + p.step < p.n ? begin + p.step : p.n;
  int n = 0;
  for (int64_t i = begin + threadIdx.x * SEVERAL; i < end; i += K_BLOCK * SEVERAL)
    n += __popc(set_bits(p, i, end));
  n = k_join(n, K_BLOCK, k_add());
  if (threadIdx.x == 0) p.counts[blockIdx.x] = n;
}
// The sum of the first `chunks` counts; every thread of the block gets it.
static __device__ __forceinline__ int64_t count_of(const k_make &p, int64_t chunks) {
  long long n = 0;
  for (int64_t i = threadIdx.x; i < chunks; i += blockDim.x) n += p.counts[i];
  return k_join(n, blockDim.x, k_add());
}
extern "C" __global__ void __launch_bounds__(K_BLOCK)
    nonzero_count(const __grid_constant__ k_make p) {
  int64_t n = count_of(p, p.chunks);
  if (threadIdx.x == 0) *(int64_t *)p.out = n;
}

// `columns` is the number of rows of the result: no more are written, whatever the mask became.
extern "C" __global__ void __launch_bounds__(K_BLOCK) nonzero(const __grid_constant__ k_make p) {
  __shared__ int counts[K_BLOCK / 32];
  int64_t begin = blockIdx.x * p.step, end = begin + p.step < p.n ? begin + p.step : p.n;
  int64_t row = count_of(p, blockIdx.x);
  int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  for (int64_t base = begin; base < end; base += K_BLOCK * SEVERAL) {
    int64_t i = base + threadIdx.x * SEVERAL;
    unsigned bits = set_bits(p, i, end);
    int before = __popc(bits), own = before;
    for (int step = 1; step < 32; step *= 2) {
      int left = __shfl_up_sync(0xffffffffu, before, step);
      if (lane >= step) before += left;
    }
    __syncthreads();
    if (lane == 31) counts[warp] = before;
    __syncthreads();
    int64_t mine = row + before - own;
#pragma unroll
    for (int k = 0; k < K_BLOCK / 32; k++) {
      if (k < warp) mine += counts[k];
      row += counts[k];
    }
    for (; bits && mine < p.columns; bits &= bits - 1, mine++) {
      int64_t rest = i + __ffs((int)bits) - 1;
#pragma unroll 1
      for (int d = 0; d < p.ndim; d++) {  // the innermost first
        int64_t next = d + 1 < p.ndim ? k_quotient(rest, p.sizes[d]) : 0;
        ((int64_t *)p.out)[mine * p.ndim + p.ndim - 1 - d] = rest - next * p.sizes[d];
        rest = next;
      }
    }
  }
}
