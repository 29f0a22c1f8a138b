// SPDX-License-Identifier: Apache-2.0
// Row tiles in shared memory and their products on tensor cores (mma.sync m16n8k8, TF32).
//
// PARTS = 3: each float is split into two TF32 numbers and each product into three, for float32
// accuracy. The products of a tile are summed separately, since tensor core additions do not
// round to nearest. PARTS = 1: operands are rounded to TF32, exact for fp16 and bf16.
//
// A tile has rows of D elements with a stride of D + 4: an odd multiple of 16 bytes. A warp
// computes 16 rows of a product for each M. mma assigns rows and columns by lane / 4; here lane
// / 4 maps to row k_row_of_lane(lane / 4) of eight, so 16-byte reads of eight lanes cover 32 banks.
// Along the summed dimension, any order is correct if both operands use the same.
#pragma once
#include "cuda/attention_params.h"
#include "device.cuh"

enum { STREAMED_EIGHTS = K_STREAMED / 8, WARPS = K_ATTENTION_BLOCK / 32 };

// Scores are base-2 logarithms.
static const float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
static __device__ __forceinline__ float power(float x) { return exp2f(x); }
static __device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

static __device__ __forceinline__ int k_row_of_lane(int x) { return x >> 1 | (x & 1) << 2; }
// A thread's position in its warp: its first row (the second is 8 below), and its first column
// of eight (the second is 4 to the right). Element e of four is at row + e / 2 * 8 and column +
// e % 2 * 4.
struct lane_position {
  int row, column;
};
static __device__ __forceinline__ lane_position k_lane_position() {
  int lane = threadIdx.x & 31;
  return {k_row_of_lane(lane >> 2), lane & 3};
}
template <int D>
struct tile {
  enum { STEP = D + 4, STREAMED = K_STREAMED * STEP };
};

// ---- split floats

struct k_parts {
  uint32_t big, small;
};
template <int PARTS>
static __device__ __forceinline__ k_parts k_part(float x) {
  uint32_t big = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
  return {big, PARTS == 3 ? __float_as_uint(x - __uint_as_float(big)) : 0u};
}
// A thread's fragment of the left (N = 4) or right (N = 2) operand for eight steps of the sum.
template <int PARTS, int N>
struct k_side {
  uint32_t big[N], small[PARTS == 3 ? N : 1];
  __device__ __forceinline__ void set(int i, float x) {
    k_parts parts = k_part<PARTS>(x);
    big[i] = parts.big;
    if (PARTS == 3) small[i] = parts.small;
  }
};
static __device__ __forceinline__ void k_mma(float (&c)[4], const uint32_t *a, const uint32_t *b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Small parts are multiplied first. Consecutive products are independent.
template <int PARTS, int M, int N>
static __device__ __forceinline__ void k_multiply(float (&c)[M][N][4],
                                                  const k_side<PARTS, 4> (&a)[M],
                                                  const k_side<PARTS, 2> (&b)[N]) {
#pragma unroll
  for (int kind = PARTS - 1; kind >= 0; kind--)
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int n = 0; n < N; n++)
        k_mma(c[m][n], kind == 2 ? a[m].small : a[m].big, kind == 1 ? b[n].small : b[n].big);
}

// ---- products of tiles

