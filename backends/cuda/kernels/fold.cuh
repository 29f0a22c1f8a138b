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

enum { K_FLUSH = 16 };  // elements of a thread that are added up in T

template <typename F>
struct k_merge {
  __device__ __forceinline__ typename F::D operator()(typename F::D a, typename F::D b) const {
    return F::merge(a, b);
  }
};

// Elements [begin, end) in steps of `lanes` vectors; the row is dense, aligned and stored as S.
template <typename F, typename S>
static __device__ __forceinline__ typename F::D k_fold_dense(const char *row, int64_t begin,
                                                             int64_t end, int lane, int lanes) {
  typedef typename F::T T;
  enum { N = 16 / sizeof(S) };
  typename F::D sum = F::identity();
  int64_t first = begin / N, last = end / N;
  for (int64_t i = first + lane; i < last;) {
    T part[N];
#pragma unroll
    for (int k = 0; k < N; k++) part[k] = (T)F::identity();
#pragma unroll 4
    for (int turn = 0; turn < K_FLUSH && i < last; turn++, i += lanes) {
      k_vector<S, N> v = ((const k_vector<S, N> *)row)[i];
#pragma unroll
      for (int k = 0; k < N; k++) part[k] = F::combine(part[k], F::map((T)k_get(v.v[k])));
    }
#pragma unroll
    for (int k = 0; k < N; k++) sum = F::merge(sum, (typename F::D)part[k]);
  }
  int64_t rest = last * N + lane;
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
  if (p.vector && p.in_dtype == native::b)
    return k_fold_dense<F, typename native::B>(row, begin, end, lane, lanes);
  if (p.vector && p.in_dtype == native::c)
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

// Elements begin + y, begin + y + 8 and so on of one column, stored as S.
template <typename F, typename S>
static __device__ __forceinline__ typename F::D k_fold_column(const k_fold &p, const char *from,
                                                              int64_t begin, int64_t end) {
  typedef typename F::T T;
  typename F::D sum = F::identity();
  for (int64_t i = begin; i < end;) {
    T narrow = (T)F::identity();
#pragma unroll 4
    for (int turn = 0; turn < K_FLUSH && i < end; turn++, i += 8) {
      const S *at = (const S *)(from + k_place_in(p.gone, p.gone_count, i));
      narrow = F::combine(narrow, F::map((T)k_get(*at)));
    }
    sum = F::merge(sum, (typename F::D)narrow);
  }
  return sum;
}

// A block has 32 columns, neighbours along kept[0], and 8 threads for each.
template <typename F>
static __device__ void k_fold_columns(const k_fold &p) {
  typedef k_native<typename F::T> native;
  __shared__ typename F::D room[8][33];
  int x = threadIdx.x & 31, y = threadIdx.x >> 5;
  int64_t width = p.kept[0].size, pieces = (width + 31) / 32, total = p.results / width * pieces;
  for (int64_t b = blockIdx.x; b < total * p.parts; b += gridDim.x) {
    int64_t part = b % p.parts, piece = b / p.parts, column = piece % pieces * 32 + x;
    int64_t result = piece / pieces * width + column, in = 0, out = 0, out2 = 0;
    int64_t begin = part * p.part + y, end = part * p.part + p.part;
    typename F::D sum = F::identity();
    if (end > p.length) end = p.length;
    if (column < width) {
      k_place(p.kept, p.kept_count, result, &in, &out, &out2);
      const char *from = (const char *)p.in + in;
      sum = p.in_dtype == native::a   ? k_fold_column<F, typename native::A>(p, from, begin, end)
            : p.in_dtype == native::b ? k_fold_column<F, typename native::B>(p, from, begin, end)
            : p.in_dtype == native::c ? k_fold_column<F, typename native::C>(p, from, begin, end)
                                      : k_fold_any<F>(p, from, begin, end, 0, 8);
    }
    __syncthreads();
    room[y][x] = sum;
    __syncthreads();
    if (y == 0 && column < width) {
      for (int k = 1; k < 8; k++) sum = F::merge(sum, room[k][x]);
      k_fold_give<F>(p, result, part, out, sum);
    }
  }
}

// A warp joins the parts of a result.
template <typename F>
static __device__ void k_fold_join(const k_fold &p) {
  int lane = threadIdx.x & 31;
  int64_t warps = k_threads() / 32, first = k_thread() / 32;
  for (int64_t r0 = 0; r0 < p.results; r0 += warps) {
    int64_t result = r0 + first, in, out, out2;
    typename F::D sum = F::identity();
    for (int64_t i = lane; result < p.results && i < p.parts; i += 32)
      sum = F::merge(sum, ((const typename F::D *)p.partial)[result * p.parts + i]);
    sum = k_join(sum, 32, k_merge<F>());
    if (lane != 0 || result >= p.results) continue;
    k_place(p.kept, p.kept_count, result, &in, &out, &out2);
    k_store((char *)p.out + out, p.out_dtype, F::finish(sum, p.length));
  }
}

#define K_FOLD_WAY(name, suffix, way) \
  extern "C" __global__ void __launch_bounds__(K_BLOCK) \
      name##_##suffix##_##way(const __grid_constant__ k_fold p) { \
    k_fold_##way<fold_##name##_##suffix>(p); \
  }
#define K_FOLD(name, suffix) \
  K_FOLD_WAY(name, suffix, rows) K_FOLD_WAY(name, suffix, columns) K_FOLD_WAY(name, suffix, join)
