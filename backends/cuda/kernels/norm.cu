// SPDX-License-Identifier: Apache-2.0
// Layer and batch normalisation. Statistics have the compute type (float for fp16 and bf16);
// weights and biases have the input's type.
//
// Layer norm: rows of `size` stay in registers, read by `lanes` threads in 16-byte vectors,
// several rows in a small block. Rows that are too long or unaligned are walked by blocks of
// 1024 threads by elements and read again. Gradients of weight and bias are summed over `chunks`
// of rows, and the chunks are joined in order.
#include "rows.cuh"

// ---- layers

template <typename S, int BYTES>
static __device__ __forceinline__ void layer_body(const k_rows &p) {
  typedef k_row<S, BYTES> R;
  typedef typename R::C C;
  R r(p);
  C x[R::E], sum = 0, squares = 0;
  r.load(x, (const S *)p.input + r.begin(p), 0);
#pragma unroll
  for (int k = 0; k < R::E; k++) sum += x[k];
  C mean = k_join(sum, p.lanes, k_add()) / (C)p.size;
  r.each([&](int k, int) {
    x[k] -= mean;
    squares += x[k] * x[k];
  });
  double variance = (double)k_join(squares, p.lanes, k_add()) / (double)p.size;
  C rstd = (C)(1 / sqrt(variance + p.eps));
  if (r.lane == 0 && r.n) ((C *)p.mean)[r.row] = mean, ((C *)p.rstd)[r.row] = rstd;
#pragma unroll
  for (int k = 0; k < R::E; k++) x[k] *= rstd;
  if (p.weight) r.combine(x, (const S *)p.weight, [](C a, C w) { return a * w; });
  if (p.bias) r.combine(x, (const S *)p.bias, [](C a, C b) { return a + b; });
  r.store((S *)p.result + r.begin(p), x);
}
K_ROW_FLOATS(layer, K_LONG, 1024)

template <typename S>
static __device__ __forceinline__ void layer_rows_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *w = (const S *)p.weight, *bias = (const S *)p.bias;
  for (int64_t row = blockIdx.x; row < p.outer; row += gridDim.x) {
    const S *x = (const S *)p.input + row * p.size;
    S *y = (S *)p.result + row * p.size;
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
    if (threadIdx.x == 0) ((C *)p.mean)[row] = mean, ((C *)p.rstd)[row] = rstd;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x)
      k_put(&y[i], (k_get(x[i]) - mean) * rstd * (w ? k_get(w[i]) : (C)1) +
                       (bias ? k_get(bias[i]) : (C)0));
  }
}
K_FLOATS(layer_rows, k_rows)

// Gradient of x, and partial sums. The grid loops over the rows. A warp, or the warps sharing a
// row, accumulates its rows' gradients of weight and bias, so memory is read once.
template <typename S, int BYTES>
static __device__ __forceinline__ void layer_backward_body(const k_rows &p) {
  typedef k_row<S, BYTES> R;
  typedef typename R::C C;
  const S *g_at = (const S *)p.grad, *x_at = (const S *)p.input;
  R r(p);
  int rows = blockDim.x / p.lanes, warps = p.lanes < 32 ? 32 : p.lanes;  // threads sharing a sum
  int64_t block = (int64_t)blockIdx.x * rows, own = r.row, step = (int64_t)gridDim.x * rows;
  C dw[R::E], db[R::E], part = 1 / (C)p.size;
  k_loaded<S, R::N> gs[R::G], xs[R::G];
#pragma unroll
  for (int k = 0; k < R::E; k++) dw[k] = db[k] = 0;
  r.fetch(gs, g_at + r.begin(p)), r.fetch(xs, x_at + r.begin(p));
#pragma unroll 1
  for (int64_t past = 0; block + past < p.outer; past += step) {
    r.go(p, own + past);
    C mean = r.n ? ((const C *)p.mean)[r.row] : (C)0;
    C rstd = r.n ? ((const C *)p.rstd)[r.row] : (C)0;
    C g[R::E], h[R::E];
    k_pair<C> sums = {0, 0};
    r.read(g, gs, 0), r.read(h, xs, mean);
    R next = r;
    next.go(p, own + past + step);
    next.fetch(gs, g_at + next.begin(p)), next.fetch(xs, x_at + next.begin(p));
#pragma unroll
    for (int k = 0; k < R::E; k++) {
      h[k] = (h[k] - mean) * rstd;
      dw[k] += g[k] * h[k], db[k] += g[k];
    }
    if (!p.result) continue;
    if (p.weight) r.combine(g, (const S *)p.weight, [](C a, C w) { return a * w; });
#pragma unroll
    for (int k = 0; k < R::E; k++) sums.a += g[k], sums.b += g[k] * h[k];
    sums = k_join(sums, p.lanes, k_add());
    C m1 = sums.a * part, m2 = sums.b * part;
#pragma unroll
    for (int k = 0; k < R::E; k++) g[k] = rstd * (g[k] - m1 - h[k] * m2);
    r.store((S *)p.result + r.begin(p), g);
  }
  if (!p.partial) return;
#pragma unroll 1
  for (int apart = p.lanes; apart < 32; apart *= 2)
#pragma unroll
    for (int k = 0; k < R::E; k++)
      dw[k] += k_shuffle(dw[k], apart, 32), db[k] += k_shuffle(db[k], apart, 32);
  r.n = threadIdx.x % warps < p.lanes ? (int)p.size : 0;
  C *to = (C *)p.partial + k_thread() / warps * 2 * p.size;
  r.each([&](int k, int i) { to[i] = dw[k], to[p.size + i] = db[k]; });
}
K_ROW_FLOATS(layer_backward, K_TWO, 512)

