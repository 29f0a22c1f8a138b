// SPDX-License-Identifier: Apache-2.0
// Launches the updates of optimisers, whose kernels the generator writes (kernels_cuda_optim.cu):
// those of several parameters by one launch.
#include "cuda/host/kernel.h"

static _Thread_local px__cuda_lot *waiting;  // NULL: each goes at once

static px_status launch_lot(px__cuda_lot *lot) {
  int count = lot->p.count = lot->count;
  lot->count = 0;
  if (!count) return PX_OK;
  return px__cuda_by_dtype(&lot->launch, "kernels_cuda_optim", lot->name, lot->dtype,
                           lot->p.of[count - 1].end, K_BLOCK, &lot->p);
}

void px__cuda_lot_begin(px__cuda_lot *lot) {
  lot->count = 0;
  waiting = lot;
}
px_status px__cuda_lot_end(px__cuda_lot *lot) {
  waiting = NULL;
  return launch_lot(lot);
}

// Whether a launch takes the step along: all have its numbers.
static bool fits(const px__cuda_lot *lot, const px_launch *l, const px__cuda_step *step,
                 const char *name, int dtype) {
  return lot->count < K_UPDATES && lot->dtype == dtype && lot->launch.stream == l->stream &&
         !strcmp(lot->name, name) && !memcmp(lot->p.numbers, step->numbers, sizeof step->numbers);
}

// A thread takes 16 bytes of each tensor, where all are aligned to them, a few times: what a block
// looks up is worth some work. At least one moves the scalars on.
static void add(px__cuda_lot *lot, const px__cuda_step *step, const px_operand *param) {
  enum { MOST_BLOCKS = 1 << 24, TURNS = 4 };
  k_update *u = &lot->p.of[lot->count];
  int64_t each = 16 / (int64_t)px__cuda_dtype_size(param->dtype);
  *u = (k_update){.grad = step->grad, .n = px_operand_numel(param), .line = step->line};
  memcpy(u->at, step->at, sizeof u->at);
  memcpy(u->scalars, step->scalars, sizeof u->scalars);
  u->vector = (uintptr_t)u->grad % 16 == 0;
  for (int i = 0; i < K_UPDATED; i++) u->vector &= (uintptr_t)u->at[i] % 16 == 0;
  int64_t threads = u->vector ? u->n / (each * TURNS) + 1 : u->n;
  int64_t blocks = (threads + K_BLOCK - 1) / K_BLOCK;
  blocks = blocks < 1 ? 1 : blocks > MOST_BLOCKS ? MOST_BLOCKS : blocks;
  u->end = (lot->count++ ? u[-1].end : 0) + (uint32_t)blocks;
}

px_status px__cuda_update(px__cuda_dense *d, const px__cuda_step *step, const char *name,
                          const px_operand *param) {
  px__cuda_lot own;
  own.count = 0;
  PX_CUDA_PASS(d->status);
  // What is copied back can wait for no other.
  px__cuda_lot *lot = waiting && !d->count ? waiting : &own;
  if (lot->count && !fits(lot, d->launch, step, name, param->dtype)) PX_CUDA_PASS(launch_lot(lot));
  if (!lot->count) {
    lot->launch = *d->launch, lot->name = name, lot->dtype = param->dtype;
    memcpy(lot->p.numbers, step->numbers, sizeof step->numbers);
  }
  add(lot, step, param);
  if (lot != &own) return PX_OK;
  PX_CUDA_PASS(launch_lot(lot));
  return px__cuda_dense_close(d);
}

_Static_assert((int)K_LINE == (int)PX_NUMBERS_ROW && (int)K_LEFT_OUT == (int)PX_NUMBERS_SKIPPED &&
                   (int)K_UPDATE_NUMBERS == (int)PX_NUMBERS &&
                   (int)K_SCALARS == (int)PX_NUMBERS_SCALARS,
               "a line of numbers is that of phlox/backend.h");
px_status px__cuda_numbers(const px_launch *l, k_numbers *p, const char *name,
                           const px_operand *out, const px_operand *rate, const px_operand *found,
                           const px_operand *scalars) {
  px__cuda_dense d = {.launch = l};
  p->lines = (int32_t)out->sizes[0];
  p->out = px__cuda_dense_out(&d, out, PX_FLOAT64);
  p->rate = px__cuda_dense_in(&d, rate, PX_FLOAT64);
  p->found = px__cuda_dense_in(&d, found, PX_FLOAT32);
  for (int64_t i = 0; i < p->lines * p->each; i++)
    p->scalars[i] = px__cuda_dense_in(&d, &scalars[i], PX_FLOAT32);
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_over(l, "kernels_cuda_optim", name, p->lines, p));
  return px__cuda_dense_close(&d);
}
