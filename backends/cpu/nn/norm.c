// SPDX-License-Identifier: Apache-2.0
// Layer and batch normalization, forward and backward.
//
// Layer norm: threads share the rows. fp16 and bf16 rows are converted to float a few at a time in
// the forward pass. Sums over rows are kept per chunk of rows, so they do not depend on the number
// of threads. Batch norm: threads share the channels; if channels are innermost, parts of the rows,
// whose sums are added in order.
#include "cpu/threads/buffer.h"
#include "cpu/convert/dense.h"
#include "cpu/convert/float_rows.h"
#include "cpu/threads/threads.h"
#include "cpu/vector/rows.h"
#include "kernel_args/norm.h"

#include <stdlib.h>

enum {
  LANES = 16,         // accumulators of a row
  GRAIN = 16 * 1024,  // elements per thread, min
  MAX_CHUNKS = 16,    // of rows, layer norm backward
  COLUMNS = 64,       // channels processed together
  MAX_PARTS = 32      // of rows, batch norm with innermost channels
};

typedef struct layer_task {
  void *y, *mean, *rstd, *partial;
  const void *x, *grad, *weight, *bias;
  int64_t n, rows, chunks;
  double eps;
  int dtype;  // of rows that are converted to float
  bool wide;
} layer_task;
struct row_part;
typedef struct batch_task {
  void *y, *mean, *invstd, *variance, *grad_weight, *grad_bias;
  const void *x, *grad, *weight, *bias, *running_mean, *running_var;
  int64_t outer, channels, inner;
  double eps;
  bool training, wide;
  // For [outer, channels]: parts of the rows; two sums per part and channel; per-channel values:
  // mean, scale, and shift or slopes.
  int64_t parts;
  double *sums;
  void *channel_values;
  void (*stage)(const struct batch_task *t, const struct row_part *p);
} batch_task;
// Rows from `row`, columns from c, and the start of their first sums.
typedef struct row_part {
  int64_t row, rows, c, n;
  double *sums;
} row_part;

static int64_t blocks_of(const batch_task *t) { return px__ceil_div(t->channels, COLUMNS); }
static void parts_run(void *ctx, int64_t begin, int64_t end) {
  const batch_task *t = ctx;
  for (int64_t i = begin; i < end; i++) {
    int64_t k = i / blocks_of(t), c = i % blocks_of(t) * COLUMNS;
    row_part p = {.row = t->outer * k / t->parts,
                  .c = c,
                  .n = t->channels - c < COLUMNS ? t->channels - c : COLUMNS,
                  .sums = t->sums + k * t->channels + c};
    p.rows = t->outer * (k + 1) / t->parts - p.row;
    t->stage(t, &p);
  }
}
static void run_stage(batch_task *t, void (*stage)(const batch_task *t, const row_part *p)) {
  t->stage = stage;
  px__cpu_parallel(t->parts * blocks_of(t), 1, parts_run, t);
}
// The first (or second) sum of a channel over all parts.
static double sum_of_parts(const batch_task *t, int64_t second, int64_t c) {
  double sum = 0;
  for (int64_t k = 0; k < t->parts; k++) sum += t->sums[(second * t->parts + k) * t->channels + c];
  return sum;
}

#define BOTH "cpu/nn/norm_rows.h"
#include "cpu/vector/for_f32_f64.h"

static void layer_run(void *ctx, int64_t begin, int64_t end) {
  const layer_task *t = ctx;
  if (t->wide)
    layer_f64(t, begin, end);
  else
    layer_f32(t, begin, end);
}
static void layer_run_halves(void *ctx, int64_t begin, int64_t end) {
  const layer_task *t = ctx;
  PX__BUFFER(float, y, PX__ROW_SCRATCH);
  PX__BUFFER(float, x, PX__ROW_SCRATCH);
  layer_task chunk_task = *t;
  chunk_task.y = y, chunk_task.x = x;
  for (int64_t i = begin, rows; i < end; i += rows) {
    rows = px__rows_in_scratch(t->n, end - i);
    chunk_task.mean = (float *)t->mean + i, chunk_task.rstd = (float *)t->rstd + i;
    px__rows_load(x, t->x, t->dtype, i * t->n, rows * t->n);
    layer_f32(&chunk_task, 0, rows);
    px__rows_store(t->y, t->dtype, y, i * t->n, rows * t->n);
  }
}
PX_KERNEL(native_layer_norm) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->input->dtype);
  int64_t n = px__list_product(&args->normalized_shape);
  bool halves = px__are_half_rows(args->output, args->input, n);
  layer_task t = {.y = halves ? args->output->data : px__dense_out(&d, args->output, compute),
                  .mean = px__dense_out(&d, args->mean, compute),
                  .rstd = px__dense_out(&d, args->rstd, compute),
                  .x = halves ? args->input->data : px__dense_in(&d, args->input, compute),
                  .dtype = args->input->dtype,
                  .weight = px__dense_in(&d, args->weight, compute),
                  .bias = px__dense_in(&d, args->bias, compute),
                  .n = n,
                  .rows = n ? px_operand_numel(args->input) / n : 0,
                  .eps = args->eps,
                  .wide = compute == PX_FLOAT64};
  if (!d.failed && t.rows)
    px__cpu_parallel(t.rows, n > GRAIN ? 1 : GRAIN / n, halves ? layer_run_halves : layer_run, &t);
  px__dense_close(&d);
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
PX_KERNEL(layer_norm_backward) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->input->dtype);
  int64_t n = px__list_product(&args->normalized_shape);
  int64_t rows = n ? px_operand_numel(args->input) / n : 0, chunks = rows * n / GRAIN + 1;
  if (chunks > MAX_CHUNKS) chunks = MAX_CHUNKS;
  if (chunks > rows) chunks = rows ? rows : 1;
  void *weight = px__dense_out(&d, args->grad_weight, compute);
  void *bias = px__dense_out(&d, args->grad_bias, compute);
  layer_task t = {.y = px__dense_out(&d, args->grad_input, compute),
                  .grad = px__dense_in(&d, args->grad_output, compute),
                  .x = px__dense_in(&d, args->input, compute),
                  .mean = px__dense_in(&d, args->mean, compute),
                  .rstd = px__dense_in(&d, args->rstd, compute),
                  .weight = px__dense_in(&d, args->weight, compute),
                  .n = n,
                  .rows = rows,
                  .chunks = chunks,
                  .wide = compute == PX_FLOAT64};
  size_t bytes = (size_t)(chunks * 2 * n) * px_dtype_size((px_dtype)compute);
  t.partial = d.failed ? NULL : px__scratch_new(l, bytes);
  if (t.partial) {
    px__cpu_clear(t.partial, bytes);
    px__cpu_parallel(chunks, 1, layer_backward_run, &t);
    (t.wide ? layer_sums_f64 : layer_sums_f32)(&t, weight, bias);
  }
  free(t.partial);
  px__dense_close(&d);
  return PX_OK;
}