// c = the warp's rows of `a` times the streamed rows of `b`, transposed: all pairs of rows. A
// thread reads four adjacent elements of a row, for two steps of the sum.
template <int D, int PARTS, int M>
static __device__ __forceinline__ void k_pairs(float (&c)[M][STREAMED_EIGHTS][4], const float *a,
                                               const float *b) {
  enum { STEP = tile<D>::STEP };
  lane_position s = k_lane_position();
  a += s.row * STEP + 4 * s.column, b += s.row * STEP + 4 * s.column;
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < STREAMED_EIGHTS; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[m][n][e] = 0;
#pragma unroll 4
  for (int k = 0; k < D; k += 16) {
    float4 x[M][2], y[STREAMED_EIGHTS];
#pragma unroll
    for (int m = 0; m < 2 * M; m++) x[m / 2][m % 2] = *(const float4 *)(a + m * 8 * STEP + k);
#pragma unroll
    for (int n = 0; n < STREAMED_EIGHTS; n++) y[n] = *(const float4 *)(b + n * 8 * STEP + k);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      k_side<PARTS, 4> left[M];
      k_side<PARTS, 2> right[STREAMED_EIGHTS];
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          float4 v = x[m][e % 2];
          left[m].set(e, half ? (e / 2 ? v.w : v.z) : (e / 2 ? v.y : v.x));
        }
#pragma unroll
      for (int n = 0; n < STREAMED_EIGHTS; n++) {
        right[n].set(0, half ? y[n].z : y[n].x);
        right[n].set(1, half ? y[n].w : y[n].y);
      }
      k_multiply<PARTS>(c, left, right);
    }
  }
}
// to = to * keep + p times the streamed rows of `b`, with p in the layout of k_pairs. A thread
// holds four adjacent elements of every 32 of `b`; to[..][e][k] is element
// e / 4 * 32 + k % 2 * 16 + 4 * column + e % 4 of a row.
template <int D, int PARTS, int M>
static __device__ __forceinline__ void k_weigh(float (&to)[M][D / 8][4], const float (&keep)[M][2],
                                               const float (&p)[M][STREAMED_EIGHTS][4],
                                               const float *b) {
  enum { STEP = tile<D>::STEP };
  lane_position s = k_lane_position();
  b += s.column * STEP + 4 * s.row;
#pragma unroll
  for (int h = 0; h < D / 32; h++) {
    float sum[M][4][4] = {};
#pragma unroll
    for (int k = 0; k < STREAMED_EIGHTS; k++) {
      k_side<PARTS, 4> left[M];
      k_side<PARTS, 2> right[4];
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int e = 0; e < 4; e++) left[m].set(e, p[m][k][e % 2 * 2 + e / 2]);
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float4 y = *(const float4 *)(b + (8 * k + 4 * e) * STEP + 32 * h);
        right[0].set(e, y.x), right[1].set(e, y.y), right[2].set(e, y.z), right[3].set(e, y.w);
      }
      k_multiply<PARTS>(sum, left, right);
    }
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int i = 0; i < 16; i++) {
        float &x = to[m][4 * h + i / 4][i % 4];
        x = x * keep[m][i % 4 / 2] + sum[m][i / 4][i % 4];
      }
  }
}

// ---- rows

