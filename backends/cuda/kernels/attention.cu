// SPDX-License-Identifier: Apache-2.0
// Tiled attention without materialised scores (Dao 2023, FlashAttention-2; Milakov and
// Gimelshein 2018, online softmax). Sums have a fixed order: no atomics.
//
// A block of K_ATTENTION_BLOCK threads owns a tile of rows, divided among its warps: queries in
// `forward` and `backward_query`, keys in `backward_keys`. The other operand streams past in
// tiles of K_STREAMED rows, double-buffered. Blocks start with the longest causal tile of the
// first head. Heads of up to 32, 64 and 128 elements have separate kernels NAME_WIDTH_PARTS.
#include "attention.cuh"
#include "philox.cuh"

// A block's work: rows of one of `heads` heads from `first` on, in tiles of `rows`.
struct work {
  int batch, head, group, first;
  __device__ __forceinline__ work(const k_attention &p, int heads, int length, int rows,
                                  bool last) {
    int tiles = (length + rows - 1) / rows, all = (int)(blockIdx.x / tiles);
    int i = (int)(blockIdx.x % tiles);
    batch = all / heads, head = all % heads, first = (last ? tiles - 1 - i : i) * rows;
    group = heads == p.groups ? head : head / (p.heads / p.groups);
  }
};
// Index of a query's row among all rows.
static __device__ __forceinline__ int64_t row_of(const k_attention &p, int batch, int head, int i) {
  return ((int64_t)batch * p.heads + head) * p.length + i;
}

// ---- scores

// A warp's part of a tile of scores: `own` is its first row, `streamed` the first streamed row.
// TRANSPOSED: rows are keys, and queries are streamed.
template <bool TRANSPOSED>
struct score_tile {
  int own, streamed;
  __device__ __forceinline__ int query(int row, int column) const {
    return TRANSPOSED ? streamed + column : own + row;
  }
  __device__ __forceinline__ int key(int row, int column) const {
    return TRANSPOSED ? own + row : streamed + column;
  }
  // is_hidden: fully masked by causality. is_edge: contains masked or missing positions.
  __device__ __forceinline__ bool is_hidden(int rows) const {
    return TRANSPOSED ? own > streamed + K_STREAMED - 1 : streamed > own + rows - 1;
  }
  __device__ __forceinline__ bool is_edge(const k_attention &p, int rows) const {
    int last = TRANSPOSED ? own + rows : streamed + K_STREAMED;
    return last > p.key_length || (p.causal && last - 1 > (TRANSPOSED ? streamed : own));
  }
};
// Calls f(m, n, e, row, column) for each of a thread's numbers.
template <int M, typename F>
static __device__ __forceinline__ void each(F f) {
  lane_position s = k_lane_position();
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < STREAMED_EIGHTS; n++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        f(m, n, e, 16 * m + e / 2 * 8 + s.row, 8 * n + e % 2 * 4 + s.column);
}
// Converts products to scores: scaled, masked, -inf where a query does not see a key.
template <int M, bool TRANSPOSED>
static __device__ __forceinline__ void mask_scores(float (&s)[M][STREAMED_EIGHTS][4],
                                                   const k_attention &p,
                                                   const score_tile<TRANSPOSED> &at, int batch,
                                                   int head) {
  float scale = p.scale * log2_e;
  each<M>([&](int m, int n, int e, int, int) { s[m][n][e] *= scale; });
  if (p.mask) {
    int64_t from = batch * p.mask_strides[0] + head * p.mask_strides[1];
    each<M>([&](int m, int n, int e, int row, int column) {
      int query = at.query(row, column), key = at.key(row, column);
      if (query >= p.length || key >= p.key_length) return;
      s[m][n][e] += k_masked(p, from + query * p.mask_strides[2] + key * p.mask_strides[3]);
    });
  }
  if (!at.is_edge(p, 16 * M)) return;
  each<M>([&](int m, int n, int e, int row, int column) {
    int key = at.key(row, column);
    if (key >= p.key_length || (p.causal && key > at.query(row, column))) s[m][n][e] = -infinity();
  });
}

// ---- dropout

