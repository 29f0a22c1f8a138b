// SPDX-License-Identifier: Apache-2.0
// Attention in tiles. A block of queries iterates over blocks of keys and keeps the running max,
// the sum of exponentials and the weighted values of each row (online softmax: Dao et al. 2022;
// Rabe and Staats 2021). The backward pass recomputes the scores of a tile. At most one tile of
// scores exists per thread.
//
// fp16 and bf16 are computed in float. Tiles depend on the sizes only and are added in a fixed
// order, so results do not depend on the number of threads. Forward: a thread owns a block of
// queries. Backward: a thread owns a key head with all queries that use it.
#include "cpu/threads/cache_line.h"
#include "cpu/vector/load_store.h"
#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/gemm/gemm.h"
#include "cpu/random/mt19937.h"
#include "cpu/random/philox.h"
#include "cpu/threads/threads.h"
#include "cpu/vector/rows.h"
#include "kernel_args/attention.h"

#include <stdlib.h>

enum {
  QUERIES = 96,      // of a tile
  KEYS = 256,        // of a tile
  FEWER_KEYS = 128,  // of a tile with long rows, so that products stay direct (gemm.c)
  LONG_ROW = 64      // elements, above which a row is long
};
// Longer rows (expanded operands) are reported as out of memory.
static const int64_t max_row = INT64_C(1) << 40;

// Operands, the mask included, are (batch, heads, length, width), with stride 0 where expanded;
// logsumexp is row-major.
typedef struct attention {
  const px_operand *query, *key, *value, *mask, *output, *grad;
  const px_operand *grad_query, *grad_key, *grad_value;
  void *logsumexp;
  int64_t batch, heads, groups;  // heads of query, and of key
  int64_t length, key_length;    // length of query, and of key
  int64_t width, value_width, keys;
  double scale, chance, keep_scale;  // dropout: probability, and the scale of kept weights
  uint64_t seed, offset;
  bool causal, failed;
} attention;

// A tile: query rows from i of a head, and keys from j.
typedef struct tile {
  int64_t b, h, group, i, j, rows, n;
} tile;

static int64_t blocks_of(const attention *t) { return px__ceil_div(t->length, QUERIES); }
// Number of keys visible to the last query of the tile; and visible keys of the tile for row r.
static int64_t visible_keys(const attention *t, const tile *x) {
  return t->causal ? px__min_count(t->key_length, x->i + x->rows) : t->key_length;
}
static int64_t visible_keys_of_row(const attention *t, const tile *x, int64_t r) {
  int64_t count = x->i + r + 1 - x->j;
  return !t->causal ? x->n : count < 0 ? 0 : px__min_count(count, x->n);
}
// Index of a query row among all.
static int64_t row_of(const attention *t, const tile *x, int64_t r) {
  return (x->b * t->heads + x->h) * t->length + x->i + r;
}
static const char *row_address(const px_operand *o, int64_t b, int64_t h, int64_t i) {
  int64_t at = b * o->strides[0] + h * o->strides[1] + i * o->strides[2];
  return (const char *)o->data + at * (int64_t)px__cpu_item[o->dtype];
}

// True if the gradients of key and value can be summed in place: right dtype and contiguous rows.
static bool sums_in_place(const attention *t, int dtype) {
  const int64_t *key = t->grad_key->strides, *value = t->grad_value->strides;
  return t->grad_key->dtype == dtype && key[3] == 1 && key[2] == t->width && value[3] == 1 &&
         value[2] == t->value_width;
}

// Dropout of n weights of a row from key j on: 1 if kept, else 0. The numbers of the weights in
// order are those of one subsequence.
static void draw_dropout_mask(const attention *t, int64_t row, int64_t j, int64_t n, float *to) {
  float chance = (float)t->chance;
  uint64_t first = t->offset + (uint64_t)(row * t->key_length + j);
  px_philox4 words;
  for (uint64_t i = 0; i < (uint64_t)n; i++) {
    if (i == 0 || (first + i) % 4 == 0) words = px_philox(t->seed, 0, first + i);
    to[i] = px_philox_uniform_float(words.v[(first + i) % 4]) > chance ? 1 : 0;
  }
}

// ---- rows of scores: the loops of rows.h; for float also in AVX-512

