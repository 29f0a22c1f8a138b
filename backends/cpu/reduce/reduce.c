// SPDX-License-Identifier: Apache-2.0
// Reductions other than folds: variance, norms, logsumexp.
//
// A result is computed from its elements in input order, in blocks of float or double; exponentials
// of floats are computed in float. The pool processes independent results, or the blocks of a
// result if there is only one.
#include "cpu/threads/buffer.h"
#include "cpu/reduce/reduced_dims.h"
#include "cpu/convert/dense.h"
#include "cpu/loop/loop.h"
#include "cpu/threads/threads.h"
#include "cpu/vector/rows.h"
#include "kernel_args/reduce.h"

enum {
  BLOCK = 1024,      // elements converted at a time
  PARALLEL = 16384,  // elements per thread, min
  COLUMNS = 128,     // columns reduced together
  FLOAT_SUM = 256    // floats added in float
};

typedef struct walk walk;
typedef void (*reduce_fn)(const walk *w, const char *base, px__axes_offset at);  // one result
struct walk {
  px__axes x;
  const char *in;
  char *out;
  int in_dtype, block_dtype, out_dtype;
  reduce_fn reduce_one;
  double number;  // correction of a variance, p of a norm
  bool root;      // std instead of var
};

// Partial state of a reduction: its parameter (a mean, or the p of a norm), and the sum.
typedef struct partial {
  double number, sum;
  double top, non_finite;  // logsumexp: max, and sum of blocks with a non-finite max
} partial;
typedef void (*block_fn)(partial *s, const void *block, int64_t n);
typedef void (*join_fn)(partial *s, const partial *next);

// The blocks of one result, each within a line; GROUP of them form a unit.
enum { GROUP = PARALLEL / BLOCK, GROUPS_AT_ONCE = 64 };
typedef struct blocks {
  const walk *w;
  const char *base;
  block_fn fn;
  int64_t inner, blocks_per_line, count;
  int64_t first;  // first group of the current `parts`
  partial parts[GROUPS_AT_ONCE];
} blocks;

static void each_group(void *context, int64_t begin, int64_t end) {
  blocks *b = context;
  const walk *w = b->w;
  PX__BUFFER(int64_t, buffer, BLOCK);
  int64_t stride = w->x.reduced[0].in, item = px__cpu_item[w->block_dtype], work = 0;
  bool is_direct = w->in_dtype == w->block_dtype && stride == item;
  int64_t at = (b->first + begin) * GROUP, stop = (b->first + end) * GROUP;
  int64_t line = at ? at / b->blocks_per_line : 0, k = (at - line * b->blocks_per_line) * BLOCK;
  const char *from =
      b->base + px__axes_offset_of(w->x.reduced, 1, w->x.reduced_count, line).in + k * stride;
  if (stop > b->count) stop = b->count;
  for (partial *s = b->parts + begin; at < stop; s += ++at % GROUP == 0) {
    int64_t n = b->inner - k < BLOCK ? b->inner - k : BLOCK;
    if (!is_direct) px__cpu_convert(buffer, item, w->block_dtype, from, stride, w->in_dtype, n);
    b->fn(s, is_direct ? (const void *)from : buffer, n);
    if (px__work_stopped(&work, n)) return;
    k += n, from += n * stride;
    if (k < b->inner || at + 1 == b->count) continue;
    k = 0, from = b->base + px__axes_offset_of(w->x.reduced, 1, w->x.reduced_count, ++line).in;
  }
}
// Merges all blocks into s, in the order of groups, regardless of the threads.
static void all_blocks(const walk *w, const char *base, block_fn fn, join_fn join, partial *s) {
  bool is_direct =
      w->in_dtype == w->block_dtype && w->x.reduced[0].in == px__cpu_item[w->block_dtype];
  if (is_direct && w->x.reduced_count == 1 && w->x.length > 0 && w->x.length <= BLOCK) {
    fn(s, base, w->x.length);
    return;
  }
  blocks b;  // parts are left uninitialized: clearing would take longer than a short row
  b.w = w, b.base = base, b.fn = fn, b.inner = w->x.reduced[0].size, b.first = 0;
  b.blocks_per_line = px__ceil_div(b.inner, BLOCK);
  b.count = w->x.length ? w->x.length / b.inner * b.blocks_per_line : 0;
  int64_t groups = px__ceil_div(b.count, GROUP);
  const partial initial = b.parts[0] = *s;
  if (groups <= 1) {
    each_group(&b, 0, groups);
    *s = b.parts[0];
    return;
  }
  int64_t grain = b.inner < BLOCK ? BLOCK / b.inner : 1;
  for (; b.first < groups && (b.first == 0 || !px__cpu_stopped()); b.first += GROUPS_AT_ONCE) {
    int64_t n = groups - b.first < GROUPS_AT_ONCE ? groups - b.first : GROUPS_AT_ONCE;
    for (int64_t i = 0; i < n; i++) b.parts[i] = initial;
    px__cpu_parallel(n, grain, each_group, &b);
    for (int64_t i = 0; i < n; i++) join(s, &b.parts[i]);
  }
}
static void add_sums(partial *s, const partial *next) { s->sum += next->sum; }

