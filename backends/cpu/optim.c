// SPDX-License-Identifier: Apache-2.0
// Optimizer steps in one pass over memory, shared by the threads.
#include "cpu/dense.h"
#include "cpu/threads.h"

#include <math.h>

enum { GRAIN = 32 * 1024 };

typedef struct sgd_task {
  void *param, *buffer;
  const void *grad;
  double lr, momentum, dampening, decay;
  bool nesterov, maximize, first, wide;
} sgd_task;
typedef struct adam_task {
  void *param, *avg, *avg_sq, *top;
  const void *grad;
  double lr, beta1, beta2, eps, decay;
  int64_t step;
  bool decoupled, maximize, wide;
} adam_task;
typedef struct adadelta_task {
  void *param, *square_avg, *acc_delta;
  const void *grad;
  double lr, rho, eps, decay;
  bool maximize, wide;
} adadelta_task;

#define T float
#define SQRT sqrtf
#define NAME(x) x##_f32
#include "cpu/optim_rows.h"
#undef T
#undef SQRT
#undef NAME
#define T double
#define SQRT sqrt
#define NAME(x) x##_f64
#include "cpu/optim_rows.h"

static void sgd_run(void *ctx, int64_t begin, int64_t end) {
  const sgd_task *t = ctx;
  (t->wide ? sgd_f64 : sgd_f32)(t, begin, end);
}
// sgd_step(param, grad, momentum_buffer, lr, momentum, dampening, weight_decay, nesterov, maximize,
//   first) -> param, buffer
PX_KERNEL(sgd_step) {
  static const char spec[] = "bb-r-";
  int compute = px__compute_of(l->operands[0].dtype);
  px__dense d[5];
  if (!px__dense_open(d, l, spec, compute)) return PX_OK;
  sgd_task t = {.param = d[0].at,
                .buffer = d[1].at,
                .grad = d[3].at,
                .lr = px__param_float(l, 3),
                .momentum = px__param_float(l, 4),
                .dampening = px__param_float(l, 5),
                .decay = px__param_float(l, 6),
                .nesterov = px__param_int(l, 7) != 0,
                .maximize = px__param_int(l, 8) != 0,
                .first = px__param_int(l, 9) != 0,
                .wide = compute == PX_FLOAT64};
  px__cpu_parallel(d[0].n, GRAIN, sgd_run, &t);
  px__dense_close(d, spec);
  return PX_OK;
}
static void adam_run(void *ctx, int64_t begin, int64_t end) {
  const adam_task *t = ctx;
  (t->wide ? adam_f64 : adam_f32)(t, begin, end);
}
// adam_step(param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, lr, beta1, beta2, eps, weight_decay,
//   step, decoupled, maximize) -> param, exp_avg, exp_avg_sq, max_exp_avg_sq
PX_KERNEL(adam_step) {
  static const char spec[] = "bbbb-r---";
  int compute = px__compute_of(l->operands[0].dtype);
  px__dense d[9];
  if (!px__dense_open(d, l, spec, compute)) return PX_OK;
  adam_task t = {.param = d[0].at,
                 .avg = d[1].at,
                 .avg_sq = d[2].at,
                 .top = d[3].at,
                 .grad = d[5].at,
                 .lr = px__param_float(l, 5),
                 .beta1 = px__param_float(l, 6),
                 .beta2 = px__param_float(l, 7),
                 .eps = px__param_float(l, 8),
                 .decay = px__param_float(l, 9),
                 .step = px__param_int(l, 10),
                 .decoupled = px__param_int(l, 11) != 0,
                 .maximize = px__param_int(l, 12) != 0,
                 .wide = compute == PX_FLOAT64};
  px__cpu_parallel(d[0].n, GRAIN, adam_run, &t);
  px__dense_close(d, spec);
  return PX_OK;
}
static void adadelta_run(void *ctx, int64_t begin, int64_t end) {
  const adadelta_task *t = ctx;
  (t->wide ? adadelta_f64 : adadelta_f32)(t, begin, end);
}
// adadelta_step(param, grad, square_avg, acc_delta, lr, rho, eps, weight_decay, maximize)
//   -> param, square_avg, acc_delta
PX_KERNEL(adadelta_step) {
  static const char spec[] = "bbb-r--";
  int compute = px__compute_of(l->operands[0].dtype);
  px__dense d[7];
  if (!px__dense_open(d, l, spec, compute)) return PX_OK;
  adadelta_task t = {.param = d[0].at,
                     .square_avg = d[1].at,
                     .acc_delta = d[2].at,
                     .grad = d[4].at,
                     .lr = px__param_float(l, 4),
                     .rho = px__param_float(l, 5),
                     .eps = px__param_float(l, 6),
                     .decay = px__param_float(l, 7),
                     .maximize = px__param_int(l, 8) != 0,
                     .wide = compute == PX_FLOAT64};
  px__cpu_parallel(d[0].n, GRAIN, adadelta_run, &t);
  px__dense_close(d, spec);
  return PX_OK;
}