// Rows of a head in memory: `end` rows of `width` elements at stride `step`.
struct head {
  char *at;
  int64_t step;  // bytes
  int end, width, dtype;
};
static __device__ __forceinline__ head k_head(const k_attention &p, const k_heads &from, int batch,
                                              int number, int end, int width) {
  int64_t item = p.dtype == K_FLOAT32 ? 4 : 2;
  char *at = (char *)from.at + (batch * from.strides[0] + number * from.strides[1]) * item;
  return {at, from.strides[2] * item, end, width, p.dtype};
}
static __device__ __forceinline__ float k_half_of(uint32_t bits, int dtype) {
  if (dtype == K_BFLOAT16) return __uint_as_float(bits << 16);
  return __half2float(__ushort_as_half((unsigned short)bits));
}
// Addend of mask element i to a score: -inf if masked.
static __device__ __forceinline__ float k_masked(const k_attention &p, int64_t i) {
  if (p.mask_dtype == K_BOOL) return ((const uint8_t *)p.mask)[i] ? 0 : -infinity();
  if (p.mask_dtype == K_FLOAT32) return ((const float *)p.mask)[i] * log2_e;
  return k_half_of(((const uint16_t *)p.mask)[i], p.mask_dtype) * log2_e;
}
static __device__ __forceinline__ uint32_t k_bits_of(float x, int dtype) {
  if (dtype == K_BFLOAT16) return __bfloat16_as_ushort(__float2bfloat16_rn(x));
  return __half_as_ushort(__float2half_rn(x));
}
// Starts an asynchronous copy of four elements as floats; elements from `left` on become zeros.
// Vectors are aligned to 16 bytes (8 for fp16 and bf16), so reading past the last element is
// safe.
template <int PARTS>
static __device__ __forceinline__ void k_fetch_four(float *to, const char *from, int left,
                                                    int dtype) {
  if (PARTS == 3 || dtype == K_FLOAT32) {
    int bytes = left <= 0 ? 0 : left < 4 ? 4 * left : 16;
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes)
                 : "memory");
    return;
  }
  uint2 w = left > 0 ? *(const uint2 *)from : make_uint2(0, 0);
  *(float4 *)to = make_float4(
      left > 0 ? k_half_of(w.x & 0xffff, dtype) : 0, left > 1 ? k_half_of(w.x >> 16, dtype) : 0,
      left > 2 ? k_half_of(w.y & 0xffff, dtype) : 0, left > 3 ? k_half_of(w.y >> 16, dtype) : 0);
}
// Starts the copies of ROWS rows from `first` on; missing rows become zeros. Coalesced: adjacent
// threads copy adjacent vectors of a row.
template <int D, int PARTS, int ROWS>
static __device__ __forceinline__ void k_fetch(float *to, const head &from, int first) {
#pragma unroll
  for (int i = 0; i < ROWS * (D / 4) / K_ATTENTION_BLOCK; i++) {
    int vector = i * K_ATTENTION_BLOCK + threadIdx.x, row = vector / (D / 4);
    int column = vector % (D / 4) * 4, left = first + row < from.end ? from.width - column : 0;
    int64_t at = left > 0 ? (first + row) * from.step : 0;
    const char *source = from.at + at + (left > 0 ? column : 0) * (from.dtype == K_FLOAT32 ? 4 : 2);
    k_fetch_four<PARTS>(to + row * tile<D>::STEP + column, source, left, from.dtype);
  }
}
static __device__ __forceinline__ void k_commit_fetches() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits for all copies started before the last k_commit_fetches().
static __device__ __forceinline__ void k_await_fetches() {
  asm volatile("cp.async.wait_group 1;" ::: "memory");
  __syncthreads();
}

// Writes up to four elements of a row.
template <int PARTS>
static __device__ __forceinline__ void k_store_four(char *to, float4 x, int left, int dtype) {
  if (left <= 0) return;
  bool is_full = left >= 4;
  if (PARTS == 3 || dtype == K_FLOAT32) {
    if (is_full) {
      *(float4 *)to = x;
      return;
    }
    ((float *)to)[0] = x.x;
    if (left > 1) ((float *)to)[1] = x.y;
    if (left > 2) ((float *)to)[2] = x.z;
    return;
  }
  uint2 w = {k_bits_of(x.x, dtype) | k_bits_of(x.y, dtype) << 16,
             k_bits_of(x.z, dtype) | k_bits_of(x.w, dtype) << 16};
  if (is_full) {
    *(uint2 *)to = w;
    return;
  }
  ((uint16_t *)to)[0] = (uint16_t)w.x;
  if (left > 1) ((uint16_t *)to)[1] = (uint16_t)(w.x >> 16);
  if (left > 2) ((uint16_t *)to)[2] = (uint16_t)w.y;
}
// Writes the sums of k_weigh, scaled by a factor for each row. `first`: the warp's first row.
template <int D, int PARTS, int M>
static __device__ __forceinline__ void k_store_rows(const head &to, int first,
                                                    const float (&from)[M][D / 8][4],
                                                    const float (&times)[M][2]) {
  lane_position s = k_lane_position();
  int item = to.dtype == K_FLOAT32 ? 4 : 2;
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int row = first + 16 * m + 8 * half + s.row;
      if (row >= to.end) continue;
      float t = times[m][half];
#pragma unroll
      for (int k = 0; k < D / 16; k++) {
        int column = k * 16 + 4 * s.column, n = k / 2 * 4, e = 2 * half + k % 2;
        float4 x = make_float4(from[m][n][e] * t, from[m][n + 1][e] * t, from[m][n + 2][e] * t,
                               from[m][n + 3][e] * t);
        k_store_four<PARTS>(to.at + row * to.step + column * item, x, to.width - column, to.dtype);
      }
    }
}
