// SPDX-License-Identifier: Apache-2.0
// Tiled attention without materialised scores (Dao 2023, FlashAttention-2; Milakov and
// Gimelshein 2018, online softmax). Sums have a fixed order: no atomics.
//
// A block of K_ATTENTION_BLOCK threads owns a tile of rows, divided among its warps: queries in
// `forward` and `backward_query`, keys in `backward_keys`. The other operand streams past in
// tiles of K_PASSING rows, double-buffered. Blocks start with the longest causal tile of the
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

// A warp's part of a tile of scores: `own` is its first row, `passing` the first streamed row.
// TURNED: rows are keys, and queries are streamed.
template <bool TURNED>
struct patch {
  int own, passing;
  __device__ __forceinline__ int query(int row, int column) const {
    return TURNED ? passing + column : own + row;
  }
  __device__ __forceinline__ int key(int row, int column) const {
    return TURNED ? own + row : passing + column;
  }
  // is_hidden: fully masked by causality. is_edge: contains masked or missing positions.
  __device__ __forceinline__ bool is_hidden(int rows) const {
    return TURNED ? own > passing + K_PASSING - 1 : passing > own + rows - 1;
  }
  __device__ __forceinline__ bool is_edge(const k_attention &p, int rows) const {
    int last = TURNED ? own + rows : passing + K_PASSING;
    return last > p.places || (p.causal && last - 1 > (TURNED ? passing : own));
  }
};
// Calls f(m, n, e, row, column) for each of a thread's numbers.
template <int M, typename F>
static __device__ __forceinline__ void each(F f) {
  seat s = k_seat();
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < EIGHTS; n++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        f(m, n, e, 16 * m + e / 2 * 8 + s.row, 8 * n + e % 2 * 4 + s.column);
}
// Converts products to scores: scaled, masked, -inf where a query does not see a key.
template <int M, bool TURNED>
static __device__ __forceinline__ void see(float (&s)[M][EIGHTS][4], const k_attention &p,
                                           const patch<TURNED> &at, int batch, int head) {
  float scale = p.scale * log2_e;
  each<M>([&](int m, int n, int e, int, int) { s[m][n][e] *= scale; });
  if (p.mask) {
    int64_t from = batch * p.mask_strides[0] + head * p.mask_strides[1];
    each<M>([&](int m, int n, int e, int row, int column) {
      int query = at.query(row, column), key = at.key(row, column);
      if (query >= p.length || key >= p.places) return;
      s[m][n][e] += k_masked(p, from + query * p.mask_strides[2] + key * p.mask_strides[3]);
    });
  }
  if (!at.is_edge(p, 16 * M)) return;
  each<M>([&](int m, int n, int e, int row, int column) {
    int key = at.key(row, column);
    if (key >= p.places || (p.causal && key > at.query(row, column))) s[m][n][e] = -infinity();
  });
}

// ---- dropout

