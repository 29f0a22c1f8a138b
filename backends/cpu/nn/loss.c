// SPDX-License-Identifier: Apache-2.0
// Loss kernels: nll (class selection), and element-wise losses with their sums. Sums are in double.
#include "cpu/threads/buffer.h"
#include "cpu/convert/dense.h"
#include "cpu/loop/loop.h"
#include "cpu/convert/float_rows.h"
#include "cpu/threads/threads.h"
#include "kernel_args/loss.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum reduction { NONE, MEAN, SUM } reduction;
static reduction reduction_of(const char *text) {
  return !strcmp(text, "none") ? NONE : !strcmp(text, "sum") ? SUM : MEAN;
}
// Element i of an array of double, or of float.
static double get(const void *at, int64_t i, bool wide) {
  return wide ? ((const double *)at)[i] : (double)((const float *)at)[i];
}
static void set(void *at, int64_t i, bool wide, double x) {
  if (wide)
    ((double *)at)[i] = x;
  else
    ((float *)at)[i] = (float)x;
}

// ---- nll: the input is [C] or [N, C, d1, ...]
typedef struct classes {
  int64_t n, c, inner;
} classes;
static classes classes_of(int ndim, const int64_t *sizes) {
  classes s = {1, ndim == 1 ? sizes[0] : sizes[1], 1};
  if (ndim > 1) s.n = sizes[0];
  for (int i = 2; i < ndim; i++) s.inner *= sizes[i];
  return s;
}
typedef struct targets {
  const void *at;
  int dtype;              // int64 or uint8
  int64_t count, ignore;  // number of classes; ignore_index
} targets;
static targets targets_of(px__dense *d, const px_operand *target, int64_t count, int64_t ignore) {
  return (targets){px__dense_in(d, target, target->dtype), target->dtype, count, ignore};
}
// The class of target i, or -1 if ignored. An invalid class is reported.
static int64_t class_at(const px_launch *l, const targets *t, int64_t i) {
  int64_t c = t->dtype == PX_INT64 ? ((const int64_t *)t->at)[i] : ((const uint8_t *)t->at)[i];
  if (c == t->ignore) return -1;
  if (c >= 0 && c < t->count) return c;
  px_kernel_fault(l, PX_FAULT_TARGET, c, 0, 0);
  return -1;
}

PX_KERNEL(nll_loss_forward) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->self->dtype);
  bool wide = compute == PX_FLOAT64;
  reduction how = reduction_of(args->reduction);
  classes s = classes_of(args->self->ndim, args->self->sizes);
  void *out = px__dense_out(&d, args->output, compute);
  void *total_weight = px__dense_out(&d, args->total_weight, compute);
  const void *self = px__dense_in(&d, args->self, compute);
  const void *weight = px__dense_in(&d, args->weight, compute);
  targets t = targets_of(&d, args->target, s.c, args->ignore_index);
  double sum = 0, total = 0;
  for (px__steps at = {.n = d.failed ? 0 : s.n * s.inner}; px__step(&at);)
    for (int64_t i = at.begin; i < at.end; i++) {
      int64_t c = class_at(l, &t, i);
      double w = c < 0 ? 0 : weight ? get(weight, c, wide) : 1;
      double x = c < 0 ? 0 : -w * get(self, (i / s.inner * s.c + c) * s.inner + i % s.inner, wide);
      if (how == NONE) set(out, i, wide, x);
      sum += x, total += w;
    }
  if (!d.failed && how != NONE) set(out, 0, wide, how == SUM ? sum : sum / total);
  if (!d.failed) set(total_weight, 0, wide, how == NONE ? 0 : total);
  px__dense_close(&d);
  return PX_OK;
}
PX_KERNEL(nll_loss_backward) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->out->dtype);
  bool wide = compute == PX_FLOAT64;
  reduction how = reduction_of(args->reduction);
  classes s = classes_of(args->out->ndim, args->out->sizes);
  void *out = px__dense_out(&d, args->out, compute);
  const void *grad = px__dense_in(&d, args->grad_output, compute);
  const void *weight = px__dense_in(&d, args->weight, compute);
  const void *total_weight = px__dense_in(&d, args->total_weight, compute);
  targets t = targets_of(&d, args->target, s.c, args->ignore_index);
  size_t bytes = (size_t)px_operand_numel(args->out) * px_dtype_size((px_dtype)compute);
  if (!d.failed && px__cpu_clear(out, bytes)) {
    double scale = how == MEAN ? 1 / get(total_weight, 0, wide) : 1;
    for (px__steps at = {.n = s.n * s.inner}; px__step(&at);)
      for (int64_t i = at.begin; i < at.end; i++) {
        int64_t c = class_at(l, &t, i);
        if (c < 0) continue;
        double w = weight ? get(weight, c, wide) : 1;
        set(out, (i / s.inner * s.c + c) * s.inner + i % s.inner, wide,
            -w * scale * get(grad, how == NONE ? i : 0, wide));
      }
  }
  px__dense_close(&d);
  return PX_OK;
}

