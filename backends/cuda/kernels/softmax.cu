// SPDX-License-Identifier: Apache-2.0
// softmax and log_softmax with their backward kernels, over the middle of outer x size x inner.
//
// Rows that lie in one piece (inner = 1) have `lanes` threads each; else a thread has a line, and
// its neighbours the lines beside it. Out: 0; in: x, or the gradient and the result.
#include "math.cuh"

template <typename C>
struct least_of;
template <>
struct least_of<float> {
  static __device__ float get() { return K_least_f32; }
};
template <>
struct least_of<double> {
  static __device__ double get() { return K_least_f64; }
};
static __device__ __forceinline__ float exp_of(float x) { return expf(x); }
static __device__ __forceinline__ double exp_of(double x) { return exp(x); }
static __device__ __forceinline__ float log_of(float x) { return logf(x); }
static __device__ __forceinline__ double log_of(double x) { return log(x); }

// A line: where it starts, the step between its elements, and its share of threads.
struct line {
  int64_t at, step, rows, row;
  int lane, lanes;
};
static __device__ __forceinline__ line line_of(const k_rows &p, int64_t base) {
  line l;
  l.lanes = p.inner == 1 ? p.lanes : 1;
  l.lane = threadIdx.x % l.lanes;
  l.rows = p.outer * p.inner;
  l.row = base + threadIdx.x / l.lanes;
  l.step = p.inner;
  l.at = l.row / p.inner * p.size * p.inner + l.row % p.inner;
  return l;
}

template <typename S>
static __device__ __forceinline__ void softmax_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  int64_t each = blockDim.x / (p.inner == 1 ? p.lanes : 1);
  for (int64_t b = blockIdx.x * each; b < p.outer * p.inner; b += gridDim.x * each) {
    line l = line_of(p, b);
    bool mine = l.row < l.rows;
    const S *x = (const S *)p.in[0] + (mine ? l.at : 0);
    S *y = (S *)p.out[0] + (mine ? l.at : 0);
    int64_t n = mine ? p.size : 0;
    C top = least_of<C>::get(), sum = 0;
    for (int64_t i = l.lane; i < n; i += l.lanes) top = k_greater()(top, k_get(x[i * l.step]));
    top = k_join(top, l.lanes, k_greater());
    for (int64_t i = l.lane; i < n; i += l.lanes) sum += exp_of(k_get(x[i * l.step]) - top);
    sum = k_join(sum, l.lanes, k_add());
    C scale = 1 / sum, shift = log_of(sum);
    for (int64_t i = l.lane; i < n; i += l.lanes) {
      C v = k_get(x[i * l.step]) - top;
      k_put(&y[i * l.step], p.logs ? v - shift : exp_of(v) * scale);
    }
  }
}
K_FLOATS(softmax, k_rows)

template <typename S>
static __device__ __forceinline__ void softmax_backward_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  int64_t each = blockDim.x / (p.inner == 1 ? p.lanes : 1);
  for (int64_t b = blockIdx.x * each; b < p.outer * p.inner; b += gridDim.x * each) {
    line l = line_of(p, b);
    bool mine = l.row < l.rows;
    int64_t at = mine ? l.at : 0, n = mine ? p.size : 0;
    const S *g = (const S *)p.in[0] + at, *y = (const S *)p.in[1] + at;
    S *to = (S *)p.out[0] + at;
    C sum = 0;
    for (int64_t i = l.lane; i < n; i += l.lanes)
      sum += p.logs ? k_get(g[i * l.step]) : k_get(g[i * l.step]) * k_get(y[i * l.step]);
    sum = k_join(sum, l.lanes, k_add());
    for (int64_t i = l.lane; i < n; i += l.lanes) {
      C gi = k_get(g[i * l.step]), yi = k_get(y[i * l.step]);
      k_put(&to[i * l.step], p.logs ? gi - exp_of(yi) * sum : (gi - sum) * yi);
    }
  }
}
K_FLOATS(softmax_backward, k_rows)
