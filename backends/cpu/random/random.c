// SPDX-License-Identifier: Apache-2.0
// Kernels of the random ops, each with two sources: the CPU's Mersenne Twister, drawn element by
// element in PyTorch's order; or, if the launch has none, Philox in the layout of PyTorch's device
// kernels: a thread is a subsequence and produces at each step a block of values `blocks * 256`
// elements apart.
#include "cpu/vector/load_store.h"
#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/random/mt19937_draws.h"
#include "cpu/vector/math.h"
#include "cpu/random/philox.h"
#include "kernel_args/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  BLOCK = 256,           // threads of a device block
  NORMALS_GRAIN = 16384  // normals per thread, min
};
static const double two_pi = 6.283185307179586476925286766559;

// Destination of the numbers; n is 0 if out of memory.
typedef struct numbers {
  void *at;
  int64_t n;
  int dtype;
} numbers;
// Numbers are drawn in memory order, as in PyTorch; in kernels with input operands
// (`ordered_operand` is NULL) in dimension order.
static numbers numbers_of(px__dense *d, px__ordered *ordered_operand, const px_operand *o,
                          int dtype) {
  void *at = px__dense_out(d, ordered_operand ? px__by_stride(ordered_operand, o) : o, dtype);
  return (numbers){at, at ? px_operand_numel(o) : 0, dtype};
}
static void put(const numbers *d, int64_t i, double x) { px__cell_put(d->dtype, d->at, i, x); }
static void put_int(const numbers *d, int64_t i, int64_t x) {
  px__cell_put_int(d->dtype, d->at, i, x);
}

// ---- Philox: a step of one thread yields four words; `emit` converts and stores them

typedef struct philox_job {
  const px_launch *l;
  const numbers *d;
  double a, b;
  int64_t from, blocks;  // blocks: device blocks of the emulated launch
  uint64_t range;
} philox_job;
typedef void (*emit_fn)(const philox_job *job, const uint32_t *words, int lane, int64_t i);

static void philox_each(const philox_job *job, int unroll, emit_fn emit) {
  const px_launch *l = job->l;
  int64_t n = job->d->n, stride = job->blocks * BLOCK;
  for (int64_t step = 0; step * stride * unroll < n; step++)
    for (int64_t t = 0; t < stride; t++) {
      int64_t first = step * stride * unroll + t;
      if (first >= n) break;
      px_philox4 words = px_philox(l->seed, (uint64_t)t, l->offset + 4 * (uint64_t)step);
      for (int lane = 0; lane < unroll && first + lane * stride < n; lane++)
        emit(job, words.v, lane, first + lane * stride);
    }
}
static double philox_uniform(const philox_job *job, const uint32_t *words, int lane) {
  return job->d->dtype == PX_FLOAT64
             ? px_philox_uniform_double(words[2 * lane], words[2 * lane + 1])
             : (double)px_philox_uniform_float(words[lane]);
}
static int unroll_of(const numbers *d) { return d->dtype == PX_FLOAT64 ? 2 : 4; }

// ---- uniform

