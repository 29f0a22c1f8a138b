// SPDX-License-Identifier: Apache-2.0
// Running sums and products along one dimension, forwards or backwards, in double or int64.
//
// Lines along the dimension are independent of each other. A line goes through a block at a time,
// so that any dtypes and strides will do.
#include "cpu/convert.h"
#include "cpu/math.h"
#include "cpu/threads.h"
#include "cpu_kernels.h"

enum { BLOCK = 512, PARALLEL = 16384, MOST = 3 };

typedef struct line {
  char *at;
  int64_t stride;  // bytes
  int dtype;
} line;
typedef struct scan {
  const px_launch *l;
  int operands, dim, dtype;  // double or int64
  int64_t length;
  void (*run)(const struct scan *s, line *lines);
  bool product, backwards;
} scan;

// Line i: every operand's first element along the dimension.
static void find_line(const scan *s, int64_t i, line *lines) {
  const px_operand *shape = &s->l->operands[0];
  for (int k = 0; k < s->operands; k++) {
    const px_operand *o = &s->l->operands[k];
    int64_t item = px__cpu_item[o->dtype];
    lines[k] = (line){o->data, o->ndim ? o->strides[s->dim] * item : 0, o->dtype};
  }
  for (int d = shape->ndim - 1; d >= 0; d--) {
    if (d == s->dim) continue;
    int64_t at = i % shape->sizes[d];
    i /= shape->sizes[d];
    for (int k = 0; k < s->operands; k++)
      lines[k].at += at * s->l->operands[k].strides[d] * px__cpu_item[lines[k].dtype];
  }
}

static void each_line(void *context, int64_t begin, int64_t end) {
  const scan *s = context;
  for (int64_t i = begin; i < end; i++) {
    line lines[MOST];
    find_line(s, i, lines);
    s->run(s, lines);
  }
}

static px_status run(const px_launch *l, scan *s, int64_t dim) {
  const px_operand *out = &l->operands[0];
  int64_t lines = 1;
  s->l = l, s->operands = l->operand_count;
  s->dim = (int)(dim < 0 ? dim + out->ndim : dim);
  s->length = out->ndim ? out->sizes[s->dim] : 1;
  s->dtype = px_dtype_is_float((px_dtype)out->dtype) ? PX_FLOAT64 : PX_INT64;
  for (int d = 0; d < out->ndim; d++)
    if (d != s->dim) lines *= out->sizes[d];
  if (s->length > 0) px__cpu_parallel(lines, PARALLEL / s->length + 1, each_line, s);
  return PX_OK;
}

// ---- cumsum, cumprod

static void scan_float(double *e, int64_t n, double *carry, bool product) {
  double c = *carry;
  for (int64_t i = 0; i < n; i++) e[i] = c = product ? c * e[i] : c + e[i];
  *carry = c;
}
static void scan_whole(int64_t *e, int64_t n, int64_t *carry, bool product) {
  uint64_t c = (uint64_t)*carry;
  for (int64_t i = 0; i < n; i++)
    e[i] = (int64_t)(c = product ? c * (uint64_t)e[i] : c + (uint64_t)e[i]);
  *carry = (int64_t)c;
}
static void plain_line(const scan *s, line *lines) {
  union {
    double f[BLOCK];
    int64_t i[BLOCK];
  } room;
  double carry = s->product;
  int64_t whole = s->product;
  line out = lines[0], in = lines[1];
  if (s->backwards) {
    out.at += (s->length - 1) * out.stride, out.stride = -out.stride;
    in.at += (s->length - 1) * in.stride, in.stride = -in.stride;
  }
  for (int64_t i = 0; i < s->length; i += BLOCK) {
    int64_t n = s->length - i < BLOCK ? s->length - i : BLOCK;
    px__cpu_convert(&room, 8, s->dtype, in.at + i * in.stride, in.stride, in.dtype, n);
    if (s->dtype == PX_INT64)
      scan_whole(room.i, n, &whole, s->product);
    else
      scan_float(room.f, n, &carry, s->product);
    px__cpu_convert(out.at + i * out.stride, out.stride, out.dtype, &room, 8, s->dtype, n);
  }
}

static px_status plain(const px_launch *l, bool product, bool backwards) {
  scan s = {.run = plain_line, .product = product, .backwards = backwards};
  return run(l, &s, px_value_int(l->params[1]));
}
px_status px__cpu_cumsum(const px_launch *l) { return plain(l, false, false); }
px_status px__cpu_cumsum_backward(const px_launch *l) { return plain(l, false, true); }
px_status px__cpu_cumprod(const px_launch *l) { return plain(l, true, false); }

// ---- the gradient of cumprod, without a division: with a_i the gradient's sum from i on of g_j
// times the product of the elements between, out_i = (product before i) * a_i, a_i = g_i + x_(i+1)
// a_(i+1).

static double element(line a, int64_t i) {
  double x;
  px__cpu_convert(&x, 8, PX_FLOAT64, a.at + i * a.stride, 8, a.dtype, 1);
  return x;
}
static void put(line a, int64_t i, double x) {
  px__cpu_convert(a.at + i * a.stride, 8, a.dtype, &x, 8, PX_FLOAT64, 1);
}
static void cumprod_backward_line(const scan *s, line *lines) {
  double tail = 0, before[BLOCK];
  // The products before each element are needed from the last on: they are made again for each
  // block, from the start of the line.
  int64_t blocks = (s->length + BLOCK - 1) / BLOCK;
  for (int64_t b = blocks - 1; b >= 0; b--) {
    int64_t first = b * BLOCK, n = s->length - first < BLOCK ? s->length - first : BLOCK;
    double product = 1;
    for (int64_t i = 0; i < first; i++) product *= element(lines[2], i);
    for (int64_t i = 0; i < n; i++) {
      before[i] = product;
      product *= element(lines[2], first + i);
    }
    for (int64_t i = n - 1; i >= 0; i--) {
      tail += element(lines[1], first + i);
      put(lines[0], first + i, before[i] * tail);
      tail *= element(lines[2], first + i);
    }
  }
}
px_status px__cpu_cumprod_backward(const px_launch *l) {
  scan s = {.run = cumprod_backward_line};
  return run(l, &s, px_value_int(l->params[2]));
}