struct origin {
  uint64_t seed, offset;
};
// Bit i: word i of the Philox block at `key` of a row keeps a weight.
static __device__ __forceinline__ uint32_t four_kept(const origin &at, float chance, int64_t row,
                                                     int key) {
  words w = philox(at.seed, (uint64_t)row, at.offset + (uint64_t)key);
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) bits |= (uint32_t)(uniform_float(w.v[i]) > chance) << i;
  return bits;
}
// Mask of kept weights for 32 keys from `key` on in a row, drawn by the row's four threads.
static __device__ __forceinline__ uint32_t row_kept(const origin &at, float chance, int64_t row,
                                                    int key) {
  int place = 4 * (threadIdx.x & 3);
  uint32_t bits = four_kept(at, chance, row, key + place) << place |
                  four_kept(at, chance, row, key + 16 + place) << (16 + place);
  bits |= __shfl_xor_sync(0xffffffffu, bits, 1);
  return bits | __shfl_xor_sync(0xffffffffu, bits, 2);
}
// Rows are queries: draws the thread's rows.
template <int M>
static __device__ __forceinline__ void draw_rows(uint32_t (&kept)[M][2], const origin &at,
                                                 float chance, int64_t row, int key) {
  seat s = k_seat();
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      kept[m][half] = row_kept(at, chance, row + 16 * m + 8 * half + s.row, key);
}
// Rows are keys, 32 queries are streamed: a thread draws one query for the warp's 16 keys and
// receives its eight column queries from other lanes.
static __device__ __forceinline__ void draw_columns(uint32_t (&kept)[EIGHTS][2], const origin &at,
                                                    float chance, int64_t row, int key) {
  seat s = k_seat();
  uint32_t bits = 0;
  for (int place = 0; place < 16; place += 4)
    bits |= four_kept(at, chance, row + (threadIdx.x & 31), key + place) << place;
#pragma unroll
  for (int n = 0; n < EIGHTS; n++)
#pragma unroll
    for (int i = 0; i < 2; i++)
      kept[n][i] = __shfl_sync(0xffffffffu, bits, 8 * n + 4 * i + s.column);
}

// ---- forward

// Online softmax of the thread's rows: maximum score so far, and its part of the sum of powers.
template <int M>
struct heap {
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
static __device__ __forceinline__ void raise(float (&s)[M][EIGHTS][4], heap<M> &h,
                                             float (&keep)[M][2]) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float top = s[m][0][2 * half], sum = 0;
#pragma unroll
      for (int n = 0; n < EIGHTS; n++)
        top = fmaxf(top, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
      top = fmaxf(h.top[m][half], join_row(top, fmaxf));
      float base = top == -infinity() ? 0 : top;
      keep[m][half] = power(h.top[m][half] - base);
#pragma unroll
      for (int n = 0; n < EIGHTS; n++)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; i++) sum += s[m][n][i] = power(s[m][n][i] - base);
      h.top[m][half] = top, h.sum[m][half] = h.sum[m][half] * keep[m][half] + sum;
    }
}
// Computes the results' factors and writes logsumexp.
template <int M>
static __device__ __forceinline__ void finish(float (&times)[M][2], const k_attention &p,
                                              const heap<M> &h, const work &w, int first) {
  seat s = k_seat();
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
  if (!(p.chance > 0)) return {0, 0};
  origin at = {p.drawn_seed, p.drawn_offset};
  if (p.state) at = {p.state[0], p.drawn_offset + p.state[1]};
  if (blockIdx.x == 0 && threadIdx.x == 0)
    p.seed[0] = (int64_t)at.seed, p.seed[1] = (int64_t)at.offset;
  return at;
}
static __device__ __forceinline__ origin kept_seed(const k_attention &p) {
  if (!(p.chance > 0)) return {0, 0};
  return {(uint64_t)p.seed[0], (uint64_t)p.seed[1]};
}
template <int M, typename T>
static __device__ __forceinline__ void fill(T (&x)[M][2], T value) {
#pragma unroll
  for (int m = 0; m < M; m++) x[m][0] = x[m][1] = value;
}

