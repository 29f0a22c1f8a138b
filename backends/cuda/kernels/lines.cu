// SPDX-License-Identifier: Apache-2.0
// Lines along a dimension: running sums and products, and sorting. Operands are dense,
// outer x size x inner.
#include "math.cuh"

// ---- scans, in double or int64. A warp has a chunk of `width` elements of a line that lies in one
// piece, else a thread has it; `keys` holds the chunks' totals.

struct sum_or_product {
  bool product;
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return product ? a * b : a + b;
  }
};
template <typename S>
struct wide_of {
  typedef double W;
};
template <>
struct wide_of<int64_t> {
  typedef int64_t W;
};
enum { SCAN = 4 };  // elements of a thread at a time

// The share of a group of `lanes` threads: a chunk of a row.
struct piece {
  int64_t row, chunk, begin, end, at;
  int lane, lanes;
  bool real;
  __device__ __forceinline__ piece(const k_lines &p, int64_t base, int lanes) : lanes(lanes) {
    int64_t g = base + threadIdx.x / lanes;
    lane = threadIdx.x % lanes;
    row = g / p.chunks, chunk = g % p.chunks;
    real = row < p.outer * p.inner;
    begin = chunk * p.width;
    end = !real ? begin : begin + p.width < p.size ? begin + p.width : p.size;
    at = row / p.inner * p.size * p.inner + row % p.inner;
  }
  __device__ __forceinline__ int64_t place(const k_lines &p, int64_t i) const {
    return at + (p.backwards ? p.size - 1 - i : i) * p.inner;
  }
};
template <typename F>
static __device__ __forceinline__ void each_piece(const k_lines &p, F f) {
  int lanes = p.inner == 1 ? 32 : 1;
  int64_t each = blockDim.x / lanes, total = p.outer * p.inner * p.chunks;
#pragma unroll 1
  for (int64_t b = blockIdx.x * each; b < total; b += gridDim.x * each) f(piece(p, b, lanes));
}
// Elements i, i + 1 and so on of the piece; the unit beyond its end.
template <typename S, typename W>
static __device__ __forceinline__ void scan_load(W *x, const k_lines &p, const piece &k, int64_t i,
                                                 W unit) {
#pragma unroll
  for (int e = 0; e < SCAN; e++)
    x[e] = i + e < k.end ? (W)k_get(((const S *)p.in)[k.place(p, i + e)]) : unit;
}

template <typename S>
static __device__ __forceinline__ void scan_totals_body(const k_lines &p) {
  typedef typename wide_of<S>::W W;
  const sum_or_product f = {p.product != 0};
  const W unit = p.product ? 1 : 0;
  each_piece(p, [&](const piece &k) {
    W total = unit, x[SCAN];
#pragma unroll 2
    for (int64_t i = k.begin + k.lane * SCAN; i < k.end; i += k.lanes * SCAN) {
      scan_load<S>(x, p, k, i, unit);
#pragma unroll
      for (int e = 0; e < SCAN; e++) total = f(total, x[e]);
    }
    total = k_join(total, k.lanes, f);
    if (k.lane == 0 && k.real) ((W *)p.keys)[k.row * p.chunks + k.chunk] = total;
  });
}
template <typename S>
static __device__ __forceinline__ void scan_body(const k_lines &p) {
  typedef typename wide_of<S>::W W;
  const sum_or_product f = {p.product != 0};
  const W unit = p.product ? 1 : 0;
  each_piece(p, [&](const piece &k) {
    W carry = unit, x[SCAN];
#pragma unroll 1
    for (int64_t c = k.lane; k.real && c < k.chunk; c += k.lanes)
      carry = f(carry, ((const W *)p.keys)[k.row * p.chunks + c]);
    carry = k_join(carry, k.lanes, f);
#pragma unroll 1
    for (int64_t base = k.begin; base < k.end; base += k.lanes * SCAN) {
      int64_t i = base + k.lane * SCAN;
      scan_load<S>(x, p, k, i, unit);
#pragma unroll
      for (int e = 1; e < SCAN; e++) x[e] = f(x[e - 1], x[e]);
      W total = x[SCAN - 1], before = carry;
      if (k.lanes > 1) {
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
          W left = __shfl_up_sync(0xffffffffu, total, step);
          if (k.lane >= step) total = f(left, total);
        }
        W left = __shfl_up_sync(0xffffffffu, total, 1);
        if (k.lane > 0) before = f(carry, left);
        total = __shfl_sync(0xffffffffu, total, 31);
      }
      carry = f(carry, total);
#pragma unroll
      for (int e = 0; e < SCAN; e++)
        if (i + e < k.end) k_put((S *)p.out + k.place(p, i + e), f(before, x[e]));
    }
  });
}
K_KERNEL(scan, i64, int64_t, k_lines)
K_FLOATS(scan, k_lines)
K_KERNEL(scan_totals, i64, int64_t, k_lines)
K_FLOATS(scan_totals, k_lines)

