// SPDX-License-Identifier: Apache-2.0
// Group normalisation: outer x size rows of `inner` elements, one per channel of an example.
// `chunks` adjacent rows form a group. A row is split into `how` parts of `lanes` threads each,
// which read adjacent 16-byte vectors if `vector`. Blocks have K_BLOCK threads, enough for all
// parts. `partial` holds two sums for each part, then two numbers for each group, joined in
// order.
#include "fold.cuh"

// A thread group's row and part.
struct group_part {
  int64_t row, part;
  int lane, lanes;
  bool active;  // the row exists
  __device__ __forceinline__ explicit group_part(const k_rows &p) {
    k_groups of(p.lanes);
    int64_t at = (int64_t)blockIdx.x * of.count + of.group;
    row = at / p.how, part = at - row * p.how, lane = of.lane, lanes = p.lanes;
    active = row < p.outer * p.size;
  }
  // Calls f(vectors of N of each tensor, element index) over the part.
  template <typename S, int N, int TENSORS, typename F>
  __device__ __forceinline__ void each(const k_rows &p, const void *const (&tensors)[TENSORS],
                                       F f) const {
    int64_t units = p.inner / N, begin = units * part / p.how;
    k_walk<S, N>(tensors, row * p.inner, begin + lane, units * (part + 1) / p.how, lanes, f);
  }
};
static __device__ __forceinline__ k_pair<double> *group_sums_at(const k_rows &p, int64_t row) {
  return (k_pair<double> *)p.partial + row * p.how;
}
static __device__ __forceinline__ k_pair<double> *group_at(const k_rows &p, int64_t group) {
  return group_sums_at(p, p.outer * p.size) + group;
}

// ---- forward. Sums of x minus the group's first element, and of its squares.

template <typename S, int N>
static __device__ __forceinline__ void group_sums(const k_rows &p) {
  group_part at(p);
  const S *x = (const S *)p.input;
  k_pair<double> sums = {0, 0};
  if (at.active) {
    double first = k_get(x[at.row / p.chunks * p.chunks * p.inner]);
    at.each<S, N>(p, {p.input}, [&](const k_loaded<S, N> *v, int64_t) {
#pragma unroll
      for (int k = 0; k < N; k++) {
        double d = (double)k_get(v[0][k]) - first;
        sums.a += d, sums.b += d * d;
      }
    });
  }
  sums = k_join(sums, p.lanes, k_add());
  if (at.active && at.lane == 0) group_sums_at(p, at.row)[at.part] = sums;
}
K_FLOATS_BY_VECTORS(group_sums)

// One warp joins the parts of a group.
template <typename S>
static __device__ __forceinline__ void group_join_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  int64_t group = k_thread() / 32, lane = threadIdx.x & 31, groups = p.outer * p.size / p.chunks;
  k_pair<double> sums = {0, 0};
  for (int64_t i = lane; group < groups && i < p.chunks * p.how; i += 32)
    sums = sums + group_sums_at(p, group * p.chunks)[i];
  sums = k_join(sums, 32, k_add());
  if (group >= groups || lane) return;
  double n = (double)(p.chunks * p.inner), variance = (sums.b - sums.a * sums.a / n) / n;
  double first = k_get(((const S *)p.input)[group * p.chunks * p.inner]);
  ((C *)p.mean)[group] = (C)(first + sums.a / n);
  ((C *)p.rstd)[group] = (C)(1 / sqrt((variance < 0 ? 0 : variance) + p.eps));
}
K_FLOATS(group_join, k_rows)

template <typename S, int N>
static __device__ __forceinline__ void group_apply(const k_rows &p) {
  typedef typename k_type<S>::number C;
  group_part at(p);
  const S *w = (const S *)p.weight, *b = (const S *)p.bias;
  if (!at.active) return;
  int64_t c = at.row % p.size, group = at.row / p.chunks;
  C scale = ((const C *)p.rstd)[group] * (w ? k_get(w[c]) : (C)1);
  C shift = (b ? k_get(b[c]) : (C)0) - ((const C *)p.mean)[group] * scale;
  at.each<S, N>(p, {p.input}, [&](const k_loaded<S, N> *v, int64_t i) {
    k_vector<S, N> y;
#pragma unroll
    for (int k = 0; k < N; k++) k_put(&y.v[k], k_get(v[0][k]) * scale + shift);
    *(k_vector<S, N> *)((S *)p.result + i) = y;
  });
}
K_FLOATS_BY_VECTORS(group_apply)

