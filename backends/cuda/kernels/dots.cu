// SPDX-License-Identifier: Apache-2.0
// Matrix-vector products with contiguous rows, such as a linear layer on one sample. Each
// element is read once, so the kernel is memory-bound: a warp reads a row, or its share of one,
// in 16-byte vectors with several in flight. Blocks have K_DOTS_BLOCK threads.
#include "cuda/dots_params.h"
#include "math.cuh"

// Vectors in flight. More, or staging in shared memory, was slower on an H200.
enum { AHEAD = 3 };

// Loads 16 bytes of a matrix row, used once and not kept in L1; L1 is for the vector.
template <typename S, int N>
static __device__ __forceinline__ k_loaded<S, N> load_once(const S *at) {
  uint4 x;
  k_loaded<S, N> out;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(at));
  memcpy(&out, &x, sizeof out);
  return out;
}
// A lane's share of the sum: vectors of N at stride `stride`. Past the row's end, its first
// vectors are loaded again and not added, because the compiler does not load ahead of
// conditions.
template <typename S, int N, typename C>
static __device__ __forceinline__ C dot(const S *row, const S *with, int first, int n, int stride) {
  C sum = 0;
  for (int begin = first; begin < n; begin += AHEAD * stride) {
    k_loaded<S, N> x[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      int i = begin + a * stride;
      x[a] = load_once<S, N>(row + (i < n ? i : begin));
    }
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      int i = begin + a * stride;
      k_loaded<S, N> y = *(const k_loaded<S, N> *)(with + (i < n ? i : begin));
      C more = 0;
#pragma unroll
      for (int k = 0; k < N; k++) more += k_get(x[a][k]) * k_get(y[k]);
      sum += i < n ? more : 0;
    }
  }
  return sum;
}

// A lane's position: batch index, row, part of the row, and first element.
typedef struct lane_range {
  int64_t batch, row;
  int part, first, stride;
} lane_range;
template <int N>
static __device__ __forceinline__ lane_range lane_range_of(const k_dots &p) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = warp % p.split;
  int64_t row = blockIdx.x % p.blocks * (K_DOTS_WARPS / p.split) + warp / p.split;
  return {blockIdx.x / p.blocks, row, part, (part * 32 + lane) * N, p.split * 32 * N};
}
template <typename S>
static __device__ __forceinline__ const S *row_of(const k_dots &p, const lane_range &at) {
  return (const S *)p.matrix.at + at.batch * p.matrix.batch + at.row * p.matrix.step;
}
// Prefetches the first vectors while the previous launch still runs. Only L2 is filled, so
// writes of that launch are still seen.
template <typename S>
static __device__ __forceinline__ void prefetch(const k_dots &p) {
  lane_range at = lane_range_of<16 / sizeof(S)>(p);
  const S *row = row_of<S>(p, at);
  for (int a = 0; a < AHEAD && at.row < p.rows; a++) {
    int i = at.first + a * at.stride;
    if (i < p.n) k_prefetch(row + i);
  }
}

template <typename S>
static __device__ __forceinline__ void dots_body(const k_dots &p) {
  typedef typename k_type<S>::number C;
  enum { N = 16 / sizeof(S) };
  __shared__ C parts[K_DOTS_WARPS];
  lane_range at = lane_range_of<N>(p);
  bool real = at.row < p.rows;
  const S *with = (const S *)p.vector.at + at.batch * p.vector.batch;
  C sum = 0;
  if (real) sum = dot<S, N, C>(row_of<S>(p, at), with, at.first, (int)p.n, at.stride);
  for (int step = 16; step > 0; step /= 2) sum += k_shuffle(sum, step, 32);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (p.split > 1) {
    if (lane == 0) parts[warp] = sum;
    __syncthreads();
    for (int other = 1; at.part == 0 && other < p.split; other++) sum += parts[warp + other];
  }
  if (lane || at.part || !real) return;
  sum *= (C)p.alpha;
  const S *added = (const S *)p.added.at + at.batch * p.added.batch + at.row * p.added.step;
  if (p.beta != 0) sum += (C)p.beta * k_get(*added);
  k_put((S *)p.out.at + at.batch * p.out.batch + at.row * p.out.step, sum);
}
#define DOTS(suffix, S) \
  extern "C" __global__ void __launch_bounds__(K_DOTS_BLOCK) \
      dots_##suffix(const __grid_constant__ k_dots p) { \
    prefetch<S>(p), k_wait(); \
    dots_body<S>(p); \
  }
DOTS(f16, __half)
DOTS(bf16, __nv_bfloat16)
DOTS(f32, float)
DOTS(f64, double)
