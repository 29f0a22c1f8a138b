// SPDX-License-Identifier: Apache-2.0
// Cumulative sums, products, extremes and logsumexp along one dimension, in double or int64. Sums
// can also run backwards.
//
// Lines along the dimension are independent. A line is processed by blocks, for any dtype and
// stride; interleaved lines are processed a row at a time.
#include "cpu/threads/buffer.h"
#include "cpu/convert/dense.h"
#include "cpu/convert/lines.h"
#include "cpu/vector/math.h"
#include "cpu/threads/threads.h"
#include "kernel_args/reduce.h"

enum {
  BLOCK = 512,      // elements of a block
  PARALLEL = 16384  // elements per thread, min
};

typedef px__line line;
typedef struct scan {
  const px_operand *out, *in, *grad;  // grad: cumprod_backward only
  int dim, dtype;                     // compute dtype: double, int64 or complex128
  int64_t length;
  void (*run)(const struct scan *s, line out, line in, line grad);
  k_complex_c128 (*join)(k_complex_c128 a, k_complex_c128 b);  // complex numbers only
  bool product, backwards;
} scan;

static void each_line(void *context, int64_t begin, int64_t end) {
  const scan *s = context;
  const px_operand *operands[] = {s->out, s->in, s->grad ? s->grad : s->in};
  for (int64_t i = begin; i < end; i++) {
    line x[3];
    px__lines_find(x, 3, operands, s->out, s->dim, i);
    s->run(s, x[0], x[1], x[2]);
  }
}

static bool is_complex(const px_operand *o) {
  return o->dtype == PX_COMPLEX64 || o->dtype == PX_COMPLEX128;
}
static void scan_line(const scan *s, line out, line in, line grad);
static void interleaved_lines(void *context, int64_t begin, int64_t end);

static px_status run(scan *s, int64_t dim) {
  const px_operand *out = s->out;
  int64_t lines = 1;
  s->dim = (int)(dim < 0 ? dim + out->ndim : dim);
  s->length = out->ndim ? out->sizes[s->dim] : 1;
  s->dtype = is_complex(out)                           ? PX_COMPLEX128
             : px_dtype_is_float((px_dtype)out->dtype) ? PX_FLOAT64
                                                       : PX_INT64;
  for (int d = 0; d < out->ndim; d++)
    if (d != s->dim) lines *= out->sizes[d];
  if (s->length == 0) return PX_OK;
  int64_t width = out->ndim ? out->sizes[out->ndim - 1] : 1;
  if (s->run == scan_line && s->dim != out->ndim - 1 && width >= 8) {
    int64_t pieces = px__ceil_div(width, BLOCK), n = width < BLOCK ? width : BLOCK;
    px__cpu_parallel(lines / width * pieces, PARALLEL / (s->length * n) + 1, interleaved_lines, s);
    return PX_OK;
  }
  px__cpu_parallel(lines, PARALLEL / s->length + 1, each_line, s);
  return PX_OK;
}

// ---- cumsum, cumprod

static void reverse(const scan *s, line *a) {
  if (s->backwards) a->at += (s->length - 1) * a->stride, a->stride = -a->stride;
}
// Scans n elements of type T with a wider carry; `out` may equal `in`.
#define SCAN(name, T, C, OP) \
  static void name(const line *out, const line *in, int64_t n, void *carry) { \
    const char *from = in->at; \
    char *to = out->at; \
    int64_t step = in->stride, out_step = out->stride; \
    C c = *(C *)carry; \
    if (step == sizeof(T) && out_step == sizeof(T)) \
      for (int64_t i = 0; i < n; i++) { \
        c = c OP(C)((const T *)(const void *)from)[i]; \
        ((T *)(void *)to)[i] = (T)c; \
      } \
    else \
      for (int64_t i = 0; i < n; i++) { \
        c = c OP(C)(*(const T *)(const void *)(from + i * step)); \
        *(T *)(void *)(to + i * out_step) = (T)c; \
      } \
    *(C *)carry = c; \
  }
SCAN(sum_f32, float, double, +)
SCAN(sum_f64, double, double, +)
SCAN(sum_i64, uint64_t, uint64_t, +)
SCAN(product_f32, float, double, *)
SCAN(product_f64, double, double, *)
SCAN(product_i64, uint64_t, uint64_t, *)

