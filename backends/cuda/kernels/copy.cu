// SPDX-License-Identifier: Apache-2.0
// Copies and conversions. Elements of 1, 2, 4 and 8 bytes are copied dense, strided or transposed.
// Conversions have one function for each target dtype and select the source dtype at run time.
// Launches and accesses are those of loop.cuh, except tiles.
#include "loop.cuh"

// ---- equal dtypes

template <typename S>
static __device__ __forceinline__ void raw_body(const k_loop &p) {
  k_each<S, 16 / sizeof(S)>(
      p, [](S x) { return x; }, k_in<S, 1, 16 / sizeof(S)>(p));
}
K_KERNEL(raw, 1, uint8_t, k_loop)
K_KERNEL(raw, 2, int16_t, k_loop)
K_KERNEL(raw, 4, int32_t, k_loop)
K_KERNEL(raw, 8, int64_t, k_loop)

// Transposes tiles of T x T elements through shared memory, in vectors of V. Both sides are
// accessed along their dense dimension. A block of K_BLOCK threads loops over tiles. Shared rows
// are padded by one word against bank conflicts.
template <typename S, int T, int V>
static __device__ __forceinline__ void tiles(const k_tiles &p) {
  enum { WORD = sizeof(S) * V < 4 ? V : 4 / (sizeof(S) < 4 ? sizeof(S) : 4) };  // elements
  __shared__ alignas(16) S tile_memory[T][T + WORD];
  int x = threadIdx.x % (T / V) * V, y = threadIdx.x / (T / V);
  int64_t each = p.tiles_down * p.tiles_across;
  for (int64_t t = blockIdx.x; t < each * p.batch; t += gridDim.x) {
    int64_t plane = k_quotient(t, each), tile = t - plane * each, to = 0, from = 0;
#pragma unroll 1
    for (int d = 0; d < p.ndim; d++) {
      int64_t next = k_quotient(plane, p.sizes[d]), at = plane - next * p.sizes[d];
      plane = next;
      to += at * p.to_strides[d], from += at * p.from_strides[d];
    }
    int64_t across = k_quotient(tile, p.tiles_down), down = tile - across * p.tiles_down;
    int64_t row0 = down * T, column0 = across * T;
    __syncthreads();
#pragma unroll
    for (int k = y; k < T; k += K_BLOCK * V / T) {
      int64_t row = row0 + x, column = column0 + k;
      if (row >= p.rows || column >= p.columns) continue;
      k_vector<S, V> v =
          *(const k_vector<S, V> *)((const S *)p.from + from + column * p.from_step + row);
#pragma unroll
      for (int j = 0; j < V; j += WORD)
        *(k_vector<S, WORD> *)&tile_memory[k][x + j] = *(const k_vector<S, WORD> *)&v.v[j];
    }
    __syncthreads();
#pragma unroll
    for (int k = y; k < T; k += K_BLOCK * V / T) {
      int64_t row = row0 + k, column = column0 + x;
      if (row >= p.rows || column >= p.columns) continue;
      k_vector<S, V> v;
#pragma unroll
      for (int j = 0; j < V; j++) v.v[j] = tile_memory[x + j][k];
      *(k_vector<S, V> *)((S *)p.to + to + row * p.to_step + column) = v;
    }
  }
}
template <typename S>
static __device__ __forceinline__ void tiles_body(const k_tiles &p) {
  tiles<S, 32, 1>(p);
}
K_KERNEL(tiles, 1, uint8_t, k_tiles)
K_KERNEL(tiles, 2, uint16_t, k_tiles)
K_KERNEL(tiles, 4, uint32_t, k_tiles)
K_KERNEL(tiles, 8, uint64_t, k_tiles)
template <typename S>
static __device__ __forceinline__ void wide_tiles_body(const k_tiles &p) {
  tiles<S, K_WIDE_TILE(sizeof(S)), 16 / sizeof(S)>(p);
}
K_KERNEL(wide_tiles, 1, uint8_t, k_tiles)
K_KERNEL(wide_tiles, 2, uint16_t, k_tiles)
K_KERNEL(wide_tiles, 4, uint32_t, k_tiles)
K_KERNEL(wide_tiles, 8, uint64_t, k_tiles)

// ---- conversions, through the source's compute type

template <typename D, typename S>
static __device__ __forceinline__ void convert_pair(const k_loop &p) {
  typedef typename k_type<S>::number C;
  const int N = sizeof(D) == 8 || sizeof(S) == 8 ? 2 : 4;
  k_each<D, N>(
      p, [](C x) { return x; }, k_in<S, 1, N>(p));
}
template <typename D>
static __device__ __forceinline__ void convert_body(const k_loop &p) {
  switch (p.dtype[1]) {
#define XX(name, suffix, ...) \
  case K_##name: \
    convert_pair<D, k_##suffix>(p); \
    break;
    PX_DTYPE_COMPUTED_MAP(XX)
#undef XX
  }
}
#define XX(name, suffix, ...) K_KERNEL(convert, suffix, k_##suffix, k_loop)
PX_DTYPE_COMPUTED_MAP(XX)
#undef XX