// The numbers of the weights in order are those of one subsequence, as in PyTorch's kernels.
struct origin {
  uint64_t seed, offset;
  int64_t keys;  // in a row of weights
};
// Bit i: word i of the block at `offset` keeps a weight.
static __device__ __forceinline__ uint32_t block_kept(const origin &at, float chance,
                                                      uint64_t offset) {
  words w = philox(at.seed, 0, offset);
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) bits |= (uint32_t)(uniform_float(w.v[i]) > chance) << i;
  return bits;
}
// The same for four words from `offset` on. They are in two blocks unless it is a multiple of four.
static __device__ __forceinline__ uint32_t words_kept(const origin &at, float chance,
                                                      uint64_t offset) {
  uint32_t bits = block_kept(at, chance, offset), skipped = offset & 3;
  if (!skipped) return bits;
  return (bits >> skipped | block_kept(at, chance, offset + 4) << (4 - skipped)) & 15;
}
// Bit i: weight `key + i` of a row is kept.
static __device__ __forceinline__ uint32_t four_kept(const origin &at, float chance, int64_t row,
                                                     int key) {
  return words_kept(at, chance, at.offset + (uint64_t)(row * at.keys + key));
}
// Mask of kept weights for 32 keys from `key` on in a row, drawn by the row's four threads.
static __device__ __forceinline__ uint32_t row_kept(const origin &at, float chance, int64_t row,
                                                    int key) {
  int offset = 4 * (threadIdx.x & 3);
  uint32_t bits = four_kept(at, chance, row, key + offset) << offset |
                  four_kept(at, chance, row, key + 16 + offset) << (16 + offset);
  bits |= __shfl_xor_sync(0xffffffffu, bits, 1);
  return bits | __shfl_xor_sync(0xffffffffu, bits, 2);
}
// Rows are queries: draws the thread's rows.
template <int M>
static __device__ __forceinline__ void draw_rows(uint32_t (&kept)[M][2], const origin &at,
                                                 float chance, int64_t row, int key) {
  lane_position s = k_lane_position();
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      kept[m][half] = row_kept(at, chance, row + 16 * m + 8 * half + s.row, key);
}
// Rows are keys, 32 queries are streamed: a thread draws one query for the warp's 16 keys and
// receives its eight column queries from other lanes.
static __device__ __forceinline__ void draw_columns(uint32_t (&kept)[STREAMED_EIGHTS][2],
                                                    const origin &at, float chance, int64_t row,
                                                    int key) {
  lane_position s = k_lane_position();
  uint32_t bits = 0;
  for (int offset = 0; offset < 16; offset += 4)
    bits |= four_kept(at, chance, row + (threadIdx.x & 31), key + offset) << offset;
#pragma unroll
  for (int n = 0; n < STREAMED_EIGHTS; n++)
#pragma unroll
    for (int i = 0; i < 2; i++)
      kept[n][i] = __shfl_sync(0xffffffffu, bits, 8 * n + 4 * i + s.column);
}

// ---- forward