static void emit_uniform(const philox_job *job, const uint32_t *words, int lane, int64_t i) {
  double u = philox_uniform(job, words, lane), x;
  if (job->d->dtype == PX_FLOAT64)
    x = fma(u, job->b - job->a, job->a);
  else
    x = fmaf((float)u, (float)job->b - (float)job->a, (float)job->a);
  // Device draws are in (0, 1]: the upper bound is replaced by the lower one.
  put(job->d, i, x == job->b ? job->a : x);
}
static void uniforms_f32(float *x, int64_t n, px_mt19937 *mt, float low, float width) {
  uint32_t words[PX_MT19937_WORDS];
  for (px__steps s = {.n = n}; px__draw_step(&s, mt);)
    for (int64_t i = s.begin, count; i < s.end; i += count) {
      count = px_mt19937_take(mt, s.end - i, words);
      for (int64_t k = 0; k < count; k++)
        x[i + k] = fmaf((float)(int32_t)(words[k] & 0xffffffu) * 0x1p-24f, width, low);
    }
}
// One word per number. fp16 and bf16 round a float, and the upper bound is replaced by the lower
// one. Scaling uses FMA, as PyTorch does on current processors.
static void uniform_mt(const numbers *d, px_mt19937 *mt, double from, double to) {
  if (d->dtype == PX_FLOAT64) {
    for (px__steps s = {.n = d->n}; px__draw_step(&s, mt);)
      for (int64_t i = s.begin; i < s.end; i++)
        ((double *)d->at)[i] = fma(px_mt19937_uniform_double(mt), to - from, from);
    return;
  }
  float low = (float)from, width = (float)to - (float)from;
  if (d->dtype == PX_FLOAT32) {
    uniforms_f32(d->at, d->n, mt, low, width);
    return;
  }
  double cell[1];
  px__cell_put(d->dtype, cell, 0, to);
  double bound = px__cell_get(d->dtype, cell, 0);
  for (px__steps s = {.n = d->n}; px__draw_step(&s, mt);)
    for (int64_t i = s.begin; i < s.end; i++) {
      put(d, i, fmaf((float)(int32_t)(px_mt19937_random32(mt) & 0xffffffu) * 0x1p-24f, width, low));
      if (px__cell_get(d->dtype, d->at, i) == bound) put(d, i, from);
    }
}
PX_KERNEL(uniform) {
  px__dense d = {.launch = l};
  px_mt19937 *mt = l->mt19937;
  px__ordered ordered_operand;
  numbers to = numbers_of(&d, &ordered_operand, args->out, args->out->dtype);
  if (mt) {
    uniform_mt(&to, mt, args->from, args->to);
  } else {
    philox_job job = {.l = l, .d = &to, .a = args->from, .b = args->to, .blocks = l->blocks};
    philox_each(&job, unroll_of(&to), emit_uniform);
  }
  px__dense_close(&d);
  return PX_OK;
}

// ---- normal

