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
PX_KERNEL(sgd_step) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->new_param->dtype);
  sgd_task t = {.param = px__dense_inout(&d, args->new_param, compute),
                .buffer = px__dense_inout(&d, args->new_buffer, compute),
                .grad = px__dense_in(&d, args->grad, compute),
                .lr = args->lr,
                .momentum = args->momentum,
                .dampening = args->dampening,
                .decay = args->weight_decay,
                .nesterov = args->nesterov,
                .maximize = args->maximize,
                .first = args->first,
                .wide = compute == PX_FLOAT64};
  if (!d.failed) px__cpu_parallel(px__operand_numel(args->new_param), GRAIN, sgd_run, &t);
  px__dense_close(&d);
  return PX_OK;
}
static void adam_run(void *ctx, int64_t begin, int64_t end) {
  const adam_task *t = ctx;
  (t->wide ? adam_f64 : adam_f32)(t, begin, end);
}
PX_KERNEL(adam_step) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->new_param->dtype);
  adam_task t = {.param = px__dense_inout(&d, args->new_param, compute),
                 .avg = px__dense_inout(&d, args->new_avg, compute),
                 .avg_sq = px__dense_inout(&d, args->new_avg_sq, compute),
                 .top = px__dense_inout(&d, args->new_max, compute),
                 .grad = px__dense_in(&d, args->grad, compute),
                 .lr = args->lr,
                 .beta1 = args->beta1,
                 .beta2 = args->beta2,
                 .eps = args->eps,
                 .decay = args->weight_decay,
                 .step = args->step,
                 .decoupled = args->decoupled,
                 .maximize = args->maximize,
                 .wide = compute == PX_FLOAT64};
  if (!d.failed) px__cpu_parallel(px__operand_numel(args->new_param), GRAIN, adam_run, &t);
  px__dense_close(&d);
  return PX_OK;
}
static void adadelta_run(void *ctx, int64_t begin, int64_t end) {
  const adadelta_task *t = ctx;
  (t->wide ? adadelta_f64 : adadelta_f32)(t, begin, end);
}
PX_KERNEL(adadelta_step) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->new_param->dtype);
  adadelta_task t = {.param = px__dense_inout(&d, args->new_param, compute),
                     .square_avg = px__dense_inout(&d, args->new_square_avg, compute),
                     .acc_delta = px__dense_inout(&d, args->new_acc_delta, compute),
                     .grad = px__dense_in(&d, args->grad, compute),
                     .lr = args->lr,
                     .rho = args->rho,
                     .eps = args->eps,
                     .decay = args->weight_decay,
                     .maximize = args->maximize,
                     .wide = compute == PX_FLOAT64};
  if (!d.failed) px__cpu_parallel(px__operand_numel(args->new_param), GRAIN, adadelta_run, &t);
  px__dense_close(&d);
  return PX_OK;
}
