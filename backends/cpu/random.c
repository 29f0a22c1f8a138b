// SPDX-License-Identifier: Apache-2.0
// Kernels of the random ops. Each has two sources: the CPU's Mersenne twister, drawn element by
// element in PyTorch's order, and (where the launch brings none) Philox in the layout of PyTorch's
// device kernels: a thread is a subsequence, and gives a block of values `blocks * 256` elements
// apart at each step.
#include "cpu/cells.h"
#include "cpu/convert.h"
#include "cpu/dense.h"
#include "cpu/draws.h"
#include "cpu/math.h"
#include "cpu/philox.h"
#include "kernel_args/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256, NORMALS_A_PIECE = 16384 };
static const double two_pi = 6.283185307179586476925286766559;

// Where the numbers go: elements of a dtype; none, if there was no memory.
typedef struct numbers {
  void *at;
  int64_t n;
  int dtype;
} numbers;
// An operand with its dimensions in the order of their strides, the largest first.
typedef struct ordered {
  px_operand o;
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
} ordered;
static const px_operand *by_memory(ordered *t, const px_operand *o) {
  t->o = *o, t->o.sizes = t->sizes, t->o.strides = t->strides;
  for (int i = 0; i < o->ndim; i++) {
    int at = i;
    for (; at > 0 && t->strides[at - 1] < o->strides[i]; at--)
      t->sizes[at] = t->sizes[at - 1], t->strides[at] = t->strides[at - 1];
    t->sizes[at] = o->sizes[i], t->strides[at] = o->strides[i];
  }
  return &t->o;
}
// On the CPU numbers are drawn in the order of the memory, as in PyTorch, by devices in that of the
// dimensions. What reads operands (`turned` is NULL) goes by their order.
static numbers numbers_of(px__dense *d, ordered *turned, const px_operand *o, int dtype) {
  bool turns = turned && d->launch->mt19937 && !px__operand_row_major(o);
  void *at = px__dense_out(d, turns ? by_memory(turned, o) : o, dtype);
  return (numbers){at, at ? px_operand_numel(o) : 0, dtype};
}
static void put(const numbers *d, int64_t i, double x) { px__cell_put(d->dtype, d->at, i, x); }
static void put_whole(const numbers *d, int64_t i, int64_t x) {
  px__cell_put_int(d->dtype, d->at, i, x);
}

// ---- Philox: a step of one thread gives four words; `emit` writes what they become