static void each_result(void *context, int64_t begin, int64_t end) {
  const walk *w = context;
  for (int64_t i = begin; i < end; i++) {
    px__axes_offset at = px__axes_offset_of(w->x.kept, 0, w->x.kept_count, i);
    w->reduce_one(w, w->in + at.in, at);
  }
}

static void each_columns(void *context, int64_t begin, int64_t end);
static void one_logsumexp(const walk *w, const char *base, px__axes_offset at);
static void one_norm(const walk *w, const char *base, px__axes_offset at);

// Axes are left uninitialized: clearing would take longer than a small reduction.
static px_status run(const px_operand *out, const px_operand *in, reduce_fn reduce_one,
                     double number, bool root) {
  walk w;
  w.reduce_one = reduce_one, w.number = number, w.root = root;
  w.in = in->data, w.out = out->data;
  w.in_dtype = in->dtype, w.out_dtype = out->dtype;
  px__axes_load(&w.x, out, NULL, in, false);
  // Strided float16 converts faster to double.
  bool is_strided = in->dtype == PX_FLOAT16 && w.x.reduced[0].in != px__cpu_item[PX_FLOAT16];
  bool floats = reduce_one == one_logsumexp || (reduce_one == one_norm && !is_strided);
  floats &= px__compute_of(in->dtype) == PX_FLOAT32;
  w.block_dtype = floats ? PX_FLOAT32 : PX_FLOAT64;
  int64_t work = w.x.length > 0 ? w.x.length : 1, width = w.x.kept[0].size;
  if (reduce_one == one_logsumexp && px__axes_reduces_outer(&w.x))
    px__cpu_parallel(px__axes_pieces(&w.x, COLUMNS),
                     PARALLEL / (work * (width < COLUMNS ? width : COLUMNS)) + 1, each_columns, &w);
  else
    px__cpu_parallel(w.x.results, PARALLEL / work + 1, each_result, &w);
  return PX_OK;
}

static void store(const walk *w, px__axes_offset at, double value) {
  if (w->out_dtype == PX_FLOAT32) {
    *(float *)(void *)(w->out + at.out) = (float)value;
    return;
  }
  px__cpu_convert(w->out + at.out, 8, w->out_dtype, &value, 8, PX_FLOAT64, 1);
}

// ---- variance: the mean, then the squared deviations