// The gradient of cumprod without a division: with a_i = g_i + x_(i+1) a_(i+1), it is the product
// before i, times a_i. `keys` has room for the products. A thread a line.
template <typename S>
static __device__ __forceinline__ void cumprod_backward_body(const k_lines &p) {
#pragma unroll 1
  for (int64_t row = k_thread(); row < p.outer * p.inner; row += k_threads()) {
    int64_t at = row / p.inner * p.size * p.inner + row % p.inner;
    const S *g = (const S *)p.in + at, *x = (const S *)p.other + at;
    S *before = (S *)p.keys + at, *to = (S *)p.out + at, product = 1, tail = 0;
    for (int64_t i = 0; i < p.size; i++) {
      before[i * p.inner] = product;
      product *= x[i * p.inner];
    }
    for (int64_t i = p.size - 1; i >= 0; i--) {
      tail += g[i * p.inner];
      to[i * p.inner] = before[i * p.inner] * tail;
      tail *= x[i * p.inner];
    }
  }
}
K_KERNEL(cumprod_backward, i64, int64_t, k_lines)
K_KERNEL(cumprod_backward, f64, double, k_lines)

// ---- sorting: a stable merge sort of all lines at once. Lines are gathered, one behind the other,
// with the places of their elements; tiles are sorted in shared memory, then a pass merges runs of
// `width` in pairs, each element finding its place in the pair by how many of the other run go
// before it.

template <typename S>
static __device__ __forceinline__ bool less(S a, S b) {  // NaN is the greatest
  return a < b || (b != b && a == a);
}
template <typename S>
static __device__ __forceinline__ void sort_gather_body(const k_lines &p) {
  int64_t n = p.outer * p.size * p.inner;
#pragma unroll 1
  for (int64_t i = k_thread(); i < n; i += k_threads()) {
    int64_t line = i / p.size, k = i % p.size;
    int64_t at = (line / p.inner * p.size + k) * p.inner + line % p.inner;
    ((S *)p.keys)[i] = ((const S *)p.in)[at];
    p.places[i] = k;
  }
}
K_KERNEL(sort_gather, i64, int64_t, k_lines)
K_KERNEL(sort_gather, f32, float, k_lines)
K_KERNEL(sort_gather, f64, double, k_lines)

// Where element k of a line goes when runs of `width` are merged in pairs.
template <typename I, typename S>
static __device__ __forceinline__ I merged_place(const S *keys, I k, I width, I size, bool down) {
  S x = keys[k];
  I pair = k & ~(2 * width - 1), middle = pair + width, end = middle + width;  // powers of two
  middle = middle < size ? middle : size, end = end < size ? end : size;
  bool first = k < middle;
  // Of the other run: elements before x, or, for the second run, not after it.
  I low = first ? middle : pair, high = first ? end : middle, start = low;
  while (low < high) {
    I m = (low + high) / 2;
    S y = keys[m];
    bool before = first ? (down ? less(x, y) : less(y, x)) : !(down ? less(y, x) : less(x, y));
    if (before)
      low = m + 1;
    else
      high = m;
  }
  return pair + (k - (first ? pair : middle)) + (low - start);
}

// A block sorts a tile: several short lines, or a piece of a long one.
template <typename S>
static __device__ __forceinline__ void sort_tiles_body(const k_lines &p) {
  enum { EACH = K_SORT_TILE / K_BLOCK };
  __shared__ S keys[2][K_SORT_TILE];
  __shared__ uint16_t at[2][K_SORT_TILE];
  int64_t n = p.outer * p.size * p.inner, size = p.size;
  int64_t tiles = size > K_SORT_TILE ? (size + K_SORT_TILE - 1) / K_SORT_TILE : 1;
  int64_t each = size > K_SORT_TILE ? size : K_SORT_TILE / size * size;  // of the tiles of a group
  int64_t first = blockIdx.x / tiles * each + blockIdx.x % tiles * K_SORT_TILE;
  int64_t last = blockIdx.x / tiles * each + each < n ? blockIdx.x / tiles * each + each : n;
  int count = last - first < K_SORT_TILE ? (int)(last - first) : K_SORT_TILE;
  int line = size < K_SORT_TILE ? (int)size : K_SORT_TILE, now = 0;
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    int k = threadIdx.x + e * K_BLOCK;
    if (k < count) keys[0][k] = ((const S *)p.keys)[first + k], at[0][k] = (uint16_t)k;
  }