// Online softmax of the thread's rows: maximum score so far, and its part of the sum of powers.
template <int M>
struct online_softmax {
  float top[M][2], sum[M][2];
};
template <typename F>
static __device__ __forceinline__ float join_row(float x, F f) {
  x = f(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return f(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
// Converts scores to weights relative to the running maximum; `keep` rescales earlier results.
// Rows without any visible key get weights of 0.
template <int M>
static __device__ __forceinline__ void update_softmax(float (&s)[M][STREAMED_EIGHTS][4],
                                                      online_softmax<M> &h, float (&keep)[M][2]) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float top = s[m][0][2 * half], sum = 0;
#pragma unroll
      for (int n = 0; n < STREAMED_EIGHTS; n++)
        top = fmaxf(top, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
      top = fmaxf(h.top[m][half], join_row(top, fmaxf));
      float base = top == -infinity() ? 0 : top;
      keep[m][half] = power(h.top[m][half] - base);
#pragma unroll
      for (int n = 0; n < STREAMED_EIGHTS; n++)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; i++) sum += s[m][n][i] = power(s[m][n][i] - base);
      h.top[m][half] = top, h.sum[m][half] = h.sum[m][half] * keep[m][half] + sum;
    }
}
// Computes the results' factors and writes logsumexp.
template <int M>
static __device__ __forceinline__ void finish(float (&times)[M][2], const k_attention &p,
                                              const online_softmax<M> &h, const work &w,
                                              int first) {
  lane_position s = k_lane_position();
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = join_row(h.sum[m][half], k_add());
      int i = first + 16 * m + 8 * half + s.row;
      times[m][half] = sum == 0 ? 0 : (p.chance > 0 ? p.factor : 1) / sum;
      if (s.column || i >= p.length) continue;
      p.logsumexp[row_of(p, w.batch, w.head, i)] =
          sum == 0 ? infinity() : (h.top[m][half] + log2f(sum)) * ln_2;
    }
}
static __device__ __forceinline__ origin draw_seed(const k_attention &p) {
  if (!(p.chance > 0)) return {0, 0, 0};
  origin at = {p.drawn_seed, p.drawn_offset, p.key_length};
  if (p.state) at.seed = p.state[0], at.offset += p.state[1];
  if (blockIdx.x == 0 && threadIdx.x == 0)
    p.seed[0] = (int64_t)at.seed, p.seed[1] = (int64_t)at.offset;
  return at;
}
static __device__ __forceinline__ origin saved_seed(const k_attention &p) {
  if (!(p.chance > 0)) return {0, 0, 0};
  return {(uint64_t)p.seed[0], (uint64_t)p.seed[1], p.key_length};
}
template <int M, typename T>
static __device__ __forceinline__ void fill(T (&x)[M][2], T value) {
#pragma unroll
  for (int m = 0; m < M; m++) x[m][0] = x[m][1] = value;
}

// Shared memory: the query tile, and two stages of key and value tiles.
template <int D, int PARTS, int M>
static __device__ __forceinline__ void forward_body(const k_attention &p, float *shared_memory) {
  enum { ROWS = 16 * M * WARPS, STEP = tile<D>::STEP, STREAMED = tile<D>::STREAMED };
  const work w(p, p.heads, p.length, ROWS, true);
  const origin at = draw_seed(p);
  head query = k_head(p, p.query, w.batch, w.head, p.length, p.width);
  head key = k_head(p, p.key, w.batch, w.group, p.key_length, p.width);
  head value = k_head(p, p.value, w.batch, w.group, p.key_length, p.value_width);
  float *streamed = shared_memory + ROWS * STEP, out[M][D / 8][4] = {};
  int warp = threadIdx.x / 32 * 16 * M, own = w.first + warp;
  int end = p.causal && p.key_length > w.first + ROWS ? w.first + ROWS : p.key_length;
  online_softmax<M> h;
  fill(h.top, -infinity()), fill(h.sum, 0.0f);
  k_fetch<D, PARTS, ROWS>(shared_memory, query, w.first);
  k_fetch<D, PARTS, K_STREAMED>(streamed, key, 0);
  k_fetch<D, PARTS, K_STREAMED>(streamed + STREAMED, value, 0);
  k_commit_fetches();
  for (int j = 0, stage = 0; j < end; j += K_STREAMED, stage ^= 1) {
    float *next = streamed + (stage ^ 1) * 2 * STREAMED, *now = streamed + stage * 2 * STREAMED;
    if (j + K_STREAMED < end) {
      k_fetch<D, PARTS, K_STREAMED>(next, key, j + K_STREAMED);
      k_fetch<D, PARTS, K_STREAMED>(next + STREAMED, value, j + K_STREAMED);
    }
    k_commit_fetches();
    k_await_fetches();
    const score_tile<false> here = {own, j};
    if (own < p.length && !(p.causal && here.is_hidden(16 * M))) {
      float s[M][STREAMED_EIGHTS][4], keep[M][2];
      k_pairs<D, PARTS>(s, shared_memory + warp * STEP, now);
      mask_scores(s, p, here, w.batch, w.head);
      update_softmax(s, h, keep);
      if (p.chance > 0) {
        uint32_t kept[M][2];
        draw_rows(kept, at, p.chance, row_of(p, w.batch, w.head, own), j);
        each<M>([&](int m, int n, int e, int, int column) {
          if (!(kept[m][e / 2] >> column & 1)) s[m][n][e] = 0;
        });
      }
      k_weigh<D, PARTS>(out, keep, s, now + STREAMED);
    }
    __syncthreads();
  }
  float times[M][2];
  finish(times, p, h, w, own);
  k_store_rows<D, PARTS>(k_head(p, p.output, w.batch, w.head, p.length, p.value_width), own, out,
                         times);
}