static void add_plain(partial *s, const void *block, int64_t n) {
  const double *e = block;
  double lane[8] = {0};
  int64_t k = 0;
  for (; k + 8 <= n; k += 8)
    for (int j = 0; j < 8; j++) lane[j] += e[k + j];
  for (; k < n; k++) lane[k & 7] += e[k];
  for (int j = 0; j < 8; j++) s->sum += lane[j];
}
static void add_squares(partial *s, const void *block, int64_t n) {
  const double *e = block;
  double lane[8] = {0}, mean = s->number;
  int64_t k = 0;
  for (; k + 8 <= n; k += 8)
    for (int j = 0; j < 8; j++) lane[j] += (e[k + j] - mean) * (e[k + j] - mean);
  for (; k < n; k++) lane[k & 7] += (e[k] - mean) * (e[k] - mean);
  for (int j = 0; j < 8; j++) s->sum += lane[j];
}
static void one_variance(const walk *w, const char *base, px__axes_offset at) {
  partial s = {0};
  double n = (double)w->x.length;
  all_blocks(w, base, add_plain, add_sums, &s);
  s.number = s.sum / n, s.sum = 0;
  all_blocks(w, base, add_squares, add_sums, &s);
  double degrees = n - w->number, var = s.sum / (degrees > 0 ? degrees : 0);
  store(w, at, w->root ? sqrt(var) : var);
}
PX_KERNEL(var) {
  return run(args->out, args->self, one_variance, px__number_or(&args->correction, 1), false);
}
PX_KERNEL(std) {
  return run(args->out, args->self, one_variance, px__number_or(&args->correction, 1), true);
}

// ---- norms

// One element of a norm with p = 0 or p = +-inf.
static double norm_join(double sum, double x, double p) {
  double a = fabs(x);
  if (p == 0) return sum + (x != 0);
  if (p == (double)INFINITY) return a > sum || a != a ? a : sum;
  return a < sum || a != a ? a : sum;
}
// Adds an element to the sum; the square of a float is exact in double.
static inline double norm_square(double s, double x, double p) { return K_FMA_f64(x, x, s); }
static inline double norm_size(double s, double x, double p) { return s + fabs(x); }
static inline double norm_cube(double s, double x, double p) { return s + fabs(x) * x * x; }
static inline double norm_power(double s, double x, double p) { return s + pow(fabs(x), p); }
#define NORM_SUM(TARGET, NAME, LANES, T, F) \
  TARGET static double NAME(const T *e, int64_t n, double p) { \
    double lane[LANES] = {0}; \
    int64_t k = 0; \
    for (; k + LANES <= n; k += LANES) \
      PX__CPU_ROLLED for (int j = 0; j < LANES; j++) lane[j] = F(lane[j], (double)e[k + j], p); \
    for (double *l = lane; k + 8 <= n; k += 8, l += 8) \
      PX__CPU_ROLLED for (int j = 0; j < 8; j++) l[j] = F(l[j], (double)e[k + j], p); \
    for (; k < n; k++) lane[k % LANES] = F(lane[k % LANES], (double)e[k], p); \
    for (int half = LANES / 2; half; half /= 2) \
      for (int j = 0; j < half; j++) lane[j] += lane[j + half]; \
    return lane[0]; \
  }
