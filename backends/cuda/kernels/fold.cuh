// SPDX-License-Identifier: Apache-2.0
// Reductions: the bodies of generated folds. A fold F has elements of type T, accumulated in T
// and flushed every few elements to the wider D.
//
// The assignment of elements to threads and the order of joining depend only on shapes and
// alignment, so results are reproducible. By rows, `lanes` threads compute a result. By columns,
// adjacent threads compute adjacent results. Both are coalesced, with 16-byte vectors if strides
// allow. A part is a piece of a long fold, or of one of its rows (`inner`); its accumulator goes
// to `partial`, and a second kernel joins the parts. Blocks have K_BLOCK threads.
#pragma once
#include "math.cuh"

enum { K_FLUSH = 16 };  // elements a thread accumulates in T

// How folds read elements: from memory. A fold at the end of a chain computes them (chain.cuh).
struct k_stored {
  enum { ROW_AHEAD = 8, COLUMN_AHEAD = 8 };  // vectors in flight a thread; they divide K_FLUSH
  template <typename S, int N>
  static __device__ __forceinline__ k_loaded<S, N> read(const k_fold &, const void *at) {
    return *(const k_loaded<S, N> *)at;
  }
  template <typename T>
  static __device__ __forceinline__ T read_any(const k_fold &p, const void *at) {
    return k_load<T>(at, p.in_dtype);
  }
};

template <typename F>
struct k_merge {
  __device__ __forceinline__ typename F::D operator()(typename F::D a, typename F::D b) const {
    return F::merge(a, b);
  }
};

// Groups of `lanes` threads of a block; `lanes` is a power of two.
struct k_groups {
  int count, group, lane;
  __device__ __forceinline__ explicit k_groups(int lanes) {
    int shift = __ffs(lanes) - 1;
    count = blockDim.x >> shift, group = threadIdx.x >> shift, lane = threadIdx.x & (lanes - 1);
  }
};

// Hides a value from the compiler: expressions of it are recomputed where used and hold no
// registers throughout a loop.
static __device__ __forceinline__ void k_opaque(int *x) { asm volatile("" : "+r"(*x)); }

// Accumulates COUNT vectors at stride `lanes`. Without ALL, only the next `left` exist. The
// first half is then loaded unconditionally, with the last vector repeated for missing ones:
// this needs fewer predicates than vectors, and loads would wait for each other's predicates.
template <typename F, typename S, int N, int COUNT, bool ALL>
static __device__ __forceinline__ void k_fold_vectors(const k_fold &p, typename F::T *part,
                                                      const k_loaded<S, N> *from, int lanes,
                                                      int left) {
  k_loaded<S, N> v[COUNT] = {};  // undefined values would occupy registers throughout
  k_opaque(&lanes);
#pragma unroll
  for (int u = 0; u < COUNT; u++)
    if (!ALL && u < COUNT / 2)
      v[u] = F::template read<S, N>(p, from + (u * lanes < left ? u * lanes : left - 1));
    else if (ALL || u * lanes < left)
      v[u] = F::template read<S, N>(p, from + u * lanes);
#pragma unroll
  for (int u = 0; u < COUNT; u++)
#pragma unroll
    for (int k = 0; k < N; k++)
      if (ALL || u * lanes < left)
        part[k] = F::combine(part[k], F::map((typename F::T)k_get(v[u][k])));
}
// Accumulates elements [begin, end) of a dense row stored as S, in steps of `lanes` vectors of
// N. All threads of a warp have rows of equal length, so branches are uniform.
template <typename F, typename S, int N>
static __device__ __forceinline__ typename F::D k_fold_dense(const k_fold &p, const char *row,
                                                             int64_t begin, int64_t end, int lane) {
  typedef typename F::T T;
  const int lanes = p.lanes;
  enum { AHEAD = N > 8 ? 2 : (int)F::ROW_AHEAD };
  typename F::D sum = F::identity();
  const k_loaded<S, N> *from = (const k_loaded<S, N> *)row + begin / N + lane;
  int64_t left = end / N - begin / N;
  while (left > 0) {
    T part[N];
#pragma unroll
    for (int k = 0; k < N; k++) part[k] = (T)F::identity();
#pragma unroll 1
    for (int round = 0; round < K_FLUSH && left > 0; round += AHEAD) {
      if (left >= AHEAD * lanes)
        k_fold_vectors<F, S, N, AHEAD, true>(p, part, from, lanes, 0);
      else
        k_fold_vectors<F, S, N, AHEAD, false>(p, part, from, lanes, (int)left - lane);
      from += AHEAD * lanes, left -= AHEAD * lanes;
    }
#pragma unroll
    for (int k = 0; k < N; k++) sum = F::merge(sum, (typename F::D)part[k]);
  }
#pragma unroll 1
  for (int64_t i = end / N * N + lane; i < end; i += lanes)
    sum = F::merge(
        sum, (typename F::D)F::map((T)k_get(F::template read<S, 1>(p, (const S *)row + i)[0])));
  return sum;
}
// Unaligned rows are read by elements.
template <typename F, typename S>
static __device__ __forceinline__ typename F::D k_fold_stored(const k_fold &p, const char *row,
                                                              int64_t begin, int64_t end,
                                                              int lane) {
  return p.vector ? k_fold_dense<F, S, 16 / sizeof(S)>(p, row, begin, end, lane)
                  : k_fold_dense<F, S, 1>(p, row, begin, end, lane);
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
    for (int round = 0; round < K_FLUSH && i < end; round++, i += lanes)
      part = F::combine(part, F::map(F::template read_any<T>(
                                  p, row + k_locate_in(p.reduced, p.reduced_count, i))));
    sum = F::merge(sum, (typename F::D)part);
  }
  return sum;
}

