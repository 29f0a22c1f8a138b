// SPDX-License-Identifier: Apache-2.0
// Rows that lie in one piece, each multiplied with the same vector: a layer of one sample. Every
// element is read once, so memory is the bound: a warp reads a row in vectors of 16 bytes, several
// of which are on their way at a time.
#include "cuda/dots_params.h"
#include "math.cuh"

enum { AHEAD = 4 };

template <typename S>
static __device__ __forceinline__ void dots_body(const k_dots &p) {
  typedef typename k_type<S>::number C;
  enum { N = 16 / sizeof(S), PASS = 32 * N * AHEAD };
  int64_t batch = blockIdx.x / p.blocks;
  int64_t row = blockIdx.x % p.blocks * K_DOTS_ROWS + threadIdx.x / 32;
  int lane = threadIdx.x % 32;
  if (row >= p.rows) return;
  const S *from = (const S *)p.matrix.at + batch * p.matrix.batch + row * p.matrix.step;
  const S *with = (const S *)p.vector.at + batch * p.vector.batch;
  C sums[AHEAD] = {};
  for (int64_t begin = lane * N; begin < p.n; begin += PASS) {
    k_loaded<S, N> x[AHEAD], y[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      int64_t i = begin + a * 32 * N;
      if (i >= p.n) continue;
      x[a] = *(const k_loaded<S, N> *)(from + i);
      y[a] = *(const k_loaded<S, N> *)(with + i);
    }
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      if (begin + a * 32 * N >= p.n) continue;
#pragma unroll
      for (int k = 0; k < N; k++) sums[a] += k_get(x[a][k]) * k_get(y[a][k]);
    }
  }
  C sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int step = 16; step > 0; step /= 2) sum += k_across(sum, step, 32);
  if (lane) return;
  sum *= (C)p.alpha;
  if (p.beta != 0)
    sum += (C)p.beta * k_get(((const S *)p.added.at)[batch * p.added.batch + row * p.added.step]);
  k_put((S *)p.out.at + batch * p.out.batch + row * p.out.step, sum);
}
K_FLOATS(dots, k_dots)