template <typename S>
static __device__ __forceinline__ void layer_backward_rows_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *w = (const S *)p.weight;
  for (int64_t row = blockIdx.x; row < p.outer; row += gridDim.x) {
    const S *g = (const S *)p.grad + row * p.size, *x = (const S *)p.input + row * p.size;
    S *to = (S *)p.result + row * p.size;
    C mean = ((const C *)p.mean)[row], rstd = ((const C *)p.rstd)[row], s1 = 0, s2 = 0;
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

// Sums over a chunk of rows. A block covers 32 columns with 8 threads each. Partial: chunks x 2
// x size of C.
template <typename S>
static __device__ __forceinline__ void layer_partial_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  __shared__ C partials[2][8][33];
  int x = threadIdx.x & 31, y = threadIdx.x >> 5;
  int64_t pieces = (p.size + 31) / 32, chunk = blockIdx.x / pieces;
  int64_t column = blockIdx.x % pieces * 32 + x;
  int64_t first = p.outer * chunk / p.chunks, last = p.outer * (chunk + 1) / p.chunks;
  C dw = 0, db = 0;
  for (int64_t row = first + y; column < p.size && row < last; row += 8) {
    C g = k_get(((const S *)p.grad)[row * p.size + column]);
    C h = k_get(((const S *)p.input)[row * p.size + column]) - ((const C *)p.mean)[row];
    dw += g * h * ((const C *)p.rstd)[row], db += g;
  }
  partials[0][y][x] = dw, partials[1][y][x] = db;
  __syncthreads();
  if (y || column >= p.size) return;
  for (int k = 1; k < 8; k++) dw += partials[0][k][x], db += partials[1][k][x];
  ((C *)p.partial)[chunk * 2 * p.size + column] = dw;
  ((C *)p.partial)[(chunk * 2 + 1) * p.size + column] = db;
}
K_FLOATS(layer_partial, k_rows)

// Gradients of weight and bias from the chunks' sums. A block of 1024 threads covers only
// K_SUM_COLUMNS columns, so that short rows still give enough blocks.
template <typename S>
static __device__ __forceinline__ void layer_sums_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  __shared__ k_pair<C> partials[32][K_SUM_COLUMNS];
  int x = threadIdx.x % K_SUM_COLUMNS, y = threadIdx.x / K_SUM_COLUMNS;
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  int64_t column = (int64_t)blockIdx.x * K_SUM_COLUMNS;
  k_pair<C> sums = {0, 0};
#pragma unroll 4
  for (int64_t c = y; column + x < p.size && c < p.chunks; c += 1024 / K_SUM_COLUMNS) {
    const C *from = (const C *)p.partial + c * 2 * p.size + column + x;
    sums = sums + k_pair<C>{from[0], from[p.size]};
  }
