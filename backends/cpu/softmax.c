// SPDX-License-Identifier: Apache-2.0
// softmax and log_softmax with their backward kernels: one pass over memory, as long as a row fits
// the cache. Threads share the rows.
#include "cpu/dense.h"
#include "cpu/threads.h"
#include "cpu/vec.h"
#include "kernel_args/norm.h"

#include <stdlib.h>

enum { LANES = 32, GRAIN = 16 * 1024 };

typedef struct task {
  void *to;
  const void *a, *b;  // forward: x; backward: the gradient and y
  int64_t size, inner;
  bool logs, backward, wide;
} task;

#define T float
#define LOG logf
#define NAME(x) x##_f32
#include "cpu/softmax_rows.h"
#undef T
#undef LOG
#undef NAME
#define T double
#define LOG log
#define NAME(x) x##_f64
#include "cpu/softmax_rows.h"

static void run(void *ctx, int64_t begin, int64_t end) {
  const task *t = ctx;
  if (t->wide)
    range_f64(t, begin, end);
  else
    range_f32(t, begin, end);
}

// Forward where there is no b.
static px_status softmax(const px_launch *l, const px_operand *to, const px_operand *a,
                         const px_operand *b, int64_t dim, bool logs) {
  px__dense d = {.launch = l};
  int64_t outer, size, inner;
  int compute = px__compute_of(to->dtype);
  px__around(to, dim, &outer, &size, &inner);
  if (outer * size * inner == 0) return PX_OK;
  task t = {.to = px__dense_out(&d, to, compute),
            .a = px__dense_in(&d, a, compute),
            .b = px__dense_in(&d, b, compute),
            .size = size,
            .inner = inner,
            .logs = logs,
            .backward = b != NULL,
            .wide = compute == PX_FLOAT64};
  int64_t units = inner == 1 ? outer : outer * ((inner + LANES - 1) / LANES);
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
