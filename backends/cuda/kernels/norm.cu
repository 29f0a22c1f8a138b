// SPDX-License-Identifier: Apache-2.0
// Layer and batch normalisation. Means and their like are of the compute type (float for the half
// formats); weights and biases have the input's type.
//
// Layers: `lanes` threads have a row of `size`; the sums over rows for weight and bias are made in
// `chunks` of rows, and the chunks joined in order. Batches: a block has a channel of
// outer x size x inner.
#include "math.cuh"

static __device__ __forceinline__ double square(double x) { return x * x; }

// ---- layers. Out: y, mean, rstd; in: x, weight, bias.
template <typename S>
static __device__ __forceinline__ void layer_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *w = (const S *)p.in[1], *bias = (const S *)p.in[2];
  int64_t each = blockDim.x / p.lanes;
  int lane = threadIdx.x % p.lanes;
  for (int64_t b = blockIdx.x * each; b < p.outer; b += gridDim.x * each) {
    int64_t row = b + threadIdx.x / p.lanes, n = row < p.outer ? p.size : 0;
    const S *x = (const S *)p.in[0] + (n ? row * p.size : 0);
    S *y = (S *)p.out[0] + (n ? row * p.size : 0);
    C sum = 0, squares = 0;
    for (int64_t i = lane; i < n; i += p.lanes) sum += k_get(x[i]);
    C mean = k_join(sum, p.lanes, k_add()) / (C)p.size;
    for (int64_t i = lane; i < n; i += p.lanes) {
      C d = k_get(x[i]) - mean;
      squares += d * d;
    }
    double variance = (double)k_join(squares, p.lanes, k_add()) / (double)p.size;
    C rstd = (C)(1 / sqrt(variance + p.eps));
    if (lane == 0 && n) ((C *)p.out[1])[row] = mean, ((C *)p.out[2])[row] = rstd;
    for (int64_t i = lane; i < n; i += p.lanes)
      k_put(&y[i], (k_get(x[i]) - mean) * rstd * (w ? k_get(w[i]) : (C)1) +
                       (bias ? k_get(bias[i]) : (C)0));
  }
}
K_FLOATS(layer, k_rows)

// Out: gradient of x; in: gradient, x, weight, mean, rstd.
template <typename S>
static __device__ __forceinline__ void layer_backward_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *w = (const S *)p.in[2];
  int64_t each = blockDim.x / p.lanes;
  int lane = threadIdx.x % p.lanes;
  for (int64_t b = blockIdx.x * each; b < p.outer; b += gridDim.x * each) {
    int64_t row = b + threadIdx.x / p.lanes, n = row < p.outer ? p.size : 0;
    int64_t at = n ? row * p.size : 0;
    const S *g = (const S *)p.in[0] + at, *x = (const S *)p.in[1] + at;
    S *to = (S *)p.out[0] + at;
    C mean = ((const C *)p.in[3])[n ? row : 0], rstd = ((const C *)p.in[4])[n ? row : 0];
    C s1 = 0, s2 = 0;
    for (int64_t i = lane; i < n; i += p.lanes) {
      C gw = k_get(g[i]) * (w ? k_get(w[i]) : (C)1);
      s1 += gw, s2 += gw * (k_get(x[i]) - mean) * rstd;
    }
    C m1 = k_join(s1, p.lanes, k_add()) / (C)p.size;
    C m2 = k_join(s2, p.lanes, k_add()) / (C)p.size;
    for (int64_t i = lane; i < n; i += p.lanes) {
      C h = (k_get(x[i]) - mean) * rstd;
      k_put(&to[i], rstd * (k_get(g[i]) * (w ? k_get(w[i]) : (C)1) - m1 - h * m2));
    }
  }
}
K_FLOATS(layer_backward, k_rows)

// Sums over a chunk of rows. A block: 32 columns, 8 threads each. Out: [3] chunks x 2 x size of C.
template <typename S>
static __device__ __forceinline__ void layer_partial_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  __shared__ C room[2][8][33];
  int x = threadIdx.x & 31, y = threadIdx.x >> 5;
  int64_t pieces = (p.size + 31) / 32, chunk = blockIdx.x / pieces;
  int64_t column = blockIdx.x % pieces * 32 + x;
  int64_t first = p.outer * chunk / p.chunks, last = p.outer * (chunk + 1) / p.chunks;
  C dw = 0, db = 0;
  for (int64_t row = first + y; column < p.size && row < last; row += 8) {
    C g = k_get(((const S *)p.in[0])[row * p.size + column]);
    C h = k_get(((const S *)p.in[1])[row * p.size + column]) - ((const C *)p.in[3])[row];
    dw += g * h * ((const C *)p.in[4])[row], db += g;
  }
  room[0][y][x] = dw, room[1][y][x] = db;
  __syncthreads();
  if (y || column >= p.size) return;
  for (int k = 1; k < 8; k++) dw += room[0][k][x], db += room[1][k][x];
  ((C *)p.out[3])[chunk * 2 * p.size + column] = dw;
  ((C *)p.out[3])[(chunk * 2 + 1) * p.size + column] = db;
}
K_FLOATS(layer_partial, k_rows)