#pragma unroll
  for (int apart = K_SUM_COLUMNS; apart < 32; apart *= 2) sums = sums + k_shuffle(sums, apart, 32);
  if (lane < K_SUM_COLUMNS) partials[warp][lane] = sums;
  __syncthreads();
  if (warp >= K_SUM_COLUMNS) return;
  column += warp;
  sums = k_join(partials[lane][warp], 32, k_add());
  if (lane || column >= p.size) return;
  if (p.grad_weight) k_put((S *)p.grad_weight + column, sums.a);
  if (p.grad_bias) k_put((S *)p.grad_bias + column, sums.b);
}
K_FLOATS(layer_sums, k_rows)

// ---- batch norm: channels are the middle dimension of outer x size x inner. A block computes
// two sums over a part of a channel or, for adjacent channels (inner = 1), of 32 channels. One
// thread per channel joins the parts in order. An element-wise pass follows. Blocks have
// K_BLOCK threads. Warps read along `inner`, in 16-byte vectors if `vector`, or along 32
// adjacent channels. In the element-wise pass, warps take rows of `inner`, or threads take
// elements. Few long rows are split into `how` pieces.

// Calls f(vectors of each tensor, element index) for a piece of the row at offset `at`.
template <typename S, int N, int TENSORS, typename F>
static __device__ __forceinline__ void batch_piece(const k_rows &p,
                                                   const void *const (&tensors)[TENSORS],
                                                   int64_t at, int piece, F f) {
  int64_t units = p.inner / N, lane = p.inner == 1 ? 0 : threadIdx.x & 31;
  k_walk<S, N>(tensors, at, units * piece / p.how + lane, units * (piece + 1) / p.how, 32, f);
}
// Calls f(vectors of each tensor, of(channel)) for the thread's share of a part; warps take
// pieces of rows of `inner`, or rows of 32 channels. Returns the channel.
template <typename S, int N, int TENSORS, typename O, typename F>
static __device__ __forceinline__ int64_t batch_part(const k_rows &p,
                                                     const void *const (&tensors)[TENSORS], O of,
                                                     F f) {
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  int64_t piece = blockIdx.x / p.chunks, part = blockIdx.x % p.chunks, rows = p.outer * p.how;
  int64_t first = rows * part / p.chunks, last = rows * (part + 1) / p.chunks;
  int64_t channel = p.inner == 1 ? piece * 32 + lane : piece;
  if (channel >= p.size) return channel;
  double about = of(channel);
#pragma unroll 1
  for (int64_t row = first + warp; row < last; row += K_BLOCK / 32)
    batch_piece<S, N>(p, tensors, (row / p.how * p.size + channel) * p.inner, row % p.how,
                      [&](const k_loaded<S, N> *v, int64_t) { f(v, about); });
  return channel;
}
static __device__ __forceinline__ double *batch_partials(const k_rows &p, int64_t channel) {
  return (double *)p.partial + channel * p.chunks * 2;
}
static __device__ __forceinline__ void batch_store(const k_rows &p, int64_t channel, double a,
                                                   double b) {
  __shared__ double partials[2][K_BLOCK];
  double *to = batch_partials(p, channel) + blockIdx.x % p.chunks * 2;
  if (p.inner > 1) {
    k_pair<double> sums = k_join(k_pair<double>{a, b}, K_BLOCK, k_add());
    if (threadIdx.x == 0) to[0] = sums.a, to[1] = sums.b;
    return;
  }
  partials[0][threadIdx.x] = a, partials[1][threadIdx.x] = b;
  __syncthreads();
  if (threadIdx.x >= 32 || channel >= p.size) return;
  for (int k = 32; k < K_BLOCK; k += 32)
    a += partials[0][threadIdx.x + k], b += partials[1][threadIdx.x + k];
  to[0] = a, to[1] = b;
}
static __device__ __forceinline__ void batch_join(const k_rows &p, int64_t channel, double *a,
                                                  double *b) {
  const double *from = batch_partials(p, channel);
  *a = *b = 0;
#pragma unroll 1
  for (int64_t k = 0; k < p.chunks; k++) *a += from[2 * k], *b += from[2 * k + 1];
}
// Stores f(vectors of each tensor, of(channel)) as the result, for all vectors.
template <typename S, int N, int TENSORS, typename O, typename F>
static __device__ __forceinline__ void batch_each(const k_rows &p,
                                                  const void *const (&tensors)[TENSORS], O of,
                                                  F f) {
  int64_t threads = p.inner == 1 ? 1 : 32, rows = p.outer * p.size * p.how;
#pragma unroll 1
  for (int64_t i = k_thread() / threads; i < rows; i += k_threads() / threads) {
    int64_t row = i / p.how;
    auto coefficients = of(row % p.size);
    batch_piece<S, N>(p, tensors, row * p.inner, i % p.how,
                      [&](const k_loaded<S, N> *v, int64_t at) {
                        *(k_vector<S, N> *)((S *)p.result + at) = f(v, coefficients);
                      });
  }
}

