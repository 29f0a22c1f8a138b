// SPDX-License-Identifier: Apache-2.0
// Kernels of the losses: picking by class (nll), and sums over element-wise losses. Sums are
// double.
#include "cpu/dense.h"

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

// ---- element-wise losses f(a, b), and their derivatives by a
typedef double (*element_fn)(double a, double b, double parameter);
static double mse(double a, double b, double p) { return (a - b) * (a - b); }
static double mse_slope(double a, double b, double p) { return 2 * (a - b); }
static double smooth(double a, double b, double beta) {
  double d = fabs(a - b);
  return d < beta ? 0.5 * d * d / beta : d - 0.5 * beta;
}
static double smooth_slope(double a, double b, double beta) {
  double d = a - b;
  return fabs(d) < beta ? d / beta : d > 0 ? 1 : d < 0 ? -1 : 0;
}
static double huber(double a, double b, double delta) {
  double d = fabs(a - b);
  return d <= delta ? 0.5 * d * d : delta * (d - 0.5 * delta);
}
static double huber_slope(double a, double b, double delta) {
  double d = a - b;
  return d < -delta ? -delta : d > delta ? delta : d;
}
// Logarithms are cut off at -100, so that a probability of 0 gives a number.
static double bce(double a, double b, double p) {
  double yes = log(a), no = log1p(-a);
  return (b - 1) * (no > -100 ? no : -100) - b * (yes > -100 ? yes : -100);
}
static double bce_slope(double a, double b, double p) {
  double q = a * (1 - a);
  return (a - b) / (q > 1e-12 ? q : 1e-12);
}
static double logits(double a, double b, double p) {
  return (a > 0 ? a : 0) - a * b + log1p(exp(-fabs(a)));
}
static double logits_slope(double a, double b, double p) { return 1 / (1 + exp(-a)) - b; }

static px_status forward(const px_launch *l, element_fn f) {
  static const char spec[] = "wrr";
  px__dense d[3];
  if (!px__dense_open(d, l, spec, px__compute_of(l->operands[0].dtype))) return PX_OK;
  reduction how = reduction_of(l, 2);
  double parameter = l->param_count > 3 ? px__param_float(l, 3) : 0, sum = 0;
  for (int64_t i = 0; i < d[1].n; i++) {
    double x = f(get(&d[1], i), get(&d[2], i), parameter);
    if (how == NONE)
      set(&d[0], i, x);
    else
      sum += x;
  }
  if (how != NONE) set(&d[0], 0, how == MEAN ? sum / (double)d[1].n : sum);
  px__dense_close(d, spec);
  return PX_OK;
}
static px_status backward(const px_launch *l, element_fn slope) {
  static const char spec[] = "wrrr";
  px__dense d[4];
  if (!px__dense_open(d, l, spec, px__compute_of(l->operands[0].dtype))) return PX_OK;
  double parameter = l->param_count > 4 ? px__param_float(l, 4) : 0;
  double scale = reduction_of(l, 3) == MEAN ? 1 / (double)d[0].n : 1;
  bool one = d[1].n == 1;
  for (int64_t i = 0; i < d[0].n; i++)
    set(&d[0], i, slope(get(&d[2], i), get(&d[3], i), parameter) * scale * get(&d[1], one ? 0 : i));
  px__dense_close(d, spec);
  return PX_OK;
}
PX_KERNEL(mse_loss_forward) { return forward(l, mse); }
PX_KERNEL(mse_loss_backward) { return backward(l, mse_slope); }
PX_KERNEL(smooth_l1_loss_forward) { return forward(l, smooth); }
PX_KERNEL(smooth_l1_loss_backward) { return backward(l, smooth_slope); }
PX_KERNEL(huber_loss_forward) { return forward(l, huber); }
PX_KERNEL(huber_loss_backward) { return backward(l, huber_slope); }
PX_KERNEL(binary_cross_entropy_forward) { return forward(l, bce); }
PX_KERNEL(binary_cross_entropy_backward) { return backward(l, bce_slope); }
PX_KERNEL(bce_with_logits_forward) { return forward(l, logits); }
PX_KERNEL(bce_with_logits_backward) { return backward(l, logits_slope); }
