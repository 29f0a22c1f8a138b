// SPDX-License-Identifier: Apache-2.0
// Kernels of the losses: picking by class (nll), and sums over element-wise losses. Sums are
// double.
#include "cpu/dense.h"
#include "cpu/loop.h"
#include "cpu/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum reduction { NONE, MEAN, SUM } reduction;
static reduction reduction_of(const px_launch *l, int i) {
  const char *text = l->params[i].v.text;
  return !strcmp(text, "none") ? NONE : !strcmp(text, "sum") ? SUM : MEAN;
}
static double get(const px__dense *d, int64_t i) {
  return d->dtype == PX_FLOAT64 ? ((const double *)d->at)[i] : (double)((const float *)d->at)[i];
}
static void set(const px__dense *d, int64_t i, double x) {
  if (d->dtype == PX_FLOAT64)
    ((double *)d->at)[i] = x;
  else
    ((float *)d->at)[i] = (float)x;
}

// ---- nll: the input is [C] or [N, C, positions...]
typedef struct classes {
  int64_t n, c, inner;
} classes;
static classes classes_of(int ndim, const int64_t *sizes) {
  classes s = {1, ndim == 1 ? sizes[0] : sizes[1], 1};
  if (ndim > 1) s.n = sizes[0];
  for (int i = 2; i < ndim; i++) s.inner *= sizes[i];
  return s;
}
static int64_t target_at(const px__dense *d, int64_t i) {
  return d->dtype == PX_INT64 ? ((const int64_t *)d->at)[i] : ((const uint8_t *)d->at)[i];
}
// The class of position i, or -1 if it does not count; a class that is none is reported.
static int64_t class_at(const px_launch *l, const px__dense *target, int64_t i, int64_t count,
                        int64_t ignore) {
  int64_t t = target_at(target, i);
  if (t == ignore) return -1;
  if (t >= 0 && t < count) return t;
  px_kernel_fault(l, PX_FAULT_TARGET, t, 0, 0);
  return -1;
}

// nll_loss_forward(self, target, weight, reduction, ignore_index) -> output, total_weight
PX_KERNEL(nll_loss_forward) {
  static const char spec[] = "wwrRr";
  const px_operand *o = l->operands;
  px__dense d[5];
  if (!px__dense_open(d, l, spec, px__compute_of(o[2].dtype))) return PX_OK;
  reduction how = reduction_of(l, 3);
  int64_t ignore = px__param_int(l, 4);
  classes s = classes_of(o[2].ndim, o[2].sizes);
  double sum = 0, total = 0;
  for (int64_t i = 0; i < s.n * s.inner; i++) {
    int64_t c = class_at(l, &d[3], i, s.c, ignore);
    double w = c < 0 ? 0 : d[4].at ? get(&d[4], c) : 1;
    double x = c < 0 ? 0 : -w * get(&d[2], (i / s.inner * s.c + c) * s.inner + i % s.inner);
    if (how == NONE) set(&d[0], i, x);
    sum += x, total += w;
  }
  if (how != NONE) set(&d[0], 0, how == SUM ? sum : sum / total);
  set(&d[1], 0, how == NONE ? 0 : total);
  px__dense_close(d, spec);
  return PX_OK;
}
// nll_loss_backward(grad_output, target, weight, total_weight, input_size, reduction, ignore_index)
PX_KERNEL(nll_loss_backward) {
  static const char spec[] = "wrRrr";
  const px_operand *o = l->operands;
  px__dense d[5];
  if (!px__dense_open(d, l, spec, px__compute_of(o[0].dtype))) return PX_OK;
  reduction how = reduction_of(l, 5);
  int64_t ignore = px__param_int(l, 6);
  classes s = classes_of(o[0].ndim, o[0].sizes);
  memset(d[0].at, 0, (size_t)d[0].n * px_dtype_size((px_dtype)d[0].dtype));
  double scale = how == MEAN ? 1 / get(&d[4], 0) : 1;
  for (int64_t i = 0; i < s.n * s.inner; i++) {
    int64_t c = class_at(l, &d[2], i, s.c, ignore);
    if (c < 0) continue;
    double w = d[3].at ? get(&d[3], c) : 1;
    set(&d[0], (i / s.inner * s.c + c) * s.inner + i % s.inner,
        -w * scale * get(&d[1], how == NONE ? i : 0));
  }
  px__dense_close(d, spec);
  return PX_OK;
}

// ---- element-wise losses f(a, b) with a number, and their derivatives by a

// Rows are computed in blocks of a constant length, as in loop.h; sums are of double, over parts
// whose number depends on the length alone, joined in order.
enum { PARTS = 256, LEAST_PART = 16384, LANES = 8 };
// clang-format off
#define LOSSES(XX) \
  XX(mse) XX(mse_slope) XX(smooth) XX(smooth_slope) XX(huber) XX(huber_slope) \
  XX(bce) XX(bce_slope) XX(logits) XX(logits_slope)