// Box-Muller pairs from two words (float) or four (double), sine first as in cuRAND.
static double wide_normal(const uint32_t words[4], bool second) {
  double u = px_philox_uniform_double(words[0], words[1]);
  double v = px_philox_uniform_double(words[2], words[3]);
  return sqrt(-2 * log(u)) * (second ? cos(two_pi * v) : sin(two_pi * v));
}
static float philox_angle(uint32_t word) {
  return (float)word * (0x1p-32f * (float)two_pi) + 0x1p-33f * (float)two_pi;
}
// Scaled and shifted in the compute dtype.
static double scaled_normal(const philox_job *job, const uint32_t *words, int lane) {
  if (job->d->dtype == PX_FLOAT64) return wide_normal(words, lane) * job->b + job->a;
  const uint32_t *pair = words + (lane & 2);
  float r = sqrtf(-2 * logf(px_philox_uniform_float(pair[0]))), v = philox_angle(pair[1]);
  float x = r * (lane & 1 ? cosf(v) : sinf(v));
  return (double)(x * (float)job->b + (float)job->a);
}
static void emit_normal(const philox_job *job, const uint32_t *words, int lane, int64_t i) {
  put(job->d, i, scaled_normal(job, words, lane));
}
// Fewer than 16 elements: one by one in double; the second of a pair is cached for the next draw.
static double normal_one(px_mt19937 *mt) {
  if (mt->has_normal_double) {
    mt->has_normal_double = false;
    return mt->normal_double;
  }
  double u1 = px_mt19937_uniform_double(mt), u2 = px_mt19937_uniform_double(mt);
  double r = sqrt(-2 * log1p(-u2)), theta = two_pi * u1;
  mt->normal_double = r * sin(theta);
  mt->has_normal_double = true;
  return r * cos(theta);
}
// Normals from the uniforms x[0] and x[8], scaled by mean and std. PyTorch's vectorized code uses
// Cephes' log and sincos with FMA; this matches it bit for bit.
#ifdef __FMA__
static inline float normal_log(float u) {
  uint32_t bits = px__float_bits(u);
  float m = px__bits_float((bits & 0x007fffffu) | 0x3f000000u);  // in [1/2, 1)
  bool low = m < 0.707106781186547524f;
  float e = (float)((int32_t)(bits >> 23) - 126 - low);
  m = m - 1 + (low ? m : 0);
  float z = m * m, y = 7.0376836292e-2f;
  y = fmaf(y, m, -1.1514610310e-1f);
  y = fmaf(y, m, 1.1676998740e-1f);
  y = fmaf(y, m, -1.2420140846e-1f);
  y = fmaf(y, m, 1.4249322787e-1f);
  y = fmaf(y, m, -1.6668057665e-1f);
  y = fmaf(y, m, 2.0000714765e-1f);
  y = fmaf(y, m, -2.4999993993e-1f);
  y = fmaf(y, m, 3.3333331174e-1f);
  y = fmaf(y * m, z, e * -2.12194440e-4f);
  y = fmaf(-z, 0.5f, y);
  return fmaf(e, 0.693359375f, m + y);
}
// sin and cos of an angle in [0, 2 pi), by octant and series around multiples of pi / 2.
static inline void normal_sincos(float x, float *sine, float *cosine) {
  int32_t octant = ((int32_t)(x * 1.27323954473516f) + 1) & ~1;
  float y = (float)octant;
  x = fmaf(y, -0.78515625f, x);
  x = fmaf(y, -2.4187564849853515625e-4f, x);
  x = fmaf(y, -3.77489497744594108e-8f, x);
  float z = x * x, c = 2.443315711809948e-5f, s = -1.9515295891e-4f;
  c = fmaf(c, z, -1.388731625493765e-3f);
  c = fmaf(c, z, 4.166664568298827e-2f);
  c = fmaf(c * z, z, -(z * 0.5f)) + 1;
  s = fmaf(s, z, 8.3321608736e-3f);
  s = fmaf(s, z, -1.6666654611e-1f);
  s = fmaf(s * z, x, x);
  bool ordered_operand = octant & 2;
  float a = ordered_operand ? c : s, b = ordered_operand ? s : c;
  *sine = octant & 4 ? -a : a;
  *cosine = (octant + 2) & 4 ? -b : b;
}
static inline void normal_pair(float *x, float mean, float std) {
  float r = sqrtf(-2 * normal_log(1 - x[0])), sine, cosine;
  normal_sincos((float)two_pi * x[8], &sine, &cosine);
  x[0] = fmaf(r * cosine, std, mean);
  x[8] = fmaf(r * sine, std, mean);
}
#else
static inline void normal_pair(float *x, float mean, float std) {
  float r = sqrtf(-2 * logf(1 - x[0])), theta = (float)two_pi * x[8];
  x[0] = r * cosf(theta) * std + mean;
  x[8] = r * sinf(theta) * std + mean;
}
#endif
static void pairs_f32(float *x, float mean, float std) {
  for (int j = 0; j < 8; j++) normal_pair(x + j, mean, std);
}
static void pairs_f64(double *x, double mean, double std) {
  for (int j = 0; j < 8; j++) {
    double u1 = 1 - x[j], theta = two_pi * x[j + 8];
    double r = sqrt(-2 * log(u1));
    x[j] = r * cos(theta) * std + mean;
    x[j + 8] = r * sin(theta) * std + mean;
  }
}
// 16 elements or more: uniforms first, then pairs 8 apart. If the length is not a multiple of 16,
// the last 16 are drawn again.
typedef struct normals {
  float *x, mean, std;
} normals;
static void normal_groups(void *context, int64_t begin, int64_t end) {
  const normals *s = context;
  for (int64_t i = begin; i < end; i++) pairs_f32(s->x + i * 16, s->mean, s->std);
}
static void normal_f32(float *x, int64_t n, int64_t first, px_mt19937 *mt, float mean, float std) {
  normals all = {x, mean, std};
  uniforms_f32(x, first, mt, 0, 1);
  px__cpu_parallel(n / 16, NORMALS_GRAIN / 16, normal_groups, &all);
  if (n % 16 == 0) return;
  uniforms_f32(x + n - 16, 16, mt, 0, 1);
  pairs_f32(x + n - 16, mean, std);
}
static void uniforms_f64(double *x, int64_t n, px_mt19937 *mt) {
  for (px__steps s = {.n = n}; px__draw_step(&s, mt);)
    for (int64_t i = s.begin; i < s.end; i++) x[i] = px_mt19937_uniform_double(mt);
}
static void normal_f64(double *x, int64_t n, px_mt19937 *mt, double mean, double std) {
  uniforms_f64(x, n, mt);
  for (px__steps s = {.n = n / 16}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) pairs_f64(x + i * 16, mean, std);
  if (n % 16 == 0) return;
  uniforms_f64(x + n - 16, 16, mt);
  pairs_f64(x + n - 16, mean, std);
}
// `short_format` (fp16, bf16): draws for the whole groups of 16 only, then for the last 16; float
// draws for all numbers, then for the last 16.
static void normal_mt(const numbers *d, bool row_major, bool short_format, px_mt19937 *mt,
                      double mean, double std) {
  if (d->n < 16 || !row_major) {
    for (px__steps s = {.n = d->n}; px__draw_step(&s, mt);)
      for (int64_t i = s.begin; i < s.end; i++) {
        double x = normal_one(mt) * std + mean;
        if (d->dtype == PX_FLOAT64)
          ((double *)d->at)[i] = x;
        else
          ((float *)d->at)[i] = (float)x;
      }
  } else if (d->dtype == PX_FLOAT64) {
    normal_f64(d->at, d->n, mt, mean, std);
  } else {
    normal_f32(d->at, d->n, short_format ? d->n / 16 * 16 : d->n, mt, (float)mean, (float)std);
  }
}
PX_KERNEL(normal) {
  px__dense d = {.launch = l};
  px_mt19937 *mt = l->mt19937;
  int dtype = args->out->dtype;
  px__ordered ordered_operand;
  numbers to = numbers_of(&d, &ordered_operand, args->out, mt ? px__compute_of(dtype) : dtype);
  if (mt) {
    bool short_format = dtype == PX_FLOAT16 || dtype == PX_BFLOAT16;
    normal_mt(&to, px__operand_row_major(args->out), short_format, mt, args->mean, args->std);
  } else {
    philox_job job = {.l = l, .d = &to, .a = args->mean, .b = args->std, .blocks = l->blocks};
    philox_each(&job, unroll_of(&to), emit_normal);
  }
  px__dense_close(&d);
  return PX_OK;
}

