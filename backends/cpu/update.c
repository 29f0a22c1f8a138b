// SPDX-License-Identifier: Apache-2.0
// Runs the loop of an optimiser's update.
#include "cpu/update.h"
#include "cpu/threads.h"

enum { GRAIN = 32 * 1024 };

typedef struct task {
  const px__update *update;
  px__update_rows rows;
} task;
static void run(void *context, int64_t begin, int64_t end) {
  const task *t = context;
  t->rows(t->update, begin, end);
}

px_status px__cpu_update(px__dense *d, const px__update *u, const px__update_rows *rows,
                         const px_operand *param) {
  task t = {u, rows[px__compute_of(param->dtype) == PX_FLOAT64]};
  if (!d->failed) px__cpu_parallel(px_operand_numel(param), GRAIN, run, &t);
  px__dense_close(d);
  return PX_OK;
}