#if defined(__AVX2__)
#define TARGET __attribute__((target("avx512f")))
#define INLINE static inline __attribute__((always_inline)) TARGET
enum { WIDE = 16 };
INLINE __m512 load_first_wide(const float *x, int64_t n, float rest) {
  __mmask16 some = (__mmask16)(n < WIDE ? (1u << n) - 1 : 0xffff);
  return _mm512_mask_loadu_ps(_mm512_set1_ps(rest), some, x);
}
static TARGET float wide_max(const float *x, int64_t n) {
  __m512 a = _mm512_set1_ps(-INFINITY), b = a;
  int64_t i = 0;
  for (; i + 2 * WIDE <= n; i += 2 * WIDE) {
    a = _mm512_max_ps(_mm512_loadu_ps(x + i), a);
    b = _mm512_max_ps(_mm512_loadu_ps(x + i + WIDE), b);
  }
  for (; i < n; i += WIDE) a = _mm512_max_ps(load_first_wide(x + i, n - i, -INFINITY), a);
  return _mm512_reduce_max_ps(_mm512_max_ps(a, b));
}
// The same as vf_exp_nonpositive.
INLINE __m512 wide_exp(__m512 x) {
  __mmask16 there = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.33654f), _CMP_NLT_UQ);
  __m512 shift = _mm512_set1_ps(12582912.0f + 127);
  __m512 k = _mm512_fmadd_ps(x, _mm512_set1_ps(1.44269504088896341f), shift);
  __m512 power = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(k), 23));
  k = _mm512_sub_ps(k, shift);
  __m512 r = _mm512_fmadd_ps(k, _mm512_set1_ps(-0.693359375f), x);
  r = _mm512_fmadd_ps(k, _mm512_set1_ps(2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
  p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1));
  return _mm512_maskz_mul_ps(there, p, power);
}
static TARGET double wide_exp_sum(float *x, float shift, int64_t n) {
  __m512 s = _mm512_set1_ps(shift), a = _mm512_setzero_ps(), b = a;
  int64_t i = 0;
  for (; i + 2 * WIDE <= n; i += 2 * WIDE) {
    __m512 e = wide_exp(_mm512_sub_ps(_mm512_loadu_ps(x + i), s));
    __m512 f = wide_exp(_mm512_sub_ps(_mm512_loadu_ps(x + i + WIDE), s));
    _mm512_storeu_ps(x + i, e);
    _mm512_storeu_ps(x + i + WIDE, f);
    a = _mm512_add_ps(a, e), b = _mm512_add_ps(b, f);
  }
  for (; i < n; i += WIDE) {
    __mmask16 some = (__mmask16)(n - i < WIDE ? (1u << (n - i)) - 1 : 0xffff);
    __m512 e = wide_exp(_mm512_sub_ps(load_first_wide(x + i, n - i, -INFINITY), s));
    _mm512_mask_storeu_ps(x + i, some, e);
    a = _mm512_mask_add_ps(a, some, a, e);
  }
  return (double)_mm512_reduce_add_ps(_mm512_add_ps(a, b));
}
static bool is_wide_machine(void) { return px_cpu_level_used() >= PX_CPU_AVX512; }
#else
static float wide_max(const float *x, int64_t n) { return vec_max_f32(x, n); }
static double wide_exp_sum(float *x, float shift, int64_t n) {
  return vec_exp_sum_f32(x, x, shift, n, 0);
}
static bool is_wide_machine(void) { return false; }
#endif
// The max of n >= 1 scores without NaN.
static float row_max_f32(const float *x, int64_t n) {
  return is_wide_machine() ? wide_max(x, n) : vec_max_f32(x, n);
}
static double row_max_f64(const double *x, int64_t n) { return vec_max_f64(x, n); }
// x = exp(x - shift) for x <= shift; returns the sum.
static double row_exp_f32(float *x, float shift, int64_t n) {
  return is_wide_machine() ? wide_exp_sum(x, shift, n) : vec_exp_sum_f32(x, x, shift, n, 0);
}
static double row_exp_f64(double *x, double shift, int64_t n) {
  return vec_exp_sum_f64(x, x, shift, n, 0);
}

#define T float
#define DTYPE PX_FLOAT32
#define LOG logf
#define EXP expf
#define NAME(x) x##_f32
#include "cpu/nn/attention_rows.h"
#undef T
#undef DTYPE
#undef LOG
#undef EXP
#undef NAME
#define T double
#define DTYPE PX_FLOAT64
#define LOG log
#define EXP exp
#define NAME(x) x##_f64
#include "cpu/nn/attention_rows.h"