// ---- integers

static void emit_random(const philox_job *job, const uint32_t *words, int lane, int64_t i) {
  put_int(job->d, i, (int64_t)(words[lane] % job->range + (uint64_t)job->from));
}
static void emit_random_wide(const philox_job *job, const uint32_t *words, int lane, int64_t i) {
  uint64_t x = (uint64_t)words[2 * lane] << 32 | words[2 * lane + 1];
  put_int(job->d, i, (int64_t)(x % job->range + (uint64_t)job->from));
}
PX_KERNEL(random) {
  px__dense d = {.launch = l};
  px_mt19937 *mt = l->mt19937;
  px__ordered ordered_operand;
  numbers to = numbers_of(&d, &ordered_operand, args->out, args->out->dtype);
  philox_job job = {.l = l, .d = &to, .blocks = l->blocks};
  bool ranged = px__random_range(&args->from, &args->to, &job.from, &job.range);
  if (!ranged) job.range = px__random_values(to.dtype);
  bool wide =
      ranged ? job.range >= UINT64_C(1) << 28 : to.dtype == PX_INT64 || to.dtype == PX_FLOAT64;
  if (mt) {
    for (px__steps s = {.n = to.n}; px__draw_step(&s, mt);)
      for (int64_t i = s.begin; i < s.end; i++) {
        uint64_t x = wide ? px_mt19937_random64(mt) : px_mt19937_random32(mt);
        put_int(&to, i, (int64_t)(x % job.range + (uint64_t)job.from));
      }
  } else {
    philox_each(&job, wide ? 2 : 4, wide ? emit_random_wide : emit_random);
  }
  px__dense_close(&d);
  return PX_OK;
}

// ---- bernoulli, exponential

static void emit_bernoulli(const philox_job *job, const uint32_t *words, int lane, int64_t i) {
  put(job->d, i, philox_uniform(job, words, lane) < job->a ? job->b : 0);
}
// The next n pairs of words, each as the 53 bits of a double.
enum { PAIRS = 128 };
static void draw_pairs(px_mt19937 *mt, int64_t n, int64_t bits[PAIRS]) {
  uint32_t words[2 * PAIRS];
  for (int64_t have = 0; have < 2 * n;) have += px_mt19937_take(mt, 2 * n - have, words + have);
  for (int64_t i = 0; i < n; i++)
    bits[i] = (int64_t)(words[2 * i] & 0x1fffffu) << 32 | (int64_t)words[2 * i + 1];
}
// Elements of so many bytes: `one` if the bits are below the limit, else zero bytes.
#define CHOOSE(bytes, cell) \
  static void choose_##bytes(void *to, const void *one, const int64_t *bits, int64_t limit, \
                             int64_t n) { \
    cell x; \
    memcpy(&x, one, sizeof x); \
    for (int64_t i = 0; i < n; i++) ((cell *)to)[i] = bits[i] < limit ? x : 0; \
  }
