// SPDX-License-Identifier: Apache-2.0
// Tensors computed from indices: arange, linspace, eye, triangles of matrices. One thread an
// element of the result in row-major order; triangles have strides on both sides.
#include "loop.cuh"

extern "C" __global__ void arange(const __grid_constant__ k_make p) {
  k_wait();
  int item = k_item(p.dtype);
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    if (p.integer)
      k_store((char *)p.out + i * item, p.dtype, p.start + i * p.step);
    else
      k_store((char *)p.out + i * item, p.dtype, fma((double)i, p.by, p.from));
  }
}

// The second half counts back from the end, so the end is exact.
extern "C" __global__ void linspace(const __grid_constant__ k_make p) {
  k_wait();
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
  k_wait();
  int item = k_item(p.dtype);
  for (int64_t i = k_thread(); i < p.n; i += k_threads())
    k_store((char *)p.out + i * item, p.dtype, (int64_t)(i / p.columns == i % p.columns));
}

// I holds n: a 32-bit division takes a quarter of the time of a 64-bit one.
template <typename S, typename I>
static __device__ __forceinline__ void triangle_by(const k_make &p) {
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    I rest = (I)i;
    int64_t to = 0, from = 0, beyond = 0;
    for (int d = 0; d < p.ndim; d++) {  // the innermost first: columns, then rows
      I next = rest / (I)p.sizes[d];
      int64_t at = (int64_t)(rest - next * (I)p.sizes[d]);
      rest = next;
      to += at * p.to_strides[d], from += at * p.from_strides[d];
      beyond += d == 0 ? at : d == 1 ? -at : 0;
    }
    bool keep = p.lower ? beyond <= p.diagonal : beyond >= p.diagonal;
    S zero = S();
    ((S *)p.out)[to] = keep ? ((const S *)p.in)[from] : zero;
  }
}
template <typename S>
static __device__ __forceinline__ void triangle_body(const k_make &p) {
  p.n >> 32 ? triangle_by<S, uint64_t>(p) : triangle_by<S, uint32_t>(p);
}
K_KERNEL(triangle, 1, uint8_t, k_make)
K_KERNEL(triangle, 2, int16_t, k_make)
K_KERNEL(triangle, 4, int32_t, k_make)
K_KERNEL(triangle, 8, int64_t, k_make)
K_KERNEL(triangle, 16, int4, k_make)