// Means, invstds and variances are of C. Sums of x minus the channel's first element, and of its
// squares.
template <typename S, int N>
static __device__ __forceinline__ void batch_sums(const k_rows &p) {
  double sum = 0, squares = 0;
  int64_t channel = batch_part<S, N>(
      p, {p.input}, [&](int64_t c) { return (double)k_get(((const S *)p.input)[c * p.inner]); },
      [&](const k_loaded<S, N> *v, double first) {
#pragma unroll
        for (int k = 0; k < N; k++) {
          double d = (double)k_get(v[0][k]) - first;
          sum += d, squares += d * d;
        }
      });
  batch_store(p, channel, sum, squares);
}
K_FLOATS_BY_VECTORS(batch_sums)

template <typename S, typename C>
static __device__ __forceinline__ void batch_statistics(const k_rows &p, int64_t c, C first,
                                                        double sum, double squares) {
  double n = (double)p.outer * (double)p.inner;
  double variance = (squares - sum * sum / n) / n;
  if (variance < 0) variance = 0;
  ((C *)p.mean)[c] = (C)((double)first + sum / n);
  ((C *)p.rstd)[c] = (C)(1 / sqrt(variance + p.eps));
  ((C *)p.variance)[c] = (C)(variance * n / (n - 1));
}
template <typename S>
static __device__ __forceinline__ void batch_join_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
#pragma unroll 1
  for (int64_t c = k_thread(); c < p.size; c += k_threads()) {
    double sum, squares;
    batch_join(p, c, &sum, &squares);
    batch_statistics<S, C>(p, c, k_get(((const S *)p.input)[c * p.inner]), sum, squares);
  }
}
K_FLOATS(batch_join, k_rows)

template <typename C>
struct affine {
  C scale, shift;
};
template <typename S>
static __device__ __forceinline__ auto batch_affine(const k_rows &p, int64_t c) {
  typedef typename k_type<S>::number C;
  const S *w = (const S *)p.weight, *b = (const S *)p.bias;
  C mean = ((const C *)(p.training ? p.mean : p.running_mean))[c];
  C invstd = p.training ? ((const C *)p.rstd)[c]
                        : (C)(1 / sqrt((double)((const C *)p.running_var)[c] + p.eps));
  C scale = invstd * (w ? k_get(w[c]) : (C)1);
  return affine<C>{scale, (b ? k_get(b[c]) : (C)0) - mean * scale};
}
template <typename S, int N>
static __device__ __forceinline__ void batch(const k_rows &p) {
  typedef typename k_type<S>::number C;
  batch_each<S, N>(
      p, {p.input}, [&](int64_t c) { return batch_affine<S>(p, c); },
      [&](const k_loaded<S, N> *v, affine<C> a) {
        k_vector<S, N> y;
#pragma unroll
        for (int k = 0; k < N; k++) k_put(&y.v[k], k_get(v[0][k]) * a.scale + a.shift);
        return y;
      });
}
K_FLOATS_BY_VECTORS(batch)