// Out: [1] of the weight, [2] of the bias; [3] the chunks' sums.
template <typename S>
static __device__ __forceinline__ void layer_sums_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const C *from = (const C *)p.out[3];
  for (int64_t j = k_thread(); j < p.size; j += k_threads()) {
    C dw = 0, db = 0;
    for (int64_t c = 0; c < p.chunks; c++)
      dw += from[c * 2 * p.size + j], db += from[(c * 2 + 1) * p.size + j];
    if (p.out[1]) k_put((S *)p.out[1] + j, dw);
    if (p.out[2]) k_put((S *)p.out[2] + j, db);
  }
}
K_FLOATS(layer_sums, k_rows)

// ---- batches. Element e of a channel: outer e / inner, inner e % inner.

static __device__ __forceinline__ int64_t channel_at(const k_rows &p, int64_t c, int64_t e) {
  return p.inner == 1 ? e * p.size + c : (e / p.inner * p.size + c) * p.inner + e % p.inner;
}

// Out: y, mean, invstd, variance; in: x, weight, bias, running mean, running variance (of C).
template <typename S>
static __device__ __forceinline__ void batch_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *x = (const S *)p.in[0], *w = (const S *)p.in[1], *b = (const S *)p.in[2];
  int64_t n = p.outer * p.inner;
  for (int64_t c = blockIdx.x; c < p.size; c += gridDim.x) {
    C mean, invstd;
    if (p.training) {
      double sum = 0, squares = 0;
      for (int64_t e = threadIdx.x; e < n; e += blockDim.x) sum += k_get(x[channel_at(p, c, e)]);
      mean = (C)(k_join(sum, blockDim.x, k_add()) / (double)n);
      for (int64_t e = threadIdx.x; e < n; e += blockDim.x)
        squares += square((double)k_get(x[channel_at(p, c, e)]) - mean);
      double variance = k_join(squares, blockDim.x, k_add()) / (double)n;
      invstd = (C)(1 / sqrt(variance + p.eps));
      if (threadIdx.x == 0) {
        ((C *)p.out[1])[c] = mean, ((C *)p.out[2])[c] = invstd;
        ((C *)p.out[3])[c] = (C)(variance * (double)n / (double)(n - 1));
      }
    } else {
      mean = ((const C *)p.in[3])[c];
      invstd = (C)(1 / sqrt((double)((const C *)p.in[4])[c] + p.eps));
    }
    C scale = invstd * (w ? k_get(w[c]) : (C)1), shift = (b ? k_get(b[c]) : (C)0) - mean * scale;
    for (int64_t e = threadIdx.x; e < n; e += blockDim.x) {
      int64_t at = channel_at(p, c, e);
      k_put((S *)p.out[0] + at, k_get(x[at]) * scale + shift);
    }
  }
}
K_FLOATS(batch, k_rows)

// Out: gradients of x, weight, bias; in: gradient, x, weight, running mean and variance, saved mean
// and invstd (of C).
template <typename S>
static __device__ __forceinline__ void batch_backward_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *g = (const S *)p.in[0], *x = (const S *)p.in[1], *w = (const S *)p.in[2];
  int64_t n = p.outer * p.inner;
  for (int64_t c = blockIdx.x; c < p.size; c += gridDim.x) {
    C mean = ((const C *)(p.training ? p.in[5] : p.in[3]))[c];
    C invstd = p.training ? ((const C *)p.in[6])[c]
                          : (C)(1 / sqrt((double)((const C *)p.in[4])[c] + p.eps));
    double s = 0, sx = 0;
    for (int64_t e = threadIdx.x; e < n; e += blockDim.x) {
      int64_t at = channel_at(p, c, e);
      double gi = k_get(g[at]);
      s += gi, sx += gi * ((double)k_get(x[at]) - mean);
    }
    s = k_join(s, blockDim.x, k_add()), sx = k_join(sx, blockDim.x, k_add());
    if (threadIdx.x == 0) {
      if (p.out[1]) k_put((S *)p.out[1] + c, sx * invstd);
      if (p.out[2]) k_put((S *)p.out[2] + c, s);
    }
    C scale = invstd * (w ? k_get(w[c]) : (C)1), m = (C)(s / (double)n);
    C k = (C)(sx * invstd * invstd / (double)n);
    for (int64_t e = threadIdx.x; e < n; e += blockDim.x) {
      int64_t at = channel_at(p, c, e);
      C gi = k_get(g[at]);
      k_put((S *)p.out[0] + at, (p.training ? gi - m - (k_get(x[at]) - mean) * k : gi) * scale);
    }
  }
}
K_FLOATS(batch_backward, k_rows)

// out[0] = (1 - number) * out[0] + number * in[0], of double.
extern "C" __global__ void running_average(const __grid_constant__ k_rows p) {
  double *to = (double *)p.out[0];
  for (int64_t i = k_thread(); i < p.size; i += k_threads())
    to[i] = (1 - p.number) * to[i] + p.number * ((const double *)p.in[0])[i];
}