// Shared memory: the query tile, and two stages of key and value tiles.
template <int D, int PARTS, int M>
static __device__ __forceinline__ void forward_body(const k_attention &p, float *room) {
  enum { ROWS = 16 * M * WARPS, STEP = tile<D>::STEP, PASSING = tile<D>::PASSING };
  const work w(p, p.heads, p.length, ROWS, true);
  const origin at = draw_seed(p);
  head query = k_head(p, p.query, w.batch, w.head, p.length, p.width);
  head key = k_head(p, p.key, w.batch, w.group, p.places, p.width);
  head value = k_head(p, p.value, w.batch, w.group, p.places, p.value_width);
  float *passing = room + ROWS * STEP, out[M][D / 8][4] = {};
  int warp = threadIdx.x / 32 * 16 * M, own = w.first + warp;
  int end = p.causal && p.places > w.first + ROWS ? w.first + ROWS : p.places;
  heap<M> h;
  fill(h.top, -infinity()), fill(h.sum, 0.0f);
  k_fetch<D, PARTS, ROWS>(room, query, w.first);
  k_fetch<D, PARTS, K_PASSING>(passing, key, 0);
  k_fetch<D, PARTS, K_PASSING>(passing + PASSING, value, 0);
  k_fetched();
  for (int j = 0, stage = 0; j < end; j += K_PASSING, stage ^= 1) {
    float *next = passing + (stage ^ 1) * 2 * PASSING, *now = passing + stage * 2 * PASSING;
    if (j + K_PASSING < end) {
      k_fetch<D, PARTS, K_PASSING>(next, key, j + K_PASSING);
      k_fetch<D, PARTS, K_PASSING>(next + PASSING, value, j + K_PASSING);
    }
    k_fetched();
    k_await();
    const patch<false> here = {own, j};
    if (own < p.length && !(p.causal && here.is_hidden(16 * M))) {
      float s[M][EIGHTS][4], keep[M][2];
      k_pairs<D, PARTS>(s, room + warp * STEP, now);
      see(s, p, here, w.batch, w.head);
      raise(s, h, keep);
      if (p.chance > 0) {
        uint32_t kept[M][2];
        draw_rows(kept, at, p.chance, row_of(p, w.batch, w.head, own), j);
        each<M>([&](int m, int n, int e, int, int column) {
          if (!(kept[m][e / 2] >> column & 1)) s[m][n][e] = 0;
        });
      }
      k_weigh<D, PARTS>(out, keep, s, now + PASSING);
    }
    __syncthreads();
  }
  float times[M][2];
  finish(times, p, h, w, own);
  k_put_rows<D, PARTS>(k_head(p, p.output, w.batch, w.head, p.length, p.value_width), own, out,
                       times);
}

// ---- backward