template <typename S>
static __device__ __forceinline__ auto batch_mean(const k_rows &p, int64_t c) {
  typedef typename k_type<S>::number C;
  return ((const C *)(p.training ? p.mean : p.running_mean))[c];
}
template <typename S>
static __device__ __forceinline__ auto batch_invstd(const k_rows &p, int64_t c) {
  typedef typename k_type<S>::number C;
  return p.training ? ((const C *)p.rstd)[c]
                    : (C)(1 / sqrt((double)((const C *)p.running_var)[c] + p.eps));
}
// Sums of the gradient, and of the gradient times x minus the mean.
template <typename S, int N>
static __device__ __forceinline__ void batch_backward_sums(const k_rows &p) {
  double s = 0, sx = 0;
  int64_t channel = batch_part<S, N>(
      p, {p.grad, p.input}, [&](int64_t c) { return batch_mean<S>(p, c); },
      [&](const k_loaded<S, N> *v, double mean) {
#pragma unroll
        for (int k = 0; k < N; k++) {
          double gi = k_get(v[0][k]);
          s += gi, sx += gi * ((double)k_get(v[1][k]) - mean);
        }
      });
  batch_store(p, channel, s, sx);
}
K_FLOATS_BY_VECTORS(batch_backward_sums)

// Converts the sums to the mean gradient and the coefficient of x - mean.
template <typename S>
static __device__ __forceinline__ void batch_gradients(const k_rows &p, int64_t c, double s,
                                                       double sx, double *to) {
  double n = (double)p.outer * (double)p.inner, invstd = batch_invstd<S>(p, c);
  if (p.grad_weight) k_put((S *)p.grad_weight + c, sx * invstd);
  if (p.grad_bias) k_put((S *)p.grad_bias + c, s);
  to[0] = s / n, to[1] = sx * invstd * invstd / n;
}
template <typename S>
static __device__ __forceinline__ void batch_backward_join_body(const k_rows &p) {
#pragma unroll 1
  for (int64_t c = k_thread(); c < p.size; c += k_threads()) {
    double s, sx;
    batch_join(p, c, &s, &sx);
    batch_gradients<S>(p, c, s, sx, batch_partials(p, c));
  }
}
K_FLOATS(batch_backward_join, k_rows)

template <typename C>
struct slope {
  C mean, scale, m, k;
};
template <typename S>
static __device__ __forceinline__ auto batch_slope(const k_rows &p, int64_t c, double m, double k) {
  typedef typename k_type<S>::number C;
  const S *w = (const S *)p.weight;
  C scale = batch_invstd<S>(p, c) * (w ? k_get(w[c]) : (C)1);
  return slope<C>{batch_mean<S>(p, c), scale, (C)m, (C)k};
}
template <typename S, int N>
static __device__ __forceinline__ void batch_backward(const k_rows &p) {
  typedef typename k_type<S>::number C;
  batch_each<S, N>(
      p, {p.grad, p.input},
      [&](int64_t c) {
        const double *sums = batch_partials(p, c);
        return batch_slope<S>(p, c, sums[0], sums[1]);
      },
      [&](const k_loaded<S, N> *v, slope<C> s) {
        k_vector<S, N> y;
#pragma unroll
        for (int k = 0; k < N; k++) {
          C gi = k_get(v[0][k]);
          if (p.training) gi -= s.m + (k_get(v[1][k]) - s.mean) * s.k;
          k_put(&y.v[k], gi * s.scale);
        }
        return y;
      });
}
K_FLOATS_BY_VECTORS(batch_backward)

// ---- batch norm with channels_last: rows of adjacent channels, whole 16-byte vectors
//
// A block of K_BLOCK threads covers `lanes` vectors of channels, a power of two up to 32, and
// K_BLOCK / lanes rows at a time. Blocks of a part are adjacent, and parts stride over the rows.
// Per-channel coefficients are computed once. Threads accumulate sums in the compute type; they
// are joined in double by the kernels NAME_columns, 32 channels for each block of 1024 threads.
// The element-wise pass runs in reverse row order, since the last rows are still in the cache.