// Storage dtypes read directly for dense rows of T.
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
                                                           int64_t begin, int64_t end, int lane) {
  typedef k_native<typename F::T> native;
  if (p.dense && p.in_dtype == native::a)
    return k_fold_stored<F, typename native::A>(p, row, begin, end, lane);
  if (native::b >= 0 && p.dense && p.in_dtype == native::b)
    return k_fold_stored<F, typename native::B>(p, row, begin, end, lane);
  if (native::c >= 0 && p.dense && p.in_dtype == native::c)
    return k_fold_stored<F, typename native::C>(p, row, begin, end, lane);
  return k_fold_any<F>(p, row, begin, end, lane, p.lanes);
}

template <typename F>
static __device__ __forceinline__ void k_fold_store(const k_fold &p, int64_t result, int64_t part,
                                                    int64_t out, typename F::D sum) {
  if (p.parts > 1)
    ((typename F::D *)p.partial)[result * p.parts + part] = sum;
  else
    k_store((char *)p.out + out, p.out_dtype, F::finish(sum, p.length));
}

// Range of a part in its row. If rows are gone[0] alone, there is one for each index of the
// other dimensions, and `in` is advanced to the part's.
struct k_fold_part {
  int64_t begin, end;
  __device__ __forceinline__ k_fold_part(const k_fold &p, int64_t part, int64_t *in) {
    int64_t size = p.inner ? p.inner : p.length;
    if (p.inner) {
      int64_t pieces = (size + p.part - 1) / p.part, row = part / pieces;
      *in += k_locate_in(p.reduced + 1, p.reduced_count - 1, row);
      part -= row * pieces;
    }
    begin = part * p.part, end = begin + p.part;
    if (end > size) end = size;
  }
};

// Group g of the grid computes part g % parts of a result.
template <typename F>
static __device__ void k_fold_rows(const k_fold &p) {
  k_groups of(p.lanes);
  int64_t total = p.results * p.parts;
  for (int64_t g0 = (int64_t)blockIdx.x * of.count; g0 < total;
       g0 += (int64_t)gridDim.x * of.count) {
    int64_t g = g0 + of.group, result = p.parts > 1 ? g / p.parts : g, part = g - result * p.parts;
    int64_t in = 0, out = 0, out2 = 0;
    typename F::D sum = F::identity();
    if (g < total) {
      k_locate(p.kept, p.kept_count, result, &in, &out, &out2);
      k_fold_part of_row(p, part, &in);
      sum = k_fold_row<F>(p, (const char *)p.in + in, of_row.begin, of_row.end, of.lane);
    }
    sum = k_join(sum, p.lanes, k_merge<F>());
    if (of.lane == 0 && g < total) k_fold_store<F>(p, result, part, out, sum);
  }
}