typedef void (*scan_fn)(const line *out, const line *in, int64_t n, void *carry);
static scan_fn scan_of(int dtype, bool product) {
  if (dtype == PX_FLOAT32) return product ? product_f32 : sum_f32;
  if (dtype == PX_FLOAT64) return product ? product_f64 : sum_f64;
  return product ? product_i64 : sum_i64;
}
static void scan_line(const scan *s, line out, line in, line grad) {
  bool floats = s->dtype == PX_FLOAT64 && px_dtype_is_float((px_dtype)in.dtype) &&
                px__compute_of(in.dtype) == PX_FLOAT32 && px__compute_of(out.dtype) == PX_FLOAT32;
  int dtype = floats ? PX_FLOAT32 : s->dtype;
  bool ready = in.dtype == dtype && out.dtype == dtype;
  PX__BUFFER(int64_t, buffer, BLOCK);
  int64_t whole = s->product, work = 0;
  double real = (double)whole;
  void *carry = dtype == PX_INT64 ? (void *)&whole : &real;
  line block = {(char *)buffer, px__cpu_item[dtype], dtype};
  scan_fn fn = scan_of(dtype, s->product);
  reverse(s, &out), reverse(s, &in);
  for (int64_t n, left = s->length; left > 0; left -= n) {
    int64_t most = ready ? PX__STEP : BLOCK;
    n = left < most ? left : most;
    if (left < s->length && px__work_stopped(&work, n)) return;
    if (!ready) px__cpu_convert(buffer, block.stride, dtype, in.at, in.stride, in.dtype, n);
    fn(ready ? &out : &block, ready ? &in : &block, n, carry);
    if (!ready) px__cpu_convert(out.at, out.stride, out.dtype, buffer, block.stride, dtype, n);
    in.at += n * in.stride, out.at += n * out.stride;
  }
}

// ---- interleaved lines along the last dimension

// Advances n lines by one element each.
static void step_float(double *carry, const double *e, int64_t n, bool product) {
  if (product)
    for (int64_t i = 0; i < n; i++) carry[i] = carry[i] * e[i];
  else
    for (int64_t i = 0; i < n; i++) carry[i] = carry[i] + e[i];
}
static void step_int(uint64_t *carry, const uint64_t *e, int64_t n, bool product) {
  if (product)
    for (int64_t i = 0; i < n; i++) carry[i] = carry[i] * e[i];
  else
    for (int64_t i = 0; i < n; i++) carry[i] = carry[i] + e[i];
}
typedef union numbers {
  double f[BLOCK];
  int64_t i[BLOCK];
  uint64_t u[BLOCK];
} numbers;
static void interleaved_lines(void *context, int64_t begin, int64_t end) {
  const scan *s = context;
  const px_operand *out = s->out, *in = s->in;
  int64_t width = out->sizes[out->ndim - 1], pieces = px__ceil_div(width, BLOCK);
  int64_t out_step = out->strides[out->ndim - 1] * px__cpu_item[out->dtype];
  int64_t in_step = in->strides[in->ndim - 1] * px__cpu_item[in->dtype], work = 0;
  PX__BUFFER(numbers, carry, 1);
  PX__BUFFER(numbers, buffer, 1);
  for (int64_t k = begin; k < end; k++) {
    int64_t first = k % pieces * BLOCK, n = width - first < BLOCK ? width - first : BLOCK;
    line lines[2];
    px__lines_find(lines, 2, (const px_operand *[]){out, in}, out, s->dim,
                   k / pieces * width + first);
    line to = lines[0], from = lines[1];
    reverse(s, &to), reverse(s, &from);
    for (int64_t i = 0; i < n; i++)
      if (s->dtype == PX_INT64)
        carry->u[i] = s->product;
      else
        carry->f[i] = s->product;
    for (int64_t i = 0; i < s->length && !px__work_stopped(&work, n); i++) {
      px__cpu_convert(buffer, 8, s->dtype, from.at + i * from.stride, in_step, in->dtype, n);
      if (s->dtype == PX_INT64)
        step_int(carry->u, buffer->u, n, s->product);
      else
        step_float(carry->f, buffer->f, n, s->product);
      px__cpu_convert(to.at + i * to.stride, out_step, out->dtype, carry, 8, s->dtype, n);
    }
  }
}

// ---- complex numbers

static k_complex_c128 times(k_complex_c128 a, k_complex_c128 b) { return a * b; }
static void complex_line(const scan *s, line out, line in, line grad) {
  PX__BUFFER(k_complex_c128, buffer, BLOCK);
  k_complex_c128 carry = 0;
  int64_t work = 0;
  for (int64_t i = 0; i < s->length && !px__work_stopped(&work, BLOCK); i += BLOCK) {
    int64_t n = s->length - i < BLOCK ? s->length - i : BLOCK;
    px__cpu_convert(buffer, 16, PX_COMPLEX128, in.at + i * in.stride, in.stride, in.dtype, n);
    for (int64_t k = 0; k < n; k++)
      buffer[k] = carry = i + k ? s->join(carry, buffer[k]) : buffer[k];
    px__cpu_convert(out.at + i * out.stride, out.stride, out.dtype, buffer, 16, PX_COMPLEX128, n);
  }
}

