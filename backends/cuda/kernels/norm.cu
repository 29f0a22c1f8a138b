// SPDX-License-Identifier: Apache-2.0
// Layer and batch normalisation. Means and their like are of the compute type (float for the half
// formats); weights and biases have the input's type.
//
// Layers: rows of `size` stay in registers, or, if they are too long, a block reads them again; the
// sums over rows for weight and bias are made in `chunks` of rows, and the chunks joined in order.
#include "rows.cuh"

// ---- layers. Out: y, mean, rstd; in: x, weight, bias.

template <typename S, int BYTES>
static __device__ __forceinline__ void layer_body(const k_rows &p) {
  typedef k_row<S, BYTES> R;
  typedef typename R::C C;
  R r(p);
  C x[R::E], sum = 0, squares = 0;
  r.load(x, (const S *)p.in[0] + r.begin(p), 0);
#pragma unroll
  for (int k = 0; k < R::E; k++) sum += x[k];
  C mean = k_join(sum, p.lanes, k_add()) / (C)p.size;
  r.each([&](int k, int) {
    x[k] -= mean;
    squares += x[k] * x[k];
  });
  double variance = (double)k_join(squares, p.lanes, k_add()) / (double)p.size;
  C rstd = (C)(1 / sqrt(variance + p.eps));
  if (r.lane == 0 && r.n) ((C *)p.out[1])[r.row] = mean, ((C *)p.out[2])[r.row] = rstd;
#pragma unroll
  for (int k = 0; k < R::E; k++) x[k] *= rstd;
  if (p.in[1]) r.combine(x, (const S *)p.in[1], [](C a, C w) { return a * w; });
  if (p.in[2]) r.combine(x, (const S *)p.in[2], [](C a, C b) { return a + b; });
  r.store((S *)p.out[0] + r.begin(p), x);
}
K_ROW_FLOATS(layer, K_LONG, 1024)

template <typename S>
static __device__ __forceinline__ void layer_rows_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *w = (const S *)p.in[1], *bias = (const S *)p.in[2];
  for (int64_t row = blockIdx.x; row < p.outer; row += gridDim.x) {
    const S *x = (const S *)p.in[0] + row * p.size;
    S *y = (S *)p.out[0] + row * p.size;
    C sum = 0, squares = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x) sum += k_get(x[i]);
    C mean = k_join(sum, blockDim.x, k_add()) / (C)p.size;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x) {
      C d = k_get(x[i]) - mean;
      squares += d * d;
    }
    double variance = (double)k_join(squares, blockDim.x, k_add()) / (double)p.size;
    C rstd = (C)(1 / sqrt(variance + p.eps));
    if (threadIdx.x == 0) ((C *)p.out[1])[row] = mean, ((C *)p.out[2])[row] = rstd;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x)
      k_put(&y[i], (k_get(x[i]) - mean) * rstd * (w ? k_get(w[i]) : (C)1) +
                       (bias ? k_get(bias[i]) : (C)0));
  }
}
K_FLOATS(layer_rows, k_rows)

// Out: gradient of x; in: gradient, x, weight, mean, rstd.
template <typename S, int BYTES>
static __device__ __forceinline__ void layer_backward_body(const k_rows &p) {
  typedef k_row<S, BYTES> R;
  typedef typename R::C C;
  R r(p);
  C mean = ((const C *)p.in[3])[r.n ? r.row : 0], rstd = ((const C *)p.in[4])[r.n ? r.row : 0];
  C g[R::E], h[R::E], s1 = 0, s2 = 0;
  r.load(g, (const S *)p.in[0] + r.begin(p), 0);
  r.load(h, (const S *)p.in[1] + r.begin(p), mean);
  if (p.in[2]) r.combine(g, (const S *)p.in[2], [](C a, C w) { return a * w; });
#pragma unroll
  for (int k = 0; k < R::E; k++) {
    h[k] = (h[k] - mean) * rstd;
    s1 += g[k], s2 += g[k] * h[k];
  }
  C m1 = k_join(s1, p.lanes, k_add()) / (C)p.size;
  C m2 = k_join(s2, p.lanes, k_add()) / (C)p.size;
#pragma unroll
  for (int k = 0; k < R::E; k++) g[k] = rstd * (g[k] - m1 - h[k] * m2);
  r.store((S *)p.out[0] + r.begin(p), g);
}
K_ROW_FLOATS(layer_backward, K_MIDDLE, 1024)

