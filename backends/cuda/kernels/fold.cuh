// SPDX-License-Identifier: Apache-2.0
// Reductions: what the generated folds run. A fold F has elements of type T, sums of them in T and,
// every few elements, in the wider D.
//
// Which thread takes which element depends on the shapes alone, and so does the order of joining:
// a result is the same every time. By rows, `lanes` threads make a result; by columns, neighbouring
// threads make neighbouring results. A part is a piece of a long fold; its sum goes to `partial`,
// and the parts are joined by a second kernel.
#pragma once
#include "math.cuh"

// Elements of a thread that are added up in T; vectors that it has in flight, of a row and of
// columns.
enum { K_FLUSH = 16, K_ROW_AHEAD = 8, K_COLUMN_AHEAD = 4 };

template <typename F>
struct k_merge {
  __device__ __forceinline__ typename F::D operator()(typename F::D a, typename F::D b) const {
    return F::merge(a, b);
  }
};

// Takes COUNT vectors, `lanes` apart, into the sums of their elements; unless ALL are there, those
// before `last`.
template <typename F, typename S, int N, int COUNT, bool ALL>
static __device__ __forceinline__ void k_fold_vectors(typename F::T *part, const char *row,
                                                      int64_t i, int64_t last, int lanes) {
  k_loaded<S, N> v[COUNT];
#pragma unroll
  for (int u = 0; u < COUNT; u++)
    if (ALL || i + u * lanes < last) v[u] = ((const k_loaded<S, N> *)row)[i + u * lanes];
#pragma unroll
  for (int u = 0; u < COUNT; u++) {
    if (!ALL && i + u * lanes >= last) break;
#pragma unroll
    for (int k = 0; k < N; k++)
      part[k] = F::combine(part[k], F::map((typename F::T)k_get(v[u][k])));
  }
}
// Elements [begin, end) in steps of `lanes` vectors; the row is dense, aligned and stored as S.
template <typename F, typename S>
static __device__ __forceinline__ typename F::D k_fold_dense(const char *row, int64_t begin,
                                                             int64_t end, int lane, int lanes) {
  typedef typename F::T T;
  enum { N = 16 / sizeof(S), AHEAD = N > 8 ? 2 : K_ROW_AHEAD };
  typename F::D sum = F::identity();
  int64_t first = begin / N, last = end / N, whole = last - (AHEAD - 1) * lanes;
  for (int64_t i = first + lane; i < last;) {
    T part[N];
#pragma unroll
    for (int k = 0; k < N; k++) part[k] = (T)F::identity();
#pragma unroll 1
    for (int turn = 0; turn < K_FLUSH && i < whole; turn += AHEAD, i += AHEAD * lanes)
      k_fold_vectors<F, S, N, AHEAD, true>(part, row, i, last, lanes);
#pragma unroll 1
    for (; i >= whole && i < last; i += AHEAD / 2 * lanes)
      k_fold_vectors<F, S, N, AHEAD / 2, false>(part, row, i, last, lanes);
#pragma unroll
    for (int k = 0; k < N; k++) sum = F::merge(sum, (typename F::D)part[k]);
  }
  int64_t rest = last * N + lane;
#pragma unroll 1
  for (; rest < end; rest += lanes)
    sum = F::merge(sum, (typename F::D)F::map((T)k_get(((const S *)row)[rest])));
  return sum;
}

template <typename F>
static __device__ __forceinline__ typename F::D k_fold_any(const k_fold &p, const char *row,
                                                           int64_t begin, int64_t end, int lane,
                                                           int lanes) {
  typedef typename F::T T;
  typename F::D sum = F::identity();
  for (int64_t i = begin + lane; i < end;) {
    T part = (T)F::identity();
#pragma unroll 1
    for (int turn = 0; turn < K_FLUSH && i < end; turn++, i += lanes)
      part = F::combine(part,
                        F::map(k_load<T>(row + k_place_in(p.gone, p.gone_count, i), p.in_dtype)));
    sum = F::merge(sum, (typename F::D)part);
  }
  return sum;
}