// ---- backward

// sums[row] = sum(grad * output). One warp per row.
extern "C" __global__ void __launch_bounds__(K_BLOCK)
    row_sums(const __grid_constant__ k_attention p) {
  k_wait();
  int64_t rows = (int64_t)p.batch * p.heads * p.length, row = k_thread() / 32;
  int item = p.dtype == K_FLOAT32 ? 4 : 2;
  if (row >= rows) return;
  int i = (int)(row % p.length), head = (int)(row / p.length % p.heads);
  int batch = (int)(row / p.length / p.heads);
  const k_heads *two[] = {&p.grad, &p.output};
  const char *at[2];
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const int64_t *strides = two[k]->strides;
    at[k] =
        (const char *)two[k]->at + (batch * strides[0] + head * strides[1] + i * strides[2]) * item;
  }
  float sum = 0;
  for (int k = threadIdx.x & 31; k < p.value_width; k += 32)
    sum += item == 4 ? ((const float *)at[0])[k] * ((const float *)at[1])[k]
                     : k_half_of(((const uint16_t *)at[0])[k], p.dtype) *
                           k_half_of(((const uint16_t *)at[1])[k], p.dtype);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if ((threadIdx.x & 31) == 0) p.sums[row] = sum;
}

// Converts scores s to weights after dropout, and gradients of weights g to gradients of scores
// before scaling. `row(m, n, e)` returns a row's base-2 logsumexp and its sum of gradients;
// `kept(m, n, e, row, column)` whether dropout keeps a weight.
template <int M, typename R, typename K>
static __device__ __forceinline__ void softmax_backward(float (&s)[M][STREAMED_EIGHTS][4],
                                                        float (&g)[M][STREAMED_EIGHTS][4],
                                                        const k_attention &p, R row, K kept) {
  bool drops = p.chance > 0;
  each<M>([&](int m, int n, int e, int r, int c) {
    float2 of = row(m, n, e);
    float weight = power(s[m][n][e] - of.x);
    float times = drops ? kept(m, n, e, r, c) ? p.factor : 0.0f : 1.0f;
    g[m][n][e] = weight * (g[m][n][e] * times - of.y);
    s[m][n][e] = weight * times;
  });
}
// row() of query i of a head; past the last, values that make its weights 0.
static __device__ __forceinline__ float2 sums_of(const k_attention &p, int64_t first, int i) {
  if (i >= p.length) return {infinity(), 0};
  return {p.logsumexp[first + i] * log2_e, p.sums[first + i]};
}