// sums[row] = sum(grad * output). One warp a row.
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
static __device__ __forceinline__ void turn_back(float (&s)[M][EIGHTS][4], float (&g)[M][EIGHTS][4],
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
static __device__ __forceinline__ void backward_query_body(const k_attention &p, float *room) {
  enum { ROWS = 16 * M * WARPS, STEP = tile<D>::STEP, PASSING = tile<D>::PASSING };
  const work w(p, p.heads, p.length, ROWS, true);
  const origin at = kept_seed(p);
  head query = k_head(p, p.query, w.batch, w.head, p.length, p.width);
  head grad = k_head(p, p.grad, w.batch, w.head, p.length, p.value_width);
  head key = k_head(p, p.key, w.batch, w.group, p.places, p.width);
  head value = k_head(p, p.value, w.batch, w.group, p.places, p.value_width);
  float *grads = room + ROWS * STEP, *passing = grads + ROWS * STEP, out[M][D / 8][4] = {};
  int warp = threadIdx.x / 32 * 16 * M, own = w.first + warp;
  int end = p.causal && p.places > w.first + ROWS ? w.first + ROWS : p.places;
  const seat s = k_seat();
  float2 sums[M][2];
#pragma unroll
  for (int m = 0; m < 2 * M; m++)
    sums[m / 2][m % 2] = sums_of(p, row_of(p, w.batch, w.head, 0), own + 8 * m + s.row);
  k_fetch<D, PARTS, ROWS>(room, query, w.first);
  k_fetch<D, PARTS, ROWS>(grads, grad, w.first);
  k_fetch<D, PARTS, K_PASSING>(passing, key, 0);
  k_fetch<D, PARTS, K_PASSING>(passing + PASSING, value, 0);
  k_fetched();
  float one[M][2], times[M][2];
  fill(one, 1.0f), fill(times, p.scale);
  for (int j = 0, stage = 0; j < end; j += K_PASSING, stage ^= 1) {
    float *next = passing + (stage ^ 1) * 2 * PASSING, *now = passing + stage * 2 * PASSING;
    if (j + K_PASSING < end) {
      k_fetch<D, PARTS, K_PASSING>(next, key, j + K_PASSING);
      k_fetch<D, PARTS, K_PASSING>(next + PASSING, value, j + K_PASSING);
    }
    k_fetched();
    k_await();
    const patch<false> here = {own, j};
    if (own < p.length && !(p.causal && here.is_hidden(16 * M))) {
      float weights[M][EIGHTS][4], g[M][EIGHTS][4];
      uint32_t kept[M][2] = {};
      k_pairs<D, PARTS>(weights, room + warp * STEP, now);
      see(weights, p, here, w.batch, w.head);
      k_pairs<D, PARTS>(g, grads + warp * STEP, now + PASSING);
      if (p.chance > 0) draw_rows(kept, at, p.chance, row_of(p, w.batch, w.head, own), j);
      turn_back(
          weights, g, p, [&](int m, int, int e) { return sums[m][e / 2]; },
          [&](int m, int, int e, int, int column) { return kept[m][e / 2] >> column & 1; });
      k_weigh<D, PARTS>(out, one, g, now);
    }
    __syncthreads();
  }
  k_put_rows<D, PARTS>(k_head(p, p.grad_query, w.batch, w.head, p.length, p.width), own, out,
                       times);
}

// Fetches a streamed query tile into shared memory: queries, gradients, and row() of each.
template <int D, int PARTS>
static __device__ __forceinline__ void fetch_queries(float *to, const k_attention &p, int batch,
                                                     int number, int first) {
  enum { PASSING = tile<D>::PASSING };
  head query = k_head(p, p.query, batch, number, p.length, p.width);
  head grad = k_head(p, p.grad, batch, number, p.length, p.value_width);
  k_fetch<D, PARTS, K_PASSING>(to, query, first);
  k_fetch<D, PARTS, K_PASSING>(to + PASSING, grad, first);
  if (threadIdx.x < K_PASSING)
    ((float2 *)(to + 2 * PASSING))[threadIdx.x] =
        sums_of(p, row_of(p, batch, number, 0), first + (int)threadIdx.x);
}
// Shared memory: key and value tiles, and two stages of query tiles. All query heads sharing the
// key head are streamed in turn, each from the first query that sees the tile's first key.
template <int D, int PARTS>
static __device__ __forceinline__ void backward_keys_body(const k_attention &p, float *room) {
  enum { ROWS = 16 * WARPS, STEP = tile<D>::STEP, PASSING = tile<D>::PASSING };
  enum { STAGE = 2 * PASSING + 2 * K_PASSING };
  const work w(p, p.groups, p.places, ROWS, false);
  const origin at = kept_seed(p);
  head key = k_head(p, p.key, w.batch, w.head, p.places, p.width);
  head value = k_head(p, p.value, w.batch, w.head, p.places, p.value_width);
  float *values = room + ROWS * STEP, *passing = values + ROWS * STEP;
  float out_key[1][D / 8][4] = {}, out_value[1][D / 8][4] = {};
  int warp = threadIdx.x / 32 * 16, own = w.first + warp, begin = p.causal ? w.first : 0;
  int each_head = p.length > begin ? (p.length - begin + K_PASSING - 1) / K_PASSING : 0;
  int shared = p.heads / p.groups, first_head = w.head * shared, count = each_head * shared;
  if (count) {
    k_fetch<D, PARTS, ROWS>(room, key, w.first);
    k_fetch<D, PARTS, ROWS>(values, value, w.first);
    fetch_queries<D, PARTS>(passing, p, w.batch, first_head, begin);
  }
  k_fetched();
  float one[1][2], scale[1][2];
  fill(one, 1.0f), fill(scale, p.scale);
  for (int i = 0; i < count; i++) {
    float *now = passing + i % 2 * STAGE;
    int next = i + 1, number = first_head + i / each_head;
    if (next < count)
      fetch_queries<D, PARTS>(passing + next % 2 * STAGE, p, w.batch, first_head + next / each_head,
                              begin + next % each_head * K_PASSING);
    k_fetched();
    k_await();
    const patch<true> here = {own, begin + i % each_head * K_PASSING};
    if (own < p.places && !(p.causal && here.is_hidden(16))) {
      const float2 *sums = (const float2 *)(now + 2 * PASSING);
      const seat s = k_seat();
      float weights[1][EIGHTS][4], g[1][EIGHTS][4];
      uint32_t kept[EIGHTS][2] = {};
      k_pairs<D, PARTS>(weights, room + warp * STEP, now);
      see(weights, p, here, w.batch, number);
      k_pairs<D, PARTS>(g, values + warp * STEP, now + PASSING);
      if (p.chance > 0)
        draw_columns(kept, at, p.chance, row_of(p, w.batch, number, here.passing), own);
      turn_back(
          weights, g, p, [&](int, int n, int e) { return sums[8 * n + e % 2 * 4 + s.column]; },
          [&](int, int n, int e, int row, int) { return kept[n][e % 2] >> row & 1; });
      k_weigh<D, PARTS>(out_value, one, weights, now + PASSING);
      k_weigh<D, PARTS>(out_key, one, g, now);
    }
    __syncthreads();
  }
  k_put_rows<D, PARTS>(k_head(p, p.grad_key, w.batch, w.head, p.places, p.width), own, out_key,
                       scale);
  k_put_rows<D, PARTS>(k_head(p, p.grad_value, w.batch, w.head, p.places, p.value_width), own,
                       out_value, one);
}

// ---- kernels

extern __shared__ float4 room[];

// FORWARD, BACKWARD: resident blocks a multiprocessor, chosen by measurement.
#define KERNELS(D, PARTS, FORWARD, BACKWARD) \
  extern "C" __global__ void __launch_bounds__(K_ATTENTION_BLOCK, FORWARD) \
      forward_##D##_##PARTS(const __grid_constant__ k_attention p) { \
    k_wait(); \
    forward_body<D, PARTS, K_FORWARD_ROWS(D) / 16 / WARPS>(p, (float *)room); \
  } \
  extern "C" __global__ void __launch_bounds__(K_ATTENTION_BLOCK, BACKWARD) \
      backward_query_##D##_##PARTS(const __grid_constant__ k_attention p) { \
    k_wait(); \
    backward_query_body<D, PARTS, K_BACKWARD_ROWS / 16 / WARPS>(p, (float *)room); \
  } \
  extern "C" __global__ void __launch_bounds__(K_ATTENTION_BLOCK, BACKWARD) \
      backward_keys_##D##_##PARTS(const __grid_constant__ k_attention p) { \
    k_wait(); \
    backward_keys_body<D, PARTS>(p, (float *)room); \
  }
#define WIDTHS(PARTS) KERNELS(32, PARTS, 3, 3) KERNELS(64, PARTS, 2, 3) KERNELS(128, PARTS, 2, 1)
WIDTHS(1)
WIDTHS(3)

// Dropout mask as 1 and 0: a thread for each Philox block of four weights.
template <typename S>
static __device__ __forceinline__ void kept_body(const k_kept &p) {
  int64_t blocks = (p.n + 3) / 4;
  const origin at = {(uint64_t)p.seed[0], (uint64_t)p.seed[1]};
  for (int64_t i = k_thread(); i < p.rows * blocks; i += k_threads()) {
    int64_t row = i / blocks, place = i % blocks * 4;
    words w = philox(at.seed, (uint64_t)row, at.offset + (uint64_t)place);
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (place + k < p.n)
        k_put((S *)p.out + row * p.n + place + k, uniform_float(w.v[k]) > p.chance ? 1.0f : 0.0f);
  }
}
K_FLOATS(kept, k_kept)