// clang-format on
typedef struct loss_row {
  void (*row_f32)(float *o, const float *a, const float *b, float p);
  void (*row_f64)(double *o, const double *a, const double *b, double p);
} loss_row;
typedef struct loss_task {
  const loss_row *f;
  const void *a, *b, *grad;
  void *out;  // NULL for a sum
  double p, scale;
  int64_t n, part;
  bool wide, one_grad;
  double sums[PARTS];
} loss_task;

#define BOTH "cpu/loss_rows.h"
#include "cpu/both.h"
#define LOSS_ROW(name) static const loss_row name = {name##_row_f32, name##_row_f64};
LOSSES(LOSS_ROW)

static void parts(void *context, int64_t begin, int64_t end) {
  loss_task *t = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t from = i * t->part, to = from + t->part < t->n ? from + t->part : t->n;
    t->sums[i] = (t->wide ? part_f64 : part_f32)(t, from, to);
  }
}
static double run(loss_task *t) {
  double sum = 0;
  int64_t part = (t->n + PARTS - 1) / PARTS;
  part = (part + PX__CPU_PIECE - 1) / PX__CPU_PIECE * PX__CPU_PIECE;
  t->part = part > LEAST_PART ? part : LEAST_PART;
  int64_t count = (t->n + t->part - 1) / t->part;
  px__cpu_parallel(count, 1, parts, t);
  for (int64_t i = 0; i < count; i++) sum += t->sums[i];
  return sum;
}

static void check_chances(const px_launch *l, const px__dense *a, const px__dense *b, bool wide) {
  bool (*all)(const px__dense *) = wide ? all_chances_f64 : all_chances_f32;
  if (!all(a))
    px_kernel_fault(l, PX_FAULT_INPUT, 0, 0, 0);
  else if (!all(b))
    px_kernel_fault(l, PX_FAULT_TARGETS, 0, 0, 0);
}
// chances: both operands are to be probabilities.
static px_status forward(const px_launch *l, const loss_row *f, bool chances) {
  static const char spec[] = "wrr";
  px__dense d[3];
  int compute = px__compute_of(l->operands[0].dtype);
  if (!px__dense_open(d, l, spec, compute)) return PX_OK;
  reduction how = reduction_of(l, 2);
  loss_task t = {.f = f,
                 .a = d[1].at,
                 .b = d[2].at,
                 .out = how == NONE ? d[0].at : NULL,
                 .p = l->param_count > 3 ? px__param_float(l, 3) : 0,
                 .n = d[1].n,
                 .wide = compute == PX_FLOAT64};
  if (chances) check_chances(l, &d[1], &d[2], t.wide);
  double sum = run(&t);
  if (how != NONE) set(&d[0], 0, how == MEAN ? sum / (double)d[1].n : sum);
  px__dense_close(d, spec);
  return PX_OK;
}
static px_status backward(const px_launch *l, const loss_row *slope) {
  static const char spec[] = "wrrr";
  px__dense d[4];
  int compute = px__compute_of(l->operands[0].dtype);
  if (!px__dense_open(d, l, spec, compute)) return PX_OK;
  loss_task t = {.f = slope,
                 .out = d[0].at,
                 .grad = d[1].at,
                 .a = d[2].at,
                 .b = d[3].at,
                 .p = l->param_count > 4 ? px__param_float(l, 4) : 0,
                 .scale = reduction_of(l, 3) == MEAN ? 1 / (double)d[0].n : 1,
                 .n = d[0].n,
                 .one_grad = d[1].n == 1,
                 .wide = compute == PX_FLOAT64};
  run(&t);
  px__dense_close(d, spec);
  return PX_OK;
}
PX_KERNEL(mse_loss_forward) { return forward(l, &mse, false); }
PX_KERNEL(mse_loss_backward) { return backward(l, &mse_slope); }
PX_KERNEL(smooth_l1_loss_forward) { return forward(l, &smooth, false); }
PX_KERNEL(smooth_l1_loss_backward) { return backward(l, &smooth_slope); }
PX_KERNEL(huber_loss_forward) { return forward(l, &huber, false); }
PX_KERNEL(huber_loss_backward) { return backward(l, &huber_slope); }
PX_KERNEL(binary_cross_entropy_forward) { return forward(l, &bce, true); }
PX_KERNEL(binary_cross_entropy_backward) { return backward(l, &bce_slope); }
PX_KERNEL(bce_with_logits_forward) { return forward(l, &logits, false); }
PX_KERNEL(bce_with_logits_backward) { return backward(l, &logits_slope); }