// Address of sum i of channel c in a part.
static __device__ __forceinline__ double *last_partials(const k_rows &p, int64_t part, int i,
                                                        int64_t c) {
  return (double *)p.partial + (part * 2 + i) * p.size + c;
}
template <typename S>
struct k_last {
  typedef typename k_type<S>::number C;
  enum { N = 16 / sizeof(S) };
  int64_t channel, part, row, step;  // first channel, first row, row stride of the thread
  bool here;                         // the thread has channels
  __device__ __forceinline__ k_last(const k_rows &p) {
    int lanes = p.lanes, per = K_BLOCK / lanes;
    int64_t groups = (p.size / N + lanes - 1) / lanes;
    part = blockIdx.x / groups;
    channel = (blockIdx.x % groups * lanes + threadIdx.x % lanes) * N;
    row = part * per + threadIdx.x / lanes, step = p.chunks * per;
    here = channel < p.size;
  }
  // Calls f(loaded vectors of the input, or of gradient and input; element index) for each
  // row. Four vectors are in flight.
  template <int TENSORS, typename F>
  __device__ __forceinline__ void each(const k_rows &p, bool backward, F f) const {
    const int AHEAD = 4 / TENSORS;
    const void *const from[] = {TENSORS == 2 ? p.grad : p.input, p.input};
    int64_t last = p.outer - 1;
    if (!here) return;
#pragma unroll 1
    for (int64_t r = row; r < p.outer; r += AHEAD * step) {
      k_loaded<S, N> v[AHEAD][TENSORS];
#pragma unroll
      for (int a = 0; a < AHEAD; a++) {
        int64_t at = r + a * step < p.outer ? r + a * step : r;
        at = (backward ? last - at : at) * p.size + channel;
#pragma unroll
        for (int i = 0; i < TENSORS; i++)
          v[a][i] = *(const k_loaded<S, N> *)((const S *)from[i] + at);
      }
#pragma unroll
      for (int a = 0; a < AHEAD; a++) {
        int64_t at = r + a * step;
        if (at < p.outer) f(v[a], (backward ? last - at : at) * p.size + channel);
      }
    }
  }
  // Joins the block's two sums for each channel and stores them as the part's.
  __device__ __forceinline__ void store(const k_rows &p, C *a, C *b) const {
    __shared__ C partials[2][K_BLOCK / 32][32 * N];
    int lanes = p.lanes, lane = threadIdx.x & 31, warp = threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < N; k++) {
      if (!here) a[k] = b[k] = 0;
      for (int s = lanes; s < 32; s *= 2)
        a[k] += k_shuffle(a[k], s, 32), b[k] += k_shuffle(b[k], s, 32);
      if (lane < lanes)
        partials[0][warp][lane * N + k] = a[k], partials[1][warp][lane * N + k] = b[k];
    }
    __syncthreads();
    int64_t first = channel - threadIdx.x % lanes * N;
    for (int i = threadIdx.x; i < 2 * lanes * N; i += K_BLOCK) {
      int which = i / (lanes * N), c = i % (lanes * N);
      double sum = 0;
      for (int w = 0; w < K_BLOCK / 32; w++) sum += partials[which][w][c];
      if (first + c < p.size) *last_partials(p, part, which, first + c) = sum;
    }
  }
};
// Calls f(channel, two sums) for each channel, on one thread.
template <typename F>
static __device__ __forceinline__ void last_columns(const k_rows &p, F f) {
  __shared__ k_pair<double> partials[32][33];
  int x = threadIdx.x & 31, y = threadIdx.x >> 5;
  int64_t column = (int64_t)blockIdx.x * 32;
  k_pair<double> sums = {0, 0};
#pragma unroll 4
  for (int64_t part = y; column + x < p.size && part < p.chunks; part += 32)
    sums = sums + k_pair<double>{*last_partials(p, part, 0, column + x),
                                 *last_partials(p, part, 1, column + x)};
  partials[y][x] = sums;
  __syncthreads();
  sums = k_join(partials[x][y], 32, k_add());
  if (x == 0 && column + y < p.size) f(column + y, sums.a, sums.b);
}

template <typename S>
static __device__ __forceinline__ void last_sums_body(const k_rows &p) {
  typedef typename k_last<S>::C C;
  enum { N = k_last<S>::N };
  k_last<S> t(p);
  C about[N], a[N], b[N];
#pragma unroll
  for (int k = 0; k < N; k++)
    about[k] = t.here ? (C)k_get(((const S *)p.input)[t.channel + k]) : (C)0, a[k] = b[k] = 0;
  t.template each<1>(p, false, [&](const k_loaded<S, N> *v, int64_t) {
#pragma unroll
    for (int k = 0; k < N; k++) {
      C d = k_get(v[0][k]) - about[k];
      a[k] += d, b[k] += d * d;
    }
  });
  t.store(p, a, b);
}
K_FLOATS(last_sums, k_rows)
template <typename S>
static __device__ __forceinline__ void last_columns_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  last_columns(p, [&](int64_t c, double sum, double squares) {
    batch_statistics<S, C>(p, c, k_get(((const S *)p.input)[c]), sum, squares);
  });
}
K_FLOATS(last_columns, k_rows)
template <typename S>
static __device__ __forceinline__ void last_body(const k_rows &p) {
  typedef typename k_last<S>::C C;
  enum { N = k_last<S>::N };
  k_last<S> t(p);
  affine<C> by[N];
#pragma unroll
  for (int k = 0; k < N; k++) by[k] = t.here ? batch_affine<S>(p, t.channel + k) : affine<C>{0, 0};
  t.template each<1>(p, true, [&](const k_loaded<S, N> *v, int64_t at) {
    k_vector<S, N> y;
#pragma unroll
    for (int k = 0; k < N; k++) k_put(&y.v[k], k_get(v[0][k]) * by[k].scale + by[k].shift);
    *(k_vector<S, N> *)((S *)p.result + at) = y;
  });
}
K_FLOATS(last, k_rows)