// Accumulates elements begin, begin + 8, ... of N adjacent columns stored as S.
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
    for (int round = 0; round < K_FLUSH && i < end;
         round += F::COLUMN_AHEAD, i += F::COLUMN_AHEAD * 8) {
      k_loaded<S, N> v[F::COLUMN_AHEAD];
#pragma unroll
      for (int u = 0; u < F::COLUMN_AHEAD; u++)
        if (i + u * 8 < end)
          v[u] =
              F::template read<S, N>(p, from + k_locate_in(p.reduced, p.reduced_count, i + u * 8));
#pragma unroll
      for (int u = 0; u < F::COLUMN_AHEAD; u++) {
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
  enum { N = 16 / sizeof(A), HALF = (int)native::b == (int)K_FLOAT16 };
  if (p.vector && p.in_dtype == native::a)
    k_fold_column<F, A, N>(p, from, begin, end, sums);
  else if (HALF && p.vector && p.in_dtype == native::b)
    k_fold_column<F, typename native::B, HALF ? N : 1>(p, from, begin, end, sums);
  else if (HALF && p.vector && p.in_dtype == native::c)
    k_fold_column<F, typename native::C, HALF ? N : 1>(p, from, begin, end, sums);
  else if (p.in_dtype == native::a)
    k_fold_column<F, A, 1>(p, from, begin, end, sums);
  else if (native::b >= 0 && p.in_dtype == native::b)
    k_fold_column<F, typename native::B, 1>(p, from, begin, end, sums);
  else if (native::c >= 0 && p.in_dtype == native::c)
    k_fold_column<F, typename native::C, 1>(p, from, begin, end, sums);
  else
    sums[0] = k_fold_any<F>(p, from, begin, end, 0, 8);
}

// A block covers 32 columns adjacent along kept[0], or 32 vectors of them, with 8 threads each.
// Shared memory: N x 8 x 33 accumulators.
template <typename F>
static __device__ void k_fold_columns(const k_fold &p) {
  enum { N = 16 / sizeof(typename k_native<typename F::T>::A) };
  __shared__ typename F::D partials[N][8][33];
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
      k_locate(p.kept, p.kept_count, result, &in, &out, &out2);
      k_fold_column_any<F>(p, (const char *)p.in + in, begin, end, sums);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++) partials[k][y][x] = sums[k];
    __syncthreads();
    // Thread y of a column vector's 8 threads joins the 8 partial results of element y.
    if (y >= wide || column >= width) continue;
    typename F::D sum = partials[y][0][x];
    for (int k = 1; k < 8; k++) sum = F::merge(sum, partials[y][k][x]);
    k_fold_store<F>(p, result + y, part, out + y * p.kept[0].out, sum);
  }
}

// A warp or a block joins the parts of each result.
template <typename F>
static __device__ void k_fold_join(const k_fold &p) {
  k_groups of(p.lanes);
  for (int64_t r0 = (int64_t)blockIdx.x * of.count; r0 < p.results;
       r0 += (int64_t)gridDim.x * of.count) {
    int64_t result = r0 + of.group, in, out, out2;
    typename F::D sum = F::identity();
    for (int64_t i = of.lane; result < p.results && i < p.parts; i += p.lanes)
      sum = F::merge(sum, ((const typename F::D *)p.partial)[result * p.parts + i]);
    sum = k_join(sum, p.lanes, k_merge<F>());
    if (of.lane != 0 || result >= p.results) continue;
    k_locate(p.kept, p.kept_count, result, &in, &out, &out2);
    k_store((char *)p.out + out, p.out_dtype, F::finish(sum, p.length));
  }
}

// Variants, with the minimum resident blocks a multiprocessor, which limits registers.
#define K_FOLD_WAY(name, suffix, way, blocks) \
  extern "C" __global__ void __launch_bounds__(K_BLOCK, blocks) \
      name##_##suffix##_##way(const __grid_constant__ k_fold p) { \
    k_wait(); \
    k_fold_##way<fold_##name##_##suffix>(p); \
  }
#define K_FOLD(name, suffix) \
  K_FOLD_WAY(name, suffix, rows, 3) \
  K_FOLD_WAY(name, suffix, columns, 2) \
  K_FOLD_WAY(name, suffix, join, 1)
