// SPDX-License-Identifier: Apache-2.0
// Runs the loop of an optimizer update, and computes the numbers of a step.
#include "cpu/threads/buffer.h"
#include "cpu/threads/cache_line.h"
#include "cpu/loop/optim.h"
#include "cpu/convert/convert.h"
#include "cpu/threads/threads.h"

#include <string.h>

enum {
  GRAIN = 32 * 1024,  // elements per thread, min
  BLOCK = 1024        // elements converted at a time; floats of all tensors fit in L1
};

typedef struct task {
  const px__update *update;
  px__update_rows rows;
  int count, compute, dtypes[PX__UPDATE_TENSORS];  // tensors; compute dtype of the rows
  bool converts;
} task;

// The dtype to open an operand in: fp16 and bf16 are converted by blocks later.
static int storage_dtype(const px_operand *o, int compute) {
  bool half = o->dtype == PX_FLOAT16 || o->dtype == PX_BFLOAT16;
  return half && compute == PX_FLOAT32 ? o->dtype : compute;
}

// Prefetches the next block; the hardware prefetcher would start only at its first read.
static void prefetch_next_block(const char *at, int64_t item) {
  for (int64_t i = 0; i < BLOCK * item; i += PX__CACHE_LINE)
    __builtin_prefetch(at + BLOCK * item + i);
}

typedef float converted[BLOCK];
static void run_block(const task *t, int64_t begin, int64_t n) {
  PX__BUFFER(converted, block, PX__UPDATE_TENSORS);
  px__update part = *t->update;
  for (int k = 0; k < t->count; k++) {
    char *at = part.at[k];
    if (!at) continue;
    int64_t item = px__cpu_item[t->dtypes[k]];
    part.at[k] = at + begin * item;
    if (t->dtypes[k] == t->compute) continue;
    prefetch_next_block(part.at[k], item);
    px__cpu_convert(block[k], sizeof **block, t->compute, part.at[k], item, t->dtypes[k], n);
    part.at[k] = block[k];
  }
  t->rows(&part, 0, n);
  for (int k = 1; k < t->count; k++) {  // the gradient (0) is read-only
    if (part.at[k] != block[k]) continue;
    int64_t item = px__cpu_item[t->dtypes[k]];
    px__cpu_convert((char *)t->update->at[k] + begin * item, item, t->dtypes[k], block[k],
                    sizeof **block, t->compute, n);
  }
}

static void run(void *context, int64_t begin, int64_t end) {
  const task *t = context;
  if (!t->converts) {
    t->rows(t->update, begin, end);
    return;
  }
  for (int64_t i = begin; i < end; i += BLOCK) run_block(t, i, end - i < BLOCK ? end - i : BLOCK);
}

static bool have_layout(const task *t, const px_operand *const *tensors, bool channels_last) {
  for (int k = 0; k < t->count; k++) {
    const px_operand *o = tensors[k];
    if (px__operand_present(o) &&
        !(channels_last ? px__operand_channels_last(o) : px__operand_row_major(o)))
      return false;
  }
  return true;
}
// Uses the tensors directly if all are row-major or all channels_last, with supported dtypes.
// Elements are then processed in memory order.
static bool use_directly(px__update *u, task *t, const px_operand *const *tensors) {
  for (int k = 0; k < t->count; k++) {
    const px_operand *o = tensors[k];
    u->at[k] = NULL;
    if (!px__operand_present(o)) continue;
    if (o->dtype != t->compute && o->dtype != storage_dtype(o, t->compute)) return false;
    u->at[k] = o->data, t->dtypes[k] = o->dtype;
    t->converts |= o->dtype != t->compute;
  }
  return have_layout(t, tensors, false) || have_layout(t, tensors, true);
}

static void open_tensors(px__dense *d, px__update *u, task *t, const px_operand *const *tensors) {
  if (use_directly(u, t, tensors)) return;
  t->converts = false;
  for (int k = 0; k < t->count; k++) {
    int dtype = t->dtypes[k] = storage_dtype(tensors[k], t->compute);
    u->at[k] = k ? px__dense_inout(d, tensors[k], dtype) : px__dense_in(d, tensors[k], dtype);
    t->converts |= u->at[k] && dtype != t->compute;
  }
}

// Loads the numbers of a step from its line, and stores the advanced scalars. Returns false if the
// step is to be skipped.
static bool load_numbers(px__update *u) {
  if (!u->line) return true;
  if (u->line[PX_NUMBERS_SKIPPED] != 0) return false;
  memcpy(u->numbers, u->line, sizeof u->numbers);
  for (int k = 0; k < PX_NUMBERS_SCALARS; k++)
    if (u->scalars[k]) *u->scalars[k] = (float)u->line[PX_NUMBERS + k];
  return true;
}

px_status px__cpu_update(px__dense *d, px__update *u, const px__update_rows *rows,
                         const px_operand *const *tensors, int count) {
  const px_operand *param = tensors[1];
  int compute = px__compute_of(param->dtype);
  task t = {.update = u, .rows = rows[compute == PX_FLOAT64], .count = count, .compute = compute};
  open_tensors(d, u, &t, tensors);
  if (!d->failed && load_numbers(u)) px__cpu_parallel(px_operand_numel(param), GRAIN, run, &t);
  px__dense_close(d);
  return PX_OK;
}

px_status px__cpu_numbers(const px_launch *l, px__step_inputs *p, px__numbers_of make,
                          const px_operand *out, const px_operand *rate, const px_operand *found,
                          const px_operand *scalars) {
  px__dense d = {.launch = l};
  double *line = px__dense_out(&d, out, PX_FLOAT64);
  const double *by = px__dense_in(&d, rate, PX_FLOAT64);
  const float *bad = px__dense_in(&d, found, PX_FLOAT32);
  if (!d.failed && by) p->options[p->rate_at] = *by;
  for (int64_t i = 0; i < out->sizes[0] && !d.failed; i++, line += PX_NUMBERS_ROW) {
    memset(line, 0, PX_NUMBERS_ROW * sizeof *line);
    for (int k = 0; k < p->each; k++) {
      const float *scalar = px__dense_in(&d, &scalars[i * p->each + k], PX_FLOAT32);
      if (scalar) line[PX_NUMBERS + k] = *scalar;
    }
    make(p->options, line + PX_NUMBERS, p->first, line);
    line[PX_NUMBERS_SKIPPED] = bad && *bad != 0;
  }
  px__dense_close(&d);
  return PX_OK;
}