template <typename S>
static __device__ __forceinline__ void last_backward_sums_body(const k_rows &p) {
  typedef typename k_last<S>::C C;
  enum { N = k_last<S>::N };
  k_last<S> t(p);
  C mean[N], a[N], b[N];
#pragma unroll
  for (int k = 0; k < N; k++)
    mean[k] = t.here ? batch_mean<S>(p, t.channel + k) : (C)0, a[k] = b[k] = 0;
  t.template each<2>(p, false, [&](const k_loaded<S, N> *v, int64_t) {
#pragma unroll
    for (int k = 0; k < N; k++) {
      C g = k_get(v[0][k]);
      a[k] += g, b[k] += g * (k_get(v[1][k]) - mean[k]);
    }
  });
  t.store(p, a, b);
}
K_FLOATS(last_backward_sums, k_rows)
// The results replace the sums of part 0, read by this block only.
template <typename S>
static __device__ __forceinline__ void last_backward_columns_body(const k_rows &p) {
  last_columns(p, [&](int64_t c, double s, double sx) {
    double to[2];
    batch_gradients<S>(p, c, s, sx, to);
    *last_partials(p, 0, 0, c) = to[0], *last_partials(p, 0, 1, c) = to[1];
  });
}
K_FLOATS(last_backward_columns, k_rows)
// The gradient of x is scale * g + by * x + shift.
template <typename C>
struct back {
  C scale, by, shift;
};
template <typename S>
static __device__ __forceinline__ auto batch_line(const k_rows &p, int64_t c) {
  typedef typename k_type<S>::number C;
  slope<C> s = batch_slope<S>(p, c, *last_partials(p, 0, 0, c), *last_partials(p, 0, 1, c));
  if (!p.training) return back<C>{s.scale, 0, 0};
  return back<C>{s.scale, -s.k * s.scale, (s.mean * s.k - s.m) * s.scale};
}
template <typename S>
static __device__ __forceinline__ void last_backward_body(const k_rows &p) {
  typedef typename k_last<S>::C C;
  enum { N = k_last<S>::N };
  k_last<S> t(p);
  back<C> of[N];
#pragma unroll
  for (int k = 0; k < N; k++) of[k] = t.here ? batch_line<S>(p, t.channel + k) : back<C>{0, 0, 0};
  t.template each<2>(p, true, [&](const k_loaded<S, N> *v, int64_t at) {
    k_vector<S, N> y;
#pragma unroll
    for (int k = 0; k < N; k++)
      k_put(&y.v[k], k_get(v[0][k]) * of[k].scale + (k_get(v[1][k]) * of[k].by + of[k].shift));
    *(k_vector<S, N> *)((S *)p.result + at) = y;
  });
}
K_FLOATS(last_backward, k_rows)

// result = (1 - number) * result + number * input, in double. `dtype` is the result's, `how` the
// input's.
extern "C" __global__ void running_average(const __grid_constant__ k_rows p) {
  k_wait();
  int to_item = k_item(p.dtype), from_item = k_item(p.how);
  for (int64_t i = k_thread(); i < p.size; i += k_threads()) {
    char *to = (char *)p.result + i * to_item;
    double now = k_load<double>((const char *)p.input + i * from_item, p.how);
    k_store(to, p.dtype, (1 - p.number) * k_load<double>(to, p.dtype) + p.number * now);
  }
}