CHOOSE(1, uint8_t)
CHOOSE(2, uint16_t)
CHOOSE(4, uint32_t)
CHOOSE(8, uint64_t)
#undef CHOOSE
// Element by element: `one` with probability p, else 0. Compares in 53-bit integers: u < p if and
// only if its bits are below ceil(p * 2^53).
static void bernoulli_mt(const numbers *d, px_mt19937 *mt, double p, double one) {
  static void (*const by_bytes[])(void *, const void *, const int64_t *, int64_t, int64_t) = {
      [1] = choose_1, [2] = choose_2, [4] = choose_4, [8] = choose_8};
  int64_t limit = (int64_t)ceil(p * 0x1p53), item = px__cpu_item[d->dtype], bits[PAIRS];
  char cell[8];
  px__cell_put(d->dtype, cell, 0, one);
  for (px__steps s = {.n = d->n}; px__draw_step(&s, mt);)
    for (int64_t i = s.begin; i < s.end; i += PAIRS) {
      int64_t n = s.end - i < PAIRS ? s.end - i : PAIRS;
      draw_pairs(mt, n, bits);
      by_bytes[item]((char *)d->at + i * item, cell, bits, limit, n);
    }
}
PX_KERNEL(bernoulli_scalar) {
  px__dense d = {.launch = l};
  px__ordered ordered_operand;
  numbers to = numbers_of(&d, &ordered_operand, args->out, args->out->dtype);
  philox_job job = {.l = l, .d = &to, .a = args->p, .b = 1, .blocks = l->blocks};
  if (l->mt19937)
    bernoulli_mt(&to, l->mt19937, args->p, 1);
  else
    philox_each(&job, unroll_of(&to), emit_bernoulli);
  px__dense_close(&d);
  return PX_OK;
}