// The dtypes that rows of a type are read from 16 bytes at a time.
template <typename T>
struct k_native;
template <>
struct k_native<float> {
  typedef float A;
  typedef __half B;
  typedef __nv_bfloat16 C;
  enum { a = K_FLOAT32, b = K_FLOAT16, c = K_BFLOAT16 };
};
template <>
struct k_native<double> {
  typedef double A, B, C;
  enum { a = K_FLOAT64, b = -1, c = -1 };
};
template <>
struct k_native<int64_t> {
  typedef int64_t A;
  typedef k_bool B;
  typedef int32_t C;
  enum { a = K_INT64, b = K_BOOL, c = K_INT32 };
};

template <typename F>
static __device__ __forceinline__ typename F::D k_fold_row(const k_fold &p, const char *row,
                                                           int64_t begin, int64_t end, int lane,
                                                           int lanes) {
  typedef k_native<typename F::T> native;
  if (p.vector && p.in_dtype == native::a)
    return k_fold_dense<F, typename native::A>(row, begin, end, lane, lanes);
  if (native::b >= 0 && p.vector && p.in_dtype == native::b)
    return k_fold_dense<F, typename native::B>(row, begin, end, lane, lanes);
  if (native::c >= 0 && p.vector && p.in_dtype == native::c)
    return k_fold_dense<F, typename native::C>(row, begin, end, lane, lanes);
  return k_fold_any<F>(p, row, begin, end, lane, lanes);
}

template <typename F>
static __device__ __forceinline__ void k_fold_give(const k_fold &p, int64_t result, int64_t part,
                                                   int64_t out, typename F::D sum) {
  if (p.parts > 1)
    ((typename F::D *)p.partial)[result * p.parts + part] = sum;
  else
    k_store((char *)p.out + out, p.out_dtype, F::finish(sum, p.length));
}

// A block has blockDim / lanes groups; group g of the grid makes part g % parts of a result.
template <typename F>
static __device__ void k_fold_rows(const k_fold &p) {
  int groups = blockDim.x / p.lanes, lane = threadIdx.x % p.lanes;
  int64_t total = p.results * p.parts;
  for (int64_t g0 = (int64_t)blockIdx.x * groups; g0 < total; g0 += (int64_t)gridDim.x * groups) {
    int64_t g = g0 + threadIdx.x / p.lanes, result = g / p.parts, part = g % p.parts;
    int64_t in = 0, out = 0, out2 = 0, begin = part * p.part, end = begin + p.part;
    typename F::D sum = F::identity();
    if (end > p.length) end = p.length;
    if (g < total) {
      k_place(p.kept, p.kept_count, result, &in, &out, &out2);
      sum = k_fold_row<F>(p, (const char *)p.in + in, begin, end, lane, p.lanes);
    }
    sum = k_join(sum, p.lanes, k_merge<F>());
    if (lane == 0 && g < total) k_fold_give<F>(p, result, part, out, sum);
  }
}

// Elements begin, begin + 8 and so on of N neighbouring columns, stored as S.
template <typename F, typename S, int N>
static __device__ __forceinline__ void k_fold_column(const k_fold &p, const char *from,
                                                     int64_t begin, int64_t end,
                                                     typename F::D *sums) {
  typedef typename F::T T;
  for (int64_t i = begin; i < end;) {
    T part[N];
#pragma unroll
    for (int k = 0; k < N; k++) part[k] = (T)F::identity();
#pragma unroll 1
    for (int turn = 0; turn < K_FLUSH && i < end; turn += K_COLUMN_AHEAD, i += K_COLUMN_AHEAD * 8) {
      k_loaded<S, N> v[K_COLUMN_AHEAD];
#pragma unroll
      for (int u = 0; u < K_COLUMN_AHEAD; u++)
        if (i + u * 8 < end)
          v[u] = *(const k_loaded<S, N> *)(from + k_place_in(p.gone, p.gone_count, i + u * 8));
#pragma unroll
      for (int u = 0; u < K_COLUMN_AHEAD; u++) {
        if (i + u * 8 >= end) break;
#pragma unroll
        for (int k = 0; k < N; k++) part[k] = F::combine(part[k], F::map((T)k_get(v[u][k])));
      }
    }
#pragma unroll
    for (int k = 0; k < N; k++) sums[k] = F::merge(sums[k], (typename F::D)part[k]);
  }
}
template <typename F>
static __device__ __forceinline__ void k_fold_column_any(const k_fold &p, const char *from,
                                                         int64_t begin, int64_t end,
                                                         typename F::D *sums) {
  typedef k_native<typename F::T> native;
  typedef typename native::A A;
  enum { N = 16 / sizeof(A) };
  if (p.vector)
    k_fold_column<F, A, N>(p, from, begin, end, sums);
  else if (p.in_dtype == native::a)
    k_fold_column<F, A, 1>(p, from, begin, end, sums);
  else if (native::b >= 0 && p.in_dtype == native::b)
    k_fold_column<F, typename native::B, 1>(p, from, begin, end, sums);
  else if (native::c >= 0 && p.in_dtype == native::c)
    k_fold_column<F, typename native::C, 1>(p, from, begin, end, sums);
  else
    sums[0] = k_fold_any<F>(p, from, begin, end, 0, 8);
}

