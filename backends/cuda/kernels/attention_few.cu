// SPDX-License-Identifier: Apache-2.0
// Attention for few queries, as in decoding: one block per query, where a tile would be nearly
// empty. Keys and values are read once in 16-byte vectors, so the kernel is bound by memory or
// launch overhead. Groups of threads process one row of keys and values at a time with their own
// online softmax (Milakov and Gimelshein 2018); the groups are joined at the end in a fixed
// order. Heads of up to 32, 64 and 128 elements have separate kernels few_WIDTH.
#include "attention.cuh"

enum { AHEAD = 4 };  // rows in flight

// Loads N numbers of a row from element `from` on; 0 past its end.
template <typename S, int N>
static __device__ __forceinline__ void read_row(float (&x)[N], const S *row, int from, int width) {
  if (from + N <= width) {
    k_loaded<S, N> v = *(const k_loaded<S, N> *)(row + from);
#pragma unroll
    for (int k = 0; k < N; k++) x[k] = k_get(v[k]);
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) x[k] = from + k < width ? k_get(row[from + k]) : 0;
  }
}
template <int LANES>
static __device__ __forceinline__ float sum_of(float x) {
#pragma unroll
  for (int step = LANES / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// A block's query: offsets of its key and value rows, and of its mask.
template <typename S>
struct one_query {
  int64_t row, mask;
  int end;
  const S *query, *key, *value;
  S *output;
  __device__ __forceinline__ explicit one_query(const k_attention &p) : row(blockIdx.x) {
    int i = (int)(row % p.length), head = (int)(row / p.length % p.heads);
    int batch = (int)(row / p.length / p.heads), group = head / (p.heads / p.groups);
    end = p.causal && p.key_length > i + 1 ? i + 1 : p.key_length;
    query = at(p.query, batch, head, i), output = (S *)at(p.output, batch, head, i);
    key = at(p.key, batch, group, 0), value = at(p.value, batch, group, 0);
    mask = batch * p.mask_strides[0] + head * p.mask_strides[1] + i * p.mask_strides[2];
  }
  static __device__ __forceinline__ const S *at(const k_heads &of, int batch, int head, int i) {
    return (const S *)of.at + batch * of.strides[0] + head * of.strides[1] + i * of.strides[2];
  }
};

// A group's online softmax: maximum score, sum of powers, weighted sum of values.
template <int N>
struct partial_softmax {
  float top, sum, out[N];
  __device__ __forceinline__ void take(const float (&s)[AHEAD], const float (&values)[AHEAD][N]) {
    float maximum = top;
#pragma unroll
    for (int a = 0; a < AHEAD; a++) maximum = fmaxf(maximum, s[a]);
    float base = maximum == -infinity() ? 0 : maximum, keep = power(top - base);
    top = maximum, sum *= keep;
#pragma unroll
    for (int k = 0; k < N; k++) out[k] *= keep;
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      if (s[a] == -infinity()) continue;  // masked or missing
      float weight = power(s[a] - base);
      sum += weight;
#pragma unroll
      for (int k = 0; k < N; k++) out[k] += weight * values[a][k];
    }
  }
};

template <typename S, int D>
static __device__ __forceinline__ void few_body(const k_attention &p) {
  enum { N = 16 / sizeof(S), LANES = D / N, GROUPS = K_FEW_BLOCK / LANES };
  __shared__ float tops[GROUPS], sums[GROUPS], outs[GROUPS][D];
  const one_query<S> at(p);
  int group = threadIdx.x / LANES, from = threadIdx.x % LANES * N;
  float query[N];
  partial_softmax<N> mine = {-infinity(), 0, {}};
  read_row(query, at.query, from, p.width);
  for (int first = group; first - group < at.end; first += GROUPS * AHEAD) {
    float keys[AHEAD][N], values[AHEAD][N], s[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      int64_t j = first + a * GROUPS;
      int exists = j < at.end;  // 0: nothing is read
      read_row(keys[a], at.key + j * p.key.strides[2], from, exists * p.width);
      read_row(values[a], at.value + j * p.value.strides[2], from, exists * p.value_width);
    }
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      int64_t j = first + a * GROUPS;
      float x = 0;
#pragma unroll
      for (int k = 0; k < N; k++) x += query[k] * keys[a][k];
      s[a] = sum_of<LANES>(x) * (p.scale * log2_e);
      if (j >= at.end)
        s[a] = -infinity();
      else if (p.mask)
        s[a] += k_masked(p, at.mask + j * p.mask_strides[3]);
    }
    mine.take(s, values);
  }
  if (from == 0) tops[group] = mine.top, sums[group] = mine.sum;
#pragma unroll
  for (int k = 0; k < N; k++) outs[group][from + k] = mine.out[k];
  __syncthreads();
  int column = threadIdx.x;
  if (column >= D) return;
  float top = -infinity(), sum = 0, out = 0;
  for (int g = 0; g < GROUPS; g++) top = fmaxf(top, tops[g]);
  for (int g = 0; g < GROUPS; g++) {
    float times = tops[g] == -infinity() ? 0 : power(tops[g] - top);
    sum += sums[g] * times, out += outs[g][column] * times;
  }
  if (column < p.value_width) k_put(at.output + column, sum == 0 ? 0 : out / sum);
  if (column == 0) p.logsumexp[at.row] = sum == 0 ? infinity() : (top + log2f(sum)) * ln_2;
}

#define FEW(D, suffix, S) \
  extern "C" __global__ void __launch_bounds__(K_FEW_BLOCK) \
      few_##D##_##suffix(const __grid_constant__ k_attention p) { \
    k_wait(); \
    few_body<S, D>(p); \
  }
#define WIDTHS(suffix, S) FEW(32, suffix, S) FEW(64, suffix, S) FEW(128, suffix, S)
WIDTHS(f16, __half)
WIDTHS(bf16, __nv_bfloat16)
WIDTHS(f32, float)