#define ADD_NORM(S, T) \
  NORM_SUM(, squares_##S, 8, T, norm_square) \
  NORM_SUM(PX__CPU_WIDE, squares_wide_##S, 32, T, norm_square) \
  NORM_SUM(, sizes_##S, 8, T, norm_size) \
  NORM_SUM(, cubes_##S, 8, T, norm_cube) \
  NORM_SUM(, powers_##S, 8, T, norm_power) \
  static void add_norm_##S(partial *s, const void *block, int64_t n) { \
    const T *e = block; \
    double p = s->number; \
    if (p == 0 || fabs(p) == (double)INFINITY) { \
      for (int64_t k = 0; k < n; k++) s->sum = norm_join(s->sum, (double)e[k], p); \
      return; \
    } \
    bool wide = px_cpu_level_used() >= PX_CPU_AVX512; \
    double (*sum)(const T *, int64_t, double) = p == 2   ? wide ? squares_wide_##S : squares_##S \
                                                : p == 1 ? sizes_##S \
                                                : p == 3 ? cubes_##S \
                                                         : powers_##S; \
    s->sum += sum(e, n, p); \
  }
ADD_NORM(f32, float)
ADD_NORM(f64, double)
static void join_extremes(partial *s, const partial *next) {
  s->sum = norm_join(s->sum, next->sum, s->number);
}
static void one_norm(const walk *w, const char *base, px__axes_offset at) {
  double p = w->number;
  bool extreme = fabs(p) == (double)INFINITY, power = p != 0 && p != 1 && !extreme;
  partial s = {.number = p, .sum = p == -(double)INFINITY ? (double)INFINITY : 0};
  all_blocks(w, base, w->block_dtype == PX_FLOAT32 ? add_norm_f32 : add_norm_f64,
             extreme ? join_extremes : add_sums, &s);
  store(w, at, !power ? s.sum : p == 2 ? sqrt(s.sum) : pow(s.sum, 1 / p));
}
PX_KERNEL(norm) {
  double p = px__norm_order(&args->p, args->out, args->self);
  return run(args->out, args->self, one_norm, p, false);
}

// ---- logsumexp

// One pass: the sum is rescaled when a block has a larger max. `non_finite` sums the elements of
// blocks whose max is inf or NaN; 0 for blocks of only -inf.
static void join_exps(partial *s, const partial *next) {
  double top = next->top > s->top ? next->top : s->top;
  s->non_finite += next->non_finite;
  if (!(next->top > -(double)INFINITY)) return;
  if (!(s->top > -(double)INFINITY)) {
    s->top = top, s->sum = next->sum;
    return;
  }
  s->sum = s->sum * exp(s->top - top) + next->sum * exp(next->top - top);
  s->top = top;
}

static double sum_exp_f32(const float *x, float shift, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i += FLOAT_SUM)
    sum += vec_exp_sum_f32(NULL, x + i, shift, n - i < FLOAT_SUM ? n - i : FLOAT_SUM, 0);
  return sum;
}
#define SUM_EXP(NAME) \
  static double NAME(const double *e, double shift, int64_t n) { \
    double x[PX__CPU_BLOCK_SIZE], lane[8] = {0}, sum = 0; \
    for (int64_t i = 0; i < n; i += PX__CPU_BLOCK_SIZE) { \
      int64_t count = px__cpu_block(n - i); \
      for (int64_t k = 0; k < count; k++) x[k] = e[i + k] - shift; \
      for (int64_t k = count; k < PX__CPU_BLOCK_SIZE; k++) x[k] = -(double)INFINITY; \
      PX__CPU_ROLLED for (int k = 0; k < PX__CPU_BLOCK_SIZE; k++) x[k] = k_exp_f64(x[k]); \
      for (int k = 0; k < PX__CPU_BLOCK_SIZE; k += 8) \
        for (int j = 0; j < 8; j++) lane[j] += x[k + j]; \
    } \
    for (int j = 0; j < 8; j++) sum += lane[j]; \
    return sum; \
  }
PX__CPU_WIDE SUM_EXP(sum_exp_wide)
    SUM_EXP(sum_exp_narrow) static double sum_exp_f64(const double *e, double shift, int64_t n) {
  return (px_cpu_level_used() >= PX_CPU_AVX512 ? sum_exp_wide : sum_exp_narrow)(e, shift, n);
}
#define ADD_EXPS(S, T) \
  static void add_exps_##S(partial *s, const void *block, int64_t n) { \
    const T *x = block; \
    T top = vec_max_##S(x, n); \
    if (!k_isfinite_##S(top)) { \
      for (int64_t k = 0; k < n; k++) s->non_finite += x[k] == -K_inf_##S ? 0 : (double)x[k]; \
      return; \
    } \
    if ((double)top > s->top) s->sum *= exp(s->top - (double)top), s->top = (double)top; \
    s->sum += sum_exp_##S(x, (T)s->top, n); \
  }
ADD_EXPS(f32, float)
ADD_EXPS(f64, double)
static void one_logsumexp(const walk *w, const char *base, px__axes_offset at) {
  partial s = {.top = -(double)INFINITY};
  all_blocks(w, base, w->block_dtype == PX_FLOAT32 ? add_exps_f32 : add_exps_f64, join_exps, &s);
  double sum = s.sum > 0 ? log(s.sum) + s.top : s.sum == s.sum ? -(double)INFINITY : s.sum;
  store(w, at, s.non_finite != 0 ? s.non_finite + 0 * s.sum : sum);
}

// Interleaved columns, a row at a time, in two passes: the maxima, then the sums of exponentials,
// added in T over a few rows. Subnormal exponentials take a hundred times as long and are flushed
// to 0.
enum { ROWS_IN_T = 32 };
#define ROW_EXPS(TARGET, NAME, S, T, LEAST) \
  TARGET static void NAME(T *sum, const T *e, const T *top, int64_t n) { \
    PX__CPU_INDEPENDENT for (int64_t k = 0; k < n; k++) { \
      T x = e[k] - top[k]; \
      sum[k] += k_exp_##S(x < LEAST ? -K_inf_##S : x); \
    } \
  }
ROW_EXPS(, row_exps_f32, f32, float, -87)
ROW_EXPS(, row_exps_f64, f64, double, -708)
ROW_EXPS(PX__CPU_WIDE, row_exps_wide_f32, f32, float, -87)
ROW_EXPS(PX__CPU_WIDE, row_exps_wide_f64, f64, double, -708)

// n elements of row i in the block's dtype: in place, or converted into `buffer`.
static const void *columns_row(const walk *w, px__axes_offset at, int64_t i, int64_t n,
                               void *buffer) {
  int64_t item = px__cpu_item[w->block_dtype], step = w->x.kept[0].in;
  const char *from = w->in + at.in + i * w->x.reduced[0].in;
  if (w->in_dtype == w->block_dtype && step == item) return from;
  px__cpu_convert(buffer, item, w->block_dtype, from, step, w->in_dtype, n);
  return buffer;
}
#define COLUMN_EXPS(S, T) \
  static void columns_exps_##S(const walk *w, px__axes_offset at, int64_t n) { \
    PX__BUFFER(T, buffer, COLUMNS); \
    PX__BUFFER(T, top, COLUMNS); \
    PX__BUFFER(T, few, COLUMNS); \
    PX__BUFFER(double, sum, COLUMNS); \
    int64_t length = w->x.length, work = 0; \
    bool wide = px_cpu_level_used() >= PX_CPU_AVX512; \
    memset(sum, 0, COLUMNS * sizeof *sum); \
    memcpy(top, columns_row(w, at, 0, n, buffer), (size_t)n * sizeof(T)); \
    for (int64_t i = 1; i < length && !px__work_stopped(&work, n); i++) { \
      const T *e = columns_row(w, at, i, n, buffer); \
      PX__CPU_INDEPENDENT for (int64_t k = 0; k < n; k++) top[k] = k_max_##S(top[k], e[k]); \
    } \
    for (int64_t i = 0; i < length && !px__work_stopped(&work, ROWS_IN_T * n);) { \
      memset(few, 0, COLUMNS * sizeof *few); \
      for (int64_t end = i + ROWS_IN_T < length ? i + ROWS_IN_T : length; i < end; i++) \
        (wide ? row_exps_wide_##S : row_exps_##S)(few, columns_row(w, at, i, n, buffer), top, n); \
      for (int64_t k = 0; k < n; k++) sum[k] += (double)few[k]; \
    } \
    for (int64_t k = 0; k < n; k++) { \
      double high = (double)top[k]; \
      sum[k] = k_isfinite_f64(high) ? log(sum[k]) + high : high; \
    } \
    px__cpu_convert(w->out + at.out, w->x.kept[0].out, w->out_dtype, sum, 8, PX_FLOAT64, n); \
  }
COLUMN_EXPS(f32, float)
COLUMN_EXPS(f64, double)
static void each_columns(void *context, int64_t begin, int64_t end) {
  const walk *w = context;
  for (int64_t i = begin, n; i < end; i++) {
    px__axes_offset at = px__axes_piece(&w->x, COLUMNS, i, &n);
    (w->block_dtype == PX_FLOAT32 ? columns_exps_f32 : columns_exps_f64)(w, at, n);
  }
}

PX_KERNEL(logsumexp) { return run(args->out, args->self, one_logsumexp, 0, false); }
