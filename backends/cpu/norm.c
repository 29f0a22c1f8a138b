// SPDX-License-Identifier: Apache-2.0
// Layer and batch normalisation, forward and backward. Layers: threads share the rows, and the sums
// over rows are kept per chunk of rows, so that they do not depend on the number of threads.
// Batches: threads share the channels.
#include "cpu/dense.h"
#include "cpu/threads.h"
#include "cpu/vec.h"

#include <stdlib.h>

enum { LANES = 16, GRAIN = 16 * 1024, MAX_CHUNKS = 16 };

typedef struct layer_task {
  void *y, *mean, *rstd, *partial;
  const void *x, *grad, *weight, *bias;
  int64_t n, rows, chunks;
  double eps;
  bool wide;
} layer_task;
typedef struct batch_task {
  void *y, *mean, *invstd, *variance, *grad_weight, *grad_bias;
  const void *x, *grad, *weight, *bias, *running_mean, *running_var;
  int64_t outer, channels, inner;
  double eps;
  bool training, wide;
} batch_task;

#define BOTH "cpu/norm_rows.h"
#include "cpu/both.h"

static void layer_run(void *ctx, int64_t begin, int64_t end) {
  const layer_task *t = ctx;
  if (t->wide)
    layer_f64(t, begin, end);
  else
    layer_f32(t, begin, end);
}
static int64_t row_length(const px_launch *l, int param) {
  int64_t n = 1;
  for (int i = 0; i < l->params[param].n; i++) n *= l->params[param].v.ints[i];
  return n;
}
// native_layer_norm(input, normalized_shape, weight, bias, eps) -> output, mean, rstd
PX_KERNEL(native_layer_norm) {
  px__dense d[6];
  int compute = px__compute_of(l->operands[3].dtype);
  if (!px__dense_open(d, l, "wwwrrr", compute)) return PX_OK;
  int64_t n = row_length(l, 1), rows = n ? d[3].n / n : 0;
  layer_task t = {.y = d[0].at,
                  .mean = d[1].at,
                  .rstd = d[2].at,
                  .x = d[3].at,
                  .weight = d[4].at,
                  .bias = d[5].at,
                  .n = n,
                  .rows = rows,
                  .eps = px__param_float(l, 4),
                  .wide = compute == PX_FLOAT64};
  if (rows) px__cpu_parallel(rows, n > GRAIN ? 1 : GRAIN / n, layer_run, &t);
  px__dense_close(d, "wwwrrr");
  return PX_OK;
}

static void layer_backward_run(void *ctx, int64_t begin, int64_t end) {
  const layer_task *t = ctx;
  for (int64_t c = begin; c < end; c++) {
    if (t->wide)
      layer_backward_f64(t, c);
    else
      layer_backward_f32(t, c);
  }
}
// _layer_norm_backward(grad, input, normalized_shape, mean, rstd, weight) -> input, weight, bias
PX_KERNEL(layer_norm_backward) {
  static const char spec[] = "wwwrrrrr";
  px__dense d[8];
  int compute = px__compute_of(l->operands[4].dtype);
  if (!px__dense_open(d, l, spec, compute)) return PX_OK;
  int64_t n = row_length(l, 2), rows = n ? d[4].n / n : 0;
  int64_t chunks = rows * n / GRAIN + 1;
  if (chunks > MAX_CHUNKS) chunks = MAX_CHUNKS;
  size_t bytes = (size_t)(chunks * 2 * n) * px_dtype_size((px_dtype)compute);
  void *partial = px__scratch_new(l, bytes);
  if (partial) {
    memset(partial, 0, bytes);
    layer_task t = {.y = d[0].at,
                    .grad = d[3].at,
                    .x = d[4].at,
                    .mean = d[5].at,
                    .rstd = d[6].at,
                    .weight = d[7].at,
                    .partial = partial,
                    .n = n,
                    .rows = rows,
                    .chunks = chunks,
                    .wide = compute == PX_FLOAT64};
    px__cpu_parallel(chunks, 1, layer_backward_run, &t);
    (t.wide ? layer_sums_f64 : layer_sums_f32)(&t, d[1].at, d[2].at);
    free(partial);
  }
  px__dense_close(d, spec);
  return PX_OK;
}

static void batch_run(void *ctx, int64_t begin, int64_t end) {
  const batch_task *t = ctx;
  if (t->grad)
    (t->wide ? batch_backward_f64 : batch_backward_f32)(t, begin, end);
  else
    (t->wide ? batch_f64 : batch_f32)(t, begin, end);
}
static void batch_start(batch_task *t, const px_operand *x) {
  px__around(x, 1, &t->outer, &t->channels, &t->inner);
  int64_t each = t->outer * t->inner;
  // Channels that lie side by side in memory go to one thread.
  int64_t grain = each > GRAIN ? 1 : GRAIN / (each + 1) + 1;
  if (t->inner == 1 && grain < 16) grain = 16;
  if (each) px__cpu_parallel(t->channels, grain, batch_run, t);
}
// _batch_norm(input, weight, bias, running_mean, running_var, training, eps)
//   -> output, save_mean, save_invstd, variance (unbiased)
PX_KERNEL(native_batch_norm) {
  static const char spec[] = "wwwwrrrrr";
  px__dense d[9];
  int compute = px__compute_of(l->operands[4].dtype);
  if (!px__dense_open(d, l, spec, compute)) return PX_OK;
  batch_task t = {.y = d[0].at,
                  .mean = d[1].at,
                  .invstd = d[2].at,
                  .variance = d[3].at,
                  .x = d[4].at,
                  .weight = d[5].at,
                  .bias = d[6].at,
                  .running_mean = d[7].at,
                  .running_var = d[8].at,
                  .training = px__param_int(l, 5) != 0,
                  .eps = px__param_float(l, 6),
                  .wide = compute == PX_FLOAT64};
  batch_start(&t, &l->operands[4]);
  px__dense_close(d, spec);
  return PX_OK;
}
// _batch_norm_backward(grad, input, weight, running_mean, running_var, save_mean, save_invstd,
//   training, eps) -> input, weight, bias
PX_KERNEL(batch_norm_backward) {
  static const char spec[] = "wwwrrrrrrr";
  px__dense d[10];
  int compute = px__compute_of(l->operands[4].dtype);
  if (!px__dense_open(d, l, spec, compute)) return PX_OK;
  batch_task t = {.y = d[0].at,
                  .grad_weight = d[1].at,
                  .grad_bias = d[2].at,
                  .grad = d[3].at,
                  .x = d[4].at,
                  .weight = d[5].at,
                  .running_mean = d[6].at,
                  .running_var = d[7].at,
                  .mean = d[8].at,
                  .invstd = d[9].at,
                  .training = px__param_int(l, 7) != 0,
                  .eps = px__param_float(l, 8),
                  .wide = compute == PX_FLOAT64};
  if (t.grad) batch_start(&t, &l->operands[4]);
  px__dense_close(d, spec);
  return PX_OK;
}
// running_average_(self, value, weight): self = (1 - weight) * self + weight * value
PX_KERNEL(running_average) {
  static const char spec[] = "b-r";
  px__dense d[3];
  if (!px__dense_open(d, l, spec, PX_FLOAT64)) return PX_OK;
  double *to = d[0].at, *value = d[2].at, weight = px__param_float(l, 2);
  for (int64_t i = 0; i < d[0].n; i++) to[i] = (1 - weight) * to[i] + weight * value[i];
  px__dense_close(d, spec);
  return PX_OK;
}