template <typename S>
static __device__ __forceinline__ void layer_backward_rows_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *w = (const S *)p.in[2];
  for (int64_t row = blockIdx.x; row < p.outer; row += gridDim.x) {
    const S *g = (const S *)p.in[0] + row * p.size, *x = (const S *)p.in[1] + row * p.size;
    S *to = (S *)p.out[0] + row * p.size;
    C mean = ((const C *)p.in[3])[row], rstd = ((const C *)p.in[4])[row], s1 = 0, s2 = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x) {
      C gw = k_get(g[i]) * (w ? k_get(w[i]) : (C)1);
      s1 += gw, s2 += gw * (k_get(x[i]) - mean) * rstd;
    }
    C m1 = k_join(s1, blockDim.x, k_add()) / (C)p.size;
    C m2 = k_join(s2, blockDim.x, k_add()) / (C)p.size;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x) {
      C h = (k_get(x[i]) - mean) * rstd;
      k_put(&to[i], rstd * (k_get(g[i]) * (w ? k_get(w[i]) : (C)1) - m1 - h * m2));
    }
  }
}
K_FLOATS(layer_backward_rows, k_rows)

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

// ---- batches: channels are the middle of outer x size x inner. A block makes two sums over a part
// of a channel, or, where channels are neighbours (inner = 1), of 32 of them; a thread a channel
// joins the parts, in order; then all elements are walked.

// f(place, of(channel)) for each element that a thread has of a part; warps take rows of `inner`,
// or rows of 32 channels. Returns the channel.
template <typename O, typename F>
static __device__ __forceinline__ int64_t batch_part(const k_rows &p, O of, F f) {
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  int64_t piece = blockIdx.x / p.chunks, part = blockIdx.x % p.chunks;
  int64_t first = p.outer * part / p.chunks, last = p.outer * (part + 1) / p.chunks;
  int64_t channel = p.inner == 1 ? piece * 32 + lane : piece;
  if (channel >= p.size) return channel;
  double about = of(channel);
#pragma unroll 1
  for (int64_t row = first + warp; row < last; row += K_BLOCK / 32) {
    int64_t at = (row * p.size + channel) * p.inner;
#pragma unroll 4
    for (int64_t i = p.inner == 1 ? 0 : lane; i < p.inner; i += 32) f(at + i, about);
  }
  return channel;
}
static __device__ __forceinline__ double *batch_room(const k_rows &p, int64_t channel) {
  return (double *)p.partial + channel * p.chunks * 2;
}
static __device__ __forceinline__ void batch_store(const k_rows &p, int64_t channel, double a,
                                                   double b) {
  __shared__ double room[2][K_BLOCK];
  double *to = batch_room(p, channel) + blockIdx.x % p.chunks * 2;
  if (p.inner > 1) {
    a = k_join(a, K_BLOCK, k_add()), b = k_join(b, K_BLOCK, k_add());
    if (threadIdx.x == 0) to[0] = a, to[1] = b;
    return;
  }
  room[0][threadIdx.x] = a, room[1][threadIdx.x] = b;
  __syncthreads();
  if (threadIdx.x >= 32 || channel >= p.size) return;
  for (int k = 32; k < K_BLOCK; k += 32)
    a += room[0][threadIdx.x + k], b += room[1][threadIdx.x + k];
  to[0] = a, to[1] = b;
}
static __device__ __forceinline__ void batch_join(const k_rows &p, int64_t channel, double *a,
                                                  double *b) {
  const double *from = batch_room(p, channel);
  *a = *b = 0;
#pragma unroll 1
  for (int64_t k = 0; k < p.chunks; k++) *a += from[2 * k], *b += from[2 * k + 1];
}
// f(place, of(channel)) for each element.
template <typename O, typename F>
static __device__ __forceinline__ void batch_each(const k_rows &p, O of, F f) {
  if (p.inner == 1) {
#pragma unroll 1
    for (int64_t i = k_thread(); i < p.outer * p.size; i += k_threads()) f(i, of(i % p.size));
    return;
  }
#pragma unroll 1
  for (int64_t row = k_thread() / 32; row < p.outer * p.size; row += k_threads() / 32) {
    auto coefficients = of(row % p.size);
#pragma unroll 4
    for (int64_t i = threadIdx.x & 31; i < p.inner; i += 32) f(row * p.inner + i, coefficients);
  }
}

// Out: y, mean, invstd, variance; in: x, weight, bias, running mean, running variance (of C). The
// sums are those of x less the channel's first element, and of its squares.
template <typename S>
static __device__ __forceinline__ void batch_sums_body(const k_rows &p) {
  const S *x = (const S *)p.in[0];
  double sum = 0, squares = 0;
  int64_t channel = batch_part(
      p, [&](int64_t c) { return (double)k_get(x[c * p.inner]); },
      [&](int64_t at, double first) {
        double d = (double)k_get(x[at]) - first;
        sum += d, squares += d * d;
      });
  batch_store(p, channel, sum, squares);
}
K_FLOATS(batch_sums, k_rows)

