// SPDX-License-Identifier: Apache-2.0
// softmax and log_softmax with their backward kernels: one pass over memory, as long as a row fits
// the cache. Threads share the rows.
#include "cpu/dense.h"
#include "cpu/threads.h"
#include "cpu/vec.h"

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

static px_status softmax(const px_launch *l, bool logs, bool backward, int64_t dim) {
  const char *spec = backward ? "wrr" : "wr";
  px__dense d[3];
  int64_t outer, size, inner;
  px__around(&l->operands[0], dim, &outer, &size, &inner);
  int compute = px__compute_of(l->operands[0].dtype);
  if (outer * size * inner == 0 || !px__dense_open(d, l, spec, compute)) return PX_OK;
  task t = {.to = d[0].at,
            .a = d[1].at,
            .b = backward ? d[2].at : NULL,
            .size = size,
            .inner = inner,
            .logs = logs,
            .backward = backward,
            .wide = compute == PX_FLOAT64};
  int64_t units = inner == 1 ? outer : outer * ((inner + LANES - 1) / LANES);
  int64_t cost = size * (inner == 1 ? 1 : LANES);
  px__cpu_parallel(units, cost > GRAIN ? 1 : GRAIN / cost, run, &t);
  px__dense_close(d, spec);
  return PX_OK;
}
PX_KERNEL(softmax) { return softmax(l, false, false, px__param_int(l, 1)); }
PX_KERNEL(log_softmax) { return softmax(l, true, false, px__param_int(l, 1)); }
PX_KERNEL(softmax_backward) { return softmax(l, false, true, px__param_int(l, 2)); }
PX_KERNEL(log_softmax_backward) { return softmax(l, true, true, px__param_int(l, 2)); }