// A block has 32 columns, neighbours along kept[0], or 32 vectors of them, and 8 threads for each.
template <typename F>
static __device__ void k_fold_columns(const k_fold &p) {
  enum { N = 16 / sizeof(typename k_native<typename F::T>::A) };
  __shared__ typename F::D room[N][8][33];
  int x = threadIdx.x & 31, y = threadIdx.x >> 5, wide = p.vector ? N : 1;
  int64_t width = p.kept[0].size, pieces = (width + 32 * wide - 1) / (32 * wide);
  int64_t total = p.results / width * pieces;
  for (int64_t b = blockIdx.x; b < total * p.parts; b += gridDim.x) {
    int64_t part = b % p.parts, piece = b / p.parts, column = (piece % pieces * 32 + x) * wide;
    int64_t result = piece / pieces * width + column, in = 0, out = 0, out2 = 0;
    int64_t begin = part * p.part + y, end = part * p.part + p.part;
    typename F::D sums[N];
#pragma unroll
    for (int k = 0; k < N; k++) sums[k] = F::identity();
    if (end > p.length) end = p.length;
    if (column < width) {
      k_place(p.kept, p.kept_count, result, &in, &out, &out2);
      k_fold_column_any<F>(p, (const char *)p.in + in, begin, end, sums);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++) room[k][y][x] = sums[k];
    __syncthreads();
    // Thread y of a column's 8 joins what the 8 have of neighbour y.
    if (y >= wide || column >= width) continue;
    typename F::D sum = room[y][0][x];
    for (int k = 1; k < 8; k++) sum = F::merge(sum, room[y][k][x]);
    k_fold_give<F>(p, result + y, part, out + y * p.kept[0].out, sum);
  }
}

// A warp or a block joins the parts of a result.
template <typename F>
static __device__ void k_fold_join(const k_fold &p) {
  int groups = blockDim.x / p.lanes, lane = threadIdx.x % p.lanes;
  for (int64_t r0 = (int64_t)blockIdx.x * groups; r0 < p.results;
       r0 += (int64_t)gridDim.x * groups) {
    int64_t result = r0 + threadIdx.x / p.lanes, in, out, out2;
    typename F::D sum = F::identity();
    for (int64_t i = lane; result < p.results && i < p.parts; i += p.lanes)
      sum = F::merge(sum, ((const typename F::D *)p.partial)[result * p.parts + i]);
    sum = k_join(sum, p.lanes, k_merge<F>());
    if (lane != 0 || result >= p.results) continue;
    k_place(p.kept, p.kept_count, result, &in, &out, &out2);
    k_store((char *)p.out + out, p.out_dtype, F::finish(sum, p.length));
  }
}

// Each way, and the blocks that a processor is to hold: registers are limited to that.
#define K_FOLD_WAY(name, suffix, way, blocks) \
  extern "C" __global__ void __launch_bounds__(K_BLOCK, blocks) \
      name##_##suffix##_##way(const __grid_constant__ k_fold p) { \
    k_fold_##way<fold_##name##_##suffix>(p); \
  }
#define K_FOLD(name, suffix) \
  K_FOLD_WAY(name, suffix, rows, 2) \
  K_FOLD_WAY(name, suffix, columns, 1) \
  K_FOLD_WAY(name, suffix, join, 1)