// ---- backward. Sums of the gradient, and of the gradient times x minus the mean.

template <typename S, int N>
static __device__ __forceinline__ void group_backward_sums(const k_rows &p) {
  typedef typename k_type<S>::number C;
  group_part at(p);
  k_pair<double> sums = {0, 0};
  if (at.active) {
    double mean = ((const C *)p.mean)[at.row / p.chunks];
    at.each<S, N>(p, {p.grad, p.input}, [&](const k_loaded<S, N> *v, int64_t) {
#pragma unroll
      for (int k = 0; k < N; k++) {
        double gi = k_get(v[0][k]);
        sums.a += gi, sums.b += gi * ((double)k_get(v[1][k]) - mean);
      }
    });
  }
  sums = k_join(sums, p.lanes, k_add());
  if (at.active && at.lane == 0) group_sums_at(p, at.row)[at.part] = sums;
}
K_FLOATS_BY_VECTORS(group_backward_sums)

// One warp computes a group's two numbers: the mean gradient, and the coefficient of x - mean.
template <typename S>
static __device__ __forceinline__ void group_backward_join_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *w = (const S *)p.weight;
  int64_t group = k_thread() / 32, lane = threadIdx.x & 31, groups = p.outer * p.size / p.chunks;
  int64_t first = group * p.chunks;
  k_pair<double> sums = {0, 0};
  for (int64_t i = lane; group < groups && i < p.chunks * p.how; i += 32) {
    double scale = w ? (double)k_get(w[(first + i / p.how) % p.size]) : 1;
    k_pair<double> part = group_sums_at(p, first)[i];
    sums.a += part.a * scale, sums.b += part.b * scale;
  }
  sums = k_join(sums, 32, k_add());
  if (group >= groups || lane) return;
  double n = (double)(p.chunks * p.inner), rstd = ((const C *)p.rstd)[group];
  *group_at(p, group) = {sums.a / n, sums.b * rstd * rstd / n};
}
K_FLOATS(group_backward_join, k_rows)

// One warp sums a channel's gradients of weight and bias over the examples.
template <typename S>
static __device__ __forceinline__ void group_channels_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  int64_t c = k_thread() / 32, lane = threadIdx.x & 31;
  k_pair<double> sums = {0, 0};
  for (int64_t i = lane; c < p.size && i < p.outer * p.how; i += 32) {
    int64_t row = i / p.how * p.size + c;
    k_pair<double> part = group_sums_at(p, row)[i % p.how];
    sums.a += part.a, sums.b += part.b * (double)((const C *)p.rstd)[row / p.chunks];
  }
  sums = k_join(sums, 32, k_add());
  if (c >= p.size || lane) return;
  if (p.grad_weight) k_put((S *)p.grad_weight + c, sums.b);
  if (p.grad_bias) k_put((S *)p.grad_bias + c, sums.a);
}
K_FLOATS(group_channels, k_rows)

template <typename S, int N>
static __device__ __forceinline__ void group_backward(const k_rows &p) {
  typedef typename k_type<S>::number C;
  group_part at(p);
  const S *w = (const S *)p.weight;
  if (!at.active) return;
  int64_t group = at.row / p.chunks;
  C mean = ((const C *)p.mean)[group], rstd = ((const C *)p.rstd)[group];
  C scale = w ? k_get(w[at.row % p.size]) : (C)1;
  C each = (C)group_at(p, group)->a, by = (C)group_at(p, group)->b;
  at.each<S, N>(p, {p.grad, p.input}, [&](const k_loaded<S, N> *v, int64_t i) {
    k_vector<S, N> y;
#pragma unroll
    for (int k = 0; k < N; k++)
      k_put(&y.v[k], rstd * (k_get(v[0][k]) * scale - each - (k_get(v[1][k]) - mean) * by));
    *(k_vector<S, N> *)((S *)p.result + i) = y;
  });
}
K_FLOATS_BY_VECTORS(group_backward)