// ---- element-wise losses f(a, b, p), and their derivatives with respect to a

// Rows are computed in blocks of constant length, as in loop.h. Sums are in double over parts added
// in order; the number of parts depends on the length only.
enum {
  PARTS = 256,       // max parts
  MIN_PART = 16384,  // min elements of a part
  LANES = 8          // accumulators
};
// clang-format off
#define LOSSES(XX) \
  XX(mse) XX(mse_slope) XX(smooth) XX(smooth_slope) XX(huber) XX(huber_slope) \
  XX(bce) XX(bce_slope) XX(logits) XX(logits_slope)
// clang-format on
typedef struct loss_row {
  void (*row_f32)(float *o, const float *a, const float *b, float p);
  void (*row_f64)(double *o, const double *a, const double *b, double p);
  void (*wide_row_f32)(float *o, const float *a, const float *b, float p);
  void (*wide_row_f64)(double *o, const double *a, const double *b, double p);
} loss_row;
typedef struct loss_task {
  const loss_row *f;
  const void *a, *b, *grad;
  void *out;  // NULL: compute the sum
  double p, scale;
  int64_t n, part;
  bool wide, one_grad;
  int dtype;     // fp16 or bf16: of a, b, and of element-wise grad and out; else 0
  double *sums;  // per part
} loss_task;

#define BOTH "cpu/nn/loss_rows.h"
#include "cpu/vector/for_f32_f64.h"
#define LOSS_ROW(name) \
  static const loss_row name = {name##_row_f32, name##_row_f64, name##_wide_row_f32, \
                                name##_wide_row_f64};
LOSSES(LOSS_ROW)

// A part of fp16 or bf16 operands, converted to float a few at a time.
static double half_part(const loss_task *t, int64_t begin, int64_t end) {
  PX__BUFFER(float, a, PX__ROW_SCRATCH);
  PX__BUFFER(float, b, PX__ROW_SCRATCH);
  PX__BUFFER(float, grad, PX__ROW_SCRATCH);
  PX__BUFFER(float, out, PX__ROW_SCRATCH);
  bool grads = t->grad && !t->one_grad;
  loss_task chunk = *t;
  double sum = 0;
  chunk.a = a, chunk.b = b, chunk.out = t->out ? out : NULL, chunk.grad = grads ? grad : t->grad;
  for (int64_t i = begin, n; i < end; i += n) {
    n = px__rows_in_scratch(1, end - i);
    px__rows_load(a, t->a, t->dtype, i, n);
    px__rows_load(b, t->b, t->dtype, i, n);
    if (grads) px__rows_load(grad, t->grad, t->dtype, i, n);
    sum += part_f32(&chunk, 0, n);
    if (t->out) px__rows_store(t->out, t->dtype, out, i, n);
  }
  return sum;
}
static void parts(void *context, int64_t begin, int64_t end) {
  loss_task *t = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t from = i * t->part, to = from + t->part < t->n ? from + t->part : t->n;
    t->sums[i] = (t->dtype ? half_part : t->wide ? part_f64 : part_f32)(t, from, to);
  }
}
static double run(loss_task *t) {
  double sum = 0, sums[PARTS];
  int64_t part = px__ceil_div(t->n, PARTS);
  part = px__ceil_div(part, PX__CPU_BLOCK_SIZE) * PX__CPU_BLOCK_SIZE;
  t->part = part > MIN_PART ? part : MIN_PART;
  int64_t count = px__ceil_div(t->n, t->part);
  t->sums = sums;
  px__cpu_parallel(count, 1, parts, t);
  for (int64_t i = 0; i < count; i++) sum += sums[i];
  return sum;
}