template <typename S>
static __device__ __forceinline__ void batch_join_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  double n = (double)p.outer * (double)p.inner;
#pragma unroll 1
  for (int64_t c = k_thread(); c < p.size; c += k_threads()) {
    double sum, squares;
    batch_join(p, c, &sum, &squares);
    double variance = (squares - sum * sum / n) / n;
    if (variance < 0) variance = 0;
    ((C *)p.out[1])[c] = (C)((double)k_get(((const S *)p.in[0])[c * p.inner]) + sum / n);
    ((C *)p.out[2])[c] = (C)(1 / sqrt(variance + p.eps));
    ((C *)p.out[3])[c] = (C)(variance * n / (n - 1));
  }
}
K_FLOATS(batch_join, k_rows)

template <typename C>
struct affine {
  C scale, shift;
};
template <typename S>
static __device__ __forceinline__ void batch_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *x = (const S *)p.in[0], *w = (const S *)p.in[1], *b = (const S *)p.in[2];
  batch_each(
      p,
      [&](int64_t c) {
        C mean = ((const C *)(p.training ? p.out[1] : p.in[3]))[c];
        C invstd = p.training ? ((const C *)p.out[2])[c]
                              : (C)(1 / sqrt((double)((const C *)p.in[4])[c] + p.eps));
        C scale = invstd * (w ? k_get(w[c]) : (C)1);
        return affine<C>{scale, (b ? k_get(b[c]) : (C)0) - mean * scale};
      },
      [&](int64_t at, affine<C> a) {
        k_put((S *)p.out[0] + at, k_get(x[at]) * a.scale + a.shift);
      });
}
K_FLOATS(batch, k_rows)

// Out: gradients of x, weight, bias; in: gradient, x, weight, running mean and variance, saved mean
// and invstd (of C). The sums are those of the gradient, and of it times x less the mean.
template <typename S>
static __device__ __forceinline__ auto batch_mean(const k_rows &p, int64_t c) {
  typedef typename k_type<S>::number C;
  return ((const C *)(p.training ? p.in[5] : p.in[3]))[c];
}
template <typename S>
static __device__ __forceinline__ auto batch_invstd(const k_rows &p, int64_t c) {
  typedef typename k_type<S>::number C;
  return p.training ? ((const C *)p.in[6])[c]
                    : (C)(1 / sqrt((double)((const C *)p.in[4])[c] + p.eps));
}
template <typename S>
static __device__ __forceinline__ void batch_backward_sums_body(const k_rows &p) {
  const S *g = (const S *)p.in[0], *x = (const S *)p.in[1];
  double s = 0, sx = 0;
  int64_t channel = batch_part(
      p, [&](int64_t c) { return batch_mean<S>(p, c); },
      [&](int64_t at, double mean) {
        double gi = k_get(g[at]);
        s += gi, sx += gi * ((double)k_get(x[at]) - mean);
      });
  batch_store(p, channel, s, sx);
}
K_FLOATS(batch_backward_sums, k_rows)

// The sums become the mean of the gradient, and what x takes from it.
template <typename S>
static __device__ __forceinline__ void batch_backward_join_body(const k_rows &p) {
  double n = (double)p.outer * (double)p.inner;
#pragma unroll 1
  for (int64_t c = k_thread(); c < p.size; c += k_threads()) {
    double s, sx, invstd = batch_invstd<S>(p, c), *to = batch_room(p, c);
    batch_join(p, c, &s, &sx);
    if (p.out[1]) k_put((S *)p.out[1] + c, sx * invstd);
    if (p.out[2]) k_put((S *)p.out[2] + c, s);
    to[0] = s / n, to[1] = sx * invstd * invstd / n;
  }
}
K_FLOATS(batch_backward_join, k_rows)

template <typename C>
struct slope {
  C mean, scale, m, k;
};
template <typename S>
static __device__ __forceinline__ void batch_backward_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *g = (const S *)p.in[0], *x = (const S *)p.in[1], *w = (const S *)p.in[2];
  batch_each(
      p,
      [&](int64_t c) {
        const double *sums = batch_room(p, c);
        C scale = batch_invstd<S>(p, c) * (w ? k_get(w[c]) : (C)1);
        return slope<C>{batch_mean<S>(p, c), scale, (C)sums[0], (C)sums[1]};
      },
      [&](int64_t at, slope<C> s) {
        C gi = k_get(g[at]);
        if (p.training) gi -= s.m + (k_get(x[at]) - s.mean) * s.k;
        k_put((S *)p.out[0] + at, gi * s.scale);
      });
}
K_FLOATS(batch_backward, k_rows)

// out[0] = (1 - number) * out[0] + number * in[0], of double.
extern "C" __global__ void running_average(const __grid_constant__ k_rows p) {
  double *to = (double *)p.out[0];
  for (int64_t i = k_thread(); i < p.size; i += k_threads())
    to[i] = (1 - p.number) * to[i] + p.number * ((const double *)p.in[0])[i];
}
