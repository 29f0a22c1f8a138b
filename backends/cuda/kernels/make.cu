// SPDX-License-Identifier: Apache-2.0
// Tensors by a rule of the place: arange, linspace, eye, the triangles of matrices; and, over
// masks, how many elements are not zero and where.
#include "loop.cuh"

struct k_make {  // as in k_make.c
  void *out;
  const void *in;
  int64_t n, columns, start, step, diagonal;
  double from, by, to;
  int32_t dtype, whole, lower, ndim;
  int64_t sizes[K_DIMS], to_strides[K_DIMS], from_strides[K_DIMS];
};

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

// ---- over masks and indices; operands are dense. One block, so that the order is the elements'.

static __device__ __forceinline__ bool is_set(const k_make &p, int64_t i) {
  const char *at = (const char *)p.in + i * k_item(p.dtype);
  return p.dtype >= K_FLOAT16 ? k_load<double>(at, p.dtype) != 0
                              : k_load<int64_t>(at, p.dtype) != 0;
}
extern "C" __global__ void __launch_bounds__(1024) nonzero_count(const __grid_constant__ k_make p) {
  long long n = 0;
  for (int64_t i = threadIdx.x; i < p.n; i += blockDim.x) n += is_set(p, i);
  n = k_join(n, blockDim.x, k_add());
  if (threadIdx.x == 0) *(int64_t *)p.out = n;
}
extern "C" __global__ void __launch_bounds__(1024) index_max(const __grid_constant__ k_make p) {
  long long most = INT64_MIN;
  for (int64_t i = threadIdx.x; i < p.n; i += blockDim.x) {
    long long x = ((const int64_t *)p.in)[i];
    most = x > most ? x : most;
  }
  most = k_join(most, blockDim.x, k_greater());
  if (threadIdx.x == 0) *(int64_t *)p.out = most;
}

// `columns` is the number of rows of the result: no more are written, whatever the mask became.
extern "C" __global__ void __launch_bounds__(1024) nonzero(const __grid_constant__ k_make p) {
  __shared__ int counts[32];
  int64_t row = 0;
  int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  for (int64_t base = 0; base < p.n; base += blockDim.x) {
    int64_t i = base + threadIdx.x;
    bool set = i < p.n && is_set(p, i);
    unsigned ballot = __ballot_sync(0xffffffffu, set);
    __syncthreads();
    if (lane == 0) counts[warp] = __popc(ballot);
    __syncthreads();
    int64_t mine = row + __popc(ballot & ((1u << lane) - 1));
    for (int k = 0; k < warps; k++) {
      if (k < warp) mine += counts[k];
      row += counts[k];
    }
    if (!set || mine >= p.columns) continue;
    int64_t rest = i;
    for (int d = 0; d < p.ndim; d++) {  // the innermost first
      ((int64_t *)p.out)[mine * p.ndim + p.ndim - 1 - d] = rest % p.sizes[d];
      rest /= p.sizes[d];
    }
  }
}