typedef struct philox_job {
  const px_launch *l;
  const numbers *d;
  double a, b;
  int64_t from, blocks;  // blocks: of the launch that the numbers are laid out for
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
  // Device draws are in (0, 1]: the upper bound becomes the lower one.
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
// One word a number; the short formats round a float, and the upper bound becomes the lower one.
// Scaling is fused: PyTorch's is, on all processors of today.
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
  ordered turned;
  numbers to = numbers_of(&d, &turned, args->out, args->out->dtype);
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

// Polar pairs of two words (float) or of four (double): the sine first, as cuRAND does.
static void emit_normal(const philox_job *job, const uint32_t *words, int lane, int64_t i) {
  double x;
  if (job->d->dtype == PX_FLOAT64) {
    double u = px_philox_uniform_double(words[0], words[1]);
    double v = px_philox_uniform_double(words[2], words[3]);
    double r = sqrt(-2 * log(u));
    x = r * (lane == 0 ? sin(two_pi * v) : cos(two_pi * v));
    put(job->d, i, x * job->b + job->a);
    return;
  }
  const uint32_t *pair = words + (lane & 2);
  float u = px_philox_uniform_float(pair[0]);
  float v = (float)pair[1] * (0x1p-32f * (float)two_pi) + 0x1p-33f * (float)two_pi;
  float r = sqrtf(-2 * logf(u));
  x = r * (lane & 1 ? cosf(v) : sinf(v));
  put(job->d, i, (float)x * (float)job->b + (float)job->a);
}
// Fewer than 16: one after the other, in double, the second of a pair kept for the next draw.
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
// Normals from the uniforms in x[0] and x[8], mean and deviation applied. Where PyTorch computes
// with vectors its logarithm and sine are those of the Cephes library with fused products, to the
// bit, and so are ours.
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
// Of an angle in [0, 2 pi): by its octant, and series about multiples of a quarter turn.
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
  bool turned = octant & 2;
  float a = turned ? c : s, b = turned ? s : c;
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
// Sixteen and more: uniforms first, then pairs eight apart; the last sixteen are drawn again where
// the length is no multiple.
typedef struct normals {
  float *x, mean, std;
} normals;
static void sixteens(void *context, int64_t begin, int64_t end) {
  const normals *s = context;
  for (int64_t i = begin; i < end; i++) pairs_f32(s->x + i * 16, s->mean, s->std);
}
static void normal_f32(float *x, int64_t n, int64_t first, px_mt19937 *mt, float mean, float std) {
  normals all = {x, mean, std};
  uniforms_f32(x, first, mt, 0, 1);
  px__cpu_parallel(n / 16, NORMALS_A_PIECE / 16, sixteens, &all);
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
// `short_format`: what the numbers become draws for whole sixteens and then for the last one, a
// float for all of its numbers and then for the last sixteen.
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
  ordered turned;
  numbers to = numbers_of(&d, &turned, args->out, mt ? px__compute_of(dtype) : dtype);
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

// ---- whole numbers

static void emit_random(const philox_job *job, const uint32_t *words, int lane, int64_t i) {
  put_whole(job->d, i, (int64_t)(words[lane] % job->range + (uint64_t)job->from));
}
static void emit_random_wide(const philox_job *job, const uint32_t *words, int lane, int64_t i) {
  uint64_t x = (uint64_t)words[2 * lane] << 32 | words[2 * lane + 1];
  put_whole(job->d, i, (int64_t)(x % job->range + (uint64_t)job->from));
}
PX_KERNEL(random) {
  px__dense d = {.launch = l};
  px_mt19937 *mt = l->mt19937;
  ordered turned;
  numbers to = numbers_of(&d, &turned, args->out, args->out->dtype);
  philox_job job = {.l = l, .d = &to, .blocks = l->blocks};
  bool ranged = px__random_range(&args->from, &args->to, &job.from, &job.range);
  if (!ranged) job.range = px__random_values(to.dtype);
  bool wide = ranged ? job.range >= UINT64_C(1) << (mt ? 32 : 28)
                     : to.dtype == PX_INT64 || to.dtype == PX_FLOAT64;
  if (mt) {
    for (px__steps s = {.n = to.n}; px__draw_step(&s, mt);)
      for (int64_t i = s.begin; i < s.end; i++) {
        uint64_t x = wide ? px_mt19937_random64(mt) : px_mt19937_random32(mt);
        put_whole(&to, i, (int64_t)(x % job.range + (uint64_t)job.from));
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
enum { PAIRS = 256 };
static void draw_pairs(px_mt19937 *mt, int64_t n, int64_t bits[PAIRS]) {
  uint32_t words[2 * PAIRS];
  for (int64_t have = 0; have < 2 * n;) have += px_mt19937_take(mt, 2 * n - have, words + have);
  for (int64_t i = 0; i < n; i++)
    bits[i] = (int64_t)(words[2 * i] & 0x1fffffu) << 32 | (int64_t)words[2 * i + 1];
}
// Elements of so many bytes: `one` where the bits are below the limit, else 0, which is 0 in every
// dtype.
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
// Element by element: `one` with probability p, else 0. A double below p is whole multiples of its
// last bit below it.
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
  ordered turned;
  numbers to = numbers_of(&d, &turned, args->out, args->out->dtype);
  philox_job job = {.l = l, .d = &to, .a = args->p, .b = 1, .blocks = l->blocks};
  if (l->mt19937)
    bernoulli_mt(&to, l->mt19937, args->p, 1);
  else
    philox_each(&job, unroll_of(&to), emit_bernoulli);
  px__dense_close(&d);
  return PX_OK;
}

// Each thread of the grid draws `lanes` neighbours, four to a block of words.
static void keep_neighbours(const philox_job *job, int64_t lanes) {
  int64_t threads = job->blocks * BLOCK, blocks = lanes > 4 ? lanes / 4 : 1;
  for (int64_t i = 0; i < job->d->n; i++) {
    int64_t piece = i / lanes, lane = i % lanes;
    uint64_t block = (uint64_t)(piece / threads * blocks + lane / 4);
    px_philox4 words =
        px_philox(job->l->seed, (uint64_t)(piece % threads), job->l->offset + 4 * block);
    put(job->d, i, px_philox_uniform_float(words.v[lane % 4]) < job->a ? job->b : 0);
  }
}
static void emit_kept(const philox_job *job, const uint32_t *words, int lane, int64_t i) {
  put(job->d, i, px_philox_uniform_float(words[lane]) < job->a ? job->b : 0);
}
// Draws of Philox are floats, compared as such with numbers of all dtypes but float64.
PX_KERNEL(dropout_mask) {
  px__dense d = {.launch = l};
  ordered turned;
  numbers to = numbers_of(&d, &turned, args->out, args->out->dtype);
  double keep = args->keep;
  philox_job job = {.l = l,
                    .d = &to,
                    .a = to.dtype == PX_FLOAT64 ? keep : (double)(float)keep,
                    .b = 1 / keep,
                    .blocks = l->blocks};
  if (l->mt19937)
    bernoulli_mt(&to, l->mt19937, keep, 1 / keep);
  else if (args->lanes > 1)
    keep_neighbours(&job, args->lanes);
  else
    philox_each(&job, 4, emit_kept);
  px__dense_close(&d);
  return PX_OK;
}
// The probabilities are a tensor.
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
      put(&to, i, mt ? u < p : u <= p);  // draws of devices are in (0, 1]
    }
  px__dense_close(&d);
  return PX_OK;
}
static void emit_exponential(const philox_job *job, const uint32_t *words, int lane, int64_t i) {
  bool wide = job->d->dtype == PX_FLOAT64;
  double u = philox_uniform(job, words, lane), half = wide ? 0x1p-53 : 0x1p-24;
  put(job->d, i, (u >= 1 - half ? half : wide ? -log(u) : (double)-logf((float)u)) / job->a);
}
PX_KERNEL(exponential) {
  px__dense d = {.launch = l};
  px_mt19937 *mt = l->mt19937;
  ordered turned;
  numbers to = numbers_of(&d, &turned, args->out, args->out->dtype);
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

// ---- numbers that take as many draws as it comes

// An element's source: the twister, or a subsequence of Philox, each draw a block of words.
typedef struct k_source {
  px_mt19937 *mt;
  uint64_t seed, subsequence, offset;
} k_source;
static px_philox4 next_words(k_source *s) {
  s->offset += 4;
  return px_philox(s->seed, s->subsequence, s->offset - 4);
}
static double k_uniform(k_source *s) {
  if (s->mt) return px_mt19937_uniform_double(s->mt);
  px_philox4 words = next_words(s);
  return px_philox_uniform_double(words.v[0], words.v[1]) * (1 - 0x1p-53);
}
static double k_normal(k_source *s) {
  if (s->mt) return normal_one(s->mt);
  px_philox4 words = next_words(s);
  double r = sqrt(-2 * log(px_philox_uniform_double(words.v[0], words.v[1])));
  return r * cos(two_pi * px_philox_uniform_double(words.v[2], words.v[3]));
}
#include "rejection.h"

// What a draw depends on: a number, or an operand's elements.
typedef struct parameter {
  const px_operand *from;
  double number;
} parameter;
// A draw of NaN is a fault where `fault` is one.
static px_status draw_each(const px_launch *l, const px_operand *out, px_fault_code fault,
                           double (*draw)(k_source *, double, double), parameter first,
                           parameter second) {
  px__dense d = {.launch = l};
  const double *a = first.from ? px__dense_in(&d, first.from, PX_FLOAT64) : NULL;
  const double *b = second.from ? px__dense_in(&d, second.from, PX_FLOAT64) : NULL;
  ordered turned;
  numbers to = numbers_of(&d, first.from || second.from ? NULL : &turned, out, out->dtype);
  px_mt19937 *mt = l->mt19937;
  for (px__steps s = {.n = to.n}; px__draw_step(&s, mt);)
    for (int64_t i = s.begin; i < s.end; i++) {
      k_source source = {mt, l->seed, (uint64_t)i, l->offset};
      double x = draw(&source, a ? a[i] : first.number, b ? b[i] : second.number);
      if (fault && x != x) px_kernel_fault(l, fault, 0, 0, 0);
      put(&to, i, x);
    }
  px__dense_close(&d);
  return PX_OK;
}
PX_KERNEL(geometric) {
  return draw_each(l, args->out, PX_FAULT_NONE, k_draw_geometric, (parameter){.number = args->p},
                   (parameter){0});
}
PX_KERNEL(cauchy) {
  return draw_each(l, args->out, PX_FAULT_NONE, k_draw_cauchy, (parameter){.number = args->median},
                   (parameter){.number = args->sigma});
}
PX_KERNEL(log_normal) {
  return draw_each(l, args->out, PX_FAULT_NONE, k_draw_log_normal,
                   (parameter){.number = args->mean}, (parameter){.number = args->std});
}
PX_KERNEL(_standard_gamma) {
  return draw_each(l, args->out, PX_FAULT_NONE, k_draw_gamma, (parameter){.from = args->self},
                   (parameter){.number = px__dtypes[args->out->dtype].tiny});
}
PX_KERNEL(poisson_draw) {
  return draw_each(l, args->out, PX_FAULT_RATE, k_draw_poisson, (parameter){.from = args->self},
                   (parameter){0});
}
PX_KERNEL(binomial_draw) {
  return draw_each(l, args->out, PX_FAULT_NONE, k_draw_binomial, (parameter){.from = args->count},
                   (parameter){.from = args->prob});
}