// Each thread of the grid draws `lanes` adjacent elements, four per block of words.
static void dropout_adjacent(const philox_job *job, int64_t lanes) {
  int64_t threads = job->blocks * BLOCK, blocks = lanes > 4 ? lanes / 4 : 1;
  for (int64_t i = 0; i < job->d->n; i++) {
    int64_t piece = i / lanes, lane = i % lanes;
    uint64_t block = (uint64_t)(piece / threads * blocks + lane / 4);
    px_philox4 words =
        px_philox(job->l->seed, (uint64_t)(piece % threads), job->l->offset + 4 * block);
    put(job->d, i, px_philox_uniform_float(words.v[lane % 4]) < job->a ? job->b : 0);
  }
}
static void emit_dropout(const philox_job *job, const uint32_t *words, int lane, int64_t i) {
  put(job->d, i, px_philox_uniform_float(words[lane]) < job->a ? job->b : 0);
}
// Philox draws are floats. They are compared in float for every dtype except float64. Devices draw
// in dimension order, as PyTorch does.
PX_KERNEL(dropout_mask) {
  px__dense d = {.launch = l};
  px__ordered ordered_operand;
  numbers to = numbers_of(&d, l->mt19937 ? &ordered_operand : NULL, args->out, args->out->dtype);
  double keep = args->keep;
  philox_job job = {.l = l,
                    .d = &to,
                    .a = to.dtype == PX_FLOAT64 ? keep : (double)(float)keep,
                    .b = 1 / keep,
                    .blocks = l->blocks};
  if (l->mt19937)
    bernoulli_mt(&to, l->mt19937, keep, 1 / keep);
  else if (args->lanes > 1)
    dropout_adjacent(&job, args->lanes);
  else
    philox_each(&job, 4, emit_dropout);
  px__dense_close(&d);
  return PX_OK;
}
// bernoulli with a tensor of probabilities.
PX_KERNEL(bernoulli) {
  px__dense d = {.launch = l};
  bool wide = args->self->dtype == PX_FLOAT64;
  const void *self = px__dense_in(&d, args->self, wide ? PX_FLOAT64 : PX_FLOAT32);
  numbers to = numbers_of(&d, NULL, args->out, args->out->dtype);
  px_mt19937 *mt = l->mt19937;
  for (px__steps s = {.n = to.n}; px__draw_step(&s, mt);)
    for (int64_t i = s.begin; i < s.end; i++) {
      double p = wide ? ((const double *)self)[i] : (double)((const float *)self)[i], u;
      if (!(p >= 0 && p <= 1)) {
        px_kernel_fault(l, PX_FAULT_PROBABILITY, 0, 0, 0);
        continue;
      }
      if (mt)
        u = wide ? px_mt19937_uniform_double(mt) : (double)px_mt19937_uniform_float(mt);
      else
        u = px_philox_uniform_float(px_philox(l->seed, (uint64_t)i / 4, l->offset).v[i % 4]);
      put(&to, i, mt ? u < p : u <= p);  // device draws are in (0, 1]
    }
  px__dense_close(&d);
  return PX_OK;
}
static void emit_exponential(const philox_job *job, const uint32_t *words, int lane, int64_t i) {
  bool wide = job->d->dtype == PX_FLOAT64;
  put(job->d, i, px__philox_exponential(philox_uniform(job, words, lane), wide) / job->a);
}
PX_KERNEL(exponential) {
  px__dense d = {.launch = l};
  px_mt19937 *mt = l->mt19937;
  px__ordered ordered_operand;
  numbers to = numbers_of(&d, &ordered_operand, args->out, args->out->dtype);
  double lambd = args->lambd;
  philox_job job = {.l = l, .d = &to, .a = lambd, .blocks = l->blocks};
  if (mt) {
    for (px__steps s = {.n = to.n}; px__draw_step(&s, mt);)
      for (int64_t i = s.begin; i < s.end; i++)
        put(&to, i, -1 / lambd * log1p(-px_mt19937_uniform_double(mt)));
  } else {
    philox_each(&job, unroll_of(&to), emit_exponential);
  }
  px__dense_close(&d);
  return PX_OK;
}

// ---- distributions with a variable number of draws

// A source of draws: the Mersenne Twister, or a subsequence of Philox, word by word.
typedef struct k_source {
  px_mt19937 *mt;
  uint64_t seed, subsequence, offset;
  double spare;  // second normal of a pair
  bool has_spare;
} k_source;
static bool k_is_device(const k_source *s) { return !s->mt; }
static uint32_t next_word(k_source *s) {
  uint64_t at = s->offset++;
  return px_philox(s->seed, s->subsequence, at).v[at % 4];
}
static double k_uniform(k_source *s) {
  return s->mt ? px_mt19937_uniform_double(s->mt) : (double)px_philox_uniform_float(next_word(s));
}
static double k_fraction(k_source *s) {
  return s->mt ? px_mt19937_uniform_double(s->mt) : (next_word(s) & 0xffffffu) * 0x1p-24;
}
static double k_normal(k_source *s) {
  if (s->mt) return normal_one(s->mt);
  if (s->has_spare) return s->has_spare = false, s->spare;
  float u = px_philox_uniform_float(next_word(s)), v = philox_angle(next_word(s));
  float r = sqrtf(-2 * logf(u));
  s->spare = r * cosf(v), s->has_spare = true;
  return r * sinf(v);
}
static double k_wide_normal(k_source *s) {
  px_philox4 words = px_philox(s->seed, s->subsequence, s->offset);
  s->offset += 4;
  return wide_normal(words.v, false);
}
#include "rejection.h"