#pragma unroll 1
  for (int width = 1; width < line; width *= 2, now ^= 1) {
    __syncthreads();
#pragma unroll 1
    for (int e = 0; e < EACH; e++) {
      int k = threadIdx.x + e * K_BLOCK, base = k / line * line;
      if (k >= count) break;
      int here = count - base < line ? count - base : line;
      int to = base + merged_place<int>(&keys[now][base], k - base, width, here, p.down);
      keys[now ^ 1][to] = keys[now][k], at[now ^ 1][to] = at[now][k];
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int e = 0; e < EACH; e++) {
    int k = threadIdx.x + e * K_BLOCK;
    if (k >= count) break;
    ((S *)p.keys_to)[first + k] = keys[now][k];
    p.places_to[first + k] = p.places[first + at[now][k]];
  }
}
#define SORT_TILES(suffix, S) \
  extern "C" __global__ void __launch_bounds__(K_BLOCK) \
      sort_tiles_##suffix(const __grid_constant__ k_lines p) { \
    sort_tiles_body<S>(p); \
  }
SORT_TILES(i64, int64_t)
SORT_TILES(f32, float)
SORT_TILES(f64, double)

template <typename S>
static __device__ __forceinline__ void sort_pass_body(const k_lines &p) {
  int64_t n = p.outer * p.size * p.inner;
#pragma unroll 1
  for (int64_t i = k_thread(); i < n; i += k_threads()) {
    int64_t k = i % p.size, base = i - k;
    const S *keys = (const S *)p.keys + base;
    int64_t to = base + merged_place<int64_t>(keys, k, p.width, p.size, p.down);
    ((S *)p.keys_to)[to] = keys[k];
    p.places_to[to] = p.places[i];
  }
}
K_KERNEL(sort_pass, i64, int64_t, k_lines)
K_KERNEL(sort_pass, f32, float, k_lines)
K_KERNEL(sort_pass, f64, double, k_lines)

// The first `take` elements of each tile of a line, one behind the other: what is among the first
// of the line is among them.
template <typename S>
static __device__ __forceinline__ void sort_keep_body(const k_lines &p) {
  int64_t tiles = (p.size + K_SORT_TILE - 1) / K_SORT_TILE,
          last = p.size - (tiles - 1) * K_SORT_TILE;
  int64_t size = (tiles - 1) * p.take + (last < p.take ? last : p.take);
#pragma unroll 1
  for (int64_t i = k_thread(); i < p.outer * p.inner * size; i += k_threads()) {
    int64_t line = i / size, k = i % size;
    int64_t from = line * p.size + k / p.take * K_SORT_TILE + k % p.take;
    ((S *)p.keys_to)[i] = ((const S *)p.keys)[from];
    p.places_to[i] = p.places[from];
  }
}
K_KERNEL(sort_keep, i64, int64_t, k_lines)
K_KERNEL(sort_keep, f32, float, k_lines)
K_KERNEL(sort_keep, f64, double, k_lines)

// `take` elements of each line, from `skip` on, to out and indices.
template <typename S>
static __device__ __forceinline__ void sort_take_body(const k_lines &p) {
  int64_t n = p.outer * p.take * p.inner;
#pragma unroll 1
  for (int64_t i = k_thread(); i < n; i += k_threads()) {
    int64_t r = i % p.inner, k = i / p.inner % p.take, o = i / (p.inner * p.take);
    int64_t from = (o * p.inner + r) * p.size + p.skip + k;
    ((S *)p.out)[i] = ((const S *)p.keys)[from];
    p.indices[i] = p.places[from];
  }
}
K_KERNEL(sort_take, i64, int64_t, k_lines)
K_KERNEL(sort_take, f32, float, k_lines)
K_KERNEL(sort_take, f64, double, k_lines)