static bool is_wide(const attention *t) { return t->query->dtype == PX_FLOAT64; }
static void forward(void *ctx, int64_t begin, int64_t end) {
  attention *t = ctx;
  bool done = is_wide(t) ? forward_f64(t, begin, end) : forward_f32(t, begin, end);
  if (!done) __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
}
static void backward(void *ctx, int64_t begin, int64_t end) {
  attention *t = ctx;
  bool done = is_wide(t) ? backward_f64(t, begin, end) : backward_f32(t, begin, end);
  if (!done) __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
}

static attention sizes_of(const px_operand *q, const px_operand *k, const px_operand *v,
                          const px_operand *mask, double scale, double chance, bool causal) {
  int64_t width = q->sizes[3], value_width = v->sizes[3];
  return (attention){.query = q,
                     .key = k,
                     .value = v,
                     .mask = px__operand_present(mask) ? mask : NULL,
                     .batch = q->sizes[0],
                     .heads = q->sizes[1],
                     .groups = k->sizes[1],
                     .length = q->sizes[2],
                     .key_length = k->sizes[2],
                     .width = width,
                     .value_width = value_width,
                     .keys = width > LONG_ROW || value_width > LONG_ROW ? FEWER_KEYS : KEYS,
                     .scale = scale,
                     .chance = chance,
                     .keep_scale = chance < 1 ? 1 / (1 - chance) : 0,
                     .causal = causal};
}
// Out of memory is reported. If interrupted, the results are discarded.
static px_status finish(const attention *t, px__dense *d, const px_launch *l) {
  if (t->failed) px_kernel_fault(l, PX_FAULT_NOMEM, (int64_t)1 << 20, 0, 0);
  px__dense_close(d);
  return PX_OK;
}
static void draw_seed(const px_launch *l, int64_t *seed) {
  px_mt19937 *mt = l->mt19937;
  seed[0] = (int64_t)l->seed, seed[1] = (int64_t)l->offset;
  if (!mt) return;
  px_spin_lock(&mt->lock);
  seed[0] = (int64_t)px_mt19937_random64(mt), seed[1] = 0;
  px_spin_unlock(&mt->lock);
}
static void load_seed(attention *t, const int64_t *seed) {
  if (t->chance > 0 && seed) t->seed = (uint64_t)seed[0], t->offset = (uint64_t)seed[1];
}

PX_KERNEL(tiled_attention) {
  px__dense d = {.launch = l};
  attention t = sizes_of(args->query, args->key, args->value, args->attn_mask, args->scale,
                         args->dropout_p, args->is_causal);
  t.output = args->output;
  t.logsumexp = px__dense_out(&d, args->logsumexp, args->logsumexp->dtype);
  int64_t *seed = px__dense_out(&d, args->seed, PX_INT64);
  if (t.chance > 0 && seed) draw_seed(l, seed);
  load_seed(&t, seed);
  if (!d.failed && px_operand_numel(args->logsumexp))
    px__cpu_parallel(t.batch * t.heads * blocks_of(&t), 1, forward, &t);
  return finish(&t, &d, l);
}
PX_KERNEL(tiled_attention_backward) {
  px__dense d = {.launch = l};
  attention t = sizes_of(args->query, args->key, args->value, args->attn_mask, args->scale,
                         args->dropout_p, args->is_causal);
  t.output = args->output, t.grad = args->grad_output;
  t.grad_query = args->grad_query, t.grad_key = args->grad_key, t.grad_value = args->grad_value;
  t.logsumexp = px__dense_in(&d, args->logsumexp, px__compute_of(args->query->dtype));
  load_seed(&t, px__dense_in(&d, args->seed, PX_INT64));
  bool any = px_operand_numel(args->grad_query) || px_operand_numel(args->grad_key) ||
             px_operand_numel(args->grad_value);
  if (!d.failed && any) px__cpu_parallel(t.batch * t.groups, 1, backward, &t);
  return finish(&t, &d, l);
}

// The dropout mask of tiled_attention's score rows.
PX_KERNEL(attention_dropout) {
  px__dense d = {.launch = l};
  int64_t n = px__operand_size(args->out, -1), rows = n ? px_operand_numel(args->out) / n : 0;
  attention t = {.chance = args->dropout_p, .key_length = n};
  float *to = px__dense_out(&d, args->out, PX_FLOAT32);
  load_seed(&t, px__dense_in(&d, args->seed, PX_INT64));
  for (int64_t r = 0, work = 0; !d.failed && r < rows && !px__work_stopped(&work, n); r++)
    draw_dropout_mask(&t, r, 0, n, to + r * n);
  px__dense_close(&d);
  return PX_OK;
}
