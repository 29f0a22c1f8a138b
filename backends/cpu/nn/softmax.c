// SPDX-License-Identifier: Apache-2.0
// softmax and log_softmax with their backward kernels: one pass over memory if a row fits into the
// cache. Threads share the rows. fp16 and bf16 rows are converted to float a few at a time.
#include "cpu/threads/buffer.h"
#include "cpu/convert/dense.h"
#include "cpu/convert/float_rows.h"
#include "cpu/threads/threads.h"
#include "cpu/vector/rows.h"
#include "kernel_args/norm.h"

#include <stdlib.h>

enum {
  LANES = 32,        // interleaved rows processed together
  GRAIN = 16 * 1024  // elements per thread, min
};

typedef struct task {
  void *to;
  const void *a, *b;  // forward: x; backward: the gradient and y
  int64_t size, inner;
  int dtype;  // of rows that are converted to float
  bool logs, backward, wide;
} task;

#define T float
#define LOG logf
#define NAME(x) x##_f32
#include "cpu/nn/softmax_rows.h"
#undef T
#undef LOG
#undef NAME
#define T double
#define LOG log
#define NAME(x) x##_f64
#include "cpu/nn/softmax_rows.h"

static void run(void *ctx, int64_t begin, int64_t end) {
  const task *t = ctx;
  if (t->wide)
    range_f64(t, begin, end);
  else
    range_f32(t, begin, end);
}

static void run_halves(void *ctx, int64_t begin, int64_t end) {
  const task *t = ctx;
  PX__BUFFER(float, to, PX__ROW_SCRATCH);
  PX__BUFFER(float, a, PX__ROW_SCRATCH);
  PX__BUFFER(float, b, PX__ROW_SCRATCH);
  task part = *t;
  part.to = to, part.a = a, part.b = b;
  for (int64_t i = begin, n; i < end; i += n) {
    n = px__rows_in_scratch(t->size, end - i);
    px__rows_load(a, t->a, t->dtype, i * t->size, n * t->size);
    if (t->backward) px__rows_load(b, t->b, t->dtype, i * t->size, n * t->size);
    range_f32(&part, 0, n);
    px__rows_store(t->to, t->dtype, to, i * t->size, n * t->size);
  }
}
// Runs fp16 and bf16 rows in float, a few at a time, if the layout allows it.
static bool try_halves(const px_operand *to, const px_operand *a, const px_operand *b, task *t,
                       int64_t rows) {
  if (t->inner != 1 || !px__are_half_rows(to, a, t->size)) return false;
  if (b && !px__are_half_rows(to, b, t->size)) return false;
  t->to = to->data, t->a = a->data, t->b = b ? b->data : NULL, t->dtype = to->dtype;
  px__cpu_parallel(rows, GRAIN / t->size + 1, run_halves, t);
  return true;
}

// Forward if b is NULL, else backward.
static px_status softmax(const px_launch *l, const px_operand *to, const px_operand *a,
                         const px_operand *b, int64_t dim, bool logs) {
  px__dense d = {.launch = l};
  int64_t outer, size, inner;
  int compute = px__compute_of(to->dtype);
  px__split_sizes(to, dim, &outer, &size, &inner);
  if (outer * size * inner == 0) return PX_OK;
  task t = {.size = size,
            .inner = inner,
            .logs = logs,
            .backward = b != NULL,
            .wide = compute == PX_FLOAT64};
  if (try_halves(to, a, b, &t, outer)) return PX_OK;
  t.to = px__dense_out(&d, to, compute);
  t.a = px__dense_in(&d, a, compute);
  t.b = px__dense_in(&d, b, compute);
  int64_t units = inner == 1 ? outer : outer * px__ceil_div(inner, LANES);
  int64_t cost = size * (inner == 1 ? 1 : LANES);
  if (!d.failed) px__cpu_parallel(units, cost > GRAIN ? 1 : GRAIN / cost, run, &t);
  px__dense_close(&d);
  return PX_OK;
}
PX_KERNEL(softmax) { return softmax(l, args->out, args->self, NULL, args->dim, false); }
PX_KERNEL(log_softmax) { return softmax(l, args->out, args->self, NULL, args->dim, true); }
PX_KERNEL(softmax_backward) {
  return softmax(l, args->out, args->grad_output, args->output, args->dim, false);
}
PX_KERNEL(log_softmax_backward) {
  return softmax(l, args->out, args->grad_output, args->output, args->dim, true);
}