// Reports inputs or targets outside of [0, 1].
static void check_probabilities(const px_launch *l, const loss_task *t) {
  bool (*all)(const void *, int64_t) = t->wide ? all_probabilities_f64 : all_probabilities_f32;
  if (!all(t->a, t->n))
    px_kernel_fault(l, PX_FAULT_INPUT, 0, 0, 0);
  else if (!all(t->b, t->n))
    px_kernel_fault(l, PX_FAULT_TARGETS, 0, 0, 0);
}
// The operand itself for fp16 and bf16, else an array of the compute dtype.
static const void *open_operand(px__dense *d, const px_operand *o, bool halves, int compute) {
  return halves ? o->data : px__dense_in(d, o, compute);
}
// True if all are row-major with the same half-precision dtype. Scalar `out` and `grad` are passed
// as NULL.
static bool are_halves(const px_operand *a, const px_operand *b, const px_operand *out,
                       const px_operand *grad) {
  return px__are_half_rows(a, b, 1) && (!out || px__are_half_rows(a, out, 1)) &&
         (!grad || px__are_half_rows(a, grad, 1));
}
// `number`: the loss's parameter p, if any.
static px_status forward(const px_launch *l, const loss_row *f, const px_operand *out,
                         const px_operand *self, const px_operand *target, reduction how,
                         double number) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(out->dtype);
  bool halves = f != &bce && are_halves(self, target, how == NONE ? out : NULL, NULL);
  void *to = halves && how == NONE ? out->data : px__dense_out(&d, out, compute);
  loss_task t = {.f = f,
                 .a = open_operand(&d, self, halves, compute),
                 .b = open_operand(&d, target, halves, compute),
                 .out = how == NONE ? to : NULL,
                 .p = number,
                 .n = px_operand_numel(self),
                 .dtype = halves ? self->dtype : 0,
                 .wide = compute == PX_FLOAT64};
  if (!d.failed) {
    if (f == &bce) check_probabilities(l, &t);
    double sum = run(&t);
    if (how != NONE) set(to, 0, t.wide, how == MEAN ? sum / (double)t.n : sum);
  }
  px__dense_close(&d);
  return PX_OK;
}
static px_status backward(const px_launch *l, const loss_row *slope, const px_operand *out,
                          const px_operand *grad, const px_operand *self, const px_operand *target,
                          reduction how, double number) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(out->dtype);
  int64_t n = px_operand_numel(out);
  bool one = px_operand_numel(grad) == 1, halves = are_halves(self, target, out, one ? NULL : grad);
  loss_task t = {.f = slope,
                 .out = halves ? out->data : px__dense_out(&d, out, compute),
                 .grad = open_operand(&d, grad, halves && !one, compute),
                 .a = open_operand(&d, self, halves, compute),
                 .b = open_operand(&d, target, halves, compute),
                 .dtype = halves ? self->dtype : 0,
                 .p = number,
                 .scale = how == MEAN ? 1 / (double)n : 1,
                 .n = n,
                 .one_grad = one,
                 .wide = compute == PX_FLOAT64};
  if (!d.failed) run(&t);
  px__dense_close(&d);
  return PX_OK;
}
#define LOSS(name, row, number) \
  PX_KERNEL(name##_forward) { \
    return forward(l, &row, args->out, args->self, args->target, reduction_of(args->reduction), \
                   number); \
  } \
  PX_KERNEL(name##_backward) { \
    return backward(l, &row##_slope, args->out, args->grad_output, args->self, args->target, \
                    reduction_of(args->reduction), number); \
  }
LOSS(mse_loss, mse, 0)
LOSS(smooth_l1_loss, smooth, args->beta)
LOSS(huber_loss, huber, args->delta)
LOSS(binary_cross_entropy, bce, 0)
LOSS(bce_with_logits, logits, 0)