PX_KERNEL(cumsum) {
  scan s = {.run = scan_line, .out = args->out, .in = args->self};
  return run(&s, args->dim);
}
PX_KERNEL(cumsum_backward) {
  scan s = {.run = scan_line, .out = args->out, .in = args->grad_output, .backwards = true};
  return run(&s, args->dim);
}
PX_KERNEL(cumprod) {
  scan s = {.run = scan_line, .out = args->out, .in = args->self, .product = true};
  if (is_complex(args->out)) s.run = complex_line, s.join = times;
  return run(&s, args->dim);
}

// ---- logcumsumexp

// log(exp(a) + exp(b)).
static double log_sum(double a, double b) {
  double larger = a > b || a != a ? a : b, smaller = a > b || a != a ? b : a;
  return larger == smaller && isinf(larger) ? larger : larger + log1p(exp(smaller - larger));
}
// Factors out the operand with the larger real part.
static k_complex_c128 log_sum_complex(k_complex_c128 a, k_complex_c128 b) {
  k_complex_c128 larger = creal(a) > creal(b) ? a : b, smaller = creal(a) > creal(b) ? b : a;
  if (k_isnan_c128(a) || k_isnan_c128(b)) return k_of_parts_c128(NAN, NAN);
  if (isinf(creal(larger)) && creal(larger) == creal(smaller))
    return creal(larger) < 0 ? larger : a + b;
  return larger + k_log1p_c128(k_exp_c128(smaller - larger));
}
static void log_sum_line(const scan *s, line out, line in, line grad) {
  PX__BUFFER(double, buffer, BLOCK);
  double sum = -INFINITY;
  int64_t work = 0;
  for (int64_t i = 0; i < s->length && !px__work_stopped(&work, BLOCK); i += BLOCK) {
    int64_t n = s->length - i < BLOCK ? s->length - i : BLOCK;
    px__cpu_convert(buffer, 8, PX_FLOAT64, in.at + i * in.stride, in.stride, in.dtype, n);
    for (int64_t k = 0; k < n; k++) buffer[k] = sum = log_sum(sum, buffer[k]);
    px__cpu_convert(out.at + i * out.stride, out.stride, out.dtype, buffer, 8, PX_FLOAT64, n);
  }
}
PX_KERNEL(logcumsumexp) {
  scan s = {.run = log_sum_line, .out = args->out, .in = args->self};
  if (is_complex(args->out)) s.run = complex_line, s.join = log_sum_complex;
  return run(&s, args->dim);
}

// ---- the gradient of cumprod, without division. a_i is the sum over j >= i of g_j times the
// product of the elements between i and j. Then out_i = (product before i) * a_i and a_i = g_i +
// x_(i+1) a_(i+1).

static double element(line a, int64_t i) {
  double x;
  px__cpu_convert(&x, 8, PX_FLOAT64, a.at + i * a.stride, 8, a.dtype, 1);
  return x;
}
static void put(line a, int64_t i, double x) {
  px__cpu_convert(a.at + i * a.stride, 8, a.dtype, &x, 8, PX_FLOAT64, 1);
}
static void cumprod_backward_line(const scan *s, line out, line in, line grad) {
  PX__BUFFER(double, before, BLOCK);
  double tail = 0;
  int64_t work = 0;
  // The products before each element are needed in reverse order. They are recomputed for each
  // block, from the start of the line.
  int64_t blocks = px__ceil_div(s->length, BLOCK);
  for (int64_t b = blocks - 1; b >= 0; b--) {
    int64_t first = b * BLOCK, n = s->length - first < BLOCK ? s->length - first : BLOCK;
    double product = 1;
    for (px__steps p = {.n = first}; px__step(&p);)
      for (int64_t i = p.begin; i < p.end; i++) product *= element(in, i);
    if (px__work_stopped(&work, first + n)) return;
    for (int64_t i = 0; i < n; i++) {
      before[i] = product;
      product *= element(in, first + i);
    }
    for (int64_t i = n - 1; i >= 0; i--) {
      tail += element(grad, first + i);
      put(out, first + i, before[i] * tail);
      tail *= element(in, first + i);
    }
  }
}
PX_KERNEL(cumprod_backward) {
  scan s = {
      .run = cumprod_backward_line, .out = args->out, .in = args->self, .grad = args->grad_output};
  return run(&s, args->dim);
}

// ---- cummax, cummin: the last of equals; NaN wins over all numbers

typedef struct extremes {
  const px_operand *values, *indices, *in;
  int dim;
  int64_t length;
  bool is_min;
} extremes;