static void batch_run(void *ctx, int64_t begin, int64_t end) {
  const batch_task *t = ctx;
  if (t->grad)
    (t->wide ? batch_backward_f64 : batch_backward_f32)(t, begin, end);
  else
    (t->wide ? batch_f64 : batch_f32)(t, begin, end);
}
static void batch_columns(const px_launch *l, batch_task *t) {
  int64_t side = t->channels < COLUMNS ? t->channels : COLUMNS;
  t->parts = t->outer * side / GRAIN + 1;
  if (t->parts > MAX_PARTS) t->parts = MAX_PARTS;
  if (t->parts > t->outer) t->parts = t->outer;
  int64_t sums = 2 * t->parts * t->channels;
  t->sums = px__scratch_new(l, (size_t)(sums + 4 * t->channels) * sizeof *t->sums);
  if (!t->sums) return;
  t->channel_values = t->sums + sums;
  memset(t->sums, 0, (size_t)sums * sizeof *t->sums);
  if (t->grad)
    (t->wide ? batch_columns_backward_f64 : batch_columns_backward_f32)(t);
  else
    (t->wide ? batch_columns_f64 : batch_columns_f32)(t);
  free(t->sums);
}
static void batch_start(const px_launch *l, batch_task *t, const px_operand *x) {
  px__split_sizes(x, 1, &t->outer, &t->channels, &t->inner);
  int64_t each = t->outer * t->inner;
  if (each && t->inner == 1)
    batch_columns(l, t);
  else if (each)
    px__cpu_parallel(t->channels, each > GRAIN ? 1 : GRAIN / (each + 1) + 1, batch_run, t);
}
PX_KERNEL(native_batch_norm) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->input->dtype);
  batch_task t = {.y = px__dense_out(&d, args->output, compute),
                  .mean = px__dense_out(&d, args->save_mean, compute),
                  .invstd = px__dense_out(&d, args->save_invstd, compute),
                  .variance = px__dense_out(&d, args->variance, compute),  // unbiased
                  .x = px__dense_in(&d, args->input, compute),
                  .weight = px__dense_in(&d, args->weight, compute),
                  .bias = px__dense_in(&d, args->bias, compute),
                  .running_mean = px__dense_in(&d, args->running_mean, compute),
                  .running_var = px__dense_in(&d, args->running_var, compute),
                  .training = args->training,
                  .eps = args->eps,
                  .wide = compute == PX_FLOAT64};
  if (!d.failed) batch_start(l, &t, args->input);
  px__dense_close(&d);
  return PX_OK;
}
PX_KERNEL(batch_norm_backward) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->input->dtype);
  batch_task t = {.y = px__dense_out(&d, args->grad_input, compute),
                  .grad_weight = px__dense_out(&d, args->grad_weight, compute),
                  .grad_bias = px__dense_out(&d, args->grad_bias, compute),
                  .grad = px__dense_in(&d, args->grad_output, compute),
                  .x = px__dense_in(&d, args->input, compute),
                  .weight = px__dense_in(&d, args->weight, compute),
                  .running_mean = px__dense_in(&d, args->running_mean, compute),
                  .running_var = px__dense_in(&d, args->running_var, compute),
                  .mean = px__dense_in(&d, args->save_mean, compute),
                  .invstd = px__dense_in(&d, args->save_invstd, compute),
                  .training = args->training,
                  .eps = args->eps,
                  .wide = compute == PX_FLOAT64};
  if (!d.failed && t.grad) batch_start(l, &t, args->input);
  px__dense_close(&d);
  return PX_OK;
}
// self = (1 - weight) * self + weight * value
PX_KERNEL(running_average) {
  px__dense d = {.launch = l};
  double *to = px__dense_inout(&d, args->out, PX_FLOAT64), weight = args->weight;
  const double *value = px__dense_in(&d, args->value, PX_FLOAT64);
  int64_t n = d.failed ? 0 : px_operand_numel(args->out);
  for (int64_t i = 0; i < n; i++) to[i] = (1 - weight) * to[i] + weight * value[i];
  px__dense_close(&d);
  return PX_OK;
}
