// SPDX-License-Identifier: Apache-2.0
// Runs the loop of an optimiser's update, and makes the numbers of one.
#include "cpu/update.h"
#include "cpu/threads.h"

#include <string.h>

enum { GRAIN = 32 * 1024 };

typedef struct task {
  const px__update *update;
  px__update_rows rows;
} task;
static void run(void *context, int64_t begin, int64_t end) {
  const task *t = context;
  t->rows(t->update, begin, end);
}

// Takes the numbers of a line, and moves the scalars on; false: the step is left out.
static bool take_line(px__update *u) {
  if (!u->line) return true;
  if (u->line[PX_NUMBERS_LEFT_OUT] != 0) return false;
  memcpy(u->numbers, u->line, sizeof u->numbers);
  for (int k = 0; k < PX_NUMBERS_SCALARS; k++)
    if (u->scalars[k]) *u->scalars[k] = (float)u->line[PX_NUMBERS + k];
  return true;
}

px_status px__cpu_update(px__dense *d, px__update *u, const px__update_rows *rows,
                         const px_operand *param) {
  task t = {u, rows[px__compute_of(param->dtype) == PX_FLOAT64]};
  if (!d->failed && take_line(u)) px__cpu_parallel(px_operand_numel(param), GRAIN, run, &t);
  px__dense_close(d);
  return PX_OK;
}

px_status px__cpu_numbers(const px_launch *l, px__numbers *p, px__numbers_of make,
                          const px_operand *out, const px_operand *rate, const px_operand *found,
                          const px_operand *scalars) {
  px__dense d = {.launch = l};
  double *line = px__dense_out(&d, out, PX_FLOAT64);
  const double *by = px__dense_in(&d, rate, PX_FLOAT64);
  const float *bad = px__dense_in(&d, found, PX_FLOAT32);
  if (!d.failed && by) p->options[p->rate_at] = *by;
  for (int64_t i = 0; i < out->sizes[0] && !d.failed; i++, line += PX_NUMBERS_LINE) {
    memset(line, 0, PX_NUMBERS_LINE * sizeof *line);
    for (int k = 0; k < p->each; k++) {
      const float *scalar = px__dense_in(&d, &scalars[i * p->each + k], PX_FLOAT32);
      if (scalar) line[PX_NUMBERS + k] = *scalar;
    }
    make(p->options, line + PX_NUMBERS, p->first, line);
    line[PX_NUMBERS_LEFT_OUT] = bad && *bad != 0;
  }
  px__dense_close(&d);
  return PX_OK;
}