// Shared memory: query and gradient tiles, and two stages of key and value tiles.
template <int D, int PARTS, int M>
static __device__ __forceinline__ void backward_query_body(const k_attention &p,
                                                           float *shared_memory) {
  enum { ROWS = 16 * M * WARPS, STEP = tile<D>::STEP, STREAMED = tile<D>::STREAMED };
  const work w(p, p.heads, p.length, ROWS, true);
  const origin at = saved_seed(p);
  head query = k_head(p, p.query, w.batch, w.head, p.length, p.width);
  head grad = k_head(p, p.grad, w.batch, w.head, p.length, p.value_width);
  head key = k_head(p, p.key, w.batch, w.group, p.key_length, p.width);
  head value = k_head(p, p.value, w.batch, w.group, p.key_length, p.value_width);
  float *grads = shared_memory + ROWS * STEP, *streamed = grads + ROWS * STEP,
        out[M][D / 8][4] = {};
  int warp = threadIdx.x / 32 * 16 * M, own = w.first + warp;
  int end = p.causal && p.key_length > w.first + ROWS ? w.first + ROWS : p.key_length;
  const lane_position s = k_lane_position();
  float2 sums[M][2];
#pragma unroll
  for (int m = 0; m < 2 * M; m++)
    sums[m / 2][m % 2] = sums_of(p, row_of(p, w.batch, w.head, 0), own + 8 * m + s.row);
  k_fetch<D, PARTS, ROWS>(shared_memory, query, w.first);
  k_fetch<D, PARTS, ROWS>(grads, grad, w.first);
  k_fetch<D, PARTS, K_STREAMED>(streamed, key, 0);
  k_fetch<D, PARTS, K_STREAMED>(streamed + STREAMED, value, 0);
  k_commit_fetches();
  float one[M][2], times[M][2];
  fill(one, 1.0f), fill(times, p.scale);
  for (int j = 0, stage = 0; j < end; j += K_STREAMED, stage ^= 1) {
    float *next = streamed + (stage ^ 1) * 2 * STREAMED, *now = streamed + stage * 2 * STREAMED;
    if (j + K_STREAMED < end) {
      k_fetch<D, PARTS, K_STREAMED>(next, key, j + K_STREAMED);
      k_fetch<D, PARTS, K_STREAMED>(next + STREAMED, value, j + K_STREAMED);
    }
    k_commit_fetches();
    k_await_fetches();
    const score_tile<false> here = {own, j};
    if (own < p.length && !(p.causal && here.is_hidden(16 * M))) {
      float weights[M][STREAMED_EIGHTS][4], g[M][STREAMED_EIGHTS][4];
      uint32_t kept[M][2] = {};
      k_pairs<D, PARTS>(weights, shared_memory + warp * STEP, now);
      mask_scores(weights, p, here, w.batch, w.head);
      k_pairs<D, PARTS>(g, grads + warp * STEP, now + STREAMED);
      if (p.chance > 0) draw_rows(kept, at, p.chance, row_of(p, w.batch, w.head, own), j);
      softmax_backward(
          weights, g, p, [&](int m, int, int e) { return sums[m][e / 2]; },
          [&](int m, int, int e, int, int column) { return kept[m][e / 2] >> column & 1; });
      k_weigh<D, PARTS>(out, one, g, now);
    }
    __syncthreads();
  }
  k_store_rows<D, PARTS>(k_head(p, p.grad_query, w.batch, w.head, p.length, p.width), own, out,
                         times);
}

// Fetches a streamed query tile into shared memory: queries, gradients, and row() of each.
template <int D, int PARTS>
static __device__ __forceinline__ void fetch_queries(float *to, const k_attention &p, int batch,
                                                     int number, int first) {
  enum { STREAMED = tile<D>::STREAMED };
  head query = k_head(p, p.query, batch, number, p.length, p.width);
  head grad = k_head(p, p.grad, batch, number, p.length, p.value_width);
  k_fetch<D, PARTS, K_STREAMED>(to, query, first);
  k_fetch<D, PARTS, K_STREAMED>(to + STREAMED, grad, first);
  if (threadIdx.x < K_STREAMED)
    ((float2 *)(to + 2 * STREAMED))[threadIdx.x] =
        sums_of(p, row_of(p, batch, number, 0), first + (int)threadIdx.x);
}
// Shared memory: key and value tiles, and two stages of query tiles. All query heads sharing the
// key head are streamed in turn, each from the first query that sees the tile's first key.
template <int D, int PARTS>
static __device__ __forceinline__ void backward_keys_body(const k_attention &p,
                                                          float *shared_memory) {
  enum { ROWS = 16 * WARPS, STEP = tile<D>::STEP, STREAMED = tile<D>::STREAMED };
  enum { STAGE = 2 * STREAMED + 2 * K_STREAMED };
  const work w(p, p.groups, p.key_length, ROWS, false);
  const origin at = saved_seed(p);
  head key = k_head(p, p.key, w.batch, w.head, p.key_length, p.width);
  head value = k_head(p, p.value, w.batch, w.head, p.key_length, p.value_width);
  float *values = shared_memory + ROWS * STEP, *streamed = values + ROWS * STEP;
  float out_key[1][D / 8][4] = {}, out_value[1][D / 8][4] = {};
  int warp = threadIdx.x / 32 * 16, own = w.first + warp, begin = p.causal ? w.first : 0;
  int each_head = p.length > begin ? (p.length - begin + K_STREAMED - 1) / K_STREAMED : 0;
  int shared = p.heads / p.groups, first_head = w.head * shared, count = each_head * shared;
  if (count) {
    k_fetch<D, PARTS, ROWS>(shared_memory, key, w.first);
    k_fetch<D, PARTS, ROWS>(values, value, w.first);
    fetch_queries<D, PARTS>(streamed, p, w.batch, first_head, begin);
  }
  k_commit_fetches();
  float one[1][2], scale[1][2];
  fill(one, 1.0f), fill(scale, p.scale);
  for (int i = 0; i < count; i++) {
    float *now = streamed + i % 2 * STAGE;
    int next = i + 1, number = first_head + i / each_head;
    if (next < count)
      fetch_queries<D, PARTS>(streamed + next % 2 * STAGE, p, w.batch,
                              first_head + next / each_head, begin + next % each_head * K_STREAMED);
    k_commit_fetches();
    k_await_fetches();
    const score_tile<true> here = {own, begin + i % each_head * K_STREAMED};
    if (own < p.key_length && !(p.causal && here.is_hidden(16))) {
      const float2 *sums = (const float2 *)(now + 2 * STREAMED);
      const lane_position s = k_lane_position();
      float weights[1][STREAMED_EIGHTS][4], g[1][STREAMED_EIGHTS][4];
      uint32_t kept[STREAMED_EIGHTS][2] = {};
      k_pairs<D, PARTS>(weights, shared_memory + warp * STEP, now);
      mask_scores(weights, p, here, w.batch, number);
      k_pairs<D, PARTS>(g, values + warp * STEP, now + STREAMED);
      if (p.chance > 0)
        draw_columns(kept, at, p.chance, row_of(p, w.batch, number, here.streamed), own);
      softmax_backward(
          weights, g, p, [&](int, int n, int e) { return sums[8 * n + e % 2 * 4 + s.column]; },
          [&](int, int n, int e, int row, int) { return kept[n][e % 2] >> row & 1; });
      k_weigh<D, PARTS>(out_value, one, weights, now + STREAMED);
      k_weigh<D, PARTS>(out_key, one, g, now);
    }
    __syncthreads();
  }
  k_store_rows<D, PARTS>(k_head(p, p.grad_key, w.batch, w.head, p.key_length, p.width), own,
                         out_key, scale);
  k_store_rows<D, PARTS>(k_head(p, p.grad_value, w.batch, w.head, p.key_length, p.value_width), own,
                         out_value, one);
}