// Scans n elements, the first at index `from`; the extreme so far is *best at *index. In most
// lines few elements beat the extreme, so a group without any is filled at once.
enum { GROUP = 16 };
#define RUNNING(T, is_nan, BEATS) \
  for (int64_t i = 0, end; i < n; i = end) { \
    int beaten = 0; \
    end = i + GROUP; \
    for (int64_t k = i; end <= n && k < end; k++) beaten |= (x[k] BEATS top) | is_nan(x[k]); \
    if (end <= n && !beaten) { \
      for (int64_t k = i; k < end; k++) e[k] = top; \
      for (int64_t k = i; k < end; k++) indices_out[k] = at; \
      continue; \
    } \
    end = end < n ? end : n; \
    for (int64_t k = i; k < end; k++) { \
      T found = x[k]; \
      if ((found BEATS top) | is_nan(found)) top = found, at = from + k; \
      e[k] = top, indices_out[k] = at; \
    } \
  }
#define EXTREMES(T, is_nan) \
  static void extremes_##T(const T *x, T *e, int64_t *indices_out, int64_t n, int64_t from, \
                           T *best, int64_t *index, bool is_min) { \
    T top = *index < 0 ? x[0] : *best; \
    int64_t at = *index < 0 ? 0 : *index; \
    if (is_min) { \
      RUNNING(T, is_nan, <=) \
    } else { \
      RUNNING(T, is_nan, >=) \
    } \
    *best = top, *index = at; \
  }
#define NEVER(x) false
#define IS_NAN(x) ((x) != (x))
EXTREMES(float, IS_NAN)
EXTREMES(double, IS_NAN)
EXTREMES(int64_t, NEVER)

// Contiguous float lines are processed in place. Returns false for others.
static bool extremes_in_row(const extremes *s, line out, line at, line in) {
  if (in.dtype != PX_FLOAT32 || out.dtype != PX_FLOAT32 || in.stride != 4 || out.stride != 4 ||
      at.stride != 8)
    return false;
  float best = 0;
  int64_t index = -1;
  for (px__steps t = {.n = s->length}; px__step(&t);)
    extremes_float((const float *)(const void *)in.at + t.begin, (float *)(void *)out.at + t.begin,
                   (int64_t *)(void *)at.at + t.begin, t.end - t.begin, t.begin, &best, &index,
                   s->is_min);
  return true;
}

static void extremes_of_lines(void *context, int64_t begin, int64_t end) {
  const extremes *s = context;
  bool real = px_dtype_is_float((px_dtype)s->in->dtype);
  int dtype = real ? PX_FLOAT64 : PX_INT64;
  PX__BUFFER(numbers, buffer, 1);
  PX__BUFFER(int64_t, indices_out, BLOCK);
  for (int64_t k = begin; k < end; k++) {
    line lines[3];
    px__lines_find(lines, 3, (const px_operand *[]){s->values, s->indices, s->in}, s->in, s->dim,
                   k);
    line out = lines[0], at = lines[1], in = lines[2];
    if (extremes_in_row(s, out, at, in)) continue;
    double best = 0;
    int64_t whole = 0, index = -1, work = 0;
    for (int64_t i = 0; i < s->length && !px__work_stopped(&work, BLOCK); i += BLOCK) {
      int64_t n = s->length - i < BLOCK ? s->length - i : BLOCK;
      px__cpu_convert(buffer, 8, dtype, in.at + i * in.stride, in.stride, in.dtype, n);
      if (real)
        extremes_double(buffer->f, buffer->f, indices_out, n, i, &best, &index, s->is_min);
      else
        extremes_int64_t(buffer->i, buffer->i, indices_out, n, i, &whole, &index, s->is_min);
      px__cpu_convert(out.at + i * out.stride, out.stride, out.dtype, buffer, 8, dtype, n);
      px__cpu_convert(at.at + i * at.stride, at.stride, at.dtype, indices_out, 8, PX_INT64, n);
    }
  }
}
static px_status running_extremes(extremes *s, int64_t dim) {
  int64_t size, outer, inner;
  const px_operand *in = s->in;
  px__split_sizes(in, dim, &outer, &size, &inner);
  s->dim = (int)(dim < 0 ? dim + in->ndim : dim), s->length = size;
  if (size) px__cpu_parallel(outer * inner, PARALLEL / size + 1, extremes_of_lines, s);
  return PX_OK;
}
PX_KERNEL(cummax) {
  extremes s = {.values = args->values, .indices = args->indices, .in = args->self};
  return running_extremes(&s, args->dim);
}
PX_KERNEL(cummin) {
  extremes s = {.values = args->values, .indices = args->indices, .in = args->self, .is_min = true};
  return running_extremes(&s, args->dim);
}
