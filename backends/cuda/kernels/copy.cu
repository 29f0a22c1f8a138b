// SPDX-License-Identifier: Apache-2.0
// Copies: raw elements of 1, 2, 4 and 8 bytes, dense, strided or transposing; and conversions, a
// function for each target dtype that asks for the source's when it runs.
#include "loop.cuh"

// ---- the same dtype

template <typename S>
static __device__ __forceinline__ void raw_body(const k_loop &p) {
  k_each<S, 16 / sizeof(S)>(
      p, [](S x) { return x; }, k_in<S, 1, 16 / sizeof(S)>(p));
}
K_KERNEL(raw, 1, uint8_t, k_loop)
K_KERNEL(raw, 2, int16_t, k_loop)
K_KERNEL(raw, 4, int32_t, k_loop)
K_KERNEL(raw, 8, int64_t, k_loop)

// A tile of 32 x 32 goes through shared memory, so that both sides are walked along what is dense.
template <typename S>
static __device__ __forceinline__ void tiles_body(const k_tiles &p) {
  __shared__ S room[32][33];
  int x = threadIdx.x & 31, y = threadIdx.x >> 5;
  int64_t each = p.tiles_down * p.tiles_across;
  for (int64_t t = blockIdx.x; t < each * p.batch; t += gridDim.x) {
    int64_t plane = t / each, tile = t % each, to = 0, from = 0;
    for (int d = 0; d < p.ndim; d++) {
      int64_t at = plane % p.sizes[d];
      plane /= p.sizes[d];
      to += at * p.to_strides[d], from += at * p.from_strides[d];
    }
    int64_t row0 = tile / p.tiles_across * 32, column0 = tile % p.tiles_across * 32;
    __syncthreads();
    for (int k = y; k < 32; k += 8) {
      int64_t row = row0 + x, column = column0 + k;
      if (row < p.rows && column < p.columns)
        room[k][x] = ((const S *)p.from)[from + column * p.from_step + row];
    }
    __syncthreads();
    for (int k = y; k < 32; k += 8) {
      int64_t row = row0 + k, column = column0 + x;
      if (row < p.rows && column < p.columns)
        ((S *)p.to)[to + row * p.to_step + column] = room[x][k];
    }
  }
}
K_KERNEL(tiles, 1, uint8_t, k_tiles)
K_KERNEL(tiles, 2, int16_t, k_tiles)
K_KERNEL(tiles, 4, int32_t, k_tiles)
K_KERNEL(tiles, 8, int64_t, k_tiles)

// ---- between dtypes: the element is a number of the source's on the way

template <typename D, typename S>
static __device__ __forceinline__ void convert_pair(const k_loop &p) {
  typedef typename k_type<S>::number C;
  k_each<D, 2>(
      p, [](C x) { return x; }, k_in<S, 1, 2>(p));
}
template <typename D>
static __device__ __forceinline__ void convert_body(const k_loop &p) {
  switch (p.dtype[1]) {
#define XX(name, type) \
  case name: \
    convert_pair<D, type>(p); \
    break;
    K_EACH_DTYPE(XX)
#undef XX
  }
}
K_KERNEL(convert, bool, k_bool, k_loop)
K_KERNEL(convert, u8, uint8_t, k_loop)
K_KERNEL(convert, i8, int8_t, k_loop)
K_KERNEL(convert, i16, int16_t, k_loop)
K_KERNEL(convert, i32, int32_t, k_loop)
K_KERNEL(convert, i64, int64_t, k_loop)
K_KERNEL(convert, f16, __half, k_loop)
K_KERNEL(convert, bf16, __nv_bfloat16, k_loop)
K_KERNEL(convert, f32, float, k_loop)
K_KERNEL(convert, f64, double, k_loop)