// ---- kernels

extern __shared__ float4 shared_memory[];

// FORWARD, BACKWARD: resident blocks a multiprocessor, chosen by measurement.
#define KERNELS(D, PARTS, FORWARD, BACKWARD) \
  extern "C" __global__ void __launch_bounds__(K_ATTENTION_BLOCK, FORWARD) \
      forward_##D##_##PARTS(const __grid_constant__ k_attention p) { \
    k_wait(); \
    forward_body<D, PARTS, K_FORWARD_ROWS(D) / 16 / WARPS>(p, (float *)shared_memory); \
  } \
  extern "C" __global__ void __launch_bounds__(K_ATTENTION_BLOCK, BACKWARD) \
      backward_query_##D##_##PARTS(const __grid_constant__ k_attention p) { \
    k_wait(); \
    backward_query_body<D, PARTS, K_BACKWARD_ROWS / 16 / WARPS>(p, (float *)shared_memory); \
  } \
  extern "C" __global__ void __launch_bounds__(K_ATTENTION_BLOCK, BACKWARD) \
      backward_keys_##D##_##PARTS(const __grid_constant__ k_attention p) { \
    k_wait(); \
    backward_keys_body<D, PARTS>(p, (float *)shared_memory); \
  }
#define WIDTHS(PARTS) KERNELS(32, PARTS, 3, 3) KERNELS(64, PARTS, 2, 3) KERNELS(128, PARTS, 2, 1)
WIDTHS(1)
WIDTHS(3)

// Dropout mask as 1 and 0: a thread for each block of four words.
template <typename S>
static __device__ __forceinline__ void kept_body(const k_kept &p) {
  const origin at = {(uint64_t)p.seed[0], (uint64_t)p.seed[1], p.n};
  int64_t n = p.rows * p.n;
  for (int64_t first = k_thread() * 4; first < n; first += k_threads() * 4) {
    uint32_t kept = words_kept(at, p.chance, at.offset + (uint64_t)first);
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (first + k < n) k_put((S *)p.out + first + k, kept >> k & 1 ? 1.0f : 0.0f);
  }
}
K_FLOATS(kept, k_kept)