// `lanes` numbers, 128 elements apart, come from one source of Philox. A NaN draw reports `fault`,
// if any.
typedef struct sampler {
  double (*draw)(k_source *, double, double);
  const px_operand *first, *second;  // the parameters' elements; or NULL
  double number;                     // instead of the second
  px_fault_code fault;
  int lanes;
} sampler;
static px_status draw_each(const px_launch *l, const px_operand *out, const sampler *p) {
  enum { THREADS = 128 };
  px__dense d = {.launch = l};
  const double *a = px__dense_in(&d, p->first, PX_FLOAT64);
  const double *b = p->second ? px__dense_in(&d, p->second, PX_FLOAT64) : NULL;
  numbers to = numbers_of(&d, NULL, out, out->dtype);
  px_mt19937 *mt = l->mt19937;
  int64_t lanes = mt ? 1 : p->lanes, sources = (to.n + lanes * THREADS - 1) / (lanes * THREADS);
  for (px__steps s = {.n = sources * THREADS}; px__draw_step(&s, mt);)
    for (int64_t thread = s.begin; thread < s.end; thread++) {
      k_source source = {
          .mt = mt, .seed = l->seed, .subsequence = (uint64_t)thread, .offset = l->offset};
      int64_t i = thread / THREADS * THREADS * lanes + thread % THREADS;
      for (int64_t lane = 0; lane < lanes && i < to.n; lane++, i += THREADS) {
        double x = p->draw(&source, a[i], b ? b[i] : p->number);
        if (p->fault && x != x) px_kernel_fault(l, p->fault, 0, 0, 0);
        put(&to, i, x);
      }
    }
  px__dense_close(&d);
  return PX_OK;
}
PX_KERNEL(_standard_gamma) {
  return draw_each(l, args->out,
                   &(sampler){.draw = k_draw_gamma,
                              .first = args->self,
                              .number = px__dtypes[args->out->dtype].tiny,
                              .lanes = 1});
}
PX_KERNEL(poisson_draw) {
  return draw_each(
      l, args->out,
      &(sampler){.draw = k_draw_poisson, .first = args->self, .fault = PX_FAULT_RATE, .lanes = 1});
}
PX_KERNEL(binomial_draw) {
  return draw_each(
      l, args->out,
      &(sampler){.draw = k_draw_binomial, .first = args->count, .second = args->prob, .lanes = 8});
}

// ---- distributions by a function of a uniform or a normal number

static void emit_geometric(const philox_job *job, const uint32_t *words, int lane, int64_t i) {
  put(job->d, i, k_geometric(philox_uniform(job, words, lane), job->a));
}
// Devices keep the uniform number away from 0 and 1.
static void emit_cauchy(const philox_job *job, const uint32_t *words, int lane, int64_t i) {
  double near = job->d->dtype == PX_FLOAT64 ? 0x1p-52 : 0x1p-23;
  double u = fmin(fmax(philox_uniform(job, words, lane), near), 1 - near);
  put(job->d, i, k_cauchy(u, job->a, job->b));
}
static void emit_log_normal(const philox_job *job, const uint32_t *words, int lane, int64_t i) {
  put(job->d, i, exp(scaled_normal(job, words, lane)));
}
static double draw_geometric(px_mt19937 *mt, double p, double none) {
  return k_geometric(px_mt19937_uniform_double(mt), p) + none;
}
static double draw_cauchy(px_mt19937 *mt, double median, double sigma) {
  return k_cauchy(px_mt19937_uniform_double(mt), median, sigma);
}
static double draw_log_normal(px_mt19937 *mt, double mean, double deviation) {
  return exp(normal_one(mt) * deviation + mean);
}
static px_status transform_each(const px_launch *l, const px_operand *out,
                                double (*draw)(px_mt19937 *, double, double), emit_fn emit,
                                double a, double b) {
  px__dense d = {.launch = l};
  px_mt19937 *mt = l->mt19937;
  px__ordered ordered_operand;
  numbers to = numbers_of(&d, &ordered_operand, out, out->dtype);
  philox_job job = {.l = l, .d = &to, .a = a, .b = b, .blocks = l->blocks};
  if (!mt) philox_each(&job, unroll_of(&to), emit);
  for (px__steps s = {.n = mt ? to.n : 0}; px__draw_step(&s, mt);)
    for (int64_t i = s.begin; i < s.end; i++) put(&to, i, draw(mt, a, b));
  px__dense_close(&d);
  return PX_OK;
}
PX_KERNEL(geometric) {
  return transform_each(l, args->out, draw_geometric, emit_geometric, args->p, 0);
}
PX_KERNEL(cauchy) {
  return transform_each(l, args->out, draw_cauchy, emit_cauchy, args->median, args->sigma);
}
PX_KERNEL(log_normal) {
  return transform_each(l, args->out, draw_log_normal, emit_log_normal, args->mean, args->std);
}
